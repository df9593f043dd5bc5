use super::*;
use crate::{required::cannot_run, wine};
use std::{
    io::{ErrorKind, Read, Write},
    net::{Ipv4Addr, Shutdown, TcpStream},
    sync::mpsc,
    thread,
    time::Instant,
};

/// How long anything may take that has only to happen.
const PATIENCE: Duration = Duration::from_secs(60);

fn any_port() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, 0))
}

fn listener() -> Listener {
    Listener::bind(any_port(), StreamOptions::default()).unwrap()
}

/// A connection: the stream that is tested, and a plain client.
fn pair() -> (Stream, TcpStream) {
    let listener = listener();
    let client = TcpStream::connect(listener.local_address()).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    let accepted = listener.accept(Mode::Wait, &Counters::default()).unwrap().unwrap();
    assert_eq!(accepted.peer, client.local_addr().unwrap());
    (accepted.stream, client)
}

fn receive(stream: &Stream, mode: Mode) -> io::Result<Option<Vec<u8>>> {
    let mut buffer = [0; 1000];
    let count = stream.receive(&mut buffer, mode, &Counters::default())?;
    Ok(count.map(|count| buffer[..count].to_vec()))
}

/// Receives until nothing is there for the moment, at least `count` bytes.
fn receive_at_least(stream: &Stream, count: usize) -> Vec<u8> {
    let mut all = Vec::new();
    while all.len() < count {
        all.extend(receive(stream, Mode::Wait).unwrap().expect("there is no time-out"));
    }
    all
}

/// Runs one thing that waits in a thread, does the other, and says what the first answered.
fn while_waiting<R: Send>(waits: impl FnOnce() -> R + Send, ends: impl FnOnce()) -> R {
    let (answer, answered) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || answer.send(waits()).expect("somebody listens"));
        // Whether it waits already does not matter.
        ends();
        answered.recv_timeout(PATIENCE).expect("its wait has ended")
    })
}

#[test]
fn a_try_finds_nothing_and_a_wait_ends() {
    if cannot_run("tcp", availability()) {
        return;
    }
    let (listener, counters) = (listener(), Counters::default());
    assert!(listener.accept(Mode::Try, &counters).unwrap().is_none());
    let other = listener.clone();
    let accepted = while_waiting(
        || other.accept(Mode::Wait, &Counters::default()),
        || listener.end_accepting(),
    );
    assert!(accepted.unwrap().is_none());
    // Nobody can connect any more, and nobody waits any more.
    assert!(TcpStream::connect(listener.local_address()).is_err());
    assert!(listener.accept(Mode::Wait, &counters).unwrap().is_none());
    assert_eq!(counters.snapshot().kernel_entries, 2);
}

#[test]
fn bytes_go_both_ways() {
    if cannot_run("tcp", availability()) {
        return;
    }
    let (stream, mut client) = pair();
    assert_eq!(receive(&stream, Mode::Try).unwrap(), None);
    client.write_all(b"there").unwrap();
    assert_eq!(receive_at_least(&stream, 5), b"there");
    let sent = stream.send(b"and back", Mode::Wait, &Counters::default()).unwrap();
    assert_eq!(sent, Some(8));
    let mut back = [0; 8];
    client.read_exact(&mut back).unwrap();
    assert_eq!(&back, b"and back");
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(receive(&stream, Mode::Wait).unwrap().as_deref(), Some(&[][..]));
    // The other direction is open still.
    stream.send(b"!", Mode::Wait, &Counters::default()).unwrap();
    client.read_exact(&mut back[..1]).unwrap();
}

#[test]
fn a_send_without_room_takes_a_part_or_nothing() {
    if cannot_run("tcp", availability()) {
        return;
    }
    let (stream, mut client) = pair();
    let (bytes, mut taken) = (vec![7; 1 << 20], 0);
    while let Some(count) = stream.send(&bytes, Mode::Try, &Counters::default()).unwrap() {
        assert!(count > 0);
        taken += count;
        assert!(taken < 1 << 30, "there is always room");
    }
    stream.end_sending(&Counters::default()).unwrap();
    let mut back = Vec::new();
    client.read_to_end(&mut back).unwrap();
    assert_eq!(back.len(), taken);
}

