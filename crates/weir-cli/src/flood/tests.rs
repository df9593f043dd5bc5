//! The command line of `weir flood`.

use clap::Parser;

use anyhow::anyhow;

use super::*;
use crate::{exit::DATA_ERRORS, shown::Ending};

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    flood: FloodArgs,
}

fn parse(line: &str) -> Result<FloodSpec, String> {
    let words = std::iter::once("flood").chain(line.split_whitespace());
    let command = Command::try_parse_from(words).map_err(|error| error.to_string())?;
    specify(&command.flood).map_err(|error| error.to_string())
}

fn spec(line: &str) -> FloodSpec {
    parse(line).unwrap_or_else(|error| panic!("{line}: {error}"))
}

#[test]
fn iperf3s_spelling() {
    let spec = spec("127.0.0.1 -u -p 5201 -t 3 -l 1k -P 4 -b 100M -i 0 -O 1");
    assert_eq!((spec.ports.as_slice(), spec.size_bytes, spec.flows), (&[5201][..], 1024, 4));
    assert_eq!((spec.duration, spec.warm_up), (Duration::from_secs(3), Duration::from_secs(1)));
    assert_eq!(spec.load, Load::Paced { datagrams_per_s: 100e6 / 8192.0 });
    assert_eq!(spec.interval, None);
}

