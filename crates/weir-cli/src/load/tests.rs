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
    specify(&command.load, false).map_err(|error| error.to_string())
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
        "::1 --parallel 2 --length 1-64k --messages-per-s 5k --one-way --threads 2 --cpu 0-1";
    let spec = spec(line);
    assert_eq!((spec.connections, spec.threads, &spec.cores[..]), (2, 2, &[0, 1][..]));
    assert_eq!(spec.sizes, Sizes { least: 1, most: 65_536 });
    assert_eq!((spec.pace, spec.one_way), (Pace::Open { messages_per_s: 5000.0 }, true));
    assert_eq!(spec.duration, DURATION);
}

#[test]
fn a_file_is_one_message_and_each_connection_sends_it_once() {
    let path = std::env::temp_dir().join(format!("weir-load-file-{}", std::process::id()));
    std::fs::write(&path, vec![7; 1000]).expect("it can be written");
    let line = |options: &str| format!("127.0.0.1 -F {} {options}", path.display());
    let once = spec(&line("-c 3"));
    assert_eq!((once.file.as_deref(), once.sends), (Some(&*path), Some(1)));
    assert_eq!((once.file_by, once.duration), (FileBy::Sendfile, DURATION_OF_A_NUMBER));
    assert!(spec(&line("-t 3 --together")).together);
    let timed = spec(&line("-t 3 --file-by copy -r 5k --half-close"));
    assert_eq!((timed.file_by, timed.sends, timed.half_close), (FileBy::Copy, None, true));
    assert_eq!(timed.pace, Pace::Open { messages_per_s: 5.0 }, "of messages of 1000 bytes");
    let wrong = [line("-b 5"), "127.0.0.1 --file-by copy".into(), "::1 -F /no/such".into()];
    for (line, said) in wrong.iter().zip(["cannot be used with", "--file", "cannot send /no/such"])
    {
        let error = parse(line).expect_err(line);
        assert!(error.contains(said), "{line}: {error}");
    }
    std::fs::remove_file(&path).expect("it is there");
}

#[test]
fn what_many_connections_take_grows_with_them() {
    let held = spec("127.0.0.1 -c 50k --blocks 10 --every 60s");
    assert_eq!(held.connections_in_all(), 500_000);
    assert_eq!(held.pace, Pace::Open { messages_per_s: 500_000.0 / 60.0 });
    assert_eq!(held.drain, Duration::from_secs(55));
    assert_eq!(held.setup_max, Duration::from_secs(370));
    let few = spec("127.0.0.1 --drain 1 --setup-time 2");
    assert_eq!((few.drain, few.setup_max), (Duration::from_secs(1), Duration::from_secs(2)));
}

#[test]
fn a_server_is_named_as_it_names_itself() {
    for (line, target) in [
        ("127.0.0.1", "127.0.0.1:5150"),
        ("127.0.0.1 -p 7", "127.0.0.1:7"),
        ("127.0.0.1:7012", "127.0.0.1:7012"),
        ("127.0.0.1:7012 -p 7012", "127.0.0.1:7012"),
        ("localhost:7012", "127.0.0.1:7012"),
        ("::1", "[::1]:5150"),
        ("::1 -p 7", "[::1]:7"),
        ("[::1]", "[::1]:5150"),
        ("[::1]:7012", "[::1]:7012"),
    ] {
        // A name may have an address of either kind.
        let found = spec(line).target;
        assert!(
            found.to_string() == target || line.starts_with("localhost") && found.port() == 7012,
            "{line}: {found}"
        );
    }
}

#[test]
fn that_nothing_comes_back_is_told_once_after_about_a_second() {
    let interval = |from_ms: u64, to_ms: u64, bytes_sent, bytes_received| tcp::Progress {
        from_ns: from_ms * 1_000_000,
        to_ns: to_ms * 1_000_000,
        open: 1,
        attempted: 1,
        connected: 1,
        messages: 0,
        bytes_sent,
        bytes_received,
    };
    let told = |intervals: &[tcp::Progress]| -> Vec<bool> {
        let mut silence = show::Silence::default();
        intervals.iter().map(|interval| silence.hints_at(interval)).collect()
    };
    let silent = [
        interval(0, 500, 0, 0),
        interval(500, 1000, 64, 0),
        interval(1000, 1500, 0, 0),
        interval(1500, 2000, 0, 0),
    ];
    assert_eq!(told(&silent), [false, false, true, false]);
    assert_eq!(told(&[interval(0, 1000, 64, 0)]), [true]);
    assert_eq!(told(&[interval(0, 500, 64, 64), interval(500, 9000, 64, 0)]), [false, false]);
    assert_eq!(told(&[interval(0, 5000, 0, 0)]), [false], "nothing was sent");
}

#[test]
fn what_makes_no_sense_is_refused() {
    for (wrong, said) in [
        ("192.0.2.1", "loopback"),
        ("127.0.0.1 -b 0", "--buffer"),
        ("127.0.0.1 -b 0 -r 5", "have no rate"),
        ("127.0.0.1 -b 9-8", "shortest"),
        ("127.0.0.1 -b 5G", "not a bit rate"),
        ("127.0.0.1 -b -5", "-5"),
        ("127.0.0.1 -c 5G", "too many"),
        ("127.0.0.1 -c 0", "--connections"),
        ("127.0.0.1 -r 5 --messages-per-s 5", "cannot be used with"),
        ("127.0.0.1 -r 5 --every 5", "cannot be used with"),
        ("127.0.0.1 --every 0", "an interval of 0 s gives no rate"),
        ("127.0.0.1 -b 100M", "not a bit rate"),
        ("127.0.0.1:7012 -p 7013", "--port says 7013"),
        ("127.0.0.1:99999", "is not a port"),
        ("127.0.0.1:", "is not a port"),
        ("127.0.0.1 --cpu 1-", "list of cores"),
        ("127.0.0.1 -t 0", "--time"),
        ("127.0.0.1 -x 5 -O 1", "--omit"),
        ("127.0.0.1 -i 1ms", "10ms"),
        ("127.0.0.1 -p 0", "port 0"),
        ("127.0.0.1 --engine epoll", "uring, readiness"),
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
    let document: serde_json::Value =
        serde_json::from_str(&failure("so", false)).expect("a document");
    assert_eq!((&document["status"], &document["reason"]), (&"failed".into(), &"so".into()));
    assert!(document["report"].is_null() && document["intervals"].is_array(), "{document}");
}
