//! One suite over every TCP design, with one thread and with two where a design has that choice:
//! what a design must do before it may be timed.
//!
//! The rows come from the library's own table, so a new design is covered without a change here.
//! A row that cannot run on this machine is reported as ignored, with the reason. Set
//! WEIR_REQUIRE to a list of names such as `tcp/epoll`, separated by commas, or to `all`, to make
//! that a failure.
//!
//! A test's name is `check::design/threads`, with what is not a default behind it, and a part of it as an argument runs those that contain
//! it: `cargo test --test tcp_conformance -- epoll/2`.
//!
//! Checks run one at a time, since each is followed by a count of the descriptors of the process:
//! what a check leaves open fails it.

mod active;
mod asks;
mod client;
mod echo;
mod ends;
mod fairness;
mod faults;
mod filters;
mod foreign;
mod limits;
mod machine;
mod stopping;
mod support;
#[cfg(feature = "tls")]
mod tls;

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use std::{
    panic::resume_unwind,
    process,
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};
use support::{Check, Skipped, Subject};

/// How long a check may take before it counts as one that never ends.
const LONGEST: Duration = Duration::from_secs(90);

fn main() {
    machine::confine();
    support::silence_panics_on_purpose();
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    let required = std::env::var("WEIR_REQUIRE").unwrap_or_default();
    let checks = [
        echo::CHECKS,
        ends::CHECKS,
        limits::CHECKS,
        asks::CHECKS,
        filters::CHECKS,
        active::CHECKS,
        #[cfg(feature = "tls")]
        tls::CHECKS,
        faults::CHECKS,
        fairness::CHECKS,
        stopping::CHECKS,
        foreign::CHECKS,
    ]
    .concat();
    let mut trials = Vec::new();
    for subject in support::subjects() {
        let subject = Arc::new(subject);
        match subject.unavailable() {
            Some(reason) => trials.push(missing(&subject, reason, &required)),
            None => trials.extend(checks.iter().map(|check| trial(check, &subject))),
        }
    }
    libtest_mimic::run(&arguments, trials).exit();
}

fn trial(check: &Check, subject: &Arc<Subject>) -> Trial {
    let (name, check) = *check;
    let subject = Arc::clone(subject);
    let name = format!("{name}::{}", subject.name());
    let its = name.clone();
    Trial::ignorable_test(name, move || {
        let before = machine::descriptors();
        let result = bounded(&its, move || check(&subject));
        support::until("the return of every descriptor", || machine::descriptors() == before);
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

fn missing(subject: &Subject, reason: String, required: &str) -> Trial {
    let insisted = required.split(',').map(str::trim).any(|name| subject.is_called(name));
    Trial::ignorable_test(format!("available::{}", subject.name()), move || {
        if insisted {
            return Err(Failed::from(format!("required by WEIR_REQUIRE, but {reason}")));
        }
        Ok(Completion::ignored_with(reason))
    })
}
