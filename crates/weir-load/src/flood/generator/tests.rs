//! A generator with an engine that sends nothing, and says what the test wants.

use std::{
    net::UdpSocket,
    sync::{Arc, Mutex},
};

use super::*;
use crate::{
    FloodReport, FloodSpec,
    engine::{Refusal, Sent},
    flood::report::assemble,
    pacing::{Arrivals, Load},
};

/// What an engine makes of a batch.
type Answer = fn(&Batch) -> Sent;

struct Said {
    answer: Answer,
    batches: Arc<Mutex<Vec<(Batch, u64)>>>,
}

impl Engine for Said {
    fn capacity(&self) -> u32 {
        8
    }
    fn send(&mut self, _: &Lane, batch: &Batch) -> Sent {
        self.batches.lock().expect("no panic").push((*batch, now_ns()));
        (self.answer)(batch)
    }
    fn settings(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}

/// Runs 100 datagrams through an engine; gives the report, when they were to begin, and every
/// batch with the time at which it was handed over.
fn run(load: Load, quantum: u32, answer: Answer) -> (FloodReport, u64, Vec<(Batch, u64)>) {
    run_under(&Lease::default(), 20_000_000_000, load, quantum, answer)
}

/// The same under a lease, for so long at most.
fn run_under(
    lease: &Lease,
    at_most_ns: u64,
    load: Load,
    quantum: u32,
    answer: Answer,
) -> (FloodReport, u64, Vec<(Batch, u64)>) {
    let sink = UdpSocket::bind("127.0.0.1:0").expect("loopback");
    let target = sink.local_addr().expect("it has an address");
    let batches = Arc::new(Mutex::new(Vec::new()));
    let obtained = Obtained {
        engine: "said",
        calls_per_s: crate::pacing::QUANTA_PER_S,
        capacity: 8,
        settings: Vec::new(),
        passed_over: Vec::new(),
        send_buffer_bytes: 0,
    };
    let mut generator = Generator {
        lanes: vec![Lane::connect(target, 0, Blocking::No).expect("loopback is reachable")],
        engine: Box::new(Said { answer, batches: Arc::clone(&batches) }),
        waiter: Waiter::for_current_thread(false),
        taker: None,
        obtained: obtained.clone(),
    };
    let start_ns = now_ns() + 100_000;
    let phase = Phase {
        run: 7,
        arrivals: Arrivals::Even,
        seed: 0,
        datagrams_per_s: load.datagrams_per_s(),
        quantum,
        start_ns,
        end_ns: start_ns + at_most_ns,
        datagrams: 100,
        secret: Secret::random(),
        head: Head::default(),
    };
    let stop = Stop::new();
    let outcome = generator.run(&phase, &Live::default(), &stop, lease);
    let spec = FloodSpec { load, datagrams: Some(100), ..FloodSpec::new(target.ip()) };
    let (ports, outcomes) = (vec![target.port()], vec![outcome]);
    let report = assemble(&spec, ports, obtained, quantum, outcomes, None, &stop);
    drop(generator);
    let batches = Arc::into_inner(batches).expect("the engine is gone");
    (report, start_ns, batches.into_inner().expect("no panic"))
}

fn all(batch: &Batch) -> Sent {
    Sent { sent: batch.datagrams, ..Sent::default() }
}

#[test]
fn what_is_offered_is_counted_apart_from_what_became_of_it() {
    let account = |answer: Answer| {
        let (report, ..) = run(Load::Saturation, 4, answer);
        (report.offered, report.sent, report.refused, report.unbalanced().is_some())
    };
    assert_eq!(account(all), (100, 100, 0, false));
    let some_refused: Answer = |batch| Sent {
        sent: batch.datagrams - 1,
        refused: 1,
        refusal: Some(Refusal::NoBuffers),
        ..Sent::default()
    };
    assert_eq!(account(some_refused), (100, 75, 25, false));
    let forgets_one: Answer = |batch| Sent { sent: batch.datagrams - 1, ..Sent::default() };
    assert_eq!(account(forgets_one), (100, 75, 0, true));
    let gives_no_reason: Answer =
        |batch| Sent { sent: batch.datagrams - 1, refused: 1, ..Sent::default() };
    assert_eq!(account(gives_no_reason), (100, 75, 0, true));
    let invents_one: Answer = |batch| Sent { sent: batch.datagrams + 1, ..Sent::default() };
    assert_eq!(account(invents_one), (100, 125, 0, true));
}

#[test]
fn a_failure_balances_too() {
    let (report, ..) = run(Load::Saturation, 4, |batch| {
        Sent::until(1, batch.datagrams - 1, std::io::ErrorKind::PermissionDenied.into())
    });
    assert_eq!((report.offered, report.sent, report.refused), (4, 1, 3));
    assert_eq!((report.refusals.failed, report.unbalanced()), (3, None));
    assert!(report.failure.is_some_and(|failure| failure.contains("firewall")));
}

#[test]
fn a_paced_datagram_bears_the_time_at_which_it_was_due() {
    // A quantum of 2 every 100 µs, and an engine that is held up for 30 µs each time.
    let (_, start_ns, batches) = run(Load::Paced { datagrams_per_s: 20_000.0 }, 2, |batch| {
        let until = now_ns() + 30_000;
        while now_ns() < until {}
        all(batch)
    });
    assert_eq!(batches.len(), 50);
    for (batch, handed_over_ns) in batches {
        assert_eq!((batch.due_ns - start_ns) % 100_000, 0, "{batch:?} is off the pace");
        assert!(batch.due_ns <= handed_over_ns, "{batch:?} went out at {handed_over_ns}");
    }
}

#[test]
fn at_saturation_a_datagram_bears_the_time_of_its_call() {
    let (_, start_ns, batches) = run(Load::Saturation, 8, all);
    let mut before = start_ns;
    for (batch, handed_over_ns) in batches {
        assert!((before..=handed_over_ns).contains(&batch.due_ns), "{batch:?}");
        before = handed_over_ns;
    }
}

#[test]
fn nothing_leaves_while_the_lease_has_lapsed() {
    for load in [Load::Saturation, Load::Paced { datagrams_per_s: 1e6 }] {
        let lease = Lease::default();
        let _armed = lease.arm(0);
        let (report, _, batches) = run_under(&lease, 20_000_000, load, 4, all);
        assert_eq!((report.offered, batches.len()), (0, 0), "{load:?}: the last sign is long past");
        lease.renew(u64::MAX / 2);
        let (report, ..) = run_under(&lease, 20_000_000_000, Load::Saturation, 4, all);
        assert_eq!(report.sent, 100, "{load:?}: it was renewed");
    }
}
