//! Registered I/O for streams.

use crate::{
    PATIENCE, assert_accounted, assert_whole, loopback, region, required::cannot_run, soon,
    use_memory,
};
use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    sync::Arc,
    time::{Duration, Instant},
};
use weir::{
    counters::Counters,
    memory::{Layout, Region, Slice},
    rio::{
        Batch, Refused, Stopped,
        streams::{
            Idle, Load, Receiving, StreamCompletion, StreamId, StreamNeeds, StreamProvider,
            StreamQueue,
        },
        uring::streams::UringStreams,
    },
    stream::{Listener, StreamOptions},
};

const SLICE: usize = 1024;
const SLICES: u32 = 64;

type Queue = <UringStreams as StreamProvider>::Queue;

/// A queue that accepts, and what it has said.
pub struct Rig {
    pub queue: Queue,
    pub at: SocketAddr,
    pub said: Vec<StreamCompletion>,
    batch: Batch<StreamCompletion>,
}

/// Whether there is no such queue here; the reason is printed.
pub fn cannot_run_here() -> bool {
    ways().iter().any(|way| cannot_run("tcp", UringStreams::default().availability(*way)))
}

/// The ways in which a queue receives.
pub fn ways() -> [Receiving; 3] {
    [
        Receiving::Shared { slices: SLICES, idle: Idle::Receive },
        Receiving::Shared { slices: SLICES, idle: Idle::Poll },
        Receiving::Posted { each: 4, slices: SLICES },
    ]
}

impl Rig {
    pub fn new(receiving: Receiving, connections: u32, zero_copy_bytes: Option<usize>) -> Self {
        let listener = Listener::bind(loopback(), StreamOptions::default()).unwrap();
        let at = listener.local_address();
        let needs =
            StreamNeeds { slice_bytes: SLICE, connections, receiving, tables: 1, zero_copy_bytes };
        let provider = UringStreams { files: connections, ..UringStreams::default() };
        let opened = provider.open(&[listener], &needs).unwrap();
        let mut queue = provider.start(opened, &Arc::<Counters>::default()).unwrap().queue;
        queue.accept();
        Self { queue, at, said: Vec::new(), batch: Batch::new(64) }
    }

    /// Looks, and waits where nothing is there, once.
    pub fn look(&mut self, wait: Duration) {
        if self.queue.dequeue(&mut self.batch).unwrap() == 0 {
            self.queue.wait(Some(wait)).unwrap();
            self.queue.dequeue(&mut self.batch).unwrap();
        }
        self.said.extend(self.batch.drain());
    }

    /// The first completion that `f` makes something of; it is taken out.
    pub fn until<R>(&mut self, what: &str, f: impl Fn(&StreamCompletion) -> Option<R>) -> R {
        let by = Instant::now() + PATIENCE;
        loop {
            if let Some((at, found)) =
                self.said.iter().enumerate().find_map(|(i, c)| Some((i, f(c)?)))
            {
                self.said.remove(at);
                return found;
            }
            assert!(Instant::now() < by, "{what} did not come; what did: {:?}", self.said);
            self.look(Duration::from_millis(20));
        }
    }

    pub fn connect(&mut self) -> (TcpStream, StreamId) {
        let client = TcpStream::connect(self.at).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client.set_nodelay(true).unwrap();
        let from = client.local_addr().unwrap();
        let id = self.until("a connection", |c| match c {
            StreamCompletion::Accepted { connection, peer, .. } if *peer == from => {
                Some(*connection)
            }
            _ => None,
        });
        (client, id)
    }

    /// A slice of the queue's own that something was received into.
    pub fn receive(&mut self, client: &mut TcpStream, id: StreamId) -> Slice {
        client.write_all(&[7; 100]).unwrap();
        let _ = self.queue.receive(id);
        let by = Instant::now() + PATIENCE;
        loop {
            let its = |c: &StreamCompletion| matches!(c, StreamCompletion::Received { connection, .. } if *connection == id);
            if let Some(at) = self.said.iter().position(its) {
                let StreamCompletion::Received { slice, .. } = self.said.remove(at) else {
                    continue;
                };
                return slice;
            }
            assert!(Instant::now() < by, "nothing was received");
            self.look(Duration::from_millis(20));
        }
    }

