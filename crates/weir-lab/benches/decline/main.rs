//! What can make the rate of asynchronous I/O decline with time: programs on a device that does nothing, in memory, each
//! with one thing that grows, beside the same program without.
//!
//! ```text
//! cargo bench -p weir-lab --bench decline                  # 30 s of each; some 7 minutes
//! cargo bench -p weir-lab --bench decline -- --quick       # 4 s of each; a minute
//! cargo bench -p weir-lab --bench decline -- timers        # those whose names contain this
//! ```
//!
//! Each takes turns with the control, and is judged as `weir compare iops --over-time` judges a design. `cargo test` runs
//! each for a moment, and says nothing of speed. What comes of it stands in the book (`book/src/devices.md`).

mod programs;

use programs::{Program, all};
use std::time::{Duration, Instant};
use weir::counters::os::{Sampler, ThreadUsage};
use weir_lab::{
    iops::{OverTime, Plan, Side, Turn, settles, take_turns},
    report::number::{bytes, si},
};

/// The clock is read once in so many I/Os.
const AT_ONCE: u32 = 64;

/// A program that takes turns.
struct Taking<'a> {
    program: &'a mut dyn Program,
    began: Instant,
    sampler: Sampler,
}

impl<'a> Taking<'a> {
    fn new(program: &'a mut dyn Program) -> Self {
        Self { program, began: Instant::now(), sampler: Sampler::new() }
    }

    /// Lets it go on until then, for [`AT_ONCE`] I/Os at least, and says how many that were.
    fn until(&mut self, end: Instant) -> u64 {
        let mut done = 0;
        let mut now = Instant::now();
        loop {
            self.program.tick((now - self.began).as_micros() as u64);
            (0..AT_ONCE).for_each(|_| self.program.io());
            done += u64::from(AT_ONCE);
            now = Instant::now();
            if now >= end {
                return done;
            }
        }
    }
}

impl Side for Taking<'_> {
    type End = std::convert::Infallible;

    fn turn(&mut self, time: Duration) -> Result<Turn, Self::End> {
        let end = Instant::now() + time;
        self.until(end - time + settles(time));
        let (began, usage) = (Instant::now(), ThreadUsage::current());
        let completed = self.until(end);
        let (elapsed, usage) = (began.elapsed(), ThreadUsage::current().since(&usage));
        Ok(Turn {
            completed,
            elapsed_ns: elapsed.as_nanos() as u64,
            cpu_ns: usage.cpu_ns,
            outstanding: self.program.held() as u64,
            resident_bytes: self.sampler.process().resident_bytes,
            ..Turn::default()
        })
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let is_given = |flag: &str| arguments.iter().any(|argument| argument == flag);
    let (says, seconds) = match (is_given("--bench"), is_given("--quick")) {
        (true, false) => (true, 30.0),
        (true, true) => (true, 4.0),
        (false, _) => (false, 0.2),
    };
    let names: Vec<&String> =
        arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    let plan = Plan::of(Duration::from_secs_f64(seconds));
    let mut load = weir::machine::LoadMeter::start();
    if says {
        println!("{seconds} s of each, in turns of {:?} beside the control\n", plan.turn);
        println!(
            "{:<44} {:>9} {:>9}  {:>22}  {:>11} {:>11}  it",
            "program", "first/s", "last/s", "change in %", "held", "resident"
        );
    }
    for (name, mut program) in all() {
        if !names.is_empty() && !names.iter().any(|part| name.contains(part.as_str())) {
            continue;
        }
        load.read(0); // what others do is looked at from now on
        let mut control = programs::control();
        let (mut design, mut beside) = (Taking::new(program.as_mut()), Taking::new(&mut control));
        let (controls, designs, _) = take_turns(&plan, &mut design, &mut beside, |_| ());
        assert!(designs.iter().all(|turn| turn.completed > 0), "{name} made no I/O");
        let found = OverTime::of("the control", &plan, &controls, &designs, load.read(0).others);
        if !says {
            continue;
        }
        let change = found.judged().map_or("too short".into(), |trend| {
            format!("{:+.1} ({:+.1} to {:+.1})", trend.percent, trend.low, trend.high)
        });
        let resident = found.resident_bytes.unwrap_or_default();
        println!(
            "{name:<44} {:>9} {:>9}  {change:>22}  {:>11} {:>11}  {}",
            si(found.ios_per_s.first),
            si(found.ios_per_s.last),
            si(found.outstanding.last),
            bytes((resident.last - resident.first).max(0.0)),
            found.verdict,
        );
    }
    if !says {
        println!("every program has made I/Os");
    }
}
