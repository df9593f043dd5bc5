//! A design over a long time, beside a control: both are there from beginning to end and take turns, so that at each
//! moment one of them has the machine, and what the machine does in that time both see.
//!
//! A turn of the control stands before each turn of the design and behind the last one; a turn of the design is compared
//! with the mean of its two neighbours. Whoever has no turn stands still: its threads are held up where they tell of
//! their next I/O, so that what is outstanding stays outstanding, and nothing is torn down.

use super::trend::{Trend, trend};
use crate::stats::median;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The turns of a design, and of its control between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// How long the design runs in all.
    pub time: Duration,
    /// How long each of its turns is.
    pub turn: Duration,
    /// How long each of the control's is.
    pub control: Duration,
}

/// Turns of a run that is long enough; of a shorter one fewer, since none is shorter than [`SHORTEST`].
const TURNS: u32 = 300;
/// Most turns: a longer run has longer ones.
pub const MOST_TURNS: u32 = 1200;
const SHORTEST: Duration = Duration::from_millis(100);
const USUAL: Duration = Duration::from_secs(1);
/// The shortest run of which a trend can be told.
pub const LEAST_BESIDE: Duration = Duration::from_secs(3);
/// A turn of the design is so many of the control's.
const CONTROL: u32 = 4;
/// Of each turn so much is not measured: whoever gets it has been away. A tenth, but no more than this.
const SETTLES_AT_MOST: Duration = Duration::from_millis(20);

impl Plan {
    /// Of a design that is to run for so long.
    pub fn of(time: Duration) -> Self {
        let turn = (time / TURNS).clamp(SHORTEST, USUAL).max(time / MOST_TURNS);
        Self { time, turn, control: turn / CONTROL }
    }

    /// How many turns the design has.
    pub fn turns(&self) -> u32 {
        let turns = self.time.as_nanos().div_ceil(self.turn.as_nanos().max(1));
        u32::try_from(turns).unwrap_or(u32::MAX).min(MOST_TURNS)
    }

    /// How long everything takes.
    pub fn total(&self) -> Duration {
        (self.turn + self.control) * self.turns() + self.control
    }
}

/// How much of a turn is not measured.
pub fn settles(turn: Duration) -> Duration {
    (turn / 10).min(SETTLES_AT_MOST)
}

/// What was seen in a turn.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Turn {
    /// I/Os completed in what was measured of it.
    pub completed: u64,
    /// How long that was.
    pub elapsed_ns: u64,
    /// CPU time of the process in it.
    pub cpu_ns: Option<u64>,
    /// I/Os outstanding at its end.
    pub outstanding: u64,
    /// Memory of the process at its end, in bytes.
    pub resident_bytes: Option<u64>,
    /// Rings and page tables that the kernel holds for the process, in bytes.
    pub kernel_bytes: Option<u64>,
    /// Objects that the kernel of the whole machine cannot give back, in bytes.
    pub slab_bytes: Option<u64>,
}

impl Turn {
    fn per_s(&self) -> f64 {
        super::per_s(self.completed, self.elapsed_ns)
    }

    fn cpu_ns_per_io(&self) -> Option<f64> {
        Some(self.cpu_ns? as f64 / self.completed as f64).filter(|ns| ns.is_finite() && *ns > 0.0)
    }
}

/// Whoever takes turns.
pub trait Side {
    /// What ends a run before its time.
    type End;

    /// Runs for so long, and stands still again.
    ///
    /// # Errors
    /// Why the run is over.
    fn turn(&mut self, time: Duration) -> Result<Turn, Self::End>;
}

/// Lets a design and its control take turns; `told` is given each turn of the design. Returns the control's turns, one
/// more than the design's, the design's, and what ended it before its time.
pub fn take_turns<End>(
    plan: &Plan,
    design: &mut dyn Side<End = End>,
    control: &mut dyn Side<End = End>,
    mut told: impl FnMut(&Turn),
) -> (Vec<Turn>, Vec<Turn>, Option<End>) {
    // All memory is there beforehand: what grows then is the design's.
    let turns = plan.turns() as usize;
    let (mut controls, mut designs) = (Vec::with_capacity(turns + 1), Vec::with_capacity(turns));
    let mut go = || -> Result<(), End> {
        controls.push(control.turn(plan.control)?);
        for _ in 0..turns {
            let turn = design.turn(plan.turn)?;
            controls.push(control.turn(plan.control)?);
            told(&turn);
            designs.push(turn);
        }
        Ok(())
    };
    let end = go().err();
    (controls, designs, end)
}