    pub fn closed(&mut self, id: StreamId) {
        self.until("the end of a connection", |c| {
            matches!(c, StreamCompletion::Closed { connection } if *connection == id).then_some(())
        });
    }

    pub fn stop(self) -> Stopped {
        let Self { queue, said, .. } = self;
        drop(said);
        queue.stop(soon())
    }
}

fn load(slice: Slice, end: u32) -> Load {
    Load::Slice { slice, start: 0, end }
}

#[test]
fn a_slice_of_another_region_is_given_back() {
    if cannot_run_here() {
        return;
    }
    for receiving in ways() {
        for zero_copy in [None, Some(0)] {
            let mut rig = Rig::new(receiving, 4, zero_copy);
            let (mut client, id) = rig.connect();
            let mut own = rig.receive(&mut client, id);
            let its = Arc::clone(own.region());
            let others =
                [its.layout(), Layout::packed(0, SLICE, 64), Layout::packed(0, 16 * SLICE, 64)];
            for other in others.map(|layout| region(layout, SLICES)) {
                for mut slice in std::iter::from_fn(|| other.take()).collect::<Vec<_>>() {
                    slice.payload_mut().fill(0xAA);
                    let Err((load, Refused::OtherRegion)) = rig.queue.send(id, load(slice, 100))
                    else {
                        panic!("a slice of another region was taken")
                    };
                    let Load::Slice { slice, .. } = load else { panic!("{load:?}") };
                    assert!(Arc::ptr_eq(slice.region(), &other) && slice.payload()[0] == 0xAA);
                    rig.queue.give_back(slice); // which is not its own
                }
                assert_whole(&other);
            }
            // What was received before is still this program's alone.
            use_memory(&mut own);
            let next = rig.receive(&mut client, id);
            assert!(next.index() != own.index() && next.payload()[..100] == [7; 100]);
            rig.queue.give_back(own);
            drop(next);
            assert_eq!(rig.stop().missing, 0);
            assert_whole(&its);
        }
    }
}

#[test]
fn a_slice_of_another_queue_is_given_back() {
    if cannot_run_here() {
        return;
    }
    for receiving in ways() {
        let mut rigs = [(); 2].map(|()| Rig::new(receiving, 4, None));
        let mut peers = rigs.each_mut().map(|rig| rig.connect());
        let [one, other] = &mut rigs;
        let slice = other.receive(&mut peers[1].0, peers[1].1);
        let (its, first) = (Arc::clone(slice.region()), one.receive(&mut peers[0].0, peers[0].1));
        let Err((load, Refused::OtherRegion)) = one.queue.send(peers[0].1, load(slice, 1)) else {
            panic!("a slice of another queue was taken")
        };
        assert!(other.queue.send(peers[1].1, load).is_ok());
        let region = Arc::clone(first.region());
        drop(first);
        assert_eq!(rigs.map(Rig::stop).map(|stopped| stopped.missing), [0, 0]);
        assert_whole(&its);
        assert_whole(&region);
    }
}

#[test]
fn a_load_that_names_bytes_that_there_are_not_is_given_back() {
    if cannot_run_here() {
        return;
    }
    let mut rig = Rig::new(ways()[0], 4, None);
    let (mut client, id) = rig.connect();
    let mut slice = rig.receive(&mut client, id);
    let its = Arc::clone(slice.region());
    for (start, end) in [(0, SLICE as u32 + 1), (2, 1), (u32::MAX, u32::MAX), (0, u32::MAX)] {
        let refused = rig.queue.send(id, Load::Slice { slice, start, end });
        let Err((Load::Slice { slice: back, .. }, Refused::OutOfBounds)) = refused else {
            panic!("{start} to {end}: {refused:?}")
        };
        slice = back;
    }
    let refused = rig.queue.send(id, Load::Bytes { bytes: vec![0; 3], start: 4 });
    assert!(matches!(refused, Err((_, Refused::OutOfBounds))), "{refused:?}");
    let refused = rig.queue.send(id, Load::Bytes { bytes: vec![0; 3], start: 3 });
    assert!(matches!(refused, Err((_, Refused::Empty))), "{refused:?}");
    assert!(rig.queue.send(id, load(slice, 1)).is_ok());
    let refused = rig.queue.send(id, vec![1].into());
    assert!(matches!(refused, Err((_, Refused::Busy))), "{refused:?}");
    assert_eq!(rig.stop().missing, 0);
    assert_whole(&its);
}

