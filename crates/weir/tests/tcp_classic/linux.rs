//! What has to do with limits that only Linux has.

use super::*;
use std::{
    fs::File,
    io::Write as _,
    os::fd::AsRawFd,
    process::Command,
    ptr,
    sync::{Arc, Mutex},
};
use tcp::PATIENCE;
use weir::tcp::Output;

/// The set of the C library ends at 1024 descriptors.
#[test]
fn select_serves_descriptors_above_1024() {
    // The other tests are not to want for descriptors meanwhile.
    if !alone("linux::select_serves_descriptors_above_1024") {
        return;
    }
    let mut many = Vec::new();
    while many.last().map_or(0, File::as_raw_fd) < 1100 {
        match File::open("/dev/null") {
            Ok(file) => many.push(file),
            Err(e) => return eprintln!("skipped: no 1100 descriptors to be had: {e}"),
        }
    }
    for design in ["select", "select-indexed"] {
        let running = start(design);
        let mut client = connect(running.local_addresses()[0]);
        exchange(&mut client, b"above");
        end(client);
        let _ = stop(running);
    }
}

/// Of each burst only a few messages find room in the queue.
#[test]
fn async_select_survives_a_queue_that_is_full() {
    // The limit is that of a process: the other tests' queues are not to be full.
    if !alone("linux::async_select_survives_a_queue_that_is_full") {
        return;
    }
    let mut before = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: writes a limit that outlives the call.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_SIGPENDING, &raw mut before) }, 0);
    let few = libc::rlimit { rlim_cur: 2, ..before };
    // SAFETY: reads a limit that outlives the call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_SIGPENDING, &raw const few) }, 0);
    // While it is held at the first of a burst the others come.
    let gate = Arc::new(Mutex::new(()));
    let its = Arc::clone(&gate);
    let running = Server::bind("127.0.0.1:0".parse().unwrap())
        .start(AnyDesign::parse("async-select").unwrap(), move |_| {
            let gate = Arc::clone(&its);
            move |bytes: &mut [u8], output: &mut Output<'_>| {
                drop(gate.lock().unwrap());
                echo(bytes, output);
            }
        })
        .unwrap();
    let address = running.local_addresses()[0];
    let mut clients: Vec<_> = (0..100).map(|_| connect(address)).collect();
    for _ in 0..20 {
        let held = gate.lock().unwrap();
        clients.iter_mut().for_each(|client| client.write_all(b"all at once").unwrap());
        drop(held);
        for client in &mut clients {
            let mut back = [0; 11];
            client.read_exact(&mut back).unwrap();
            assert_eq!(back, *b"all at once");
        }
    }
    clients.into_iter().for_each(end);
    let total = stop(running).total();
    // SAFETY: reads a limit that outlives the call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_SIGPENDING, &raw const before) }, 0);
    assert!(total.queue_overflows > 0);
    assert_eq!(total.closed_finished, 100);
}

/// Set where a test runs in a process of its own.
const ALONE: &str = "WEIR_TEST_ALONE";

/// Whether this process is there for this test; else it was run in one, and went well.
fn alone(name: &str) -> bool {
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    let output = command.args(["--exact", name, "--nocapture"]).env(ALONE, "1").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", output.status);
    eprint!("{said}");
    false
}

/// Beyond them the runtime would end the process.
#[test]
fn blocking_refuses_where_the_process_has_no_more_mappings() {
    const LEFT: usize = 400;
    const PAGE: usize = 4096;
    let most = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap();
    let most: usize = most.trim().parse().unwrap();
    if most > 1 << 18 {
        return eprintln!("skipped: it takes long to use up {most} mappings");
    }
    if !alone("linux::blocking_refuses_where_the_process_has_no_more_mappings") {
        return;
    }
    // Pages in turn of two kinds, each a mapping; a sixteenth of all is kept by the library.
    let mapped = std::fs::read_to_string("/proc/self/maps").unwrap().lines().count();
    let pages = most - most / 16 - mapped - LEFT;
    // SAFETY: new memory, which nobody touches.
    let first = unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        libc::mmap(ptr::null_mut(), pages * PAGE, libc::PROT_NONE, flags, -1, 0)
    };
    assert_ne!(first, libc::MAP_FAILED);
    for page in (0..pages).step_by(2) {
        // SAFETY: a page of the memory above.
        let answer = unsafe { libc::mprotect(first.byte_add(page * PAGE), PAGE, libc::PROT_READ) };
        assert_eq!(answer, 0);
    }
    let running = start("blocking");
    let effective = running.effective();
    let stated = |name: &str| &effective.iter().find(|(known, _)| known == name).unwrap().1;
    let limit = format!("vm.max_map_count = {most}");
    assert_eq!(*stated("threads-limit"), limit);
    let within = stated("threads-max").parse::<usize>().unwrap() / 2;
    assert!((30..=LEFT / 8).contains(&within), "{effective:?}");
    // Without a limit these would take what is kept, too.
    let crowd = within + most / 16 / 8 + 50;
    let mut clients = Vec::new();
    for number in 0..crowd {
        let mut client = connect(running.local_addresses()[0]);
        if number < within {
            exchange(&mut client, b"within");
            clients.push(client);
        } else {
            let why = refusal(client);
            assert!(why.ends_with(&format!("as many as there are threads for ({limit})")), "{why}");
        }
    }
    clients.iter_mut().for_each(|client| exchange(client, b"at last"));
    clients.into_iter().for_each(end);
    let total = stop(running).total();
    assert_eq!((total.accepted, total.refused), (within as u64, (crowd - within) as u64));
}

/// What a peer takes at first is no reason to wait for twice the time: a send that brought a part of it does not tell
/// when that was, so the system is asked in parts of the time.
#[test]
fn blocking_closes_a_peer_that_stalls_in_the_middle_of_a_send() {
    const MUCH: usize = 16 << 20;
    let stalled = Duration::from_secs(1);
    let limits = Limits::default().stalled(Some(stalled)).output_bytes(2 * MUCH);
    let running = Server::bind("127.0.0.1:0".parse().unwrap())
        .limits(limits)
        .start(AnyDesign::parse("blocking").unwrap(), |_| {
            |_: &mut [u8], output: &mut Output<'_>| output.send(&vec![7; MUCH]).unwrap()
        })
        .unwrap();
    let mut client = connect(running.local_addresses()[0]);
    let since = Instant::now();
    client.write_all(b"much").unwrap();
    // In this order: it is open before it is counted as accepted.
    while running.counters().accepted == 0 || running.open() > 0 {
        thread::sleep(Duration::from_millis(20));
        assert!(since.elapsed() < PATIENCE, "it is still open");
    }
    assert!(since.elapsed() >= stalled, "{:?}", since.elapsed());
    let ended = stop(running);
    let total = ended.total();
    assert_eq!(total.closed_stalled, 1);
    // A send that brought a part, and as many as the time has parts in which nothing went.
    assert!(ended.calls().waits > 8, "{:?}", ended.calls());
    assert!(total.bytes_sent > 0, "nothing was taken at first");
}

#[test]
fn the_most_connections_that_were_open_are_counted_where_they_come_in() {
    for design in ["epoll --threads 1", "blocking"] {
        let running = start(design);
        let address = running.local_addresses()[0];
        let mut clients: Vec<_> = (0..7).map(|_| connect(address)).collect();
        clients.iter_mut().for_each(|client| exchange(client, b"hello"));
        clients.into_iter().for_each(end);
        let report = stop(running);
        assert_eq!(report.most_open, 7, "{design}");
    }
}
