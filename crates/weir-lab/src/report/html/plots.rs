//! Which pictures a document has: each is made where its figures are there, and left out where they are not.

use serde_json::Value;

use super::chart::{Axis, Band, Drawing, Line, Lines, Mark, Picture, Point, Scale};
use super::model::{Load, Row, Sample, Standing, Study, items, number, text};
use crate::report::number::{bytes, microseconds, percent_of, si, whole};

/// Percentiles of latencies: the field of all runs together, the metric, what it is called, and the class of its mark.
const PERCENTILES: [(&str, &str, &str, &str); 5] = [
    ("p50", "p50", "p50", "p-50"),
    ("p90", "p90", "p90", "p-90"),
    ("p99", "p99", "p99", "p-99"),
    ("p999", "p99_9", "p99.9", "p-999"),
    ("max", "max", "max", "p-max"),
];

/// The pictures of one load.
pub fn of_load(study: &Study, load: &Load) -> Vec<Picture> {
    let all = [rate, rounds, latency, cpu, batches, threads];
    all.into_iter().filter_map(|picture| picture(study, load)).collect()
}

/// The pictures over several loads, and those of sweeps.
pub fn of_study(study: &Study) -> Vec<Picture> {
    let mut all = vec![];
    match study.name {
        "tcp" => all.extend(over_connections(study)),
        "iops" => {
            all.extend(over_depth(study));
            all.extend(over_delay(study));
        }
        _ => {
            all.extend(over_offered(study));
            all.extend(over_sweep(study, "threads", "threads"));
            all.extend(over_sweep(study, "work", "work per datagram, in steps"));
        }
    }
    all
}

/// An anchor of a picture.
fn id(study: &Study, load: Option<&Load>, plot: &str) -> String {
    match load {
        Some(load) => format!("{}-load-{}-{plot}", study.name, load.index),
        None => format!("{}-{plot}", study.name),
    }
}

/// A band without marks.
fn band(row: &Row) -> Band {
    Band {
        name: row.name.clone(),
        series: row.series,
        standing: row.standing,
        group: row.group,
        figure: String::new(),
        marks: vec![],
    }
}

/// What rows are ranked by, with the interval and each run.
fn rate(study: &Study, load: &Load) -> Option<Picture> {
    let name = load.ranked_by.as_str();
    let unit = load.rows().find_map(|row| row.unit(name));
    let metric = study.kind.metric(name, unit);
    let mut values: Vec<f64> = vec![];
    let mut bands = vec![];
    for row in load.rows() {
        let Some(figure) = row.figure(name) else { continue };
        let samples = row.samples(name);
        let said = |value: f64| (metric.text)(value);
        let mut marks = vec![];
        if let Some((low, high)) = figure.interval {
            values.extend([low, high]);
            let words = format!("95 % interval: {} to {}", said(low), said(high));
            marks.push(Mark::Span("interval", low, high, words));
        }
        for (index, sample) in samples.iter().enumerate() {
            values.push(sample.value);
            marks.push(Mark::Dot {
                value: sample.value,
                across: jitter(index),
                counts: sample.counts,
                said: said_of(sample, said(sample.value)),
            });
        }
        values.push(figure.median);
        marks.push(Mark::Point("point", figure.median, format!("median {}", said(figure.median))));
        let bound = if row.value["lower_bound"] == true { "≥ " } else { "" };
        let standing = match row.standing {
            Standing::Tied => " · tied",
            Standing::Open => " · undecided",
            Standing::Again => " · second name",
            Standing::Unranked => " · not ranked",
            Standing::Best | Standing::Behind => "",
        };
        bands.push(Band {
            figure: format!("{bound}{}{standing}", said(figure.median)),
            marks,
            ..band(row)
        });
    }
    let axis = Axis::linear(&metric.heading, &values, metric.text)?;
    let what = if name.contains("latency") { "less is better" } else { "more is better" };
    Some(Picture {
        plot: "rate",
        id: id(study, Some(load), "rate"),
        title: format!("{}, with every run", named(&metric.heading)),
        about: format!(
            "Each design's median with its 95 % interval, and a dot for each run ({what}). Rows whose dots mix are hard \
             to tell apart, whatever their medians say."
        ),
        drawing: Drawing::Rows(axis, bands),
        keys: vec![
            ("point", "median".into()),
            ("interval", "95 % interval".into()),
            ("dot", "a run".into()),
            ("dot out", "a run that does not count: disturbed, replaced, or made while the machine was another".into()),
        ],
    })
}

