use super::*;
use crate::report::document::document;
use crate::report::layout::chars;
use crate::report::screen::{DETAILS, LINES, LINES_OF_A_PART, screen};
use crate::report::table::report;
use crate::udp::report::fixture;

/// Compares with a file under `golden/`, or writes it where `WEIR_BLESS` is set.
fn golden(name: &str, text: &str) {
    let path = format!("{}/src/udp/report/golden/{name}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("WEIR_BLESS").is_some() {
        std::fs::write(&path, text).expect("the golden file can be written");
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default().replace("\r\n", "\n");
    assert!(
        text == expected,
        "the report differs from {path}; if it should, run the test with WEIR_BLESS=1\n{text}"
    );
}

#[test]
fn a_wide_terminal_has_one_table_a_load() {
    golden("wide.txt", &report(&fixture::results(), 200));
}

#[test]
fn a_narrow_terminal_has_it_in_parts() {
    let text = report(&fixture::results(), 90);
    golden("narrow.txt", &text);
    let widest = text.lines().map(chars).max().unwrap_or(0);
    assert!(widest <= 90, "{widest} characters");
}

#[test]
fn the_first_screen_has_the_conclusion_and_the_table_that_decides() {
    golden("screen.txt", &screen(&document(&fixture::results()), 120, LINES, DETAILS));
    golden(
        "screen-of-a-part.txt",
        &screen(&document(&fixture::swept()), 100, LINES_OF_A_PART, DETAILS),
    );
}

/// On one page, the numbers of the designs without a rank are one number, and rounds that do not count are told of.
#[test]
fn numbers_of_designs_and_rounds_agree() {
    let mut results = fixture::results();
    // Ranked is one, undecided another: all others, and the second name, have no rank.
    for row in [0, 3, 4] {
        results.cells[0][row] = Default::default();
    }
    results.cells[0].iter_mut().for_each(|cell| cell.samples.truncate(3));
    let text = screen(&document(&results), 200, LINES, DETAILS).replace('\n', " ");
    assert!(text.contains("of the 2 designs that could be ranked (4 could not)"), "{text}");
    assert!(text.contains("Not ranked: 4 designs;"), "{text}");
    let page = report(&results, 200);
    assert!(page.contains("saturation, 64 B: 3 of 8 rounds of 600 ms"), "{page}");

    let mut results = fixture::results();
    results.cells[0][1].samples.remove(7);
    let sentences = |results| document(results)["conclusion"]["sentences"].to_string();
    let said = "Based on 8 rounds, of which 7 or more count for each comparison with rio-hybrid";
    assert!(sentences(&results).contains(said), "{}", sentences(&results));
    assert!(sentences(&fixture::results()).contains("Based on 8 rounds, at 95 %"));
}

/// Where the number of rounds was asked for and all were made, more time would give no more.
#[test]
fn what_gives_more_rounds_is_what_there_are_too_few_for() {
    let mut results = fixture::results();
    results.cells[0].iter_mut().for_each(|cell| cell.samples.truncate(3));
    let said = |results: &_| document(results)["conclusion"]["sentences"].to_string();
    assert!(said(&results).contains("ask for more time (-t)"), "{}", said(&results));
    results.asked_for_rounds = true;
    let rounds = "; ask for more rounds (--rounds)";
    assert!(said(&results).contains(rounds), "{}", said(&results));
    results.cells[0][1].of_another_machine = true;
    let why = results.unranked(0, 1).unwrap();
    assert!(why.ends_with("; ask for more rounds (--rounds)"), "{why}");
    results.cut[0] = Some(3);
    assert!(said(&results).contains("ask for more time (-t)"), "{}", said(&results));
}

#[test]
fn why_a_row_has_no_rank_names_the_load_and_what_changed() {
    let mut results = fixture::results();
    results.cells[1][1] = Default::default();
    results.cells[1][1].had_no_time();
    let text = report(&results, 200);
    let why =
        "Not ranked under paced at 50000/s, 64 B: blocking: there was no time for a run of it (-t)";
    assert!(text.contains(why), "{text}");

    results.cells[0].iter_mut().for_each(|cell| cell.samples.truncate(3));
    let mut ranking = results.main_ranking(0);
    ranking.unlike_pairs = 2;
    let why = crate::report::sentences::why_open(&results, 0, &ranking);
    assert!(why.contains("in 2 pairs of runs the machine changed in between"), "{why}");
}

/// An answer of a part must not read as that of the whole.
#[test]
fn an_interrupted_comparison_says_so_first() {
    let headline = |results: &_| document(results)["conclusion"]["headline"].clone();
    let mut results = fixture::results();
    results.interrupted = true;
    results.cells[1].iter_mut().for_each(|cell| cell.samples.truncate(1));
    let said = headline(&results).as_str().unwrap().to_owned();
    assert!(
        said.starts_with(
            "Interrupted after 5 of 40 runs of paced at 50000/s, 64 B: use rio-hybrid"
        ),
        "{said}"
    );

    // One run of one row under the first load.
    results.cells[1].fill(Default::default());
    results.schedules[1] = None;
    for (row, cell) in results.cells[0].iter_mut().enumerate() {
        cell.failed_runs = 0;
        cell.samples.truncate(usize::from(row == 1));
    }
    assert_eq!(
        headline(&results),
        "Interrupted after 1 of 40 runs of saturation, 64 B: no answer: only blocking was measured until then: \
         1.32 M datagrams/s."
    );
    results.error = Some("a host was lost".into());
    let said = headline(&results).as_str().unwrap().to_owned();
    assert!(said.starts_with("Ended by an error after 1 of 40 runs"), "{said}");
}

#[test]
fn that_the_server_was_not_the_limit_is_part_of_the_conclusion() {
    let said = "The server was not the limit: figures marked ≥ are lower bounds";
    let mut results = fixture::results();
    assert!(!screen(&document(&results), 100, LINES, DETAILS).contains(said));
    for sample in results.cells[0].iter_mut().flat_map(|cell| &mut cell.samples) {
        sample.verdict.lower_bound = true;
    }
    let text = screen(&document(&results), 100, LINES, DETAILS).replace('\n', " ");
    assert!(text.contains(said), "{text}");
}

#[test]
fn no_figure_at_all_is_still_a_report() {
    let mut results = fixture::results();
    results.cells.iter_mut().flatten().for_each(|cell| *cell = Default::default());
    results.interrupted = true;
    results.error = Some("the generator cannot be started".into());
    let text = report(&results, 120);
    assert!(text.contains("Not measured: interrupted before it."), "{text}");
    assert!(text.contains("warning: interrupted; the results are partial"), "{text}");
    assert!(text.contains("error: the generator cannot be started"), "{text}");
    let text = screen(&document(&results), 100, LINES, DETAILS);
    assert!(text.contains("Interrupted before anything was measured: no answer."), "{text}");
    assert!(text.contains("error: the generator cannot be started"), "{text}");
}

#[test]
fn rows_with_receive_offload_have_a_table_of_their_own_and_the_ratios_below() {
    golden("offload.txt", &report(&fixture::with_offload(), 200));
}

#[test]
fn sweeps_are_tables_of_their_own() {
    golden("sweeps.txt", &report(&fixture::swept(), 160));
}

#[test]
fn an_unranked_row_that_is_better_is_named() {
    let mut results = fixture::results();
    for sample in &mut results.cells[1][1].samples {
        sample.ledger.received -= 1000;
        sample.ledger.dropped_socket = Some(1000);
        let latency = sample.latency_ns.map(|l| crate::wire::Latency { p50: 1000, ..l });
        sample.latency_ns = latency;
    }
    let text = report(&results, 200);
    let said = "lowest median latency of the ranked rows: p50 4.7 µs";
    assert!(text.contains(said), "{text}");
    assert!(
        text.contains(" µs) has a better figure, but no rank, for the reason given below."),
        "{text}"
    );
}

#[test]
fn what_was_lost_at_an_unknown_place_is_said_of_a_ranked_row() {
    let mut results = fixture::results();
    assert!(!report(&results, 200).contains("place unknown"));
    let mut share = 0.0;
    for sample in &mut results.cells[0][1].samples {
        sample.ledger.dropped_socket = None;
        share = sample.ledger.unexplained() as f64 / sample.ledger.sent as f64;
    }
    let ledger = results.cells[0][1].ledger().unwrap();
    assert!(share > 0.1 && results.unranked(0, 1).is_none(), "{:?}", results.unranked(0, 1));
    let text = report(&results, 200);
    let percent = ledger.unexplained() as f64 / ledger.sent as f64 * 100.0;
    assert!(text.contains(&format!("/?{percent:.0} %")), "{text}");
    assert!(text.contains("lost, place unknown, because") && !text.contains("INVALID  "), "{text}");
    let document = crate::report::document::document(&results);
    let of = |row: usize| document["results"][row]["ledger"]["lost_place_unknown"].clone();
    assert_eq!((of(0), of(1)), (Value::Null, ledger.unexplained().into()));
}

#[test]
fn a_count_of_the_machine_that_stands_in_is_told_as_such() {
    let mut results = fixture::results();
    for sample in &mut results.cells[0][1].samples {
        sample.ledger.dropped_socket_source = Some("all programs' count".into());
    }
    let text = report(&results, 200);
    assert!(text.contains("/~") && text.contains("(all programs' count)"), "{text}");
    assert!(!text.contains("place unknown"), "it counted as many as are missing: {text}");
    let document = crate::report::document::document(&results);
    let counts = &document["results"][1]["ledger"]["counts"];
    assert_eq!(counts["dropped_socket_source"], "all programs' count");
}

#[test]
fn where_no_latency_is_shown_to_be_lower_the_lowest_figure_is_named() {
    let mut results = fixture::results();
    let first = results.cells[1].iter().find(|cell| !cell.samples.is_empty()).unwrap().clone();
    for cell in results.cells[1].iter_mut().filter(|cell| !cell.samples.is_empty()) {
        cell.samples.clone_from(&first.samples);
    }
    let text = report(&results, 400);
    let said =
        "No row is shown to have a lower median latency than the others; the lowest figure is ";
    assert!(text.contains(said) && !text.contains("figure has"), "{text}");
}

#[test]
fn what_was_checked_is_told_of_whom_it_was_checked() {
    use crate::experiment::plan::Row;
    let mut results = fixture::results();
    let said = |results: &crate::udp::results::Results| checked(results).unwrap_or_default();
    assert!(said(&results).contains("each design answered 216 datagrams"), "{}", said(&results));
    assert!(!said(&results).contains("peer"));
    results.rows[1] = Row::parse_peer("talks=x").unwrap();
    results.rows[2] = Row::parse_peer("derived=x {port}").unwrap();
    let with_peers = said(&results);
    for part in ["of each only the flood was checked", "of a derived peer only the number"] {
        assert!(with_peers.contains(part), "{part:?} is missing of {with_peers}");
    }
    results.own.checked = None;
    let alone = said(&results);
    assert!(alone.contains("peers answer nothing, so of their checks: each datagram"), "{alone}");
    assert!(!alone.contains("216"), "no design passed: {alone}");
}

#[test]
fn why_says_nothing_by_entries_that_leave_some_out() {
    use weir::counters::{ALL_ENTRIES, ENTRIES_SOURCE};
    let mut results = fixture::results();
    let text = report(&results, 400);
    assert!(text.contains("≥ 1000") && text.contains("futex calls"), "{text}");
    assert!(!text.contains("kernel entries per 1000 datagrams instead of"), "{text}");
    for sample in results.cells.iter_mut().flatten().flat_map(|cell| &mut cell.samples) {
        sample.settings.insert(ENTRIES_SOURCE.into(), ALL_ENTRIES.into());
    }
    let text = report(&results, 400);
    assert!(text.contains("46 kernel entries per 1000 datagrams instead of 1000"), "{text}");
    assert!(!text.contains("≥ 1000"), "{text}");
}

#[test]
fn what_was_short_is_told_whether_or_not_it_happened() {
    let text = report(&fixture::results(), 200);
    let told = text.lines().find(|line| line.starts_with("In all runs:")).expect("it is told");
    assert!(told.contains("completion queue overflowed: none;"), "{told}");
    assert!(told.contains("kernel found no receive posted: rio-event on uring 16"), "{told}");
    assert!(!told.contains("longer than a slice"), "nobody counts those here: {told}");
}

#[test]
fn where_answers_are_expected_costs_are_per_answer() {
    let mut results = fixture::results();
    let traditional = results.measure().expect("there is one");
    let said = |results: &Results| {
        let costs = Udp::UNIT.causes;
        crate::report::sentences::causes(results, 0, (3, traditional), costs, |_, _, _| true)
            .join("; ")
    };
    assert!(said(&results).contains("ns of CPU time per datagram instead"), "{}", said(&results));
    let replies =
        crate::udp::plan::Replies { outstanding: 1, size_bytes: None, offload: Default::default() };
    results.loads[0].replies = Some(replies);
    let answers = said(&results);
    assert!(answers.contains("ns of CPU time per answer instead"), "{answers}");
    assert!(answers.contains("context switches per 1000 answers instead"), "{answers}");
}
