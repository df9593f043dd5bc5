//! The parts of a picture: scales, axes, rows and points, as SVG that needs no script.
//!
//! Along one axis places are given in percent, so that a picture is as wide as its page while its text keeps its size.
//! What a script needs to move marks to another scale stands in `data-` attributes: `data-v` is the figure of a mark,
//! `data-from`, `data-to` and `data-unit` of the picture say where the ends of its axis are.

use maud::{Markup, html};

use crate::report::model::{Load, Standing, Study};
use crate::report::number::bytes;

/// Most ticks of a linear axis.
const MOST_TICKS: f64 = 5.0;
/// Colours and shapes of series; each pair of both is used before one comes again.
const COLOURS: usize = 8;
/// From the top of a row to the next, in pixels.
const ROW: usize = 38;
/// Where the marks of a row are, below its name.
const TRACK: usize = 26;
/// Place for the figures of an axis.
const FOOT: usize = 24;
/// Most characters of a name in a picture.
const MOST_NAME: usize = 38;

/// Most rows of a picture, and most lines.
const MOST_ROWS: usize = 60;

/// Where the ends of a horizontal axis are, in percent.
const LEFT: f64 = 1.0;
const RIGHT: f64 = 99.0;
/// Where lines begin, so that the figures of the upward axis are left of them.
const INSET: f64 = 11.0;

/// From figures to shares of an axis.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scale {
    low: f64,
    high: f64,
    log: bool,
    /// Its ticks are at powers of two, as sizes are.
    binary: bool,
}

impl Scale {
    /// A linear one that holds these figures, from 0 unless all are far from it and `zero` is false.
    pub fn linear(values: &[f64], zero: bool) -> Option<Self> {
        let (low, high) = ends(values)?;
        let from_zero = zero || low < 0.6 * high || low == high;
        let (low, high) = match from_zero {
            true => (low.min(0.0), if high > 0.0 { high } else { 1.0 }),
            false => (low, high),
        };
        let step = nice_step((high - low) / (MOST_TICKS - 1.0));
        let low = (low / step).floor() * step;
        let high = (high / step).ceil() * step;
        Some(Self { low, high, log: false, binary: false })
    }

    /// A logarithmic one that holds these figures; `None` if one is not above 0.
    pub fn log(values: &[f64]) -> Option<Self> {
        let (low, high) = ends(values)?;
        (low > 0.0).then(|| {
            let down = |value: f64| 10f64.powf(value.log10().floor());
            let steps = |value: f64, up: bool| {
                let decade = down(value);
                let all = [1.0, 2.0, 5.0, 10.0].map(|step| step * decade);
                let fits =
                    |step: &f64| if up { *step >= value * 0.999 } else { *step <= value * 1.001 };
                match up {
                    true => all.into_iter().find(fits).unwrap_or(decade * 10.0),
                    false => all.into_iter().rev().find(fits).unwrap_or(decade),
                }
            };
            let (low, mut high) = (steps(low, false), steps(high, true));
            if high <= low {
                high = low * 10.0;
            }
            Self { low, high, log: true, binary: false }
        })
    }

    /// The same of sizes, with ends at powers of two.
    fn of_bytes(values: &[f64], log: bool) -> Option<Self> {
        let (low, high) = ends(values)?;
        let power = |value: f64| 2f64.powf(value.max(1.0).log2().ceil());
        match log {
            true => (low > 0.0).then(|| {
                let low = 2f64.powf(low.log2().floor());
                Self { low, high: power(high).max(low * 4.0), log, binary: true }
            }),
            false => {
                let step = power(high / MOST_TICKS);
                let high = ((high / step).ceil() * step).max(step);
                Some(Self { low: 0.0, high, log, binary: true })
            }
        }
    }

    /// Where a figure is, from 0 to 1.
    pub fn share(&self, value: f64) -> f64 {
        let share = match self.log {
            true => (value.max(self.low) / self.low).ln() / (self.high / self.low).ln(),
            false => (value - self.low) / (self.high - self.low),
        };
        share.clamp(0.0, 1.0)
    }

