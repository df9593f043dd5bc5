//! What every design on a queue of I/Os does, from top to bottom: it opens the queue for its one thread, starts I/Os
//! while there is room, takes what has completed, and in the end takes everything, cancelled if it is to stop.

use crate::{
    Error,
    counters::Counters,
    deadline::LastLook,
    device::{
        Handler, Job, Running, Worker,
        io::{Issue, PATIENCE, Queue, Shape},
        native::{Descriptor, RingQueue},
    },
    memory::Region,
};
use std::{sync::Arc, time::Instant};

/// Declares a design on a ring: beside what every design is, what it wants of its queue at so many I/Os outstanding,
/// and for how many completions a wait waits at least.
macro_rules! ring_design {
    (
        $Design:ident $name:literal;
        summary: $summary:literal;
        origin: $origin:literal;
        options { $($options:tt)* }
        shape: $shape:expr;
        complete_min: $complete_min:expr;
        $($rest:tt)*
    ) => {
        $crate::design::design! {
            #[derive(Copy, Eq)]
            device::$Design $name, Queue;
            summary: $summary;
            origin: $origin;
            options { $($options)* }
            provider: |_| $crate::device::native::RingQueue::PROVIDER;
            availability: |design| {
                let what = concat!("design ", $name);
                $crate::device::native::RingQueue::availability(what, design.shape(1))
            };
            $($rest)*
        }

        impl $Design {
            fn begin<H: $crate::device::Handler>(
                self,
                job: $crate::device::Job<H>,
            ) -> Result<$crate::device::Running<H>, $crate::Error> {
                use $crate::device::queue::engine::{Sizes, start_on_ring};
                let complete_min: fn(&Self) -> u32 = $complete_min;
                let Self { depth, batch, .. } = self;
                let sizes = Sizes { depth, batch, complete_min: complete_min(&self) };
                start_on_ring(job, concat!("design ", $name), sizes, self.shape(depth))
            }

            fn shape(&self, depth: u32) -> $crate::device::io::Shape {
                let shape: fn(&Self, u32) -> $crate::device::io::Shape = $shape;
                shape(self, depth)
            }
        }
    };
}
pub(super) use ring_design;

/// How much a design has its queue do at a time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    /// I/Os outstanding.
    pub(super) depth: u32,
    /// Most started at a time.
    pub(super) batch: u32,
    /// Fewest completions that a wait waits for.
    pub(super) complete_min: u32,
}

/// Starts the one thread of a design.
pub(super) fn start<H: Handler, Q: Queue + Send + 'static>(
    mut job: Job<H>,
    sizes: Sizes,
    open: impl FnOnce(&Arc<Descriptor>, Arc<Region>) -> Result<Q, Error>,
) -> Result<Running<H>, Error> {
    let region = job.buffers(sizes.depth as usize)?;
    let queue = open(&job.device.descriptor, region)?;
    job.spawn(move |worker| run(worker, queue, sizes))?;
    job.run()
}

/// The same on a ring. `what` names who needs it.
pub(super) fn start_on_ring<H: Handler>(
    job: Job<H>,
    what: &str,
    sizes: Sizes,
    shape: Shape,
) -> Result<Running<H>, Error> {
    start(job, sizes, |descriptor, region| RingQueue::open(what, descriptor, shape, region))
}

/// The loop of the thread.
fn run<H: Handler>(
    worker: &mut Worker<H>,
    mut queue: impl Queue,
    sizes: Sizes,
) -> Result<(), Error> {
    let calls = Arc::clone(&worker.calls);
    begin(worker, &mut queue)?;
    while fill(worker, &mut queue, sizes.batch as usize) {
        // While there is room for another batch, nothing need be waited for.
        let at_least = if queue.room() > 0 { 0 } else { sizes.complete_min as usize };
        take(worker, &mut queue, at_least, None, &calls)?;
    }
    drain(worker, &mut queue, &calls)
}

/// Begins with a queue on the thread that will use it, and says that it has started.
fn begin<H: Handler>(worker: &mut Worker<H>, queue: &mut impl Queue) -> Result<(), Error> {
    queue.begin(&worker.calls)?;
    for (name, value) in queue.granted() {
        worker.state(name, value);
    }
    worker.ready(Some(queue.waker()));
    Ok(())
}

/// Starts I/Os, as many as there is room for, but at most a batch. Returns whether more are to come.
#[inline]
fn fill<H: Handler>(worker: &mut Worker<H>, queue: &mut impl Queue, batch: usize) -> bool {
    for _ in 0..queue.room().min(batch) {
        match worker.issue() {
            Some(issue) => queue.start(issue, &worker.calls),
            None => return false,
        }
    }
    // Also where there was no room: the waker that would end the next wait may have ended the last.
    !worker.stopping()
}

/// Takes what has completed, at least so many, and counts it.
#[inline]
fn take<H: Handler>(
    worker: &mut Worker<H>,
    queue: &mut impl Queue,
    at_least: usize,
    until: Option<Instant>,
    calls: &Counters,
) -> Result<(), Error> {
    let each = |issue: Issue, outcome, bytes: &[u8]| worker.finish(&issue, outcome, bytes);
    let taken = queue.take(at_least, until, calls, each);
    let taken = taken.map_err(|e| Error::io("taking the I/Os that are over", e))?;
    worker.took(taken);
    Ok(())
}

/// Takes everything that is under way. Once the run is to stop it is cancelled; what has not come back after
/// [`PATIENCE`] stays with the queue, which leaks it and accounts for it.
fn drain<H: Handler>(
    worker: &mut Worker<H>,
    queue: &mut impl Queue,
    calls: &Counters,
) -> Result<(), Error> {
    let (mut look, mut until, mut found) = (None, None, false);
    while queue.outstanding() > 0 {
        let before = queue.outstanding();
        if worker.stopping() {
            queue.cancel_all(calls);
            let look = look.get_or_insert_with(|| LastLook::by(Instant::now() + PATIENCE));
            let Some(left) = look.wait(found) else { break };
            until = Some(Instant::now() + left);
        }
        take(worker, queue, 1, until, calls)?;
        found = queue.outstanding() < before;
    }
    Ok(())
}
