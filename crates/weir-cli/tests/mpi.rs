//! Runs of several ranks as a user meets them. With the feature `mpi` real ones, started by mpirun (`WEIR_MPIRUN` names
//! another than the usual); without it, what is said where there is no MPI.

#![forbid(unsafe_code)]
#![cfg(unix)]

mod common;

use common::{document, errors, output};

#[test]
fn whoever_asks_for_ranks_where_there_are_none_is_told_what_to_do() {
    let built_in = cfg!(feature = "mpi");
    let flood: &[&str] = &["flood", "127.0.0.1", "-p", "9", "--mpi", "--json"];
    let load: &[&str] = &["load", "tcp", "127.0.0.1", "--mpi", "--json"];
    for words in [flood, load] {
        let output = output(words);
        assert_eq!(output.status.code(), Some(2), "{}", errors(&output));
        let document = document(&output);
        let reason = document["reason"].as_str().expect("a reason");
        let advice = if built_in { "mpirun -n" } else { "--features mpi" };
        assert!(reason.contains(advice), "{reason}");
        assert!(document["ranks"].is_null());
    }
    let version = output(&["--version"]);
    let version = String::from_utf8(version.stdout).expect("text");
    let says = if built_in { "MPI: built in" } else { "MPI: not in this build" };
    assert!(version.contains(says) && version.starts_with("weir "), "{version}");
}

#[cfg(feature = "mpi")]
mod ranks {
    mod losses;
    mod options;

    use std::{
        collections::BTreeSet,
        fs,
        io::{BufRead as _, BufReader},
        net::{SocketAddr, TcpListener, UdpSocket},
        os::unix::fs::PermissionsExt as _,
        path::Path,
        process::{Child, Command, Output, Stdio},
    };

    use serde_json::Value;

    use crate::common::{
        Server, cannot_run, document, ends, errors, freeze, has, is_running, kill, until, weir,
    };

    const WEIR: &str = env!("CARGO_BIN_EXE_weir");

    /// The mpirun, with its options.
    fn mpirun() -> Vec<String> {
        let mpirun = std::env::var("WEIR_MPIRUN").unwrap_or_else(|_| "mpirun".into());
        mpirun.split_whitespace().map(str::to_owned).collect()
    }

    fn is_here() -> bool {
        has(&mpirun()[0], &["--version"])
    }

