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
#[path = "../suite/receive.rs"]
mod receive;
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
use std::thread;
use suite::{Row, Suite, required};

/// How many checks are made at a time, unless told otherwise: they mostly wait. Under Wine all wait for one server.
const AT_ONCE_PER_CORE: usize = if cfg!(windows) { 1 } else { 3 };

/// Runs the suite.
pub fn main() {
    // Else the provider would be no row under Wine.
    #[cfg(windows)]
    if weir::rio::winsock::stand_in::install_where_absent() {
        eprintln!("the provider winsock runs on a stand-in: this system has no registered I/O");
    }
    let mut arguments = Arguments::from_args();
    let cores = thread::available_parallelism().map_or(1, usize::from);
    arguments.test_threads.get_or_insert(cores * AT_ONCE_PER_CORE);
    let mut suite = Suite::new(arguments, |_, check| check());
    let of_every_row = [
        once::CHECKS,
        behaviour::CHECKS,
        errors::CHECKS,
        replies::CHECKS,
        outbox::CHECKS,
        hooks::CHECKS,
        settings::CHECKS,
        sharing::CHECKS,
        stopping::CHECKS,
        given::CHECKS,
    ];
    // A variant of a provider serves the same sockets by the same code, only at other moments, and receive offload is one
    // more option of them: what is bound, refused and joined, and which program it is that sends, is checked without either.
    // What is told beside a datagram lies in the same control data on a variant.
    let of_the_server =
        [groups::CHECKS, settings::CHECKS_OF_THE_SERVER, unix::CHECKS, foreign::CHECKS];
    let of_variants = [&of_every_row.concat(), unix::CHECKS_OF_VARIANTS].concat();
    let with_offload = [
        of_every_row.concat().as_slice(),
        meta::CHECKS,
        unix::CHECKS_WITH_OFFLOAD,
        offload::CHECKS,
    ]
    .concat();
    let all = [of_every_row.concat().as_slice(), meta::CHECKS, &of_the_server.concat()].concat();
    for subject in support::subjects() {
        let checks = match (subject.offloads(), subject.is_variant()) {
            (true, _) => &with_offload,
            (_, true) => &of_variants,
            _ => &all,
        };
        // How long a thread sleeps is decided before anybody looks at what has come, with offload or without.
        let gathers = subject.gathers() && !subject.offloads();
        let groups = if gathers { gathering::CHECKS } else { &[] };
        let adapts = if subject.adapts() { gathering::CHECKS_OF_ADAPTIVE } else { &[] };
        let row = Row {
            name: subject.name(),
            unavailable: subject.unavailable(),
            required: required(|name| subject.is_called(name)),
            subject,
        };
        suite.add(row, checks.iter().chain(groups).chain(adapts));
    }
    suite.run(Vec::new());
}