#[test]
fn waits_end_with_nothing_after_their_time() {
    if cannot_run("tcp", availability()) {
        return;
    }
    let (stream, _client) = pair();
    let short = Duration::from_millis(50);
    stream.set_timeouts(Some(short), Some(short)).unwrap();
    let since = Instant::now();
    assert_eq!(receive(&stream, Mode::Wait).unwrap(), None);
    let bytes = vec![7; 1 << 20];
    while stream.send(&bytes, Mode::Wait, &Counters::default()).unwrap().is_some() {
        assert!(since.elapsed() < PATIENCE, "there is always room");
    }
    assert!(since.elapsed() >= 2 * short);
    // No time at all is the least there is, and not for ever.
    stream.set_timeouts(Some(Duration::ZERO), None).unwrap();
    assert_eq!(receive(&stream, Mode::Wait).unwrap(), None);
}

/// Whatever is cut by them: every byte comes once, in order, both ways.
#[test]
fn time_outs_lose_nothing() {
    if cannot_run("tcp", availability()) {
        return;
    }
    const BYTES: usize = 4 << 20;
    let (stream, client) = pair();
    let short = Some(Duration::from_micros(1));
    stream.set_timeouts(short, short).unwrap();
    let bytes: Vec<u8> = (0..BYTES).map(|at| (at % 251) as u8).collect();
    let (counters, since) = (Counters::default(), Instant::now());
    thread::scope(|scope| {
        scope.spawn(|| {
            for piece in bytes.chunks(BYTES / 64) {
                (&client).write_all(piece).unwrap();
                thread::sleep(Duration::from_millis(1)); // for some waits to end meanwhile
            }
        });
        scope.spawn(|| {
            let mut back = vec![0; BYTES];
            for piece in back.chunks_mut(BYTES / 64) {
                (&client).read_exact(piece).unwrap();
                thread::sleep(Duration::from_millis(1));
            }
            assert!(back == bytes, "other bytes were sent");
        });
        let (mut received, mut sent) = (Vec::new(), 0);
        while received.len() < BYTES || sent < BYTES {
            assert!(since.elapsed() < PATIENCE, "{} came, {sent} went", received.len());
            received.extend(receive(&stream, Mode::Wait).unwrap().unwrap_or_default());
            if sent < BYTES {
                let taken = stream.send(&bytes[sent..], Mode::Wait, &counters).unwrap();
                assert_ne!(taken, Some(0));
                sent += taken.unwrap_or(0);
            }
        }
        assert!(received == bytes, "other bytes came");
    });
}

#[test]
fn waits_are_ended_from_another_thread() {
    if cannot_run("tcp", availability()) {
        return;
    }
    for end in [Stream::end_receiving, Stream::end] {
        // One that waits now, and one that only begins to.
        let (stream, _client) = pair();
        let answer = while_waiting(|| receive(&stream, Mode::Wait), || end(&stream));
        assert_eq!(answer.unwrap().unwrap(), b"");
        assert_eq!(receive(&stream, Mode::Wait).unwrap().unwrap(), b"");
        // What has come before may come still, all or a part of it.
        let (stream, mut client) = pair();
        client.write_all(b"in time").unwrap();
        end(&stream);
        let mut came = Vec::new();
        while let Some(more) = receive(&stream, Mode::Wait).unwrap().filter(|more| !more.is_empty())
        {
            came.extend(more);
        }
        assert!(b"in time".starts_with(&came), "{came:?}");
    }
    // A send that finds no room.
    let (stream, _client) = pair();
    let (bytes, counters) = (vec![7; 1 << 20], Counters::default());
    let sends_on = || {
        loop {
            if let Err(e) = stream.send(&bytes, Mode::Wait, &counters) {
                return e;
            }
        }
    };
    while_waiting(sends_on, || stream.end());
    assert!(stream.send(&bytes, Mode::Wait, &counters).is_err());
}

