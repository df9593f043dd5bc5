//! Runs whose two children are played by a script.

use std::path::Path;

use super::*;
use crate::child::script::Script;
use crate::experiment::plan::Row;
use crate::udp::plan::{Held, Rate};

const READY: &str = r#"echo '{"ready":{"addresses":["127.0.0.1:9"],"control":"127.0.0.1:10","settings":{"threads":"1"}}}'"#;
const SERVED: &str =
    r#"echo '{"design":"epoll","threads_used":1,"window":{"elapsed_ns":1000,"datagrams":2}}'"#;
const FLOODED: &str = r#"echo '{"offered":3,"sent":3,"elapsed_ns":1000000}'"#;

fn bench(program: &Path) -> Processes {
    Processes::new(program.to_owned(), vec![0], Some(1), Interrupt::new(), None)
}

fn run_with(serve: &str, flood: &str) -> Result<Made, RunError> {
    let script = Script::new(&[("serve", serve), ("flood", flood)]);
    let row = Row::parse("epoll").unwrap();
    let load = Load::saturation(64);
    let extent = Extent::Timed { warmup_ms: 0, run_ms: 10 };
    bench(script.path()).run_once(&Run { row: &row, load: &load, extent })
}

fn failure(serve: &str, flood: &str) -> String {
    match run_with(serve, flood).unwrap_err() {
        RunError::Failed(text) => text,
        other => panic!("{other:?}"),
    }
}

#[test]
fn both_reports_come_back() {
    // The server ends when its input does, as the real one.
    let Made { server, flood, load_of_others } =
        run_with(&format!("{READY}; {SERVED}; read line || exit 0"), FLOODED).unwrap();
    assert_eq!((server.window.datagrams, flood.sent), (2, 3));
    assert_eq!(server.settings["threads"], "1");
    assert!(load_of_others.is_none_or(|share| (0.0..=1.0).contains(&share)));
}

#[test]
fn a_server_that_crashes_in_its_check_is_quoted() {
    // Nobody listens where it says it does, and it has ended.
    let script = Script::new(&[
        ("serve", &format!("{READY}; echo ouch >&2; exit 101")),
        ("flood", "exit 1"),
    ]);
    let row = Row::parse("epoll").unwrap();
    let error = bench(script.path()).echo(&row, &Load::saturation(64)).unwrap_err().to_string();
    assert!(error.starts_with("the server ended with exit status: 101"), "{error}");
    assert!(error.contains("ouch"), "{error}");
}

#[test]
fn a_server_that_cannot_run_here_makes_the_row_unavailable() {
    let serve =
        r#"echo '{"error":{"unavailable":true,"message":"io_uring_setup: EPERM"}}'; exit 5"#;
    assert_eq!(
        run_with(serve, FLOODED).unwrap_err(),
        RunError::Unavailable("io_uring_setup: EPERM".into())
    );
}

#[test]
fn a_server_that_crashes_in_the_middle_is_blamed_for_what_the_generator_says() {
    let flood = r#"echo '{"error":{"message":"the control connection is lost"}}'; exit 1"#;
    let text = failure(&format!("{READY}; echo ouch >&2; exit 101"), flood);
    assert!(text.contains("the server ended with exit status: 101"), "{text}");
    assert!(text.contains("ouch"), "{text}");
}

#[test]
fn a_generator_that_fails_alone_is_quoted() {
    let flood = r#"echo '{"status":"failed","reason":"the server is of another build"}'; exit 1"#;
    let text = failure(&format!("{READY}; exec sleep 100"), flood);
    assert_eq!(text, "the server is of another build");
}

#[test]
fn a_report_of_a_flood_that_failed_is_no_result() {
    let flood =
        r#"echo '{"status":"failed","reason":"the control connection was lost","sent":null}'"#;
    let text = failure(&format!("{READY}; exec sleep 100"), flood);
    assert_eq!(text, "the control connection was lost");
}