/// What a connection was asked for is over before its place is another's.
#[test]
fn ends_questions_and_closes_that_are_asked_for_often_are_one() {
    if cannot_run_here() {
        return;
    }
    // A queue with one place, so that each connection has that of the one before.
    let mut rig = Rig::new(ways()[0], 1, None);
    for round in 0..200 {
        let (mut client, id) = rig.connect();
        for _ in 0..20 {
            match round % 4 {
                0 => rig.queue.end_sending(id),
                1 => rig.queue.ask_waiting(id),
                _ => {
                    rig.queue.end_sending(id);
                    rig.queue.ask_waiting(id);
                }
            }
        }
        if round % 4 == 3 {
            rig.look(Duration::from_millis(1)); // some of it may have come by then
        }
        for abrupt in [false, true, false] {
            rig.queue.close(id, abrupt);
        }
        rig.queue.end_sending(id);
        rig.queue.ask_waiting(id);
        rig.queue.stop_receiving(id);
        assert!(rig.queue.receive(id), "what is over wants no slice");
        let refused = rig.queue.send(id, vec![1].into());
        assert!(matches!(refused, Err((_, Refused::Closed))), "{refused:?}");
        // It has been told once of each, at most, and of its end once.
        let (mut next_client, next) = rig.connect();
        assert!(next != id);
        let count = |rig: &Rig, is: fn(&StreamCompletion) -> Option<StreamId>, of: StreamId| {
            rig.said.iter().filter_map(is).filter(|connection| *connection == of).count()
        };
        let end = |c: &StreamCompletion| match c {
            StreamCompletion::EndSent { connection, .. } => Some(*connection),
            _ => None,
        };
        let waiting = |c: &StreamCompletion| match c {
            StreamCompletion::Waiting { connection, .. } => Some(*connection),
            _ => None,
        };
        let closed = |c: &StreamCompletion| match c {
            StreamCompletion::Closed { connection } => Some(*connection),
            _ => None,
        };
        rig.closed(id);
        assert_eq!(count(&rig, closed, id), 0, "one end, which was taken out");
        assert!(count(&rig, end, id) <= 1 && count(&rig, waiting, id) <= 1, "{:?}", rig.said);
        // Nothing was asked of the next one: it is told of nothing, and its peer sees no end, but what
        // is sent to it.
        assert!(rig.queue.send(next, b"alive".to_vec().into()).is_ok());
        rig.until("what was sent", |c| match c {
            StreamCompletion::Sent { connection, count: 5, .. } => {
                (*connection == next).then_some(())
            }
            _ => None,
        });
        let mut got = [0; 5];
        next_client.read_exact(&mut got).unwrap_or_else(|e| panic!("round {round}: {e}"));
        assert_eq!(&got, b"alive");
        assert_eq!(count(&rig, end, next) + count(&rig, waiting, next), 0, "{:?}", rig.said);
        rig.queue.close(next, true);
        rig.closed(next);
        assert!(!matches!(client.read(&mut [0; 1]), Ok(1..)));
        rig.said.clear();
    }
    assert_eq!(rig.stop().missing, 0);
}

/// However often it is asked for, there is one answer, and no more requests than that.
#[test]
fn what_is_asked_for_without_end_takes_no_memory_without_end() {
    if cannot_run_here() {
        return;
    }
    let mut rig = Rig::new(ways()[0], 4, None);
    let (_client, id) = rig.connect();
    for _ in 0..100_000 {
        rig.queue.end_sending(id);
        rig.queue.ask_waiting(id);
        let _ = rig.queue.receive(id);
        rig.queue.stop_receiving(id);
    }
    rig.queue.close(id, true);
    rig.closed(id);
    let of = |wanted: fn(&StreamCompletion) -> bool| rig.said.iter().filter(|c| wanted(c)).count();
    assert!(of(|c| matches!(c, StreamCompletion::EndSent { .. })) <= 1, "{:?}", rig.said);
    assert!(of(|c| matches!(c, StreamCompletion::Waiting { .. })) <= 1, "{:?}", rig.said);
    assert_eq!(rig.stop().missing, 0);
}