/// Dots of one row are a little apart from one another, always in the same way.
fn jitter(index: usize) -> f64 {
    [0.0, 0.7, -0.7, 0.35, -0.35, 1.0, -1.0][index % 7]
}

fn said_of(sample: &Sample, value: String) -> String {
    let out = if sample.counts { "" } else { ", not counted" };
    format!("round {}: {value}{out}", sample.round)
}

/// Percentiles of the latency, those of all runs together where the document has them.
fn latency(study: &Study, load: &Load) -> Option<Picture> {
    let kind = &study.kind;
    let metric = kind.metric(&format!("{}.p50", kind.latency), Some("ns"));
    let mut values = vec![];
    let mut bands = vec![];
    for row in load.rows().filter(|row| row.standing != Standing::Again) {
        let found: Vec<(f64, &str, &str)> = PERCENTILES
            .iter()
            .filter_map(|(field, name, title, class)| {
                let value = row
                    .latency(kind.all_latencies, field)
                    .or_else(|| row.median(&format!("{}.{name}", kind.latency)))?;
                Some((value, *title, *class))
            })
            .collect();
        let (Some(first), Some(last)) = (found.first(), found.last()) else { continue };
        let mut marks =
            vec![Mark::Span("span", first.0, last.0, format!("{} to {}", first.1, last.1))];
        for (value, title, class) in found.iter().rev() {
            values.push(*value);
            marks.push(Mark::Point(class, *value, format!("{title} {} µs", (metric.text)(*value))));
        }
        let p99 = found.iter().find(|(_, title, _)| *title == "p99").unwrap_or(last);
        let figure = format!("{} / {} µs", (metric.text)(first.0), (metric.text)(p99.0));
        bands.push(Band { figure, marks, ..band(row) });
    }
    let axis = Axis::log("µs", &values, metric.text)?;
    let what = match study.name {
        "udp" => "one-way latency",
        "tcp" => "round trip",
        _ => "latency of an I/O",
    };
    Some(Picture {
        plot: "latency",
        id: id(study, Some(load), "latency"),
        title: "Latency: p50, p90, p99, p99.9 and the longest".into(),
        about: format!(
            "Percentiles of the {what} in µs, all runs of a row together (less is better; p50 and p99 beside its name). A long tail is a wide gap to the right."
        ),
        drawing: Drawing::Rows(axis, bands),
        keys: PERCENTILES
            .iter()
            .map(|(_, _, title, class)| (*class, (*title).to_owned()))
            .collect(),
    })
}

/// CPU time for each datagram, message or I/O, in its parts where they are known.
fn cpu(study: &Study, load: &Load) -> Option<Picture> {
    let kind = &study.kind;
    // A part of the whole: its metric, what it is, and what the rest is.
    let part = match study.name {
        "udp" => Some((
            "threads_cpu_ns_per_datagram",
            "the threads that receive and handle",
            "the rest of the process: other threads, and kernel threads that work for it",
        )),
        "iops" => Some(("cpu_system_ns_per_io", "in the kernel", "in the program")),
        _ => None,
    };
    let (mut bands, mut values) = (vec![], vec![]);
    let mut is_parted = false;
    for row in load.rows().filter(|row| row.standing != Standing::Again) {
        let Some(total) = row.median(kind.cpu) else { continue };
        values.push(total);
        let said = |name: &str, value: f64| format!("{name} {} ns", whole(value));
        let mut marks = vec![];
        match part.and_then(|(name, of, rest)| Some((row.median(name)?.min(total), of, rest))) {
            Some((value, of, rest)) => {
                is_parted = true;
                marks.push(Mark::Bar("part", 0.0, value, said(of, value)));
                marks.push(Mark::Bar("rest", value, total, said(rest, total - value)));
            }
            None => marks.push(Mark::Bar("part", 0.0, total, said("in all", total))),
        }
        bands.push(Band { figure: format!("{} ns", whole(total)), marks, ..band(row) });
    }
    let axis =
        Axis::of_bars("ns", &values, whole).filter(|_| values.iter().any(|value| *value > 0.0))?;
    let keys = match part.filter(|_| is_parted) {
        Some((_, of, rest)) => vec![("bar part", of.to_owned()), ("bar rest", rest.to_owned())],
        None => vec![],
    };
    Some(Picture {
        plot: "cpu",
        id: id(study, Some(load), "cpu"),
        title: format!("CPU time per {}", kind.one),
        about: format!(
            "Nanoseconds of the server's CPU time for each {} (less is better), the medians over the rounds.",
            kind.one
        ),
        drawing: Drawing::Rows(axis, bands),
        keys,
    })
}

