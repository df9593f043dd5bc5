//! The server's metrics.

use crate::serve::Server;
use std::{
    net::TcpListener,
    sync::{Arc, atomic::Ordering::Relaxed},
};
use weir::tcp;
use weir_program::metrics::{self, Page};
use weir_quinn::Forwarding;

/// Serves the page by this socket, which a successor may have, as long as what comes back lives.
pub fn serve(listener: TcpListener, server: Arc<Server>) -> Result<tcp::Running, weir::Error> {
    let by = tcp::Server::from_std(listener)?.keep_listening(server.shared.is_some());
    metrics::serve(by, move |page| write(page, &server))
}

fn write(page: &mut Page, server: &Server) {
    let counts = &server.counts;
    for (name, help, count) in [
        ("connections", "Connections established.", &counts.accepted),
        ("connections_refused", "Connections refused at the limit.", &counts.refused),
        ("connections_failed", "Handshakes that failed.", &counts.failed),
        ("requests", "Requests answered.", &counts.requests),
        ("requests_too_large", "Requests that asked for too much.", &counts.too_large),
        ("requests_broken", "Requests ended by their client.", &counts.broken),
        ("received_bytes", "Bytes of requests.", &counts.bytes_received),
        ("sent_bytes", "Bytes of answers.", &counts.bytes_sent),
    ] {
        page.counter(&format!("weir_quic_{name}_total"), help, count.load(Relaxed));
    }
    let open = server.endpoint.open_connections();
    page.gauge("weir_quic_connections", "Connections open now.", open);
    if let Some(shared) = &server.shared {
        let Forwarding { forwarded, dropped, taken, .. } = shared.forwarding();
        for (name, help, count) in [
            ("forwarded_datagrams", "Datagrams forwarded to earlier servers.", forwarded),
            (
                "not_forwarded_datagrams",
                "Datagrams that could not be forwarded for lack of room.",
                dropped,
            ),
            ("taken_datagrams", "Datagrams that later servers forwarded to this one.", taken),
        ] {
            page.counter(&format!("weir_quic_{name}_total"), help, count);
        }
    }
    if let Some(stats) = &server.stats {
        let counters = stats.counters();
        for (name, help, count) in [
            ("received_datagrams", "Datagrams received.", counters.datagrams),
            ("sent_datagrams", "Datagrams sent.", counters.replies),
            ("send_errors", "Datagrams that the system refused.", counters.send_errors),
            ("receive_errors", "Receives that failed.", counters.receive_errors),
            ("kernel_entries", "System calls of the socket.", counters.kernel_entries),
        ] {
            page.counter(&format!("weir_quic_{name}_total"), help, count);
        }
    }
    page.cpu_time();
}