/// A turn of a design, with what its control did around it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Reading {
    /// When it ended, in seconds of the design's own time.
    pub at_s: f64,
    /// The rate of the design.
    pub ios_per_s: f64,
    /// The rate of the control, the mean of the turns before and after.
    pub control_ios_per_s: f64,
    /// CPU time of the process for each I/O of the design.
    pub cpu_ns_per_io: Option<f64>,
    /// The same of the control.
    pub control_cpu_ns_per_io: Option<f64>,
    /// I/Os outstanding at its end.
    pub outstanding: u64,
    /// Memory of the process, in bytes.
    pub resident_bytes: Option<u64>,
    /// Rings and page tables that the kernel holds for the process, in bytes.
    pub kernel_bytes: Option<u64>,
    /// Objects that the kernel of the whole machine cannot give back (slab), in bytes.
    pub slab_bytes: Option<u64>,
}

/// The medians of the first and of the last tenth of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Ends {
    /// Of the first.
    pub first: f64,
    /// Of the last.
    pub last: f64,
}

/// A design over a long time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct OverTime {
    /// The design that it took turns with.
    pub control: String,
    /// How long each turn of the design was, in seconds.
    pub turn_s: f64,
    /// How long each of the control's was.
    pub control_turn_s: f64,
    /// What the trend says, in words: that of the rate, or, where other programs had much of the cores meanwhile, that of
    /// I/Os per second of CPU time.
    pub verdict: String,
    /// Which of the two: `rate` or `per_cpu`.
    pub judged_by: JudgedBy,
    /// The rate, as a ratio to the control's.
    pub rate: Option<Trend>,
    /// I/Os for each second of CPU time, as a ratio to the control's: what other programs take of the cores is in neither.
    pub per_cpu: Option<Trend>,
    /// The rate of the control alone: what the machine did.
    pub control_rate: Option<Trend>,
    /// I/Os per second.
    pub ios_per_s: Ends,
    /// The ratio of that to the control's.
    pub to_control: Ends,
    /// I/Os outstanding.
    pub outstanding: Ends,
    /// Memory of the process, in bytes.
    pub resident_bytes: Option<Ends>,
    /// Rings and page tables that the kernel holds for the process, in bytes.
    pub kernel_bytes: Option<Ends>,
    /// Objects that the kernel of the whole machine cannot give back (slab), in bytes.
    pub slab_bytes: Option<Ends>,
    /// Each turn.
    pub readings: Vec<Reading>,
}

/// Where other programs have more than this of the cores, a rate says more of them than of a design: who has just slept
/// is given a core sooner, so that the busier the machine is the more the short turns of a control are favoured.
const MOST_OF_OTHERS: f64 = 0.1;

/// By what it is judged whether a design declines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum JudgedBy {
    /// I/Os per second.
    Rate,
    /// I/Os per second of CPU time.
    PerCpu,
}

impl OverTime {
    /// The trend that it is judged by.
    pub fn judged(&self) -> Option<&Trend> {
        match self.judged_by {
            JudgedBy::Rate => self.rate.as_ref(),
            JudgedBy::PerCpu => self.per_cpu.as_ref(),
        }
    }

