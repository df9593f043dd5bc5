//! The pictures of one load: each is made where its figures are there, and left out where they are not.

use super::chart::{Axis, Band, Drawing, Line, Lines, Mark, Picture, Point, anchor};
use crate::report::model::{Load, Row, Sample, Standing, Study};
use crate::report::number::{percent_of, si, whole};
use crate::report::words::capital_first;

/// Percentiles of latencies: the metric, what it is called, and the class of its mark.
const PERCENTILES: [(&str, &str, &str); 5] = [
    ("p50", "p50", "p-50"),
    ("p90", "p90", "p-90"),
    ("p99", "p99", "p-99"),
    ("p99_9", "p99.9", "p-999"),
    ("max", "max", "p-max"),
];

/// The pictures of one load.
pub fn of_load(study: &Study, load: &Load) -> Vec<Picture> {
    let all = [rate, rounds, latency, frontier, cpu, batches, threads];
    all.into_iter().filter_map(|picture| picture(study, load)).collect()
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
        id: anchor(study, Some(load), "rate"),
        title: format!("{}, with every run", named(&metric.heading)),
        about: format!(
            "Each design's median with its 95 % interval, and a dot for each run ({what}). Rows whose dots overlap are \
             hard to tell apart, whatever their medians say."
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

/// Percentiles of the latency.
fn latency(study: &Study, load: &Load) -> Option<Picture> {
    let kind = study.kind;
    let metric = kind.metric(&format!("{}.p50", kind.latency), Some("ns"));
    let mut values = vec![];
    let mut bands = vec![];
    for row in load.rows().filter(|row| row.standing != Standing::Again) {
        let found: Vec<(f64, &str, &str)> = PERCENTILES
            .iter()
            .filter_map(|(name, title, class)| {
                Some((row.median(&format!("{}.{name}", kind.latency))?, *title, *class))
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
    let what = match load.value["load"]["replies"].is_null() {
        true => kind.pictures.latency,
        false => "round trip",
    };
    Some(Picture {
        plot: "latency",
        id: anchor(study, Some(load), "latency"),
        title: "Latency: p50, p90, p99, p99.9 and the longest".into(),
        about: format!(
            "Percentiles of the {what} in µs, each the median over the rounds (less is better; p50 and p99 beside \
             its name). A long tail is a wide gap to the right."
        ),
        drawing: Drawing::Rows(axis, bands),
        keys: PERCENTILES.iter().map(|(_, title, class)| (*class, (*title).to_owned())).collect(),
    })
}

/// What the latency of each row costs, where all rows are offered the same and are ranked by latency.
fn frontier(study: &Study, load: &Load) -> Option<Picture> {
    let latency = study.kind.latency;
    let p99 = study.kind.metric(&format!("{latency}.p99"), Some("ns"));
    let rows = load.rows().filter(|row| row.standing != Standing::Again);
    let line = |row: &Row| {
        let x = row.median("server_cpu_utilization_percent")?;
        let y = row.median(&format!("{latency}.p99")).filter(|y| *y > 0.0)?;
        let name = match row.standing {
            Standing::Unranked => format!("{}, not ranked", row.name),
            _ => row.name.clone(),
        };
        let points = vec![Point { x, y, interval: None }];
        Some(Line { name, series: row.series, key: row.series.to_string(), points })
    };
    let mut series: Vec<Line> = rows.filter_map(line).collect();
    series.sort_by_key(|line| line.series);
    let points = || series.iter().flat_map(|line| &line.points);
    let (xs, ys): (Vec<f64>, Vec<f64>) = points().map(|point| (point.x, point.y)).unzip();
    let across = Axis::of_bars("% of the server's cores", &xs, percent_of)?;
    let up = Axis::log("p99 in µs", &ys, p99.text)?;
    let is_a_choice = load.ranked_by.starts_with(latency) && series.len() > 1;
    is_a_choice.then(|| Picture {
        plot: "frontier",
        id: anchor(study, Some(load), "frontier"),
        // It may stand alone, as a file.
        title: format!("CPU time against the 99th percentile of the latency: {}", load.name),
        about: "A point for each design: the share of the server's cores that it used, and the 99th percentile of its \
                latency, both medians over the rounds. The farther down and to the left, the better; a design that has \
                another one below and to the left of it costs more and is slower by these medians, whose noise is not \
                drawn: the ranking says which differences are real."
            .into(),
        drawing: Drawing::Lines(Lines { across, up, series, diagonal: false }),
        keys: vec![],
    })
}

/// CPU time for each datagram, message or I/O, in its parts where they are known.
fn cpu(study: &Study, load: &Load) -> Option<Picture> {
    let kind = study.kind;
    let part = kind.pictures.cpu_part;
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
        id: anchor(study, Some(load), "cpu"),
        title: format!("CPU time per {}", kind.one),
        about: format!(
            "Nanoseconds of the server's CPU time for each {} (less is better), the medians over the rounds.",
            kind.one
        ),
        drawing: Drawing::Rows(axis, bands),
        keys,
    })
}

/// How many are taken at a time, where that differs.
fn batches(study: &Study, load: &Load) -> Option<Picture> {
    let batch = study.kind.pictures.batch.as_ref()?;
    let (mut bands, mut values) = (vec![], vec![]);
    for row in load.rows().filter(|row| row.standing != Standing::Again) {
        let of = |name: &str| row.median(name).filter(|value| *value > 0.0);
        let ends = batch.ends.and_then(|[low, high]| of(low).zip(of(high)));
        let Some(middle) = of(batch.middle) else { continue };
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
    Some(Picture {
        plot: "batch",
        id: anchor(study, Some(load), "batch"),
        title: batch.title.into(),
        about: batch.about.into(),
        drawing: Drawing::Rows(axis, bands),
        keys: vec![],
    })
}

/// Threads that did something in each round, of those that were started.
fn threads(study: &Study, load: &Load) -> Option<Picture> {
    let (used, started) = study.kind.pictures.threads?;
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
        id: anchor(study, Some(load), "threads"),
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
        id: anchor(study, Some(load), "rounds"),
        title: format!("{}, round by round", named(&metric.heading)),
        about: format!(
            "Each run against its design's median, from the first round at the left to the last: above the line is \
             more, the height of a row is ±{:.0} %, and anything farther away is drawn at its edge. What moves in all \
             rows at once is the machine, not the designs; a slope is drift.",
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
        _ => capital_first(heading),
    }
}

/// How far from the median a row reaches, as a share of that: at least, and at most.
const LEAST_HEIGHT: f64 = 0.02;
const MOST_HEIGHT: f64 = 1.0;

/// A round at a tick; there is none before the first.
fn round(value: f64) -> String {
    if value < 1.0 || value.fract() != 0.0 { String::new() } else { format!("round {value:.0}") }
}
