//! What the page shows of devices alone.

use serde_json::Value;

use crate::performance;
use crate::report::model::{items, number, text};
use crate::report::number::{UNKNOWN, si};
use crate::report::pictures::{
    Aside, Batch, OverLoads, OverOption, Overtaking, Pictures, Shown, Upward, X, Y,
};

pub(super) const PICTURES: Pictures = Pictures {
    latency: "latency of an I/O",
    cpu_part: Some(("cpu_system_ns_per_io", "in the kernel", "in the program")),
    batch: Some(Batch {
        title: "I/Os taken at a time",
        about: "How many I/Os a design takes with one look, the mean.",
        middle: "ios_per_take",
        ends: None,
    }),
    threads: None,
    over_option: &[OverOption {
        option: "--depth",
        field: "depth",
        across: "outstanding I/Os",
        shown: Shown {
            plot: "depth",
            title: "I/Os per second against depth",
            about: "I/Os completed per second for so many outstanding, with 95 % intervals: designs that were run with \
                    several depths.",
            up: ("I/Os/s", si),
            scale: Upward::Linear,
            y: Y::Of("ios_per_s"),
            diagonal: false,
            only_above_1: false,
        },
    }],
    over_loads: &[OverLoads {
        varies: &["delay_us", "device"],
        across: "µs per I/O",
        x: X::OfLoad("delay_us"),
        shown: &[Shown {
            plot: "delay",
            title: "I/Os per second against the time of an I/O",
            about: "I/Os completed per second if each takes so long: where a line crosses that of plain reads, asynchronous \
                I/O begins to pay.",
            up: ("I/Os/s", si),
            scale: Upward::Log,
            y: Y::Of("ios_per_s"),
            diagonal: false,
            only_above_1: false,
        }],
    }],
    sweeps: &[],
    own: performance::pictures,
};

/// Where one design overtakes another as each I/O takes longer.
pub(super) fn overtakings(document: &Value) -> Vec<Overtaking> {
    let of = |crossing: &Value| Overtaking {
        axis: "time of an I/O in µs".into(),
        before: text(crossing, "before").unwrap_or_default(),
        after: text(crossing, "after").unwrap_or_default(),
        at: [&crossing["at_us"], &crossing["between_us"][0], &crossing["between_us"][1]]
            .map(number),
        is_real: crossing["real"] == true,
    };
    items(&document["crossings"]).map(of).collect()
}

/// How rates change in long runs.
pub(super) fn long_runs(document: &Value) -> Option<Aside> {
    let columns = [("design", true), ("its rate", true), ("% per minute", false)];
    let of = Aside::of(&columns, items(&document["long_runs"]), |run| {
        let decay = number(&run["decay"]["percent_per_minute"]);
        vec![
            text(run, "spec").unwrap_or_default(),
            text(run, "verdict").or_else(|| text(run, "failure")).unwrap_or_default(),
            decay.map_or(UNKNOWN.into(), |value| format!("{value:.1}")),
        ]
    })?;
    Some(Aside { title: "Long runs", ..of })
}