#[test]
fn garbage_from_either_is_no_result() {
    let text = failure("echo Hello", FLOODED);
    assert!(text.contains("the server sent something other than its ready line"), "{text}");
    let text = failure(&format!("{READY}; exec sleep 100"), "echo '{\"sent\":'");
    assert!(text.contains("the generator sent something other than its report"), "{text}");
}

#[test]
fn calibration_takes_the_rate_that_was_sent() {
    let script = Script::new(&[("serve", "exit 1"), ("flood", FLOODED)]);
    assert_eq!(bench(script.path()).calibrate(&Load::saturation(64)), Ok(3000.0));
    let nothing =
        Script::new(&[("serve", "exit 1"), ("flood", r#"echo '{"sent":0,"elapsed_ns":5}'"#)]);
    let error = bench(nothing.path()).calibrate(&Load::saturation(64)).unwrap_err();
    assert_eq!(error.to_string(), "the generator sent nothing");
}

#[test]
fn a_burst_is_a_number_of_datagrams_to_a_server_that_is_held() {
    let bench = bench(Path::new("/bin/weir"));
    let row = Row::parse("rio-event").unwrap();
    let rcvbuf = ReceiveBuffer::Outstanding;
    let load = Load { rcvbuf, ..Load::saturation(64) }
        .at(Rate::Burst { datagrams: 5000, held: Held::UntilSent });
    let run = course::Run { row: &row, load: &load, warmup_ms: 60, run_ms: 300 };
    let run = Run::of(&run);
    assert_eq!(run.extent, Extent::Burst { datagrams: 5000 });
    assert_eq!(
        bench.server(&run).to_string(),
        "/bin/weir serve udp --design rio-event --bind 127.0.0.1:0 --control 127.0.0.1:0 --cpu 0 \
         --hold sent --rcvbuf outstanding --once --end-with-input --json"
    );
    let generator =
        bench.generator(&load, run.per_second(), run.extent, Head::default(), &[7], None);
    assert_eq!(
        generator.to_string(),
        "/bin/weir flood 127.0.0.1 -p 7 --cpu 1 -l 64 -P 1 -k 5000 --max-time 30000ms -i 0 --json"
    );
    let own = Row::parse("rio-event --commit locked").unwrap();
    assert_eq!(memory(&own, &Load::saturation(64)), ["--rcvbuf", "system"], "as the row says");
    let peer = Row::parse_peer("talks=x").unwrap();
    assert!(memory(&peer, &load).is_empty(), "it has a buffer of its own");
}

#[test]
fn the_commands_can_be_repeated_by_hand() {
    let bench = bench(Path::new("/bin/weir"));
    let row = Row::parse("rio-hybrid --provider uring --threads 1").unwrap();
    let load = Load { work: "shared:500".parse().unwrap(), ports: 2, ..Load::saturation(64) }
        .at(Rate::PerSecond(50_000));
    let extent = Extent::Timed { warmup_ms: 150, run_ms: 600 };
    let run = Run { row: &row, load: &load, extent };
    assert_eq!(
        bench.server(&run).to_string(),
        "/bin/weir serve udp --design 'rio-hybrid --provider uring --threads 1' \
         --bind 127.0.0.1:0 --bind 127.0.0.1:0 --control 127.0.0.1:0 --cpu 0 \
         --work shared:500 --rcvbuf system --commit touched --once --end-with-input --json"
    );
    assert_eq!(
        bench
            .generator(
                &load,
                Some(50_000),
                extent,
                Head::default(),
                &[7, 8],
                "127.0.0.1:9".parse().ok()
            )
            .to_string(),
        "/bin/weir flood 127.0.0.1 -p 7,8 --control 127.0.0.1:9 --cpu 1 -l 64 -P 1 \
         --pps 50000 -t 600ms -O 150ms -i 0 --json"
    );
    let check = Run { extent: Extent::Checked { datagrams: 1000, flows: 4 }, ..run };
    assert!(bench.server(&check).to_string().contains("--verify-all"));
    let ipv6 = if bench.site.server_v6().is_some() { " --bind [::1]:0" } else { "" }
        .replace("[::1]:0", "'[::1]:0'");
    assert_eq!(
        bench.echo_server(&row, &Load::saturation(2000)).to_string(),
        format!(
            "/bin/weir serve udp --design 'rio-hybrid --provider uring --threads 1' --bind \
             127.0.0.1:0{ipv6} --cpu 0 --size 2000 --rcvbuf system --commit touched --echo --interval 0 --end-with-input --json"
        )
    );
    let two = Load { generators: 2, ..Load::saturation(64) };
    let shared = bench.generator(&two, None, extent, Head::default(), &[7], None).to_string();
    assert!(shared.contains("--cpu 1 -l 64 -P 1 --generators 2 -t"), "{shared}");
    let with_more = Processes::new("weir".into(), vec![0], Some(1), Interrupt::new(), None)
        .with_more_generator_cores(vec![3, 2]);
    let own = with_more.generator(&two, None, extent, Head::default(), &[7], None).to_string();
    assert!(own.contains("--cpu 1,3 "), "{own}");
    let offloaded = Load { receive_offload: true, ..load };
    let words = bench.server(&Run { load: &offloaded, ..run }).to_string();
    assert!(words.contains("--commit touched --receive-offload --once"), "{words}");
    let words = bench.echo_server(&row, &offloaded).to_string();
    assert!(words.contains("--receive-offload --echo"), "{words}");
    let polled = Load { busy_poll_us: Some(50), ..load };
    let words = bench.server(&Run { load: &polled, ..run }).to_string();
    assert!(words.contains(" --busy-poll 50us "), "{words}");
    let words = bench.echo_server(&row, &polled).to_string();
    assert!(words.contains(" --busy-poll 50us "), "{words}");
    assert_eq!(
        bench.generator(&load, None, check.extent, Head::default(), &[7], None).to_string(),
        "/bin/weir flood 127.0.0.1 -p 7 --cpu 1 -l 64 -P 4 -k 1000 --pps 10000 \
         --max-time 5000ms -i 0 --json"
    );
    let eight = [1, 2, 3, 4, 5, 6, 7, 8];
    for (generators, flows) in [(1, " -P 8 "), (2, " -P 4 ")] {
        let load = Load { generators, ..load };
        let of_check = bench.generator(&load, None, check.extent, Head::default(), &eight, None);
        assert!(of_check.to_string().contains(flows), "a flow for each port: {of_check}");
    }
}

#[test]
fn the_generators_whole_process_is_no_other_program() {
    let mut server = ServerReport::default();
    server.system.cpu_ns = Some(100);
    let mut flood = FloodReport { cpu_ns: Some(20), ..FloodReport::default() };
    assert_eq!(own_cpu_ns(&server, &flood), 120);
    flood.process_cpu_ns = Some(35);
    assert_eq!(own_cpu_ns(&server, &flood), 135, "its warm-up and start are its own too");
}

#[test]
fn a_server_that_ends_badly_after_its_report_made_no_run() {
    let text = failure(&format!("{READY}; {SERVED}; read line; exit 1"), FLOODED);
    assert_eq!(text, "the server gave its report and then ended with exit status: 1");
    let missing = SERVED.replace("{\"design\"", "{\"slices_missing\":2,\"design\"");
    let made = run_with(&format!("{READY}; {missing}; read line; exit 3"), FLOODED).unwrap();
    assert_eq!(made.server.slices_missing, 2, "its report says what is wrong");
    let whole = SERVED.replace("{\"design\"", "{\"end_signalled\":true,\"design\"");
    let text = failure(&format!("{READY}; {whole}; read line; exit 3"), FLOODED);
    assert!(text.contains("exit status: 3"), "{text}");
}
