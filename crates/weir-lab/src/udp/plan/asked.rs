//! From what was asked for to the list of loads.
//!
//! The first value of each list is the base; each other value is compared by itself, with the base
//! of the other lists: so a difference has one cause, and five lists of two values are six loads
//! and not thirty-two.

use crate::experiment::plan::Depth;

use super::{Goal, Held, Load, Rate, Replies, Shown, Takes, Work};

/// What is varied in small steps, beside the loads that are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sweep {
    /// The offered load: gives each row's no-drop rate, partial-drop rate, and latencies below.
    Load,
    /// Work per datagram: gives the points at which designs overtake one another.
    Work,
    /// Threads of each design that takes a number of them.
    Threads,
    /// An option of each design that has it.
    Option(&'static SweptOption),
}

/// An option of designs that is swept over.
#[derive(Debug, PartialEq, Eq)]
pub struct SweptOption {
    /// What the sweep is called.
    pub name: &'static str,
    /// The options that are varied: the first of these that a design has.
    pub options: &'static [&'static str],
    /// What is counted by it, behind a number.
    pub unit: &'static str,
    /// Its values, beside the one that a row has by itself.
    pub values: &'static [u32],
}

/// The options that can be swept over.
pub static SWEPT_OPTIONS: [SweptOption; 4] = [
    SweptOption {
        name: "outstanding",
        options: &["outstanding"],
        unit: "outstanding",
        values: &[64, 1000, 10_000, 150_000],
    },
    SweptOption {
        name: "dequeue",
        options: &["dequeue-max", "batch"],
        unit: "a dequeue",
        values: &[1, 16, 128, 1000],
    },
    SweptOption {
        name: "threshold",
        options: &["threshold"],
        unit: "threshold",
        values: &[16, 128, 666, 1000],
    },
    SweptOption {
        name: "defer",
        options: &["defer", "posts-per-lock"],
        unit: "posts a commit",
        values: &[1, 16, 128, 1000],
    },
];

/// Shares of a row's maximum that a sweep over the load begins with.
const SHARES: [f64; 6] = [0.25, 0.5, 0.625, 0.75, 0.875, 1.0];
/// How often a sweep over the load then halves what lies between the last rate that was good and the
/// first that was not, for each goal. Two halvings of an eighth leave a thirty-second of the maximum.
const HALVINGS: u32 = 2;
/// Shares of the partial-drop rate at which latency is taken, as RFC 8219 and the reports of FD.io do.
const LATENCY_SHARES: [f64; 3] = [0.1, 0.5, 0.9];
/// Steps of the generator that stand for work, in a sweep over it.
const STEPS: [u32; 4] = [0, 100, 500, 2000];
/// Numbers of threads of a sweep over them.
pub const THREADS: [u32; 3] = [1, 2, 8];

/// What was asked for. The first entry of a list that is not empty is in `base` too.
#[derive(Debug, Clone, PartialEq)]
pub struct Asked {
    /// How much to measure.
    pub depth: Depth,
    /// The first of every list, at saturation.
    pub base: Load,
    /// The rates; empty for those of the depth.
    pub rates: Vec<Rate>,
    /// Payloads in bytes.
    pub sizes_bytes: Vec<u32>,
    /// Works.
    pub works: Vec<Work>,
    /// Numbers of ports.
    pub ports: Vec<u16>,
    /// Numbers of flows.
    pub flows: Vec<u16>,
    /// Numbers of generators.
    pub generators: Vec<u16>,
    /// Servers that answer so are compared as well, at saturation of the base.
    pub answers: Option<Replies>,
    /// What is swept.
    pub sweeps: Vec<Sweep>,
    /// Bursts in datagrams, smallest first; with any there is nothing else.
    pub bursts: Vec<u64>,
    /// What the server does while each of them comes.
    pub holds: Vec<Held>,
    /// Whether rows with receive offload stand beside the others.
    pub with_offload: bool,
    /// Whether a sweep over work takes steps of its own, however many works there are: those of the
    /// whole study are conditions, and too few for a sweep.
    pub own_steps_of_work: bool,
}

