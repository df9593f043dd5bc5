//! Whose timers a thread watches, whose turn it is to send, and a stop where the system does not say what it has received.

use super::*;

#[test]
fn one_thread_watches_the_timers() {
    let now = Instant::now();
    let mut timers = Timers::new(Clock::starting(now));
    assert_eq!(timers.watch(0, now, None), None);
    timers.clock.set(3, 10);
    let due = timers.watch(0, now, None).unwrap();
    assert_eq!(timers.watch(1, now, None), None, "another wakes in time");
    timers.clock.set(4, 5);
    let earlier = timers.watch(1, now, None).unwrap();
    assert!(earlier < due, "nobody would have woken for the new one");
    let mut fell = Vec::new();
    assert!(!timers.back(0, now, &mut fell) && fell.is_empty());
    assert_eq!(timers.watch(0, now, None), None, "the other still watches");
    assert!(!timers.back(1, earlier, &mut fell));
    assert_eq!(fell, [4]);
    timers.stop_by = Some(due);
    assert!(timers.back(0, due, &mut fell));
    assert_eq!(timers.watch(0, due, Some(now)), Some(now));
}

#[test]
fn an_alarm_ends_a_wait_to_the_nanosecond() {
    let now = Instant::now();
    let mut timers = Timers::new(Clock::starting(now));
    timers.clock.set(3, 1);
    let at = now + Duration::from_nanos(1_234_567);
    let moment = timers.clock.moment_of(at);
    timers.clock.set_alarm(4, moment);
    assert_eq!(timers.watch(0, now, None), Some(at));
    let mut fell = Vec::new();
    timers.back(0, at - Duration::from_nanos(1), &mut fell);
    assert_eq!(fell, []);
    timers.back(0, at, &mut fell);
    assert_eq!(fell, [4]);
}

#[test]
fn sends_beyond_the_limit_wait_in_order() {
    for threads in [1, 2] {
        let (sends, id) =
            (Sends::new(1, 0, threads, Instant::now()), |n: u32| (n, StreamId(u64::from(n))));
        assert_eq!((sends.any(), sends.first(), sends.look_at()), (false, None, None));
        assert_eq!((sends.take(false), sends.take(false)), (Some(Place::Pool), None));
        (0..3).for_each(|n| sends.join(n, id(n).1));
        sends.give_back(Place::Pool);
        assert_eq!(sends.take_in_turn(false), None, "others wait");
        assert_eq!((sends.any(), sends.first()), (true, Some(id(0))));
        sends.leave(0, id(0).1);
        sends.leave(0, id(0).1); // another thread has found the same
        assert_eq!((sends.any(), sends.first()), (true, Some(id(1))));
        sends.join(0, id(0).1);
        for n in [1, 2, 0] {
            assert_eq!((sends.any(), sends.first()), (true, Some(id(n))));
            sends.leave(n, id(n).1);
        }
        assert_eq!((sends.any(), sends.first()), (false, None));
        assert_eq!(sends.take_in_turn(false), Some(Place::Pool));
    }
}

#[test]
fn a_send_that_is_stuck_stands_beside_the_pool() {
    for threads in [1, 2] {
        let now = Instant::now();
        let sends = Sends::new(2, 3, threads, now);
        assert_eq!(sends.take(true), Some(Place::Beside), "its last one was stuck");
        let pool: Vec<_> = (0..3).map(|_| sends.take(false)).collect();
        assert_eq!(pool, [Some(Place::Pool), Some(Place::Pool), None]);
        sends.join(7, StreamId(7));
        assert!(sends.is_to_look(now) && !sends.is_to_look(now), "one thread looks");
        assert!(sends.set_aside() && sends.set_aside());
        assert_eq!(sends.take(false), Some(Place::Pool));
        assert!(!sends.set_aside(), "as many are as may be");
        assert_eq!((sends.take_in_turn(true), sends.take(true)), (None, Some(Place::Pool)));
        sends.give_back(Place::Beside);
        assert_eq!(sends.take_in_turn(true), Some(Place::Beside));
        assert_eq!(sends.look_at(), None, "somebody looks");
        sends.look_again(now);
        let later = sends.look_at().unwrap();
        assert!(now < later && !sends.is_to_look(now) && sends.is_to_look(later));
    }
}

/// Each time it makes room one of its sends moves before the next one is stuck.
#[test]
fn who_reads_slowly_takes_a_place_of_the_pool_once() {
    let (sends, mut slow, mut in_pool) = (Sends::new(1, 1, 2, Instant::now()), Slow::default(), 0);
    for _ in 0..10 {
        for stuck in [false, true] {
            let mut place = sends.take(slow.is()).expect("all are free");
            if place == Place::Pool && stuck {
                assert!(sends.set_aside());
                (place, in_pool) = (Place::Beside, in_pool + 1);
            }
            slow.sent(stuck);
            sends.give_back(place);
        }
    }
    assert_eq!(in_pool, 1);
    (0..Slow::MOVE).for_each(|_| slow.sent(false));
    assert!(!slow.is(), "it is as good as any again");
}

