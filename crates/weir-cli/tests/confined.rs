//! What the command says where the machine gives less than it needs: io_uring forbidden, few
//! descriptors, little memory, no privilege. The limits are put on the command alone.

#![forbid(unsafe_code)]
#![cfg(target_os = "linux")]

mod common;

use std::process::{Output, Stdio};

use common::{document, errors, weir};
use serde_json::Value;
use weir_confine::{Confinement, Resource};

const EPERM: i32 = 1;
const ENOSYS: i32 = 38;

/// What io_uring_setup answers, what is said then, and the advice.
const FORBIDDEN: [(i32, &str, &str); 2] = [
    (EPERM, "a seccomp filter or a security module forbids it", "allow it in the container's"),
    (ENOSYS, "this kernel was built without io_uring", "use a kernel with CONFIG_IO_URING"),
];

/// Descriptors that a program needs to be loaded with its libraries: the three of its own, and
/// two.
const LOADS: u64 = 5;

/// Runs the command to its end; its input is at an end already.
fn confined(confinement: Confinement, words: &[&str]) -> Output {
    let mut command = weir(words);
    confinement.confine(command.stdin(Stdio::null())).output().expect("weir can be started")
}

fn serve(confinement: Confinement, words: &[&str]) -> Output {
    let mut all = vec!["serve", "udp", "--bind", "127.0.0.1:0", "--end-with-input"];
    all.extend_from_slice(words);
    confined(confinement, &all)
}

/// Checks how the command ended, and that it said each of these.
#[track_caller]
fn assert_said(output: &Output, code: i32, said: &[&str]) {
    let errors = errors(output);
    assert_eq!(output.status.code(), Some(code), "{errors}");
    for said in said {
        assert!(errors.contains(said), "{said:?} is missing of {errors}");
    }
}

/// The entry of a list that has this name.
fn named<'v>(list: &'v Value, name: &str) -> &'v Value {
    let entries = list.as_array().expect("a list");
    entries.iter().find(|entry| entry["name"] == name).unwrap_or_else(|| panic!("no {name}"))
}

#[test]
fn designs_say_that_io_uring_is_forbidden() {
    for (errno, reason, advice) in FORBIDDEN {
        let list = confined(Confinement::new().forbid_io_uring(errno), &["designs", "--json"]);
        assert_eq!(list.status.code(), Some(0), "{}", errors(&list));
        let list = document(&list);
        let (designs, providers) = (&list["designs"], &list["providers"]);
        let without = ["port", "port-batch"].map(|name| named(designs, name));
        let rings = ["uring", "uring-interrupt", "uring-sqpoll"].map(|name| named(providers, name));
        for entry in without.into_iter().chain(rings) {
            assert_eq!(entry["status"], "unavailable", "{entry}");
            let said = entry["reason"].as_str().unwrap();
            assert!(said.contains(reason) && said.contains(advice), "{said}");
        }
        // These have another way, or need no ring.
        for name in ["blocking", "epoll", "rio-polled", "rio-event", "rio-hybrid"] {
            assert_eq!(named(designs, name)["status"], "ok", "{name}");
        }
        assert_eq!(named(providers, "batch")["status"], "ok");
    }
}

#[test]
fn a_server_without_io_uring_says_so_and_what_to_do() {
    for (errno, reason, advice) in FORBIDDEN {
        for design in ["port", "rio-event --provider uring", "rio-hybrid --provider uring"] {
            let confinement = Confinement::new().forbid_io_uring(errno);
            let failed = serve(confinement, &["--design", design, "--json"]);
            assert_said(&failed, 5, &[reason, advice]);
            let error = &document(&failed)["error"];
            assert_eq!(error["unavailable"], true, "{design}");
            assert!(error["message"].as_str().unwrap().contains(reason), "{design}");
        }
    }
}

#[test]
fn what_is_left_to_weirs_choice_runs_without_io_uring_and_says_on_what() {
    let confinement = Confinement::new().forbid_io_uring(EPERM);
    let served = serve(confinement, &["--design", "rio-hybrid", "--json"]);
    assert_eq!(served.status.code(), Some(0), "{}", errors(&served));
    let text = String::from_utf8(served.stdout).unwrap();
    let ready: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    assert_eq!(ready["ready"]["settings"]["provider"], "batch", "{ready}");
}

#[test]
fn a_limit_of_descriptors_is_named_before_anything_runs_and_is_the_reason_of_its_rows() {
    let few = || Confinement::new().limit(Resource::Descriptors, 64);
    let words = ["compare", "tcp", "--design", "epoll", "-c", "1,1000", "--json"];
    let planned = confined(few(), &[&words[..], &["--dry-run"]].concat());
    let said =
        "a server of 1000 connections takes 1032 descriptors or more, and a process may have 64";
    assert_said(&planned, 0, &[said, "ulimit -n 1032"]);
    let compared = confined(few(), &[&words[..], &["--rounds", "1"]].concat());
    common::assert_compared(&compared);
    assert!(errors(&compared).contains(said), "{}", errors(&compared));
    let document = document(&compared);
    for row in document["results"].as_array().unwrap() {
        let many = row["load"]["connections"] == 1000;
        assert_eq!(row["status"], if many { "unavailable" } else { "ok" }, "{row:#}");
        assert_eq!(row["reason"].as_str().is_some_and(|why| why.contains("ulimit -n")), many);
    }
    assert!(document["warnings"].to_string().contains(said), "{}", document["warnings"]);
}

