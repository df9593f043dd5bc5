//! `rio-hybrid`: polls while it is winning.
//!
//! One thread holds the queue of registered I/O and dequeues again as soon as it has handled
//! what it took. It notifies and waits only when there was nothing, or gives the queue up when
//! a dequeue brought at least the threshold: then it is being overwhelmed, a second thread takes
//! the queue, and so on; as the load falls the threads park again, the last to have come first.
//! So few threads touch the state, the caches stay warm, and hardly any thread wakes another.
//!
//! It polls `spin` longer after the last datagram before it waits: that buys latency (no wake-up)
//! with CPU time. It fails where the threshold is above what a dequeue ever brings: then one
//! thread does all the work, however overwhelmed. With one thread there is nobody to give the
//! queue to, and the queue may use what only works on one thread.
//!
//! With several threads posting is behind a lock, in plain sight below: a request queue takes one
//! poster at a time. The lock is taken once for a batch, and for a
//! datagram that is answered with a copy. The thread that started the queue armed
//! its receives; it lives until the end, since on io_uring the kernel copies in its context.
//!
//! Origin: the "RIO hybrid" of Holgate's study (2012), with its threshold of 666 in 1000.

use super::{
    About, Contract, Design, Handler, Job, Running, Worker,
    job::{contain, stop_deadline},
    rio_frame::{self, Ready},
};
use crate::{
    Error, Unavailable,
    memory::Region,
    options::{Microseconds, MicrosecondsValue, Options as _, options},
    rio::{
        Batch, Choice, CompletionQueue, HandOver, OneThread, Provider, RequestQueue, Started,
        turn::{Turn, Turns},
        with_provider,
    },
    wake::Waker,
};
use std::{
    io,
    panic::resume_unwind,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc,
    },
    time::{Duration, Instant},
};

options! {
    /// Options of the design `rio-hybrid`.
    pub struct RioHybrid with threshold_within_dequeue {
        /// Provider of registered I/O.
        provider: Choice = Choice::Auto, Choice::NAMES;
        /// Threads that may take part.
        threads: u32 = 8, 1..=256;
        /// Receives posted at a time.
        outstanding: u32 = 150_000, 1..=1_000_000;
        /// Most completions taken by one dequeue.
        dequeue_max: u32 = 1000, 1..=65_536;
        /// Datagrams in one dequeue from which on a second thread joins (tunable).
        threshold: u32 = 666, 1..=65_536;
        /// How long to poll after the last datagram before waiting, in microseconds (tunable).
        spin: MicrosecondsValue = MicrosecondsValue(50), Microseconds(0..=1_000_000);
    }
}

fn threshold_within_dequeue(options: &RioHybrid) -> Result<(), Error> {
    if options.threshold <= options.dequeue_max {
        return Ok(());
    }
    let problem = format!(
        "{} can never be reached by a dequeue of at most {}; set it to at most dequeue-max, or raise that",
        options.threshold, options.dequeue_max
    );
    Err(Error::Option { name: "threshold".into(), problem })
}

impl Design for RioHybrid {
    const ABOUT: About = About {
        name: "rio-hybrid",
        summary: "one thread polls registered I/O while it is winning; others join when it is overwhelmed",
        origin: "RIO hybrid, Holgate 2012",
        contract: Contract::Rio,
    };

    fn start<H: Handler>(self, job: Job<H>) -> Result<Running<H>, Error> {
        with_provider!(self.provider, |provider| self.start_on(job, provider))
    }

    fn resolve(&mut self) {
        self.provider = self.provider.resolve();
    }

    fn provider(&self) -> &'static str {
        self.provider.about().name
    }

    fn availability(&self) -> Result<(), Unavailable> {
        self.provider.availability()
    }
}

