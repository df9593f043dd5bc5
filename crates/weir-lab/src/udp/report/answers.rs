//! What the figures answer, in words: each sentence is computed from the rows, and says where nothing
//! was measured or nothing can be told.

use weir::udp::{Contract, designs};

use crate::experiment::cell::Better;
use crate::experiment::ranking::Place;
use crate::report::Answer;
use crate::report::number::{microseconds, si, whole};
use crate::report::sentences::{by_verdict, known, or_not_measured, times, worth};
use crate::report::words::{list, shortened};
use crate::stats::compare::Difference;
use crate::udp::crossing::{self, Axis, Sweep};
use crate::udp::curve::{self, Highest};
use crate::udp::offload;
use crate::udp::plan::{Goal, Load, Rate};
use crate::udp::results::Results;
use crate::udp::sample::{LATENCY_P50, LATENCY_P99, RECEIVED, SERVER_CPU, THREADS_USED};

/// Cores' worth of time from which a server that is offered little counts as polling.
const POLLS: f64 = 0.9;

/// Most crossings that are put into words; further ones are counted.
const MOST_CROSSINGS: usize = 6;

/// Every question that this experiment can be asked.
pub fn all(results: &Results) -> Vec<Answer> {
    let of = |question, sentences: Vec<String>| Answer { question, sentences };
    let bursts = super::bursts::answers(results);
    if !bursts.is_empty() {
        return vec![of("What takes a burst?", bursts)];
    }
    let mut answers = vec![
        of("Is registered I/O worth it here, and when?", registered(results)),
        of("How many threads?", threads(results)),
        of("What does busy-polling cost?", polling(results)),
    ];
    let more = [
        of("Where does work change the order?", work(results)),
        of("Which values of options are best?", options(results)),
        of("What does receive offload gain?", receive_offload(results)),
        of("How much is received without loss?", highest(results)),
    ];
    answers.extend(more.into_iter().filter(|answer| !answer.sentences.is_empty()));
    answers
}

fn is_registered(results: &Results, row: usize) -> Option<bool> {
    let name = &results.rows[row].design;
    let design = designs().into_iter().find(|design| design.about().name == *name)?;
    Some(design.about().contract == Contract::Rio)
}

fn registered(results: &Results) -> Vec<String> {
    let mut all = vec![];
    for load in (0..results.loads.len()).filter(|load| results.compares(*load)) {
        let ranking = results.main_ranking(load);
        let best = |registered: bool| {
            let of = |place: &&Place| is_registered(results, place.row) == Some(registered);
            ranking.places.iter().find(of).map(|place| place.row)
        };
        let (Some(with), Some(without)) = (best(true), best(false)) else { continue };
        let metric = results.ranked_by(load);
        let difference = results.better_by(load, metric, (with, without));
        let what = match metric.better {
            Better::Higher => "the datagrams of",
            Better::Lower => "lower median latency than",
        };
        let ratio = difference.ratio().map(|ratio| format!("{} {what} ", times(&ratio)));
        let bound = [with, without].into_iter().all(|row| {
            let verdict = results.cells[load][row].verdict();
            !results.loads[load].is_paced() && verdict.is_some_and(|verdict| verdict.lower_bound)
        });
        let bound = if bound { ", both lower bounds: the server was not the limit" } else { "" };
        let text = format!(
            "{} ({}: {}{}{bound})",
            results.loads[load],
            results.rows[with],
            ratio.unwrap_or_else(|| "compared with ".into()),
            results.rows[without],
        );
        all.push((difference, text));
    }
    let words = [
        "Yes, the best design with it is faster than the best without at",
        "No, it is slower at",
        "Within the noise at",
        "Undecided (too few comparable rounds, or no noise floor) at",
    ];
    let sentences = by_verdict(all, words)
        .into_iter()
        .map(|(what, loads)| format!("{what}: {}.", loads.join("; ")));
    let what = "no load has both a ranked design of registered I/O and one without";
    or_not_measured(sentences.collect(), what)
}

fn threads(results: &Results) -> Vec<String> {
    let mut said = vec![];
    for sweep in crossing::over_threads(results) {
        let Axis::Threads { load } = sweep.axis else { continue };
        said.extend(threads_under(results, &sweep, load));
    }
    if said.is_empty() {
        return vec![
            "Not measured: no design ran on several numbers of threads; use --sweep threads."
                .into(),
        ];
    }
    if results.own.server_cores.len() == 1 {
        said.insert(
            0,
            "The server has one core here, so more threads add no computing power: only the cost of \
             switching between them shows."
                .into(),
        );
    }
    said.extend(hybrid_and_port(results));
    said
}

