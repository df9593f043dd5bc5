//! What counters are called outside: the names of Prometheus for what [`Snapshot::named`](super::Snapshot::named) brings.
//!
//! `weir serve --metrics` writes a page of them, and the feature `metrics` hands them to a program's own recorder: so one
//! dashboard shows both.

/// A counter of the library: what it is called here, and there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Name {
    /// In the library: a field of a snapshot.
    pub counter: &'static str,
    /// The metric that it is of. Several counters may be of one, next to each other in a table; they differ in a label.
    pub metric: &'static str,
    /// That label, and its value for this counter.
    pub label: Option<(&'static str, &'static str)>,
    /// What the metric is, in a sentence; empty for all counters of it but the first.
    pub help: &'static str,
}

const fn named(counter: &'static str, metric: &'static str, help: &'static str) -> Name {
    Name { counter, metric, label: None, help }
}

const fn labelled(
    counter: &'static str,
    metric: &'static str,
    label: (&'static str, &'static str),
    help: &'static str,
) -> Name {
    Name { counter, metric, label: Some(label), help }
}

const RECEIVED_BYTES: &str = "Bytes of payload received.";
const CLOSED: &str = "weir_connections_closed_total";

/// What a server of UDP counts, but for its [calls](CALLS) ([`Snapshot`](super::Snapshot)).
pub const UDP: &[Name] = &[
    named("datagrams", "weir_datagrams_received_total", "Datagrams given to the handler."),
    named("bytes", "weir_received_bytes_total", RECEIVED_BYTES),
    named("replies", "weir_replies_sent_total", "Replies that the system accepted."),
    named(
        "replies_refused",
        "weir_replies_refused_total",
        "Replies refused by the limit on replies, or for lack of a buffer.",
    ),
    named(
        "loops_dropped",
        "weir_reply_loops_dropped_total",
        "Replies dropped because they would loop forever.",
    ),
    named("send_errors", "weir_send_errors_total", "Replies that the system failed to send."),
    named(
        "handler_panics",
        "weir_handler_panics_total",
        "Calls of the handler that panicked, each of which loses what it was made for.",
    ),
    named("receive_errors", "weir_receive_errors_total", "Receives that failed."),
    named(
        "peer_errors",
        "weir_peer_errors_total",
        "Errors that peers reported (ICMP) about datagrams sent to them, if the server requests such errors.",
    ),
    named("truncated", "weir_datagrams_truncated_total", "Datagrams longer than a slice."),
    named(
        "wrong_size",
        "weir_datagrams_wrong_size_total",
        "Datagrams of a size other than the expected one, if one is expected.",
    ),
    labelled(
        "discarded",
        "weir_frames_dropped_total",
        ("reason", "damaged"),
        "Frames that the server itself dropped, on xdp.",
    ),
    labelled("too_long", "weir_frames_dropped_total", ("reason", "too_long"), ""),
    labelled(
        "passed_foreign",
        "weir_frames_passed_total",
        ("reason", "foreign"),
        "Frames passed on to the kernel, on xdp.",
    ),
    labelled("passed_fragments", "weir_frames_passed_total", ("reason", "fragment"), ""),
    labelled("passed_unserved", "weir_frames_passed_total", ("reason", "unserved"), ""),
    named(
        "locks",
        "weir_queue_locks_total",
        "Times the lock of a request queue was taken to post, where threads share the queue.",
    ),
    named(
        "locks_contended",
        "weir_queue_locks_contended_total",
        "Times another thread held that lock, so that this one had to wait.",
    ),
    named("dequeues", "weir_dequeues_total", "Attempts to get datagrams."),
    named(
        "empty_dequeues",
        "weir_dequeues_empty_total",
        "Attempts to get datagrams that found none.",
    ),
    named("posts", "weir_receives_posted_total", "Receives posted."),
];

/// What a server of TCP counts ([`stream::Snapshot`](super::stream::Snapshot)).
pub const TCP: &[Name] = &[
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

/// What the calls of both kinds of servers into contracts count ([`Snapshot`](super::Snapshot)).
pub const CALLS: &[Name] = &[
    named(
        "kernel_entries",
        "weir_kernel_entries_total",
        "Entries into the kernel; those made by locks between threads are not counted.",
    ),
    named("waits", "weir_waits_total", "Calls that sleep if nothing has arrived."),
    named(
        "notifies",
        "weir_notifies_total",
        "Times a notification was requested, or the right to dequeue was given up.",
    ),
    named("parks", "weir_parks_total", "Times a thread was parked until another woke it."),
    named(
        "no_buffer",
        "weir_buffer_shortages_total",
        "Times the kernel found no receive posted; arriving data waited in the socket, or was dropped there.",
    ),
    named(
        "overflows",
        "weir_completion_overflows_total",
        "Times the completion queue could not hold what had completed.",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(names: impl Iterator<Item = &'static str>) -> Vec<&'static str> {
        let mut names: Vec<_> = names.collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn every_counter_has_a_name() {
        let counters = |of: Vec<(&'static str, u64)>| sorted(of.into_iter().map(|(name, _)| name));
        let names = |tables: &[&[Name]]| sorted(tables.concat().iter().map(|name| name.counter));
        let of_udp = super::super::Snapshot::default().named();
        assert_eq!(names(&[UDP, CALLS]), counters(of_udp), "write the new counter into UDP");
        let of_tcp = super::super::stream::Snapshot::default().named();
        assert_eq!(names(&[TCP]), counters(of_tcp), "write the new counter into TCP");
    }

    #[test]
    fn a_metric_is_said_once_what_it_is() {
        for table in [UDP, TCP, CALLS] {
            for counters in table.chunk_by(|one, next| one.metric == next.metric) {
                let (first, others) = counters.split_first().expect("a chunk has one");
                assert!(!first.help.is_empty(), "{first:?}");
                assert!(others.iter().all(|other| other.help.is_empty() && other.label.is_some()));
                assert_eq!(others.is_empty(), first.label.is_none(), "{first:?}");
            }
        }
    }
}