impl RioHybrid {
    /// Starts it on a provider of one's own.
    ///
    /// # Errors
    /// As [`Design::start`].
    pub fn start_on<H, P>(self, mut job: Job<H>, provider: P) -> Result<Running<H>, Error>
    where
        H: Handler,
        P: Provider<OneThread> + Provider<HandOver>,
        <P as Provider<HandOver>>::Cq: Send,
        <P as Provider<HandOver>>::Rq: Send,
    {
        self.check()?;
        let tuning = Tuning {
            threshold: job.tunable("threshold", self.threshold.into(), 1, self.dequeue_max.into()),
            spin_us: job.tunable("spin", self.spin.0, 0, 1_000_000),
        };
        let threads = self.threads as usize;
        if threads == 1 {
            let ready = rio_frame::open::<OneThread, P, H>(
                &mut job, &provider, self.outstanding, self.dequeue_max,
            )?;
            job.spawn(move |worker| run_alone(worker, &provider, ready, &tuning))?;
            return job.run();
        }
        let ready = rio_frame::open::<HandOver, P, H>(
            &mut job, &provider, self.outstanding, self.dequeue_max,
        )?;
        // The first thread starts the queues and tells the others where they are. When every
        // other thread has dropped its end of `left`, the queues are the first thread's again.
        let (left, others_left) = mpsc::channel::<()>();
        let mut others = Vec::new();
        let mut bodies = Vec::new();
        for _ in 1..threads {
            let (sender, receiver) = mpsc::channel();
            others.push(sender);
            bodies.push((receiver, left.clone(), tuning.clone()));
        }
        drop(left);
        let per_dequeue = ready.needs.per_dequeue as usize;
        job.spawn(move |worker| {
            run_first(worker, &provider, ready, &tuning, others, &others_left)
        })?;
        for (receiver, left, tuning) in bodies {
            job.spawn(move |worker| {
                let _left = left;
                worker.ready(None);
                // The first thread failed to start, and says why, if it never answers.
                let Ok(shared) = receiver.recv() else { return Ok(()) };
                let shared: Arc<Shared<_, _>> = shared;
                run_together(worker, &shared, &tuning, per_dequeue)
            })?;
        }
        job.run()
    }
}

/// What may be changed while the server runs.
#[derive(Clone)]
struct Tuning {
    threshold: Arc<AtomicU64>,
    spin_us: Arc<AtomicU64>,
}

/// Polls on for a while after the last datagram.
#[derive(Default)]
struct Spin {
    empty_since: Option<Instant>,
}

impl Spin {
    /// Whether to look again rather than wait, after an empty dequeue.
    #[inline]
    fn again(&mut self, tuning: &Tuning) -> bool {
        let spin_us = tuning.spin_us.load(Relaxed);
        if spin_us == 0 {
            return false;
        }
        let now = Instant::now();
        let since = *self.empty_since.get_or_insert(now);
        std::hint::spin_loop();
        now - since < Duration::from_micros(spin_us)
    }

    #[inline]
    fn reset(&mut self) {
        self.empty_since = None;
    }
}

fn run_alone<H: Handler, P: Provider<OneThread>>(
    worker: &mut Worker<H>,
    provider: &P,
    ready: Ready<P::Opened>,
    tuning: &Tuning,
) -> Result<(), Error> {
    let Ready { region, opened, needs } = ready;
    rio_frame::run(provider.start(opened)?, |completions, requests, granted| {
        rio_frame::post_all(worker, &region, &needs, requests)?;
        rio_frame::announce(worker, granted, Some(completions.waker()));
        let mut batch = Batch::new(needs.per_dequeue as usize);
        let mut spin = Spin::default();
        while !worker.stopping() {
            let received =
                completions.dequeue(&mut batch, &worker.counters).map_err(dequeue_failed)?;
            worker.counters.dequeued(received);
            if !batch.is_empty() {
                spin.reset();
                rio_frame::handle(worker, &mut batch, &region, requests)?;
            } else if !spin.again(tuning) {
                spin.reset();
                worker.counters.notifies.one();
                worker.counters.waits.one();
                completions.wait(1, None, &worker.counters).map_err(wait_failed)?;
            }
        }
        Ok(())
    })
}

/// What the threads share: the right to dequeue, and the request queues under their lock.
struct Shared<Cq, Rq> {
    turns: Turns<Cq>,
    requests: Mutex<Vec<Rq>>,
    region: Arc<Region>,
}

/// Tells another thread where the queues are.
type Invitation<Cq, Rq> = mpsc::Sender<Arc<Shared<Cq, Rq>>>;

