//! What the page shows of UDP alone.

use serde_json::Value;

use crate::performance;
use crate::report::model::{items, number, text};
use crate::report::number::{UNKNOWN, microseconds, percent_of, si};
use crate::report::pictures::{
    Aside, Batch, OverLoads, Overtaking, Own, Pictures, Shown, Sweep, Upward, X, Y,
};
use crate::udp::report::published::CAUTION;

pub(super) const PICTURES: Pictures = Pictures {
    latency: "one-way latency",
    cpu_part: Some((
        "threads_cpu_ns_per_datagram",
        "the threads that receive and handle",
        "the rest of the process: other threads, and kernel threads that work for it",
    )),
    batch: Some(Batch {
        title: "Datagrams at a time",
        about: "How many datagrams a design takes at once: the median, and from the 10th to the 90th percentile.",
        middle: "batch_datagrams.p50",
        ends: Some(["batch_datagrams.p10", "batch_datagrams.p90"]),
    }),
    threads: Some(("threads_used", "threads_started")),
    over_option: &[],
    over_loads: &[OverLoads {
        varies: &[
            "kind",
            "offered_per_s",
            "share_of_maximum",
            "share_of_partial_drop_rate",
            "search",
            "link",
            "send_offload",
            "rcvbuf_bytes",
        ],
        across: "offered datagrams/s",
        x: X::OfRow("offered_per_s"),
        shown: &[
            Shown {
                plot: "received",
                title: "Received against offered",
                about: "Datagrams received per second, by how many were offered. On the dashed line nothing is lost; \
                        where a design leaves it, it is saturated.",
                up: ("received/s", si),
                scale: Upward::Linear,
                y: Y::Of("received_per_s"),
                diagonal: true,
                only_above_1: false,
            },
            Shown {
                plot: "lost",
                title: "Lost against offered",
                about: "Percent of the datagrams sent that were not received, by how many were offered per second.",
                up: ("% of sent lost", percent_of),
                scale: Upward::Linear,
                y: Y::LackOf("received_percent_of_sent"),
                diagonal: false,
                only_above_1: false,
            },
            Shown {
                plot: "latency-curve",
                title: "99th percentile of the latency against offered",
                about: "Latency in µs, one-way (for servers that answer: the round trip), on a logarithmic scale. \
                        Where it rises steeply, queues fill.",
                up: ("p99 in µs", microseconds),
                scale: Upward::Log,
                y: Y::Of("latency_ns.p99"),
                diagonal: false,
                only_above_1: false,
            },
            Shown {
                plot: "cpu-curve",
                title: "CPU time per datagram against offered",
                about: "Nanoseconds of the server's CPU time for each datagram. Designs that busy-poll spend it even \
                        at low load.",
                up: ("ns per datagram", si),
                scale: Upward::Linear,
                y: Y::Of("cpu_ns_per_datagram"),
                diagonal: false,
                only_above_1: false,
            },
            Shown {
                plot: "batch-curve",
                title: "Batch size against offered",
                about: "Datagrams taken at a time, the median. Batches that grow with the load save work.",
                up: ("datagrams at a time", si),
                scale: Upward::Log,
                y: Y::Of("batch_datagrams.p50"),
                diagonal: false,
                only_above_1: false,
            },
            Shown {
                plot: "threads-curve",
                title: "Threads at work against offered",
                about: "Threads that handled any datagram, the median over the rounds.",
                up: ("threads", si),
                scale: Upward::Linear,
                y: Y::Of("threads_used"),
                diagonal: false,
                only_above_1: true,
            },
        ],
    }],
    sweeps: &[
        sweep("threads", "sweep-threads", "threads", "Received/s against threads"),
        sweep(
            "work",
            "sweep-work",
            "work per datagram, in steps",
            "Received/s against work per datagram, in steps",
        ),
        sweep(
            "options",
            "sweep-options",
            "the option",
            "Received/s against an option of the designs",
        ),
    ],
    own: |document| [bursts(document), performance::pictures(document)].concat(),
};

