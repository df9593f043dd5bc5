//! Programs that are not ours, at the other end of the wire.

use super::suite::Skipped;
use std::{
    io::Write,
    path::Path,
    process::{Command, Stdio},
    thread,
};

/// Runs a program to its end with this input, and returns its output.
pub fn run(program: &str, arguments: &[&str], input: &[u8]) -> Result<Vec<u8>, Skipped> {
    finish(Command::new(program).args(arguments), input)
}

/// Runs a script with these arguments to its end, and returns its output.
pub fn run_python(script: &str, arguments: &[&str]) -> Result<Vec<u8>, Skipped> {
    finish(python(script).args(arguments), b"")
}

/// Python that is to run a script, without what a user has installed. It is the distribution's where there
/// is one: what a version manager calls by that name takes longer to find Python than a script to run.
pub fn python(script: &str) -> Command {
    let its_own = "/usr/bin/python3";
    let is_there = cfg!(unix) && Path::new(its_own).exists();
    let mut command = Command::new(if is_there { its_own } else { "python3" });
    command.args(["-I", "-S", "-c", script]);
    command
}

fn finish(command: &mut Command, input: &[u8]) -> Result<Vec<u8>, Skipped> {
    let program = command.get_program().to_string_lossy().into_owned();
    let mut child = command
        // ncat reads all certificates of the system before it sends a byte, of which it then checks none.
        .envs([("SSL_CERT_FILE", "/dev/null"), ("SSL_CERT_DIR", "/dev/null")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| Skipped(format!("{program} cannot be run here: {e}")))?;
    let mut stdin = child.stdin.take().expect("piped");
    let output = thread::scope(|scope| {
        // A program that does not read has ended: see below. Dropping its end closes the pipe.
        scope.spawn(move || drop(stdin.write_all(input)));
        child.wait_with_output().expect("a child can be waited for")
    });
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {}: {errors}", output.status);
    Ok(output.stdout)
}