    /// The figures at its ticks.
    pub fn ticks(&self) -> Vec<f64> {
        if self.binary && self.log {
            let powers = (self.high / self.low).log2().round() as i32;
            let step = (f64::from(powers) / MOST_TICKS).ceil() as usize;
            return (0..=powers)
                .step_by(step.max(1))
                .map(|power| self.low * 2f64.powi(power))
                .collect();
        }
        if self.binary {
            let step = 2f64.powf((self.high / MOST_TICKS).max(1.0).log2().ceil());
            let count = (self.high / step).round() as usize;
            return (0..=count).map(|index| step * index as f64).collect();
        }
        if !self.log {
            let step = nice_step((self.high - self.low) / MOST_TICKS);
            let count = ((self.high - self.low) / step + 1e-6).floor() as usize;
            return (0..=count).map(|index| self.low + step * index as f64).collect();
        }
        let decades = (self.high / self.low).log10();
        let each: &[f64] = if decades < 2.2 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let first = self.low.log10().floor() as i32;
        let last = self.high.log10().ceil() as i32;
        let skip = if decades > 6.5 { 2 } else { 1 };
        (first..=last)
            .step_by(skip)
            .flat_map(|power| each.iter().map(move |step| step * 10f64.powi(power)))
            .filter(|tick| *tick >= self.low * 0.999 && *tick <= self.high * 1.001)
            .collect()
    }

    fn starts_above_zero(&self) -> bool {
        !self.log && self.low > 0.0
    }
}

fn ends(values: &[f64]) -> Option<(f64, f64)> {
    let low = values.iter().copied().reduce(f64::min)?;
    let high = values.iter().copied().reduce(f64::max)?;
    Some((low, high))
}

