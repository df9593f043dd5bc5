//! A server that runs, and what is left of it afterwards.

use super::{
    Handler,
    handler::{Left, left},
    outbox::{Exits, SharedOutbox},
};
#[cfg(feature = "metrics")]
use crate::counters::export::Export;
use crate::{
    Error,
    counters::{
        Counters, Snapshot,
        os::{ThreadId, ThreadUsage},
    },
    lifecycle::{Lifecycle, lock},
    memory::Region,
    socket::{Gauge, SocketState},
    stream::UnixAddress,
};
use std::{
    marker::PhantomData,
    net::{IpAddr, SocketAddr},
    sync::{Arc, OnceLock},
    thread,
    time::{Duration, Instant},
};

/// A server that runs. Dropping it stops it.
pub struct Running<H> {
    server: Started,
    handlers: PhantomData<fn() -> H>,
}

/// The part of it that does not depend on the handler.
struct Started {
    shared: Arc<Lifecycle>,
    threads: Vec<Thread>,
    local_addresses: Vec<SocketAddr>,
    unix_addresses: Vec<UnixAddress>,
    gauges: Vec<Gauge>,
    exits: Arc<Exits>,
    /// Whether busy polling was asked for.
    polls: bool,
    since: Instant,
}

/// A thread of a server.
pub(super) struct Thread {
    pub(super) handle: thread::JoinHandle<ThreadFinal<Left>>,
    pub(super) counters: Arc<Counters>,
    pub(super) id: Arc<OnceLock<ThreadId>>,
}

/// What is left of a server that was stopped.
#[derive(Debug)]
#[must_use = "it says whether the server failed"]
#[non_exhaustive]
pub struct Final<H> {
    /// What each thread counted, with its handler.
    pub threads: Vec<ThreadFinal<H>>,
    /// From the start to the stop, or to the failure that ended it.
    pub elapsed: Duration,
    /// Where the slices are.
    pub slices: Slices,
    /// What the system counted for each socket, as [`Running::sockets`] tells of them.
    pub sockets: Vec<SocketState>,
    /// Why the server stopped by itself, if it did.
    pub failure: Option<Error>,
}

/// What one thread leaves behind.
#[derive(Debug)]
#[non_exhaustive]
pub struct ThreadFinal<H> {
    /// Its handler, with its state.
    pub handler: H,
    /// What it counted.
    pub counters: Snapshot,
    /// What the operating system counted of it.
    pub usage: ThreadUsage,
}

/// Slices of memory at the end: what was made must have returned, however the server ended, a
/// panic of its threads included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Slices {
    /// Slices made.
    pub made: u32,
    /// Slices back in their pool.
    pub returned: u32,
    /// Slices that the kernel did not give back; their memory is leaked on purpose.
    pub missing: u32,
}

impl Slices {
    fn of(region: &Region) -> Self {
        Self { made: region.count(), returned: region.in_pool(), missing: region.leaked() }
    }
}

impl std::iter::Sum for Slices {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            made: sum.made + one.made,
            returned: sum.returned + one.returned,
            missing: sum.missing + one.missing,
        })
    }
}

impl<H> Final<H> {
    /// The counters of all threads, added up.
    pub fn total(&self) -> Snapshot {
        let mut total = Snapshot::default();
        for thread in &self.threads {
            total.merge(&thread.counters);
        }
        total
    }
}

/// The setting that says which queues busy polling polls.
const POLLED: &str = "busy-poll-queues";

