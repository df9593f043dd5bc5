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
//! Each check is followed by a count of the descriptors of its process: what it leaves open fails it. So each
//! has a process of its own (`suite/apart.rs`), several at a time; with `--test-threads 1` they run one after the
//! other in one.

mod active;
#[path = "../suite/alone.rs"]
mod alone;
#[path = "../suite/apart.rs"]
mod apart;
mod asks;
mod beside;
mod client;
mod echo;
mod ends;
mod fairness;
mod faults;
mod filters;
mod foreign;
#[path = "../suite/free_port.rs"]
mod free_port;
mod given;
mod handles;
mod limits;
mod machine;
mod outgoing;
#[path = "../suite/programs.rs"]
mod programs;
mod sharing;
mod stopping;
#[path = "../suite/mod.rs"]
mod suite;
mod support;
#[cfg(feature = "tls")]
mod tls;
#[path = "../../src/wine.rs"]
mod wine;

use std::time::Duration;
use suite::{Row, required};

/// How long a check may take before it counts as one that never ends.
const LONGEST: Duration = Duration::from_secs(300);

/// Checks beside which no other runs.
const QUIET: &[support::Check] = fairness::CHECKS;

/// Runs the suite.
pub fn main() {
    machine::confine();
    let mut suite = apart::suite(LONGEST, |name| QUIET.iter().any(|(check, _)| is_of(name, check)));
    let checks = [
        echo::CHECKS,
        ends::CHECKS,
        limits::CHECKS,
        asks::CHECKS,
        handles::CHECKS,
        outgoing::CHECKS,
        given::CHECKS,
        filters::CHECKS,
        active::CHECKS,
        beside::CHECKS,
        #[cfg(feature = "tls")]
        tls::CHECKS,
        faults::CHECKS,
        sharing::CHECKS,
        stopping::CHECKS,
        foreign::CHECKS,
    ]
    .concat();
    let mut quiet = Vec::new();
    for subject in support::subjects().into_iter().filter(|of| apart::concerns(&of.name())) {
        let row = Row {
            name: subject.name(),
            unavailable: subject.unavailable(),
            required: subject.left_out().is_none() && required(|name| subject.is_called(name)),
            subject,
        };
        if row.unavailable.is_none() {
            quiet.push(row.clone());
        }
        suite.add(row, &checks);
    }
    // At the end, so that the others need not wait for them one by one.
    quiet.into_iter().for_each(|row| suite.add(row, QUIET));
    suite.run(Vec::new());
}

/// Whether a test has this check.
fn is_of(name: &str, check: &str) -> bool {
    name.strip_prefix(check).is_some_and(|rest| rest.starts_with("::"))
}
