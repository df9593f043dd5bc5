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
#[path = "../suite/free_port.rs"]
mod free_port;
mod gathering;
mod given;
mod groups;
mod hooks;
mod meta;
mod offload;
mod once;
mod outbox;
#[path = "../suite/programs.rs"]
mod programs;
mod replies;
mod settings;
mod sharing;
mod stopping;
#[path = "../suite/mod.rs"]
mod suite;
mod support;
mod unix;
#[path = "../../src/wine.rs"]
mod wine;

use libtest_mimic::Arguments;
use suite::{Row, Suite, required};

/// Runs the suite.
pub fn main() {
    // Else the provider would be no row under Wine.
    #[cfg(windows)]
    if weir::rio::winsock::stand_in::install_where_absent() {
        eprintln!("the provider winsock runs on a stand-in: this system has no registered I/O");
    }
    let mut suite = Suite::new(Arguments::from_args(), |_, check| check());
    let checks = [
        once::CHECKS,
        behaviour::CHECKS,
        errors::CHECKS,
        replies::CHECKS,
        outbox::CHECKS,
        hooks::CHECKS,
        meta::CHECKS,
        groups::CHECKS,
        settings::CHECKS,
        sharing::CHECKS,
        stopping::CHECKS,
        given::CHECKS,
        unix::CHECKS,
        foreign::CHECKS,
    ]
    .concat();
    for subject in support::subjects() {
        let more = if subject.offloads() { offload::CHECKS } else { &[] };
        let groups = if subject.gathers() { gathering::CHECKS } else { &[] };
        let adapts = if subject.adapts() { gathering::CHECKS_OF_ADAPTIVE } else { &[] };
        let row = Row {
            name: subject.name(),
            unavailable: subject.unavailable(),
            required: required(|name| subject.is_called(name)),
            subject,
        };
        suite.add(row, checks.iter().chain(more).chain(groups).chain(adapts));
    }
    suite.run(Vec::new());
}
