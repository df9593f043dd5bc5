//! What a comparison of strategies tells: which one to choose for which mix of connections, and why.

use crate::experiment::cell::Better;
use crate::experiment::plan::Row;
use crate::experiment::ranking::{Place, Ranking};
use crate::report::columns::{At, Column};
use crate::report::number::{UNKNOWN, bytes, microseconds, si};
use crate::report::sentences::{known, neighbours, nobody, or_not_measured, times, worth};
use crate::report::words::{list, lower_first, number_of, shortened};
use crate::tcp::mix::MixName;
use crate::tcp::plan::Load;
use crate::tcp::results::{Results, Tcp};
use crate::tcp::sample::{
    CLIENT_BUFFERS, CLIENT_MEMORY, CONTEXT_SWITCHES, CPU, FEWEST_FOR_KERNEL_MEMORY, KERNEL_MEMORY,
    LATENCY_P50, LATENCY_P99, MEMORY, MESSAGES, OTHERS_CLOSED, OTHERS_REFUSED, RECEIVED, SERVED,
    SERVER_BUFFERS, SERVER_CPU, Sample, TcpMetric,
};
use crate::tcp::strategies::Strategy;

/// Whether the mixes of strategies are what is compared.
pub fn are_compared(results: &Results) -> bool {
    results.loads.iter().any(|load| load.mix.is_some())
}

/// The columns of a mix: the result first, then what it cost whom.
pub fn columns(load: &Load) -> Vec<Column<Tcp>> {
    let about_strategy = "plain, throughput (several receives on each connection, or large buffers), many (no buffer \
                          while idle, or a bounded drain), active set (so many are served at a time), refusal (who \
                          asks too much is refused, closed or slowed down)";
    let mut columns = vec![Column::words("strategy\n", about_strategy, |at| {
        Strategy::of(at.row()).name().into()
    })];
    columns.extend(match load.has_rate() {
        true => vec![
            Column::of(&LATENCY_P99),
            Column::spread(&LATENCY_P99),
            Column::to_best(),
            Column::of(&LATENCY_P50),
            Column::of(&MESSAGES),
        ],
        false => vec![
            Column::bounded(&MESSAGES),
            Column::spread(&MESSAGES),
            Column::to_best(),
            Column::of(&RECEIVED),
            Column::parts("round trip µs\np50/p99", &[&LATENCY_P50, &LATENCY_P99]),
        ],
    });
    columns.extend([Column::of(&CPU), Column::of(&SERVER_CPU), Column::limited_by()]);
    columns.extend([
        Column::of(&MEMORY),
        Column::of(&SERVER_BUFFERS),
        Column::of(&CLIENT_MEMORY),
        Column::of(&CLIENT_BUFFERS),
        Column::figure(KERNEL_MEMORY.heading, KERNEL_MEMORY.about, |at: &At<Tcp>| {
            let load = &at.results.loads[at.load];
            match u64::from(load.connections_in_all()) >= FEWEST_FOR_KERNEL_MEMORY {
                true => at.text(&KERNEL_MEMORY),
                false => UNKNOWN.into(),
            }
        }),
        Column::of(&CONTEXT_SWITCHES),
        Column::figure(SERVED.heading, SERVED.about, |at| {
            let fewest = at.cell().standing().min_by_key(|sample: &&Sample| sample.served());
            fewest.map_or_else(|| UNKNOWN.into(), |s| format!("{}/{}", s.served(), s.asked))
        }),
    ]);
    if load.mix.is_some_and(|mix| mix.others.is_some()) {
        columns.push(Column::of(&OTHERS_REFUSED));
        columns.push(Column::of(&OTHERS_CLOSED));
    }
    columns
}

/// The sentences of a group of rows in one mix.
pub fn of_load(results: &Results, load: usize, ranking: &Ranking) -> Vec<String> {
    let Some(winner) = ranking.winner() else {
        let mut said = vec![nobody(ranking, "", "figure")];
        said.extend(not_served(results, load));
        return said;
    };
    let mut said = vec![format!("{}.", leading(results, load, ranking, winner))];
    said.extend(neighbours(results, load, ranking));
    said.extend(against_plain(results, load, winner.row));
    said.extend(of_others(results, load, winner.row));
    said.extend(not_served(results, load));
    said
}

