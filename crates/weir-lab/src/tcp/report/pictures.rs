//! What the page shows of TCP alone.

use serde_json::Value;

use crate::performance;
use crate::report::model::{items, number, text};
use crate::report::number::{UNKNOWN, bytes, microseconds, si};
use crate::report::pictures::{Aside, OverLoads, Pictures, Shown, Upward, X, Y};

pub(super) const PICTURES: Pictures = Pictures {
    latency: "round trip",
    cpu_part: None,
    batch: None,
    threads: Some(("threads", "threads")),
    over_option: &[],
    over_loads: &[OverLoads {
        varies: &["connections", "buffer_bytes", "outstanding", "blocks"],
        across: "connections",
        x: X::OfLoad("connections"),
        shown: &[
            Shown {
                plot: "messages-curve",
                title: "Messages/s against connections",
                about: "Messages that came back per second, with 95 % intervals, by the number of connections.",
                up: ("messages/s", si),
                scale: Upward::Linear,
                y: Y::Of("messages_per_s"),
                diagonal: false,
                only_above_1: false,
            },
            Shown {
                plot: "latency-curve",
                title: "99th percentile of the round trip against connections",
                about: "Round trips in µs, on a logarithmic scale.",
                up: ("p99 in µs", microseconds),
                scale: Upward::Log,
                y: Y::Of("round_trip_ns.p99"),
                diagonal: false,
                only_above_1: false,
            },
            Shown {
                plot: "memory-curve",
                title: "Memory against connections",
                about: "Memory of the server's process when all connections were open, and of the kernel where that is known.",
                up: ("memory", bytes),
                scale: Upward::Bytes,
                y: Y::Sum("resident_bytes", "kernel_bytes"),
                diagonal: false,
                only_above_1: false,
            },
            Shown {
                plot: "cpu-curve",
                title: "CPU time per message against connections",
                about: "Nanoseconds of the server's CPU time for each message.",
                up: ("ns per message", si),
                scale: Upward::Linear,
                y: Y::Of("cpu_ns_per_message"),
                diagonal: false,
                only_above_1: false,
            },
        ],
    }],
    sweeps: &[],
    own: performance::pictures,
};

/// The classic study's figures, beside what was measured.
pub(super) fn published(document: &Value) -> Option<Aside> {
    let columns = [
        ("part", true),
        ("model", true),
        ("connected", false),
        ("bytes/s", false),
        ("design here", true),
        ("connected here", false),
        ("bytes/s here", false),
    ];
    let of = Aside::of(&columns, items(&document["classic"]["published"]), |figure| {
        let word = |name: &str| text(figure, name).unwrap_or_default();
        let rate = |name: &str| number(&figure[name]).map_or(UNKNOWN.into(), si);
        vec![
            word("part"),
            word("model"),
            rate("connected"),
            rate("received_bytes_per_s"),
            word("design"),
            rate("measured_connected"),
            rate("measured_received_bytes_per_s"),
        ]
    })?;
    Some(Aside { caption: Some("TCP: the classic study, and here"), ..of })
}