    /// What ranks that share a machine need: Open MPI counts cores, binds ranks to them, and asks root twice.
    fn started_by(mpirun: &[String]) -> Command {
        let mut command = Command::new(&mpirun[0]);
        command
            .args(&mpirun[1..])
            .envs([
                ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
                ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
                ("OMPI_MCA_rmaps_base_oversubscribe", "1"),
                ("OMPI_MCA_hwloc_base_binding_policy", "none"),
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn ranks(count: usize, words: &[&str]) -> Command {
        let mut command = started_by(&mpirun());
        command.args(["-n", &count.to_string(), WEIR]).args(words);
        command
    }

    fn run(mut command: Command) -> Output {
        ends(command.spawn().expect("mpirun can be started"))
    }

    fn number(value: &Value) -> u64 {
        value.as_u64().unwrap_or_else(|| panic!("{value} is no count"))
    }

    /// What is said of each rank.
    fn each(document: &Value) -> &Vec<Value> {
        document["ranks"]["each"]
            .as_array()
            .or_else(|| document["report"]["ranks"]["each"].as_array())
            .unwrap_or_else(|| panic!("{document:#}"))
    }

    fn sum(ranks: &[Value], name: &str) -> u64 {
        ranks.iter().map(|rank| number(&rank[name])).sum()
    }

    #[test]
    fn two_ranks_make_one_flood() {
        if !is_here() {
            return;
        }
        let server = Server::start(&[]);
        let words = [
            "flood",
            "127.0.0.1",
            "--control",
            &server.control,
            "--pps",
            "20k",
            "--any-pace",
            "-k",
            "8001",
            "-O",
            "50ms",
            "--mpi",
            "--json",
        ];
        let mut command = ranks(2, &words);
        // Ranks on loopback need no privilege.
        #[cfg(target_os = "linux")]
        weir_confine::Confinement::new().unprivileged().confine(&mut command);
        let output = run(command);
        let document = document(&output);
        assert_eq!(document["status"], "ok", "{document:#} {}", errors(&output));
        assert_eq!(output.status.code(), Some(0));
        let all = each(&document);
        assert_eq!((all.len(), &document["ranks"]["complete"]), (2, &Value::Bool(true)));
        let offered: Vec<_> = all.iter().map(|rank| number(&rank["offered"])).collect();
        let skipped: Vec<_> = all.iter().map(|rank| number(&rank["late_skipped"])).collect();
        assert!(offered[0] + skipped[0] >= offered[1].min(4000), "{document:#}");
        assert_eq!(number(&document["sent"]), sum(all, "sent"));
        assert_eq!(number(&document["received"]), sum(all, "received"));
        let (sent, lost) = (number(&document["sent"]), number(&document["lost_packets"]));
        assert_eq!(sent, number(&document["received"]) + lost, "{document:#}");
        assert_eq!(document["report"]["audit"]["data_errors"], false, "{document:#}");
        assert!(
            document["ranks"]["start_skew_ns"].is_u64() && document["ranks"]["slowest"].is_u64()
        );
        assert_ne!(all[0]["run"], all[1]["run"], "each has a run of its own at the server");
        // All are on the server's host, so one-way latencies of all are told, in one histogram.
        if all.iter().all(|rank| number(&rank["received"]) > 0) {
            let audit = &document["report"]["audit"];
            let buckets = audit["latency_histogram"].as_array().expect("buckets");
            let count: u64 = buckets.iter().map(|bucket| number(&bucket[1])).sum();
            assert_eq!(count, number(&audit["latency_ns"]["n"]));
            let of_one = |rank: &Value| number(&rank["report"]["audit"]["latency_ns"]["n"]);
            assert_eq!(count, all.iter().map(of_one).sum::<u64>());
        }
    }

    #[test]
    fn merged_round_trips_are_those_of_all() {
        if !is_here() {
            return;
        }
        let server = Server::start(&["--echo"]);
        let words = [
            "flood",
            "127.0.0.1",
            "--control",
            &server.control,
            "--reply",
            "--outstanding",
            "4",
            "-k",
            "3000",
            "--mpi",
            "--json",
        ];
        let output = run(ranks(3, &words));
        let document = document(&output);
        assert_eq!(document["status"], "ok", "{document:#} {}", errors(&output));
        let answers = &document["answers"];
        let sent = number(&document["sent"]);
        assert_eq!(
            sent,
            number(&answers["answered"]) + number(&answers["missing"]),
            "{document:#}"
        );
        // One histogram has them all.
        let buckets = answers["round_trip_histogram"].as_array().expect("buckets");
        let count: u64 = buckets.iter().map(|bucket| number(&bucket[1])).sum();
        assert_eq!(count, number(&answers["round_trip_ns"]["n"]));
        assert!(count >= number(&answers["answered"]), "{document:#}");
        let rank_of = (count as f64 * 0.999).ceil() as u64;
        let mut before = 0;
        let at = buckets.iter().find(|bucket| {
            before += number(&bucket[1]);
            before >= rank_of
        });
        assert_eq!(at.expect("a bucket")[0], answers["round_trip_ns"]["p99_9"]);
    }

    #[test]
    fn three_ranks_share_the_connections_of_a_load() {
        if !is_here() {
            return;
        }
        let mut command = weir(&["serve", "tcp"]);
        command.arg("--echo");
        let server = Server::begin(command);
        let port = server.port.to_string();
        let words =
            ["load", "tcp", "127.0.0.1", "-p", &port, "-c", "10", "-t", "300ms", "--mpi", "--json"];
        let output = run(ranks(3, &words));
        let document = document(&output);
        assert_eq!(document["status"], "ok", "{document:#} {}", errors(&output));
        let report = &document["report"];
        let all = each(&document);
        let mut connected: Vec<_> = all.iter().map(|rank| number(&rank["connected"])).collect();
        connected.sort_unstable();
        assert_eq!((connected, number(&report["connected"])), (vec![3, 3, 4], 10));
        // Where the ranks had no core while it was to be measured, nothing was.
        let measured = |of: &Value| of.as_u64().unwrap_or(0);
        let messages: u64 = all.iter().map(|rank| measured(&rank["messages"])).sum();
        assert_eq!(measured(&report["window"]["messages"]), messages, "{document:#}");
        assert_eq!(number(&report["processes"]), 3);
        let latencies = report["latency_histogram"].as_array().expect("buckets");
        let count: u64 = latencies.iter().map(|bucket| number(&bucket[1])).sum();
        assert_eq!(count, measured(&report["latency_ns"]["n"]), "{document:#}");
        assert_eq!(report["data_errors"], false);
        let words =
            ["load", "tcp", "127.0.0.1", "-p", &port, "-c", "4", "-x", "5", "--mpi", "--json"];
        let counted = run(ranks(2, &words));
        let counted = crate::common::document(&counted);
        assert_eq!(number(&counted["report"]["messages_over"]), 20, "{counted:#}");
    }

    #[test]
    fn a_host_that_does_not_take_part_is_not_loaded() {
        if !is_here() {
            return;
        }
        // For documentation: nobody has it (RFC 5737).
        let words = ["load", "tcp", "192.0.2.1", "--mpi", "--json"];
        let output = run(ranks(2, &words));
        let said = document(&output);
        assert_eq!(output.status.code(), Some(2), "{said:#}");
        assert!(said["reason"].as_str().unwrap().contains("--mpi-server"), "{said:#}");
        let named = run(ranks(2, &[&words[..], &["--mpi-server", "1"]].concat()));
        let said = document(&named);
        assert_eq!(named.status.code(), Some(2), "{said:#}");
        let reason = said["reason"].as_str().unwrap();
        assert!(reason.contains("not an address of rank 1"), "{said:#}");
    }

    #[test]
    fn another_build_is_refused_by_name() {
        if !is_here() {
            return;
        }
        let other = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("weir-other-{}", std::process::id()));
        fs::copy(WEIR, &other).expect("it can be copied");
        let mut bytes = fs::read(&other).expect("it can be read");
        // Behind its end, where nothing of it looks.
        bytes.push(0);
        fs::write(&other, bytes).expect("it can be written");
        fs::set_permissions(&other, fs::Permissions::from_mode(0o755)).expect("it is ours");
        let words = ["flood", "127.0.0.1", "-p", "9", "-k", "10", "--mpi", "--json"];
        let mut command = started_by(&mpirun());
        command.args(["-n", "1", WEIR]).args(words).args([":", "-n", "1"]).arg(&other).args(words);
        let output = run(command);
        let _ = fs::remove_file(&other);
        let document = document(&output);
        let reason = document["reason"].as_str().expect("a reason");
        assert!(reason.starts_with("rank 1 on ") && reason.contains("another build"), "{reason}");
        assert_eq!(output.status.code(), Some(1), "{reason}");
    }

    // ---- ranks that are lost -----------------------------------------------------------------

    /// All processes that a process has started, and those that they have.
    fn descendants(of: u32) -> BTreeSet<u32> {
        let mut all = BTreeSet::new();
        let mut next = vec![of];
        while let Some(id) = next.pop() {
            let tasks = fs::read_dir(format!("/proc/{id}/task")).into_iter().flatten().flatten();
            for task in tasks {
                let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
                for child in children.split_whitespace().filter_map(|child| child.parse().ok()) {
                    if all.insert(child) {
                        next.push(child);
                    }
                }
            }
        }
        all
    }

    /// The process that works for a rank, or the one that mpirun started for it.
    fn process_of_rank(all: &BTreeSet<u32>, rank: usize, works: bool) -> Option<u32> {
        let is_it = |id: &&u32| {
            let words = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
            let words = words
                .split(|byte| *byte == 0)
                .map(|word| String::from_utf8_lossy(word).into_owned());
            let words: Vec<_> = words.collect();
            // Neither its link nor what it has started, whose numbers may be lower where these have begun anew.
            if !words[0].ends_with("/weir") || words.iter().all(|word| word != "--mpi") {
                return false;
            }
            let variables = fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
            let has = |name: &str| {
                variables.split(|byte| *byte == 0).any(|variable| variable == name.as_bytes())
            };
            let is_of_rank =
                has(&format!("OMPI_COMM_WORLD_RANK={rank}")) || has(&format!("PMI_RANK={rank}"));
            is_of_rank && has("WEIR_MPI_WORKER=1") == works
        };
        all.iter().find(is_it).copied()
    }

    /// So many are lost among: rank 1 has another one below it in the tree along which they speak.
    const RANKS: usize = 4;

    /// A flood of some ranks on loopback that would last a minute, once datagrams of all of them have come, and its processes.
    fn under_way() -> (Child, BTreeSet<u32>) {
        let receiver = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let target = receiver.local_addr().expect("it is bound").to_string();
        let words = ["flood", &target, "--pps", "300", "-t", "60"];
        let words = [&words[..], &["--any-pace", "--mpi", "--json"]].concat();
        let child = ranks(RANKS, &words).spawn().expect("mpirun can be started");
        receiver.set_read_timeout(Some(crate::common::SOON)).expect("a time");
        let mut from = BTreeSet::<SocketAddr>::new();
        while from.len() < RANKS {
            from.insert(receiver.recv_from(&mut [0; 100]).expect("a datagram").1);
        }
        let all = descendants(child.id());
        // It goes on receiving nothing: what is sent then is refused by nobody, as the port stays.
        std::mem::forget(receiver);
        (child, all)
    }

    /// The report of a run that lost a rank: MPICH's mpiexec says behind it, on the same output, that a process which it started
    /// was killed.
    fn report_in(output: &Output) -> Value {
        let mut documents = serde_json::Deserializer::from_slice(&output.stdout).into_iter();
        let report = documents.next().and_then(Result::ok);
        report.unwrap_or_else(|| panic!("no report: {}", errors(output)))
    }

    /// That a flood of which rank 1 was lost has told so, with what the others did, and has left nobody; gives the exit code.
    fn told_of_the_loss(child: Child, all: &BTreeSet<u32>, how: &str) -> Option<i32> {
        told_of_the_loss_among(RANKS, child, all, how)
    }

    /// The same of so many ranks.
    fn told_of_the_loss_among(
        count: usize,
        child: Child,
        all: &BTreeSet<u32>,
        how: &str,
    ) -> Option<i32> {
        let (document, code) = ended_by_the_loss(child, all, how);
        let others = each(&document).iter().filter(|rank| rank["rank"] != 1);
        assert!(others.clone().count() == count - 1, "{document:#}");
        others.for_each(|rank| assert!(number(&rank["sent"]) > 0, "{document:#}"));
        code
    }

    /// The report of a command whose second rank was lost, which it says, and its exit code. Nobody is left.
    fn ended_by_the_loss(child: Child, all: &BTreeSet<u32>, how: &str) -> (Value, Option<i32>) {
        let output = ends(child);
        let said = errors(&output);
        let document = report_in(&output);
        let reason = document["reason"].as_str().unwrap_or_default();
        assert!(reason.starts_with("rank 1 on ") && reason.contains(how), "{reason}\n{said}");
        assert!(!reason.contains("Ctrl-C"), "{reason}");
        assert_eq!(document["status"], "failed");
        assert_ne!(output.status.code(), Some(0), "{said}");
        until("the end of all processes", || !all.iter().any(is_running));
        (document, output.status.code())
    }

    /// MPICH's mpiexec kills all processes that it started once the first link has gone. Those of a machine that is busy with
    /// other tests may not have ended by then, and its exit code has their signal.
    fn may_kill() -> bool {
        let version = Command::new(&mpirun()[0]).arg("--version").output().expect("it was here");
        String::from_utf8_lossy(&version.stdout).contains("HYDRA")
    }

    #[test]
    fn a_rank_that_is_killed_is_named_and_nobody_is_left() {
        if !is_here() {
            return;
        }
        let (child, all) = under_way();
        kill(process_of_rank(&all, 1, true).expect("rank 1 runs"));
        let code = told_of_the_loss(child, &all, "its process is gone");
        assert!(code == Some(1) || may_kill(), "{code:?}");
    }

    #[test]
    fn a_rank_whose_process_of_mpirun_is_killed_is_named_and_nobody_is_left() {
        if !is_here() {
            return;
        }
        let (child, all) = under_way();
        kill(process_of_rank(&all, 1, false).expect("rank 1 was started"));
        // mpirun ends with its signal.
        told_of_the_loss(child, &all, "the process that mpirun started is gone");
    }

    #[test]
    fn a_rank_that_is_stopped_is_named_and_nobody_is_left() {
        if !is_here() {
            return;
        }
        let (child, all) = under_way();
        freeze(process_of_rank(&all, 1, true).expect("rank 1 runs"));
        let code = told_of_the_loss(child, &all, "stood still");
        assert!(code == Some(1) || may_kill(), "{code:?}");
    }

    #[test]
    fn a_rank_whose_link_is_stopped_is_named_and_nobody_is_left() {
        if !is_here() {
            return;
        }
        let (child, all) = under_way();
        let link = descendants(process_of_rank(&all, 1, true).expect("rank 1 runs"));
        freeze(*link.first().expect("it has a process that speaks MPI"));
        // When all have gone but the one that is stopped, mpirun ends it.
        told_of_the_loss(child, &all, "no sign of life");
    }

    /// Has a thread of that name of a process stand, as one whose call does not return; gives what waits for its end.
    #[cfg(target_os = "linux")]
    fn hold_thread(process: u32, name: &str) -> std::thread::JoinHandle<()> {
        use nix::{
            sys::{
                ptrace,
                wait::{WaitPidFlag, waitpid},
            },
            unistd::Pid,
        };
        let tasks = fs::read_dir(format!("/proc/{process}/task")).expect("it runs").flatten();
        let is_it = |task: &fs::DirEntry| {
            fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm.trim() == name)
        };
        let task = tasks.into_iter().find(is_it).expect("it has such a thread");
        let thread = Pid::from_raw(task.file_name().to_str().unwrap().parse().expect("a number"));
        let (sender, held) = std::sync::mpsc::channel();
        // All of it by one thread: who traces another is a thread.
        let tracer = std::thread::spawn(move || {
            let next = || waitpid(thread, Some(WaitPidFlag::__WALL));
            // In a call of the kernel, as one that hangs would be: elsewhere it may have a lock that others need.
            let call = task.path().join("syscall");
            let is_in_call = || fs::read_to_string(&call).is_ok_and(|call| !call.starts_with("-1"));
            let stops = || {
                ptrace::seize(thread, ptrace::Options::empty())?;
                loop {
                    ptrace::interrupt(thread)?;
                    let stopped = next()?;
                    if is_in_call() {
                        return Ok(stopped);
                    }
                    ptrace::cont(thread, None)?;
                    std::thread::yield_now();
                }
            };
            let stopped: nix::Result<_> = stops();
            sender.send(stopped).expect("it is waited for");
            // Its process is not over before this has heard of it.
            next().expect("it ends with its process");
        });
        held.recv().expect("it is said").expect("a process that this test started can be traced");
        tracer
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_rank_of_a_flood_of_which_a_call_does_not_return_is_named_and_nobody_is_left() {
        if !is_here() {
            return;
        }
        let (child, all) = under_way();
        let tracer =
            hold_thread(process_of_rank(&all, 1, true).expect("rank 1 runs"), "weir flood");
        told_of_the_loss(child, &all, "generator 1 of 1 hangs");
        tracer.join().expect("the thread ended");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_rank_of_a_load_of_which_a_call_does_not_return_is_named_and_nobody_is_left() {
        if !is_here() {
            return;
        }
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("it is bound").port().to_string();
        let words = ["load", "tcp", "127.0.0.1", "-p", &port, "-c", "3", "--threads", "1"];
        let words = [&words[..], &["-t", "60", "--mpi", "--json"]].concat();
        let child = ranks(3, &words).spawn().expect("mpirun can be started");
        let (sender, accepted) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                let stream = std::sync::Arc::new(stream);
                std::thread::spawn({
                    let stream = std::sync::Arc::clone(&stream);
                    move || std::io::copy(&mut &*stream, &mut &*stream)
                });
                if sender.send(stream).is_err() {
                    return;
                }
            }
        });
        // One of each rank.
        for _ in 0..3 {
            accepted.recv_timeout(crate::common::SOON).expect("a connection");
        }
        let all = descendants(child.id());
        let tracer = hold_thread(process_of_rank(&all, 1, true).expect("rank 1 runs"), "weir load");
        let output = ends(child);
        let mut documents = serde_json::Deserializer::from_slice(&output.stdout).into_iter();
        let document: Value = documents.next().and_then(Result::ok).expect("a report");
        let reason = document["reason"].as_str().unwrap_or_default();
        assert!(
            reason.starts_with("rank 1 on ") && reason.contains("thread 1 of 1 hangs"),
            "{reason}\n{}",
            errors(&output)
        );
        assert!(!reason.contains("Ctrl-C"), "{reason}");
        assert_ne!(output.status.code(), Some(0), "{document:#}");
        until("the end of all processes", || !all.iter().any(is_running));
        tracer.join().expect("the thread ended");
    }

