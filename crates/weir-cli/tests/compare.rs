//! `weir compare` and `weir designs` as a user meets them.

#![forbid(unsafe_code)]

mod common;

use common::{document, errors, output};

#[test]
fn a_short_comparison_is_one_valid_document() {
    let designs = ["--design", "blocking", "--design", "blocking-batch"];
    let words = ["compare", "udp", "--quick", "--rounds", "3", "--seed", "7", "--json"];
    let run = output(&[&words[..], &designs].concat());
    let document = document(&run);
    assert_eq!(document["schema_version"], 2);
    assert_eq!(document["seed"], 7);
    assert_eq!(document["error"], serde_json::Value::Null, "{}", errors(&run));
    let check = &document["check"];
    assert!(check["datagrams"].as_u64().is_some_and(|sent| sent > 0), "{check}");
    assert_eq!(check["sizes_bytes"].as_array().unwrap().last().unwrap(), 1024, "the slices' size");
    let rows = document["results"].as_array().unwrap();
    let named: Vec<(&str, &str)> = rows
        .iter()
        .map(|row| (row["design"].as_str().unwrap(), row["role"].as_str().unwrap()))
        .collect();
    assert_eq!(named, [("blocking", "plain"), ("blocking-batch", "plain"), ("blocking", "again")]);
    for row in rows {
        assert_eq!(row["status"], "ok", "{row:#}");
        assert_eq!(row["conformance"], "passed", "{row:#}");
        let received = &row["metrics"]["received_per_s"];
        // Three were asked for; a run is made again if it was disturbed.
        let (runs, samples) = (row["runs"].as_array().unwrap(), &received["samples"]);
        let disturbed = runs.iter().any(|run| run["disturbed"].is_string());
        let rate = received["median"].as_f64();
        let disturbed = disturbed || common::measured_nothing(row);
        assert!(disturbed || rate.is_some_and(|rate| rate > 0.0), "{row:#}");
        assert!(runs.len() >= 3, "{row:#}");
        assert!(samples.as_array().is_some_and(|all| all.len() == runs.len()), "{row:#}");
        let counts = &row["ledger"]["counts"];
        let of = |name: &str| counts[name].as_u64().unwrap_or(0);
        assert_eq!(of("offered"), of("sent") + of("refused"));
        assert!(disturbed || of("received") > 0, "{row:#}");
    }
    common::assert_compared(&run);
}

#[test]
fn servers_that_answer_are_compared_by_their_answers() {
    let designs = ["--design", "blocking", "--design", "rio-event --provider batch"];
    let words = ["compare", "udp", "--reply", "--reply-size", "40", "--outstanding", "8"];
    let more = ["--load", "saturation,2000", "--rounds", "3", "--json"];
    let run = output(&[&words[..], &designs, &more].concat());
    let document = document(&run);
    assert_eq!(document["error"], serde_json::Value::Null, "{}", errors(&run));
    let loads = document["loads"].as_array().unwrap();
    let of = |load: &serde_json::Value| (load["ranked_by"].clone(), load["load"]["kind"].clone());
    assert_eq!(of(&loads[0]), ("answers_per_s".into(), "closed_loop".into()));
    assert_eq!(of(&loads[1]), ("latency_ns.p50".into(), "paced".into()));
    let asked = serde_json::json!({ "outstanding": 8, "size_bytes": 40, "offload": "on" });
    assert_eq!(loads[0]["load"]["replies"], asked);
    assert_eq!(document["calibration"], serde_json::json!([]), "it tells nothing of answers");
    let rows = document["results"].as_array().unwrap();
    assert_eq!(rows.len(), 6, "two, one of them again, under two loads");
    for row in rows {
        assert_eq!(
            (&row["status"], &row["conformance"]),
            (&"ok".into(), &"passed".into()),
            "{row:#}"
        );
        // What the machine did to it is another matter.
        let runs = row["runs"].as_array().unwrap();
        let disturbed = runs.iter().any(|run| run["disturbed"].is_string());
        let disturbed = disturbed || common::measured_nothing(row);
        for metric in ["/answers_per_s", "/cpu_ns_per_datagram", "/latency_ns/p50"] {
            let median = row["metrics"].pointer(metric).map(|metric| &metric["median"]);
            let is_known =
                median.and_then(serde_json::Value::as_f64).is_some_and(|value| value > 0.0);
            assert!(disturbed || is_known, "{metric}: {row:#}");
        }
        let (there, back) = (&row["ledger"]["counts"], &row["replies"]["counts"]);
        let of = |counts: &serde_json::Value, name: &str| counts[name].as_u64().unwrap_or(0);
        assert!(disturbed || of(back, "answered") > 0, "{row:#}");
        assert_eq!(of(back, "answered") + of(back, "missing"), of(there, "sent"), "{row:#}");
        assert!(of(back, "replied") >= of(back, "answered"), "{row:#}");
    }
    common::assert_compared(&run);
}