    /// Of the turns of a control, one more than those of the design, and those of the design, while other programs had
    /// that share of the cores (0 to 1), if it is known.
    pub fn of(
        control: &str,
        plan: &Plan,
        controls: &[Turn],
        designs: &[Turn],
        others: Option<f64>,
    ) -> Self {
        // Of a control that got no core in one of its turns the other one tells.
        let around = |of: &dyn Fn(&Turn) -> Option<f64>, turn: usize| -> Option<f64> {
            let both = [of(controls.get(turn)?), of(controls.get(turn + 1)?)];
            let known = both.iter().flatten();
            Some(known.clone().sum::<f64>() / known.count() as f64).filter(|mean| mean.is_finite())
        };
        let turn_s = plan.turn.as_secs_f64();
        let readings: Vec<Reading> = designs
            .iter()
            .enumerate()
            .map_while(|(index, turn)| {
                Some(Reading {
                    at_s: turn_s * (index + 1) as f64,
                    ios_per_s: turn.per_s(),
                    control_ios_per_s: around(&|turn| Some(turn.per_s()), index)?,
                    cpu_ns_per_io: turn.cpu_ns_per_io(),
                    control_cpu_ns_per_io: around(&Turn::cpu_ns_per_io, index),
                    outstanding: turn.outstanding,
                    resident_bytes: turn.resident_bytes,
                    kernel_bytes: turn.kernel_bytes,
                    slab_bytes: turn.slab_bytes,
                })
            })
            .collect();
        let logs = |of: &dyn Fn(&Reading) -> Option<f64>| -> Vec<f64> {
            let ratios = readings.iter().filter_map(of).map(f64::ln);
            ratios.filter(|log| log.is_finite()).collect()
        };
        let rate = trend(&logs(&|of| Some(of.ios_per_s / of.control_ios_per_s)));
        let per_cpu = trend(&logs(&|of| Some(of.control_cpu_ns_per_io? / of.cpu_ns_per_io?)));
        let is_disturbed = others.is_some_and(|share| share > MOST_OF_OTHERS);
        let (judged_by, judged) = match (is_disturbed, &per_cpu) {
            (true, Some(_)) => (JudgedBy::PerCpu, &per_cpu),
            _ => (JudgedBy::Rate, &rate),
        };
        let ends = |of: &dyn Fn(&Reading) -> Option<f64>| ends(&readings, of);
        let bytes = |of: fn(&Reading) -> Option<u64>| ends(&|at| of(at).map(|bytes| bytes as f64));
        Self {
            control: control.into(),
            turn_s,
            control_turn_s: plan.control.as_secs_f64(),
            verdict: said(judged.as_ref()),
            judged_by,
            rate,
            per_cpu,
            control_rate: trend(&logs(&|of| Some(of.control_ios_per_s))),
            ios_per_s: ends(&|of| Some(of.ios_per_s)).unwrap_or_default(),
            to_control: ends(&|of| Some(of.ios_per_s / of.control_ios_per_s)).unwrap_or_default(),
            outstanding: ends(&|of| Some(of.outstanding as f64)).unwrap_or_default(),
            resident_bytes: bytes(|of| of.resident_bytes),
            kernel_bytes: bytes(|of| of.kernel_bytes),
            slab_bytes: bytes(|of| of.slab_bytes),
            readings,
        }
    }
}

/// What a trend says, in words.
pub fn said(trend: Option<&Trend>) -> String {
    trend.map_or("undecided".into(), |trend| trend.verdict().to_string())
}

