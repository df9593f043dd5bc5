//! Where one design overtakes another as the work per datagram, or the number of threads, grows.

use crate::experiment::plan::{Role, Row};
use crate::stats::CONFIDENCE;
use crate::stats::compare::{Difference, judge, pair};
use crate::stats::median;
use crate::udp::plan::{Load, Rate, SWEPT_OPTIONS, SweptOption};
use crate::udp::results::Results;
use crate::udp::rows::{DEQUEUE_MAX, THRESHOLD, value_of};
use crate::udp::sample::RECEIVED;

/// What grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Axis {
    /// Steps of work per datagram, on state of each thread's own or on state that all share.
    Work {
        /// Whether they share it.
        shared: bool,
    },
    /// Threads, under the load of that index.
    Threads {
        /// Index of the load.
        load: usize,
    },
    /// An option of designs, under the load of that index.
    Option {
        /// Which.
        of: &'static SweptOption,
        /// Index of the load.
        load: usize,
    },
}

/// A place on an axis: which rows stand there, under which load.
#[derive(Debug, Clone, PartialEq)]
pub struct Stop {
    /// Steps of work, or threads.
    pub at: f64,
    /// Index of the load.
    pub load: usize,
    /// For each design of the axis its row there; `None` where it was not measured.
    pub rows: Vec<Option<usize>>,
}

/// Designs along an axis.
#[derive(Debug, Clone, PartialEq)]
pub struct Sweep {
    /// What grows.
    pub axis: Axis,
    /// What the designs are called, in the order of each stop's rows.
    pub names: Vec<String>,
    /// The stops, lowest first; at least two.
    pub stops: Vec<Stop>,
}

/// One design overtakes another.
#[derive(Debug, Clone, PartialEq)]
pub struct Crossing {
    /// Which design of the sweep is better before.
    pub before: usize,
    /// Which is better after.
    pub after: usize,
    /// Between which two stops: the last where the first is really better, and the first where the
    /// second is. Where the lead changes within the noise, the stops at which it does.
    pub between: (f64, f64),
    /// Where it is, if the ratio changes evenly between them.
    pub at: f64,
    /// Whether the lead is real on both sides; if not, it is within the noise.
    pub real: bool,
}

/// Every sweep over work that the experiment has: loads at saturation that differ in work only.
pub fn over_work(results: &Results) -> Vec<Sweep> {
    let at_saturation = |load: &&Load| load.rate == Rate::Saturation;
    let Some(base) = results.loads.iter().find(at_saturation) else { return vec![] };
    let like = |load: usize| {
        let of = results.loads[load];
        at_saturation(&&of) && base.is_like(&Load { work: base.work, ..of })
    };
    [false, true]
        .into_iter()
        .filter_map(|shared| {
            let mut loads: Vec<usize> = (0..results.loads.len())
                .filter(|load| like(*load) && results.loads[*load].work.shared == shared)
                .collect();
            loads.sort_by_key(|load| results.loads[*load].work.steps);
            let rows = rows_of_all(results, &loads);
            let stops = loads.iter().map(|load| Stop {
                at: f64::from(results.loads[*load].work.steps),
                load: *load,
                rows: rows.iter().map(|row| ranked(results, *load, *row)).collect(),
            });
            let names = rows.iter().map(|row| results.rows[*row].to_string()).collect();
            sweep(Axis::Work { shared }, names, stops.collect())
        })
        .collect()
}

/// Every sweep over threads: one for each load at saturation at which a design has several numbers of
/// them.
pub fn over_threads(results: &Results) -> Vec<Sweep> {
    let loads =
        (0..results.loads.len()).filter(|load| results.loads[*load].rate == Rate::Saturation);
    loads
        .filter_map(|load| {
            let of_options = |row: &usize| results.rows[*row].swept_option.is_some();
            let mut rows: Vec<usize> = rows_of_all(results, &[load]);
            rows.retain(|row| !of_options(row));
            let mut families: Vec<Vec<usize>> = vec![];
            for row in rows.into_iter().filter(|row| results.rows[*row].threads().is_some()) {
                let of = |family: &&mut Vec<usize>| {
                    results.rows[row].is_like_on_other_threads(&results.rows[family[0]])
                };
                match families.iter_mut().find(of) {
                    Some(family) => family.push(row),
                    None => families.push(vec![row]),
                }
            }
            families.retain(|family| family.len() > 1);
            let threads = |row: usize| results.rows[row].threads().unwrap_or(0);
            let mut numbers: Vec<u32> =
                families.iter().flatten().map(|row| threads(*row)).collect();
            numbers.sort_unstable();
            numbers.dedup();
            let stops = numbers.iter().map(|number| Stop {
                at: f64::from(*number),
                load,
                rows: families
                    .iter()
                    .map(|family| {
                        let row = family.iter().copied().find(|row| threads(*row) == *number)?;
                        ranked(results, load, row)
                    })
                    .collect(),
            });
            let names =
                families.iter().map(|family| family_name(&results.rows[family[0]])).collect();
            sweep(Axis::Threads { load }, names, stops.collect())
        })
        .collect()
}

