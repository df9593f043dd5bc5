//! The pictures over several loads: lines against what was offered, connections, depth, or what else was varied.

use serde_json::Value;

use super::chart::{Axis, Drawing, Line, Lines, Picture, Point, Scale, anchor};
use crate::report::model::{Figure, Load, Row, Standing, Study, items, number, text};
use crate::report::number::{bytes, si};
use crate::report::pictures::{OverLoads, OverOption, Own, Shown, Sweep, Text, Upward, X, Y};

/// The pictures over several loads, and those of sweeps.
pub fn of_study(study: &Study) -> Vec<Picture> {
    let of = &study.kind.pictures;
    let over_option = of.over_option.iter().flat_map(|over| over_option(study, over));
    let over_loads = of.over_loads.iter().flat_map(|over| over_loads(study, over));
    let sweeps = of.sweeps.iter().flat_map(|sweep| over_sweep(study, sweep));
    let own = (of.own)(study.value).into_iter().enumerate();
    let own = own.filter_map(|(index, own)| of_own(study, index, own));
    over_option.chain(over_loads).chain(sweeps).chain(own).collect()
}

/// A picture of lines: what it is, what it shows, and how its axes are written.
struct Curve<'a> {
    plot: &'static str,
    id: String,
    title: String,
    about: &'a str,
    across: &'a str,
    up: (&'a str, Text),
    scale: Upward,
    diagonal: bool,
}

