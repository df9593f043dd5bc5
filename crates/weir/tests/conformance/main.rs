//! One suite over every UDP design, on every provider, with one thread and with several, without
//! and with receive offload: what a design must do before it may be timed.
//!
//! The rows come from the library's own tables, so a new design or provider is covered without
//! a change here. A row that cannot run on this machine is reported as ignored, with the
//! reason. Set WEIR_REQUIRE to a list of designs and providers, separated by commas, or to
//! `all`, to make that a failure.
//!
//! A test's name is `check::design/provider/threads`, with `/offload` behind it where that is on, and a part of it as an argument runs
//! those that contain it: `cargo test --test conformance -- rio-hybrid/batch`.

mod behaviour;
mod errors;
mod foreign;
mod offload;
mod once;
mod replies;
mod settings;
mod stopping;
mod support;

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use std::sync::Arc;
use support::{Check, Subject};

fn main() {
    support::silence_panics_on_purpose();
    let arguments = Arguments::from_args();
    let required = std::env::var("WEIR_REQUIRE").unwrap_or_default();
    let checks = [
        once::CHECKS,
        behaviour::CHECKS,
        errors::CHECKS,
        replies::CHECKS,
        settings::CHECKS,
        stopping::CHECKS,
        foreign::CHECKS,
    ]
    .concat();
    let mut trials = Vec::new();
    for subject in support::subjects() {
        let subject = Arc::new(subject);
        match subject.unavailable() {
            Some(reason) => trials.push(missing(&subject, reason, &required)),
            None => {
                let more = if subject.offloads() { offload::CHECKS } else { &[] };
                trials.extend(checks.iter().chain(more).map(|check| trial(check, &subject)));
            }
        }
    }
    libtest_mimic::run(&arguments, trials).exit();
}

fn trial(check: &Check, subject: &Arc<Subject>) -> Trial {
    let (name, check) = *check;
    let subject = Arc::clone(subject);
    Trial::ignorable_test(format!("{name}::{}", subject.name()), move || {
        Ok(match check(&subject) {
            Ok(()) => Completion::Completed,
            Err(skipped) => Completion::ignored_with(skipped.0),
        })
    })
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