/// How many datagrams are taken at a time, where that differs.
fn batches(study: &Study, load: &Load) -> Option<Picture> {
    let (mut bands, mut values) = (vec![], vec![]);
    for row in load.rows().filter(|row| row.standing != Standing::Again) {
        let of = |name: &str| row.median(name).filter(|value| *value > 0.0);
        let (ends, middle) = match study.name {
            "iops" => (None, of("ios_per_take")),
            _ => (
                of("batch_datagrams.p10").zip(of("batch_datagrams.p90")),
                of("batch_datagrams.p50"),
            ),
        };
        let Some(middle) = middle else { continue };
        let mut marks = vec![];
        let mut figure = si(middle);
        if let Some((low, high)) = ends {
            values.extend([low, high]);
            marks.push(Mark::Span(
                "interval",
                low,
                high,
                format!("p10 {} to p90 {}", si(low), si(high)),
            ));
            figure = format!("{} / {} / {}", si(low), si(middle), si(high));
        }
        values.push(middle);
        marks.push(Mark::Point("point", middle, format!("{} at a time", si(middle))));
        bands.push(Band { figure, marks, ..band(row) });
    }
    let differ = values.iter().any(|value| *value != values[0]);
    let axis = Axis::log("at a time", &values, si).filter(|_| differ)?;
    let (title, about) = match study.name {
        "iops" => ("I/Os taken at a time", "How many I/Os a design takes with one look, the mean."),
        _ => (
            "Datagrams at a time",
            "How many datagrams a design takes with one look: the median, and from the 10th to the 90th percentile.",
        ),
    };
    Some(Picture {
        plot: "batch",
        id: id(study, Some(load), "batch"),
        title: title.into(),
        about: about.into(),
        drawing: Drawing::Rows(axis, bands),
        keys: vec![],
    })
}

/// Threads that did something in each round, of those that were started.
fn threads(study: &Study, load: &Load) -> Option<Picture> {
    let (used, started) = match study.name {
        "udp" => ("threads_used", "threads_started"),
        "tcp" => ("threads", "threads"),
        _ => return None,
    };
    let (mut bands, mut values) = (vec![], vec![0.0]);
    for row in load.rows().filter(|row| row.standing != Standing::Again) {
        let Some(all) = row.median(started).filter(|all| *all > 1.0) else { continue };
        let median = row.median(used).unwrap_or(all);
        let mut marks = vec![];
        if used != started {
            marks.push(Mark::Span("span", 0.0, all, format!("{} started", whole(all))));
        }
        for (index, sample) in row.samples(used).iter().enumerate() {
            values.push(sample.value);
            if sample.value == median {
                continue;
            }
            marks.push(Mark::Dot {
                value: sample.value,
                across: jitter(index),
                counts: sample.counts,
                said: said_of(sample, whole(sample.value)),
            });
        }
        values.push(all);
        let figure = match used == started {
            true => whole(median),
            false => format!("{} of {}", whole(median), whole(all)),
        };
        marks.push(Mark::Point("point", median, format!("median {figure}")));
        bands.push(Band { figure, marks, ..band(row) });
    }
    let axis = Axis::of_bars("threads", &values, si).filter(|_| !bands.is_empty())?;
    Some(Picture {
        plot: "threads",
        id: id(study, Some(load), "threads"),
        title: "Threads at work".into(),
        about: match used == started {
            true => "Of designs with more than one thread: the most that the server had, the median, and a dot for each round with \
                     another number.".into(),
            false => "Of designs with more than one thread: those that handled anything, the median, of those that were started \
                      (the line), and a dot for each round with another number."
                .into(),
        },
        drawing: Drawing::Rows(axis, bands),
        keys: vec![],
    })
}