/// For each mix which strategy to choose, with its row and figure.
pub fn chosen(results: &Results) -> Vec<String> {
    let of_load = |load: usize| {
        let mix = results.loads[load].mix?;
        let rankings: Vec<Ranking> =
            results.groups(load).into_iter().map(|of| results.ranking(load, of)).collect();
        let led = rankings.iter().find_map(|ranking| Some((ranking, ranking.winner()?)));
        let name = mix.name.name();
        Some(match (led, rankings.first()) {
            (Some((ranking, winner)), _) => {
                format!("{name}: {}.", leading(results, load, ranking, winner))
            }
            (None, Some(ranking)) => {
                format!("{name}: {}", lower_first(&nobody(ranking, "", "figure")))
            }
            (None, None) => format!("{name}: no row takes part."),
        })
    };
    (0..results.loads.len()).filter_map(of_load).collect()
}

/// Why, for each mix, in full.
pub fn reasons(results: &Results) -> Vec<String> {
    let mut said = vec![];
    for (load, of) in results.loads.iter().enumerate() {
        let Some(mix) = of.mix else { continue };
        for group in results.groups(load) {
            let ranking = results.ranking(load, group);
            let sentences = of_load(results, load, &ranking).join(" ");
            let purpose = purpose(mix.name);
            said.push(format!("{} ({purpose}): {sentences}", mix.name.name()));
        }
    }
    or_not_measured(said, "no mix was run")
}

/// What the mix is there to show.
fn purpose(name: MixName) -> &'static str {
    match name {
        MixName::Idle => {
            "what many idle connections cost, and what they leave to the few that are busy"
        }
        MixName::Busy => "how much a few connections get through",
        MixName::Turns => "how soon all are served that come at once",
        MixName::Flood => "what one that sends as fast as it can leaves to the others",
        MixName::Silent => "what many that never send leave to the others",
        MixName::Stuck => "what some that never read leave to the others",
    }
}

