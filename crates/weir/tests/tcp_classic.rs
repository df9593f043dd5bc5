//! What sets the classic designs of TCP apart from each other, on Linux. What they have in common is
//! checked by the conformance tests.
#![cfg(target_os = "linux")]

#[path = "../src/required.rs"]
mod required;
#[path = "suite/tcp.rs"]
mod tcp;

use socket2::{Domain, Socket, Type};
use std::{
    fs::File,
    io::{Read as _, Write as _},
    net::{Shutdown, TcpStream},
    os::fd::AsRawFd,
    process::Command,
    ptr, thread,
    time::{Duration, Instant},
};
use tcp::{PATIENCE, connect, echo, exchange, exchange_at_once, stop};
use weir::{
    Error,
    stream::StreamOptions,
    tcp::{AnyDesign, Limits, Output, REFUSAL, Running, Server},
};

fn start(design: &str) -> Running {
    let server = Server::bind("127.0.0.1:0".parse().unwrap());
    server.start(AnyDesign::parse(design).unwrap(), |_| echo).unwrap()
}

/// Ends a connection in order, and sees the other side do so.
fn end(mut client: TcpStream) {
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.read(&mut [0; 1]).unwrap(), 0);
}

/// Sends so much on a connection that it must be read meanwhile, reads it back, and ends.
fn exchange_much(mut client: TcpStream, bytes: Vec<u8>) {
    let mut reader = client.try_clone().unwrap();
    let expected = bytes.clone();
    let reading = thread::spawn(move || {
        let mut back = vec![0; expected.len()];
        reader.read_exact(&mut back).unwrap();
        assert!(back == expected);
    });
    client.write_all(&bytes).unwrap();
    reading.join().unwrap();
    end(client);
}

const CLASSIC: [&str; 5] =
    ["select", "select-indexed", "poll --threads 1", "async-select", "event-select"];

#[test]
fn each_serves_many_connections_at_a_time() {
    for design in CLASSIC {
        let running = start(design);
        let address = running.local_addresses()[0];
        let mut clients: Vec<_> = (0..300).map(|_| connect(address)).collect();
        for round in 0..3 {
            for (number, client) in clients.iter_mut().enumerate() {
                exchange(client, format!("{design}: {round} of {number}").as_bytes());
            }
        }
        clients.into_iter().for_each(end);
        let total = stop(running).total();
        assert_eq!((total.accepted, total.closed_finished), (300, 300), "{design}");
        assert_eq!(total.bytes_received, total.bytes_sent, "{design}");
    }
}

/// What the bound of a drain leaves is served without another message: the last bytes of a burst come
/// back as well.
#[test]
fn a_bounded_drain_loses_nothing() {
    for design in CLASSIC {
        let running = start(&format!("{design} --drain 1"));
        let bytes = (0..1_000_000u32).map(|n| (n * 7 % 251) as u8).collect();
        exchange_much(connect(running.local_addresses()[0]), bytes);
        let _ = stop(running);
    }
}