#[test]
fn names_that_there_never_were_name_nothing() {
    if cannot_run_here() {
        return;
    }
    for receiving in ways() {
        let mut rig = Rig::new(receiving, 4, None);
        let (mut client, id) = rig.connect();
        for number in [0, 1, 3, 4, 5, 1000, u32::MAX] {
            for generation in [0, 1, u32::MAX] {
                let name = StreamId { number, generation };
                if name == id {
                    continue;
                }
                assert!(rig.queue.receive(name));
                rig.queue.stop_receiving(name);
                rig.queue.slices(name);
                rig.queue.is_short(name);
                assert!(matches!(rig.queue.send(name, vec![1].into()), Err((_, Refused::Closed))));
                rig.queue.end_sending(name);
                rig.queue.ask_waiting(name);
                rig.queue.close(name, true);
            }
        }
        let slice = rig.receive(&mut client, id);
        let its = Arc::clone(slice.region());
        assert!(rig.queue.send(id, load(slice, 3)).is_ok());
        rig.until("what was sent", |c| matches!(c, StreamCompletion::Sent { .. }).then_some(()));
        client.read_exact(&mut [0; 3]).unwrap();
        assert_eq!(rig.stop().missing, 0);
        assert_whole(&its);
    }
}

/// A program can take slices from the pool of the queue's own region: they are slices like any other.
#[test]
fn slices_from_the_queues_own_pool_are_taken_too() {
    if cannot_run_here() {
        return;
    }
    for receiving in [Receiving::Shared { slices: 256, idle: Idle::Receive }, ways()[2]] {
        let mut rig = Rig::new(receiving, 4, None);
        let (mut client, id) = rig.connect();
        let first = rig.receive(&mut client, id);
        let its = Arc::clone(first.region());
        let mut taken: Vec<_> = std::iter::from_fn(|| its.take()).collect();
        taken.push(first);
        for (n, mut slice) in taken.into_iter().enumerate() {
            use_memory(&mut slice);
            if n % 2 == 0 {
                rig.queue.give_back(slice);
                continue;
            }
            assert!(rig.queue.send(id, load(slice, 1)).is_ok());
            let count = |c: &StreamCompletion| match c {
                StreamCompletion::Sent { count, .. } => Some(*count),
                _ => None,
            };
            assert_eq!(rig.until("what was sent", count), 1);
        }
        let again = rig.receive(&mut client, id);
        assert_eq!(again.payload()[..100], [7; 100]);
        drop(again);
        assert_eq!(rig.stop().missing, 0);
        assert_whole(&its);
    }
}

#[test]
fn a_slice_of_a_completion_outlives_its_queue() {
    if cannot_run_here() {
        return;
    }
    for receiving in ways() {
        let mut rig = Rig::new(receiving, 4, None);
        let (mut client, id) = rig.connect();
        let mut kept = rig.receive(&mut client, id);
        let weak: std::sync::Weak<Region> = Arc::downgrade(kept.region());
        assert_eq!(rig.stop().missing, 0);
        use_memory(&mut kept);
        drop(kept);
        assert!(weak.upgrade().is_none(), "nobody uses it any more");
    }
}

#[test]
fn a_queue_that_is_dropped_without_a_stop_counts_what_it_leaks() {
    if cannot_run_here() {
        return;
    }
    for receiving in ways() {
        for zero_copy in [None, Some(0)] {
            let mut rig = Rig::new(receiving, 4, zero_copy);
            let (mut client, id) = rig.connect();
            let (_other_client, other) = rig.connect();
            let mut kept = rig.receive(&mut client, id);
            let echoed = rig.receive(&mut client, id);
            let its = Arc::clone(kept.region());
            assert!(rig.queue.send(id, load(echoed, 100)).is_ok());
            let _ = rig.queue.receive(other);
            rig.queue.end_sending(other);
            drop(rig);
            use_memory(&mut kept);
            drop(kept);
            assert_accounted(&its);
        }
    }
}
