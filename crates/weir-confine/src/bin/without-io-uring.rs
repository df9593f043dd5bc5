//! `without-io-uring EPERM PROGRAM [ARGUMENT ...]`: runs a program for which every call of io_uring
//! answers that error (or ENOSYS). CI runs whole test suites so.

use std::process::ExitCode;

#[cfg(target_os = "linux")]
fn main() -> ExitCode {
    use std::os::unix::process::CommandExt as _;
    let mut words = std::env::args_os().skip(1);
    let errno = match words.next().as_deref().and_then(|word| word.to_str()) {
        Some("EPERM") => 1,
        Some("ENOSYS") => 38,
        _ => return refuse("the first word is the error: EPERM or ENOSYS"),
    };
    let Some(program) = words.next() else { return refuse("a program to run is missing") };
    let mut command = std::process::Command::new(&program);
    command.args(words);
    let confinement = weir_confine::Confinement::new().forbid_io_uring(errno);
    let error = confinement.confine(&mut command).exec();
    refuse(&format!("cannot run {}: {error}", program.display()))
}

#[cfg(not(target_os = "linux"))]
fn main() -> ExitCode {
    refuse("this system has no io_uring to forbid")
}

fn refuse(problem: &str) -> ExitCode {
    eprintln!("without-io-uring: {problem}");
    ExitCode::from(2)
}