const EINVAL: i32 = 22;

#[test]
fn where_threads_may_not_be_bound_to_cores_everything_runs_unbound_and_says_so() {
    let said = "may not bind threads to cores";
    for errno in [EPERM, EINVAL] {
        let forbidden = || Confinement::new().forbid_affinity(errno);
        for design in ["blocking", "rio-sharded --provider batch"] {
            let served = serve(forbidden(), &["--design", design, "--cpu", "0", "--json"]);
            assert_said(&served, 0, &[said]);
            let text = String::from_utf8(served.stdout).unwrap();
            let ready: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
            let cpu = ready["ready"]["settings"]["cpu"].as_str().unwrap();
            assert!(cpu.starts_with("any ("), "{ready}");
        }
        let words = ["serve", "tcp", "--cpu", "0", "--bind", "127.0.0.1:0", "--end-with-input"];
        assert_said(&confined(forbidden(), &words), 0, &[said]);
        let read = ["iops", "/dev/null", "--cpu", "0", "-k", "1k", "-O", "0", "-i", "0", "--json"];
        let read = confined(forbidden(), &read);
        assert_said(&read, 0, &[said]);
        assert!(document(&read)["settings"].to_string().contains("any ("), "{}", document(&read));
        for words in
            [&["flood", "127.0.0.1", "-p", "9"][..], &["load", "tcp", "127.0.0.1", "-p", "9"]]
        {
            let sent = confined(forbidden(), &[words, &["--cpu", "0", "-t", "50ms"]].concat());
            let errors = errors(&sent);
            assert!(errors.contains(said) && !errors.contains("cannot"), "{errors}");
        }
        // A core that there is not is no better for it.
        assert_said(&serve(Confinement::new(), &["--cpu", "8000"]), 2, &["8000"]);
    }
}

#[test]
fn a_design_that_pins_its_threads_says_whether_it_could() {
    let design = "rio-sharded --provider batch --threads 1 --steering core";
    for (confinement, begins) in
        [(Confinement::new(), "yes"), (Confinement::new().forbid_affinity(EPERM), "no: ")]
    {
        let served = serve(confinement, &["--design", design, "--json"]);
        assert_eq!(served.status.code(), Some(0), "{}", errors(&served));
        let text = String::from_utf8(served.stdout).unwrap();
        let ready: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        let pinned = ready["ready"]["settings"]["pinned"].as_str();
        assert!(pinned.is_some_and(|said| said.starts_with(begins)), "{ready}");
    }
}

#[test]
fn a_comparison_where_threads_may_not_be_bound_has_its_rows() {
    let words = ["compare", "tcp", "--design", "epoll", "-c", "1", "--rounds", "1"];
    let detailed = [&words[..], &["--details"]].concat();
    let text = confined(Confinement::new().forbid_affinity(EPERM), &detailed);
    common::assert_compared(&text);
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("server and client on any core: sched_setaffinity: "), "{text}");
    assert!(text.contains("warning: no thread may be bound to a core here"), "{text}");
    let words = [&words[..], &["--json"]].concat();
    let compared = document(&confined(Confinement::new().forbid_affinity(EPERM), &words));
    assert!(compared["machine"]["binding_to_cores_forbidden"].is_string(), "{compared}");
    for row in compared["results"].as_array().unwrap() {
        assert_eq!(row["status"], "ok", "{row:#}");
    }
}

#[test]
fn a_comparison_without_io_uring_has_its_rows_and_ranks_the_others() {
    for (errno, reason, advice) in FORBIDDEN {
        let words = ["compare", "udp", "--quick", "--rounds", "1", "--json"];
        let rows = ["port", "rio-event --provider uring", "rio-event --provider batch", "blocking"];
        let designs: Vec<_> = rows.iter().flat_map(|row| ["--design", row]).collect();
        let confinement = Confinement::new().forbid_io_uring(errno);
        let run = confined(confinement, &[&words[..], &designs].concat());
        common::assert_compared(&run);
        for row in document(&run)["results"].as_array().unwrap() {
            let ring = row["design"] == "port" || row["provider"] == "uring";
            assert_eq!(row["status"] == "unavailable", ring, "{row:#}");
            if ring {
                let said = row["reason"].as_str().unwrap();
                assert!(said.contains(reason) && said.contains(advice), "{said}");
                assert!(row["metrics"]["received_per_s"]["median"].is_null(), "{row:#}");
            }
        }
    }
}