/// Each run against its row's median, in the order of the rounds: what all rows share is the machine.
fn rounds(study: &Study, load: &Load) -> Option<Picture> {
    let name = load.ranked_by.as_str();
    let metric = study.kind.metric(name, load.rows().find_map(|row| row.unit(name)));
    let all: Vec<(&Row, f64, Vec<Sample>)> = load
        .rows()
        .filter_map(|row| {
            Some((row, row.median(name).filter(|median| *median > 0.0)?, row.samples(name)))
        })
        .filter(|(.., samples)| samples.len() > 1)
        .collect();
    let last =
        all.iter().flat_map(|(.., samples)| samples.iter().map(|sample| sample.round)).max()?;
    // What does not count may lie far away, and then stands at the edge of its row.
    let counted = all.iter().flat_map(|(_, median, samples)| {
        samples
            .iter()
            .filter(|sample| sample.counts)
            .map(move |sample| (sample.value / median - 1.0).abs())
    });
    let widest = counted.fold(LEAST_HEIGHT, f64::max).min(MOST_HEIGHT);
    let places = Axis::of_rounds(last, round);
    let mut bands = vec![];
    for (row, median, samples) in &all {
        let mark = |sample: &Sample| {
            let change = sample.value / median - 1.0;
            Mark::Placed {
                share: places.scale.share(sample.round as f64),
                across: (-change / widest).clamp(-1.0, 1.0),
                counts: sample.counts,
                said: format!(
                    "{} ({:+.1} %)",
                    said_of(sample, (metric.text)(sample.value)),
                    change * 100.0
                ),
            }
        };
        let ends = samples.iter().fold((0.0f64, 0.0f64), |(low, high), sample| {
            let change = (sample.value / median - 1.0) * 100.0;
            (low.min(change), high.max(change))
        });
        bands.push(Band {
            figure: format!("{:+.0} to {:+.0} %", ends.0, ends.1),
            marks: samples.iter().map(mark).collect(),
            ..band(row)
        });
    }
    Some(Picture {
        plot: "rounds",
        id: id(study, Some(load), "rounds"),
        title: format!("{}, round by round", named(&metric.heading)),
        about: format!(
            "Each run against its design's median, from the first round at the left to the last: above the line is more, \
             the height of a row is ±{:.0} %, and what is farther away stands at its edge. What moves in all rows at once is the machine, not the designs; a slope is \
             drift.",
            widest * 100.0
        ),
        drawing: Drawing::Rows(places, bands),
        keys: vec![("dot", "a run".into()), ("dot out", "a run that does not count".into())],
    })
}

/// A heading as the title of a picture.
fn named(heading: &str) -> String {
    match heading {
        "p50 µs" => "Median latency in µs".into(),
        _ => {
            let mut chars = heading.chars();
            chars
                .next()
                .map(|first| first.to_uppercase().chain(chars).collect())
                .unwrap_or_default()
        }
    }
}

/// How far from the median a row reaches, as a share of that: at least, and at most.
const LEAST_HEIGHT: f64 = 0.02;
const MOST_HEIGHT: f64 = 1.0;

/// A round at a tick; there is none before the first.
fn round(value: f64) -> String {
    if value < 1.0 || value.fract() != 0.0 { String::new() } else { format!("round {value:.0}") }
}

/// A picture of lines: what it is, what it shows, and from where its figures are.
struct Curve<'a> {
    plot: &'static str,
    id: String,
    title: String,
    about: &'a str,
    across: (&'a str, fn(f64) -> String),
    up: (&'a str, fn(f64) -> String),
    /// How the upward axis is divided.
    scale: Upward,
    diagonal: bool,
}

/// How an upward axis is divided.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Upward {
    /// From 0.
    Linear,
    /// Figures are far apart.
    Log,
    /// Sizes, which are far apart too.
    Bytes,
}