    #[test]
    fn a_comparison_that_loses_a_generator_keeps_the_rounds_that_it_had() {
        if is_here() {
            compares_until_rank_2_is_lost(3, |words| ranks(3, words), kill, "is gone");
        }
    }

    #[test]
    fn a_comparison_that_loses_a_rank_that_speaks_for_another_names_the_one_that_is_lost() {
        if is_here() {
            // Rank 6 is below it.
            compares_until_rank_2_is_lost(7, |words| ranks(7, words), freeze, "stood still");
        }
    }

    /// A comparison of so many ranks, which this starts, and of which one is lost by that after some rounds.
    fn compares_until_rank_2_is_lost(
        count: usize,
        start: impl Fn(&[&str]) -> Command,
        lose: fn(u32),
        how: &str,
    ) {
        let words = ["compare", "udp", "--mpi", "--design", "blocking", "--load", "1000"];
        let words = [&words[..], &["--rounds", "50", "--no-save", "--json"]].concat();
        let child = start(&words).spawn().expect("mpirun can be started");
        // All but the server measure in each run, and a round is two runs: of the design and of its second name.
        let mut generators = BTreeSet::<u32>::new();
        let mut all = BTreeSet::new();
        until("the first rounds", || {
            all = descendants(child.id());
            generators.extend(all.iter().filter(|id| measures(**id)));
            generators.len() >= 5 * (count - 1)
        });
        lose(process_of_rank(&all, 2, true).expect("rank 2 runs"));
        let output = ends(child);
        let said = errors(&output);
        let document = report_in(&output);
        let reason = document["error"].as_str().unwrap_or_default();
        assert!(reason.contains("rank 2 on ") && reason.contains(how), "{reason}\n{said}");
        let rows = document["results"].as_array().expect("rows");
        let runs = |row: &Value| row["runs"].as_array().map_or(0, Vec::len);
        // Where nobody has a core some may have failed, and count as that.
        let tried = |row: &Value| runs(row) > 0 || row["failed_runs"].as_u64() > Some(0);
        assert!(rows.iter().all(tried) && rows.iter().any(|row| runs(row) > 0), "{document:#}");
        let code = output.status.code();
        assert!(code == Some(1) || may_kill(), "{code:?}: {said}");
        until("the end of all processes", || !all.iter().any(is_running));
    }