/// What more threads do to each design under one load.
fn threads_under(results: &Results, sweep: &Sweep, load: usize) -> Option<String> {
    let mut all = vec![];
    for (design, name) in sweep.names.iter().enumerate() {
        let known: Vec<usize> = (0..sweep.stops.len())
            .filter(|stop| sweep.median(results, *stop, design).is_some())
            .collect();
        let Some((&fewest, others)) = known.split_first() else { continue };
        let median = |stop: &usize| sweep.median(results, *stop, design).unwrap_or(0.0);
        // The number that differs most from the fewest, either way.
        let distance = |stop: &usize| (median(stop) / median(&fewest)).ln().abs();
        let farthest = others.iter().copied().max_by(|a, b| distance(a).total_cmp(&distance(b)));
        let Some(farthest) = farthest else { continue };
        let rows = |stop: usize| sweep.stops[stop].rows[design];
        let (Some(many), Some(few)) = (rows(farthest), rows(fewest)) else { continue };
        let difference = results.against(load, &RECEIVED, (many, few));
        let text = match difference {
            Difference::Real(ratio) => {
                let [many, few] = [farthest, fewest].map(|stop| sweep.stops[stop].at);
                format!("{name} ({many} threads: {} the rate of {few})", times(&ratio))
            }
            _ => name.clone(),
        };
        all.push((difference, text));
    }
    let words = [
        "more threads help",
        "more threads hurt",
        "no difference beyond the noise for",
        "undecided for",
    ];
    let parts: Vec<String> = by_verdict(all, words)
        .into_iter()
        .map(|(what, names)| format!("{what} {}", list(&names)))
        .collect();
    (!parts.is_empty())
        .then(|| format!("{}: {}.", first_upper(&results.loads[load]), parts.join("; ")))
}

fn first_upper(load: &Load) -> String {
    let text = load.to_string();
    let mut chars = text.chars();
    chars.next().map_or(text.clone(), |first| first.to_uppercase().chain(chars).collect())
}

/// The reason the author of the originals gave for the hybrid: few threads against many where all
/// work on one state.
fn hybrid_and_port(results: &Results) -> Vec<String> {
    let row = |design: &str, threads: u32| {
        results.rows.iter().position(|row| {
            row.design == design && row.threads() == Some(threads) && !row.receive_offload
        })
    };
    let (Some(hybrid), Some(port)) = (row("rio-hybrid", 2), row("rio-port", 8)) else {
        return vec![];
    };
    let mut said = vec![];
    for load in (0..results.loads.len()).filter(|load| results.loads[*load].work.shared) {
        let measured =
            |row: usize| results.takes_part(load, row) && results.unranked(load, row).is_none();
        if results.loads[load].is_paced() || !measured(hybrid) || !measured(port) {
            continue;
        }
        let difference = results.better_by(load, results.ranked_by(load), (hybrid, port));
        let Some(ratio) = difference.ratio() else { continue };
        let used = |row: usize| known(results.median(load, row, &THREADS_USED), whole);
        said.push(format!(
            "{}: {} is {} {} ({}); threads that handled any datagram: {} and {}.",
            first_upper(&results.loads[load]),
            results.rows[hybrid],
            times(&ratio),
            results.rows[port],
            worth(&difference),
            used(hybrid),
            used(port),
        ));
    }
    said
}

fn polling(results: &Results) -> Vec<String> {
    let loads: Vec<usize> = (0..results.loads.len())
        .filter(|load| results.loads[*load].offered_per_s().is_some())
        .collect();
    let said: Vec<String> =
        loads.into_iter().filter_map(|load| polling_under(results, load)).collect();
    let what = "this needs an evenly paced load with a ranked design that keeps a core busy and one that does not";
    or_not_measured(said, what)
}

