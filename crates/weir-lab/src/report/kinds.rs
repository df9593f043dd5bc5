//! The kinds of comparisons, as whatever reads documents sees them.

use std::sync::LazyLock;

use serde_json::Value;

use crate::report::Reported;
use crate::report::number::{bytes, microseconds, percent_of, si, three_figures};
use crate::report::pictures::{Aside, Overtaking, Pictures};
use crate::studies::studies;

macro_rules! kind {
    ($study:ty) => {
        Kind::of::<$study>()
    };
}

/// All of them, in the order of a document of all kinds.
pub static KINDS: LazyLock<Vec<Kind>> = LazyLock::new(|| studies!(kind).into());

/// A metric, as it is shown.
#[derive(Clone)]
pub struct Metric {
    /// Its name in the document.
    pub name: String,
    /// Its heading in tables, in one line.
    pub heading: String,
    /// What it means, in a sentence; empty if this weir does not know it.
    pub about: String,
    /// How a figure of it is written.
    pub text: fn(f64) -> String,
}

/// A kind of comparison, as documents are read: what its study says of all of them.
pub struct Kind {
    /// Its name in documents and anchors: udp.
    pub name: &'static str,
    /// Its title: UDP.
    pub title: &'static str,
    /// What is counted: datagram.
    pub one: &'static str,
    /// The metric of CPU time for each.
    pub cpu: &'static str,
    /// The metrics of latency: their name up to the dot.
    pub latency: &'static str,
    /// What the generators of a comparison over hosts are called, one of them.
    pub generator: &'static str,
    /// What limits a row, and what the words mean.
    pub limits: &'static str,
    /// All metrics.
    pub metrics: Vec<Metric>,
    /// What is drawn of it.
    pub pictures: Pictures,
    /// Where its document says that one design overtakes another.
    pub overtakings: fn(&Value) -> Vec<Overtaking>,
    /// A table of its document that only it has.
    pub further: fn(&Value) -> Option<Aside>,
    /// What others published, beside what its document has.
    pub published: fn(&Value) -> Option<Aside>,
}

impl Kind {
    fn of<K: Reported>() -> Self {
        let metrics = K::METRICS.iter().map(|metric| Metric {
            name: metric.name.into(),
            heading: metric
                .heading
                .trim()
                .replace("/\n", "/")
                .replace("\n/", "/")
                .replace('\n', " "),
            about: metric.about.trim().into(),
            text: metric.text,
        });
        Self {
            name: K::KIND,
            title: K::UNIT.title,
            one: K::UNIT.one,
            cpu: K::UNIT.cpu.name,
            latency: K::UNIT.latency[0].name.split('.').next().unwrap_or_default(),
            generator: K::GENERATOR,
            limits: K::LIMITS,
            metrics: metrics.collect(),
            pictures: K::PICTURES,
            overtakings: K::overtakings,
            further: K::further,
            published: K::published,
        }
    }

    /// A metric; one that is not known is written by its unit.
    pub fn metric(&self, name: &str, unit: Option<&str>) -> Metric {
        let known = self.metrics.iter().find(|metric| metric.name == name);
        known.cloned().unwrap_or_else(|| Metric {
            name: name.into(),
            heading: name.into(),
            about: String::new(),
            text: match unit {
                Some("ns") => microseconds,
                Some("bytes") => bytes,
                Some("%") => percent_of,
                Some(unit) if unit.ends_with("/s") => si,
                _ => three_figures,
            },
        })
    }
}
