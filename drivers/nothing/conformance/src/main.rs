//! Checks the device of `drivers/nothing` in every mode, from a program's side: what it brings, when, in
//! which order and number, on whose thread, and what becomes of I/O whose file, process or module goes.
//!
//! It loads and unloads the module again and again, so it is for a machine that may be lost:
//! `drivers/nothing/test` makes one. Called as `nothing-conformance MODULE.ko [PART OF A NAME...]`; it
//! prints a line per check, and fails if one did.

#[cfg(target_os = "linux")]
mod abi;
#[cfg(target_os = "linux")]
mod aio;
#[cfg(target_os = "linux")]
mod checks;
#[cfg(target_os = "linux")]
mod module;
#[cfg(target_os = "linux")]
mod ring;

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.split_first() {
        Some((first, rest)) if first == checks::CHILD => checks::child(rest),
        Some((module, filters)) => checks::run(module.into(), filters),
        None => {
            eprintln!("usage: nothing-conformance MODULE.ko [PART OF A NAME...]");
            std::process::ExitCode::from(2)
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn main() -> std::process::ExitCode {
    eprintln!("nothing-conformance: /dev/nothing is a device of Linux");
    std::process::ExitCode::from(2)
}
