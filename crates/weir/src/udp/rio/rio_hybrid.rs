//! `rio-hybrid`: busy-polls as long as that pays.
//!
//! One thread holds the queue of registered I/O and dequeues again as soon as it has handled
//! what it took. It notifies and waits only when there was nothing, or gives the queue up when
//! a dequeue brought at least the threshold: then it is being overwhelmed, a second thread takes
//! the queue, and so on; as the load falls the threads park again, the last to have come first.
//! So few threads touch the state, the caches stay warm, and hardly any thread wakes another.
//!
//! Polling on for `spin` after the last datagram saves a wake-up and costs CPU time. With `adaptive` it polls less: where
//! datagrams come regularly it sleeps until just before the next one is expected (see `spin`); where polling rarely
//! catches one, it waits at once.
//!
//! With `gather` a wait does not end with the next datagram, but when several have gathered. Polling comes first, and so
//! does sleeping ahead: only a wait that would be for the next datagram lets them gather, and its time begins when the
//! thread goes to sleep.
//!
//! It fails where the threshold is above what a dequeue ever brings: then one thread does all the work, however
//! overwhelmed. With one thread there is nobody to give the queue to, and the queue may use what only works on one thread.
//!
//! With several threads posting is behind a lock: a request queue takes one poster at a time. Each
//! socket's queue has its own, which is taken once for a batch, and for a datagram that is answered with
//! a copy.
//!
//! On io_uring, under load the thread that holds the queue copies the datagrams itself (it sweeps). Otherwise the kernel
//! copies on the thread that armed the receive: the one that last waited after a sweep, usually the holder.
//!
//! Origin: the "RIO hybrid" of Holgate's study (2012), with its threshold of 666 in 1000.

