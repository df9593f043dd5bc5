//! Servers that pretend to echo: none of them gets a valid run.

use crate::{support::*, wine};
use std::time::Duration;
use weir_load::tcp::{Engine, LoadReport, LoadSpec, Sizes};

each_engine!(no_cheat_has_a_valid_run, answers_that_stay_behind_are_missing_at_the_end,);

const CONNECTIONS: u32 = 6;
const SENDS: u64 = 40;

/// What is found, by the names of counts: how all connections end. More than one where it depends on the moment.
struct Found {
    cheat: Cheat,
    /// Where each message waits for the answer to the one before.
    one_by_one: &'static [&'static str],
    /// Where several are under way.
    several: &'static [&'static str],
}

const fn found(
    cheat: Cheat,
    one_by_one: &'static [&'static str],
    several: &'static [&'static str],
) -> Found {
    Found { cheat, one_by_one, several }
}

const WRONG: &[&str] = &["wrong"];
const RESET: &[&str] = &["reset"];
const UNANSWERED: &[&str] = &["unanswered"];
/// An end in order that a message crossed on its way is no loss, and may still be none; it is none of a valid run.
const ENDED: &[&str] = &["ended_by_server", "truncated"];

const CHEATS: [Found; 10] = [
    found(Cheat::Fixed, WRONG, WRONG),
    found(Cheat::Flip, WRONG, WRONG),
    // With one message at a time nothing follows by which the gap would be seen: the rest is waited for.
    found(Cheat::Drop, UNANSWERED, WRONG),
    found(Cheat::Duplicate, WRONG, WRONG),
    found(Cheat::Swap, WRONG, WRONG),
    found(Cheat::Stale, WRONG, WRONG),
    found(Cheat::Late, UNANSWERED, UNANSWERED),
    found(Cheat::Close, ENDED, ENDED),
    found(Cheat::Reset, RESET, RESET),
    found(Cheat::Stall, UNANSWERED, UNANSWERED),
];

fn load_of(engine: Engine, server: &Server, outstanding: u32) -> LoadSpec {
    let (connections, sends) = (CONNECTIONS, Some(SENDS));
    LoadSpec {
        connections,
        sends,
        outstanding,
        sizes: Sizes::of(MESSAGE_BYTES),
        ..server.spec(engine)
    }
}

/// That all connections ended in these ways, and that nobody may take the run for a valid one.
fn assert_caught(name: &str, report: &LoadReport, ways: &[&str]) {
    let counts = report.counts.named();
    let of = |name: &str| counts.iter().find(|(other, _)| *other == name).expect("a count").1;
    let ended: u64 = ways.iter().map(|way| of(way)).sum();
    let all = u64::from(CONNECTIONS);
    assert_eq!((of("connected"), ended), (all, all), "{name}: {ways:?}: {:?}", report.counts);
    assert_eq!(of("finished"), 0, "{name}: {:?}", report.counts);
    let of_data = of("wrong") + of("truncated") > 0;
    assert_eq!((report.data_errors, report.invalid().is_some()), (of_data, of_data), "{name}");
    assert!(of_data || report.failure.is_some(), "{name}: {:?}", report.counts);
    assert_eq!(report.wrong_bytes.is_some(), of("wrong") > 0, "{name}: {:?}", report.counts);
}

fn no_cheat_has_a_valid_run(engine: Engine) {
    for outstanding in [1, 8] {
        let honest = Server::cheating(None);
        assert_clean(&run(&load_of(engine, &honest, outstanding)), CONNECTIONS.into(), SENDS);
        for Found { cheat, one_by_one, several } in CHEATS {
            if cheat == Cheat::Reset && wine::RESETS.is_left_out() {
                continue;
            }
            let server = Server::cheating(Some(cheat));
            let ways = if outstanding == 1 { one_by_one } else { several };
            // Where answers do not come they are not waited for, however long they take elsewhere.
            let waits = ways == UNANSWERED;
            let answer_timeout = if waits { INSTANT } else { SOON };
            let report = run(&LoadSpec { answer_timeout, ..load_of(engine, &server, outstanding) });
            assert_caught(&format!("{cheat:?}, {outstanding} under way"), &report, ways);
        }
    }
}

/// As a comparison loads: for a time, at whose end the answers that are due must come.
fn answers_that_stay_behind_are_missing_at_the_end(engine: Engine) {
    in_time(INSTANT, |instant| answers_are_missing_within(engine, instant));
}

fn answers_are_missing_within(engine: Engine, instant: Duration) {
    for outstanding in [1, 8] {
        let server = Server::cheating(Some(Cheat::Late));
        let (duration, drain) = (instant, instant);
        let spec =
            LoadSpec { sends: None, duration, drain, ..load_of(engine, &server, outstanding) };
        let report = run(&spec);
        assert_caught(&format!("late, {outstanding} under way"), &report, &["cut_off"]);
        assert!(report.messages_unanswered >= CONNECTIONS.into(), "{:?}", report.counts);
    }
}
