//! A page of metrics in Prometheus' text format, by as much of HTTP as its scraper needs.

use crate::serve::Server;
use anyhow::Context as _;
use std::{
    fmt::Write as _,
    net,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::JoinHandle,
};
use weir::counters::os::Sampler;
use weir_quinn::Forwarding;

/// Scrapers at a time; more wait for their turn.
const SCRAPERS: usize = 8;

/// How long one may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Bytes of a request that are read at most.
const MOST_BYTES: usize = 8192;

/// Serves the page by this socket, until it is aborted.
pub fn serve(listener: net::TcpListener, server: Arc<Server>) -> anyhow::Result<JoinHandle<()>> {
    listener.set_nonblocking(true).context("setting O_NONBLOCK")?;
    let listener = TcpListener::from_std(listener).context("serving metrics")?;
    let scrapers = Arc::new(Semaphore::new(SCRAPERS));
    Ok(tokio::spawn(async move {
        while let Ok(permit) = Arc::clone(&scrapers).acquire_owned().await {
            let Ok((stream, _)) = listener.accept().await else {
                tokio::time::sleep(TIMEOUT).await; // no descriptor is left, say
                continue;
            };
            let server = Arc::clone(&server);
            tokio::spawn(async move {
                // Who goes before the answer misses it.
                let _ = tokio::time::timeout(TIMEOUT, answer(stream, &server)).await;
                drop(permit);
            });
        }
    }))
}

async fn answer(mut stream: TcpStream, server: &Server) -> std::io::Result<()> {
    let mut request = Vec::new();
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        if request.len() >= MOST_BYTES || stream.read_buf(&mut request).await? == 0 {
            return Ok(());
        }
    }
    let (status, page) = match request.starts_with(b"GET /metrics ") {
        true => ("200 OK", page(server)),
        false => ("404 Not Found", "the metrics are at /metrics\n".into()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        page.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(page.as_bytes()).await?;
    stream.shutdown().await
}

fn page(server: &Server) -> String {
    let counts = &server.counts;
    let mut page = String::new();
    let mut metric = |name: &str, kind: &str, help: &str, value: f64| {
        let _ = writeln!(
            page,
            "# HELP weir_quic_{name} {help}\n# TYPE weir_quic_{name} {kind}\nweir_quic_{name} {value}"
        );
    };
    for (name, help, count) in [
        ("connections_total", "Connections that came about.", &counts.accepted),
        ("connections_refused_total", "Connections beyond the limit.", &counts.refused),
        ("connections_failed_total", "Handshakes that failed.", &counts.failed),
        ("requests_total", "Requests answered.", &counts.requests),
        ("requests_too_large_total", "Requests that asked for too much.", &counts.too_large),
        ("requests_broken_total", "Requests ended by their client.", &counts.broken),
        ("received_bytes_total", "Bytes of requests.", &counts.bytes_received),
        ("sent_bytes_total", "Bytes of answers.", &counts.bytes_sent),
    ] {
        metric(name, "counter", help, count.load(Relaxed) as f64);
    }
    let open = server.endpoint.open_connections() as f64;
    metric("connections", "gauge", "Connections now.", open);
    if let Some(shared) = &server.shared {
        let Forwarding { forwarded, dropped, taken, .. } = shared.forwarding();
        for (name, help, count) in [
            ("forwarded_datagrams_total", "Datagrams forwarded to servers before.", forwarded),
            ("not_forwarded_datagrams_total", "Datagrams that found no room there.", dropped),
            ("taken_datagrams_total", "Datagrams that servers after this forwarded.", taken),
        ] {
            metric(name, "counter", help, count as f64);
        }
    }
    if let Some(stats) = &server.stats {
        let counters = stats.counters();
        for (name, help, count) in [
            ("received_datagrams_total", "Datagrams received.", counters.datagrams),
            ("sent_datagrams_total", "Datagrams sent.", counters.replies),
            ("send_errors_total", "Datagrams that the system refused.", counters.send_errors),
            ("receive_errors_total", "Receives that failed.", counters.receive_errors),
            ("kernel_entries_total", "System calls of the socket.", counters.kernel_entries),
        ] {
            metric(name, "counter", help, count as f64);
        }
    }
    if let Some(ns) = Sampler::new().process().cpu_ns {
        metric("cpu_seconds_total", "counter", "Time on a core.", ns as f64 / 1e9);
    }
    page
}