/// Fewest points that make a line.
const FEWEST_POINTS: usize = 2;

/// The lines of these points; `None` if no series has enough of them.
fn curve(of: Curve, series: Vec<Line>) -> Option<Picture> {
    let mut series: Vec<Line> = series;
    for line in &mut series {
        line.points.sort_by(|one, other| one.x.total_cmp(&other.x));
    }
    series.retain(|line| !line.points.is_empty());
    let places = |line: &Line| {
        let mut xs: Vec<f64> = line.points.iter().map(|point| point.x).collect();
        xs.dedup();
        xs.len()
    };
    if !series.iter().any(|line| places(line) >= FEWEST_POINTS) {
        return None;
    }
    let xs: Vec<f64> =
        series.iter().flat_map(|line| line.points.iter().map(|point| point.x)).collect();
    let mut ys: Vec<f64> = vec![];
    for point in series.iter().flat_map(|line| &line.points) {
        ys.push(point.y);
        if let Some((low, high)) = point.interval {
            ys.extend([low, high]);
        }
    }
    let (least, most) =
        (xs.iter().copied().fold(f64::INFINITY, f64::min), xs.iter().copied().fold(0.0, f64::max));
    let is_far = least > 0.0 && most / least > 8.0;
    let mut across = match is_far {
        true => Axis::log(of.across.0, &xs, of.across.1)?,
        false => Axis::of_bars(of.across.0, &xs, of.across.1)?,
    };
    across.other = None;
    let is_log = of.scale == Upward::Log || (of.diagonal && is_far);
    let up = match of.scale {
        Upward::Bytes => Axis::of_bytes(of.up.0, &ys)?,
        // Where both axes show the same, they have the same scale.
        _ if is_log => Axis::log(of.up.0, &ys, of.up.1)?,
        _ => {
            let axis = Axis::linear(of.up.0, &[ys.as_slice(), &[0.0]].concat(), of.up.1)?;
            Axis { other: Scale::log(&ys), ..axis }
        }
    };
    Some(Picture {
        plot: of.plot,
        id: of.id,
        title: of.title,
        about: of.about.into(),
        drawing: Drawing::Lines(Lines { across, up, series, diagonal: of.diagonal }),
        keys: vec![],
    })
}

/// A line for each series of rows under these loads: `x` and the metric `y` of each.
fn lines(
    loads: &[&Load],
    x: &dyn Fn(&Load, &Row) -> Option<f64>,
    y: &dyn Fn(&Row) -> Option<Point>,
) -> Vec<Line> {
    let mut lines: Vec<Line> = vec![];
    for load in loads {
        for row in load.rows().filter(|row| row.standing != Standing::Again) {
            let Some((x, point)) = x(load, row).zip(y(row)) else { continue };
            let point = Point { x, ..point };
            match lines.iter_mut().find(|line| line.series == row.series) {
                Some(line) => line.points.push(point),
                None => lines.push(Line {
                    name: row.name.clone(),
                    series: row.series,
                    key: row.series.to_string(),
                    points: vec![point],
                }),
            }
        }
    }
    lines.sort_by_key(|line| line.series);
    lines
}

/// The figure of a metric as a point.
fn point(row: &Row, name: &str) -> Option<Point> {
    let figure = row.figure(name)?;
    Some(Point { x: 0.0, y: figure.median, interval: figure.interval })
}

/// Loads of a study that differ in these fields of theirs alone, in sets; each with how it is called.
fn alike<'s, 'a>(study: &'s Study<'a>, varies: &[&str]) -> Vec<Vec<&'s Load<'a>>> {
    let base = |load: &Load| {
        let mut value = load.value["load"].clone();
        if let Value::Object(fields) = &mut value {
            fields.retain(|name, _| !varies.contains(&name.as_str()));
        }
        value
    };
    let mut sets: Vec<(Value, Vec<&Load>)> = vec![];
    for load in &study.loads {
        let of = base(load);
        match sets.iter_mut().find(|(known, _)| *known == of) {
            Some((_, set)) => set.push(load),
            None => sets.push((of, vec![load])),
        }
    }
    sets.into_iter().map(|(_, set)| set).filter(|set| set.len() >= FEWEST_POINTS).collect()
}

