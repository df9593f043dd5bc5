//! What the threads of a server share, and what each leaves behind.

use super::{Limits, handler::MakeHandler, mail::Mailbox, refused::RefusedStreams};
use crate::{
    counters::{
        self,
        os::{ThreadId, ThreadUsage},
        stream::{Counters, Snapshot},
    },
    lifecycle::{Lifecycle, contain, lock},
    stream::Listener,
    timer,
    wake::Waker,
};
use std::{
    collections::HashMap,
    ops::Deref,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
    },
    thread,
    time::Instant,
};

/// What the threads of a server share, as far as it does not depend on the handler.
pub(super) struct Common {
    pub(super) shared: Lifecycle,
    /// Nothing more is accepted, though the server goes on.
    pub(super) leaves_off: AtomicBool,
    /// Sockets that were given go on listening when the server stops.
    pub(super) keeps_listening: AtomicBool,
    pub(super) limits: Limits,
    /// Of threads, where they come with connections.
    pub(super) for_threads: OnceLock<ForThreads>,
    pub(super) since: Instant,
    /// Threads that may accept a connection.
    accepting: AtomicU32,
    /// Connections that are open.
    pub(super) open: AtomicU32,
    /// Who is told when neither is any.
    drained: Mutex<Vec<Waker>>,
    /// The most that ever were at a time.
    pub(super) most_open: AtomicU32,
    pub(super) threads: Mutex<Threads>,
    /// Connections that are not, and were told so.
    pub(super) refused: Arc<RefusedStreams>,
    timers: Mutex<timer::Counts>,
    /// Sockets that listened before the server did: dropping them does not end that.
    pub(super) given: Vec<Listener>,
    /// Where connections are left that others have made, and which of them is next.
    pub(super) mailboxes: Mutex<Vec<Arc<Mailbox>>>,
    pub(super) next_mailbox: AtomicU32,
}

/// What they share, with who handles the connections.
pub(super) struct Server<H> {
    pub(super) common: Arc<Common>,
    pub(super) make_handler: MakeHandler<H>,
}

impl<H> Deref for Server<H> {
    type Target = Common;
    fn deref(&self) -> &Common {
        &self.common
    }
}

/// How many threads there may be where they come with connections.
pub(super) struct ForThreads {
    /// Connections that there are threads for.
    pub(super) connections: u32,
    /// Threads that may run, those included that do not come with connections, and some that are on their way
    /// out: the connection of a thread is over a moment before the thread is.
    pub(super) threads: usize,
    /// Which limit that is.
    pub(super) limit: String,
}

/// The threads that run. Those that ended are joined when the next one starts, and at the end.
#[derive(Default)]
pub(super) struct Threads {
    pub(super) next: usize,
    pub(super) running: HashMap<usize, Thread>,
    pub(super) ended: Vec<usize>,
    gone: Gone,
    pub(super) most: usize,
}

pub(super) struct Thread {
    pub(super) handle: thread::JoinHandle<ThreadUsage>,
    pub(super) counters: Arc<Counters>,
    pub(super) calls: Arc<counters::Counters>,
    pub(super) id: Arc<OnceLock<ThreadId>>,
}

impl Thread {
    fn join(self, index: usize) -> ThreadFinal {
        let usage = self.handle.join().expect("the thread catches panics");
        let (counters, calls) = (self.counters.snapshot(), self.calls.snapshot());
        ThreadFinal { index, counters, calls, usage }
    }
}

impl Threads {
    /// Joins those that are at their end.
    pub(super) fn join_ended(&mut self) {
        for index in std::mem::take(&mut self.ended) {
            if let Some(thread) = self.running.remove(&index) {
                self.gone.add(&thread.join(index));
            }
        }
    }
}

impl Common {
    pub(super) fn new(limits: Limits, given: Vec<Listener>) -> Self {
        Self {
            shared: Lifecycle::default(),
            leaves_off: AtomicBool::new(false),
            keeps_listening: AtomicBool::new(false),
            limits,
            for_threads: OnceLock::new(),
            since: Instant::now(),
            accepting: AtomicU32::new(0),
            open: AtomicU32::new(0),
            drained: Mutex::default(),
            most_open: AtomicU32::new(0),
            threads: Mutex::default(),
            refused: RefusedStreams::new(limits.linger),
            timers: Mutex::default(),
            given,
            mailboxes: Mutex::default(),
            next_mailbox: AtomicU32::new(0),
        }
    }

    /// So many threads accept connections: to be said before anybody can ask them to end that.
    pub(super) fn accept_by(&self, threads: usize) {
        self.accepting.store(threads as u32, SeqCst);
    }

    /// Threads that may accept a connection.
    pub(super) fn accepting(&self) -> u32 {
        self.accepting.load(SeqCst)
    }

