//! Metrics in Prometheus' text format (0.0.4), by as much of HTTP as its scraper needs: a server of TCP on weir, too.
//!
//! Well-kept crates write OpenMetrics, in which `promtool check metrics` finds counters without a type (prometheus-client), or
//! keep every value once more in a registry of the process (metrics-exporter-prometheus). To write what is counted anyway
//! takes one function.

use std::{fmt::Display, fmt::Write as _, sync::Arc, time::Duration};
use weir::{
    Error,
    counters::os::Sampler,
    tcp::{Blocking, Handler, Limits, Output, Running, Server},
};

/// What a server tells at a moment.
#[derive(Debug, Default)]
pub struct Page(String);

impl Page {
    /// What only grows.
    pub fn counter(&mut self, name: &str, help: &str, value: impl Display) {
        self.metric("counter", name, help, [(String::new(), value)]);
    }

    /// What is as it is now.
    pub fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.metric("gauge", name, help, [(String::new(), value)]);
    }

    /// A counter for each value of a label.
    pub fn counter_by<V: Display>(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        samples: impl IntoIterator<Item = (&'static str, V)>,
    ) {
        let labelled = |(value, count)| (format!("{{{label}=\"{value}\"}}"), count);
        self.metric("counter", name, help, samples.into_iter().map(labelled));
    }

    /// What weir counts of its datagrams, connections and calls (`named` of a snapshot), under a common beginning of names.
    pub fn counted(&mut self, beginning: &str, counters: Vec<(&'static str, u64)>) {
        for (name, count) in counters {
            let help = format!("{name}: see \"What to read in the counters\" in weir's book.");
            self.counter(&format!("{beginning}_{name}_total"), &help, count);
        }
    }

    /// CPU time of the process, where the system tells of it.
    pub fn cpu_time(&mut self) {
        if let Some(ns) = Sampler::new().process().cpu_ns {
            let help = "CPU time of the process, user and system.";
            self.counter("process_cpu_seconds_total", help, ns as f64 / 1e9);
        }
    }

    fn metric<V: Display>(
        &mut self,
        kind: &str,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (String, V)>,
    ) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (labels, value) in samples {
            let _ = writeln!(self.0, "{name}{labels} {value}");
        }
    }
}

/// Bytes of a request, at most.
const MOST_BYTES: usize = 8192;

/// Serves the page at `/metrics` where `server` says, as long as what comes back lives.
///
/// # Errors
/// As [`Server::start`].
pub fn serve(
    server: Server,
    write: impl Fn(&mut Page) + Send + Sync + 'static,
) -> Result<Running, Error> {
    let most = Some(Duration::from_secs(5));
    let limits = Limits::default()
        .connections(16)
        .output_bytes(1 << 20)
        .silent(most)
        .idle(most)
        .stalled(most)
        .linger(Duration::from_secs(1))
        .stop(Duration::from_secs(1));
    let write: Arc<dyn Fn(&mut Page) + Send + Sync> = Arc::new(write);
    // The one design that is small, and runs everywhere: a scraper comes every few seconds.
    server
        .limits(limits)
        .start(Blocking::default(), move |_| Scraper { request: vec![], write: Arc::clone(&write) })
}

/// A connection of one.
struct Scraper {
    request: Vec<u8>,
    write: Arc<dyn Fn(&mut Page) + Send + Sync>,
}

impl Handler for Scraper {
    fn on_receive(&mut self, bytes: &mut [u8], output: &mut Output<'_>) {
        let room = MOST_BYTES - self.request.len();
        self.request.extend_from_slice(&bytes[..bytes.len().min(room)]);
        let mut page = Page::default();
        let status = if !self.request.windows(4).any(|end| end == b"\r\n\r\n") {
            if self.request.len() < MOST_BYTES {
                return;
            }
            "431 Request Header Fields Too Large"
        } else if self.request.starts_with(b"GET /metrics ") {
            (self.write)(&mut page);
            "200 OK"
        } else {
            page.0 = "the metrics are at /metrics\n".into();
            "404 Not Found"
        };
        let answer = format!(
            "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n{}",
            page.0.len(),
            page.0
        );
        let _ = output.send(answer.as_bytes()); // there is room for any page
        output.finish();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io::{Read as _, Write as _},
        net::TcpStream,
    };

    #[test]
    fn a_page_is_as_the_format_says() {
        let mut page = Page::default();
        page.counter("x_total", "One.", 1);
        page.gauge("y", "Two.", 1.5);
        page.counter_by("z_total", "Three.", "code", [("A", 3), ("B", 4)]);
        assert_eq!(
            page.0,
            "# HELP x_total One.\n# TYPE x_total counter\nx_total 1\n# HELP y Two.\n# TYPE y gauge\ny 1.5\n\
             # HELP z_total Three.\n# TYPE z_total counter\nz_total{code=\"A\"} 3\nz_total{code=\"B\"} 4\n"
        );
        page.counted("weir_udp", vec![("datagrams", u64::MAX)]);
        assert!(
            page.0.ends_with("\nweir_udp_datagrams_total 18446744073709551615\n"),
            "{}",
            page.0
        );
    }

    #[test]
    fn it_is_served_in_parts_and_nothing_else_is() {
        let server = Server::bind("127.0.0.1:0".parse().unwrap());
        let server = serve(server, |page| page.gauge("names", "Names.", 0)).unwrap();
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
        assert!(page.starts_with("HTTP/1.1 200 OK\r\n") && page.ends_with("\nnames 0\n"), "{page}");
        assert!(ask(&[b"GET / HTTP/1.1\r\n\r\n"]).starts_with("HTTP/1.1 404 "));
        assert!(ask(&[&[b'x'; MOST_BYTES]]).starts_with("HTTP/1.1 431 "));
        assert!(server.stop().failure.is_none());
    }
}
