//! The metrics of a TCP server.

use std::sync::Arc;

use weir::counters::os::Sampler;
use weir::tcp::Running;

use super::{
    About, CALLS, Kind, Named, RECEIVED_BYTES, batches, labelled, named, now, write_counters,
    write_process,
};

const CLOSED: &str = "weir_connections_closed_total";

pub const COUNTERS: &[Named] = &[
    named("accepted", "weir_connections_accepted_total", "Connections accepted."),
    named(
        "refused",
        "weir_connections_refused_total",
        "Connections refused at the limit, or for lack of a thread or descriptor.",
    ),
    labelled(
        "closed_finished",
        CLOSED,
        ("reason", "finished"),
        "Connections that have ended, by reason.",
    ),
    labelled("closed_aborted", CLOSED, ("reason", "aborted"), ""),
    labelled("closed_failed", CLOSED, ("reason", "failed"), ""),
    labelled("closed_silent", CLOSED, ("reason", "silent"), ""),
    labelled("closed_stalled", CLOSED, ("reason", "stalled"), ""),
    labelled("closed_output_full", CLOSED, ("reason", "output_full"), ""),
    labelled("closed_by_filter", CLOSED, ("reason", "filter"), ""),
    labelled("closed_stopped", CLOSED, ("reason", "stopped"), ""),
    labelled("closed_panicked", CLOSED, ("reason", "panicked"), ""),
    named(
        "accept_errors",
        "weir_accept_errors_total",
        "Connections that were lost before they could be accepted.",
    ),
    named(
        "accept_pauses",
        "weir_accept_pauses_total",
        "Times accepting paused for lack of descriptors or memory.",
    ),
    named(
        "waited",
        "weir_connections_waited_total",
        "Connections that had to wait because the permitted number was being served.",
    ),
    named("messages", "weir_receives_total", "Receives that brought bytes."),
    named("empty_receives", "weir_receives_empty_total", "Receives that found nothing."),
    named("bytes_received", "weir_received_bytes_total", RECEIVED_BYTES),
    named(
        "bytes_discarded",
        "weir_discarded_bytes_total",
        "Bytes received and dropped because the handler wanted no more.",
    ),
    named("sends", "weir_sends_total", "Sends of which the system accepted all or part."),
    named("short_sends", "weir_sends_short_total", "Sends of which the system accepted only part."),
    named("bytes_sent", "weir_sent_bytes_total", "Bytes that the system accepted for sending."),
    named(
        "bytes_queued",
        "weir_queued_bytes_total",
        "Bytes of output that were copied into a queue to wait for room.",
    ),
    named(
        "pauses",
        "weir_receive_pauses_total",
        "Times receiving from a connection paused, because its output was full or its handler requested it.",
    ),
    named("output_refused", "weir_output_refused_total", "Times a handler's output was refused."),
    named(
        "queue_overflows",
        "weir_readiness_overflows_total",
        "Times the system's queue of readiness was full, so that every connection was checked.",
    ),
];

/// Makes the page, again and again.
pub fn pages(about: About, running: Arc<Running>) -> impl FnMut() -> String {
    let began = now();
    let mut sampler = Sampler::new();
    move || {
        let counters = running.counters();
        let mut page = about.page();
        page.one(
            Kind::Gauge,
            "weir_connections_open",
            "Connections that are open.",
            Some(u64::from(running.open())),
        );
        page.one(
            Kind::Gauge,
            "weir_connections_open_peak",
            "The most connections that were open at the same time.",
            Some(u64::from(running.most_open())),
        );
        write_counters(&mut page, COUNTERS, &counters.named());
        page.histogram(
            "weir_batch_connections",
            "Connections served per wake-up, without wake-ups that found nothing. Their sum is not counted.",
            &batches(&counters.batches, None),
        );
        write_counters(&mut page, CALLS, &running.calls().named());
        let threads = running.thread_ids().len() as u64;
        page.one(Kind::Gauge, "weir_threads", "Threads of the server.", Some(threads));
        write_process(&mut page, &sampler.process(), began);
        page.text()
    }
}
