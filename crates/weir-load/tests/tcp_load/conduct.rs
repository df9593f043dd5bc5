//! Connections that behave badly, and where connections come from.

use crate::{support::*, wine};
use std::{
    collections::BTreeMap,
    io::Write as _,
    net::{IpAddr, Ipv4Addr},
    sync::{Arc, Mutex, mpsc},
    thread,
    time::Duration,
};
use weir_load::{
    Stop, StopReason,
    tcp::{Conduct, EndedBy, Engine, Event, LoadSpec, Sizes, SourceRange, load},
};

each_engine!(
    silent_connections_stand_until_they_are_ended,
    silent_connections_tell_what_refused_and_what_closed_them,
    stuck_connections_fill_the_way_and_are_read_at_the_end,
    connections_come_from_the_addresses_asked_for_in_turn,
    what_the_clients_end_holds_is_told_where_it_is_asked_for,
);

/// Far longer than any test takes: such loads are ended by what they wait for.
const LONG: Duration = Duration::from_secs(600);

fn silent_connections_stand_until_they_are_ended(engine: Engine) {
    let server = Server::echo();
    let spec = LoadSpec {
        connections: 20,
        conduct: Conduct::Silent,
        duration: LONG,
        drain: SOON,
        ..server.spec(engine)
    };
    let stop = Stop::new();
    let report = load(&spec, &stop, |event| {
        if matches!(event, Event::Settled) {
            stop.request(StopReason::Asked);
        }
    })
    .unwrap();
    let counts = &report.counts;
    assert_eq!((counts.connected, counts.finished), (20, 20), "{report:#?}");
    assert_eq!((counts.messages_sent, counts.bytes_sent, counts.bytes_received), (0, 0, 0));
    assert_eq!((report.invalid(), report.ended_by), (None, EndedBy::Asked));
}

fn silent_connections_tell_what_refused_and_what_closed_them(engine: Engine) {
    if wine::RESETS.is_left_out() {
        return;
    }
    // Every third is refused, every third reset.
    let server = Server::start(|mut stream, number| match number % 3 {
        0 => stream.write_all(b"weir: refused: you come too often\n"),
        1 => socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)),
        _ => echo(stream, |_, _| {}),
    });
    let spec = LoadSpec {
        connections: 30,
        conduct: Conduct::Silent,
        duration: LONG,
        drain: SOON,
        refusals_expected: true,
        interval: Some(Duration::from_millis(10)),
        ..server.spec(engine)
    };
    let stop = Stop::new();
    let report = load(&spec, &stop, |event| {
        // Those that were neither refused nor reset.
        if matches!(event, Event::Interval(progress) if progress.connected == 30 && progress.open == 10)
        {
            stop.request(StopReason::Asked);
        }
    })
    .unwrap();
    let counts = &report.counts;
    assert_eq!(
        (counts.refused_by_server, counts.reset + counts.broken, counts.finished),
        (10, 10, 10),
        "{report:#?}"
    );
    assert_eq!(report.refusals.by_count(), [("you come too often", 10)]);
    assert_eq!(report.invalid(), None);
}

fn stuck_connections_fill_the_way_and_are_read_at_the_end(engine: Engine) {
    // The server says when it has been held up for the first time: then what it sends is read by nobody.
    let (sender, held_up) = mpsc::channel();
    let sender = Mutex::new(sender);
    let server = Server::start(move |mut stream, _| {
        use std::io::Read as _;
        let sender = sender.lock().unwrap().clone();
        let mut buffer = vec![0; 16 * 1024];
        loop {
            let count = stream.read(&mut buffer)?;
            if count == 0 {
                return Ok(());
            }
            let mut rest = &buffer[..count];
            stream.set_nonblocking(true)?;
            while !rest.is_empty() {
                match stream.write(rest) {
                    Ok(taken) => rest = &rest[taken..],
                    Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {
                        // If nobody listens it has been heard before.
                        let _ = sender.send(());
                        stream.set_nonblocking(false)?;
                    }
                    Err(e) => return Err(e),
                }
            }
            stream.set_nonblocking(false)?;
        }
    });
    let spec = LoadSpec {
        connections: 3,
        conduct: Conduct::Stuck,
        sizes: Sizes::of(64 << 10),
        // More than all buffers on the way hold.
        outstanding: 96,
        duration: LONG,
        drain: SOON,
        ..server.spec(engine)
    };
    let stop = Arc::new(Stop::new());
    let stopper = Arc::clone(&stop);
    let waiting = thread::spawn(move || {
        let heard = (0..3).all(|_| held_up.recv_timeout(SOON).is_ok());
        stopper.request(StopReason::Asked);
        heard
    });
    let report = load(&spec, &stop, |_| {}).unwrap();
    assert!(waiting.join().unwrap(), "the server was never held up: {report:#?}");
    let counts = &report.counts;
    assert_eq!((counts.finished, counts.messages_over), (3, counts.messages_sent), "{report:#?}");
    assert_eq!(counts.bytes_received, counts.messages_over * (64 << 10), "every byte came back");
    assert_eq!((report.invalid(), report.messages_unanswered), (None, 0));
}

fn connections_come_from_the_addresses_asked_for_in_turn(engine: Engine) {
    let seen = Arc::new(Mutex::new(BTreeMap::<IpAddr, u32>::new()));
    let sees = Arc::clone(&seen);
    let server = Server::start(move |stream, _| {
        *sees.lock().unwrap().entry(stream.peer_addr()?.ip()).or_default() += 1;
        echo(stream, |_, _| {})
    });
    let first = Ipv4Addr::new(127, 3, 2, 255);
    let spec = LoadSpec {
        connections: 10,
        blocks: 2,
        block_interval: Duration::ZERO,
        threads: 2,
        sends: Some(1),
        sources: Some(SourceRange { first, count: 4 }),
        ..server.spec(engine)
    };
    let report = run(&spec);
    assert_clean(&report, 20, 1);
    assert_eq!(report.source_addresses, 4);
    let of: Vec<IpAddr> =
        (0..4).map(|place| Ipv4Addr::from(u32::from(first) + place).into()).collect();
    let wanted: BTreeMap<_, _> = of.into_iter().map(|address| (address, 5)).collect();
    assert_eq!(*seen.lock().unwrap(), wanted);
}

fn what_the_clients_end_holds_is_told_where_it_is_asked_for(engine: Engine) {
    in_time(INSTANT, |instant| what_the_clients_end_holds_is_told_within(engine, instant));
}

fn what_the_clients_end_holds_is_told_within(engine: Engine, duration: Duration) {
    // Each load has a server of its own: what is closing of one would be counted with the other's.
    let run = |looks_at_memory| {
        let server = Server::echo();
        let spec = LoadSpec { connections: 8, duration, ..server.spec(engine) };
        run(&LoadSpec { looks_at_memory, ..spec })
    };
    assert_eq!(run(false).holds, None);
    let report = run(true);
    let holds = report.holds.expect("it was to look");
    assert!(holds.resident_bytes > Some(0), "{holds:?}");
    if cfg!(target_os = "linux") {
        assert!(holds.sockets.is_some_and(|sockets| sockets <= 8), "{holds:?}");
    }
}
