//! Whose timers a thread watches, and a stop where the system does not say what it has received.

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
            Asked::default(),
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