use super::{
    engine::{self, SharedQueue, ToPost, dequeue_failed, wait_failed},
    rio_design,
    spin::{Adaptive, Fixed, Idle},
};
use crate::{
    Error,
    events::event,
    gather::Gather,
    options::{Microseconds, MicrosecondsValue, Named, Options as _},
    pause::{self, FINE_TIMERS},
    rio::{
        Batch, Choice, CompletionQueue, HandOver, OneThread, Provider,
        turn::{Turn, Waited},
    },
    tunable::{Unit, microseconds},
    udp::{Design, Handler, Job, Running, Worker},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

rio_design! {
    RioHybrid "rio-hybrid";
    summary: "one thread busy-polls registered I/O while that pays; others join when batches get too large";
    origin: "RIO hybrid, Holgate 2012";
    options with possible {
        /// Provider of registered I/O.
        provider: Choice = Choice::Auto, Choice::NAMES;
        /// Threads that may take part.
        threads: u32 = 8, 1..=256;
        /// Receives posted at a time; by default fewer where their slices would take more than 256 MiB.
        outstanding: u32 = 150_000, 1..=1_000_000;
        /// Most completions taken by one dequeue.
        dequeue_max: u32 = 1000, 1..=65_536;
        /// Datagrams in one dequeue at which a second thread joins; at most dequeue-max, which is no more than 1000 unless it
        /// is set (can be changed while it runs).
        threshold: u32 = 666, 1..=65_536;
        /// How long to poll after the last datagram before waiting, in microseconds (can be changed while it runs).
        spin: MicrosecondsValue = MicrosecondsValue(50), Microseconds(0..=1_000_000);
        /// Most posts that are deferred and committed together, as with RIO_MSG_DEFER; with several threads under one
        /// lock (can be changed while it runs).
        defer: u32 = engine::A_WHOLE_BATCH, 1..=65_536;
        /// Whether to sleep until shortly before the next datagram where they come regularly, and to poll only where
        /// that pays; in no gap longer than spin (can be changed while it runs).
        adaptive: bool = false, Named(&["true", "false"]);
        /// How long datagrams may gather before a wait that follows polling in vain ends, and how many are enough (can
        /// be changed while it runs).
        gather: Gather = Gather::NONE, Gather::LIMITS;
    }
    hands_over: |design| design.threads > 1;
}

fn possible(options: &RioHybrid) -> Result<(), Error> {
    if options.adaptive && !FINE_TIMERS {
        let problem =
            "timers end too late on this system to sleep ahead of a datagram: leave it at false";
        return Err(Error::option("adaptive", problem));
    }
    within_dequeue(options.threshold, options.dequeue_max)
}

/// A threshold that no dequeue can reach would be a mistake.
pub(super) fn within_dequeue(threshold: u32, dequeue_max: u32) -> Result<(), Error> {
    if threshold <= dequeue_max {
        return Ok(());
    }
    let problem = format!(
        "{threshold} can never be reached by a dequeue of at most {dequeue_max}; set it to at most dequeue-max, or raise that",
    );
    Err(Error::option("threshold", problem))
}

impl RioHybrid {
    /// Starts it on a provider of one's own.
    ///
    /// # Errors
    /// As [`Design::start`](crate::udp::Design::start).
    pub fn start_on<H: Handler, P: Provider<OneThread> + Provider<HandOver, Cq: Send, Rq: Send>>(
        self,
        mut job: Job<H>,
        provider: P,
    ) -> Result<Running<H>, Error> {
        self.check()?;
        let tuning =
            Tuning::new(&job, self.threshold, self.dequeue_max, self.spin.0, Some(self.adaptive));
        let Self { outstanding, dequeue_max, defer, .. } = self;
        let gather = job.gathers(self.gather).after_polling();
        if !Design::hands_over(&self) {
            let mut spin = tuning.spin();
            return engine::start_alone(
                job,
                provider,
                outstanding,
                dequeue_max,
                defer,
                gather,
                move |queue| {
                    if queue.dequeue()? {
                        spin.dequeued(queue.received(), &tuning);
                        return queue.handle();
                    }
                    match spin.empty(&tuning) {
                        Idle::Poll => Ok(()),
                        Idle::Sleep(time) => queue.wait_for(time),
                        Idle::Wait => {
                            event!(TRACE, "polling no longer pays: the thread waits");
                            queue.wait()
                        }
                    }
                },
            );
        }
        let ready =
            engine::open::<HandOver, P, H>(&mut job, &provider, outstanding, dequeue_max, gather)?;
        let defer = engine::posts_together(&job, "defer", defer);
        let run = move |worker: &mut Worker<H>, shared: &SharedQueue<_>| {
            run_together(worker, shared, &tuning, &defer)
        };
        let (threads, first) = (self.threads as usize, Box::new(run.clone()));
        engine::spawn_sharing(&mut job, provider, ready, threads, first, Arc::new(run))?;
        job.run()
    }
}

/// What may be changed while the server runs, and how it polls.
#[derive(Clone)]
pub(super) struct Tuning {
    threshold: Arc<AtomicU64>,
    spin_us: Arc<AtomicU64>,
    /// Whether the spin adapts: 0 or 1.
    adaptive: Arc<AtomicU64>,
}

impl Tuning {
    pub(super) fn new<H: Handler>(
        job: &Job<H>,
        threshold: u32,
        dequeue_max: u32,
        spin_us: u64,
        adaptive: Option<bool>,
    ) -> Self {
        let (may_adapt, adaptive) = (adaptive.is_some(), adaptive.unwrap_or(false));
        Self {
            threshold: job.tunable(
                "threshold",
                Unit::Dequeued,
                threshold.into(),
                1..=dequeue_max.into(),
            ),
            spin_us: job.tunable("spin", Unit::Microseconds, spin_us, 0..=1_000_000),
            adaptive: match may_adapt {
                false => Arc::default(),
                // Where timers end too late it stays as it is.
                true => {
                    job.tunable("adaptive", Unit::Flag, adaptive.into(), 0..=FINE_TIMERS.into())
                }
            },
        }
    }

    fn adapts(&self) -> bool {
        self.adaptive.load(Relaxed) != 0
    }

    fn spin(&self) -> Spin {
        match self.adapts() {
            false => Spin::Fixed(Fixed::default()),
            true => Spin::Adaptive { policy: Adaptive::default(), ends_in_time: false },
        }
    }

    /// How long to poll after the last datagram.
    fn time(&self) -> Duration {
        microseconds(&self.spin_us)
    }
}

/// What a thread does that finds nothing.
enum Spin {
    Fixed(Fixed),
    Adaptive {
        policy: Adaptive,
        /// Whether this thread's timed waits were made to end in time.
        ends_in_time: bool,
    },
}

impl Spin {
    /// What to do after an empty dequeue.
    #[inline]
    fn empty(&mut self, tuning: &Tuning) -> Idle {
        let time = tuning.time();
        self.follow(tuning);
        if time.is_zero() {
            return Idle::Wait;
        }
        let now = Instant::now();
        let idle = match self {
            Self::Fixed(policy) => policy.empty(now, time),
            Self::Adaptive { policy, ends_in_time } => {
                let idle = policy.empty(now, time);
                if matches!(idle, Idle::Sleep(_)) && !std::mem::replace(ends_in_time, true) {
                    // What came of it shows in how late the sleeps end, and the policy goes by that.
                    pause::end_in_time();
                }
                idle
            }
        };
        if idle == Idle::Poll {
            std::hint::spin_loop();
        }
        idle
    }

    /// Begins anew with the other policy where that was changed.
    #[inline]
    fn follow(&mut self, tuning: &Tuning) {
        if tuning.adapts() != matches!(self, Self::Adaptive { .. }) {
            event!(DEBUG, adaptive = tuning.adapts(), "the thread polls by another policy");
            *self = tuning.spin();
        }
    }

    /// A dequeue brought something: so many datagrams, or what became of replies and nothing else.
    #[inline]
    fn dequeued(&mut self, datagrams: usize, tuning: &Tuning) {
        match self {
            Self::Fixed(policy) => policy.arrived(),
            Self::Adaptive { policy, .. } if datagrams == 0 => policy.disturbed(),
            Self::Adaptive { policy, .. } => policy.arrived(Instant::now(), tuning.time()),
        }
    }
}

fn run_together<H: Handler, Q: CompletionQueue>(
    worker: &mut Worker<H>,
    shared: &SharedQueue<Q>,
    tuning: &Tuning,
    defer: &AtomicU64,
) -> Result<(), Error> {
    let mut to_post = ToPost::new(shared.per_dequeue, shared.sockets());
    hold_until_overwhelmed(worker, shared, tuning, |worker, batch| {
        engine::handle_sharing(worker, shared, batch, &mut to_post, defer)
    })
}

/// What becomes of the turn of a thread that has dequeued something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turning {
    /// The thread dequeues again once it has handled what it took.
    Kept,
    /// It is overwhelmed: another thread may have the queue before this one handles what it took.
    GivenUp,
}