fn polling_under(results: &Results, load: usize) -> Option<String> {
    let ranking = results.main_ranking(load);
    let cores = results.own.server_cores.len().max(1) as f64;
    let cell = |row: usize| &results.cells[load][row];
    // Cores' worth of time that a row takes.
    let busy =
        |row: usize| Some(cell(row).estimate(&SERVER_CPU, results.seed)?.median / 100.0 * cores);
    // The question is what a design's polling buys: a peer differs in more than that.
    let designs = ranking.places.iter().filter(|place| results.rows[place.row].peer.is_none());
    let all: Vec<(usize, f64)> =
        designs.filter_map(|place| Some((place.row, busy(place.row)?))).collect();
    let (polls, waits): (Vec<_>, Vec<_>) = all.into_iter().partition(|(_, busy)| *busy >= POLLS);
    // Places are in the order of the latency, best first.
    let ((poll, poll_busy), (wait, wait_busy)) = (*polls.first()?, *waits.first()?);
    let names = |rows: &[(usize, f64)]| {
        list(&shortened(rows.iter().map(|(row, _)| results.rows[*row].to_string()).collect()))
    };
    let range = |rows: &[(usize, f64)]| {
        let low = rows.iter().map(|(_, busy)| *busy).fold(f64::INFINITY, f64::min);
        let high = rows.iter().map(|(_, busy)| *busy).fold(0.0, f64::max);
        let (low, high) = (format!("{low:.2}"), format!("{high:.2}"));
        if low == high { low } else { format!("{low} to {high}") }
    };
    let p50 = [poll, wait].map(|row| known(results.median(load, row, &LATENCY_P50), microseconds));
    let p99 = [poll, wait].map(|row| known(results.median(load, row, &LATENCY_P99), microseconds));
    let gain = |metric| {
        let difference = results.better_by(load, metric, (poll, wait));
        match difference {
            Difference::Tie(_) => "nothing beyond the noise".into(),
            _ => match difference.ratio() {
                Some(ratio) => {
                    format!("a latency {} lower ({})", times(&ratio), worth(&difference))
                }
                None => "an unknown gain (no comparable rounds)".into(),
            },
        }
    };
    Some(format!(
        "{}: busy-polling designs ({}) keep {} of a core busy, sleeping designs ({}) {}. The best \
         busy-polling design, {}, has p50 {} and p99 {} µs; the best sleeping design, {}, has {} and {} µs. \
         Busy-polling costs {:.2} of a core more and gives {} at the median and {} at the 99th percentile.",
        first_upper(&results.loads[load]),
        names(&polls),
        range(&polls),
        names(&waits),
        range(&waits),
        results.rows[poll],
        p50[0],
        p99[0],
        results.rows[wait],
        p50[1],
        p99[1],
        poll_busy - wait_busy,
        gain(&LATENCY_P50),
        gain(&LATENCY_P99),
    ))
}

/// What is better or worse than it was, as work or threads grow.
fn work(results: &Results) -> Vec<String> {
    let sweeps = crossing::over_work(results);
    sweeps.iter().filter_map(|sweep| crossings(results, sweep)).collect()
}

/// The best value of each option that was swept over, for each design; and what overtakes what.
fn options(results: &Results) -> Vec<String> {
    let sweeps = crossing::over_options(results);
    let said = |sweep: &Sweep| {
        let Axis::Option { of, load } = sweep.axis else { return None };
        let best = (0..sweep.names.len()).filter_map(|design| {
            let rate = |stop: &usize| sweep.median(results, *stop, design);
            let known: Vec<usize> =
                (0..sweep.stops.len()).filter(|stop| rate(stop).is_some()).collect();
            let by_rate =
                |a: &&usize, b: &&usize| rate(a).unwrap_or(0.0).total_cmp(&rate(b).unwrap_or(0.0));
            let (most, least) = (known.iter().max_by(by_rate)?, known.iter().min_by(by_rate)?);
            let row = |stop: usize| sweep.stops[stop].rows[design];
            let difference = results.against(load, &RECEIVED, (row(*most)?, row(*least)?));
            let at = |stop: usize| sweep.stops[stop].at;
            Some(match difference {
                Difference::Real(ratio) => format!(
                    "{}: most at {} ({} the rate at {})",
                    sweep.names[design],
                    at(*most),
                    times(&ratio),
                    at(*least)
                ),
                _ => format!("{}: no difference beyond the noise", sweep.names[design]),
            })
        });
        let best: Vec<String> = best.collect();
        (!best.is_empty()).then(|| format!("{}: {}.", of.name, best.join("; ")))
    };
    let all = sweeps.iter().flat_map(|sweep| [said(sweep), crossings(results, sweep)]);
    all.flatten().collect()
}