#[test]
fn memory_is_compared_instead_of_speed() {
    let small = "rio-event --provider batch --outstanding 64";
    let refused = "rio-event --provider xdp --outstanding 64";
    let run =
        output(&["compare", "udp", "--memory", "--design", small, "--design", refused, "--json"]);
    assert_eq!(run.status.code(), Some(0), "{}", errors(&run));
    let document = document(&run);
    let rows = document["results"].as_array().unwrap();
    assert_eq!(
        (rows[0]["status"].as_str(), rows[0]["outstanding"].as_u64()),
        (Some("ok"), Some(64))
    );
    assert!(rows[0]["registered_bytes"].as_u64() >= Some(64 * 1024), "{:#}", rows[0]);
    assert_eq!(rows[0]["samples"].as_array().map(Vec::len), Some(3));
    assert_eq!(rows[1]["status"], "unavailable", "{:#}", rows[1]);
    assert!(document["noise_bytes"].as_u64().is_some());
    let table = output(&["compare", "--memory", "--design", small]);
    let table = String::from_utf8(table.stdout).unwrap();
    assert!(table.lines().any(|line| line.contains("rio-event") && line.contains("64")), "{table}");
    for ignored in [
        &["--quick"][..],
        &["--on", "veth"],
        &["--peer", "a=x"],
        &["--receive-offload"],
        &["--threads", "2"],
        &["--seed", "7"],
        &["--confidence", "1%"],
        &["--dry-run"],
    ] {
        let run = output(&[&["compare", "--memory"], ignored].concat());
        assert_eq!(run.status.code(), Some(2), "{ignored:?} would be ignored: {}", errors(&run));
    }
}

#[test]
fn datagrams_without_a_stamp_are_compared_too() {
    for length in ["0", "16"] {
        let words = ["compare", "udp", "--design", "blocking", "--quick", "-l", length, "--json"];
        let run = output(&[&words[..], &["--rounds", "2"]].concat());
        for row in document(&run)["results"].as_array().unwrap() {
            assert_eq!(row["status"], "ok", "{length}: {}", row["reason"]);
        }
        common::assert_compared(&run);
    }
}

#[test]
fn the_plan_can_be_seen_without_a_run() {
    let plan =
        output(&["compare", "--dry-run", "--seed", "9", "--design", "epoll", "--pace", "75%"]);
    assert!(errors(&plan).contains("comparing UDP only: --pace is"), "{}", errors(&plan));
    assert_eq!(plan.status.code(), Some(0));
    let said = errors(&plan);
    for line in
        ["seed 9", "load: saturation, 64 B", "paced at 75 % of each row's maximum", "row: epoll"]
    {
        assert!(said.contains(line), "{line:?} is missing of {said}");
    }
}

#[test]
fn an_option_that_several_kinds_have_needs_the_word() {
    for (words, said) in [
        (
            &["--on", "veth"][..],
            "--on is among the options of several kinds of comparison; say which you mean: weir compare udp --on veth, \
             or weir compare tcp --on veth",
        ),
        (
            &["--design", "blocking -x", "--quick"],
            "say which you mean: weir compare udp --design 'blocking -x' --quick, or weir compare tcp --design \
             'blocking -x' --quick\n",
        ),
        (
            &["--design", "rio-hybrid --threads 2"],
            "weir compare: --design is among the options of several kinds of comparison; say which you mean: weir \
             compare udp --design 'rio-hybrid --threads 2'\n",
        ),
        (&["--design", "nosuch"], "weir compare: there is no design \"nosuch\""),
        (
            &["--design", "rio-hybrid", "--design", "sync --errors"],
            "no comparison has all of these designs (rio-hybrid of udp, sync of iops); compare those of each kind by \
             themselves, as in weir compare udp --design rio-hybrid\n",
        ),
        (&["--design", "sync", "--on", "veth"], "--design and --on do not go together here: no"),
        (
            &["--mpi"],
            "say which you mean: mpirun -n 3 weir compare udp --mpi, or mpirun -n 3 weir compare tcp --mpi\n",
        ),
        (&["--design", "epoll", "-l", "64", "--on", "veth"], "--design and --length and --on are"),
    ] {
        let run = output(&[&["compare"], words].concat());
        assert_eq!(run.status.code(), Some(2), "{words:?}");
        assert!(errors(&run).contains(said), "{}", errors(&run));
    }
    // The same name, and another meaning: only UDP's takes a value.
    let swept = output(&["compare", "--sweep", "work", "--design", "epoll", "--dry-run"]);
    assert_eq!(swept.status.code(), Some(0), "{}", errors(&swept));
    assert!(errors(&swept).contains("comparing UDP only: --sweep is"), "{}", errors(&swept));
}