/// 1, 2 or 5 times a power of ten, at least this.
fn nice_step(least: f64) -> f64 {
    if least.is_nan() || least <= 0.0 {
        return 1.0;
    }
    let decade = 10f64.powf(least.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().find(|step| step * decade >= least * 0.999);
    step.unwrap_or(10.0) * decade
}

/// An axis: the scale that it is drawn with, the other one if there is a choice, and how its figures are written.
pub struct Axis {
    /// What it shows.
    pub title: String,
    /// The scale drawn.
    pub scale: Scale,
    /// The scale that a script may change to.
    pub other: Option<Scale>,
    /// How a figure is written.
    pub text: fn(f64) -> String,
}

impl Axis {
    /// A linear axis with the choice of a logarithmic one.
    pub fn linear(title: &str, values: &[f64], text: fn(f64) -> String) -> Option<Self> {
        let scale = Scale::linear(values, false)?;
        Some(Self { title: title.into(), scale, other: Scale::log(values), text })
    }

    /// A linear axis from 0, and no choice: lengths of bars are compared.
    pub fn of_bars(title: &str, values: &[f64], text: fn(f64) -> String) -> Option<Self> {
        let scale = Scale::linear(values, true)?;
        Some(Self { title: title.into(), scale, other: None, text })
    }

    /// A logarithmic axis with the choice of a linear one; linear, if a figure is not above 0.
    pub fn log(title: &str, values: &[f64], text: fn(f64) -> String) -> Option<Self> {
        let Some(scale) = Scale::log(values) else { return Self::linear(title, values, text) };
        Some(Self { title: title.into(), scale, other: Scale::linear(values, true), text })
    }

    /// An axis of rounds, from before the first to behind the last.
    pub fn of_rounds(last: u64, text: fn(f64) -> String) -> Self {
        let scale = Scale { low: 0.0, high: last as f64 + 1.0, log: false, binary: false };
        Self { title: "round".into(), scale, other: None, text }
    }

    /// An axis of sizes, logarithmic with the choice of a linear one.
    pub fn of_bytes(title: &str, values: &[f64]) -> Option<Self> {
        let linear = Scale::of_bytes(values, false)?;
        let (scale, other) = match Scale::of_bytes(values, true) {
            Some(log) => (log, Some(linear)),
            None => (linear, None),
        };
        Some(Self { title: title.into(), scale, other, text: bytes })
    }

    fn is_broken(&self) -> bool {
        self.scale.starts_above_zero()
    }
}

/// A picture that stands in the page with its heading.
pub struct Picture {
    /// What kind of picture it is, for tests and scripts.
    pub plot: &'static str,
    /// Its anchor, one of its own in the page.
    pub id: String,
    /// Its heading.
    pub title: String,
    /// What it shows and how to read it, in a sentence or two.
    pub about: String,
    /// The drawing.
    pub drawing: Drawing,
    /// What marks mean, where they need to be told.
    pub keys: Vec<(&'static str, String)>,
}

/// What a picture is made of.
pub enum Drawing {
    /// A row for each design, along one axis.
    Rows(Axis, Vec<Band>),
    /// Lines over two axes.
    Lines(Lines),
}

/// A row of a picture.
pub struct Band {
    /// The design.
    pub name: String,
    /// The number of its series.
    pub series: usize,
    /// How it stands.
    pub standing: Standing,
    /// A word for its group, where it is not the first; short.
    pub group: &'static str,
    /// The figure at the right of its name.
    pub figure: String,
    /// Its marks.
    pub marks: Vec<Mark>,
}

/// A mark along the axis of a row.
pub enum Mark {
    /// A median, or another figure that matters most: its class, and what is said of it.
    Point(&'static str, f64, String),
    /// The same of one of many; hollow if it does not count. The second figure is its place across, from -1 to 1.
    Dot { value: f64, across: f64, counts: bool, said: String },
    /// From one figure to another: its class, and what is said of it.
    Span(&'static str, f64, f64, String),
    /// A bar between two figures.
    Bar(&'static str, f64, f64, String),
    /// A mark at a share of the width, whatever the axis is.
    Placed { share: f64, across: f64, counts: bool, said: String },
}

/// Lines over two axes.
pub struct Lines {
    /// Along it, fixed.
    pub across: Axis,
    /// Upwards; a script may change its scale.
    pub up: Axis,
    /// A line for each series.
    pub series: Vec<Line>,
    /// Whether the diagonal, where both figures are the same, is drawn.
    pub diagonal: bool,
}

/// A line of one series.
pub struct Line {
    /// The design.
    pub name: String,
    /// The number of its series, which gives it colour and shape.
    pub series: usize,
    /// By what a legend finds it: other pictures may have the same.
    pub key: String,
    /// Its points, from left to right.
    pub points: Vec<Point>,
}

/// A point of a line.
pub struct Point {
    /// Along the lower axis.
    pub x: f64,
    /// Upwards.
    pub y: f64,
    /// The ends of the interval of that.
    pub interval: Option<(f64, f64)>,
}

/// The anchor of a picture of a load, or of a whole study.
pub fn anchor(study: &Study, load: Option<&Load>, plot: &str) -> String {
    match load {
        Some(load) => format!("{}-load-{}-{plot}", study.kind.name, load.index),
        None => format!("{}-{plot}", study.kind.name),
    }
}

impl Lines {
    fn drawn(&self) -> &[Line] {
        &self.series[..self.series.len().min(MOST_ROWS)]
    }
}

impl Picture {
    /// The picture with its heading, its legend and, for lines, the table of its figures.
    pub fn markup(&self) -> Markup {
        let axis = match &self.drawing {
            Drawing::Rows(axis, _) => axis,
            Drawing::Lines(lines) => &lines.up,
        };
        html! {
            figure id=(self.id) .rows[matches!(self.drawing, Drawing::Rows(..))] {
                figcaption {
                    h4 { (self.title) }
                    @if axis.other.is_some() {
                        span.scales data-log=(axis.scale.log) {}
                    }
                    p.about {
                        (self.about)
                        @if axis.is_broken() { " The axis does not begin at 0." }
                        @if self.left_out() > 0 {
                            " Designs that are not drawn: " (self.left_out()) ", which are in the table."
                        }
                    }
                }
                @if !self.keys.is_empty() {
                    p.keys {
                        @for (class, meaning) in &self.keys {
                            span { (key_sign(class)) (meaning) }
                        }
                    }
                }
                @match &self.drawing {
                    Drawing::Rows(axis, bands) => (self.rows(axis, bands)),
                    Drawing::Lines(lines) => {
                        p.axis { (lines.up.title) }
                        (self.lines(lines))
                        p.axis.under { (lines.across.title) " →" }
                        (legend(lines.drawn().iter().map(|line| (line.series, line.key.clone(), line.name.as_str()))))
                        (values(lines))
                    }
                }
            }
        }
    }

    /// A picture of lines as a file of its own: SVG of a fixed width, with its title, its legend and its colours.
    pub fn file(&self) -> String {
        /// Its width and what is left of it at either side, and the height of a line of text.
        const WIDTH: usize = 760;
        const MARGIN: usize = 10;
        const TEXT: usize = 18;
        /// Names of a legend in a line, at most; what a sign takes, and a character.
        const NAMES: usize = 4;
        const SIGN: usize = 34;
        const CHARACTER: usize = 7;
        let Drawing::Lines(lines) = &self.drawing else { return String::new() };
        let drawn = lines.drawn();
        let longest = drawn.iter().map(|line| line.name.chars().count()).max().unwrap_or(0);
        let names = ((WIDTH - 2 * MARGIN) / (SIGN + longest * CHARACTER)).clamp(1, NAMES);
        let (top, inner) = (2 * TEXT + MARGIN, 250 + FOOT);
        let legend = top + inner + TEXT;
        let height = legend + drawn.len().div_ceil(names) * TEXT + MARGIN;
        let picture = html! {
            svg xmlns="http://www.w3.org/2000/svg" width=(WIDTH) height=(height) viewBox={ "0 0 " (WIDTH) " " (height) }
                role="img" font-family="sans-serif" font-size="12" fill="#1b1f23" {
                style { (maud::PreEscaped(FILE_STYLE)) }
                rect width="100%" height="100%" fill="#ffffff" {}
                (shape_definitions())
                text x=(MARGIN) y=(TEXT) font-weight="bold" { (self.title) }
                text x=(MARGIN) y=(2 * TEXT) { (lines.up.title) }
                svg x=(MARGIN) y=(top) width=(WIDTH - 2 * MARGIN) height=(inner) { (self.lines(lines)) }
                text x=(WIDTH - MARGIN) y=(top + inner + 8) text-anchor="end" { (lines.across.title) " →" }
                @for (place, line) in drawn.iter().enumerate() {
                    @let x = MARGIN + place % names * (WIDTH - 2 * MARGIN) / names;
                    @let y = legend + (place / names + 1) * TEXT - 4;
                    g class={ "line c" (line.series % COLOURS) } {
                        line x1=(x) x2=(x + 20) y1=(y - 4) y2=(y - 4) {}
                        use href={ "#m" (shape(line.series)) } x=(x + 10) y=(y - 4) {}
                    }
                    text x=(x + 26) y=(y) { (line.name) }
                }
            }
        };
        picture.into_string()
    }

    fn left_out(&self) -> usize {
        match &self.drawing {
            Drawing::Rows(_, bands) => bands.len().saturating_sub(MOST_ROWS),
            Drawing::Lines(lines) => lines.series.len().saturating_sub(MOST_ROWS),
        }
    }

    fn svg(
        &self,
        axis: &Axis,
        way: &str,
        (from, to, unit): (f64, f64, &str),
        height: usize,
        inner: &Markup,
    ) -> Markup {
        let other = axis.other.map(|scale| format!("{},{}", scale.low, scale.high));
        html! {
            svg role="img" data-plot=(self.plot) width="100%" height=(height) data-axis=(way)
                data-from=(from) data-to=(to) data-unit=(unit) data-log=(axis.scale.log)
                data-scale={ (axis.scale.low) "," (axis.scale.high) } data-other=[other]
                aria-labelledby={ (self.id) "-t" } aria-describedby={ (self.id) "-d" } {
                title id={ (self.id) "-t" } { (self.title) }
                desc id={ (self.id) "-d" } { (self.about) }
                (inner)
            }
        }
    }

    fn rows(&self, axis: &Axis, bands: &[Band]) -> Markup {
        let bands = &bands[..bands.len().min(MOST_ROWS)];
        let height = bands.len() * ROW;
        let place = |scale: &Scale, value: f64| LEFT + (RIGHT - LEFT) * scale.share(value);
        let at = |value: f64| percent(place(&axis.scale, value));
        let ticks = |scale: &Scale| {
            html! {
                g.ticks data-log=(scale.log) style=[(scale.log != axis.scale.log).then_some("display:none")] {
                    @for tick in scale.ticks() {
                        @let x = place(scale, tick);
                        line x1=(percent(x)) x2=(percent(x)) y1="0" y2=(height) {}
                        text x=(percent(x)) y=(height + 16) text-anchor=(text_anchor(x)) { ((axis.text)(tick)) }
                    }
                }
            }
        };
        let inner = html! {
            (ticks(&axis.scale))
            @if let Some(other) = &axis.other { (ticks(other)) }
            @for (index, band) in bands.iter().enumerate() {
                g class={ "row " (band.standing.class()) } data-s=(band.series)
                    transform={ "translate(0," (index * ROW) ")" } {
                    line.track x1="0" x2="100%" y1=(TRACK) y2=(TRACK) {}
                    text.name x="0" y="12" {
                        (shortened(&band.name, band.group))
                        @if !band.group.is_empty() { tspan.of dx="6" { (band.group) } }
                    }
                    text.figure x="100%" y="12" text-anchor="end" { (band.figure) }
                    @for mark in &band.marks { (mark_of(mark, &at)) }
                }
            }
        };
        self.svg(axis, "x", (LEFT, RIGHT, "%"), height + FOOT, &inner)
    }

    fn lines(&self, lines: &Lines) -> Markup {
        const HEIGHT: f64 = 250.0;
        const TOP: f64 = 16.0;
        let (across, up) = (&lines.across, &lines.up);
        let x = |value: f64| percent(INSET + (RIGHT - INSET - 2.0) * across.scale.share(value));
        let place = |scale: &Scale, value: f64| HEIGHT - (HEIGHT - TOP) * scale.share(value);
        let y = |value: f64| two_decimals(place(&up.scale, value));
        let ticks = |scale: &Scale| {
            html! {
                g.ticks data-log=(scale.log) style=[(scale.log != up.scale.log).then_some("display:none")] {
                    @for tick in scale.ticks() {
                        @let y = place(scale, tick);
                        line x1="0" x2="100%" y1=(two_decimals(y)) y2=(two_decimals(y)) {}
                        text x="0" y=(two_decimals(y - 3.0)) { ((up.text)(tick)) }
                    }
                }
            }
        };
        let diagonal = || {
            let both = [across.scale.low.max(up.scale.low), across.scale.high.min(up.scale.high)];
            let stops: Vec<f64> = (0..=24)
                .map(|step| {
                    both[0].max(1.0) * (both[1] / both[0].max(1.0)).powf(f64::from(step) / 24.0)
                })
                .collect();
            html! {
                @for pair in stops.windows(2) {
                    line.diagonal x1=(x(pair[0])) x2=(x(pair[1])) y1=(y(pair[0])) y2=(y(pair[1]))
                        data-v=(six_digits(pair[0])) data-w=(six_digits(pair[1])) {}
                }
            }
        };
        let inner = html! {
            g.ticks.across {
                @for tick in across.scale.ticks() {
                    line x1=(x(tick)) x2=(x(tick)) y1=(TOP) y2=(HEIGHT) {}
                    text x=(x(tick)) y=(HEIGHT + 17.0) text-anchor="middle" { ((across.text)(tick)) }
                }
            }
            (ticks(&up.scale))
            @if let Some(other) = &up.other { (ticks(other)) }
            @if lines.diagonal { (diagonal()) }
            @for line in lines.drawn() {
                g class={ "line c" (line.series % COLOURS) } data-s=(line.key) {
                    @for pair in line.points.windows(2) {
                        line x1=(x(pair[0].x)) x2=(x(pair[1].x)) y1=(y(pair[0].y)) y2=(y(pair[1].y))
                            data-v=(pair[0].y) data-w=(pair[1].y) {}
                    }
                    @for point in &line.points {
                        @if let Some((low, high)) = point.interval {
                            line.interval x1=(x(point.x)) x2=(x(point.x)) y1=(y(low)) y2=(y(high))
                                data-v=(low) data-w=(high) {}
                        }
                        use href={ "#m" (shape(line.series)) } x=(x(point.x)) y=(y(point.y))
                            data-v=(point.y) data-x=(point.x) {
                            title { (line.name) ": " ((up.text)(point.y)) " at " ((across.text)(point.x)) }
                        }
                    }
                }
            }
        };
        self.svg(up, "y", (HEIGHT, TOP, ""), HEIGHT as usize + FOOT, &inner)
    }
}

fn mark_of(mark: &Mark, at: &dyn Fn(f64) -> String) -> Markup {
    let y = TRACK as f64;
    match mark {
        Mark::Point(class, value, said) => html! {
            circle class={ "point " (class) } cx=(at(*value)) cy=(y) r=(radius(class)) data-v=(value) {
                title { (said) }
            }
        },
        Mark::Dot { value, across, counts, said } => html! {
            circle class=(if *counts { "dot" } else { "dot out" }) cx=(at(*value)) cy=(two_decimals(y + across * 5.0)) r="2.5"
                data-v=(six_digits(*value)) { title { (said) } }
        },
        Mark::Placed { share, across, counts, said } => html! {
            circle class=(if *counts { "dot" } else { "dot out" }) cx=(percent(LEFT + (RIGHT - LEFT) * share))
                cy=(two_decimals(y + across * 9.0)) r="2.5" { title { (said) } }
        },
        Mark::Span(class, low, high, said) => html! {
            line class=(class) x1=(at(*low)) x2=(at(*high)) y1=(y) y2=(y) data-v=(low) data-w=(high) {
                title { (said) }
            }
        },
        Mark::Bar(class, low, high, said) => html! {
            line class={ "bar " (class) } x1=(at(*low)) x2=(at(*high)) y1=(y) y2=(y)
                data-v=(low) data-w=(high) { title { (said) } }
        },
    }
}

/// How large a mark is: what lies at the same place as another is still seen.
fn radius(class: &str) -> &'static str {
    match class {
        "p-max" => "5.7",
        "p-999" => "5.1",
        "p-90" => "4",
        "p-50" => "3.4",
        "dot" | "dot out" => "2.5",
        _ => "4.5",
    }
}

/// A sign in the key of a picture.
fn key_sign(class: &str) -> Markup {
    html! {
        svg width="22" height="12" aria-hidden="true" {
            @match class {
                "point" | "dot" | "dot out" => circle class=(class) cx="11" cy="6" r=(radius(class)) {},
                _ if class.starts_with("p-") => circle class={ "point " (class) } cx="11" cy="6" r=(radius(class)) {},
                _ => line class=(class) x1="2" x2="20" y1="6" y2="6" {},
            }
        }
    }
}

/// The designs of a picture of lines, or of a whole study: by a script they hide and show them.
pub fn legend<'a>(series: impl Iterator<Item = (usize, String, &'a str)>) -> Markup {
    html! {
        ul.legend {
            @for (series, key, name) in series {
                li data-s=(key) {
                    svg class={ "c" (series % COLOURS) } width="22" height="12" aria-hidden="true" {
                        line x1="1" x2="21" y1="6" y2="6" {}
                        use href={ "#m" (shape(series)) } x="11" y="6" {}
                    }
                    (name)
                }
            }
        }
    }
}

/// The figures of a picture of lines.
fn values(lines: &Lines) -> Markup {
    html! {
        details {
            summary { "Figures of this picture" }
            div.scroll { table {
                thead { tr {
                    th scope="col" { "design" }
                    th scope="col" { (lines.across.title) }
                    th scope="col" { (lines.up.title) }
                } }
                tbody {
                    @for line in lines.drawn() { @for point in &line.points {
                        tr {
                            th scope="row" { (line.name) }
                            td { ((lines.across.text)(point.x)) }
                            td { ((lines.up.text)(point.y)) }
                        }
                    } }
                }
            } }
        }
    }
}

/// The style of a picture that stands alone: the page's, for paper.
const FILE_STYLE: &str = ".ticks line{stroke:#e8ebee}.ticks text{fill:#59636e;font-size:11px}\
    .c0{color:#0072b2}.c1{color:#d55e00}.c2{color:#00805c}.c3{color:#b0508a}\
    .c4{color:#a87400}.c5{color:#3d434a}.c6{color:#6a48b5}.c7{color:#8a5a3c}\
    .line line{stroke:currentColor;stroke-width:1.8}.line use{fill:currentColor;stroke:#ffffff;stroke-width:1}";

/// The shapes that pictures refer to, once in the page.
pub fn shapes() -> Markup {
    html! { svg.shapes width="0" height="0" aria-hidden="true" { (shape_definitions()) } }
}

fn shape_definitions() -> Markup {
    const SHAPES: [&str; COLOURS] = [
        "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z",
        "M-3.6 -3.6h7.2v7.2h-7.2z",
        "M0 -5l4.7 8h-9.4z",
        "M0 -5l5 5l-5 5l-5 -5z",
        "M0 5l4.7 -8h-9.4z",
        "M-4 -1.3h2.7v-2.7h2.6v2.7h2.7v2.6h-2.7v2.7h-2.6v-2.7h-2.7z",
        "M-5 -3.4v6.8l5 -3.4zM5 -3.4v6.8l-5 -3.4z",
        "M0 -5l1.4 3.2l3.5 .4l-2.6 2.4l.7 3.4l-3 -1.7l-3 1.7l.7 -3.4l-2.6 -2.4l3.5 -.4z",
    ];
    html! {
        defs { @for (index, shape) in SHAPES.iter().enumerate() { path id={ "m" (index) } d=(shape) {} } }
    }
}

/// The shape of a series.
fn shape(series: usize) -> usize {
    (series + series / COLOURS) % COLOURS
}

/// Texts at the ends of an axis stay in the picture.
fn text_anchor(percent: f64) -> &'static str {
    match percent {
        p if p < 8.0 => "start",
        p if p > 92.0 => "end",
        _ => "middle",
    }
}

/// A name that leaves place for the word beside it, and for the figure.
fn shortened(name: &str, group: &str) -> String {
    let most = MOST_NAME - group.chars().count();
    match name.chars().count() > most {
        true => name.chars().take(most - 1).collect::<String>().trim_end().to_owned() + "…",
        false => name.into(),
    }
}

fn percent(value: f64) -> String {
    format!("{}%", two_decimals(value))
}

/// A place with at most two decimals.
fn two_decimals(value: f64) -> String {
    without_zeros(&format!("{value:.2}"))
}

/// A figure of one of many marks: six digits are more than a picture shows.
fn six_digits(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return "0".into();
    }
    let places = (5 - value.abs().log10().floor() as i32).clamp(0, 9);
    without_zeros(&format!("{value:.*}", places as usize))
}