    /// Whether this process is a generator of a run, which has a time: that of a check sends a number of datagrams.
    fn measures(id: u32) -> bool {
        let words = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        let mut words = words.split(|byte| *byte == 0);
        words.nth(1) == Some(b"flood") && words.any(|word| word == b"-t")
    }

    #[test]
    fn whoever_interrupts_gets_the_report() {
        if !is_here() {
            return;
        }
        let (child, all) = under_way();
        // It only waits, and mpirun waits for it.
        freeze(process_of_rank(&all, 1, false).expect("rank 1 was started"));
        crate::common::interrupt(process_of_rank(&all, 0, true).expect("rank 0 runs"));
        let output = ends(child);
        let (document, code) = (report_in(&output), output.status.code());
        let reason = document["reason"].as_str().unwrap_or_default();
        // Ranks have little time for a sign of life then, as mpirun may end them; whoever has no core meanwhile is lost.
        let late = [
            "of being asked to end",
            "gets no CPU time",
            "did not come in time",
            "did not end in time",
        ];
        if document["status"] == "failed" && late.iter().any(|late| reason.contains(late)) {
            assert_ne!(code, Some(0), "{document:#}");
        } else {
            assert_eq!(
                (&document["status"], &document["ended_by"]),
                (&"interrupted".into(), &"asked".into()),
                "{reason}\n{}",
                errors(&output)
            );
            assert!(reason.starts_with("ended by Ctrl-C"), "{reason}");
            assert!(code == Some(130) || may_kill(), "{code:?}");
            assert!(each(&document).iter().all(|rank| number(&rank["sent"]) > 0), "{document:#}");
        }
        until("the end of all processes", || !all.iter().any(is_running));
    }