/// Each wait is its own: it has its time, and one end ends all of them.
#[test]
fn several_threads_may_wait_to_receive() {
    if cannot_run("tcp", availability()) {
        return;
    }
    const THREADS: usize = 4;
    let (stream, mut client) = pair();
    let begins = std::sync::Barrier::new(THREADS);
    let all = |ends: &mut dyn FnMut()| {
        let (answer, answered) = mpsc::channel();
        thread::scope(|scope| {
            for answer in vec![answer; THREADS] {
                let (stream, begins) = (stream.clone(), &begins);
                scope.spawn(move || {
                    begins.wait();
                    answer.send(receive(&stream, Mode::Wait).unwrap()).expect("somebody listens")
                });
            }
            ends();
            let mut answers: Vec<_> =
                (0..THREADS).map(|_| answered.recv_timeout(PATIENCE).expect("it ends")).collect();
            answers.sort();
            answers
        })
    };
    stream.set_timeouts(Some(Duration::from_millis(50)), None).unwrap();
    assert_eq!(all(&mut || ()), [None, None, None, None]);
    stream.set_timeouts(None, None).unwrap();
    let received = all(&mut || {
        client.write_all(b"!").unwrap();
        while stream.received_in_all(&Counters::default()).unwrap() == 0 {
            thread::yield_now();
        }
        stream.end_receiving();
    });
    let mut received: Vec<_> = received.into_iter().map(Option::unwrap).collect();
    assert!(matches!(received.pop().as_deref(), Some(b"" | b"!")), "an end may come first");
    assert!(received.iter().all(Vec::is_empty));
}

#[test]
fn it_says_what_was_acknowledged() {
    if cannot_run("tcp", availability()) {
        return;
    }
    let (stream, mut client) = pair();
    let counters = Counters::default();
    assert_eq!(stream.waiting(&counters).unwrap(), 0);
    assert_eq!(stream.received_in_all(&counters).unwrap(), 0);
    for round in 1..=3 {
        client.write_all(&[1; 500]).unwrap();
        while stream.waiting(&counters).unwrap() < 500 {
            thread::yield_now();
        }
        assert_eq!(stream.received_in_all(&counters).unwrap(), 500 * round);
        assert_eq!(receive(&stream, Mode::Try).unwrap().unwrap().len(), 500);
        assert_eq!(stream.waiting(&counters).unwrap(), 0);
    }
}

/// Whoever waits has nothing in its hands that is not told.
#[test]
fn what_was_acknowledged_is_told_beside_a_wait() {
    if cannot_run("tcp", availability()) {
        return;
    }
    const ROUNDS: u64 = 200;
    let (stream, mut client) = pair();
    thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let (mut received, counters) = (0, Counters::default());
            while let Some(count @ 1..) =
                stream.receive(&mut [0; 70], Mode::Wait, &counters).unwrap()
            {
                received += count as u64;
            }
            received
        });
        let (counters, mut last) = (Counters::default(), 0);
        for round in 1..=ROUNDS {
            client.write_all(&[1; 100]).unwrap();
            loop {
                let received = stream.received_in_all(&counters).unwrap();
                assert!((last..=100 * round).contains(&received), "{last}, then {received}");
                last = received;
                if received == 100 * round {
                    break;
                }
            }
        }
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(waits.join().unwrap(), 100 * ROUNDS);
    });
}

/// That this is how a receive sees a reset.
fn assert_reset(received: io::Result<usize>) {
    match received {
        Ok(0) if wine::RESETS.is_left_out() => {}
        other => assert_eq!(other.unwrap_err().kind(), ErrorKind::ConnectionReset),
    }
}