impl<'a> Curve<'a> {
    fn of(shown: &'a Shown, id: String, beside: &str, across: &'a str) -> Self {
        Self {
            plot: shown.plot,
            id,
            title: format!("{}{beside}", shown.title),
            about: shown.about,
            across,
            up: shown.up,
            scale: shown.scale,
            diagonal: shown.diagonal,
        }
    }
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
        true => Axis::log(of.across, &xs, si)?,
        false => Axis::of_bars(of.across, &xs, si)?,
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

/// Adds a point to the line of this series, or of this name where a series has no number yet: it gets the next one, and
/// a key that begins with `prefix`.
fn add(
    lines: &mut Vec<Line>,
    (series, name): (Option<usize>, &str),
    prefix: &str,
    x: f64,
    figure: Figure,
) {
    let point = Point { x, y: figure.median, interval: figure.interval };
    let is_it = |line: &Line| series.map_or(line.name == name, |series| line.series == series);
    match lines.iter_mut().find(|line| is_it(line)) {
        Some(line) => line.points.push(point),
        None => {
            let series = series.unwrap_or(lines.len());
            let key = format!("{prefix}{series}");
            lines.push(Line { name: name.into(), series, key, points: vec![point] });
        }
    }
}

/// A figure of which there is no interval.
fn figure(median: f64) -> Figure {
    Figure { median, interval: None }
}

/// The figure of a row that a picture shows.
fn shown_of(y: &Y, row: &Row) -> Option<Figure> {
    match y {
        Y::Of(name) => row.figure(name),
        Y::LackOf(name) => Some(figure((100.0 - row.median(name)?).max(0.0))),
        Y::Sum(one, other) => {
            let other = row.median(other).filter(|value| *value > 0.0).unwrap_or(0.0);
            Some(figure(row.median(one)? + other))
        }
    }
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

/// Pictures for each set of loads that differ in some fields alone.
fn over_loads(study: &Study, over: &OverLoads) -> Vec<Picture> {
    let sets = alike(study, over.varies);
    let x = |load: &Load, row: &Row| match over.x {
        X::OfLoad(field) => number(&load.value["load"][field]),
        X::OfRow(metric) => row.median(metric).filter(|value| *value > 0.0),
    };
    let mut all = vec![];
    for (index, set) in sets.iter().enumerate() {
        let beside = beside(sets.len(), set);
        for shown in over.shown {
            let is_above_1 =
                |row: &Row| shown_of(&shown.y, row).is_some_and(|figure| figure.median > 1.0);
            if shown.only_above_1 && !study.rows().any(|(_, row)| is_above_1(row)) {
                continue;
            }
            let mut lines = vec![];
            for load in set {
                for row in load.rows().filter(|row| row.standing != Standing::Again) {
                    if let Some((x, figure)) = x(load, row).zip(shown_of(&shown.y, row)) {
                        add(&mut lines, (Some(row.series), &row.name), "", x, figure);
                    }
                }
            }
            lines.sort_by_key(|line| line.series);
            let id = anchor_of_set(study, shown.plot, index);
            all.extend(curve(Curve::of(shown, id, &beside, over.across), lines));
        }
    }
    all
}

/// A sweep, as the document has it.
fn over_sweep(study: &Study, sweep: &Sweep) -> Vec<Picture> {
    let mut all = vec![];
    for (index, found) in items(&study.value["sweeps"][sweep.name]).enumerate() {
        let plot = sweep.shown.plot;
        let mut lines = vec![];
        for (design, name) in items(&found["designs"]).filter_map(Value::as_str).enumerate() {
            for stop in items(&found["stops"]) {
                let y = number(&stop[sweep.field][design]);
                if let Some((x, y)) = number(&stop["at"]).zip(y) {
                    let prefix = format!("{plot}-{index}-");
                    add(&mut lines, (Some(design), name), &prefix, x, figure(y));
                }
            }
        }
        let id = format!("{}-{plot}-{index}", study.kind.name);
        // Where several are of one name, each says along what it is.
        let axis = text(found, "axis").filter(|axis| axis != sweep.name);
        let beside = axis.map(|axis| format!(": {axis}")).unwrap_or_default();
        all.extend(curve(Curve::of(&sweep.shown, id, &beside, sweep.across), lines));
    }
    all
}

/// Lines that only this study has.
fn of_own(study: &Study, index: usize, own: Own) -> Option<Picture> {
    let Own { plot, title, about, across, up, lines } = own;
    let id = format!("{}-{plot}-{index}", study.kind.name);
    let of = Curve { plot, id, title, about, across, up, scale: Upward::Linear, diagonal: false };
    let line = |(series, (name, points)): (usize, (String, Vec<[f64; 2]>))| Line {
        name,
        series,
        key: format!("{plot}-{index}-{series}"),
        points: points.into_iter().map(|[x, y]| Point { x, y, interval: None }).collect(),
    };
    curve(of, lines.into_iter().enumerate().map(line).collect())
}

/// Rows that differ in one option alone, under each load.
fn over_option(study: &Study, over: &OverOption) -> Vec<Picture> {
    let plot = over.shown.plot;
    let mut all = vec![];
    for load in &study.loads {
        let mut lines = vec![];
        for row in load.rows().filter(|row| row.standing != Standing::Again) {
            let x = number(&row.value[over.field]).filter(|x| *x > 0.0);
            if let Some((x, figure)) = x.zip(shown_of(&over.shown.y, row)) {
                let name = without(&row.name, &[over.option]);
                add(&mut lines, (None, &name), &format!("{plot}-{}-", load.index), x, figure);
            }
        }
        lines.retain(|line| line.points.len() >= FEWEST_POINTS);
        let beside = match study.loads.len() {
            1 => String::new(),
            _ => format!(": {}", load.name),
        };
        let id = anchor(study, Some(load), plot);
        all.extend(curve(Curve::of(&over.shown, id, &beside, over.across), lines));
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
        add(&mut series, (None, &name), "", x, figure(y.max(noise)));
    }
    curve(
        Curve {
            plot: "memory",
            id: "memory-curve".into(),
            title: "Kernel memory against outstanding receives".into(),
            about: &format!(
                "What the kernel holds for a server with this many receives outstanding, before anything has arrived. \
                 Figures below the noise, {}, are drawn at that value.",
                bytes(noise)
            ),
            across: "outstanding receives",
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
