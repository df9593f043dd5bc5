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
#[path = "../suite/alone.rs"]
mod alone;
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
#[path = "../suite/mod.rs"]
mod suite;
mod support;
#[cfg(feature = "tls")]
mod tls;

use std::time::Duration;
use suite::{Row, required};

/// How long a check may take before it counts as one that never ends.
const LONGEST: Duration = Duration::from_secs(90);

fn main() {
    machine::confine();
    let mut suite = alone::suite(LONGEST);
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
    for subject in support::subjects() {
        let row = Row {
            name: subject.name(),
            unavailable: subject.unavailable(),
            required: required(|name| subject.is_called(name)),
            subject,
        };
        suite.add(row, &checks);
    }
    suite.run(Vec::new());
}