    // ---- hosts of their own ------------------------------------------------------------------

    /// Hosts in namespaces, removed when dropped.
    struct Hosts(String);

    const MAKER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../xtask/mpi-hosts");

    impl Hosts {
        /// Four of them; none where they cannot be made.
        fn make() -> Option<Self> {
            static MADE: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
            let number = MADE.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let hosts = Self(format!("weir-{}-{number}", std::process::id()));
            let made = Command::new(MAKER)
                .args(["make", &hosts.0, "4"])
                .output()
                .expect("the script can be started");
            if made.status.success() {
                return Some(hosts);
            }
            cannot_run(&format!("no namespaces: {}", String::from_utf8_lossy(&made.stderr)));
            None
        }

        /// A command on one host.
        fn at(&self, number: usize, words: &[&str]) -> Command {
            let mut command = Command::new(MAKER);
            command.args(["at", &self.0, &number.to_string()]).args(words);
            command
        }

        /// A command where the hosts meet.
        fn at_switch(&self, words: &[&str]) {
            let switch = format!("{}-switch", self.0);
            let output = Command::new("ip")
                .args(["netns", "exec", &switch])
                .args(words)
                .output()
                .expect("ip runs");
            assert!(output.status.success(), "{words:?}: {}", errors(&output));
        }

        /// Waits until each of these hosts has sent datagrams.
        fn send_datagrams(&self, numbers: &[usize]) {
            let sent = |number: &usize| {
                let counts =
                    self.at(*number, &["cat", "/proc/net/snmp"]).output().expect("ip runs");
                let counts = String::from_utf8_lossy(&counts.stdout).into_owned();
                // Below the names of the counts; the fourth is of datagrams that were sent.
                let udp = counts.lines().filter(|line| line.starts_with("Udp:")).nth(1);
                let sent = udp.and_then(|udp| udp.split_whitespace().nth(4)?.parse::<u64>().ok());
                sent.unwrap_or(0)
            };
            until("datagrams of each host", || numbers.iter().all(|number| sent(number) > 10));
        }

        /// Waits until no process runs on any of these hosts.
        fn have_nobody(&self, numbers: &[usize]) {
            let runs = |number: &usize| {
                let name = format!("{}-{number}", self.0);
                let output =
                    Command::new("ip").args(["netns", "pids", &name]).output().expect("ip runs");
                assert!(output.status.success(), "{name}: {}", errors(&output));
                !output.stdout.is_empty()
            };
            until("the end of all processes", || !numbers.iter().any(runs));
        }

        /// It ended for this reason at the second of three generators, and nobody is left.
        fn blame_the_second(&self, output: &Output, why: &str) {
            let document = report_in(output);
            let reason = document["reason"].as_str().unwrap_or_default();
            let is_it = reason.starts_with("rank 1 on host2") && reason.contains(why);
            assert!(is_it, "{reason} {}", errors(output));
            assert_eq!(document["status"], "failed", "{document:#}");
            let code = output.status.code();
            assert!(code == Some(1) || may_kill(), "{code:?}");
            self.have_nobody(&[1, 2, 3]);
        }

        /// Ranks on the last so many hosts.
        fn ranks(&self, count: usize, words: &[&str]) -> Command {
            let mut command = Command::new(MAKER);
            command
                .env("MPIRUN", mpirun().join(" "))
                .args(["mpirun", &self.0, &count.to_string(), WEIR])
                .args(words)
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped());
            command
        }

