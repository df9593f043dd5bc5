//! `weir compare` without a word: UDP, TCP and devices, one after the other, each with its part of the time.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use weir_lab::report::document::{SCHEMA_VERSION, failure, with};
use weir_lab::stats::random::fresh_seed;

use super::common::{ALL_QUICK_S, ALL_STANDARD_S, CommonArgs, OfAll};
use super::context::Context;
use super::iops::IopsArgs;
use super::part::{Content, Part};
use super::tcp::TcpArgs;
use super::udp::UdpArgs;
use super::{iops, tcp, udp};
use crate::exit::{self, Failure};

/// What the document is about.
const KIND: &str = "all";

/// A kind of comparison: its name in the document, what a person reads above it, and its part of the time,
/// which follows from how many rows it has and what starting one costs.
struct Kind {
    name: &'static str,
    heading: &'static str,
    weight: f64,
    compare: fn(&OfAll, &Context) -> Result<Part, Failure>,
}

const KINDS: [Kind; 3] = [
    Kind {
        name: "udp",
        heading: "UDP (for more: weir compare udp)",
        weight: 69.0,
        compare: |of, context| udp::compare(&UdpArgs::of_all(of), context),
    },
    Kind {
        name: "tcp",
        heading: "TCP (for more: weir compare tcp)",
        weight: 37.0,
        compare: |of, context| tcp::compare(&TcpArgs::of_all(of), context),
    },
    Kind {
        name: "iops",
        heading: "I/Os per second (for more: weir compare iops)",
        weight: 27.0,
        compare: |of, context| iops::compare(&IopsArgs::of_all(of), context),
    },
];

/// Compares all three, one after the other.
pub fn compare(args: &UdpArgs, context: &Context) -> Result<Part, Failure> {
    let Context { command, interrupt, .. } = context;
    let all = args.time.unwrap_or(Duration::from_secs(if args.quick {
        ALL_QUICK_S
    } else {
        ALL_STANDARD_S
    }));
    let has_time = args.time.is_some() || args.common.rounds.is_none();
    let ends = Instant::now() + all;
    let seed = args.common.seed.unwrap_or_else(fresh_seed);
    let mut parts = vec![];
    for (index, kind) in KINDS.iter().enumerate() {
        // What the ones before did not use is left to the others.
        let left = if args.common.dry_run {
            left_by_plan(all, index)
        } else {
            ends.saturating_duration_since(Instant::now())
        };
        let of = OfAll {
            quick: args.quick,
            time: has_time.then(|| share(left, index)),
            server_cpu: args.server_cpu.clone(),
            generator_cpu: args.generator_cpu.clone(),
            common: CommonArgs { seed: Some(seed), ..args.common.clone() },
        };
        say!("\n{}", kind.heading);
        let compared = match interrupt.is_raised() {
            true => Err(Failure::failed("interrupted before it began")),
            false => (kind.compare)(&of, context),
        };
        parts.push(match compared {
            // It would be so for the others, too.
            Err(failed) if failed.code == exit::USAGE => return Err(failed),
            Err(failed) => {
                let said = format!("weir compare {}: {}", kind.name, failed.message);
                say!("{said}");
                Part::of(failed.code, said + "\n", failure(command, &failed.message, failed.code))
            }
            Ok(part) => part,
        });
    }
    let interrupted = interrupt.is_raised();
    Ok(together(parts, command.to_vec(), seed, interrupted))
}

/// What a screen begins with whose parts say no such thing, as they have no place for it.
const INTERRUPTED: &str = "warning: interrupted; the results are partial\n\n";

/// All parts as one.
fn together(parts: Vec<Part>, command: Vec<String>, seed: u64, interrupted: bool) -> Part {
    let codes: Vec<u8> = parts.iter().map(|part| part.code).collect();
    let document = json!({
        "schema_version": SCHEMA_VERSION,
        "kind": KIND,
        "command": command,
        "seed": seed,
        "interrupted": interrupted,
        "error": null,
    });
    let of_kinds = KINDS.iter().zip(&parts);
    let of_kinds = of_kinds.map(|(kind, part)| (kind.name.to_owned(), part.document.clone()));
    Part {
        code: if interrupted { exit::INTERRUPTED } else { overall(&codes) },
        document: with(document, Value::Object(of_kinds.collect())),
        said: if interrupted { INTERRUPTED.into() } else { String::new() },
        content: Content::All(KINDS.iter().map(|kind| kind.heading).zip(parts).collect()),
    }
}

/// The part that a kind has of the time that is left to it and those behind it.
fn share(left: Duration, index: usize) -> Duration {
    let behind: f64 = KINDS[index..].iter().map(|kind| kind.weight).sum();
    left.mul_f64(KINDS[index].weight / behind)
}

/// What is left to a kind where each before it takes what it is given.
fn left_by_plan(all: Duration, index: usize) -> Duration {
    (0..index).fold(all, |left, before| left - share(left, before))
}

/// The exit code of all: what failed is told first, and only where nothing could run, that.
fn overall(codes: &[u8]) -> u8 {
    let any = |code: u8| codes.contains(&code);
    if any(exit::FAILED) {
        exit::FAILED
    } else if any(exit::DATA_ERRORS) {
        exit::DATA_ERRORS
    } else if codes.iter().all(|code| *code == exit::UNAVAILABLE) {
        exit::UNAVAILABLE
    } else {
        exit::OK
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_shared_out_and_what_is_left_is_the_last_ones() {
        let all = Duration::from_secs(ALL_STANDARD_S);
        let shares: Vec<f64> =
            (0..3).map(|index| share(left_by_plan(all, index), index).as_secs_f64()).collect();
        for (share, wanted) in shares.iter().zip([69.0, 37.0, 27.0]) {
            assert!((share - wanted).abs() < 1e-6, "{shares:?}");
        }
        assert_eq!(share(Duration::from_secs(50), 2), Duration::from_secs(50));
        assert_eq!(share(Duration::ZERO, 0), Duration::ZERO);
    }

    #[test]
    fn the_worst_is_told_and_one_that_cannot_run_here_is_none() {
        use exit::{DATA_ERRORS, FAILED, OK, UNAVAILABLE};
        assert_eq!(overall(&[OK, UNAVAILABLE, UNAVAILABLE]), OK);
        assert_eq!(overall(&[UNAVAILABLE; 3]), UNAVAILABLE);
        assert_eq!(overall(&[OK, DATA_ERRORS, UNAVAILABLE]), DATA_ERRORS);
        assert_eq!(overall(&[DATA_ERRORS, OK, FAILED]), FAILED);
    }
}