#[test]
fn a_reset_is_seen_as_one() {
    if cannot_run("tcp", availability()) {
        return;
    }
    let (stream, mut client) = pair();
    let clone = stream.clone();
    stream.reset_when_closed();
    drop(stream);
    // The last clone decides.
    client.write_all(b"still open").unwrap();
    assert_eq!(receive_at_least(&clone, 10), b"still open");
    drop(clone);
    assert_reset(client.read(&mut [0]));
    // And the other way round.
    let (stream, client) = pair();
    socket2::SockRef::from(&client).set_linger(Some(Duration::ZERO)).unwrap();
    drop(client);
    assert_reset(receive(&stream, Mode::Wait).map(|received| received.unwrap().len()));
}

#[test]
fn an_address_is_shared_only_where_asked_for() {
    if cannot_run("tcp", availability()) {
        return;
    }
    let alone = listener();
    let shared = StreamOptions { reuse_port: true, ..StreamOptions::default() };
    for options in [StreamOptions::default(), shared] {
        match Listener::bind(alone.local_address(), options) {
            Err(Error::Bind { address, source }) => {
                assert_eq!(address, alone.local_address());
                // Windows: one that was taken for its owner alone is said to be forbidden.
                let kinds = [ErrorKind::AddrInUse, ErrorKind::PermissionDenied];
                assert!(kinds.contains(&source.kind()), "{source}");
            }
            Err(Error::Unavailable(why)) if options.reuse_port => {
                return eprintln!("skipped: {why}");
            }
            other => panic!("{other:?}"),
        }
    }
    let first = Listener::bind(any_port(), shared).unwrap();
    let second = Listener::bind(first.local_address(), shared).unwrap();
    // Every connection comes to one of them.
    let clients: Vec<_> =
        (0..20).map(|_| TcpStream::connect(first.local_address()).unwrap()).collect();
    let counters = Counters::default();
    let mut accepted = Vec::new();
    while accepted.len() < clients.len() {
        for listener in [&first, &second] {
            accepted.extend(listener.accept(Mode::Try, &counters).unwrap());
        }
    }
    let mut peers: Vec<_> = accepted.iter().map(|accepted| accepted.peer).collect();
    let mut theirs: Vec<_> = clients.iter().map(|client| client.local_addr().unwrap()).collect();
    peers.sort_unstable();
    theirs.sort_unstable();
    assert_eq!(peers, theirs);
}

/// What the system tells of a connection may come when that is accepted already: the next must be told all the same.
#[test]
fn every_connection_is_accepted_however_they_come() {
    const PEERS: usize = 4;
    const OF_EACH: usize = 50;
    if cannot_run("tcp", availability()) {
        return;
    }
    let listener = Listener::bind(any_port(), StreamOptions::default()).unwrap();
    let at = listener.local_address();
    let (told, accepted) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(|| {
            let told = told;
            while let Some(accepted) =
                listener.accept(Mode::Wait, &Counters::default()).expect("nothing goes wrong")
            {
                told.send(accepted.peer).expect("somebody listens");
            }
        });
        for _ in 0..PEERS {
            scope.spawn(move || {
                for _ in 0..OF_EACH {
                    drop(TcpStream::connect(at).unwrap());
                }
            });
        }
        let all: Vec<_> = (0..PEERS * OF_EACH).map(|_| accepted.recv_timeout(PATIENCE)).collect();
        listener.end_accepting();
        assert!(all.iter().all(Result::is_ok), "accepted: {}", all.iter().flatten().count());
    });
}