/// Every sweep over an option: one for each load at saturation at which rows are there for it.
pub fn over_options(results: &Results) -> Vec<Sweep> {
    let loads = (0..results.loads.len()).filter(|load| {
        results.loads[*load].rate == Rate::Saturation && results.loads[*load].takes.options
    });
    let of_each = |load: usize| SWEPT_OPTIONS.iter().map(move |of| (load, of));
    loads.flat_map(of_each).filter_map(|(load, of)| over_option(results, load, of)).collect()
}

fn over_option(results: &Results, load: usize, of: &'static SweptOption) -> Option<Sweep> {
    let value = |row: usize| value_of(&results.rows[row], of).map(|(_, value)| value);
    let is_of_it = |row: &usize| {
        let swept = results.rows[*row].swept_option;
        let for_others = results.rows[*row].only_swept && swept != Some(of.name);
        !for_others && value(*row).is_some()
    };
    let mut families: Vec<Vec<usize>> = vec![];
    for row in rows_of_all(results, &[load]).into_iter().filter(is_of_it) {
        let like = |family: &&mut Vec<usize>| {
            results.rows[row].is_like_but_for(&results.rows[family[0]], &varied(of))
        };
        match families.iter_mut().find(like) {
            Some(family) => family.push(row),
            None => families.push(vec![row]),
        }
    }
    families.retain(|family| family.len() > 1);
    let mut values: Vec<u32> = families.iter().flatten().filter_map(|row| value(*row)).collect();
    values.sort_unstable();
    values.dedup();
    let stops = values.iter().map(|at| Stop {
        at: f64::from(*at),
        load,
        rows: families
            .iter()
            .map(|family| {
                let row = family.iter().copied().find(|row| value(*row) == Some(*at))?;
                ranked(results, load, row)
            })
            .collect(),
    });
    let bare = |family: &Vec<usize>| {
        let mut row = results.rows[family[0]].clone();
        row.options.retain(|(name, _)| !varied(of).contains(&name.as_str()));
        row.to_string()
    };
    let names = families.iter().map(bare).collect();
    sweep(Axis::Option { of, load }, names, stops.collect())
}

/// The options that differ along a sweep.
fn varied(of: &SweptOption) -> Vec<&'static str> {
    let with = of.options.contains(&DEQUEUE_MAX).then_some(THRESHOLD);
    of.options.iter().copied().chain(with).collect()
}

fn sweep(axis: Axis, names: Vec<String>, stops: Vec<Stop>) -> Option<Sweep> {
    let measured = stops.iter().filter(|stop| stop.rows.iter().any(Option::is_some)).count();
    (measured > 1).then_some(Sweep { axis, names, stops })
}

/// A row's design and provider, whatever its threads.
fn family_name(row: &Row) -> String {
    let mut bare = row.clone();
    bare.options.retain(|(name, _)| name != "threads");
    bare.to_string()
}

/// The rows without receive offload that take part in all of the loads, each once.
fn rows_of_all(results: &Results, loads: &[usize]) -> Vec<usize> {
    let wanted = |row: &usize| {
        let of = &results.rows[*row];
        !of.receive_offload && !matches!(of.role, Role::Again(_))
    };
    let in_all = |row: &usize| loads.iter().all(|load| results.takes_part(*load, *row));
    (0..results.rows.len()).filter(|row| wanted(row) && in_all(row)).collect()
}

fn ranked(results: &Results, load: usize, row: usize) -> Option<usize> {
    results.unranked(load, row).is_none().then_some(row)
}

