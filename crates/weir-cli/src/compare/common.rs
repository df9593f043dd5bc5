//! What comparisons of all kinds are told, and what all of them do with it.

use std::time::Duration;

use clap::{Args, ValueEnum};
use weir_lab::child::Interrupt;
use weir_lab::experiment::plan::{Depth, Row, Settings};
use weir_lab::experiment::results::Results;
use weir_lab::performance::INTERVALS;
use weir_lab::report::Reported;
use weir_lab::report::document;
use weir_lab::stats::random::fresh_seed;
use weir_load::quantity::{parse_percent, parse_time};

use super::context::Context;
use super::display::{Display, say_plan, warned};
use super::output::OutputArgs;
use super::part::Part;
use super::plan::PlanArgs;
use crate::cores::Cores;
use crate::exit::Failure;
use crate::serve::performance::parse_interval;

/// Seconds for all kinds of comparisons, and for a first look: below that there are not enough rounds.
pub(super) const ALL_STANDARD_S: u64 = 133;
pub(super) const ALL_QUICK_S: u64 = 75;

/// Where server and generator meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum On {
    /// On the loopback device.
    Loopback,
    /// On a pair of network devices between two network namespaces, created for the comparison and removed
    /// after it; needs root.
    Veth,
}

/// Options that every comparison has, with the same meaning.
#[derive(Debug, Clone, PartialEq, Args)]
pub struct CommonArgs {
    /// Rounds of each load. Without --time all of them are made, however long that takes. UDP's default loads are then
    /// without servers that answer, which --reply measures [default: as many as the time allows].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=50))]
    pub rounds: Option<u32>,

    /// A load may end early once every comparison is decided and every 95 % confidence interval is within ±
    /// this share of its figure.
    #[arg(long, default_value = "5%", value_parser = parse_percent)]
    pub confidence: f64,

    /// Seed of the random order of the runs, to repeat that order.
    #[arg(long)]
    pub seed: Option<u64>,

    #[arg(long, value_name = "TIME", default_value = INTERVAL_TEXT, value_parser = parse_log, help = format!(
        "Interval of the performance log: what each thread of a server, each core and the system did in every run \
         (context switches, CPU time, interrupts, batches, UDP statistics, memory), {:?} or more. A shorter run has one \
         interval. The log is in the document and, beside the results, in performance.ndjson and performance.csv; 0 for \
         no log",
        INTERVALS.0
    ))]
    pub performance_interval: Duration,

    /// Print every command before it is started.
    #[arg(short, long)]
    pub verbose: bool,

    /// Print the plan and run nothing (what would be read is still opened).
    #[arg(long)]
    pub dry_run: bool,

    #[command(flatten)]
    pub plan: PlanArgs,

    #[command(flatten)]
    pub output: OutputArgs,
}

/// The interval of the performance log, unless another is asked for.
const INTERVAL_TEXT: &str = "1s";

/// Time for an experiment, of which there must be some.
pub(super) fn parse_time_given(text: &str) -> Result<Duration, String> {
    match parse_time(text)? {
        Duration::ZERO => Err("a time of 0 measures nothing; give for instance 30s or 5m".into()),
        time => Ok(time),
    }
}

/// An interval of the performance log; 0 for no log.
fn parse_log(text: &str) -> Result<Duration, String> {
    match parse_time(text)? {
        Duration::ZERO => Ok(Duration::ZERO),
        _ => parse_interval(text),
    }
}

impl CommonArgs {
    /// How often the performance of what runs is logged, if it is.
    pub fn logged_every(&self) -> Option<Duration> {
        Some(self.performance_interval).filter(|every| !every.is_zero())
    }
}

/// How much is measured: a first look, everything, or what is usual.
pub fn depth(quick: bool, everything: bool) -> Depth {
    match (quick, everything) {
        (true, _) => Depth::Quick,
        (_, true) => Depth::Full,
        _ => Depth::Standard,
    }
}

/// What a comparison of all kinds asks of each.
#[derive(Debug, Clone)]
pub struct OfAll {
    pub quick: bool,
    /// `None` where all rounds that were asked for are made.
    pub time: Option<Duration>,
    pub server_cpu: Option<Cores>,
    pub generator_cpu: Option<Cores>,
    pub common: CommonArgs,
}

/// A comparison that is planned.
pub struct Planned<'a, K: Reported> {
    pub results: Results<K>,
    pub settings: Settings,
    pub common: &'a CommonArgs,
    pub context: &'a Context,
    /// Where it runs.
    pub places: String,
    /// How a row is called.
    pub title: fn(&Row) -> String,
    /// What is said of rows before anything runs.
    pub warnings: Vec<String>,
}

/// What a comparison is made with besides its results.
pub struct Making {
    pub interrupt: Interrupt,
    /// Who is told each command, if that is asked for.
    pub tell: Option<fn(&str)>,
    pub display: Display,
}

impl<K: Reported> Planned<'_, K> {
    /// Says what is planned, and makes it unless only that was asked for.
    pub fn make(
        self,
        make: impl FnOnce(&mut Results<K>, &Settings, &mut Making) -> Result<(), Failure>,
    ) -> Result<Part, Failure> {
        let Self { mut results, settings, common, context, places, title, warnings } = self;
        results.seed = common.seed.unwrap_or_else(fresh_seed);
        results.asked_half_width = common.confidence;
        say_plan(&results, &settings, common.dry_run || common.verbose, &places, title);
        say_on!("{}", warned(&warnings));
        if common.dry_run {
            return Ok(Part::planned(document::plan(&results, &settings)));
        }
        let tell: fn(&str) = |command| say!("\n{command}");
        let mut making = Making {
            interrupt: context.interrupt.clone(),
            tell: (common.verbose && !context.live).then_some(tell),
            display: Display::new(&results, &settings, context),
        };
        let made = make(&mut results, &settings, &mut making);
        making.display.clear();
        made.map(|()| Part::made(results))
    }
}
