//! What the tests of the program share.

#![allow(dead_code, reason = "not each test needs all of it")]

pub mod messages;
#[path = "../../../testing.rs"]
pub mod testing;

pub use testing::PATIENCE;

use std::{
    io::{BufRead as _, BufReader, Lines},
    net::{SocketAddr, UdpSocket},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

/// The zone that is served.
pub fn zone_file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/example.zone")
}

/// A program that runs, and ends with this.
pub struct Program {
    pub child: Child,
    pub address: SocketAddr,
    /// What else it says.
    pub says: Lines<BufReader<ChildStdout>>,
}

impl Program {
    /// weir-dns with the zone of the tests, and these arguments besides.
    pub fn start(arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir-dns"));
        command.arg("--zone").arg(zone_file()).args(["--listen", "127.0.0.1:0"]).args(arguments);
        Self::of(command)
    }

    /// Starts a command that says where it answers.
    pub fn of(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut says = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = says.next().expect("it says where it answers").unwrap();
        let address = line.rsplit(' ').next().unwrap().parse().unwrap();
        Self { child, address, says }
    }

    /// Asks it to end, and waits for that.
    #[cfg(unix)]
    pub fn end(mut self) -> std::process::ExitStatus {
        use nix::sys::signal::{Signal, kill};
        let id = nix::unistd::Pid::from_raw(self.child.id() as i32);
        kill(id, Signal::SIGTERM).unwrap();
        self.child.wait().unwrap()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Asks by UDP until an answer comes; `None` where none does for as long as one may be patient.
pub fn ask(client: &UdpSocket, to: SocketAddr, query: &[u8]) -> Option<Vec<u8>> {
    let began = Instant::now();
    client.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let mut answer = vec![0; 65_535];
    while began.elapsed() < PATIENCE {
        let _ = client.send_to(query, to);
        while let Ok((len, from)) = client.recv_from(&mut answer) {
            if from == to && answer[..2] == query[..2] {
                return Some(answer[..len].to_vec());
            }
        }
    }
    None
}
