//! Clients that are not ours: what everyone has sends, and gets its echo.

use super::{
    client::fill,
    programs::{run, run_python},
    support::*,
};
use std::net::SocketAddr;

pub const CHECKS: &[Check] = &[("python", python), ("socat", socat), ("ncat", ncat)];

/// Several connections at a time on an event loop, each with a megabyte in random pieces, and a half-close.
const PYTHON: &str = r#"
import asyncio, hashlib, random, sys

async def client(number):
    reader, writer = await asyncio.open_connection(sys.argv[1], int(sys.argv[2]))
    rng = random.Random(number)
    sent, back = hashlib.sha256(), hashlib.sha256()

    async def send():
        left = 1 << 20
        while left:
            piece = rng.randbytes(min(left, rng.randint(1, 1 << rng.randint(0, 17))))
            sent.update(piece)
            writer.write(piece)
            await writer.drain()
            left -= len(piece)
        writer.write_eof()

    async def receive():
        total = 0
        while piece := await reader.read(65536):
            back.update(piece)
            total += len(piece)
        return total

    _, total = await asyncio.gather(send(), receive())
    assert total == 1 << 20, total
    assert sent.digest() == back.digest()
    writer.close()
    await writer.wait_closed()

async def main():
    await asyncio.wait_for(asyncio.gather(*(client(n) for n in range(8))), 60)

asyncio.run(main())
print("8 echoes")
"#;

fn python(subject: &Subject) -> Result<(), Skipped> {
    let (server, log) = subject.echo(&server());
    let to = server.local_addresses()[0];
    let (ip, port) = (to.ip().to_string(), to.port().to_string());
    let said = run_python(PYTHON, &[&ip, &port])?;
    assert_eq!(said.trim_ascii_end(), b"8 echoes");
    let total = stop(server, &log);
    assert_eq!((total.closed_finished, total.bytes_sent), (8, 8 << 20));
    Ok(())
}

/// Both close their side when their input ends, and read on until the server's end.
fn socat(subject: &Subject) -> Result<(), Skipped> {
    there_and_back(subject, "socat", |to| {
        // It waits for the other direction, for so many seconds at most.
        ["-t60", "-", &format!("TCP4:{to}")].map(String::from).to_vec()
    })
}

fn ncat(subject: &Subject) -> Result<(), Skipped> {
    there_and_back(subject, "ncat", |to| vec![to.ip().to_string(), to.port().to_string()])
}

fn there_and_back(
    subject: &Subject,
    program: &str,
    arguments: impl Fn(SocketAddr) -> Vec<String>,
) -> Result<(), Skipped> {
    let (server, log) = subject.echo(&server());
    let arguments = arguments(server.local_addresses()[0]);
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let mut bytes = vec![0; 1 << 20];
    fill(1, 0, &mut bytes);
    let back = run(program, &arguments, &bytes)?;
    assert!(back == bytes, "{} of {} bytes came back, or others", back.len(), bytes.len());
    assert_eq!(stop(server, &log).closed_finished, 1);
    Ok(())
}