/// What is behind the title of a picture, if there are several of its kind.
fn beside(sets: usize, set: &[&Load]) -> String {
    match set.first().filter(|_| sets > 1) {
        Some(load) => format!(" (loads like {})", load.name),
        None => String::new(),
    }
}

/// UDP against what was offered.
fn over_offered(study: &Study) -> Vec<Picture> {
    const VARIES: [&str; 7] = [
        "kind",
        "offered_per_s",
        "share_of_maximum",
        "share_of_partial_drop_rate",
        "search",
        "send_offload",
        "rcvbuf_bytes",
    ];
    let sets = alike(study, &VARIES);
    let offered = |_: &Load, row: &Row| row.median("offered_per_s").filter(|rate| *rate > 0.0);
    let mut all = vec![];
    for (index, set) in sets.iter().enumerate() {
        let id = |plot: &str| match index {
            0 => id(study, None, plot),
            more => format!("{}-{}", id(study, None, plot), more + 1),
        };
        let beside = beside(sets.len(), set);
        let of = |plot: &'static str, title: &str, about, up, scale, diagonal| Curve {
            plot,
            id: id(plot),
            title: format!("{title}{beside}"),
            about,
            across: ("offered datagrams/s", si),
            up,
            scale,
            diagonal,
        };
        let lost = |row: &Row| {
            let received = row.median("received_percent_of_sent")?;
            Some(Point { x: 0.0, y: (100.0 - received).max(0.0), interval: None })
        };
        let metric = |name: &'static str| move |row: &Row| point(row, name);
        all.extend(curve(
            of(
                "received",
                "Received against offered",
                "Datagrams received per second for so many offered. On the dashed line nothing is lost; where a design \
                 leaves it, it is saturated.",
                ("received/s", si as fn(f64) -> String),
                Upward::Linear,
                true,
            ),
            lines(set, &offered, &metric("received_per_s")),
        ));
        all.extend(curve(
            of(
                "lost",
                "Lost against offered",
                "Percent of the datagrams sent that were not received, for so many offered per second.",
                ("% of sent lost", percent_of),
                Upward::Linear,
                false,
            ),
            lines(set, &offered, &lost),
        ));
        all.extend(curve(
            of(
                "latency-curve",
                "99th percentile of the latency against offered",
                "One-way latency in µs, on a logarithmic scale. Where it rises steeply, queues fill.",
                ("p99 in µs", microseconds),
                Upward::Log,
                false,
            ),
            lines(set, &offered, &metric("latency_ns.p99")),
        ));
        all.extend(curve(
            of(
                "cpu-curve",
                "CPU time per datagram against offered",
                "Nanoseconds of the server's CPU time for each datagram. Designs that busy-poll spend it on little load, \
                 too.",
                ("ns per datagram", si),
                Upward::Linear,
                false,
            ),
            lines(set, &offered, &metric("cpu_ns_per_datagram")),
        ));
        all.extend(curve(
            of(
                "batch-curve",
                "Batch size against offered",
                "Datagrams taken at a time, the median. What batches spares work when load rises.",
                ("datagrams at a time", si),
                Upward::Log,
                false,
            ),
            lines(set, &offered, &metric("batch_datagrams.p50")),
        ));
        let several = set
            .iter()
            .flat_map(|load| load.rows())
            .any(|row| row.median("threads_used").is_some_and(|used| used > 1.0));
        if several {
            all.extend(curve(
                of(
                    "threads-curve",
                    "Threads at work against offered",
                    "Threads that handled any datagram, the median over the rounds.",
                    ("threads", si),
                    Upward::Linear,
                    false,
                ),
                lines(set, &offered, &metric("threads_used")),
            ));
        }
    }
    all
}