#[test]
fn a_plan_is_a_document_too() {
    let plan = output(&["compare", "udp", "--dry-run", "--design", "epoll", "--json"]);
    let document = document(&plan);
    assert_eq!((plan.status.code(), &document["results"]), (Some(0), &serde_json::json!([])));
    assert_eq!(document["planned"][0], "epoll");
}

#[test]
fn wrong_usage_is_said_and_json_stays_valid() {
    for (words, said) in [
        (&["--design", "nonsense"][..], "nonsense"),
        (&["--design", "blocking --threads 0"][..], "1 to 256"),
        (&["--design", "blocking", "--design", "blocking"][..], "twice"),
        (&["--length", "70000"][..], "at most"),
        (&["--server-cpu", "8000"][..], "core 8000"),
        (&["--pace", "0"][..], "0"),
        (&["--rounds", "0"][..], "1..=50"),
        (&["--quick", "--full"][..], "--full"),
        (&["tcp"][..], "tcp"),
    ] {
        let mut all = vec!["compare", "udp", "--json"];
        all.extend_from_slice(words);
        let failed = output(&all);
        assert_eq!(failed.status.code(), Some(2), "{words:?}: {}", errors(&failed));
        let document = document(&failed);
        assert_eq!(document["results"], serde_json::json!([]));
        assert!(document["error"].as_str().is_some_and(|error| error.contains(said)), "{document}");
    }
}

#[test]
fn designs_are_listed_with_their_options() {
    let list = output(&["designs"]);
    let text = String::from_utf8(list.stdout).unwrap();
    for name in ["blocking", "rio-hybrid", "uring", "batch"] {
        assert!(text.lines().any(|line| line.trim() == name), "{name} is missing of\n{text}");
    }
    let one = output(&["designs", "rio-hybrid"]);
    let text = String::from_utf8(one.stdout).unwrap();
    assert!(text.contains("--threshold") && text.contains("default 666"), "{text}");
    assert!(!text.contains("blocking-batch"), "{text}");

    let all = document(&output(&["designs", "--json"]));
    let designs = all["designs"].as_array().unwrap();
    assert!(designs.iter().any(|design| design["name"] == "blocking" && design["status"] == "ok"));
    assert!(designs.iter().all(|design| design["options"].is_array()));
    assert!(designs.iter().all(|design| design["provider"].is_string()));
    assert!(all["memory_options"].as_array().unwrap().iter().any(|o| o["name"] == "pages"));

    for (kind, has, has_not) in [
        ("udp", "blocking-batch", "TCP designs"),
        ("tcp", "TCP designs", "UDP designs"),
        ("iops", "device designs", "TCP designs"),
        ("device", "device designs", "providers"),
    ] {
        let text = String::from_utf8(output(&["designs", kind]).stdout).unwrap();
        assert!(text.contains(has) && !text.contains(has_not), "{kind}: {text}");
    }
    let tcp = document(&output(&["designs", "tcp", "--json"]));
    assert!(tcp["designs"].as_array().unwrap().is_empty());
    assert!(!tcp["tcp_designs"].as_array().unwrap().is_empty());

    let unknown = output(&["designs", "nonsense", "--json"]);
    assert_eq!(unknown.status.code(), Some(2));
    let reason = document(&unknown)["reason"].as_str().unwrap().to_owned();
    assert!(reason.contains("available: udp: ") && reason.contains("; tcp: "), "{reason}");
    assert!(reason.contains("rio-hybrid"), "{reason}");
    let provider = output(&["designs", "uring"]);
    assert_eq!(provider.status.code(), Some(2));
    assert!(errors(&provider).contains("is a provider"), "{}", errors(&provider));
}

