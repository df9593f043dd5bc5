use super::*;
use std::{
    io::{BufRead, BufReader},
    process::Stdio,
    thread,
};

#[test]
fn a_program_ends_with_the_thread_that_started_it() {
    let started = thread::spawn(|| {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "echo ready; exec sleep 1000"]).stdout(Stdio::piped());
        end_with_this_thread(&mut command);
        let mut child = command.spawn().expect("a shell");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
        assert_eq!(line, "ready\n");
        child
    });
    let mut child = started.join().expect("it does not panic");
    let ended = child.wait().expect("it can be waited for");
    assert!(!ended.success(), "{ended}");
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&ended), Some(libc::SIGKILL));
}