impl Asked {
    /// Only what the depth has by itself.
    pub fn new(depth: Depth, base: Load) -> Self {
        Self {
            depth,
            base: base.with_enough_flows(),
            rates: vec![],
            sizes_bytes: vec![],
            works: vec![],
            ports: vec![],
            flows: vec![],
            generators: vec![],
            answers: None,
            sweeps: vec![],
            bursts: vec![],
            holds: vec![],
            with_offload: false,
            own_steps_of_work: false,
        }
    }

    /// Everything that a study of all conditions has, where nothing else is said.
    pub fn or_the_whole_study(mut self) -> Self {
        fn unless_said<T: Clone>(list: &mut Vec<T>, study: &[T]) {
            if list.is_empty() {
                list.extend_from_slice(study);
            }
        }
        unless_said(&mut self.sizes_bytes, &[64, 1024, 1400]);
        self.own_steps_of_work = self.works.is_empty();
        let work = |steps, shared| Work { steps, shared };
        unless_said(&mut self.works, &[work(0, false), work(500, false), work(500, true)]);
        unless_said(&mut self.ports, &[1, 4]);
        unless_said(&mut self.flows, &[1, 4]);
        unless_said(&mut self.generators, &[1, 2]);
        let rates = [
            Rate::Saturation,
            Rate::PerSecond(50_000),
            Rate::PerSecond(200_000),
            Rate::OfMaximum(0.5),
            Rate::OfMaximum(0.75),
        ];
        unless_said(&mut self.rates, &rates);
        unless_said(&mut self.sweeps, &[Sweep::Load, Sweep::Work, Sweep::Threads]);
        self.base = Load {
            size_bytes: self.sizes_bytes[0],
            work: self.works[0],
            ports: self.ports[0],
            flows: self.flows[0],
            generators: self.generators[0],
            ..self.base
        }
        .with_enough_flows();
        self
    }

    /// Every load, in the order in which they run: what others need first.
    pub fn loads(&self) -> Vec<Load> {
        if !self.bursts.is_empty() {
            return self.loads_of_bursts();
        }
        let takes = Takes {
            offloaded: self.with_offload,
            threads: self.sweeps.contains(&Sweep::Threads),
            options: self.sweeps.iter().any(|sweep| matches!(sweep, Sweep::Option(_))),
        };
        // A share of a maximum needs the maximum, which is found at saturation.
        let rates = self.rates();
        let mut loads: Vec<Load> = vec![];
        rates.iter().for_each(|rate| add(&mut loads, self.at(*rate, takes)));
        if self.answers.is_some() {
            add(&mut loads, Load { replies: self.answers, ..self.base });
        }
        if self.sweeps.contains(&Sweep::Load) {
            self.add_steps_of_load(&mut loads);
        }
        for condition in self.conditions() {
            for rate in self.rates_of_a_condition() {
                let of_work = condition.work != self.base.work;
                let takes = Takes { threads: takes.threads && of_work, options: false, ..takes };
                // Receive offload joins datagrams of one flow: with other work the pairs would
                // tell of the work.
                let takes = Takes { offloaded: takes.offloaded && !of_work, ..takes };
                let paced = rate != Rate::Saturation;
                add(
                    &mut loads,
                    Load { rate, takes: if paced { Takes::default() } else { takes }, ..condition },
                );
            }
        }
        if self.sweeps.contains(&Sweep::Work) {
            let takes = Takes { offloaded: false, options: false, ..takes };
            for work in self.steps_of_work() {
                add(&mut loads, Load { work, takes, ..self.base }.as_step());
            }
        }
        loads
    }

    /// Every burst at every hold. The largest of each has a table, the others are steps towards it.
    fn loads_of_bursts(&self) -> Vec<Load> {
        let mut loads = vec![];
        let like = std::iter::once(self.base).chain(self.conditions()).collect::<Vec<_>>();
        for (base, held) in like.iter().flat_map(|base| self.holds.iter().map(move |of| (base, of)))
        {
            for (number, datagrams) in (1..).zip(&self.bursts) {
                let load = base.at(Rate::Burst { datagrams: *datagrams, held: *held });
                let is_largest = number == self.bursts.len();
                add(&mut loads, if is_largest { load } else { load.as_step() });
            }
        }
        loads
    }

