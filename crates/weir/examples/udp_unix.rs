//! What programs of this machine log by a Unix socket, as syslog takes it (`<PRIORITY>text`, RFC 3164): each line is printed
//! with its severity and who sent it, and who asks is told how many there were of each.
//!
//! ```text
//! cargo run -p weir-io --example udp_unix -- /tmp/log.sock
//! logger --socket /tmp/log.sock -p user.warning 'hello'
//! printf '?' | socat -t1 - UNIX-SENDTO:/tmp/log.sock,bind=/tmp/me.sock
//! ```

use std::{
    env,
    error::Error,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};
use weir::{
    limits::Limits,
    stream::UnixAddress,
    udp::{AnyDesign, Datagram, Replies, Server},
};

const SEVERITIES: [&str; 8] =
    ["emergency", "alert", "critical", "error", "warning", "notice", "info", "debug"];

/// The severity and the text of a line; one without a priority is a notice, as RFC 3164 has it.
fn parse(line: &[u8]) -> (usize, &[u8]) {
    const NOTICE: usize = 5;
    let end = line.iter().take(5).position(|byte| *byte == b'>');
    let priority = end.and_then(|end| {
        let digits = std::str::from_utf8(line.get(1..end)?).ok().filter(|_| line[0] == b'<')?;
        Some((digits.parse::<u8>().ok().filter(|priority| *priority < 192)?, &line[end + 1..]))
    });
    priority.map_or((NOTICE, line), |(priority, text)| (usize::from(priority % 8), text))
}

/// Starts it. Who has bound no socket of his own has no name, and cannot be answered.
fn start(
    path: &str,
    design: &str,
) -> Result<weir::udp::Running<impl weir::udp::Handler>, weir::Error> {
    let counts: Arc<[AtomicU64; 8]> = Arc::default();
    Server::bind_unix(path).payload_bytes(8192).limits(Limits::answers(100)).start(
        AnyDesign::parse(design)?,
        move |_thread| {
            let counts = Arc::clone(&counts);
            move |datagram: Datagram<'_>, replies: &mut Replies<'_>| {
                if datagram.bytes == b"?" {
                    let count: u64 = counts.iter().map(|count| count.load(Relaxed)).sum();
                    let _ = replies.send(&[u8::try_from(count).unwrap_or(u8::MAX)]);
                    return;
                }
                let (severity, text) = parse(datagram.bytes);
                counts[severity].fetch_add(1, Relaxed);
                let from = UnixAddress::of(datagram.source);
                let from = from.map_or("somebody without a name".into(), |name| name.to_string());
                println!("{}: {} ({from})", SEVERITIES[severity], String::from_utf8_lossy(text));
            }
        },
    )
}

fn main() -> Result<(), Box<dyn Error>> {
    let path = env::args().nth(1).ok_or("give the path of the socket")?;
    let server = start(&path, &env::args().nth(2).unwrap_or_else(|| "blocking".into()))?;
    let stopper = server.stopper();
    ctrlc::set_handler(move || stopper.wake())?;
    server.wait();
    server.stop().failure.map_or(Ok(()), |failure| Err(failure.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_syslog_does() {
        assert_eq!(parse(b"<12>hello"), (4, &b"hello"[..]));
        assert_eq!(parse(b"<191>x"), (7, &b"x"[..]));
        for plain in [&b"hello"[..], b"", b"<>x", b"<192>x", b"<1234>x", b"12>x"] {
            assert_eq!(parse(plain), (5, plain));
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn who_asks_is_told() {
        use std::os::unix::net::UnixDatagram;
        let [path, own] = ["log", "me"].map(|name| {
            env::temp_dir().join(format!("weir-example-{}-{name}.sock", std::process::id()))
        });
        let server = start(path.to_str().unwrap(), "blocking").unwrap();
        let client = UnixDatagram::bind(&own).unwrap();
        client.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
        for line in [&b"<11>one"[..], b"two", b"?"] {
            client.send_to(line, &path).unwrap();
        }
        let mut answer = [0; 9];
        assert_eq!((client.recv(&mut answer).unwrap(), answer[0]), (1, 2));
        std::fs::remove_file(own).unwrap();
        assert!(server.stop().failure.is_none());
    }
}
