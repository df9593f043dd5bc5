//! The provider against the kernel it runs on, over loopback: every form of polling, on one
//! thread and handed over.

mod ends;
mod injected;
mod receiving;
mod sending;

use super::*;
use crate::{
    counters::Counters,
    memory::{RegionOptions, Slice},
    required::cannot_run,
    rio::{Completion, HandOver, OneThread},
    socket::Arrival,
};
use std::net::UdpSocket;

/// Runs each test under every form.
macro_rules! under_every_form {
    ($($test:ident),* $(,)?) => {
        under_every_form!(@ deferred OneThread Deferred: $($test),*);
        under_every_form!(@ armed OneThread Armed: $($test),*);
        under_every_form!(@ interrupt OneThread Interrupt: $($test),*);
        under_every_form!(@ kernel_thread OneThread KernelThread: $($test),*);
        under_every_form!(@ handed_over HandOver Deferred: $($test),*);
        under_every_form!(@ interrupt_handed_over HandOver Interrupt: $($test),*);
        under_every_form!(@ kernel_thread_handed_over HandOver KernelThread: $($test),*);
    };
    (@ $form:ident $Threading:ident $Polling:ident: $($test:ident),*) => {
        mod $form {
            $(#[test]
            fn $test() {
                use crate::rio::{$Threading, uring::Polling};
                if super::cannot_run_here::<$Threading>(Polling::$Polling) {
                    return;
                }
                super::$test::<$Threading>(Polling::$Polling);
            })*
        }
    };
}
use under_every_form;

/// Far longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Queues on loopback, and what is needed to use them.
struct Rig<T: Sharing> {
    region: Arc<Region>,
    queue: UringCompletions<T>,
    requests: Vec<UringRequests<T>>,
    at: Vec<SocketAddr>,
    granted: Vec<(&'static str, String)>,
    counters: Counters,
    batch: Batch,
}

/// What the tests ask for where they do not care.
const NEEDS: Needs =
    Needs { payload: 200, receives: 64, sends: 0, per_dequeue: 32, offload: false, meta: false };

fn loopback() -> Endpoint {
    SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()
}

impl<T: Sharing> Rig<T> {
    fn new(polling: Polling, needs: Needs, endpoints: &[Endpoint]) -> Self {
        Self::with(Uring::polling(polling), needs, endpoints)
    }

    fn with(uring: Uring, needs: Needs, endpoints: &[Endpoint]) -> Self {
        let region = region::<T>(&uring, &needs);
        let opened = Provider::<T>::open(&uring, endpoints, &region, &needs).unwrap();
        Self::start(uring, needs, region, opened)
    }

    fn start(uring: Uring, needs: Needs, region: Arc<Region>, opened: UringOpened) -> Self {
        let at = opened.local_addresses();
        let started = uring.start(opened).unwrap();
        Self {
            region,
            queue: started.completions,
            requests: started.requests,
            at,
            granted: started.granted,
            counters: Counters::default(),
            batch: Batch::new(needs.per_dequeue as usize),
        }
    }

    /// Posts up to `count` receives from the pool, shared among the sockets; says how many.
    fn post(&mut self, count: usize) -> usize {
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

    fn commit(&mut self) {
        for requests in &mut self.requests {
            requests.commit(&self.counters).unwrap();
        }
    }

    /// Waits for completions and takes them.
    fn completions(&mut self) -> Vec<Completion> {
        let by = Instant::now() + PATIENCE;
        loop {
            let left = by.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "nothing completed");
            self.queue.wait(1, Some(left), &self.counters).unwrap();
            self.queue.dequeue(&mut self.batch, &self.counters).unwrap();
            if !self.batch.is_empty() {
                return self.batch.drain().collect();
            }
        }
    }

    /// Takes the completions that are there.
    fn look(&mut self) -> Vec<Completion> {
        self.queue.dequeue(&mut self.batch, &self.counters).unwrap();
        self.batch.drain().collect()
    }

    /// Receives `count` datagrams, each told to `check` and its slice posted again.
    fn receive(&mut self, count: usize, mut check: impl FnMut(u32, &[u8], &Arrival)) {
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

    /// Stops, and checks that every slice is back in its pool.
    fn stop(self) {
        let posted = self.region.count() - self.region.in_pool();
        let stopped = self.queue.stop(self.requests, Instant::now() + PATIENCE);
        assert_eq!((stopped.returned, stopped.missing), (posted, 0));
        assert_eq!(self.region.in_pool(), self.region.count());
        assert_eq!(self.region.leaked(), 0);
    }
}

fn region<T: Sharing>(uring: &Uring, needs: &Needs) -> Arc<Region> {
    let layout = Provider::<T>::layout(uring, needs).unwrap();
    Region::new(layout, needs.receives + needs.sends, RegionOptions::default()).unwrap()
}

fn cannot_run_here<T: Sharing>(polling: Polling) -> bool {
    let uring = Uring::polling(polling);
    cannot_run(uring.name(), Provider::<T>::layout(&uring, &NEEDS))
}

/// A peer on the loopback address of the same family.
fn peer(of: SocketAddr) -> UdpSocket {
    let peer = UdpSocket::bind(SocketAddr::new(of.ip(), 0)).unwrap();
    peer.set_read_timeout(Some(PATIENCE)).unwrap();
    peer
}

/// A payload that tells its number, so long that every byte is checked.
fn payload(number: usize, length: usize) -> Vec<u8> {
    (0..length).map(|i| (number * 7 + i) as u8).collect()
}
