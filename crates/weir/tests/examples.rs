//! Examples that are programs by themselves, from their first line to their end. What is told of them here is what their heads
//! say; the others have tests of their own.

#![forbid(unsafe_code)]
#![cfg(target_os = "linux")]

use std::{
    env, fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{Shutdown, SocketAddr, UdpSocket},
    os::unix::{fs::MetadataExt as _, net::UnixStream},
    process::{Child, ChildStdout, Command, Stdio},
    time::Duration,
};

/// Far more than anything here takes.
const LONG: Duration = Duration::from_secs(60);

/// An example that runs.
struct Example {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Example {
    /// Starts it. `None` where it was not built, which cargo does with all tests, and not with these alone.
    fn start(name: &str, arguments: &[&str]) -> Option<Self> {
        let own = env::current_exe().unwrap();
        let program = own.ancestors().nth(2).unwrap().join("examples").join(name);
        if !program.exists() {
            eprintln!("not run: there is no {}", program.display());
            return None;
        }
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Some(Self { child, output })
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line
    }

    /// The address in its first line.
    fn address(&mut self) -> SocketAddr {
        let line = self.line();
        let mut words = line.split_whitespace();
        words.find_map(|word| word.parse().ok()).unwrap_or_else(|| panic!("{line:?}"))
    }

    fn interrupt(&self) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    }

    /// What else it says, when its input has ended or it was interrupted.
    fn rest(mut self) -> String {
        drop(self.child.stdin.take());
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        assert!(self.child.wait().unwrap().success(), "{rest}");
        rest
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn client() -> UdpSocket {
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.set_read_timeout(Some(LONG)).unwrap();
    client
}

#[test]
fn udp_echo_answers_until_it_is_interrupted() {
    let Some(mut example) = Example::start("udp_echo", &["127.0.0.1:0"]) else {
        return;
    };
    let (client, to) = (client(), example.address());
    client.send_to(b"hello", to).unwrap();
    let mut answer = [0; 16];
    assert_eq!(client.recv(&mut answer).unwrap(), 5);
    assert_eq!(answer[..5], *b"hello");
    example.interrupt();
    let rest = example.rest();
    assert!(rest.contains("1 datagrams, 1 echoed, 0 refused"), "{rest}");
}

#[test]
fn udp_sink_counts_until_it_is_interrupted() {
    let Some(mut example) = Example::start("udp_sink", &["127.0.0.1:0"]) else {
        return;
    };
    let to = example.address();
    client().send_to(b"hello", to).unwrap();
    // In whichever second it was received.
    loop {
        let line = example.line();
        assert!(line.contains(" datagrams/s"), "{line:?}");
        if line.starts_with("1 ") {
            break;
        }
    }
    example.interrupt();
    let rest = example.rest();
    assert!(rest.contains("1 datagrams in "), "{rest}");
}

#[test]
fn tcp_unix_tells_who_somebody_is_and_the_notes() {
    let path = env::temp_dir().join(format!("weir-notes-{}.sock", std::process::id()));
    let path = path.to_str().unwrap();
    let user = fs::metadata("/proc/self").unwrap().uid().to_string();
    let Some(mut example) = Example::start("tcp_unix", &[path, &user]) else { return };
    let line = example.line();
    assert!(line.contains(path), "{line}");
    for (said, notes) in [("hello\n", "hello\n"), ("", "hello\n"), ("again\n", "hello\nagain\n")] {
        let mut stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream.write_all(said.as_bytes()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(
            answer.starts_with("you are ") && answer.ends_with(&format!("\n{notes}")),
            "{answer}"
        );
    }
    example.rest();
}
