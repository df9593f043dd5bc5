//! Experiments whose truth is known, on noise recorded from real ones.
//!
//! A simulated experiment takes the course of every other: blocks in random order, a row under two names, runs that
//! are made again, an early end, and the real ranking. Only what a run delivers is made up: a rate that is the same for
//! all rows but one, times the noise of a recorded run.
//!
//! Recorded rounds are drawn a few consecutive ones at a time, so that what changes slowly stays, and with all that
//! their runs have in common: a disturbance that hits several rows, the core-to-core times. Which recorded row a
//! simulated one takes its noise from is drawn anew in each round: so no row is better in truth but the one that is
//! meant to be, and a stall hits any row alike.

use std::collections::BTreeMap;
use std::fmt;

use weir_lab::experiment::cell::{Better, Measured, Metric, When};
use weir_lab::experiment::course::{self, Bench, Course, Run, RunError};
use weir_lab::experiment::plan::{Depth, Row, Schedule, Settings};
use weir_lab::experiment::ranking::{Lead, Place};
use weir_lab::experiment::results::{Results, Study};
use weir_lab::experiment::verdict::{Limit, Verdict};
use weir_lab::machine::Machine;
use weir_lab::stats::compare::Difference;
use weir_lab::stats::random::Random;
use weir_lab::udp::results::Udp;
use weir_lab::wire::Latency;

/// Rounds of a recording that are drawn one after the other.
const CONSECUTIVE: usize = 3;
/// Milliseconds of a simulated run, with all that starting and ending it costs.
const RUN_MS: u64 = 300;

/// One recorded run.
#[derive(Debug, Clone, Copy)]
struct Noise {
    /// Its figure to the median of its row.
    ratio: f64,
    /// Core to core before it, in nanoseconds. After it, it was alike.
    core_to_core_ns: Option<f64>,
}

/// Noise that was recorded in one experiment, by round.
pub struct Recording {
    /// What it is of.
    pub name: String,
    rounds: Vec<Vec<Noise>>,
}

/// The recordings of a text: `#` begins a comment, `@ NAME` a recording; every other line is a run, with its round,
/// its figure to the median of its row, and the core-to-core time before it in nanoseconds (0: unknown).
pub fn recordings(text: &str) -> Vec<Recording> {
    let mut all: Vec<(String, BTreeMap<u32, Vec<Noise>>)> = vec![];
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        if let Some(name) = line.strip_prefix("@ ") {
            all.push((name.into(), BTreeMap::new()));
            continue;
        }
        let figures: Vec<f64> = line.split(' ').map(|f| f.parse().expect("a figure")).collect();
        let [round, ratio, core_to_core_ns] = figures[..] else { panic!("no run: {line:?}") };
        let core_to_core_ns = Some(core_to_core_ns).filter(|ns| *ns > 0.0);
        let (_, rounds) = all.last_mut().expect("the name of a recording comes first");
        rounds.entry(round as u32).or_default().push(Noise { ratio, core_to_core_ns });
    }
    all.into_iter()
        .map(|(name, rounds)| Recording { name, rounds: rounds.into_values().collect() })
        .collect()
}

/// A comparison whose truth is known.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Simulated;

/// The one load.
#[derive(Debug, Clone, PartialEq)]
pub struct Load;

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("simulated")
    }
}

/// What a simulated run delivered.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    when: When,
    verdict: Verdict,
    rate: f64,
    settings: BTreeMap<String, String>,
}

impl Measured for Sample {
    fn when(&self) -> &When {
        &self.when
    }

    fn when_mut(&mut self) -> &mut When {
        &mut self.when
    }

    fn verdict(&self) -> &Verdict {
        &self.verdict
    }

    fn invalid(&self) -> Option<String> {
        None
    }

    fn latencies(&self) -> (Option<Latency>, &[(u64, u64)]) {
        (None, &[])
    }

    fn settings(&self) -> &BTreeMap<String, String> {
        &self.settings
    }
}