/// A number without zeros at the end of its decimals.
fn without_zeros(number: &str) -> String {
    match number.contains('.') {
        true => number.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => number.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linear_axes_begin_at_0_where_figures_are_near_it() {
        let scale = Scale::linear(&[100.0, 900.0], false).unwrap();
        assert_eq!((scale.low, scale.share(0.0), scale.share(scale.high)), (0.0, 0.0, 1.0));
        let zoomed = Scale::linear(&[95.0, 104.0], false).unwrap();
        assert!(zoomed.low > 80.0 && zoomed.starts_above_zero(), "{zoomed:?}");
        assert_eq!(Scale::linear(&[], false), None);
        // One figure, or none but 0, is no axis without a length.
        for values in [[7.0], [0.0]] {
            let scale = Scale::linear(&values, false).unwrap();
            assert!(scale.high > scale.low, "{scale:?}");
        }
    }

    #[test]
    fn logarithmic_axes_hold_what_is_above_0() {
        let scale = Scale::log(&[3.0, 70_000.0]).unwrap();
        assert_eq!((scale.low, scale.high), (2.0, 100_000.0));
        assert_eq!(scale.ticks(), [10.0, 100.0, 1000.0, 10_000.0, 100_000.0]);
        assert_eq!(Scale::log(&[0.0, 1.0]), None);
        assert!(Scale::log(&[5.0, 5.0]).is_some_and(|scale| scale.high > scale.low));
    }

    #[test]
    fn sizes_have_ticks_at_powers_of_two() {
        let scale = Scale::of_bytes(&[9e6, 48e6], true).unwrap();
        assert_eq!(
            scale.ticks().iter().map(|tick| bytes(*tick)).collect::<Vec<_>>(),
            ["8 MiB", "16 MiB", "32 MiB", "64 MiB"]
        );
        let scale = Scale::of_bytes(&[9e6, 48e6], false).unwrap();
        assert_eq!(
            scale.ticks().iter().map(|tick| bytes(*tick)).collect::<Vec<_>>(),
            ["0 B", "16 MiB", "32 MiB", "48 MiB"]
        );
        assert_eq!(Scale::of_bytes(&[0.0], true), None);
    }

    #[test]
    fn ticks_are_round_and_few() {
        for high in [0.3, 1.0, 7.0, 99.0, 1_234_567.0] {
            let ticks = Scale::linear(&[0.0, high], true).unwrap().ticks();
            assert!((3..=7).contains(&ticks.len()), "{high}: {ticks:?}");
        }
    }

    #[test]
    fn figures_of_marks_are_short() {
        assert_eq!(
            (six_digits(1_076_001.66), six_digits(0.123_456_789)),
            ("1076002".into(), "0.123457".into())
        );
        assert_eq!((two_decimals(12.0), two_decimals(12.345)), ("12".into(), "12.35".into()));
    }
}