#[test]
fn rates_in_three_ways_and_none() {
    assert_eq!(spec("::1 -p 1").load, Load::Saturation);
    assert_eq!(spec("::1 -p 1 --pps 500k").load, Load::Paced { datagrams_per_s: 500_000.0 });
    let linked = spec("127.0.0.1 -p 1 -l 18 --link 50% --link-speed 10G");
    assert_eq!(linked.load, Load::from_link(0.5, 1e10, 18, false));
    for wrong in [
        "127.0.0.1 -p 1 --pps 5 -b 5",
        "127.0.0.1 -p 1 --link 50%",
        "127.0.0.1 -p 1 --link 150% --link-speed 10G",
        "127.0.0.1 -p 1 -b 5 -l 0",
        "127.0.0.1 -p 1 --pps 0",
        "127.0.0.1 -p 99999",
        "127.0.0.1 -t 10y -p 1",
    ] {
        assert!(parse(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn every_flood_has_an_end() {
    assert_eq!(spec("::1 -p 1").duration, DURATION);
    assert_eq!(spec("::1 -p 1 -k 50M").duration, DURATION_OF_A_NUMBER);
    assert_eq!(spec("::1 -p 1 -k 50M --max-time 5").duration, Duration::from_secs(5));
    assert_eq!(spec("::1 -p 1 -k 50M --max-time 1h").duration, Duration::from_secs(3600));
    assert_eq!(spec("::1 -p 1 --max-time 5").duration, Duration::from_secs(5));
    assert_eq!(spec("::1 -p 1 -t 3 --max-time 5").duration, Duration::from_secs(3));
}

#[test]
fn a_time_a_number_of_bytes_or_one_of_datagrams_ends_it() {
    let datagrams = |line: &str| spec(&format!("::1 -p 1 {line}")).datagrams;
    assert_eq!(datagrams("-t 5"), None);
    assert_eq!(datagrams("-k 50M"), Some(50_000_000));
    assert_eq!(datagrams("--blockcount 7"), Some(7));
    assert_eq!(datagrams("--datagrams 7"), Some(7));
    assert_eq!(datagrams("-n 1M -l 1k"), Some(1024));
    assert_eq!(datagrams("--bytes 1025 -l 1k"), Some(2), "rounded up");
    for two in ["-t 5 -n 5", "-t 5 -k 5", "-n 5 -k 5"] {
        let error = parse(&format!("::1 -p 1 {two}")).expect_err(two);
        assert!(error.contains("cannot be used with"), "{two}: {error}");
    }
    assert!(parse("::1 -p 1 -n 5 -l 0").expect_err("no bytes").contains("-k"));
    assert!(parse("::1 -p 1 -n 0").is_ok_and(|spec| spec.check().is_err()));
    assert!(parse("::1 -p 1 -i 1ms").expect_err("too often").contains("10ms"));
}

#[test]
fn the_control_channel_is_an_address_or_a_port_of_the_target() {
    let control = |line: &str| spec(line).control.expect("given").to_string();
    assert_eq!(control("127.0.0.1 --control 5200"), "127.0.0.1:5200");
    assert_eq!(control("::1 --control :5200"), "[::1]:5200");
    assert_eq!(control("127.0.0.1 --control 127.0.0.2:5200"), "127.0.0.2:5200");
    assert!(parse("127.0.0.1 --control nonsense").is_err());
}

#[test]
fn a_server_is_named_as_it_names_itself() {
    for (line, target, ports) in [
        ("127.0.0.1", "127.0.0.1", &[8080][..]),
        ("127.0.0.1:7012", "127.0.0.1", &[7012]),
        ("127.0.0.1:7012 -p 7012", "127.0.0.1", &[7012]),
        ("127.0.0.1 -p 7,8", "127.0.0.1", &[7, 8]),
        ("::1", "::1", &[8080]),
        ("[::1]", "::1", &[8080]),
        ("[::1]:7012", "::1", &[7012]),
        ("127.0.0.1 --control 5200", "127.0.0.1", &[]),
        ("127.0.0.1:7012 --control 5200", "127.0.0.1", &[7012]),
    ] {
        let found = spec(line);
        assert_eq!((found.target.to_string().as_str(), &*found.ports), (target, ports), "{line}");
    }
    assert_eq!(spec("localhost:7012").ports, [7012]);
    for (wrong, said) in [
        ("127.0.0.1:7012 -p 7012,7013", "has port 7012, and --port says 7013"),
        ("127.0.0.1:99999", "is not a port"),
        ("127.0.0.1:", "is not a port"),
    ] {
        let refused = parse(wrong).expect_err(wrong);
        assert!(refused.contains(said), "{wrong}: {refused}");
    }
}

#[test]
fn clocks_are_told_by_what_they_showed_at_one_moment() {
    let offset = |clocks: &str| {
        let spec = parse(&format!("10.0.0.1 --control :5200 --clocks {clocks}"))?;
        Ok::<_, String>(spec.ask().clock_offset_ns)
    };
    assert_eq!(offset("7000000000:5"), Ok(Some(6_999_999_995)));
    assert_eq!(offset("0:90000000000000"), Ok(Some(-90_000_000_000_000)));
    assert_eq!(spec("::1 -p 1").ask().clock_offset_ns, None);
    for wrong in ["5", "5:", "a:5", "18446744073709551615:0"] {
        let said = offset(wrong).expect_err(wrong);
        assert!(said.contains("is not what two clocks showed in ns, such as 1000:2000"), "{said}");
    }
    assert!(parse("127.0.0.1 -p 1 --clocks 1:2").unwrap_err().contains("--control"));
}

#[test]
fn exit_codes_tell_what_happened() {
    let usage = FloodSpec::new([192, 0, 2, 1].into()).check().expect_err("needs consent");
    assert_eq!(code_of_error(&usage.into()), USAGE);
    assert_eq!(code_of_error(&Usage("wrong".into()).into()), USAGE);
    let absent = weir::Unavailable::new("engine uring", "forbidden");
    assert_eq!(code_of_error(&FloodError::from(absent).into()), UNAVAILABLE);
    assert_eq!(code_of_error(&FloodError::Panicked("so".into()).into()), FAILED);
    assert_eq!(code_of_error(&anyhow!("anything else")), FAILED);
}

/// A short flood of a port of our own that nobody reads.
fn report() -> FloodReport {
    let sink = std::net::UdpSocket::bind("127.0.0.1:0").expect("loopback");
    let port = sink.local_addr().expect("it has an address").port();
    let spec = spec(&format!("127.0.0.1 -p {port} -k 10 --engine send"));
    weir_load::flood(&spec, &Arc::default(), |_| {}).expect("it can begin")
}

fn ending(report: &FloodReport) -> Ending {
    show::ending(report, false)
}

#[test]
fn a_flood_of_requests_that_nobody_answers_is_no_success() {
    let sink = std::net::UdpSocket::bind("127.0.0.1:0").expect("loopback");
    let port = sink.local_addr().expect("it has an address").port();
    let spec = spec(&format!("127.0.0.1 -p {port} -k 10 --reply"));
    let report = weir_load::flood(&spec, &Arc::default(), |_| {}).expect("it can begin");
    assert!(report.sent > 0);
    let ending = ending(&report);
    assert_eq!(ending.code(), FAILED);
    assert!(matches!(ending, Ending::Failed(why) if why.contains("requests was answered")));
}

#[test]
fn a_load_that_was_not_made_is_no_success_unless_any_may_be() {
    let mut report = report();
    (report.windows, report.windows_within) = (Some(100), Some(98));
    (report.pace_held, report.late_skipped) = (Some(false), 7);
    assert_eq!(ending(&report).code(), DATA_ERRORS);
    assert!(
        matches!(ending(&report), Ending::Invalid(why) if why.contains("7 datagrams were skipped"))
    );
    assert_eq!(show::ending(&report, true).code(), 0);
    report.sent -= 1;
    assert_eq!(
        show::ending(&report, true).code(),
        DATA_ERRORS,
        "its counts are wrong all the same"
    );
    report.sent += 1;
    report.pace_held = Some(true);
    assert_eq!(ending(&report).code(), 0);
}

#[test]
fn a_document_has_the_same_fields_with_and_without_a_report() {
    let report = report();
    let serde_json::Value::Object(fields) = serde_json::to_value(&report).expect("writable") else {
        panic!("an object")
    };
    let mut names: Vec<&str> = fields.keys().map(String::as_str).collect();
    let mut listed = show::REPORT_FIELDS.to_vec();
    names.sort_unstable();
    listed.sort_unstable();
    assert_eq!(names, listed);
}

#[test]
fn a_report_of_failure_or_wrong_data_is_no_success() {
    let mut report = report();
    assert_eq!(ending(&report).code(), 0);
    report.report = Some(serde_json::json!({ "audit": { "data_errors": true } }));
    assert_eq!(ending(&report).code(), DATA_ERRORS);
    report.report = Some(serde_json::json!({ "data_errors": true }));
    assert_eq!(ending(&report).code(), DATA_ERRORS);
    report.report = None;
    report.sent -= 1;
    assert_eq!(ending(&report).code(), DATA_ERRORS);
    assert!(invalid(&report).expect("it says why").contains("9 sent"));
    (report.sent, report.refused) = (0, report.offered);
    assert_eq!(ending(&report).code(), FAILED);
    assert!(failure_of(&report).expect("it says why").contains("listen"));
}

#[test]
fn loss_beyond_a_stated_share_is_no_success() {
    for (line, share) in
        [("0", Some(0.0)), ("0%", Some(0.0)), ("0.1%", Some(0.001)), ("5", Some(0.05))]
    {
        let parsed = spec(&format!("::1 --control 5200 --max-loss {line}")).max_loss;
        assert_eq!(
            parsed.map(|share| (share * 1e6) as u64),
            share.map(|share| (share * 1e6) as u64)
        );
    }
    assert!(parse("::1 -p 1 --max-loss 1%").expect_err("nobody tells").contains("--control"));
    assert!(parse("::1 --control 5200 --max-loss 101%").is_err());
    let mut report = report();
    (report.lost_packets, report.lost_percent) = (Some(1), Some(10.0));
    assert_eq!(ending(&report).code(), 0, "no limit was set");
    report.max_loss_percent = Some(10.0);
    assert_eq!(ending(&report).code(), 0);
    report.max_loss_percent = Some(9.0);
    assert_eq!(ending(&report).code(), DATA_ERRORS);
    assert!(matches!(ending(&report), Ending::LimitExceeded(why) if why.contains("1 of 10")));
    assert_eq!(invalid(&report), None, "its counts are right");
    (report.lost_packets, report.lost_percent) = (None, None);
    assert_eq!(ending(&report).code(), DATA_ERRORS, "nobody knows");
    let unknown = "what was lost is not known";
    assert!(matches!(ending(&report), Ending::LimitExceeded(why) if why.contains(unknown)));
    report.max_loss_percent = None;
    assert_eq!(ending(&report).code(), 0, "no limit was set");
}

#[test]
fn a_unix_socket_is_no_target_and_what_takes_it_is_said() {
    let said = parse("unix:/run/x.sock").unwrap_err();
    for word in ["is a Unix socket", "weir load tcp unix:/run/x.sock", "UNIX-SENDTO:/run/x.sock"] {
        assert!(said.contains(word), "{word:?} is missing of {said}");
    }
}
