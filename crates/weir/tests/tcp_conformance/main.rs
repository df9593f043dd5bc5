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
mod gathering;
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
#[cfg(target_os = "linux")]
mod unix;
#[path = "../../src/wine.rs"]
mod wine;

use std::time::Duration;
use suite::{Row, required};

/// How long a check may take before it counts as one that never ends.
const LONGEST: Duration = Duration::from_secs(300);

/// Checks beside which no other runs.
const QUIET: &[support::Check] = fairness::CHECKS;

/// Checks that are made with clients on Unix sockets, too: those in which the socket has a part.
#[cfg(target_os = "linux")]
const UNIX: &[&str] = &[
    "one_connection",
    "many_connections",
    "sends_more_than_it_receives",
    "sends_what_goes_when_something_went",
    "half_close",
    "half_close_of_many",
    "half_close_while_the_thread_is_busy",
    "finished_by_the_handler",
    "aborted_by_the_handler",
    "reset_in_mid_stream",
    "reset_while_output_waits",
    "connects_that_close_at_once",
    "reads_slowly",
    "never_reads",
    "never_speaks",
    "too_many_connections",
    "output_beyond_the_limit",
    "pauses_and_breaks",
    "descriptors_run_out",
    "stop_at_once",
    "stop_answers_what_was_acknowledged",
    "stop_answers_beyond_what_may_wait",
    "stop_under_load",
    "stop_while_peers_go_on_sending",
    "stop_with_a_peer_that_never_reads",
];

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
        #[cfg(target_os = "linux")]
        if row.subject.is_unix() {
            let meant = |(name, _): &&support::Check| UNIX.contains(name);
            let checks = checks.iter().filter(meant).chain(unix::CHECKS).copied();
            suite.add(row, &checks.collect::<Vec<_>>());
            continue;
        }
        if row.unavailable.is_none() {
            quiet.push(row.clone());
        }
        let groups = if row.subject.is_first_that_gathers() { gathering::CHECKS } else { &[] };
        suite.add(row, checks.iter().chain(groups));
    }
    // At the end, so that the others need not wait for them one by one.
    quiet.into_iter().for_each(|row| suite.add(row, QUIET));
    suite.run(Vec::new());
}

/// Whether a test has this check.
fn is_of(name: &str, check: &str) -> bool {
    name.strip_prefix(check).is_some_and(|rest| rest.starts_with("::"))
}
