//! Metrics in the text format of Prometheus, over HTTP.

use crate::Shared;
use std::{fmt::Write, sync::Arc, time::Duration};
use weir::{
    Error,
    tcp::{Handler, Limits, Output, Running, Server, Startable},
};

/// Longest request.
const LONGEST: usize = 8 * 1024;

/// Serves metrics of the cache, and of the server that serves it.
///
/// # Errors
/// As [`Server::start`].
pub fn start(
    server: &Server,
    design: impl Startable,
    shared: Arc<Shared>,
    served: Arc<Running>,
) -> Result<Running, Error> {
    let limits = Limits::default()
        .connections(64)
        .idle(Limits::default().silent)
        // A scraper that does not read does not hold up the end.
        .stop(Duration::from_secs(1));
    server.clone().limits(limits).start(design, move |_peer| Scrape {
        request: Vec::new(),
        shared: Arc::clone(&shared),
        served: Arc::clone(&served),
    })
}

/// One request: the connection ends with its answer.
struct Scrape {
    request: Vec<u8>,
    shared: Arc<Shared>,
    served: Arc<Running>,
}

impl Handler for Scrape {
    fn on_receive(&mut self, bytes: &mut [u8], output: &mut Output<'_>) {
        self.request.extend_from_slice(bytes);
        let (status, body) = if self.request.windows(4).any(|four| four == b"\r\n\r\n") {
            match self.request.starts_with(b"GET /metrics ") {
                true => ("200 OK", text(&self.shared, &self.served)),
                false => ("404 Not Found", "metrics are at GET /metrics\n".into()),
            }
        } else if self.request.len() > LONGEST {
            ("431 Request Header Fields Too Large", "the request is too long\n".into())
        } else {
            return;
        };
        let answer = format!(
            "HTTP/1.1 {status}\r\ncontent-type: text/plain; version=0.0.4\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
            body.len()
        );
        let _ = output.send(answer.as_bytes());
        output.finish();
    }
}

/// All metrics.
pub fn text(shared: &Shared, served: &Running) -> String {
    use std::sync::atomic::Ordering::Relaxed;
    let counts = shared.store.counts();
    let mut text = String::new();
    let mut metric = |name: &str, kind: &str, help: &str, value: u64| {
        let name = format!("weir_cache_{name}");
        let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n");
    };
    metric("clients", "gauge", "Clients that are connected.", shared.clients.load(Relaxed).into());
    metric("commands_total", "counter", "Commands carried out.", shared.commands.load(Relaxed));
    metric("keys", "gauge", "Keys there are.", counts.keys as u64);
    metric("expiring_keys", "gauge", "Keys that expire.", counts.expiring as u64);
    metric("memory_bytes", "gauge", "Bytes of keys and values, by estimate.", counts.bytes as u64);
    let most = shared.settings.memory_bytes as u64;
    metric("memory_bytes_max", "gauge", "Bytes that keys and values may take.", most);
    metric("hits_total", "counter", "Reads that found their key.", counts.hits);
    metric("misses_total", "counter", "Reads that did not.", counts.misses);
    metric("expired_total", "counter", "Keys that have expired.", counts.expired);
    metric("evicted_total", "counter", "Keys that were evicted.", counts.evicted);
    metric("channels", "gauge", "Channels with subscribers.", shared.channels.count() as u64);
    let slow = shared.channels.too_slow.load(Relaxed);
    metric(
        "slow_subscribers_total",
        "counter",
        "Subscribers closed as they read too slowly.",
        slow,
    );
    let help = "As weir counts it: see \"What to read in the counters\" in weir's book.";
    for (name, value) in served.counters().named() {
        metric(&format!("tcp_{name}_total"), "counter", help, value);
    }
    text
}