impl Sweep {
    /// The median of a design at a stop.
    pub fn median(&self, results: &Results, stop: usize, design: usize) -> Option<f64> {
        let stop = &self.stops[stop];
        let row = stop.rows[design]?;
        median(&results.cells[stop.load][row].values(&RECEIVED))
    }

    /// The design with the most at a stop.
    pub fn best(&self, results: &Results, stop: usize) -> Option<usize> {
        let of = |design: &usize| self.median(results, stop, *design);
        let mut designs: Vec<usize> = (0..self.names.len()).filter(|d| of(d).is_some()).collect();
        designs.sort_by(|a, b| of(b).unwrap_or(0.0).total_cmp(&of(a).unwrap_or(0.0)));
        designs.first().copied()
    }

    /// One design's figure at a stop to another's, from the runs of the same rounds.
    pub fn ratio(
        &self,
        results: &Results,
        floors: &[Option<f64>],
        stop: usize,
        of: (usize, usize),
    ) -> Option<Difference> {
        let Stop { load, rows, .. } = &self.stops[stop];
        let (first, second) = (rows[of.0]?, rows[of.1]?);
        if first == second {
            return None;
        }
        let readings = |row: usize| results.cells[*load][row].readings(&RECEIVED);
        let pairs = pair(&readings(first), &readings(second));
        Some(judge(&pairs, floors[stop], CONFIDENCE, results.seed))
    }

    /// The noise floor of each stop.
    pub fn floors(&self, results: &Results) -> Vec<Option<f64>> {
        let floor = |stop: &Stop| results.noise_floor(stop.load, false, &RECEIVED);
        self.stops.iter().map(floor).collect()
    }

    /// Every place where a design overtakes another, real ones first, then by place.
    pub fn crossings(&self, results: &Results) -> Vec<Crossing> {
        let floors = self.floors(results);
        let mut all = vec![];
        for first in 0..self.names.len() {
            for second in first + 1..self.names.len() {
                if self.may_cross(results, first, second) {
                    all.extend(self.crossings_of(results, &floors, first, second));
                }
            }
        }
        all.sort_by(|a, b| b.real.cmp(&a.real).then(a.at.total_cmp(&b.at)));
        all
    }

    /// Whether the order of their medians changes: the intervals of all pairs would take long.
    fn may_cross(&self, results: &Results, first: usize, second: usize) -> bool {
        let of = |stop| {
            let (a, b) = (self.median(results, stop, first)?, self.median(results, stop, second)?);
            Some(a > b)
        };
        let orders: Vec<bool> = (0..self.stops.len()).filter_map(of).collect();
        orders.contains(&true) && orders.contains(&false)
    }

    fn crossings_of(
        &self,
        results: &Results,
        floors: &[Option<f64>],
        first: usize,
        second: usize,
    ) -> Vec<Crossing> {
        // The logarithm of the ratio at each stop, and whether it is real.
        let known: Vec<(f64, f64, bool)> = (0..self.stops.len())
            .filter_map(|stop| {
                let difference = self.ratio(results, floors, stop, (first, second))?;
                let real = matches!(difference, Difference::Real(_));
                Some((self.stops[stop].at, difference.ratio()?.median.ln(), real))
            })
            .collect();
        changes((first, second), &known)
    }
}

/// Where the lead of two changes, `known` being what is known at each stop: its place, the logarithm of the
/// first one's figure to the second one's, and whether that is real. Only what is real counts; where
/// nothing is, what lies within the noise is given, and called so.
pub fn changes((first, second): (usize, usize), known: &[(f64, f64, bool)]) -> Vec<Crossing> {
    let of = |all: &[(f64, f64, bool)], real: bool| -> Vec<Crossing> {
        all.windows(2)
            .filter(|two| (two[0].1 > 0.0) != (two[1].1 > 0.0))
            .map(|two| {
                let [(x, a, _), (y, b, _)] = [two[0], two[1]];
                let (before, after) = if a > 0.0 { (first, second) } else { (second, first) };
                let at = x + (y - x) * a / (a - b);
                Crossing { before, after, between: (x, y), at, real }
            })
            .collect()
    };
    let sure: Vec<(f64, f64, bool)> = known.iter().copied().filter(|(.., real)| *real).collect();
    let real = of(&sure, true);
    if real.is_empty() { of(known, false) } else { real }
}

#[cfg(test)]
mod tests;
