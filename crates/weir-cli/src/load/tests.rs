//! The command line of `weir load tcp`.

use clap::Parser;

use super::*;

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    load: LoadTcp,
}

fn parse(line: &str) -> Result<LoadSpec, String> {
    let words = std::iter::once("load").chain(line.split_whitespace());
    let command = Command::try_parse_from(words).map_err(|error| error.to_string())?;
    specify(&command.load).map_err(|error| error.to_string())
}

fn spec(line: &str) -> LoadSpec {
    parse(line).unwrap_or_else(|error| panic!("{line}: {error}"))
}

#[test]
fn the_originals_spelling() {
    let spec = spec("127.0.0.1 -c 1000 --blocks 12 -r 200k -b 4k -x 50 -o 3");
    assert_eq!((spec.connections, spec.blocks, spec.outstanding), (1000, 12, 3));
    assert_eq!((spec.sizes, spec.sends), (Sizes::of(4096), Some(50)));
    // 200,000 bytes/s for each whole block.
    assert_eq!(spec.pace, Pace::Open { messages_per_s: 200_000.0 / 4096.0 * 12.0 });
    assert_eq!((spec.target.port(), spec.duration), (5150, DURATION_OF_A_NUMBER));
}

#[test]
fn iperf3s_spelling() {
    let spec = spec("127.0.0.1 -p 5201 -t 3 -l 1k -P 4 -i 0 -O 1");
    assert_eq!((spec.target.port(), spec.connections, spec.sizes), (5201, 4, Sizes::of(1024)));
    assert_eq!((spec.duration, spec.warm_up), (Duration::from_secs(3), Duration::from_secs(1)));
    assert_eq!((spec.interval, spec.pace), (None, Pace::Closed));
}

#[test]
fn long_names() {
    let line =
        "::1 --parallel 2 --length 1-64k --messages-per-s 5k --one-way --threads 2 --cpu 0,1";
    let spec = spec(line);
    assert_eq!((spec.connections, spec.threads, &spec.cores[..]), (2, 2, &[0, 1][..]));
    assert_eq!(spec.sizes, Sizes { least: 1, most: 65_536 });
    assert_eq!((spec.pace, spec.one_way), (Pace::Open { messages_per_s: 5000.0 }, true));
    assert_eq!(spec.duration, DURATION);
}

#[test]
fn what_makes_no_sense_is_refused() {
    for (wrong, said) in [
        ("192.0.2.1", "loopback"),
        ("127.0.0.1 -b 0", "--buffer"),
        ("127.0.0.1 -b 0 -r 5", "have no rate"),
        ("127.0.0.1 -b 9-8", "shortest"),
        ("127.0.0.1 -b 5G", "too long"),
        ("127.0.0.1 -b -5", "-5"),
        ("127.0.0.1 -c 5G", "too many"),
        ("127.0.0.1 -c 0", "--connections"),
        ("127.0.0.1 -r 5 --messages-per-s 5", "cannot be used with"),
        ("127.0.0.1 -t 0", "--time"),
        ("127.0.0.1 -x 5 -O 1", "--omit"),
        ("127.0.0.1 -i 1ms", "10ms"),
        ("127.0.0.1 -p 0", "port 0"),
    ] {
        let error = parse(wrong).expect_err(wrong);
        assert!(error.contains(said), "{wrong}: {error}");
    }
}

#[test]
fn exit_codes_tell_what_happened() {
    let target = "192.0.2.1:9".parse().expect("an address");
    let usage = LoadSpec::new(target).check().expect_err("not on loopback");
    assert_eq!(code_of_error(&usage.into()), USAGE);
    assert_eq!(code_of_error(&Usage("wrong".into()).into()), USAGE);
    let absent = weir::Unavailable::new("the load of connections", "not here");
    assert_eq!(code_of_error(&LoadError::from(absent).into()), UNAVAILABLE);
    assert_eq!(code_of_error(&LoadError::Panicked("so".into()).into()), FAILED);
    assert_eq!(code_of_error(&anyhow::anyhow!("anything else")), FAILED);
}

#[test]
fn a_load_that_was_not_tried_has_a_document() {
    let document: serde_json::Value = serde_json::from_str(&failure("so")).expect("a document");
    assert_eq!((&document["status"], &document["reason"]), (&"failed".into(), &"so".into()));
    assert!(document["report"].is_null() && document["intervals"].is_array(), "{document}");
}