    /// The base at a rate: pairs with receive offload and other numbers of threads take part where
    /// as much is offered as can be.
    fn at(&self, rate: Rate, takes: Takes) -> Load {
        let paced = rate != Rate::Saturation;
        let takes = match (paced, self.depth) {
            (true, Depth::Full) => Takes::default(),
            (true, _) => Takes { threads: false, options: false, ..takes },
            (false, _) => takes,
        };
        Load { takes, ..self.base.at(rate) }
    }

    /// The rates of the base.
    fn rates(&self) -> Vec<Rate> {
        let mut rates = match (self.rates.is_empty(), self.depth) {
            (false, _) => self.rates.clone(),
            (true, Depth::Quick) => vec![Rate::Saturation],
            (true, _) => vec![Rate::Saturation, Rate::PerSecond(50_000)],
        };
        let needs_maximum = |rate: &Rate| matches!(rate, Rate::OfMaximum(_));
        let needed = rates.iter().any(needs_maximum) || self.sweeps.contains(&Sweep::Load);
        if needed && !rates.contains(&Rate::Saturation) {
            rates.insert(0, Rate::Saturation);
        }
        rates.sort_by_key(|rate| *rate != Rate::Saturation);
        rates
    }

    /// The rates of what differs from the base: those that were asked for by name, else saturation.
    fn rates_of_a_condition(&self) -> Vec<Rate> {
        match self.rates.is_empty() || self.depth == Depth::Full {
            true => vec![Rate::Saturation],
            false => self.rates(),
        }
    }

    /// What differs from the base in one thing.
    fn conditions(&self) -> Vec<Load> {
        let base = self.base;
        let sizes =
            self.sizes_bytes.iter().map(|size_bytes| Load { size_bytes: *size_bytes, ..base });
        let works = self.works.iter().map(|work| Load { work: *work, ..base });
        let ports = self.ports.iter().map(|ports| Load { ports: *ports, ..base });
        let flows = self.flows.iter().map(|flows| Load { flows: *flows, ..base });
        let generators =
            self.generators.iter().map(|generators| Load { generators: *generators, ..base });
        let all = sizes.chain(works).chain(ports).chain(flows).chain(generators);
        let all = all.map(Load::with_enough_flows);
        let mut conditions: Vec<Load> = vec![];
        for condition in all.filter(|condition| *condition != base) {
            if !conditions.contains(&condition) {
                conditions.push(condition);
            }
        }
        conditions
    }

    /// The steps of a sweep over work: those asked for, or the usual ones, on state of each thread's
    /// own and on state that all share.
    fn steps_of_work(&self) -> Vec<Work> {
        if self.works.len() > 1 && !self.own_steps_of_work {
            return self.works.clone();
        }
        let both = [false, true];
        both.iter().flat_map(|shared| STEPS.map(|steps| Work { steps, shared: *shared })).collect()
    }

    fn add_steps_of_load(&self, loads: &mut Vec<Load>) {
        let step = |rate| self.base.at(rate).as_step();
        for share in SHARES {
            add(loads, step(Rate::OfMaximum(share)));
        }
        for number in 1..=HALVINGS {
            for goal in [Goal::NoDrop, Goal::PartialDrop] {
                add(loads, step(Rate::Search { goal, step: number }));
            }
        }
        for share in LATENCY_SHARES {
            add(loads, step(Rate::OfPartialDrop(share)));
        }
    }
}

/// Adds a load unless there is one like it at the same rate; that one then takes its rows too.
fn add(loads: &mut Vec<Load>, load: Load) {
    match loads.iter_mut().find(|other| other.is_like(&load) && other.rate == load.rate) {
        Some(other) => {
            other.takes.offloaded |= load.takes.offloaded;
            other.takes.threads |= load.takes.threads;
            other.takes.options |= load.takes.options;
            if load.shown == Shown::Table {
                other.shown = Shown::Table;
            }
        }
        None => loads.push(load),
    }
}

#[cfg(test)]
mod tests;