/// The row of the best figure, its strategy, and who cannot be told from it.
fn leading(results: &Results, load: usize, ranking: &Ranking, winner: &Place) -> String {
    let row = &results.rows[winner.row];
    let figure = figure(results.ranked_by(load), winner.median);
    let strategies = |of: fn(&Place) -> bool| -> Vec<String> {
        let others = ranking.places.iter().skip(1).filter(|place| of(place));
        let mut names: Vec<String> = vec![];
        for place in others {
            let name = Strategy::of(&results.rows[place.row]).name().to_owned();
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    };
    let count = |of: fn(&Place) -> bool| ranking.places.iter().skip(1).filter(|p| of(p)).count();
    let mut text =
        format!("{} ({}), {figure}", Strategy::of(row).name(), results.title(winner.row));
    let tied = count(Place::ties_with_winner);
    if tied > 0 {
        let names = list(&strategies(Place::ties_with_winner));
        text += &format!(", tied with {} ({names})", number_of(tied, "other row"));
    }
    let open = count(Place::is_open);
    if open > 0 {
        text += &format!("; {} undecided", number_of(open, "row"));
    }
    text
}

fn figure(metric: &TcpMetric, median: f64) -> String {
    match metric.better {
        Better::Higher => format!("{} messages/s", si(median)),
        Better::Lower => format!("99th percentile {} µs", microseconds(median)),
    }
}

/// The plain row of the same design, unless it is that itself.
fn plain_of(results: &Results, load: usize, row: usize) -> Option<usize> {
    let own = &results.rows[row];
    let is_plain = |of: &&usize| {
        let of: &Row = &results.rows[**of];
        of.design == own.design && Strategy::of(of) == Strategy::Plain
    };
    let plain: Vec<usize> =
        (0..results.rows.len()).filter(|of| results.takes_part(load, *of)).collect();
    plain.iter().find(is_plain).copied().filter(|plain| *plain != row)
}

/// What the strategy of a row makes of its design.
fn against_plain(results: &Results, load: usize, row: usize) -> Option<String> {
    let plain = plain_of(results, load, row)?;
    if results.unranked(load, plain).is_some() {
        return None;
    }
    let metric = results.ranked_by(load);
    let difference = results.against(load, metric, (row, plain));
    let ratio = difference.ratio()?;
    let what = match metric.better {
        Better::Higher => "messages/s",
        Better::Lower => "99th percentile",
    };
    let memory = |row: usize| known(results.median(load, row, &MEMORY), bytes);
    let buffers = |row: usize| known(results.median(load, row, &SERVER_BUFFERS), bytes);
    Some(format!(
        "Compared with {} without its options that is {} the {what} ({}), with {} instead of {} of the server's \
         memory, and {} instead of {} in its sockets' buffers.",
        results.title(plain),
        times(&ratio),
        worth(&difference),
        memory(row),
        memory(plain),
        buffers(row),
        buffers(plain),
    ))
}

/// What became of the others under a row, in the run in which it had the fewest to the end.
fn of_others(results: &Results, load: usize, row: usize) -> Option<String> {
    let mut samples = results.cells[load][row].standing().filter_map(|of| of.others.as_ref());
    let first = samples.next()?;
    let of = samples.fold(first, |least, of| if of.stood() < least.stood() { of } else { least });
    if of.refused + of.closed == 0 {
        return None;
    }
    let reason = of.reasons.iter().max_by_key(|(_, count)| **count);
    let reason = reason.map(|(reason, _)| format!(" (\"{reason}\")")).unwrap_or_default();
    Some(format!(
        "Of {} others it refused {}{reason} and closed {}, as its limits say.",
        of.connected, of.refused, of.closed
    ))
}

/// Rows under which connections that count were not served.
fn not_served(results: &Results, load: usize) -> Option<String> {
    let is_starved = |row: &usize| {
        let mut samples = results.cells[load][*row].standing();
        results.first_of(*row).is_none()
            && results.invalid(load, *row).is_none()
            && samples.any(|sample| sample.incomplete().is_some())
    };
    let rows: Vec<String> = (0..results.rows.len())
        .filter(|row| results.takes_part(load, *row) && is_starved(row))
        .map(|row| results.title(row))
        .collect();
    (!rows.is_empty()).then(|| {
        format!(
            "Not all of the connections whose figures count were served by {}.",
            list(&shortened(rows))
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::cell::Conformance;
    use crate::experiment::plan::Depth;
    use crate::machine::Machine;
    use crate::report::document::document;
    use crate::report::table::report;
    use crate::tcp::sample::OfOthers;
    use crate::tcp::sample::tests::{at, made};
    use crate::tcp::strategies::loads;

    /// Rows in the silent mix with the middle of their 99th percentile in µs, and connections that they refuse.
    fn results(rows: &[(&str, f64, u64)]) -> Results {
        let all: Vec<Row> = rows.iter().map(|(text, ..)| Row::parse(text).unwrap()).collect();
        let loads = loads(Depth::Quick, &[MixName::Silent], None, None);
        let mut results = Results::new(vec![], Machine::default(), all, loads);
        results.add_again(0);
        let load = results.loads[0];
        for row in 0..results.rows.len() {
            let (_, p99_us, refused) = rows[results.first_of(row).unwrap_or(row)];
            results.conformance[row] = Conformance::Passed;
            results.own.idle[row].cores_busy = Some(0.4);
            for block in 0..7 {
                let mut made = made(2000.0, 5000.0);
                made.load.latency_histogram =
                    vec![((p99_us * 1000.0) as u64 + u64::from(block), 900)];
                let mut sample = Sample::of(&at(block), &load, &made);
                let (asked, connected) = (1000, 1000);
                let reasons = [("too many of your address".to_owned(), refused)].into();
                let of = OfOthers { asked, connected, refused, reasons, ..OfOthers::default() };
                sample.others = Some(of);
                sample.server_socket_bytes = Some(5 << 20);
                results.cells[0][row].samples.push(sample);
            }
        }
        results
    }

    #[test]
    fn the_screen_says_which_strategy_to_choose_for_which_mix() {
        let results = results(&[("epoll", 900.0, 0), ("epoll --per-address 16", 450.0, 936)]);
        let found = document(&results);
        let headline = found["conclusion"]["headline"].as_str().unwrap();
        let sentences = found["conclusion"]["sentences"].to_string();
        assert!(headline.contains("mix"), "{headline}");
        let wanted = "silent: refusal (epoll --per-address 16), 99th percentile 450 µs";
        assert!(sentences.contains(wanted), "{wanted:?} is missing of {sentences}");
        let row = &found["results"][1];
        assert_eq!(row["strategy"], "refusal");
        assert_eq!(row["runs"][0]["others"]["refused"], 936);
        assert_eq!(found["loads"][0]["ranked_by"], "round_trip_ns.p99");
    }

    #[test]
    fn the_report_says_why_and_what_became_of_the_others() {
        let mut results = results(&[
            ("epoll", 900.0, 0),
            ("epoll --per-address 16", 450.0, 936),
            ("epoll --active 100", 700.0, 0),
        ]);
        results.cells[0][2].samples[1].unanswered = 3;
        let text = report(&results, 240);
        for wanted in [
            "silent: ping-pong, 64 B, 64 connections, 2000/s in all beside 1000 from 4 addresses that send nothing",
            "active set",
            "that is 0.50 times",
            "Of 1000 others it refused 936 (\"too many of your address\") and closed 0",
            "Not all of the connections whose figures count were served by epoll --active 100",
            "Which strategy for which mix",
        ] {
            let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(flat.contains(wanted), "{wanted:?} is missing of\n{text}");
        }
    }
}
