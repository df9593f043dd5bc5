//! Clients that are not ours: what everyone has sends, and gets its echo.

use super::{
    programs::{run, run_python},
    support::*,
};
use weir::udp::Server;

pub const CHECKS: &[Check] = &[("python", python), ("socat", socat), ("ncat", ncat)];

/// Sends datagrams of many sizes from two sockets and expects each of them back.
const PYTHON: &str = r#"
import socket, sys
to = ("127.0.0.1", int(sys.argv[1]))
sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
for s in sockets:
    s.settimeout(60)
for n in range(100):
    s = sockets[n % 2]
    sent = bytes((n + i) % 256 for i in range(n * 10))
    s.sendto(sent, to)
    back, source = s.recvfrom(2048)
    assert back == sent and source == to, (n, len(back), source)
print("100 echoes")
"#;

fn python(subject: &Subject) -> Result<(), Skipped> {
    let server = Server::bind(any_port()).limits(echo_limits());
    let (server, log) = subject.log_with(&server, Answer::Echo);
    let port = server.local_addresses()[0].port().to_string();
    let said = run_python(PYTHON, &[&port])?;
    assert_eq!(said.trim_ascii_end(), b"100 echoes");
    let total = stop(server, &log);
    assert_eq!(total.datagrams, 100);
    Ok(())
}

fn socat(subject: &Subject) -> Result<(), Skipped> {
    one_way(subject, "socat", |port| {
        vec!["-u".into(), "-".into(), format!("UDP4:127.0.0.1:{port}")]
    })
}

fn ncat(subject: &Subject) -> Result<(), Skipped> {
    one_way(subject, "ncat", |port| {
        ["-u", "--send-only", "127.0.0.1", &port.to_string()].map(String::from).to_vec()
    })
}

/// Sends one datagram.
fn one_way(
    subject: &Subject,
    program: &str,
    arguments: impl Fn(u16) -> Vec<String>,
) -> Result<(), Skipped> {
    let (server, log) = subject.log(&Server::bind(any_port()));
    let arguments = arguments(server.local_addresses()[0].port());
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    run(program, &arguments, b"from a stranger")?;
    log.wait_for(1);
    stop(server, &log);
    assert_eq!(log.seen()[0].bytes, b"from a stranger");
    Ok(())
}
