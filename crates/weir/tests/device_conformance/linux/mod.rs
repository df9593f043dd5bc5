//! The suite, on the one system that devices can be read on.

mod checks;
mod opening;
mod support;

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use std::{panic::resume_unwind, process, sync::mpsc, thread, time::Duration};
use support::{Check, Skipped};
use weir::device::AnyDesign;

/// How long a check may take before it counts as one that never ends.
const LONGEST: Duration = Duration::from_secs(60);

/// Rows beside those of the table.
const VARIANTS: &[&str] = &[
    "threads --threads 3",
    "overlapped-pool --depth 3 --threads 1",
    "overlapped-pool --depth 64 --threads 3 --dequeue-max 1",
    "port --depth 5 --threads 3 --concurrency 1",
    "port --depth 1 --threads 2",
    "ring --depth 1 --batch 1",
    "ring --depth 64 --batch 7 --complete-min 64",
    "ring-registered --depth 3 --batch 8 --complete-min 2",
    "ring-polled --depth 4 --batch 4 --polls 1",
    "ring-polled --registered false",
    "libaio --depth 5 --batch 2 --complete-min 5",
];

pub fn main() {
    support::silence_panics_on_purpose();
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    let required = std::env::var("WEIR_REQUIRE").unwrap_or_default();
    let names = weir::device::designs().into_iter().map(|design| design.about().name.to_owned());
    let rows = names.chain(VARIANTS.iter().map(|&text| text.to_owned()));
    let mut trials = opening::trials();
    for row in rows {
        let design = AnyDesign::parse(&row).expect("the table and the list name what there is");
        match design.availability() {
            Err(reason) => trials.push(missing(&row, &design, reason.to_string(), &required)),
            Ok(()) => trials.extend(checks::CHECKS.iter().map(|check| trial(check, &row, &design))),
        }
    }
    libtest_mimic::run(&arguments, trials).exit();
}

fn trial(&(name, check): &Check, row: &str, design: &AnyDesign) -> Trial {
    let (name, design) = (format!("{name}::{row}"), design.clone());
    let its = name.clone();
    Trial::ignorable_test(name, move || {
        let before = support::descriptors();
        let result = bounded(&its, move || check(&design));
        support::until("the return of every descriptor", || support::descriptors() == before);
        Ok(match result {
            Ok(()) => Completion::Completed,
            Err(skipped) => Completion::ignored_with(skipped.0),
        })
    })
}

/// Runs a check, and ends the suite where it does not end.
fn bounded(
    name: &str,
    check: impl FnOnce() -> Result<(), Skipped> + Send + 'static,
) -> Result<(), Skipped> {
    let (over, when_over) = mpsc::channel::<()>();
    let thread = thread::spawn(move || {
        let _over = over; // dropped in a panic, too
        check()
    });
    if when_over.recv_timeout(LONGEST) == Err(mpsc::RecvTimeoutError::Timeout) {
        eprintln!("{name} did not end within {LONGEST:?}");
        process::exit(101);
    }
    thread.join().unwrap_or_else(|panic| resume_unwind(panic))
}

fn missing(row: &str, design: &AnyDesign, reason: String, required: &str) -> Trial {
    let name = format!("device/{}", design.about().name);
    // Its device is not written yet: no machine has it.
    let nowhere = design.about().name == "control";
    let insisted = !nowhere && required.split(',').map(str::trim).any(|n| n == "all" || n == name);
    Trial::ignorable_test(format!("available::{row}"), move || {
        if insisted {
            return Err(Failed::from(format!("required by WEIR_REQUIRE, but {reason}")));
        }
        Ok(Completion::ignored_with(reason))
    })
}