const fn metric(name: &'static str, of: fn(&Sample) -> Option<f64>) -> Metric<Sample> {
    Metric {
        name,
        unit: "1/s",
        about: "",
        heading: "",
        better: Better::Higher,
        text: |value| value.to_string(),
        of,
    }
}

const RATE: Metric<Sample> = metric("rate", |sample| Some(sample.rate));

impl Study for Simulated {
    type Load = Load;
    type Sample = Sample;
    type Group = ();

    const GROUPS: &'static [()] = &[()];
    const METRICS: &'static [Metric<Sample>] = &[RATE];
    const ENTRIES: Metric<Sample> = metric("entries", |_| None);

    fn ranked_by(_: &Load) -> &'static Metric<Sample> {
        &RATE
    }

    fn group_of(_: &Results<Self>, _: usize) {}

    fn descriptors(_: &Load, _: &Row) -> Vec<(String, u64)> {
        vec![]
    }
}

impl Course for Simulated {
    type Checked = ();
    type Made = f64;

    const PLANNED_OVERHEAD_MS: u64 = 0;
    const PLANNED_CHECK_MS: u64 = 0;

    /// As often as a table of UDP.
    fn aims_at(depth: Depth, _: &Load) -> u32 {
        Udp::aims_at(depth, &weir_lab::udp::plan::Load::saturation(64))
    }

    fn usual_s(_: Depth, _: &[Load], _: &[Row]) -> Option<f64> {
        None
    }

    fn schedule(settings: &Settings, load: &Load, _: f64, _: usize, _: u64) -> Schedule {
        Schedule { rounds: Self::rounds_of(settings, load), run_ms: RUN_MS, warmup_ms: 0 }
    }

    fn checked(_: &mut Results<Self>, _: usize, (): ()) {}

    fn sample(
        _: &Results<Self>,
        _: usize,
        _: &Load,
        when: &When,
        rate: f64,
    ) -> Result<Sample, RunError> {
        let verdict = Verdict { limited_by: Limit::Server, lower_bound: false, reason: "".into() };
        Ok(Sample { when: *when, verdict, rate, settings: BTreeMap::new() })
    }
}

/// Gives recorded runs one after the other.
struct Player<'a> {
    recording: &'a Recording,
    random: Random,
    /// Runs of a round.
    rows: usize,
    /// How much better the row is that is.
    by: f64,
    /// The recorded round that was drawn last, and how many were since one was drawn at random.
    at: (usize, usize),
    /// What is left of this round.
    left: Vec<Noise>,
    just_made: Option<Noise>,
    made: usize,
}

impl Player<'_> {
    /// The recorded runs of the next round, in random order.
    fn draw_round(&mut self) {
        let rounds = &self.recording.rounds;
        self.at = match self.at {
            (round, since) if since % CONSECUTIVE != 0 => ((round + 1) % rounds.len(), since + 1),
            (_, since) => (self.random.below(rounds.len()), since + 1),
        };
        let mut runs = rounds[self.at.0].clone();
        self.random.shuffle(&mut runs);
        while runs.len() < self.rows {
            let mut more = rounds[self.random.below(rounds.len())].clone();
            self.random.shuffle(&mut more);
            runs.extend(more);
        }
        runs.truncate(self.rows);
        self.left = runs;
    }
}

impl Bench<Simulated> for Player<'_> {
    fn elapsed_s(&self) -> f64 {
        self.made as f64 * RUN_MS as f64 / 1000.0
    }

    /// That of the run that is next or was just made.
    fn core_to_core_ns(&mut self) -> Option<f64> {
        if let Some(made) = self.just_made.take() {
            return made.core_to_core_ns;
        }
        if self.left.is_empty() {
            self.draw_round();
        }
        self.left.last().and_then(|run| run.core_to_core_ns)
    }

    fn check(&mut self, _: &Row, _: &[Load]) -> Result<(), RunError> {
        Ok(())
    }

    fn run(&mut self, run: &Run<Load>) -> Result<f64, RunError> {
        self.made += 1;
        let noise = self.left.pop().expect("drawn before");
        self.just_made = Some(noise);
        let truth = if run.row.design == BETTER { 1.0 + self.by } else { 1.0 };
        Ok(1e6 * truth * noise.ratio)
    }
}