/// The set of the C library ends at 1024 descriptors.
#[test]
fn select_serves_descriptors_above_1024() {
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

#[test]
fn event_select_starts_a_thread_for_each_full_group() {
    // Three places beside the waker's.
    let running = start("event-select --group 4");
    let address = running.local_addresses()[0];
    let mut clients: Vec<_> = (0..20).map(|_| connect(address)).collect();
    clients.iter_mut().for_each(|client| exchange(client, b"hello"));
    assert_eq!(running.thread_ids().len(), 1 + 7);
    clients.into_iter().for_each(end);
    let report = stop(running);
    assert_eq!(report.most_threads, 8);
}

#[test]
fn event_select_fills_groups_again() {
    let running = start("event-select --group 4");
    let address = running.local_addresses()[0];
    for _ in 0..60 {
        let mut client = connect(address);
        exchange(&mut client, b"hello");
        end(client);
    }
    // The accepting one and the first group's; another where a connection came before the thread had
    // seen the last ones off.
    let report = stop(running);
    assert!(report.most_threads <= 3, "{}", report.most_threads);
}

/// Of each burst only a few messages find room in the queue.
#[test]
fn async_select_survives_a_queue_that_is_full() {
    // The limit is that of a process: the other tests' queues are not to be full.
    if !alone("async_select_survives_a_queue_that_is_full") {
        return;
    }
    let mut before = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: writes a limit that outlives the call.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_SIGPENDING, &raw mut before) }, 0);
    let few = libc::rlimit { rlim_cur: 2, ..before };
    // SAFETY: reads a limit that outlives the call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_SIGPENDING, &raw const few) }, 0);
    let running = start("async-select");
    let address = running.local_addresses()[0];
    let mut clients: Vec<_> = (0..100).map(|_| connect(address)).collect();
    for _ in 0..20 {
        exchange_at_once(&mut clients, b"all at once");
    }
    clients.into_iter().for_each(end);
    let total = stop(running).total();
    // SAFETY: reads a limit that outlives the call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_SIGPENDING, &raw const before) }, 0);
    assert!(total.queue_overflows > 0);
    assert_eq!(total.closed_finished, 100);
}

/// Whether a design on completions can run here; one that needs io_uring says why not.
fn completes(design: &str) -> bool {
    let design = AnyDesign::parse(design).unwrap();
    !required::cannot_run(&format!("tcp/{}", design.about().name), design.availability())
}

#[test]
fn overlapped_events_starts_a_thread_for_each_full_group() {
    if !completes("overlapped-events") {
        return;
    }
    // Three places, of two events each, beside the waker's event.
    let running = start("overlapped-events --group 7 --sends 1");
    let address = running.local_addresses()[0];
    let mut clients: Vec<_> = (0..20).map(|_| connect(address)).collect();
    for _ in 0..3 {
        clients.iter_mut().for_each(|client| exchange(client, b"hello"));
    }
    assert_eq!(running.thread_ids().len(), 1 + 7);
    clients.into_iter().for_each(end);
    let report = stop(running);
    assert_eq!(report.most_threads, 8);
}

/// Sends beyond the limit wait for their turn, and each gets it.
#[test]
fn a_port_with_one_send_at_a_time_serves_all() {
    for design in ["port --sends 1 --threads 2", "port-ordered --sends 1 --threads 2 --take 8"] {
        if !completes(design) {
            return;
        }
        let running = start(design);
        let address = running.local_addresses()[0];
        let mut clients: Vec<_> = (0..100).map(|_| connect(address)).collect();
        for round in 0..10 {
            exchange_at_once(&mut clients, &[round; 2000]);
        }
        clients.into_iter().for_each(end);
        let total = stop(running).total();
        assert_eq!((total.closed_finished, total.bytes_sent), (100, 100 * 10 * 2000), "{design}");
    }
}

/// Beside the pool of sends, as many may be outstanding as were asked for; beyond, who is stuck for longest goes.
#[test]
fn a_port_gives_up_who_is_stuck_for_longest() {
    const STUCK: u64 = 6;
    for design in ["port --sends 1 --stuck 2 --threads 2", "port-ordered --sends 1 --stuck 2"] {
        if !completes(design) {
            return;
        }
        let limits = Limits { stalled: None, ..Limits::default() };
        let options = StreamOptions { send_buffer_bytes: Some(4096), ..StreamOptions::default() };
        let answer = |bytes: &mut [u8], output: &mut Output<'_>| match bytes {
            [b'L'] => output.send(&[0; 256 * 1024]).unwrap(),
            _ => output.echo().unwrap(),
        };
        let running = Server::bind("127.0.0.1:0".parse().unwrap())
            .limits(limits)
            .stream_options(options)
            .start(AnyDesign::parse(design).unwrap(), move |_| answer)
            .unwrap();
        let address = running.local_addresses()[0];
        let stuck = |_| {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            socket.set_recv_buffer_size(4096).unwrap();
            socket.connect(&address.into()).unwrap();
            let mut client = TcpStream::from(socket);
            client.set_read_timeout(Some(PATIENCE)).unwrap();
            client.write_all(b"L").unwrap();
            client.peek(&mut [0]).expect("the beginning of a long answer");
            client
        };
        let stuck: Vec<_> = (0..STUCK).map(stuck).collect();
        let mut other = connect(address);
        for round in 0..10 {
            exchange(&mut other, &[round; 100]);
        }
        // The pool is whose turn it is, two are beside it, and the others made room, the first first.
        assert_eq!(running.counters().closed_stalled, STUCK - 2, "{design}");
        let mut bytes = vec![0; 1 << 20];
        for mut client in stuck.into_iter().take(STUCK as usize - 2) {
            while client.read(&mut bytes).is_ok_and(|count| count > 0) {}
        }
        end(other);
        assert_eq!(stop(running).total().closed_stalled, STUCK - 2, "{design}");
    }
}

