//! The pictures over several loads: lines against what was offered, connections, depth, or what else was varied.

use serde_json::Value;

use super::chart::{Axis, Drawing, Line, Lines, Picture, Point, Scale, anchor};
use crate::report::model::{Load, Row, Standing, Study, items, number, text};
use crate::report::number::{bytes, microseconds, percent_of, si};

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
            all.extend(over_sweep(study, "options", "the option"));
            all.extend(over_bursts(study));
        }
    }
    all
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

/// The anchor of a picture of one of several sets of loads.
fn anchor_of_set(study: &Study, plot: &str, index: usize) -> String {
    let of_study = anchor(study, None, plot);
    if index == 0 { of_study } else { format!("{of_study}-{}", index + 1) }
}

/// What is behind the title of a picture, if there are several of its kind.
fn beside(sets: usize, set: &[&Load]) -> String {
    match set.first().filter(|_| sets > 1) {
        Some(load) => format!(" (loads like {})", load.name),
        None => String::new(),
    }
}

/// What a picture over several loads shows upward.
struct Shown {
    plot: &'static str,
    title: &'static str,
    about: &'static str,
    up: (&'static str, fn(f64) -> String),
    scale: Upward,
    y: fn(&Row) -> Option<Point>,
}

/// A picture of each of these for each set of loads that differ in these fields alone, against `x`; one may have a
/// diagonal.
fn over(
    study: &Study,
    varies: &[&str],
    across: &'static str,
    x: &dyn Fn(&Load, &Row) -> Option<f64>,
    shown: &[Shown],
    diagonal: Option<&str>,
) -> Vec<Picture> {
    let sets = alike(study, varies);
    let mut all = vec![];
    for (index, set) in sets.iter().enumerate() {
        let beside = beside(sets.len(), set);
        for of in shown {
            let curve_of = Curve {
                plot: of.plot,
                id: anchor_of_set(study, of.plot, index),
                title: format!("{}{beside}", of.title),
                about: of.about,
                across: (across, si),
                up: of.up,
                scale: of.scale,
                diagonal: diagonal == Some(of.plot),
            };
            all.extend(curve(curve_of, lines(set, x, &of.y)));
        }
    }
    all
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
    let shown = [
        Shown {
            plot: "received",
            title: "Received against offered",
            about: "Datagrams received per second for so many offered. On the dashed line nothing is lost; where a design \
                    leaves it, it is saturated.",
            up: ("received/s", si),
            scale: Upward::Linear,
            y: |row| point(row, "received_per_s"),
        },
        Shown {
            plot: "lost",
            title: "Lost against offered",
            about: "Percent of the datagrams sent that were not received, for so many offered per second.",
            up: ("% of sent lost", percent_of),
            scale: Upward::Linear,
            y: |row| {
                let received = row.median("received_percent_of_sent")?;
                Some(Point { x: 0.0, y: (100.0 - received).max(0.0), interval: None })
            },
        },
        Shown {
            plot: "latency-curve",
            title: "99th percentile of the latency against offered",
            about: "One-way latency in µs, on a logarithmic scale. Where it rises steeply, queues fill.",
            up: ("p99 in µs", microseconds),
            scale: Upward::Log,
            y: |row| point(row, "latency_ns.p99"),
        },
        Shown {
            plot: "cpu-curve",
            title: "CPU time per datagram against offered",
            about: "Nanoseconds of the server's CPU time for each datagram. Designs that busy-poll spend it on little load, \
                    too.",
            up: ("ns per datagram", si),
            scale: Upward::Linear,
            y: |row| point(row, "cpu_ns_per_datagram"),
        },
        Shown {
            plot: "batch-curve",
            title: "Batch size against offered",
            about: "Datagrams taken at a time, the median. What batches spares work when load rises.",
            up: ("datagrams at a time", si),
            scale: Upward::Log,
            y: |row| point(row, "batch_datagrams.p50"),
        },
        Shown {
            plot: "threads-curve",
            title: "Threads at work against offered",
            about: "Threads that handled any datagram, the median over the rounds.",
            up: ("threads", si),
            scale: Upward::Linear,
            y: |row| point(row, "threads_used"),
        },
    ];
    let several =
        study.rows().any(|(_, row)| row.median("threads_used").is_some_and(|used| used > 1.0));
    let shown = if several { &shown[..] } else { &shown[..shown.len() - 1] };
    let offered = |_: &Load, row: &Row| row.median("offered_per_s").filter(|rate| *rate > 0.0);
    over(study, &VARIES, "offered datagrams/s", &offered, shown, Some("received"))
}

/// A sweep of UDP over threads or work, as the document has it.
fn over_sweep(study: &Study, name: &'static str, title: &str) -> Vec<Picture> {
    let sweeps: Vec<&Value> = items(&study.value["sweeps"][name]).collect();
    let mut all = vec![];
    let plot = match name {
        "threads" => "sweep-threads",
        "options" => "sweep-options",
        _ => "sweep-work",
    };
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
                title: match name {
                    "options" => {
                        format!("Received/s against {}", text(sweep, "axis").unwrap_or_default())
                    }
                    _ => format!("Received/s against {title}"),
                },
                about: "Datagrams received per second at each stop of the sweep; where lines cross, another design \
                        leads.",
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

/// What is taken of bursts, against their size.
fn over_bursts(study: &Study) -> Vec<Picture> {
    let mut all = vec![];
    for (index, bursts) in items(&study.value["bursts"]).enumerate() {
        let sizes: Vec<f64> = items(&bursts["datagrams"]).filter_map(Value::as_f64).collect();
        let series = items(&bursts["rows"]).enumerate().map(|(place, row)| Line {
            name: text(row, "name").unwrap_or_default(),
            series: place,
            key: format!("bursts-{index}-{place}"),
            points: sizes
                .iter()
                .zip(items(&row["taken_percent"]))
                .filter_map(|(x, y)| Some(Point { x: *x, y: y.as_f64()?, interval: None }))
                .collect(),
        });
        let held = match text(bursts, "held").as_deref() {
            Some("0") | None => "an idle server".to_owned(),
            Some("sent") => "a server that is held until all is sent".into(),
            Some(time) => format!("a server that is held for {time}"),
        };
        all.extend(curve(
            Curve {
                plot: "bursts",
                id: format!("{}-bursts-{index}", study.name),
                title: format!("Taken of a burst by {held}"),
                about: "Percent of the datagrams sent at once that reached the handler, for so many of them. Where a \
                        design leaves 100 %, its memory or its socket's buffer was full.",
                across: ("datagrams at once", si),
                up: ("% taken", percent_of),
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
    const VARIES: [&str; 4] = ["connections", "buffer_bytes", "outstanding", "blocks"];
    let shown = [
        Shown {
            plot: "messages-curve",
            title: "Messages/s against connections",
            about: "Messages that came back per second, with 95 % intervals, for so many connections.",
            up: ("messages/s", si),
            scale: Upward::Linear,
            y: |row| point(row, "messages_per_s"),
        },
        Shown {
            plot: "latency-curve",
            title: "99th percentile of the round trip against connections",
            about: "Round trips in µs, on a logarithmic scale.",
            up: ("p99 in µs", microseconds),
            scale: Upward::Log,
            y: |row| point(row, "round_trip_ns.p99"),
        },
        Shown {
            plot: "memory-curve",
            title: "Memory against connections",
            about: "Memory of the server's process when all connections were open, and of the kernel where that is known.",
            up: ("memory", bytes),
            scale: Upward::Bytes,
            y: |row| {
                let kernel = row.median("kernel_bytes").filter(|bytes| *bytes > 0.0).unwrap_or(0.0);
                Some(Point { x: 0.0, y: row.median("resident_bytes")? + kernel, interval: None })
            },
        },
        Shown {
            plot: "cpu-curve",
            title: "CPU time per message against connections",
            about: "Nanoseconds of the server's CPU time for each message.",
            up: ("ns per message", si),
            scale: Upward::Linear,
            y: |row| point(row, "cpu_ns_per_message"),
        },
    ];
    let connections = |load: &Load, _: &Row| number(&load.value["load"]["connections"]);
    over(study, &VARIES, "connections", &connections, &shown, None)
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
                id: anchor(study, Some(load), "depth"),
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
    let shown = [Shown {
        plot: "delay",
        title: "I/Os per second against the time of an I/O",
        about: "I/Os completed per second if each takes so long: where a line crosses that of plain reads, asynchronous \
                I/O begins to pay.",
        up: ("I/Os/s", si),
        scale: Upward::Log,
        y: |row| point(row, "ios_per_s"),
    }];
    let delay = |load: &Load, _: &Row| number(&load.value["load"]["delay_us"]);
    over(study, &["delay_us", "device"], "µs per I/O", &delay, &shown, None)
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