/// Which queues of devices the sockets poll.
fn polled(sockets: &[SocketState]) -> String {
    let mut ids: Vec<_> = sockets.iter().filter_map(|socket| socket.napi_id).collect();
    ids.sort_unstable();
    ids.dedup();
    if ids.is_empty() {
        return "none: no datagram has come through a device's queue that can be polled (there is none on loopback)"
            .into();
    }
    ids.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

impl<H> Running<H> {
    pub(super) fn new(
        shared: Arc<Lifecycle>,
        threads: Vec<Thread>,
        (local_addresses, unix_addresses): (Vec<SocketAddr>, Vec<UnixAddress>),
        gauges: Vec<Gauge>,
        polls: bool,
        exits: Arc<Exits>,
    ) -> Self {
        let since = Instant::now();
        let server = Started {
            shared,
            threads,
            local_addresses,
            unix_addresses,
            gauges,
            exits,
            polls,
            since,
        };
        Self { server, handlers: PhantomData }
    }

    /// The same, by the handlers that are in the boxes of its threads.
    pub(super) fn with_handlers<T>(self) -> Running<T> {
        Running { server: self.server, handlers: PhantomData }
    }

    /// The addresses it receives on, in the order asked for; those of Unix sockets are
    /// [by themselves](Self::unix_addresses).
    pub fn local_addresses(&self) -> &[SocketAddr] {
        &self.server.local_addresses
    }

    /// The Unix sockets it receives by, in the order asked for.
    pub fn unix_addresses(&self) -> &[UnixAddress] {
        &self.server.unix_addresses
    }

    /// An outbox, for threads that are not the server's.
    pub fn outbox(&self) -> SharedOutbox {
        SharedOutbox::new(&self.server.exits)
    }

    /// The settings in effect, asked for and obtained.
    pub fn effective(&self) -> Vec<(String, String)> {
        let mut effective = self.server.shared.effective();
        if self.server.polls {
            effective.push((POLLED.into(), polled(&self.sockets())));
        }
        effective
    }

    /// What the system counts for each socket, now: what was dropped at it, above all. They come in
    /// the order of the addresses; a design with several sockets for each has all addresses of the first
    /// thread, then those of the next. None where datagrams come by no such sockets (`xdp`).
    pub fn sockets(&self) -> Vec<SocketState> {
        self.server.gauges.iter().map(Gauge::read).collect()
    }

    /// The counters of each thread, now.
    pub fn counters(&self) -> Vec<Snapshot> {
        self.server.threads.iter().map(|thread| thread.counters.snapshot()).collect()
    }

    /// Sets the counters of the program's recorder ([metrics](https://docs.rs/metrics)) to what this server has counted by
    /// now, under the names of [`counters::names`](crate::counters::names). Each metric is labelled with the design, its
    /// provider, and what is given here, which tells servers of one program apart. The server's threads know nothing of
    /// it: call it whenever the recorder is to be up to date, as when it is scraped.
    #[cfg(feature = "metrics")]
    pub fn export_metrics(&self, labels: &[(&'static str, &str)]) {
        use crate::counters::names::{CALLS, UDP};
        let mut total = Snapshot::default();
        self.counters().iter().for_each(|thread| total.merge(thread));
        let export = Export::of(&self.server.shared.effective(), labels);
        export.counters(UDP, &total.named());
        export.counters(CALLS, &total.named());
        export.gauge("weir_threads", self.thread_ids().len() as u32);
    }

    /// The operating system's number of each thread that has begun, for reading its usage while
    /// it runs.
    pub fn thread_ids(&self) -> Vec<ThreadId> {
        self.server.threads.iter().filter_map(|thread| thread.id.get().copied()).collect()
    }

    /// Receives what is sent to a group from now on ([`Server::join`](super::Server::join)).
    ///
    /// # Errors
    /// [`Error::Option`] if the server has no socket for that; [`Error::Unavailable`] if its provider receives frames;
    /// [`Error::Io`] with the system's answer: then no socket has joined that had not before.
    pub fn join(&self, group: IpAddr, interface: u32) -> Result<(), Error> {
        self.server.exits.join(group, interface)
    }

    /// Receives no more of what is sent to a group that was joined by this device.
    ///
    /// # Errors
    /// As [`join`](Self::join).
    pub fn leave(&self, group: IpAddr, interface: u32) -> Result<(), Error> {
        self.server.exits.leave(group, interface)
    }
}

crate::lifecycle::running! {
    Running<H>, held: server.shared;
    ///
    /// ```
    /// use weir::udp::{Blocking, Datagram, Replies, Server};
    ///
    /// let server = Server::bind("127.0.0.1:0".parse().unwrap())
    ///     .start(Blocking::default(), |_| |_: Datagram<'_>, _: &mut Replies<'_>| ())
    ///     .unwrap();
    /// let stopper = server.stopper(); // for a thread that is told of signals, say
    /// std::thread::spawn(move || stopper.wake());
    /// server.wait();
    /// assert!(server.stop().failure.is_none());
    /// ```
}

impl<H: Handler> Running<H> {
    /// Stops the server: ends every wait, lets each thread finish its batch, takes every
    /// slice back.
    pub fn stop(self) -> Final<H> {
        let Final { threads, elapsed, slices, sockets, failure } = self.server.stop();
        let threads = threads.into_iter().map(ThreadFinal::with_handler).collect();
        Final { threads, elapsed, slices, sockets, failure }
    }
}

impl ThreadFinal<Left> {
    fn with_handler<H: Handler>(self) -> ThreadFinal<H> {
        let Self { handler, counters, usage } = self;
        ThreadFinal { handler: left(handler), counters, usage }
    }
}

impl Started {
    fn stop(mut self) -> Final<Left> {
        let threads = self.join();
        let ended = self.shared.ended.get().copied().unwrap_or_else(Instant::now);
        let elapsed = ended.saturating_duration_since(self.since);
        // Every queue has gone with its thread, so this is where each slice has come to.
        let slices = lock(&self.shared.regions).iter().map(|region| Slices::of(region)).sum();
        let sockets = self.gauges.iter().map(Gauge::read).collect();
        Final { threads, elapsed, slices, sockets, failure: self.shared.take_failure() }
    }

    fn join(&mut self) -> Vec<ThreadFinal<Left>> {
        self.shared.stop();
        let join = |thread: Thread| thread.handle.join().expect("the thread catches panics");
        let ended = self.threads.drain(..).map(join).collect();
        self.exits.close();
        ended
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        self.join();
    }
}
