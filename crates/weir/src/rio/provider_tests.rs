//! What every provider's tests use: queues with what is needed to use them, and tests of what holds on any provider that
//! works with plain loopback sockets.

use super::{
    Batch, Completion, CompletionQueue, HandOver, Needs, Opened as _, Outcome, Peer, Provider,
    RequestQueue, Span, Started, Threading, Woken,
};
use crate::{
    Error,
    counters::Counters,
    memory::{Region, RegionOptions, Slice},
    socket::{Arrival, Endpoint},
};
use std::{
    collections::BTreeMap,
    net::{SocketAddr, UdpSocket},
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

/// Far longer than anything here takes.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// What the tests here ask for.
pub const NEEDS: Needs =
    Needs { payload: 128, receives: 60, sends: 20, per_dequeue: 50, offload: false, meta: false };

/// Queues, and what is needed to use them.
pub struct Rig<T: Threading, P: Provider<T>> {
    pub region: Arc<Region>,
    pub queue: P::Cq,
    pub requests: Vec<P::Rq>,
    pub at: Vec<SocketAddr>,
    pub granted: Vec<(&'static str, String)>,
    pub counters: Counters,
    pub batch: Batch,
}

impl<T: Threading, P: Provider<T>> Rig<T, P> {
    /// Started, with nothing posted. The region has a slice for each receive and send, and so many `more`.
    ///
    /// # Errors
    /// As the provider's.
    pub fn open(provider: &P, needs: Needs, more: u32, at: &[Endpoint]) -> Result<Self, Error> {
        let count = needs.receives + needs.sends + more;
        let region = Region::new(provider.layout(&needs)?, count, RegionOptions::default())?;
        let opened = provider.open(at, &region, &needs)?;
        Self::start(provider, needs, region, opened)
    }

    /// Queues that were opened by hand.
    ///
    /// # Errors
    /// As the provider's.
    pub fn start(
        provider: &P,
        needs: Needs,
        region: Arc<Region>,
        opened: P::Opened,
    ) -> Result<Self, Error> {
        let at = opened.local_addresses();
        let Started { completions: queue, requests, granted } = provider.start(opened)?;
        let batch = Batch::new(needs.per_dequeue as usize);
        Ok(Self { region, queue, requests, at, granted, counters: Counters::default(), batch })
    }

    /// Posts up to `count` receives from the pool, shared among the sockets; says how many.
    pub fn post_shared(&mut self, count: usize) -> usize {
        let sockets = self.requests.len();
        let mut posted = 0;
        while posted < count
            && let Some(slice) = self.region.take()
            && self.requests[posted % sockets].receive(slice).is_ok()
        {
            posted += 1;
        }
        self.commit();
        posted
    }

    /// Posts so many receives from the pool on the queue of this socket.
    pub fn post_on(&mut self, socket: usize, count: usize) {
        for _ in 0..count {
            self.requests[socket].receive(self.region.take().unwrap()).unwrap();
        }
        self.requests[socket].commit(&self.counters).unwrap();
    }

    pub fn post(&mut self, slice: Slice, socket: u32) {
        self.requests[socket as usize].receive(slice).unwrap();
        self.commit();
    }

    pub fn commit(&mut self) {
        for requests in &mut self.requests {
            requests.commit(&self.counters).unwrap();
        }
    }

    /// Waits for completions and takes them.
    pub fn completions(&mut self) -> Vec<Completion> {
        let by = Instant::now() + PATIENCE;
        loop {
            let left = by.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "nothing completed: {:?}", self.counters.snapshot());
            self.queue.wait(1, Some(left), &self.counters).unwrap();
            let taken = self.look();
            if !taken.is_empty() {
                return taken;
            }
        }
    }

    /// Takes the completions that are there.
    pub fn look(&mut self) -> Vec<Completion> {
        self.queue.dequeue(&mut self.batch, &self.counters).unwrap();
        self.batch.drain().collect()
    }

    /// Waits for at least so many completions.
    pub fn collect(&mut self, count: usize) -> Vec<Completion> {
        let mut all = Vec::new();
        while all.len() < count {
            all.append(&mut self.completions());
        }
        all
    }

    /// The next datagram, with its slice and its socket.
    pub fn receive(&mut self) -> (Slice, u32, Arrival) {
        let mut all = self.completions();
        assert_eq!(all.len(), 1, "{all:?}");
        let completion = all.remove(0);
        let arrival = completion.arrival().unwrap_or_else(|| panic!("{completion:?}"));
        (completion.slice, completion.socket, arrival)
    }

    /// Receives `count` datagrams, each told to `check` and its slice posted again.
    pub fn receive_each(&mut self, count: usize, mut check: impl FnMut(u32, &[u8], &Arrival)) {
        let mut got = 0;
        while got < count {
            for completion in self.completions() {
                let arrival = completion.arrival().unwrap_or_else(|| panic!("{completion:?}"));
                let Completion { slice, socket, .. } = completion;
                check(socket, &slice.payload()[..arrival.len], &arrival);
                got += 1;
                self.requests[socket as usize].receive(slice).unwrap();
            }
            self.commit();
        }
        assert_eq!(got, count, "more than were sent");
    }

    /// Posts a copy of these bytes to be sent by the first socket.
    pub fn post_send(&mut self, to: SocketAddr, bytes: &[u8], span: impl Into<Span>) {
        let mut slice = self.region.take().unwrap();
        slice.payload_mut()[..bytes.len()].copy_from_slice(bytes);
        self.requests[0].send(slice, span, &Peer::from(to)).unwrap();
    }

    /// Sends a slice's first bytes and waits for its end.
    pub fn send(&mut self, slice: Slice, socket: u32, len: usize, to: &Peer) -> Outcome {
        self.requests[socket as usize].send(slice, len, to).unwrap();
        self.commit();
        let mut all = self.completions();
        assert_eq!(all.len(), 1, "{all:?}");
        all.remove(0).outcome
    }

    /// Stops, and checks that every slice is back in its pool.
    pub fn stop(self) {
        let posted = self.region.count() - self.region.in_pool();
        let stopped = self.queue.stop(self.requests, Instant::now() + PATIENCE);
        assert_eq!((stopped.returned, stopped.missing), (posted, 0));
        assert_eq!(self.region.in_pool(), self.region.count());
        assert_eq!(self.region.leaked(), 0);
    }
}

/// The bytes of a datagram.
pub fn bytes_of(completion: &Completion) -> Vec<u8> {
    match &completion.outcome {
        Outcome::Received(arrival) => completion.slice.payload()[..arrival.len()].to_vec(),
        other => panic!("not a datagram: {other:?}"),
    }
}

/// A payload that tells its number, so long that every byte is checked.
pub fn payload(number: usize, length: usize) -> Vec<u8> {
    (0..length).map(|i| (number * 7 + i) as u8).collect()
}

/// A peer on the loopback address of the same family.
pub fn peer(of: SocketAddr) -> UdpSocket {
    let peer = UdpSocket::bind(SocketAddr::new(of.ip(), 0)).unwrap();
    peer.set_read_timeout(Some(PATIENCE)).unwrap();
    peer
}

/// Started at these addresses.
fn at<T: Threading, P: Provider<T>>(provider: &P, at: &[&str]) -> Rig<T, P> {
    let at: Vec<_> = at.iter().map(|at| at.parse::<SocketAddr>().unwrap().into()).collect();
    Rig::open(provider, NEEDS, 0, &at).unwrap()
}

pub fn every_datagram_of_several_sockets_and_families_once<T: Threading, P: Provider<T>>(
    provider: &P,
) {
    let mut rig = at(provider, &["127.0.0.1:0", "[::1]:0", "127.0.0.1:0"]);
    for socket in 0..3 {
        rig.post_on(socket, 20);
    }
    let mut sent = BTreeMap::new();
    for socket in 0..3usize {
        for number in 0..2 {
            let peer = peer(rig.at[socket]);
            for n in 0..10u8 {
                let bytes = vec![n; n as usize * 12]; // 0 to 108 bytes
                peer.send_to(&bytes, rig.at[socket]).unwrap();
                let from = peer.local_addr().unwrap();
                assert!(sent.insert((socket as u32, from, bytes), number).is_none());
            }
        }
    }
    let got = rig.collect(sent.len());
    assert_eq!(got.len(), sent.len());
    for completion in &got {
        let from = completion.source().expect("a datagram");
        let key = (completion.socket, from, bytes_of(completion));
        assert!(sent.remove(&key).is_some(), "{key:?}");
    }
    assert!(rig.look().is_empty());
    assert_eq!(rig.requests[1].outstanding(), (0, 0));
    drop(got);
    rig.post_on(1, 20);
    rig.stop();
}

pub fn longer_datagrams_are_truncated<T: Threading, P: Provider<T>>(provider: &P) {
    let mut rig = at(provider, &["127.0.0.1:0"]);
    rig.post_on(0, 2);
    let peer = peer(rig.at[0]);
    peer.send_to(&[1; NEEDS.payload], rig.at[0]).unwrap();
    peer.send_to(&[2; NEEDS.payload + 1], rig.at[0]).unwrap();
    let got = rig.collect(2);
    let cut = |c: &Completion| matches!(&c.outcome, Outcome::Received(a) if a.truncated);
    assert_eq!(got.iter().map(cut).collect::<Vec<_>>(), [false, true]);
    assert_eq!(bytes_of(&got[1]), [2; NEEDS.payload]);
    drop(got);
    rig.stop();
}

pub fn wakers_end_this_wait_or_the_next<T: Threading, P: Provider<T>>(provider: &P) {
    let mut rig = at(provider, &["127.0.0.1:0"]);
    rig.post_on(0, 1);
    let waker = rig.queue.waker();
    waker.wake();
    waker.wake();
    assert_eq!(rig.queue.wait(1, None, &rig.counters).unwrap(), Woken::ByWaker);
    let zero = Some(Duration::ZERO);
    assert_eq!(rig.queue.wait(1, zero, &rig.counters).unwrap(), Woken::TimedOut);
    let other = thread::spawn({
        let waker = waker.clone();
        move || waker.wake()
    });
    assert_eq!(rig.queue.wait(1, None, &rig.counters).unwrap(), Woken::ByWaker);
    other.join().unwrap();
    // Where the first wait asked to be notified, that is still to come, and comes once.
    peer(rig.at[0]).send_to(b"x", rig.at[0]).unwrap();
    assert_eq!(rig.collect(1).iter().map(bytes_of).collect::<Vec<_>>(), [b"x"]);
    rig.stop();
    waker.wake(); // after the queue has gone
}

pub fn two_threads_post_and_dequeue_at_once<P: Provider<HandOver, Rq: Send>>(provider: &P) {
    const DATAGRAMS: u32 = 2000;
    /// Datagrams under way: never more than the socket's buffer holds for certain.
    const WINDOW: u32 = 32;
    let mut rig: Rig<HandOver, P> = at(provider, &["127.0.0.1:0"]);
    rig.post_on(0, 40);
    let to = rig.at[0];
    let (returned, to_post) = mpsc::sync_channel::<Slice>(100);
    let (permit, permits) = mpsc::channel();
    thread::scope(|scope| {
        let requests = &mut rig.requests[0];
        scope.spawn(move || {
            // Ends when the dequeuing thread drops its end.
            for slice in to_post {
                requests.receive(slice).unwrap();
                requests.commit(&Counters::default()).unwrap();
            }
        });
        scope.spawn(move || {
            let peer = peer(to);
            for n in 0..DATAGRAMS {
                if n >= WINDOW {
                    permits.recv().unwrap();
                }
                peer.send_to(&n.to_le_bytes(), to).unwrap();
            }
        });
        let permit = permit; // whoever waits for one ends if this panics
        let (mut next, mut by) = (0u32, Instant::now() + PATIENCE);
        while next < DATAGRAMS {
            rig.queue.wait(1, Some(PATIENCE), &rig.counters).unwrap();
            rig.queue.dequeue(&mut rig.batch, &rig.counters).unwrap();
            by = if rig.batch.is_empty() { by } else { Instant::now() + PATIENCE };
            assert!(Instant::now() < by, "{next} of {DATAGRAMS} came");
            for completion in rig.batch.drain() {
                assert_eq!(bytes_of(&completion), next.to_le_bytes());
                next += 1;
                let _ = permit.send(());
                returned.send(completion.slice).unwrap();
            }
        }
        drop(returned);
    });
    assert_eq!(rig.requests[0].outstanding(), (40, 0));
    rig.stop();
}