/// Many threads and receives for one connection, and small buffers: the bytes come back in order.
#[test]
fn port_ordered_restores_the_order() {
    const DESIGN: &str = "port-ordered --threads 4 --concurrency 4 --receives 8";
    if !completes(DESIGN) {
        return;
    }
    let running = Server::bind("127.0.0.1:0".parse().unwrap())
        .buffer_bytes(100)
        .start(AnyDesign::parse(DESIGN).unwrap(), |_| echo)
        .unwrap();
    let bytes = (0..1_000_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    exchange_much(connect(running.local_addresses()[0]), bytes);
    assert_eq!(stop(running).total().closed_finished, 1);
}

/// A server with at most so many threads for connections.
fn with_threads(design: &str, threads: u32) -> Result<Running, Error> {
    let limits = Limits { threads: Some(threads), ..Limits::default() };
    let server = Server::bind("127.0.0.1:0".parse().unwrap()).limits(limits);
    server.start(AnyDesign::parse(design).unwrap(), |_| echo)
}

/// What a connection is told that is refused.
fn refusal(mut client: TcpStream) -> String {
    let mut said = String::new();
    client.read_to_string(&mut said).unwrap();
    said.strip_prefix(REFUSAL).expect("it is told that it is refused").trim_end().to_owned()
}

#[test]
fn no_more_are_let_in_than_there_can_be_threads_for() {
    for (design, threads, most) in [
        ("blocking", 7, 3),
        ("event-select --group 4", 2, 6),
        ("overlapped-events --group 7 --sends 1", 2, 6),
    ] {
        if !completes(design) {
            continue;
        }
        let running = with_threads(design, threads).unwrap();
        let address = running.local_addresses()[0];
        let mut within: Vec<_> = (0..most).map(|_| connect(address)).collect();
        for round in 0..5 {
            within.iter_mut().for_each(|client| exchange(client, b"within"));
            let why = format!(
                "there are {most} connections, as many as there are threads for (threads-max = {threads})"
            );
            assert_eq!(refusal(connect(address)), why, "{design}");
            // The place of one that leaves is given again.
            end(within.remove(0));
            let by = Instant::now() + Duration::from_secs(60);
            while running.open() == most {
                assert!(Instant::now() < by, "{design}: it is never over, in round {round}");
                thread::yield_now();
            }
            within.push(connect(address));
        }
        within.iter_mut().for_each(|client| exchange(client, b"at last"));
        within.into_iter().for_each(end);
        let total = stop(running).total();
        assert_eq!((total.refused, total.closed_finished), (5, u64::from(most) + 5), "{design}");
    }
    match with_threads("blocking", 1) {
        Err(Error::Option { name, problem }) => {
            assert_eq!(name, "threads-max");
            assert!(problem.contains("not enough for one connection"), "{problem}");
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it started"),
    }
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
    assert!(output.status.success(), "{output:?}");
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
    if !alone("blocking_refuses_where_the_process_has_no_more_mappings") {
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
    let limits = Limits { stalled: Some(stalled), output_bytes: 2 * MUCH, ..Limits::default() };
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