/// The crossings of a sweep in words; `None` where nothing could cross.
pub fn crossings(results: &Results, sweep: &Sweep) -> Option<String> {
    if sweep.names.len() < 2 {
        return None;
    }
    let (kind, unit) = match sweep.axis {
        Axis::Work { shared: false } => ("With work on each thread's own state", "steps"),
        Axis::Work { shared: true } => ("With work on state that all threads share", "steps"),
        Axis::Threads { .. } => ("With more threads", "threads"),
        Axis::Option { of, .. } => ("With other values of the option", of.unit),
    };
    let (first, last) = (sweep.stops.first()?.at, sweep.stops.last()?.at);
    let all = sweep.crossings(results);
    let real: Vec<String> = all
        .iter()
        .filter(|crossing| crossing.real)
        .map(|crossing| {
            format!(
                "{} overtakes {} at about {:.0} {unit} (between {} and {})",
                sweep.names[crossing.after],
                sweep.names[crossing.before],
                crossing.at,
                crossing.between.0,
                crossing.between.1
            )
        })
        .collect();
    let within = all.len() - real.len();
    let noise = match within {
        0 => String::new(),
        1 => "; one more crossing is within the noise".into(),
        n => format!("; {n} more crossings are within the noise"),
    };
    let best = |stop: usize| sweep.best(results, stop).map(|design| sweep.names[design].clone());
    let best = match (best(0), best(sweep.stops.len() - 1)) {
        (Some(a), Some(b)) => {
            format!(" Most is received by {a} at {first} {unit}, and by {b} at {last}.")
        }
        _ => String::new(),
    };
    let changes = match real.is_empty() {
        true => format!(
            "no design overtakes another beyond the noise between {first} and {last} {unit}"
        ),
        false => {
            let more = real.len().saturating_sub(MOST_CROSSINGS);
            let mut named: Vec<String> = real.into_iter().take(MOST_CROSSINGS).collect();
            if more > 0 {
                named.push(format!("{more} further ones"));
            }
            list(&named)
        }
    };
    Some(format!("{kind}: {changes}{noise}.{best}"))
}

fn receive_offload(results: &Results) -> Vec<String> {
    let said = (0..results.loads.len()).filter_map(|load| {
        let gains = offload::of_load(results, load)?;
        let best = gains.best?;
        let of = |gain: offload::Gain| match gain.ratio.ratio() {
            Some(ratio) => {
                format!("{} {} ({})", times(&ratio), results.rows[gain.plain], worth(&gain.ratio))
            }
            None => {
                format!("not comparable with {} (no comparable rounds)", results.rows[gain.plain])
            }
        };
        let traditional = gains.to_traditional.map(|gain| format!("; it is {}", of(gain)));
        Some(format!(
            "{}: the best with it, {}, is {}, the best without{}.",
            first_upper(&results.loads[load]),
            results.rows[best.offloaded],
            of(best),
            traditional.unwrap_or_default()
        ))
    });
    said.collect()
}

/// The rows with the highest rates that lose nothing, and little.
fn highest(results: &Results) -> Vec<String> {
    let searched = |load: &&Load| matches!(load.rate, Rate::Search { .. });
    let Some(like) = results.loads.iter().find(searched) else { return vec![] };
    [Goal::NoDrop, Goal::PartialDrop]
        .into_iter()
        .map(|goal| {
            let of = |row: usize| curve::highest_of(results, like, row, goal);
            let mut known: Vec<(usize, f64, Highest)> = (0..results.rows.len())
                .filter(|row| results.again(false).is_none_or(|(_, second)| second != *row))
                .filter_map(|row| Some((row, of(row).good()?, of(row))))
                .collect();
            known.sort_by(|a, b| b.1.total_cmp(&a.1));
            let what = match goal {
                Goal::NoDrop => "no-drop rate (nothing lost in at least half of the runs)",
                Goal::PartialDrop => "partial-drop rate (at most 0.5 % lost)",
            };
            match known.as_slice() {
                [] => format!("No row has a {what}."),
                [(row, rate, highest), others @ ..] => {
                    let sign =
                        if matches!(highest, Highest::AtLeast(_)) { "at least " } else { "" };
                    let next: Vec<String> = others
                        .iter()
                        .map(|(row, rate, _)| format!("{} {}", results.rows[*row], si(*rate)))
                        .collect();
                    let next = match next.is_empty() {
                        true => String::new(),
                        false => format!("; then {}", list(&shortened(next))),
                    };
                    format!(
                        "The highest {what}: {} with {sign}{}/s{next}.",
                        results.rows[*row],
                        si(*rate)
                    )
                }
            }
        })
        .collect()
}

#[cfg(test)]
mod tests;