/// The row that is better than all others in truth, where one is.
const BETTER: &str = "better";

/// What became of an experiment.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Outcome {
    /// A row was called better than one that is as good as it, or better.
    pub is_false: bool,
    /// All rows were called tied.
    pub all_tie: bool,
    /// The better row was called better than every other.
    pub is_found: bool,
    /// Something was left open, or everything, as the machine was too noisy.
    pub is_open: bool,
    /// Rounds that were made.
    pub rounds: usize,
}

/// One experiment of so many rows, one of which is better than the others by this share.
pub fn experiment(
    recording: &Recording,
    settings: Settings,
    rows: usize,
    by: f64,
    seed: u64,
) -> Outcome {
    let mut random = Random::seeded(seed);
    let better = random.below(rows);
    let row = |index| {
        let name = if index == better { BETTER } else { "equal" };
        Row::parse(name).expect("a name is a row")
    };
    let rows: Vec<Row> = (0..rows).map(row).collect();
    let count = rows.len();
    let mut results = Results::<Simulated>::new(vec![], Machine::default(), rows, vec![Load]);
    results.add_again(random.below(count));
    results.seed = seed;
    let mut player = Player {
        recording,
        random: Random::seeded(random.next_u64()),
        rows: results.rows.len(),
        by,
        at: (0, 0),
        left: vec![],
        just_made: None,
        made: 0,
    };
    let time = settings.time(f64::INFINITY);
    let went = course::run(&mut player, &mut results, &settings, time, &mut random, &mut |_| {});
    course::conclude(&mut results, went);
    outcome(&results, better, by)
}

/// Holds the ranking against the truth.
fn outcome(results: &Results<Simulated>, better: usize, by: f64) -> Outcome {
    let ranking = results.ranking(0, ());
    let Some(winner) = ranking.winner().map(|place| place.row) else {
        return Outcome { is_open: true, rounds: results.rounds_made(0), ..Outcome::default() };
    };
    let others = || ranking.places.iter().filter(|place| place.row != winner);
    let is_truly_ahead = |row: usize| by > 0.0 && winner == better && row != better;
    let real = |place: &Place| matches!(place.winner_to_it, Some(Difference::Real(_)));
    Outcome {
        is_false: others().any(|place| real(place) && !is_truly_ahead(place.row)),
        all_tie: others().all(Place::ties_with_winner),
        is_found: by > 0.0 && winner == better && ranking.lead() == Some(Lead::Alone),
        is_open: ranking.is_open(),
        rounds: results.rounds_made(0),
    }
}

/// How many of all experiments ended so, in percent.
pub struct Rates {
    /// False winners.
    pub is_false: f64,
    /// Nothing but ties.
    pub all_tie: f64,
    /// The better row found.
    pub is_found: f64,
    /// Something open.
    pub is_open: f64,
    /// Rounds of an experiment.
    pub rounds: f64,
}

/// Makes so many experiments, on all cores.
pub fn rates(recording: &Recording, settings: Settings, rows: usize, by: f64, count: u64) -> Rates {
    let threads = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    let made = |first: u64| {
        let seeds = (first..count).step_by(threads as usize);
        seeds.map(|seed| experiment(recording, settings, rows, by, seed)).collect::<Vec<_>>()
    };
    let all: Vec<Outcome> = std::thread::scope(|scope| {
        let started: Vec<_> = (0..threads).map(|first| scope.spawn(move || made(first))).collect();
        started.into_iter().flat_map(|thread| thread.join().expect("it does not panic")).collect()
    });
    let percent = |of: fn(&Outcome) -> bool| {
        100.0 * all.iter().filter(|outcome| of(outcome)).count() as f64 / all.len() as f64
    };
    Rates {
        is_false: percent(|of| of.is_false),
        all_tie: percent(|of| of.all_tie),
        is_found: percent(|of| of.is_found),
        is_open: percent(|of| of.is_open),
        rounds: all.iter().map(|of| of.rounds as f64).sum::<f64>() / all.len() as f64,
    }
}