/// What is taken of bursts, against their size.
fn bursts(document: &Value) -> Vec<Own> {
    let of = |bursts: &Value| {
        let sizes: Vec<f64> = items(&bursts["datagrams"]).filter_map(Value::as_f64).collect();
        let line = |row: &Value| {
            let taken = items(&row["taken_percent"]).map(Value::as_f64);
            let points = sizes.iter().zip(taken).filter_map(|(x, y)| Some([*x, y?])).collect();
            (text(row, "name").unwrap_or_default(), points)
        };
        let held = match text(bursts, "held").as_deref() {
            Some("0") | None => "an idle server".to_owned(),
            Some("sent") => "a server that is held until all is sent".into(),
            Some(time) => format!("a server that is held for {time}"),
        };
        Own {
            plot: "bursts",
            title: format!("Taken of a burst by {held}"),
            about: "Percent of a burst that reached the handler, by its number of datagrams. Where a design leaves 100 \
                    %, its memory or its socket's buffer was full.",
            across: "datagrams at once",
            up: ("% taken", percent_of),
            lines: items(&bursts["rows"]).map(line).collect(),
        }
    };
    items(&document["bursts"]).map(of).collect()
}

const fn sweep(
    name: &'static str,
    plot: &'static str,
    across: &'static str,
    title: &'static str,
) -> Sweep {
    Sweep {
        name,
        across,
        field: "received_per_s",
        shown: Shown {
            plot,
            title,
            about: "Datagrams received per second at each stop of the sweep; where lines cross, another design \
                    leads.",
            up: ("received/s", si),
            scale: Upward::Linear,
            y: Y::Of("received_per_s"),
            diagonal: false,
            only_above_1: false,
        },
    }
}

/// Where sweeps found that one design overtakes another.
pub(super) fn overtakings(document: &Value) -> Vec<Overtaking> {
    let sweeps =
        ["work", "threads", "options"].iter().flat_map(|name| items(&document["sweeps"][*name]));
    let of_sweep = |sweep: &Value| {
        let axis = text(sweep, "axis").unwrap_or_default();
        let of = |crossing: &Value| Overtaking {
            axis: axis.clone(),
            before: text(crossing, "before").unwrap_or_default(),
            after: text(crossing, "after").unwrap_or_default(),
            at: [&crossing["at"], &crossing["between"][0], &crossing["between"][1]].map(number),
            is_real: crossing["verdict"] == "real",
        };
        items(&sweep["crossings"]).map(of).collect::<Vec<_>>()
    };
    sweeps.flat_map(of_sweep).collect()
}

/// What was published of the originals, beside what was measured.
pub(super) fn published(document: &Value) -> Option<Aside> {
    let columns = [
        ("test", true),
        ("datagrams/s", false),
        ("ratio", false),
        ("ratio here", false),
        ("of", true),
    ];
    let word = |value: &Value, name: &str| text(value, name).unwrap_or_default();
    let ratio = |value: &Value| number(value).map_or(UNKNOWN.into(), |ratio| format!("{ratio:.2}"));
    let of = Aside::of(&columns, items(&document["loads"][0]["published"]), |figure| {
        let why = figure["not_compared"].as_str().map(|why| format!(" (not compared: {why})"));
        vec![
            word(figure, "test"),
            number(&figure["received_per_s"]).map_or(UNKNOWN.into(), si),
            ratio(&figure["ratio_to_traditional"]),
            ratio(&figure["measured_ratio_to_traditional"]),
            word(figure, "measured_row") + &why.unwrap_or_default(),
        ]
    })?;
    let caption = "UDP: published by Holgate (10 GbE, Windows), and here; ratios are to the traditional design";
    Some(Aside { note: Some(CAUTION), caption: Some(caption), ..of })
}