#[test]
fn what_is_accepted_inherits_the_options_of_its_listener() {
    if cannot_run("tcp", availability()) {
        return;
    }
    let asked = Keepalive { idle: Duration::from_millis(6500), ..Keepalive::default() };
    for (keepalive, no_delay, said) in
        [(Some(asked), true, "after 7s, every 10s, "), (None, false, "never")]
    {
        let options = StreamOptions { keepalive, no_delay, ..StreamOptions::default() };
        let listener = Listener::bind(any_port(), options).unwrap();
        let granted = listener.granted();
        let stated = granted.iter().find(|(name, _)| *name == "keepalive").unwrap();
        assert!(stated.1.starts_with(said), "{stated:?}");
        let _client = TcpStream::connect(listener.local_address()).unwrap();
        let accepted = listener.accept(Mode::Wait, &Counters::default()).unwrap().unwrap();
        let socket = accepted.stream.native().socket();
        assert_eq!(socket.tcp_nodelay().unwrap(), no_delay);
        assert_eq!(socket.keepalive().unwrap(), keepalive.is_some());
        match native::keepalive(&socket) {
            Ok(inherited) => assert_eq!(inherited, stated.1),
            Err(e) => eprintln!("when silent peers are asked is not told here: {e}"),
        }
    }
    for wrong in [
        Keepalive { idle: Duration::ZERO, ..asked },
        Keepalive { interval: MOST_KEEPALIVE * 2, ..asked },
        Keepalive { tries: 128, ..asked },
    ] {
        assert!(wrong.check().unwrap_err().to_string().contains("not allowed"));
    }
}

/// Where one socket has every address of IPv4, another can have every one of IPv6; alone it has both.
#[test]
fn a_port_of_both_kinds_of_addresses_can_be_shared() {
    if cannot_run("tcp", availability()) {
        return;
    }
    let Ok(v6) = Listener::bind("[::]:0".parse().unwrap(), StreamOptions::default()) else {
        return eprintln!("skipped: there is no IPv6 here");
    };
    let port = v6.local_address().port();
    match TcpStream::connect((Ipv4Addr::LOCALHOST, port)) {
        Ok(_client) => {
            assert!(v6.accept(Mode::Wait, &Counters::default()).unwrap().is_some());
        }
        Err(e) => eprintln!("skipped: addresses of IPv6 are for themselves here: {e}"),
    }
    drop(v6);
    let v6 = Listener::bind("[::1]:0".parse().unwrap(), StreamOptions::default()).unwrap();
    let port = v6.local_address().port();
    drop(v6);
    let options = StreamOptions { only_v6: true, ..StreamOptions::default() };
    let both = [("0.0.0.0", options), ("[::]", options)]
        .map(|(at, options)| Listener::bind(format!("{at}:{port}").parse().unwrap(), options));
    assert!(both.iter().all(Result::is_ok), "{both:?}");
}

/// A program that is started inherits nothing.
#[cfg(target_os = "linux")]
#[test]
fn every_descriptor_is_closed_on_exec() {
    let listener = listener();
    let _client = TcpStream::connect(listener.local_address()).unwrap();
    let accepted = listener.accept(Mode::Wait, &Counters::default()).unwrap().unwrap();
    for fd in [listener.native().fd(), accepted.stream.native().fd()] {
        let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).unwrap();
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).unwrap();
        let flags = i32::from_str_radix(flags.trim(), 8).unwrap();
        assert_ne!(flags & libc::O_CLOEXEC, 0, "descriptor {fd}");
    }
}

/// What accept(2) says of each error: whether the next connection may be accepted at once, only when
/// something was given back, or not at all.
#[cfg(target_os = "linux")]
#[test]
fn errors_of_accepting_are_told_apart() {
    let of = |errno| {
        let error = io::Error::from_raw_os_error(errno);
        (is_want_of_resources(&error), concerns_one_connection(&error))
    };
    for errno in [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM] {
        assert_eq!(of(errno), (true, false), "{errno}");
    }
    for errno in [libc::ECONNABORTED, libc::EPROTO, libc::EPERM, libc::ENETUNREACH] {
        assert_eq!(of(errno), (false, true), "{errno}");
    }
    for errno in [libc::EBADF, libc::EFAULT, libc::ENOTSOCK] {
        assert_eq!(of(errno), (false, false), "{errno}");
    }
}