    /// A thread accepts no more.
    pub(super) fn left_off(&self) {
        self.accepting.fetch_sub(1, SeqCst);
        self.tell_if_drained();
    }

    /// A connection is closed.
    pub(super) fn closed(&self) {
        // In one order with `left_off`: whichever comes last finds that nothing is left.
        if self.open.fetch_sub(1, SeqCst) == 1 {
            self.tell_if_drained();
        }
    }

    /// Has `waker` called when there is no connection, and none can come.
    pub(super) fn on_drained(&self, waker: Waker) {
        lock(&self.drained).push(waker);
        self.tell_if_drained();
    }

    fn tell_if_drained(&self) {
        if self.accepting() == 0 && self.open.load(SeqCst) == 0 {
            let told = std::mem::take(&mut *lock(&self.drained));
            told.iter().for_each(|waker| _ = contain(|| waker.wake()));
        }
    }

    pub(super) fn add_timers(&self, counts: timer::Counts) {
        lock(&self.timers).merge(&counts);
    }

    pub(super) fn timers(&self) -> timer::Counts {
        *lock(&self.timers)
    }

    /// The counters of every thread there is, by its number, and of those that have gone.
    pub(super) fn counters(&self) -> (Vec<(usize, counters::stream::Snapshot)>, Gone) {
        let threads = lock(&self.threads);
        let mut running: Vec<_> = threads
            .running
            .iter()
            .map(|(index, thread)| (*index, thread.counters.snapshot()))
            .collect();
        running.sort_unstable_by_key(|(index, _)| *index);
        (running, threads.gone.clone())
    }

    /// What the calls of all threads counted, of those that have gone too.
    pub(super) fn calls(&self) -> counters::Snapshot {
        let threads = lock(&self.threads);
        let mut total = threads.gone.calls.clone();
        threads.running.values().for_each(|thread| total.merge(&thread.calls.snapshot()));
        total
    }

    pub(super) fn thread_ids(&self) -> Vec<ThreadId> {
        let threads = lock(&self.threads);
        threads.running.values().filter_map(|thread| thread.id.get().copied()).collect()
    }

    /// The first `most` of the threads that run, by their numbers.
    pub(super) fn threads_now(&self, most: usize) -> Vec<ThreadNow> {
        let threads = lock(&self.threads);
        let mut first: Vec<_> =
            threads.running.iter().map(|(index, thread)| (*index, thread)).collect();
        first.sort_unstable_by_key(|(index, _)| *index);
        let now = |(index, thread): (usize, &Thread)| {
            let id = *thread.id.get()?; // it has begun
            let (counters, calls) = (thread.counters.snapshot(), thread.calls.snapshot());
            Some(ThreadNow { index, id, counters, calls })
        };
        first.into_iter().filter_map(now).take(most).collect()
    }

    /// The most threads there were at a time.
    pub(super) fn most_threads(&self) -> usize {
        lock(&self.threads).most
    }

    /// Joins every thread, also those that are started meanwhile.
    pub(super) fn join(&self) -> (Vec<ThreadFinal>, Gone) {
        let mut finals = Vec::new();
        loop {
            let running = std::mem::take(&mut lock(&self.threads).running);
            if running.is_empty() {
                break;
            }
            finals.extend(running.into_iter().map(|(index, thread)| thread.join(index)));
        }
        finals.sort_unstable_by_key(|thread| thread.index);
        self.given.iter().for_each(Listener::end_accepting);
        self.refused.end();
        (finals, lock(&self.threads).gone.clone())
    }
}

/// A thread that runs, at a moment.
#[derive(Debug, Clone)]
pub struct ThreadNow {
    /// Its number.
    pub index: usize,
    /// The operating system's number of it.
    pub id: ThreadId,
    /// What it has counted.
    pub counters: Snapshot,
    /// What its calls into contracts have counted.
    pub calls: counters::Snapshot,
}

/// What one thread leaves behind.
#[derive(Debug)]
#[non_exhaustive]
pub struct ThreadFinal {
    /// Its number.
    pub index: usize,
    /// What it counted.
    pub counters: Snapshot,
    /// What its calls into contracts counted.
    pub calls: counters::Snapshot,
    /// What the operating system counted of it.
    pub usage: ThreadUsage,
}

/// What threads leave behind that have ended while the server ran.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Gone {
    /// How many.
    pub threads: u64,
    /// What they counted.
    pub counters: Snapshot,
    /// What their calls into contracts counted.
    pub calls: counters::Snapshot,
    /// What the operating system counted of them; `None` where none has ended.
    pub usage: Option<ThreadUsage>,
}

impl Gone {
    fn add(&mut self, thread: &ThreadFinal) {
        self.threads += 1;
        self.counters.merge(&thread.counters);
        self.calls.merge(&thread.calls);
        self.usage = Some(self.usage.map_or(thread.usage, |usage| usage.plus(&thread.usage)));
    }
}