/// Whether a process, by its folder in `/proc`, runs the program under test: the same tests may run elsewhere on this machine,
/// with another build.
#[cfg(target_os = "linux")]
fn is_ours(process: &std::path::Path) -> bool {
    std::fs::read_link(process.join("exe")).is_ok_and(|program| {
        program.to_string_lossy().trim_end_matches(" (deleted)") == env!("CARGO_BIN_EXE_weir")
    })
}

/// Processes of the program under test of which an argument is this word; none where `/proc` does not tell.
#[cfg(target_os = "linux")]
fn running_with(word: &str) -> Vec<String> {
    let lines = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let process = entry.ok()?.path();
        let line = is_ours(&process).then(|| std::fs::read(process.join("cmdline")).ok())??;
        Some(String::from_utf8_lossy(&line).replace('\0', " "))
    });
    lines.filter(|line| line.split(' ').any(|other| other == word)).collect()
}

/// Starts a comparison with these words, and waits until its first run is on.
/// `length` marks its processes.
#[cfg(target_os = "linux")]
fn under_way(length: &str, words: &[&str]) -> std::process::Child {
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;
    let mut child = common::weir(&["compare", "udp", "--design", "blocking", "-v"])
        .args(["--length", length])
        .args(words)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let errors = child.stderr.take().unwrap();
    let mut lines = BufReader::new(errors).lines();
    // The calibration is the first flood, the check the second, the first run the third.
    for _ in 0..3 {
        assert!(
            lines.any(|line| line.is_ok_and(|line| line.contains(" flood "))),
            "it ended before"
        );
    }
    // Its standard error must be read on, or it would wait.
    std::thread::spawn(move || lines.for_each(drop));
    child
}

#[cfg(target_os = "linux")]
#[test]
fn ctrl_c_ends_a_comparison_with_what_there_is() {
    let child = under_way("1231", &["-t", "60", "--json"]);
    common::interrupt(child.id());
    let ended = common::ends(child);
    assert_eq!(ended.status.code(), Some(130));
    let document = document(&ended);
    assert_eq!(document["interrupted"], true);
    assert_eq!(running_with("1231"), Vec::<String>::new(), "nothing is left running");
}

#[cfg(target_os = "linux")]
#[test]
fn ctrl_c_leaves_a_table_of_what_there_is() {
    let child = under_way("1235", &["-t", "60", "--details"]);
    common::interrupt(child.id());
    let ended = common::ends(child);
    assert_eq!(ended.status.code(), Some(130));
    let table = String::from_utf8(ended.stdout).unwrap();
    assert!(table.contains("warning: interrupted; the results are partial"), "{table}");
    assert!(table.contains("blocking "), "its row, however far it came: {table}");
    assert_eq!(running_with("1235"), Vec::<String>::new(), "nothing is left running");
}

/// The id of the process that was started as `weir command` with this word, once there is one.
#[cfg(target_os = "linux")]
fn child_with(command: &str, word: &str) -> u32 {
    let deadline = std::time::Instant::now() + common::SOON;
    loop {
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
            let is_it = is_ours(&entry.path())
                && words.get(1).is_some_and(|second| *second == command.as_bytes())
                && words.contains(&word.as_bytes());
            if let Some(id) = entry.file_name().to_str().and_then(|name| name.parse().ok())
                && is_it
            {
                return id;
            }
        }
        assert!(std::time::Instant::now() < deadline, "no weir {command} with {word}");
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
}