/// A sweep of UDP over threads or work, as the document has it.
fn over_sweep(study: &Study, name: &'static str, title: &str) -> Vec<Picture> {
    let sweeps: Vec<&Value> = items(&study.value["sweeps"][name]).collect();
    let mut all = vec![];
    let plot = if name == "threads" { "sweep-threads" } else { "sweep-work" };
    for (index, sweep) in sweeps.into_iter().enumerate() {
        let designs = items(&sweep["designs"]).filter_map(Value::as_str);
        let series = designs.enumerate().map(|(design, name)| Line {
            name: name.into(),
            series: design,
            key: format!("{plot}-{index}-{design}"),
            points: items(&sweep["stops"])
                .filter_map(|stop| {
                    let y = number(&stop["received_per_s"][design])?;
                    Some(Point { x: number(&stop["at"])?, y, interval: None })
                })
                .collect(),
        });
        all.extend(curve(
            Curve {
                plot,
                id: format!("{}-{plot}-{index}", study.name),
                title: format!("Received/s against {title}"),
                about: "Datagrams received per second at each stop of the sweep; where lines cross, another design leads.",
                across: (title, si),
                up: ("received/s", si),
                scale: Upward::Linear,
                diagonal: false,
            },
            series.collect(),
        ));
    }
    all
}

/// TCP against the number of connections.
fn over_connections(study: &Study) -> Vec<Picture> {
    let sets = alike(study, &["connections", "buffer_bytes", "outstanding", "blocks"]);
    let connections = |load: &Load, _: &Row| number(&load.value["load"]["connections"]);
    let memory = |row: &Row| {
        let kernel = row.median("kernel_bytes").filter(|bytes| *bytes > 0.0).unwrap_or(0.0);
        Some(Point { x: 0.0, y: row.median("resident_bytes")? + kernel, interval: None })
    };
    let mut all = vec![];
    for (index, set) in sets.iter().enumerate() {
        let beside = beside(sets.len(), set);
        let of = |plot: &'static str, title: &str, about, up, scale| Curve {
            plot,
            id: format!(
                "{}{}",
                id(study, None, plot),
                if index == 0 { String::new() } else { format!("-{}", index + 1) }
            ),
            title: format!("{title}{beside}"),
            about,
            across: ("connections", si),
            up,
            scale,
            diagonal: false,
        };
        all.extend(curve(
            of(
                "messages-curve",
                "Messages/s against connections",
                "Messages that came back per second, with 95 % intervals, for so many connections.",
                ("messages/s", si as fn(f64) -> String),
                Upward::Linear,
            ),
            lines(set, &connections, &|row| point(row, "messages_per_s")),
        ));
        all.extend(curve(
            of(
                "latency-curve",
                "99th percentile of the round trip against connections",
                "Round trips in µs, on a logarithmic scale.",
                ("p99 in µs", microseconds),
                Upward::Log,
            ),
            lines(set, &connections, &|row| point(row, "round_trip_ns.p99")),
        ));
        all.extend(curve(
            of(
                "memory-curve",
                "Memory against connections",
                "Memory of the server's process when all connections were open, and of the kernel where that is known.",
                ("memory", bytes),
                Upward::Bytes,
            ),
            lines(set, &connections, &memory),
        ));
        all.extend(curve(
            of(
                "cpu-curve",
                "CPU time per message against connections",
                "Nanoseconds of the server's CPU time for each message.",
                ("ns per message", si),
                Upward::Linear,
            ),
            lines(set, &connections, &|row| point(row, "cpu_ns_per_message")),
        ));
    }
    all
}

/// I/Os per second against how many are outstanding, of the designs that were run with several depths.
fn over_depth(study: &Study) -> Vec<Picture> {
    let mut all = vec![];
    for load in &study.loads {
        let mut series: Vec<Line> = vec![];
        for row in load.rows().filter(|row| row.standing != Standing::Again) {
            let depth = number(&row.value["depth"]).filter(|depth| *depth > 0.0);
            let Some((depth, point)) = depth.zip(point(row, "ios_per_s")) else { continue };
            let name = without(&row.name, &["--depth"]);
            let point = Point { x: depth, ..point };
            match series.iter_mut().find(|line| line.name == name) {
                Some(line) => line.points.push(point),
                None => {
                    let (number, key) =
                        (series.len(), format!("depth-{}-{}", load.index, series.len()));
                    series.push(Line { name, series: number, key, points: vec![point] });
                }
            }
        }
        let alone: Vec<Line> =
            series.into_iter().filter(|line| line.points.len() >= FEWEST_POINTS).collect();
        all.extend(curve(
            Curve {
                plot: "depth",
                id: id(study, Some(load), "depth"),
                title: match study.loads.len() {
                    1 => "I/Os per second against depth".into(),
                    _ => format!("I/Os per second against depth: {}", load.name),
                },
                about: "I/Os completed per second for so many outstanding, with 95 % intervals: designs that were run with \
                        several depths.",
                across: ("outstanding I/Os", si),
                up: ("I/Os/s", si),
                scale: Upward::Linear,
                diagonal: false,
            },
            alone,
        ));
    }
    all
}