/// What a thread of the hybrid decides when a dequeue brought so many datagrams. A model of the design decides by it, too.
#[inline]
pub fn after(received: u64, threshold: u64) -> Turning {
    if received >= threshold { Turning::GivenUp } else { Turning::Kept }
}

/// Takes the queue when it is this thread's turn, and keeps it for as long as dequeues bring
/// less than the threshold. What they bring goes to `handle`, after the queue was given up if
/// it was.
pub(super) fn hold_until_overwhelmed<H: Handler, Q: CompletionQueue>(
    worker: &mut Worker<H>,
    shared: &SharedQueue<Q>,
    tuning: &Tuning,
    mut handle: impl FnMut(&mut Worker<H>, Option<&mut Batch>) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut batch = Batch::new(shared.per_dequeue);
    let mut spin = tuning.spin();
    let counters = Arc::clone(&worker.counters);
    let mut held: Option<Turn<'_, Q>> = None;
    while !worker.stopping() {
        if worker.on_time() {
            handle(worker, None)?;
        }
        let until = worker.call_at();
        let mut turn = match held.take() {
            Some(turn) => turn,
            None => {
                let waited = shared.turns.take_until(worker.index, until, &counters);
                match waited.map_err(wait_failed)? {
                    Waited::Turn(turn) => turn,
                    Waited::TimedOut => continue,
                    Waited::Closed => break,
                }
            }
        };
        let received = turn.queue().dequeue(&mut batch, &counters).map_err(dequeue_failed)?;
        counters.dequeued(received);
        worker.collect_errors();
        if batch.is_empty() {
            held = match spin.empty(tuning) {
                Idle::Poll => Some(turn),
                Idle::Sleep(time) => {
                    counters.waits.one();
                    let time = worker.time_left().map_or(time, |left| left.min(time));
                    turn.queue().wait(1, Some(time), &counters).map_err(wait_failed)?;
                    Some(turn)
                }
                Idle::Wait => {
                    event!(TRACE, "polling no longer pays: the thread waits");
                    counters.notifies.one();
                    match turn.wait_until(until, &counters).map_err(wait_failed)? {
                        Waited::Turn(turn) => Some(turn),
                        Waited::TimedOut | Waited::Closed => None,
                    }
                }
            };
            continue;
        }
        spin.dequeued(received, tuning);
        match after(received as u64, tuning.threshold.load(Relaxed)) {
            Turning::GivenUp => {
                event!(TRACE, received, "a batch reached the threshold: another thread may join");
                turn.notify(&counters);
            }
            Turning::Kept => held = Some(turn),
        }
        handle(worker, Some(&mut batch))?;
    }
    Ok(())
}