fn run_first<H, P>(
    worker: &mut Worker<H>,
    provider: &P,
    ready: Ready<<P as Provider<HandOver>>::Opened>,
    tuning: &Tuning,
    others: Vec<Invitation<P::Cq, P::Rq>>,
    others_left: &mpsc::Receiver<()>,
) -> Result<(), Error>
where
    H: Handler,
    P: Provider<HandOver>,
    P::Cq: Send,
    P::Rq: Send,
{
    let Ready { region, opened, needs } = ready;
    let Started { completions, mut requests, granted } = provider.start(opened)?;
    let posted = rio_frame::post_all(worker, &region, &needs, &mut requests);
    let shared = Arc::new(Shared {
        turns: Turns::new(completions, others.len() + 1),
        requests: Mutex::new(requests),
        region: Arc::clone(&region),
    });
    let closing = Arc::downgrade(&shared);
    let close = Waker::new(move || {
        if let Some(shared) = closing.upgrade() {
            shared.turns.close();
        }
    });
    let result = contain(|| {
        posted?;
        rio_frame::announce(worker, &granted, Some(close));
        for other in others {
            let _ = other.send(Arc::clone(&shared));
        }
        run_together(worker, &shared, tuning, needs.per_dequeue as usize)
    });
    shared.turns.close();
    let _ = others_left.recv(); // an error: every other thread has left
    let completions = shared.turns.take_back();
    let requests = std::mem::take(&mut *lock(&shared.requests));
    if let Some(completions) = completions {
        // What did not come back is counted in the region, and told from there.
        let _ = completions.stop(requests, stop_deadline());
    }
    result.unwrap_or_else(|panic| resume_unwind(panic))
}

fn run_together<H: Handler, Q: CompletionQueue>(
    worker: &mut Worker<H>,
    shared: &Shared<Q, Q::Rq>,
    tuning: &Tuning,
    per_dequeue: usize,
) -> Result<(), Error> {
    let mut batch = Batch::new(per_dequeue);
    let mut done = Done {
        next: Vec::with_capacity(per_dequeue),
        receives: vec![0; lock(&shared.requests).len()],
    };
    let mut spin = Spin::default();
    let counters = Arc::clone(&worker.counters);
    let mut held: Option<Turn<'_, Q>> = None;
    while !worker.stopping() {
        let mut turn = match held.take() {
            Some(turn) => turn,
            None => match shared.turns.take(worker.index, &counters).map_err(wait_failed)? {
                Some(turn) => turn,
                None => break,
            },
        };
        let received = turn.queue().dequeue(&mut batch, &counters).map_err(dequeue_failed)?;
        counters.dequeued(received);
        if batch.is_empty() {
            if spin.again(tuning) {
                held = Some(turn);
                continue;
            }
            spin.reset();
            counters.notifies.one();
            held = turn.wait(&counters).map_err(wait_failed)?;
            continue;
        }
        spin.reset();
        if received as u64 >= tuning.threshold.load(Relaxed) {
            turn.notify(&counters); // overwhelmed: another thread may have the queue
        } else {
            held = Some(turn);
        }
        handle_shared(worker, shared, &mut batch, &mut done)?;
    }
    Ok(())
}

/// What is to be posted when a batch is handled.
struct Done {
    next: Vec<rio_frame::Next>,
    /// How many of them are receives, for each socket.
    receives: Vec<u32>,
}

/// Handles a batch without any lock, then posts its slices again under one.
fn handle_shared<H: Handler, Q: CompletionQueue>(
    worker: &mut Worker<H>,
    shared: &Shared<Q, Q::Rq>,
    batch: &mut Batch,
    done: &mut Done,
) -> Result<(), Error> {
    done.receives.fill(0);
    for completion in batch.drain() {
        let next = rio_frame::settle(worker, completion)?;
        if let rio_frame::Next::Receive { socket, .. } = next {
            done.receives[socket as usize] += 1;
        }
        done.next.push(next);
        if worker.has_replies() {
            rio_frame::flush(worker, &shared.region, &mut lock(&shared.requests));
        }
    }
    worker.batch_end();
    let mut requests = lock(&shared.requests);
    for (queue, receives) in requests.iter_mut().zip(&done.receives) {
        queue.reserve(*receives); // one step of the count that the threads share, not one each
    }
    for next in done.next.drain(..) {
        rio_frame::post(worker, &mut requests, next);
    }
    rio_frame::commit(worker, &mut requests)
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn dequeue_failed(e: io::Error) -> Error {
    Error::io("dequeuing completions", e)
}

fn wait_failed(e: io::Error) -> Error {
    Error::io("waiting for completions", e)
}