#[test]
fn a_comparison_of_what_cannot_run_says_that_nothing_can() {
    let confinement = Confinement::new().forbid_io_uring(EPERM);
    let words = ["compare", "udp", "--quick", "-t", "2", "--design", "port", "--json"];
    let compared = confined(confinement, &words);
    assert_eq!(compared.status.code(), Some(5), "{}", errors(&compared));
    let rows = document(&compared)["results"].clone();
    assert!(rows.as_array().unwrap().iter().all(|row| row["status"] == "unavailable"), "{rows:#}");
}

/// From a limit at which a program can just be loaded to one at which all can be opened.
#[test]
fn the_limit_on_descriptors_is_named() {
    for design in ["blocking", "epoll", "port", "rio-hybrid --provider uring", "rio-event"] {
        let mut refusals = 0;
        for most in LOADS..40 {
            let confinement = Confinement::new().limit(Resource::Descriptors, most);
            let ended = serve(confinement, &["--design", design, "--control", "127.0.0.1:0"]);
            if ended.status.success() {
                break;
            }
            refusals += 1;
            let code = ended.status.code();
            assert!(matches!(code, Some(1 | 5)), "{design} with {most}: {}", errors(&ended));
            assert_said(&ended, code.unwrap(), &["ulimit -n"]);
        }
        assert!(refusals > 0 && LOADS + refusals < 40, "{design}: {refusals} refusals");
    }
}

#[test]
fn a_flood_names_the_limit_on_descriptors() {
    let confinement = Confinement::new().limit(Resource::Descriptors, 12);
    let flood =
        confined(confinement, &["flood", "127.0.0.1", "-p", "9", "-P", "64", "-t", "1", "-i", "0"]);
    assert_said(&flood, 1, &["ulimit -n"]);
}

#[test]
fn memory_that_cannot_be_had_is_said_in_bytes() {
    for design in ["rio-hybrid --provider batch", "rio-hybrid --provider uring", "port"] {
        let confinement = Confinement::new().limit(Resource::AddressSpace, 4 << 30);
        let design = format!("{design} --outstanding 1000000");
        let failed = serve(confinement, &["--design", &design, "--size", "65507"]);
        assert_said(&failed, 1, &["bytes of memory for 1000000 slices", "ask for fewer"]);
    }
}

/// Rings of today's kernels are not locked memory, those of older ones are: then it is said.
#[test]
fn without_locked_memory_a_server_runs_or_names_the_limit() {
    for (design, needs_none) in
        [("rio-hybrid --provider uring", false), ("port", false), ("blocking", true)]
    {
        let confinement = Confinement::new().unprivileged().limit(Resource::LockedMemory, 0);
        let ended = serve(confinement, &["--design", design]);
        if needs_none || ended.status.success() {
            assert_said(&ended, 0, &[]);
        } else {
            assert_said(&ended, 5, &["ulimit -l"]);
        }
    }
}

/// Older kernels refuse it, newer ones a part of it; what they refuse is said.
#[test]
fn busy_polling_that_needs_privilege_is_said() {
    for design in ["blocking", "epoll", "rio-event", "rio-sharded --threads 2"] {
        let words = ["--design", design, "--busy-poll", "50us", "--json"];
        let ended = serve(Confinement::new().unprivileged(), &words);
        if ended.status.success() {
            let text = String::from_utf8(ended.stdout).unwrap();
            let ready: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
            let told = ready["ready"]["settings"]["busy-poll"].as_str().unwrap();
            assert!(told.starts_with("50 µs") && told.contains("without CAP_NET_ADMIN"), "{told}");
        } else {
            assert_said(&ended, 5, &["SO_BUSY_POLL", "CAP_NET_ADMIN", "leave it off"]);
        }
    }
}

#[test]
fn a_port_that_needs_privilege_is_said() {
    let first_free = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start")
        .map_or(1024, |text| text.trim().parse().expect("a port"));
    if first_free < 2 {
        eprintln!("skipped: here no port needs privilege (net.ipv4.ip_unprivileged_port_start)");
        return;
    }
    let words = ["serve", "udp", "--design", "blocking", "--bind", "127.0.0.1:1"];
    let failed = confined(Confinement::new().unprivileged(), &words);
    assert_said(&failed, 1, &["127.0.0.1:1", "choose a higher one"]);
}

#[test]
fn a_load_without_io_uring_says_which_engine_it_has_and_why() {
    let forbidden = || Confinement::new().forbid_io_uring(EPERM);
    let words = ["load", "tcp", "127.0.0.1", "-p", "9", "--dry-run"];
    let planned = confined(forbidden(), &words);
    assert_eq!(planned.status.code(), Some(0), "{}", errors(&planned));
    let said = String::from_utf8(planned.stdout).unwrap();
    for part in ["readiness (epoll)", "io_uring_setup", "os error 1"] {
        assert!(said.contains(part), "{part:?} is missing of {said}");
    }
    let asked = confined(forbidden(), &[&words[..], &["--engine", "uring"]].concat());
    assert_said(&asked, 5, &["engine uring", "use the engine readiness"]);
}
