//! A server that runs, and what is left of it afterwards.

use super::common::{Common, Gone, ThreadFinal, ThreadNow};
use crate::{
    Error,
    counters::{self, os::ThreadId, stream::Snapshot},
    stream::UnixAddress,
    timer,
    wake::Waker,
};
use std::{
    net::SocketAddr,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

/// A server that runs. Dropping it stops it.
pub struct Running {
    common: Arc<Common>,
    local_addresses: Vec<SocketAddr>,
    unix_addresses: Vec<UnixAddress>,
}

/// What is left of a server that was stopped.
#[derive(Debug)]
#[must_use = "it says whether the server failed"]
#[non_exhaustive]
pub struct Final {
    /// What each thread counted that ran at the end.
    pub threads: Vec<ThreadFinal>,
    /// What those counted that had ended before.
    pub gone: Gone,
    /// The most threads that ran at a time.
    pub most_threads: usize,
    /// From the start to the stop, or to the failure that ended it.
    pub elapsed: Duration,
    /// Connections that nobody closed: none.
    pub open: u32,
    /// The most that were open at a time.
    pub most_open: u32,
    /// What was done with timers.
    pub timers: timer::Counts,
    /// Why the server stopped by itself, if it did.
    pub failure: Option<Error>,
}

impl Final {
    /// The counters of all threads, added up.
    pub fn total(&self) -> Snapshot {
        let mut total = self.gone.counters.clone();
        self.threads.iter().for_each(|thread| total.merge(&thread.counters));
        total
    }

    /// What the calls of all threads into contracts counted, added up.
    pub fn calls(&self) -> counters::Snapshot {
        let mut total = self.gone.calls.clone();
        self.threads.iter().for_each(|thread| total.merge(&thread.calls));
        total
    }
}

impl Running {
    pub(super) fn new(
        common: Arc<Common>,
        local_addresses: Vec<SocketAddr>,
        unix_addresses: Vec<UnixAddress>,
    ) -> Self {
        Self { common, local_addresses, unix_addresses }
    }

    /// The addresses it listens on, in the order asked for; those of Unix sockets are
    /// [by themselves](Self::unix_addresses).
    pub fn local_addresses(&self) -> &[SocketAddr] {
        &self.local_addresses
    }

    /// The Unix sockets it listens on, in the order asked for.
    pub fn unix_addresses(&self) -> &[UnixAddress] {
        &self.unix_addresses
    }

    /// The settings in effect, asked for and obtained.
    pub fn effective(&self) -> Vec<(String, String)> {
        self.common.shared.effective()
    }

    /// The counters of all threads, added up, now.
    pub fn counters(&self) -> Snapshot {
        let (running, gone) = self.common.counters();
        let mut total = gone.counters;
        running.iter().for_each(|(_, counters)| total.merge(counters));
        total
    }

    /// What the calls of all threads into contracts counted, added up, now.
    pub fn calls(&self) -> counters::Snapshot {
        self.common.calls()
    }

    /// Sets the counters of the program's recorder ([metrics](https://docs.rs/metrics)) to what this server has counted by
    /// now, under the names of [`counters::names`](counters::names). Each metric is labelled with the design, its provider,
    /// and what is given here, which tells servers of one program apart. The server's threads know nothing of it: call it
    /// whenever the recorder is to be up to date, as when it is scraped.
    #[cfg(feature = "metrics")]
    pub fn export_metrics(&self, labels: &[(&'static str, &str)]) {
        use counters::names::{CALLS, TCP};
        let export = counters::export::Export::of(&self.effective(), labels);
        export.counters(TCP, &self.counters().named());
        export.counters(CALLS, &self.calls().named());
        export.gauge("weir_connections_open", self.open());
        export.gauge("weir_connections_open_peak", self.most_open());
        export.gauge("weir_threads", self.thread_ids().len() as u32);
    }

    /// Connections that are open now.
    pub fn open(&self) -> u32 {
        self.common.open.load(Relaxed)
    }

    /// The most connections that were open at a time until now.
    pub fn most_open(&self) -> u32 {
        self.common.most_open.load(Relaxed)
    }

    /// The operating system's number of each thread that runs, for reading its usage.
    pub fn thread_ids(&self) -> Vec<ThreadId> {
        self.common.thread_ids()
    }

    /// The threads that run, in the order in which they were started, and what each has counted: the first `most` of
    /// them, as a design may have thousands.
    pub fn threads(&self, most: usize) -> Vec<ThreadNow> {
        self.common.threads_now(most)
    }

    /// Accepts no more connections, and serves those that are open until they end, or the server is stopped: for a server
    /// whose sockets go on elsewhere ([`Server::keep_listening`]). Connections that wait to be accepted go on waiting.
    /// That takes its threads a moment: [`on_drained`](Self::on_drained) tells when they have done so and the last connection
    /// has ended; until then [`accepting`](Self::accepting) and [`open`](Self::open) say what is left.
    ///
    /// # Errors
    /// [`Error::Option`] where the sockets are not kept, so that nobody could have them.
    ///
    /// [`Server::keep_listening`]: super::Server::keep_listening
    pub fn end_accepting(&self) -> Result<(), Error> {
        if !self.common.keeps_listening.load(Relaxed) {
            let problem =
                "nobody else could accept: start the server with keep_listening, or stop it";
            return Err(Error::option("keep-listening", problem));
        }
        self.common.leaves_off.store(true, Relaxed);
        self.common.shared.wake_all();
        Ok(())
    }

    /// Threads that may yet accept a connection: all that do until [`end_accepting`](Self::end_accepting).
    pub fn accepting(&self) -> u32 {
        self.common.accepting()
    }

    /// Calls `waker` when the server accepts no more ([`end_accepting`](Self::end_accepting)) and no connection is open; at
    /// once if that is so. A [`Connector`](super::Connector) may have connections made after that. It is not called where
    /// the server ends before: for that there is [`on_end`](Self::on_end).
    pub fn on_drained(&self, waker: Waker) {
        self.common.on_drained(waker);
    }

    /// Stops the server: accepts no more, handles what was received by then, sends what is to be
    /// sent, tells each peer that nothing follows, and waits for it to close; what is not over after
    /// [`Limits::stop`](super::Limits::stop) is cut off.
    pub fn stop(self) -> Final {
        self.common.shared.stop();
        let (threads, gone) = self.common.join();
        let ended = self.common.shared.ended.get().copied().unwrap_or_else(Instant::now);
        Final {
            threads,
            gone,
            most_threads: self.common.most_threads(),
            elapsed: ended.saturating_duration_since(self.common.since),
            open: self.open(),
            most_open: self.most_open(),
            timers: self.common.timers(),
            failure: self.common.shared.take_failure(),
        }
    }
}

crate::lifecycle::running! {
    Running, held: common, within: shared;
}

impl Drop for Running {
    fn drop(&mut self) {
        self.common.shared.stop();
        self.common.join();
    }
}