#[test]
fn one_is_given_up_for_each_that_waits_and_none_for_those_that_leave() {
    let sends = Sends::new(3, 2, 2, Instant::now());
    (0..3).for_each(|_| assert_eq!(sends.take(false), Some(Place::Pool)));
    (0..2).for_each(|_| assert_eq!(sends.take(true), Some(Place::Beside)));
    assert_eq!(sends.to_give_up(3, 5, sends.leaving()), 0, "nobody waits");
    (0..2).for_each(|slot| sends.join(slot, StreamId(u64::from(slot))));
    assert_eq!(sends.to_give_up(3, 5, sends.leaving()), 2);
    assert_eq!(sends.to_give_up(1, 5, sends.leaving()), 1);
    assert_eq!(sends.to_give_up(1, 2, sends.leaving()), 0, "those beside move");
    sends.leaves();
    assert_eq!(sends.to_give_up(3, 5, sends.leaving()), 1);
    sends.leaves();
    assert_eq!(sends.to_give_up(3, 5, sends.leaving()), 0);
    let leaving = sends.leaving();
    sends.give_back(Place::Beside);
    sends.has_left();
    assert!(sends.set_aside(), "it is free");
    assert_eq!(sends.to_give_up(2, 4, leaving), 0, "it was counted before");
    assert_eq!(sends.to_give_up(2, 4, sends.leaving()), 1);
}

#[test]
fn a_send_is_stuck_when_it_was_seen_for_long_enough() {
    let mut sending = Sending::UnderWay { place: Place::Pool, seen: None };
    let first = Instant::now() + STUCK_AFTER; // however long it has been under way
    assert!(!sending.is_stuck(first));
    let (before, then) = (first + STUCK_AFTER / 2, first + STUCK_AFTER);
    assert!(!sending.is_stuck(before) && sending.stuck_since(before).is_none());
    assert!(sending.is_stuck(then) && sending.is_in_pool());
    sending.set_aside();
    assert!(!sending.is_in_pool());
    assert_eq!(sending.stuck_since(then), Some(first));
}

mod unknown_bytes {
    use super::*;
    use crate::{
        port::streams::{NativeEvents, Provider},
        required::cannot_run,
        stream::native,
        tcp::{Output, Server},
    };
    use std::{net::SocketAddr, sync::mpsc};

    struct Closes(mpsc::Sender<String>);

    impl Handler for Closes {
        fn on_receive(&mut self, _: &mut [u8], _: &mut Output<'_>) {}

        fn on_close(&mut self, reason: &Reason) {
            self.0.send(reason.to_string()).unwrap();
        }
    }

    #[test]
    fn a_connection_of_unknown_bytes_fails_and_does_not_finish() {
        let provider = NativeEvents::default();
        if cannot_run("port", provider.availability()) {
            return;
        }
        let Some((stream, _other_end)) = native::of_unknown_bytes() else { return };
        let peer = SocketAddr::from(([127, 0, 0, 1], 1));
        let (tell, told) = mpsc::channel();
        let job = Server::bind(peer).job(move |_| Closes(tell.clone())).unwrap();
        let mut worker = job.worker();
        let needs = Needs {
            listeners: 0,
            streams: 1,
            accepts: 0,
            receives: 1,
            sends: 1,
            packets: 1,
            threads: 1,
            concurrency: 1,
        };
        let numbers = Numbers {
            threads: 1,
            concurrency: 1,
            take: 1,
            accepts: (0, 0, 0),
            sends: 1,
            stuck: 1,
            receiving: Receiving { receives: 1, idle: Idle::Buffer, drain: 1 },
        };
        let port = provider.open(&needs).unwrap();
        let server = PortServer::of_connections(
            port,
            1,
            Pool::new(64),
            (worker.since(), worker.limits),
            numbers,
        );
        let mut thread = join(&mut worker, &server).unwrap();
        thread.take_in(Accepted { stream, peer });
        thread.stop();
        let mut taken = Taken::new(1);
        while thread.connections() > 0 {
            thread.take(&mut taken).unwrap();
            taken.drain().for_each(|completion| thread.handle(completion).unwrap());
        }
        let reason = told.recv().unwrap();
        assert!(reason.starts_with("it broke: "), "{reason}");
        drop(thread);
        server.end(&mut worker).unwrap();
    }
}
