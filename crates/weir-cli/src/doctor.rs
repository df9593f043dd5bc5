//! `weir doctor`: what on this machine distorts or limits results, and what to do about it.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use weir::machine::{self, Check, Costs, Effect, Instruments, LoadMeter, Machine};

use crate::exit;

mod programs;

/// Report what on this machine distorts or limits results, each with its evidence, its consequence, and the
/// command that changes it.
///
/// It changes nothing, and measures for half a second what other programs do. Exit codes: 0 success, whatever was found;
/// 1 the report cannot be written; 2 wrong usage.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Show passed checks, too.
    #[arg(short, long)]
    all: bool,

    /// One document on standard output.
    #[arg(short = 'J', long)]
    json: bool,
}

/// How long other programs are watched: the ticks of 10 ms show below it.
const WATCHED: Duration = Duration::from_millis(500);

/// Runs `weir doctor`.
pub fn run(args: &DoctorArgs) -> ExitCode {
    let (mut meter, before) = (LoadMeter::start(), programs::CpuTimes::now());
    std::thread::sleep(WATCHED);
    let (load, after) = (meter.read(0), programs::CpuTimes::now());
    let (machine, costs) = (Machine::describe(), Costs::measure());
    let mut checks = machine::checks(&machine, &Instruments::find(), load, costs);
    // Whoever is to end them must know which they are.
    for check in
        checks.iter_mut().filter(|check| check.about == "load" && check.effect == Effect::Falsifies)
    {
        let busiest = before
            .as_ref()
            .zip(after.as_ref())
            .and_then(|(before, after)| after.busiest_since(before));
        check.found += &programs::named(busiest);
    }
    let text = match args.json {
        true => format!("{}\n", document(&machine, costs, &checks)),
        false => shown(&machine, &checks, args.all),
    };
    if let Err(failure) = crate::print_results(&text) {
        say!("weir doctor: {}", failure.message);
        return ExitCode::from(failure.code);
    }
    ExitCode::from(exit::OK)
}

fn document(machine: &Machine, costs: Costs, checks: &[Check]) -> Value {
    let check = |check: &Check| {
        json!({
            "about": check.about,
            "effect": check.effect.name(),
            "found": check.found,
            "consequence": check.consequence,
            "cure": check.cure,
            "command": check.command,
        })
    };
    json!({
        "schema_version": 1,
        "command": crate::arguments(),
        "status": "completed",
        "machine": weir_lab::machine::properties(machine),
        "costs": {
            "system_call_ns": costs.call_ns,
            "clock_ns": costs.clock_ns,
            "wake_up_ns": costs.wake_ns,
            "core_to_core_ns": costs.hop_ns,
        },
        "checks": checks.iter().map(check).collect::<Vec<_>>(),
    })
}

/// The worst first.
const KINDS: [(Effect, &str); 4] = [
    (
        Effect::Falsifies,
        "Distorts figures: they vary by themselves, or say nothing about other machines",
    ),
    (Effect::Limits, "Limits figures: they are lower than they could be, or something cannot run"),
    (Effect::Unknown, "Unknown"),
    (Effect::None, "Fine"),
];

fn shown(machine: &Machine, checks: &[Check], all: bool) -> String {
    let of = |effect: Effect| checks.iter().filter(move |check| check.effect == effect);
    let count = |effect| of(effect).count();
    let mut text = format!(
        "{}, {} cores, {} {}. Of {} checks {} found what distorts figures, {} what limits them, and {} could not be made.\n",
        machine.cpu_model.as_deref().unwrap_or("This machine"),
        machine.cores.len(),
        machine.os,
        machine.kernel.as_deref().unwrap_or("(unknown version)"),
        checks.len(),
        count(Effect::Falsifies),
        count(Effect::Limits),
        count(Effect::Unknown),
    );
    for (effect, title) in KINDS {
        if count(effect) == 0 || (effect == Effect::None && !all) {
            continue;
        }
        let _ = write!(text, "\n{title}\n");
        for check in of(effect) {
            entry(&mut text, check);
        }
    }
    let fine = count(Effect::None);
    if !all && fine > 0 {
        let _ = write!(text, "\n{fine} checks found nothing; --all shows them.\n");
    }
    text
}

fn entry(text: &mut String, check: &Check) {
    let mut line = |label: &str, words: &str| {
        let indent = " ".repeat(15);
        let first = format!("  {label:<13}");
        let options =
            textwrap::Options::new(width()).initial_indent(&first).subsequent_indent(&indent);
        let _ = writeln!(text, "{}", textwrap::fill(words, options));
    };
    line(check.about, &sentence(&check.found));
    if !check.consequence.is_empty() {
        line("", &sentence(&check.consequence));
    }
    match (&check.cure[..], &check.command) {
        ("", None) => {}
        (cure, None) => line("", &sentence(cure)),
        (cure, Some(command)) => {
            line("", &format!("{}:", sentence(cure).trim_end_matches('.')));
            // Whole, so that it can be copied.
            let _ = writeln!(text, "{:17}{command}", "");
        }
    }
}

/// Columns of the terminal; more are hard to read.
fn width() -> usize {
    crate::width::width().clamp(NARROWEST, WIDEST)
}

/// Columns of text, at least and at most.
const NARROWEST: usize = 40;
const WIDEST: usize = 100;

/// With a capital and a full stop.
fn sentence(words: &str) -> String {
    let mut letters = words.chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string());
    format!("{}{}.", first.unwrap_or_default(), letters.as_str())
}
