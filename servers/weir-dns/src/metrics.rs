//! Counters for Prometheus (text format 0.0.4), by as much of HTTP as its scraper needs: a server of TCP on weir, too.

use crate::{query::RCODES, serve::Counted};
use std::{fmt::Write as _, net::TcpListener, sync::Arc, time::Duration};
use weir::{
    Error,
    tcp::{Blocking, Handler, Limits, Output, Running, Server},
};

/// Bytes of a request, at most.
const MOST_BYTES: usize = 8192;

/// Scrapers at a time, and how long each may take.
fn limits() -> Limits {
    let most = Some(Duration::from_secs(5));
    Limits::default()
        .connections(16)
        .output_bytes(1 << 20)
        .silent(most)
        .idle(most)
        .stalled(most)
        .linger(Duration::from_secs(1))
        .stop(Duration::from_secs(1))
}

/// Names and values of counters, under a common beginning of their names.
pub type Counters = (&'static str, Vec<(&'static str, u64)>);

/// What a server tells at a moment.
#[derive(Debug, Default)]
pub struct Figures {
    /// What was answered.
    pub counted: Counted,
    /// Names that have answers.
    pub names: usize,
    /// Connections that are open.
    pub open: u32,
    /// What weir counts of its datagrams, its connections and its calls.
    pub counters: Vec<Counters>,
    /// CPU time of the process.
    pub cpu_ns: Option<u64>,
}

/// Serves the page by this socket from now on, as long as what comes back lives; `keeps` has the socket go on listening
/// afterwards.
///
/// # Errors
/// What the system answered.
pub fn serve(
    listener: TcpListener,
    keeps: bool,
    read: impl Fn() -> Figures + Send + Sync + 'static,
) -> Result<Running, Error> {
    let read: Arc<dyn Fn() -> Figures + Send + Sync> = Arc::new(read);
    // The one design that is small, and runs everywhere: a scraper comes every few seconds.
    let server = Server::from_std(listener)?.keep_listening(keeps).limits(limits());
    server.start(Blocking::default(), move |_| Scraper { request: vec![], read: Arc::clone(&read) })
}

/// A connection of one.
struct Scraper {
    request: Vec<u8>,
    read: Arc<dyn Fn() -> Figures + Send + Sync>,
}

impl Handler for Scraper {
    fn on_receive(&mut self, bytes: &mut [u8], output: &mut Output<'_>) {
        let room = MOST_BYTES - self.request.len();
        self.request.extend_from_slice(&bytes[..bytes.len().min(room)]);
        let is_whole = self.request.windows(4).any(|end| end == b"\r\n\r\n");
        let (status, page) = match &self.request[..] {
            _ if !is_whole && self.request.len() < MOST_BYTES => return,
            _ if !is_whole => ("431 Request Header Fields Too Large", String::new()),
            [b'G', b'E', b'T', b' ', path @ ..] if path.starts_with(b"/metrics ") => {
                ("200 OK", page(&(self.read)()))
            }
            _ => ("404 Not Found", "the metrics are at /metrics\n".into()),
        };
        let answer = format!(
            "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n{page}",
            page.len()
        );
        let _ = output.send(answer.as_bytes()); // there is room for any page
        output.finish();
    }
}

fn page(figures: &Figures) -> String {
    let Figures { counted, names, open, counters, cpu_ns } = figures;
    let mut page = String::new();
    let mut metric = |name: &str, kind: &str, help: &str, samples: &[(String, f64)]| {
        let _ = writeln!(page, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (labels, value) in samples {
            let _ = writeln!(page, "{name}{labels} {value}");
        }
    };
    let one = |value: f64| [(String::new(), value)];
    let by_rcode: Vec<_> = RCODES
        .iter()
        .zip(counted.by_rcode)
        .map(|((_, name), count)| (format!("{{rcode=\"{name}\"}}"), count as f64))
        .collect();
    metric("weir_dns_answers_total", "counter", "Answers, by their code.", &by_rcode);
    let truncated = "Answers that did not fit into a datagram.";
    metric("weir_dns_truncated_total", "counter", truncated, &one(counted.truncated as f64));
    let dropped = "Messages that were not answered: no queries.";
    metric("weir_dns_dropped_total", "counter", dropped, &one(counted.dropped as f64));
    metric("weir_dns_names", "gauge", "Names that have answers.", &one(*names as f64));
    let connections = "Connections that are open.";
    metric("weir_dns_connections_open", "gauge", connections, &one(f64::from(*open)));
    for (of, counters) in counters {
        for (name, count) in counters {
            let help = format!("{name}, as weir counts it.");
            metric(&format!("weir_{of}_{name}_total"), "counter", &help, &one(*count as f64));
        }
    }
    if let Some(ns) = cpu_ns {
        let help = "CPU time of the process, user and system.";
        metric("process_cpu_seconds_total", "counter", help, &one(*ns as f64 / 1e9));
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io::{Read as _, Write as _},
        net::TcpStream,
    };

    #[test]
    fn a_page_has_a_line_for_each_counter() {
        let counted = Counted { by_rcode: [1, 2, 3, 4, 5, 6], truncated: 7, dropped: 8 };
        let counters = vec![("udp", vec![("datagrams", 9)])];
        let figures =
            Figures { counted, names: 10, open: 11, counters, cpu_ns: Some(1_500_000_000) };
        let page = page(&figures);
        for line in [
            "# TYPE weir_dns_answers_total counter",
            "weir_dns_answers_total{rcode=\"NOERROR\"} 1",
            "weir_dns_answers_total{rcode=\"BADVERS\"} 6",
            "weir_dns_truncated_total 7",
            "weir_dns_dropped_total 8",
            "weir_dns_names 10",
            "weir_dns_connections_open 11",
            "weir_udp_datagrams_total 9",
            "process_cpu_seconds_total 1.5",
        ] {
            assert!(page.lines().any(|its| its == line), "{line}: {page}");
        }
    }

    #[test]
    fn it_is_served_in_parts_and_nothing_else_is() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = serve(listener, false, Figures::default).unwrap();
        let ask = |parts: &[&[u8]]| {
            let mut stream = TcpStream::connect(server.local_addresses()[0]).unwrap();
            for part in parts {
                stream.write_all(part).unwrap();
            }
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            answer
        };
        let page = ask(&[b"GET /met", b"rics HTTP/1.1\r\nHost: x\r\n", b"\r\n"]);
        assert!(page.starts_with("HTTP/1.1 200 OK\r\n") && page.contains("weir_dns_names 0"));
        assert!(ask(&[b"GET / HTTP/1.1\r\n\r\n"]).starts_with("HTTP/1.1 404 "));
        assert!(ask(&[&[b'x'; MOST_BYTES]]).starts_with("HTTP/1.1 431 "));
        assert!(server.stop().failure.is_none());
    }
}