/// The medians of the first and the last tenth; `None` where a figure is not known.
fn ends(readings: &[Reading], of: &dyn Fn(&Reading) -> Option<f64>) -> Option<Ends> {
    let values: Vec<f64> = readings.iter().map(of).collect::<Option<_>>()?;
    let tenth = values.len().div_ceil(10);
    let first = median(&values[..tenth])?;
    Some(Ends { first, last: median(&values[values.len() - tenth..])? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::iops::trend::Verdict;

    /// A machine whose speed changes, and who runs on it.
    struct Simulated<'a> {
        clock_s: &'a std::cell::Cell<f64>,
        /// I/Os per second of so fast a machine, after so many of its own.
        rate: fn(f64, u64) -> f64,
        done: u64,
        ends_after: Option<u32>,
    }

    impl Side for Simulated<'_> {
        type End = &'static str;

        fn turn(&mut self, time: Duration) -> Result<Turn, Self::End> {
            if self.ends_after == Some(0) {
                return Err("it broke");
            }
            self.ends_after = self.ends_after.map(|turns| turns - 1);
            let time_s = time.as_secs_f64();
            self.clock_s.set(self.clock_s.get() + time_s);
            let completed = ((self.rate)(self.clock_s.get(), self.done) * time_s) as u64;
            self.done += completed;
            let elapsed_ns = time.as_nanos() as u64;
            Ok(Turn {
                completed,
                elapsed_ns,
                cpu_ns: Some(elapsed_ns),
                outstanding: self.done / 1000,
                resident_bytes: Some(self.done),
                ..Turn::default()
            })
        }
    }

    /// The machine slows down by a third within 375 s.
    fn speed(at_s: f64) -> f64 {
        1.0 - at_s / 1125.0
    }

    fn over_time(rate: fn(f64, u64) -> f64) -> OverTime {
        let clock_s = std::cell::Cell::new(0.0);
        let side = |rate| Simulated { clock_s: &clock_s, rate, done: 0, ends_after: None };
        let mut control = side(|at_s: f64, _| 1e6 * speed(at_s));
        let plan = Plan::of(Duration::from_secs(300));
        let mut told = 0;
        let (controls, designs, end) =
            take_turns(&plan, &mut side(rate), &mut control, |_| told += 1);
        assert_eq!((controls.len(), designs.len(), told, end), (301, 300, 300, None));
        OverTime::of("sync", &plan, &controls, &designs, Some(0.02))
    }

    #[test]
    fn what_the_machine_does_is_not_taken_for_the_design() {
        let found = over_time(|at_s, _| 3e6 * speed(at_s));
        assert!(matches!(found.rate.unwrap().verdict(), Verdict::Steady(_)), "{found:?}");
        assert!(found.verdict.starts_with("does not decline (within ±"), "{}", found.verdict);
        let machine = found.control_rate.unwrap();
        assert!(matches!(machine.verdict(), Verdict::Declines(_)), "{machine:?}");
        assert!(found.ios_per_s.last < 0.8 * found.ios_per_s.first, "{:?}", found.ios_per_s);
        let Ends { first, last } = found.to_control;
        assert!((first - 3.0).abs() < 0.01 && (last - 3.0).abs() < 0.01, "{first} {last}");
    }

    #[test]
    fn a_decline_is_told_though_the_machine_slows_down_too() {
        let found = over_time(|at_s, done| 3e6 * speed(at_s) * (1.0 - done as f64 / 6e9));
        let Verdict::Declines(percent) = found.rate.unwrap().verdict() else { panic!("{found:?}") };
        assert!((8.0..14.0).contains(&percent), "{percent}");
        assert!(matches!(found.per_cpu.unwrap().verdict(), Verdict::Declines(_)));
        assert!(found.outstanding.last > found.outstanding.first);
        let resident = found.resident_bytes.unwrap();
        assert!(resident.last > resident.first && found.kernel_bytes.is_none());
        assert!((found.readings[299].at_s - 300.0).abs() < 1e-6);
    }

    #[test]
    fn where_others_have_the_cores_the_time_on_them_decides() {
        let plan = Plan::of(Duration::from_secs(30));
        // Others take more and more of the design's turns, and nothing of an I/O's cost changes.
        let turn = |completed: u64| Turn {
            completed,
            elapsed_ns: 100_000_000,
            cpu_ns: Some(completed * 200),
            ..Turn::default()
        };
        let designs: Vec<Turn> = (0..300).map(|at| turn(400_000 - 500 * at)).collect();
        let found = |others| OverTime::of("sync", &plan, &[turn(400_000); 301], &designs, others);
        let quiet = found(Some(0.05));
        assert!(quiet.verdict.starts_with("declines by"), "{}", quiet.verdict);
        assert_eq!((quiet.judged_by, quiet.judged()), (JudgedBy::Rate, quiet.rate.as_ref()));
        let busy = found(Some(0.4));
        assert_eq!(busy.verdict, "does not decline (within ±0.0 %)");
        assert_eq!((busy.judged_by, busy.judged()), (JudgedBy::PerCpu, busy.per_cpu.as_ref()));
    }

    #[test]
    fn one_that_ends_leaves_what_there_is() {
        let clock_s = std::cell::Cell::new(0.0);
        let side =
            |ends_after| Simulated { clock_s: &clock_s, rate: |_, _| 1e6, done: 0, ends_after };
        let plan = Plan::of(Duration::from_secs(10));
        let (controls, designs, end) =
            take_turns(&plan, &mut side(Some(7)), &mut side(None), |_| ());
        assert_eq!((controls.len(), designs.len(), end), (8, 7, Some("it broke")));
        let found = OverTime::of("sync", &plan, &controls, &designs, None);
        assert_eq!((found.readings.len(), found.verdict.as_str()), (7, "undecided"));
    }

    #[test]
    fn turns_are_neither_too_short_nor_too_many() {
        let of = |seconds: f64| Plan::of(Duration::from_secs_f64(seconds));
        for (seconds, turns) in [(3.0, 30), (30.0, 300), (600.0, 600), (7200.0, 1200)] {
            assert_eq!(of(seconds).turns(), turns, "{seconds} s");
        }
        assert_eq!(of(600.0).turn, USUAL);
        let total = of(600.0).total();
        assert_eq!(total, Duration::from_millis(750_250));
        assert_eq!((settles(USUAL), settles(SHORTEST)), (SETTLES_AT_MOST, SHORTEST / 10));
    }
}