/// A generator and later a server are killed in the middle of their runs; the comparison goes on, says what
/// happened, and tells the truth with its exit code.
#[cfg(target_os = "linux")]
#[test]
fn a_generator_and_a_server_that_are_killed_cost_a_run_each() {
    let length = "1237";
    // Its time makes each run as long as one may be, and is never over: a busy machine takes much longer for the rest.
    let words = ["--quick", "--rounds", "3", "-t", "600", "--load", "saturation", "--json"];
    let child = under_way(length, &words);
    // The generator is there once the server listens, so that both are in the middle of a run, which lasts 2 s.
    let first = child_with("flood", length);
    common::kill(first);
    common::until("the next run", || child_with("flood", length) != first);
    common::kill(child_with("serve", length));
    let run = child.wait_with_output().unwrap();
    let document = document(&run);
    assert_eq!(running_with(length), Vec::<String>::new(), "nothing is left running");
    assert_eq!(run.status.code(), Some(3), "complete, but for two runs");
    let rows = document["results"].as_array().unwrap();
    assert_eq!(rows.len(), 2, "{document:#}");
    for row in rows {
        assert!(row["metrics"]["received_per_s"]["median"].is_number(), "{row:#}");
    }
    let failures = rows.iter().filter_map(|row| row["failures"].as_array()).flatten();
    let killed: Vec<&str> = failures
        .filter_map(serde_json::Value::as_str)
        .filter(|said| said.contains("signal: 9"))
        .collect();
    assert_eq!(killed.len(), 2, "each cost one run: {killed:?}");
    for who in ["generator", "server"] {
        let said = format!("the {who} ended with signal: 9");
        assert!(killed.iter().any(|killed| killed.starts_with(&said)), "{killed:?}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_told_and_the_table_is_not_lost() {
    let words = ["compare", "udp", "--design", "blocking", "--quick", "--rounds", "1"];
    // With its output read, it does not end with what it ends with below.
    common::assert_compared(&output(&[&words[..], &["--json"]].concat()));
    for json in [&["--json"][..], &[]] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let ended = common::weir(&words).args(json).stdout(full).output().unwrap();
        let said = errors(&ended);
        assert_eq!(ended.status.code(), Some(1), "{said}");
        assert!(said.contains("cannot write the results to standard output"), "{said}");
        assert!(said.contains("No space left on device"), "{said}");
        assert!(said.contains("received/s:"), "the table stands here: {said}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn nothing_survives_a_comparison_that_is_killed() {
    let mut child = under_way("1233", &["-t", "60", "--json"]);
    child.kill().unwrap();
    child.wait().unwrap();
    // The server ends with its input, the generator with its control connection.
    let deadline = std::time::Instant::now() + common::SOON;
    while !running_with("1233").is_empty() {
        assert!(std::time::Instant::now() < deadline, "left: {:?}", running_with("1233"));
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn a_burst_is_taken_whole_by_as_many_receives_as_it_has_datagrams() {
    let designs = [
        "--design",
        "rio-event --provider batch --outstanding 300",
        "--design",
        "rio-event --provider batch --outstanding 300 --commit touched",
        "--design",
        "blocking",
    ];
    let words = ["compare", "udp", "--burst", "300,70", "--held", "0,2ms,sent", "--rounds", "1"];
    let run = output(&[&words[..], &designs, &["--json"]].concat());
    let document = document(&run);
    assert_eq!(document["error"], serde_json::Value::Null, "{}", errors(&run));
    let bursts = document["bursts"].as_array().unwrap();
    let held: Vec<_> = bursts.iter().map(|of| of["held"].as_str().unwrap()).collect();
    assert_eq!(held, ["0", "2000us", "sent"]);
    for of in bursts {
        assert_eq!(of["datagrams"], serde_json::json!([70, 300]), "the smallest first");
        let rows = of["rows"].as_array().unwrap();
        let row =
            |word: &str| rows.iter().find(|row| row["spec"].as_str().unwrap().ends_with(word));
        let taken =
            |word: &str| row(word).unwrap_or_else(|| panic!("{word}: {of:#}"))["taken"].clone();
        // Room for so many is granted to everybody.
        assert_eq!(taken("--outstanding 300"), serde_json::json!([70.0, 300.0]), "{of:#}");
        assert_eq!(taken("touched"), serde_json::json!([70.0, 300.0]), "{of:#}");
        assert!(taken("blocking")[1].as_f64() <= Some(300.0), "{of:#}");
        assert_eq!(row("touched").unwrap()["locked_bytes"], 0.0);
        assert!(row("blocking").unwrap()["registered_bytes"].as_f64() > Some(0.0));
    }
    for row in document["results"].as_array().unwrap() {
        assert_eq!(row["status"], "ok", "{row:#}");
        let counts = &row["ledger"]["counts"];
        let of = |name: &str| counts[name].as_u64().unwrap_or(0);
        // A disturbed run is repeated, and only one of its attempts stands.
        let runs = row["runs"].as_array().unwrap().iter().filter(|run| run["replaced"] != true);
        let runs = runs.count() as u64;
        let asked = row["load"]["burst"]["datagrams"].as_u64().unwrap();
        assert_eq!((of("offered"), of("sent") + of("refused")), (runs * asked, runs * asked));
        assert_eq!(row["ledger"]["unexplained"], 0, "{row:#}");
    }
    common::assert_compared(&run);
}