/// A row's name without these options and their values.
fn without(name: &str, options: &[&str]) -> String {
    let mut words = name.split(' ').peekable();
    let mut kept = vec![];
    while let Some(word) = words.next() {
        match options.contains(&word) {
            true => {
                words.next();
            }
            false => kept.push(word),
        }
    }
    kept.join(" ")
}

/// I/Os per second against how long each takes.
fn over_delay(study: &Study) -> Vec<Picture> {
    let sets = alike(study, &["delay_us", "device"]);
    let delay = |load: &Load, _: &Row| number(&load.value["load"]["delay_us"]);
    let mut all = vec![];
    for (index, set) in sets.iter().enumerate() {
        all.extend(curve(
            Curve {
                plot: "delay",
                id: format!("{}{}", id(study, None, "delay"), if index == 0 { String::new() } else { format!("-{}", index + 1) }),
                title: format!("I/Os per second against the time of an I/O{}", beside(sets.len(), set)),
                about: "I/Os completed per second if each takes so long: where a line crosses that of plain reads, \
                        asynchronous I/O begins to pay.",
                across: ("µs per I/O", si),
                up: ("I/Os/s", si),
                scale: Upward::Log,
                diagonal: false,
            },
            lines(set, &delay, &|row| point(row, "ios_per_s")),
        ));
    }
    all
}

/// A page, in bytes: the kernel takes no less.
const LEAST_MEMORY: f64 = 4096.0;

/// Kernel memory against outstanding receives: the document of `weir compare udp --memory`.
pub fn of_memory(document: &Value) -> Option<Picture> {
    let mut series: Vec<Line> = vec![];
    // Less cannot be told from nothing, and a logarithmic axis has a lowest figure.
    let noise = number(&document["noise_bytes"]).unwrap_or(0.0).max(LEAST_MEMORY);
    for row in items(&document["results"]) {
        let Some((x, y)) = number(&row["outstanding"]).zip(number(&row["kernel_bytes"])) else {
            continue;
        };
        // How many the kernel is given follows from how many there are.
        let spec = text(row, "spec").or_else(|| text(row, "design")).unwrap_or_default();
        let mut name = without(&spec, &["--outstanding", "--provider"]);
        if row["outstanding"]
            .as_u64()
            .is_some_and(|count| name.contains(&format!("--armed {count}")))
        {
            name = without(&name, &["--armed"]) + " --armed";
        }
        if let Some(provider) = row["provider"].as_str() {
            name += &format!(" on {provider}");
        }
        let point = Point { x, y: y.max(noise), interval: None };
        match series.iter_mut().find(|line| line.name == name) {
            Some(line) => line.points.push(point),
            None => {
                let number = series.len();
                series.push(Line {
                    name,
                    series: number,
                    key: number.to_string(),
                    points: vec![point],
                });
            }
        }
    }
    curve(
        Curve {
            plot: "memory",
            id: "memory-curve".into(),
            title: "Kernel memory against outstanding receives".into(),
            about: &format!(
                "What the kernel holds for a server that waits for so many receives, before anything has come. What is below \
                 the noise, {}, is drawn there.",
                bytes(noise)
            ),
            across: ("outstanding receives", si),
            up: ("kernel memory", bytes),
            scale: Upward::Bytes,
            diagonal: false,
        },
        series,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn designs_at_several_depths_are_one_line() {
        assert_eq!(without("ring --depth 64 --batch 8", &["--depth"]), "ring --batch 8");
        assert_eq!(without("ring", &["--depth"]), "ring");
    }
}
