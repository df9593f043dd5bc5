//! What the page shows of devices alone.

use serde_json::Value;

use crate::performance;
use crate::report::model::{items, number, text};
use crate::report::number::{UNKNOWN, bytes, si, three_figures, whole};
use crate::report::pictures::{
    Aside, Batch, OverLoads, OverOption, Overtaking, Own, Pictures, Shown, Upward, X, Y,
};
use crate::stats::median;

pub(super) const PICTURES: Pictures = Pictures {
    latency: "latency of an I/O",
    cpu_part: Some(("cpu_system_ns_per_io", "in the kernel", "in the program")),
    batch: Some(Batch {
        title: "I/Os taken at a time",
        about: "How many completed I/Os a design takes at once, the mean.",
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
            about: "I/Os completed per second by the number outstanding, with 95 % intervals, for designs that were \
                    run with several depths.",
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
            about: "I/Os completed per second by how long each one takes: where a line crosses that of plain reads, \
                    asynchronous I/O begins to pay.",
            up: ("I/Os/s", si),
            scale: Upward::Log,
            y: Y::Of("ios_per_s"),
            diagonal: false,
            only_above_1: false,
        }],
    }],
    sweeps: &[],
    own: |document| [over_time(document), performance::pictures(document)].concat(),
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

/// Most points of a line: those of a longer run stand for several turns.
const MOST_POINTS: usize = 120;

/// What long runs were over their time, a line for each row.
fn over_time(document: &Value) -> Vec<Own> {
    let runs = || items(&document["long_runs"]).filter(|run| run["over_time"].is_object());
    // The first turns against which the others are seen.
    let lines = |of: fn(&Value) -> Option<f64>, relative: bool| -> Vec<(String, Vec<[f64; 2]>)> {
        runs()
            .map(|run| {
                let readings: Vec<&Value> = items(&run["over_time"]["readings"]).collect();
                let joined = readings.len().div_ceil(MOST_POINTS).max(1);
                let point = |some: &[&Value]| {
                    let values: Vec<f64> = some.iter().filter_map(|reading| of(reading)).collect();
                    Some([number(&some.last()?["at_s"])?, median(&values)?])
                };
                let mut points: Vec<[f64; 2]> = readings.chunks(joined).filter_map(point).collect();
                let tenth = points.len().div_ceil(10);
                let first: Vec<f64> = points[..tenth].iter().map(|point| point[1]).collect();
                if let Some(first) = median(&first).filter(|first| relative && *first > 0.0) {
                    points.iter_mut().for_each(|point| point[1] /= first);
                }
                (text(run, "spec").unwrap_or_default(), points)
            })
            .filter(|(_, points)| points.len() > 1)
            .collect()
    };
    let picture = |plot, title: &str, about, up, lines: Vec<(String, Vec<[f64; 2]>)>| Own {
        plot,
        title: title.into(),
        about,
        across: "seconds of the design's own time",
        up,
        lines,
    };
    let all = [
        picture(
            "over-time",
            "The rate over a long run",
            "The ratio of each design's rate to that of its control, which takes turns with it; 1 is what it was in \
             the first tenth. What the machine does affects both, so a line that falls is due to the design.",
            ("of the first tenth", three_figures),
            lines(|at| Some(number(&at["ios_per_s"])? / number(&at["control_ios_per_s"])?), true),
        ),
        picture(
            "over-time-cpu",
            "I/Os per second of CPU time over a long run",
            "The same for I/Os per second of CPU time, which leaves out what other programs took of the cores.",
            ("of the first tenth", three_figures),
            lines(
                |at| Some(number(&at["control_cpu_ns_per_io"])? / number(&at["cpu_ns_per_io"])?),
                true,
            ),
        ),
        picture(
            "over-time-memory",
            "Memory over a long run",
            "Resident memory of each design's process, its control included.",
            ("bytes", bytes),
            lines(|at| number(&at["resident_bytes"]), false),
        ),
    ];
    all.into_iter().filter(|own| !own.lines.is_empty()).collect()
}

/// How rates change in long runs.
pub(super) fn long_runs(document: &Value) -> Option<Aside> {
    let columns = [
        ("design", true),
        ("its rate", true),
        ("change in %", false),
        ("95 % interval", false),
        ("first tenth, I/Os/s", false),
        ("last tenth", false),
        ("per CPU second, %", false),
        ("the control, %", false),
        ("outstanding, first / last", false),
        ("resident, first / last", false),
    ];
    let of = Aside::of(&columns, items(&document["long_runs"]), |run| {
        let found = &run["over_time"];
        let figure = |of: &Value, text: fn(f64) -> String| number(of).map_or(UNKNOWN.into(), text);
        let signed = |value: f64| format!("{value:+.1}");
        let ends = |of: &Value, text: fn(f64) -> String| {
            format!("{} / {}", figure(&of["first"], text), figure(&of["last"], text))
        };
        let rate = &found["rate"];
        let interval = match (number(&rate["low"]), number(&rate["high"])) {
            (Some(low), Some(high)) => format!("{low:+.1} to {high:+.1}"),
            _ => UNKNOWN.into(),
        };
        vec![
            text(run, "spec").unwrap_or_default(),
            text(found, "verdict").or_else(|| text(run, "failure")).unwrap_or_default(),
            figure(&rate["percent"], signed),
            interval,
            figure(&found["ios_per_s"]["first"], si),
            figure(&found["ios_per_s"]["last"], si),
            figure(&found["per_cpu"]["percent"], signed),
            figure(&found["control_rate"]["percent"], signed),
            ends(&found["outstanding"], whole),
            ends(&found["resident_bytes"], bytes),
        ]
    })?;
    Some(Aside {
        title: "Long runs",
        note: Some(
            "Each design took turns with a control. Changes are over the whole time: of the rate and of I/Os per CPU \
             second as ratios to the control's, and of the control itself, which is what the machine did. Where other \
             programs had much of the cores, I/Os per CPU second decide.",
        ),
        ..of
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::report::over_time::tests::found;
    use serde_json::json;

    #[test]
    fn long_runs_are_drawn_and_stand_in_a_table() {
        let document = json!({ "long_runs": [
            { "spec": "ring", "over_time": found(-11.0), "failure": null },
            { "spec": "port", "over_time": null, "failure": "it ended" },
        ] });
        let drawn = over_time(&document);
        assert_eq!(
            drawn.iter().map(|own| own.plot).collect::<Vec<_>>(),
            ["over-time", "over-time-cpu", "over-time-memory"]
        );
        let line = &drawn[0].lines[0];
        assert_eq!((line.0.as_str(), drawn[0].lines.len()), ("ring", 1));
        let (first, last) = (line.1[0][1], line.1[line.1.len() - 1][1]);
        assert!((0.95..1.05).contains(&first) && last < 0.95, "{first} {last}");
        let table = long_runs(&document).unwrap();
        assert_eq!(table.rows[0][1], "declines by 11.0 %");
        assert_eq!(table.rows[1][1], "it ended");
        assert!(over_time(&json!({ "long_runs": [] })).is_empty());
    }
}