        /// A server on host 0, and its end.
        fn serve(&self, words: &[&str]) -> Served {
            let mut child = self
                .at(0, &[WEIR])
                .args(words)
                .args(["--json", "--interval", "0", "--end-with-input"])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .expect("weir can be started");
            let mut line = String::new();
            let output = child.stdout.as_mut().expect("it is piped");
            BufReader::new(output).read_line(&mut line).expect("a ready line");
            assert!(line.contains("ready"), "{line}");
            Served(child)
        }
    }

    impl Drop for Hosts {
        fn drop(&mut self) {
            let _ = Command::new(MAKER).args(["remove", &self.0]).status();
        }
    }

    struct Served(Child);

    impl Drop for Served {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// The first host's address.
    const SERVER: &str = "10.77.0.1";

    fn serve_udp(hosts: &Hosts) -> Served {
        hosts.serve(&[
            "serve",
            "udp",
            "--bind",
            "10.77.0.1:5201",
            "--control",
            "10.77.0.1:5200",
            "--max-pps",
            "1m",
            "--max-bitrate",
            "1G",
            "--max-time",
            "1000",
        ])
    }

    #[test]
    fn generators_on_three_hosts_flood_a_fourth_and_a_planted_loss_stands_with_its_rank() {
        if !is_here() {
            return;
        }
        let Some(hosts) = Hosts::make() else { return };
        let server = serve_udp(&hosts);
        let flood = [
            "flood",
            SERVER,
            "--control",
            "5200",
            "--pps",
            "6000",
            "--any-pace",
            "-k",
            "3000",
            "--engine",
            "send",
            "--mpi",
            "--json",
        ];
        let output = run(hosts.ranks(3, &flood));
        let whole = document(&output);
        assert_eq!(whole["status"], "ok", "{whole:#} {}", errors(&output));
        let all = each(&whole);
        let names: Vec<_> = all.iter().map(|rank| rank["host"].as_str().expect("a name")).collect();
        assert_eq!(names, ["host1", "host2", "host3"]);
        assert_eq!(
            number(&whole["sent"]),
            number(&whole["received"]) + number(&whole["lost_packets"])
        );
        assert_eq!(whole["report"]["audit"]["data_errors"], false, "{whole:#}");
        assert!(number(&whole["ranks"]["all_ran_ns"]) > 0, "{whole:#}");
        // Every fourth datagram of the second generator is lost where the hosts meet.
        let rule = "table netdev weir { chain lose { type filter hook ingress device \"port2\" priority 0; \
                    meta l4proto udp numgen inc mod 4 == 0 drop; }; }";
        hosts.at_switch(&["nft", rule]);
        let output = run(hosts.ranks(3, &flood));
        let lossy = document(&output);
        assert_eq!(lossy["status"], "ok", "{lossy:#} {}", errors(&output));
        let all = each(&lossy);
        let (sent, lost) = (number(&all[1]["sent"]), number(&all[1]["lost_packets"]));
        assert!(lost >= sent / 4, "{lossy:#}");
        assert!(number(&all[0]["lost_packets"]) < sent / 4, "{lossy:#}");
        assert_eq!(number(&lossy["lost_packets"]), sum(all, "lost_packets"));
        drop(server);
    }

    #[test]
    fn a_link_that_is_taken_down_is_told_with_its_rank() {
        if !is_here() {
            return;
        }
        let Some(hosts) = Hosts::make() else { return };
        let server = serve_udp(&hosts);
        let flood =
            ["flood", SERVER, "--control", "5200", "--pps", "300", "-t", "60", "--mpi", "--json"];
        let child = hosts.ranks(3, &flood).spawn().expect("mpirun can be started");
        // Their datagrams have come once the bridge has forwarded some of the port that is taken down.
        let switch = format!("{}-switch", hosts.0);
        until("a datagram on every link", || {
            let count = Command::new("ip")
                .args([
                    "netns",
                    "exec",
                    &switch,
                    "cat",
                    "/sys/class/net/port2/statistics/rx_packets",
                ])
                .output()
                .expect("ip runs");
            String::from_utf8_lossy(&count.stdout)
                .trim()
                .parse::<u64>()
                .is_ok_and(|count| count > 100)
        });
        hosts.at_switch(&["ip", "link", "set", "port2", "down"]);
        let output = ends(child);
        // Its flood may miss the server first, and rank 0 the rank.
        hosts.blame_the_second(&output, "no sign of ");
        drop(server);
    }

    #[test]
    fn a_rank_that_has_no_descriptors_left_is_named_and_nobody_is_left() {
        if !is_here() {
            return;
        }
        let Some(hosts) = Hosts::make() else { return };
        let server = serve_udp(&hosts);
        // A socket for each flow, of which the second rank can open some.
        let flood = ["flood", SERVER, "--control", "5200", "--pps", "300", "-t", "60", "-P", "100"];
        let flood = [&flood[..], &["--any-pace", "--mpi", "--json"]].concat();
        let mut command = hosts.ranks(3, &flood);
        command.env("DESCRIPTORS", "- - 64 -");
        let output = run(command);
        hosts.blame_the_second(&output, "Too many open files");
        drop(server);
    }

    /// A flood of generators on three hosts of which the second is lost in the middle, by this.
    fn loses_the_second_host(lose: fn(u32), how: &str) {
        if !is_here() {
            return;
        }
        let Some(hosts) = Hosts::make() else { return };
        let server = serve_udp(&hosts);
        let flood = ["flood", SERVER, "--control", "5200", "--pps", "300", "-t", "60"];
        let flood = [&flood[..], &["--any-pace", "--mpi", "--json"]].concat();
        let child = hosts.ranks(3, &flood).spawn().expect("mpirun can be started");
        hosts.send_datagrams(&[1, 2, 3]);
        let all = descendants(child.id());
        lose(process_of_rank(&all, 1, true).expect("rank 1 runs"));
        let code = told_of_the_loss_among(3, child, &all, how);
        assert!(code == Some(1) || may_kill(), "{code:?}");
        drop(server);
    }

    #[test]
    fn a_generator_on_a_host_of_its_own_that_is_killed_is_named() {
        loses_the_second_host(kill, "its process is gone");
    }

    #[test]
    fn a_generator_on_a_host_of_its_own_that_is_stopped_is_named() {
        loses_the_second_host(freeze, "stood still");
    }

    /// Connections of three hosts to a fourth, of which the first is lost in the middle, by this.
    fn loses_a_host_of_connections(lose: fn(u32), how: &str) {
        if !is_here() {
            return;
        }
        let Some(hosts) = Hosts::make() else { return };
        let server = hosts.serve(&["serve", "tcp", "--bind", "10.77.0.1:5150", "--echo"]);
        let load = ["load", "tcp", SERVER, "-c", "9", "-t", "60", "--mpi"];
        let load = [&load[..], &["--mpi-server", "0", "--json"]].concat();
        let child = hosts.ranks(4, &load).spawn().expect("mpirun can be started");
        until("all connections", || {
            let open = ["ss", "-Htn", "state", "established", "sport", "=", ":5150"];
            let open = hosts.at(0, &open).output().expect("ss runs");
            String::from_utf8_lossy(&open.stdout).lines().count() >= 9
        });
        let all = descendants(child.id());
        lose(process_of_rank(&all, 1, true).expect("rank 1 runs"));
        let (document, code) = ended_by_the_loss(child, &all, how);
        assert!(code == Some(1) || may_kill(), "{code:?}");
        drop(server);
        // What the others did until then.
        let (report, each) = (&document["report"], each(&document));
        assert_eq!(report["ranks"]["complete"], false, "{document:#}");
        let connected: Vec<_> = each.iter().map(|rank| rank["connected"].as_u64()).collect();
        assert_eq!(connected, [None, None, Some(3), Some(3)], "{document:#}");
        assert_eq!(number(&report["connected"]), 6, "{document:#}");
        assert!(number(&report["messages_over"]) > 0, "{document:#}");
        let of_ranks = |rank: &Value| rank["messages"].as_u64().unwrap_or(0);
        let messages: u64 = each.iter().map(of_ranks).sum();
        assert_eq!(report["window"]["messages"].as_u64().unwrap_or(0), messages, "{document:#}");
        if messages > 0 {
            assert!(number(&report["latency_ns"]["n"]) > 0, "{document:#}");
        }
    }

    #[test]
    fn a_host_of_connections_that_is_killed_is_named() {
        loses_a_host_of_connections(kill, "its process is gone");
    }

    #[test]
    fn a_host_of_connections_that_is_stopped_is_named() {
        loses_a_host_of_connections(freeze, "stood still");
    }

    #[test]
    fn connections_from_three_hosts_load_a_fourth_that_takes_part() {
        if !is_here() {
            return;
        }
        let Some(hosts) = Hosts::make() else { return };
        let server = hosts.serve(&["serve", "tcp", "--bind", "10.77.0.1:5150", "--echo"]);
        let load = [
            "load",
            "tcp",
            SERVER,
            "-c",
            "9",
            "-t",
            "300ms",
            "--mpi",
            "--mpi-server",
            "0",
            "--json",
        ];
        let output = run(hosts.ranks(4, &load));
        let document = document(&output);
        assert_eq!(document["status"], "ok", "{document:#} {}", errors(&output));
        let connected = each(&document)[1..].iter().map(|rank| number(&rank["connected"]));
        assert_eq!(connected.collect::<Vec<_>>(), [3, 3, 3]);
        assert_eq!(document["report"]["data_errors"], false);
        drop(server);
    }

    #[test]
    fn designs_of_tcp_and_their_limits_are_compared_over_hosts() {
        if !is_here() {
            return;
        }
        let Some(hosts) = Hosts::make() else { return };
        let limited =
            "epoll --per-address 1000 --silent 10s --close-when-full --connections-max 1000";
        let words = ["compare", "tcp", "--mpi", "--design", limited, "-c", "9", "-l", "64"];
        let words = [&words[..], &["--rounds", "1", "--no-save", "--json"]].concat();
        let output = run(hosts.ranks(4, &words));
        let document = document(&output);
        assert!(document["error"].is_null(), "{document:#} {}", errors(&output));
        let rows = document["results"].as_array().expect("rows");
        assert!(!rows.is_empty());
        for row in rows {
            // The machine may be too busy to rank it, but it has run.
            let run = &row["runs"][0];
            assert!(!run.is_null(), "{row:#}");
        }
    }

    /// Two hosts, as in the original study, whose loads are shares of a link that is said to be slow.
    #[test]
    fn the_original_study_is_repeated_over_two_hosts() {
        if !is_here() {
            return;
        }
        let Some(hosts) = Hosts::make() else { return };
        let words = ["compare", "udp", "--mpi", "--study", "holgate", "--link-speed", "10M"];
        let designs = ["--design", "port --armed 5000 --submit-after 1"];
        let more = ["--rounds", "1", "--no-save", "--details", "--json"];
        let output = run(hosts.ranks(2, &[&words[..], &designs, &more].concat()));
        crate::common::assert_compared(&output);
        let document = document(&output);
        assert!(document["error"].is_null(), "{document:#} {}", errors(&output));
        let loads = document["loads"].as_array().expect("loads");
        let shares: Vec<_> = loads.iter().map(|load| &load["load"]["link"]["share"]).collect();
        assert_eq!(shares, [0.25, 0.5, 0.75], "{document:#}");
        for load in loads {
            let published = load["published"].as_array().expect("figures");
            assert!(published.iter().any(|figure| figure["test"] == "50 % link: simple RIO"));
        }
        let rows = document["results"].as_array().expect("rows");
        assert!(rows.iter().all(crate::common::is_ranked_or_says_why));
        // What the study had are two ranks.
        for row in rows {
            let of = &row["hosts"];
            assert_eq!(of["generators"].as_array().map(Vec::len), Some(1), "{row:#}");
            assert_eq!(
                (&of["server"]["name"], &of["server"]["link"]["mtu_bytes"]),
                (&"host3".into(), &1500.into())
            );
        }
        // On standard error, as the document has the other one.
        let said = errors(&output).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.contains("published (Holgate"), "{said}");
        assert!(said.contains("50 % link: simple RIO"), "{said}");
        assert!(
            said.contains("Each row: 1 generator on host2, server on host3; weir0, "),
            "{said}"
        );
    }

    /// The script makes hosts, has mpirun start a rank on each, and removes them.
    #[test]
    fn a_comparison_over_hosts_of_one_machine_takes_one_line() {
        if !is_here() {
            return;
        }
        let Some(hosts) = Hosts::make() else { return };
        drop(hosts);
        let words = ["compare", "udp", "--mpi", "--quick", "--design", "epoll"];
        let words = [&words[..], &["--rounds", "1", "--no-save", "--json"]].concat();
        let child = Command::new(MAKER)
            .env("MPIRUN", mpirun().join(" "))
            .args(["run", "4", WEIR])
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the script can be started");
        let made = format!("weir-{}-", child.id());
        let output = ends(child);
        crate::common::assert_compared(&output);
        let document = document(&output);
        let rows = document["results"].as_array().expect("rows");
        assert!(!rows.is_empty() && rows.iter().all(crate::common::is_ranked_or_says_why));
        assert_eq!(document["hosts"]["generators"].as_array().map(Vec::len), Some(3));
        let left = Command::new("ip").args(["netns", "list"]).output().expect("ip runs").stdout;
        assert!(!String::from_utf8_lossy(&left).contains(&made), "{made} is left");
    }

    /// What became of every datagram in all runs of a comparison: the counts of each row, and what is not explained.
    fn ledgers(value: &Value, found: &mut Vec<(Value, i64)>) {
        match value {
            Value::Object(fields) => {
                // Each run has one, too, which is in that of its row.
                let of_row = |ledger: &&Value| ledger["counts"].is_object();
                if let Some(ledger) = fields.get("ledger").filter(of_row) {
                    let unexplained = ledger["unexplained"].as_i64().expect("a number");
                    found.push((ledger["counts"].clone(), unexplained));
                }
                fields.values().for_each(|value| ledgers(value, found));
            }
            Value::Array(values) => values.iter().for_each(|value| ledgers(value, found)),
            _ => {}
        }
    }

    /// How many seconds the clocks of hosts 0 to 3 are ahead, if hosts of one machine can have clocks of their own.
    const AHEAD_S: [i64; 4] = [0, 7_000, 90_000, 500];

    fn can_have_clocks() -> bool {
        let words = ["--time", "--monotonic", "1", "true"];
        let output = Command::new("unshare").args(words).output();
        let can = output.is_ok_and(|output| output.status.success());
        if !can {
            cannot_run("no time namespaces, so all hosts have one clock");
        }
        can
    }

    /// That the runs of a comparison whose server is on host 1 have compared the clocks of the generators on hosts 0, 2 and 3
    /// with its own, and have told of latencies, or why not.
    fn compared_clocks(document: &Value, ahead_s: [i64; 4]) {
        let rows = document["results"].as_array().into_iter().flatten();
        let runs: Vec<&Value> = rows.filter_map(|row| row["runs"].as_array()).flatten().collect();
        assert!(!runs.is_empty(), "{document:#}");
        for run in runs {
            let clocks = run["clocks"].as_array().unwrap_or_else(|| panic!("no clocks: {run:#}"));
            let of: Vec<u64> = clocks.iter().map(|clock| number(&clock["rank"])).collect();
            assert_eq!(of, [0, 2, 3]);
            for clock in clocks {
                let host = number(&clock["rank"]) as usize;
                let truly_ns = (ahead_s[host] - ahead_s[1]) * 1_000_000_000;
                let told_ns = clock["offset_ns"].as_i64().expect("a number");
                let wrong_ns = told_ns.abs_diff(truly_ns);
                assert!(wrong_ns <= number(&clock["uncertainty_ns"]), "{clock:#}");
            }
            let most = clocks.iter().map(|clock| number(&clock["uncertainty_ns"])).max();
            match (&run["latency_withheld"], &run["latency_ns"]) {
                (Value::Null, Value::Null) => {
                    assert!(run["ledger"]["received"] == 0, "{run:#}");
                }
                (Value::Null, latency) => {
                    let wrong_ns = number(&run["latency_uncertainty_ns"]);
                    assert_eq!(Some(wrong_ns), most);
                    let median_ns = number(&latency["p50"]);
                    assert!(wrong_ns <= median_ns / 5, "{latency:#}");
                    // By clocks that were not compared it would be more than an hour, or less than nothing.
                    assert!(number(&latency["p99_9"]) < 60_000_000_000, "{latency:#}");
                }
                (why, latency) => {
                    assert!(latency.is_null(), "{run:#}");
                    let why = why.as_str().expect("a reason");
                    assert!(why.contains("clocks are known within"), "{why}");
                }
            }
        }
    }

    #[test]
    fn a_comparison_over_hosts_accounts_for_every_datagram_and_says_what_the_network_lost() {
        if !is_here() {
            return;
        }
        let Some(hosts) = Hosts::make() else { return };
        let ahead_s = if can_have_clocks() { AHEAD_S } else { [0; 4] };
        let words = [
            "compare",
            "udp",
            "--mpi",
            "--design",
            "blocking-batch",
            "--load",
            "3000",
            "--no-send-offload",
            "--rounds",
            "1",
            "--json",
        ];
        let compared = || {
            let mut command = hosts.ranks(4, &words);
            if ahead_s == AHEAD_S {
                command.env("CLOCKS", ahead_s.map(|ahead| ahead.to_string()).join(" "));
            }
            let output = run(command);
            let document = document(&output);
            compared_clocks(&document, ahead_s);
            let mut all = vec![];
            ledgers(&document, &mut all);
            assert!(!all.is_empty(), "{document:#} {}", errors(&output));
            (document, all)
        };
        let (document, all) = compared();
        let of = &document["hosts"];
        assert_eq!(of["server"]["name"], "host1", "{of:#}");
        assert_eq!(of["server"]["link"]["device"], "weir0", "{of:#}");
        assert_eq!(of["generators"].as_array().map(Vec::len), Some(3), "{of:#}");
        for (counts, unexplained) in all {
            let sent = number(&counts["sent"]);
            assert!(sent > 0 && unexplained.unsigned_abs() * 1000 <= sent, "{counts:#}");
            assert!(number(&counts["lost_network"]) * 1000 <= sent, "{counts:#}");
        }
        // Every fourth datagram of one of three generators is lost where the hosts meet.
        let rule = "table netdev weir { chain lose { type filter hook ingress device \"port2\" priority 0; \
                    meta l4proto udp numgen inc mod 4 == 0 drop; }; }";
        hosts.at_switch(&["nft", rule]);
        for (counts, unexplained) in compared().1 {
            let sent = number(&counts["sent"]);
            assert!(unexplained.unsigned_abs() * 1000 <= sent, "{counts:#}");
            let lost = number(&counts["lost_network"]);
            assert!(lost >= sent / 20 && lost <= sent / 8, "a twelfth: {counts:#}");
        }
    }
}
