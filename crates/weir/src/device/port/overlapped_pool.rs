//! `overlapped-pool`: reads are outstanding, and each that is over is a task for a pool of threads.
//!
//! One thread waits for completions and hands each to a pool; a worker of the pool handles it and starts
//! the next read by an entry of its own. So every I/O crosses between threads twice: its completion to a
//! worker, and its start back to whoever waits. It costs two locks, a sleep and a wake-up wherever one side
//! outruns the other, and caches that are cold after each crossing. It pays where handling a completion
//! takes long or blocks: then the pool works while others wait. It fails where an I/O costs less than its
//! hand-over, as on a device that does nothing.
//!
//! This is the design of the puzzle: on the original's device that completed at once, 100 outstanding on a
//! pool were slower than one thread that simply read, and grew slower still.
//!
//! Origin: overlapped ReadFile with BindIoCompletionCallback, Windows 2000; CreateThreadpoolIo, Vista. On
//! Linux the port for devices, and a pool beside it.

use crate::{
    Error,
    design::{design, or_cores},
    device::{
        Handler, Job, Running, Worker,
        io::{self, Done},
        native::DevicePort,
    },
};
use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
};

design! {
    #[derive(Copy, Eq)]
    device::OverlappedPool "overlapped-pool", Port;
    summary: "one thread takes completions, and a pool handles them and reads again";
    origin: "overlapped ReadFile on a thread pool, Windows 2000; the asynchronous original";
    options {
        /// Reads outstanding.
        depth: u32 = 100, 1..=io::MOST_DEPTH;
        /// Threads of the pool; 0 for as many as there are cores.
        threads: u32 = 0, 0..=256;
        /// Most completions that the waiting thread takes at a time.
        dequeue_max: u32 = 32, 1..=io::MOST_DEPTH;
    }
    provider: |_| DevicePort::PROVIDER;
    availability: |_| DevicePort::availability("design overlapped-pool");
    resolve: |design| or_cores(&mut design.threads);
    parks_threads: |_| true;
}

impl OverlappedPool {
    fn begin<H: Handler>(self, mut job: Job<H>) -> Result<Running<H>, Error> {
        DevicePort::availability("design overlapped-pool")?;
        let region = job.buffers(self.depth as usize)?;
        let descriptor = &job.device.descriptor;
        let port = DevicePort::open("design overlapped-pool", descriptor, region.clone(), 1, 1)?;
        port.granted().into_iter().for_each(|(name, value)| job.state(name, value));
        let (port, pool) = (Arc::new(port), Arc::new(Pool::new(self.depth as usize)));
        for _ in 0..self.threads {
            let (port, pool) = (Arc::clone(&port), Arc::clone(&pool));
            job.spawn(move |worker| {
                let _ends = EndsPool(&port, &pool);
                worker.ready(None);
                // Where not all could be started, nobody is there who would end the port.
                if worker.stopping() {
                    return Ok(());
                }
                run(worker, &port, &pool)
            })?;
        }
        job.spawn(move |worker| {
            let _ends = EndsPool(&port, &pool);
            worker.ready(Some(port.ender()));
            while let Some(slice) = region.take() {
                if !worker.start_on(&port, slice) {
                    break;
                }
            }
            if worker.is_last(&port) {
                port.close();
            }
            hand_over(worker, &port, &pool, self.dequeue_max as usize)
        })?;
        job.run()
    }
}

/// What the thread that waits does: it hands over until the port is closed.
fn hand_over<H: Handler>(
    worker: &mut Worker<H>,
    port: &DevicePort,
    pool: &Pool,
    most: usize,
) -> Result<(), Error> {
    let calls = Arc::clone(&worker.calls);
    let mut taker = port.worker();
    let mut done = Vec::with_capacity(most);
    loop {
        let taken = taker.take(&mut done, most, &calls);
        let taken = taken.map_err(|e| Error::io("taking the I/Os that are over", e))?;
        let Some(taken) = taken else { return Ok(()) };
        worker.took(taken);
        worker.counters.hand_overs.add(taken as u64);
        pool.put(&mut done);
    }
}

fn run<H: Handler>(worker: &mut Worker<H>, port: &DevicePort, pool: &Pool) -> Result<(), Error> {
    while let Some(done) = pool.take(&worker.calls) {
        handle(worker, port, done)?;
        if worker.is_last(port) {
            port.close();
        }
    }
    Ok(())
}

#[inline]
fn handle<H: Handler>(worker: &mut Worker<H>, port: &DevicePort, done: Done) -> Result<(), Error> {
    let Done { slice, issue, outcome } = done;
    worker.finish(&issue, outcome, slice.payload());
    worker.start_on(port, slice);
    port.commit(&worker.calls).map_err(|e| Error::io("starting an I/O", e))
}

/// Completions for the pool. There are never more than I/Os outstanding.
#[derive(Debug)]
struct Pool {
    tasks: Mutex<Tasks>,
    some: Condvar,
}

#[derive(Debug)]
struct Tasks {
    waiting: VecDeque<Done>,
    /// Workers that sleep.
    sleeping: usize,
    over: bool,
}

impl Pool {
    fn new(depth: usize) -> Self {
        let waiting = VecDeque::with_capacity(depth);
        Self {
            tasks: Mutex::new(Tasks { waiting, sleeping: 0, over: false }),
            some: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Tasks> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, done: &mut Vec<Done>) {
        let (put, sleeping) = {
            let mut tasks = self.lock();
            let put = done.len();
            if tasks.over {
                done.clear(); // nobody would take them
                return;
            }
            tasks.waiting.extend(done.drain(..));
            (put, tasks.sleeping)
        };
        (0..put.min(sleeping)).for_each(|_| self.some.notify_one());
    }

    /// The next completion; `None` once it is over.
    fn take(&self, calls: &crate::counters::Counters) -> Option<Done> {
        let mut tasks = self.lock();
        loop {
            if let Some(done) = tasks.waiting.pop_front() {
                return Some(done);
            }
            if tasks.over {
                return None;
            }
            calls.parks.one();
            tasks.sleeping += 1;
            tasks = self.some.wait(tasks).unwrap_or_else(PoisonError::into_inner);
            tasks.sleeping -= 1;
        }
    }

    fn end(&self) {
        self.lock().over = true;
        self.some.notify_all();
    }
}

/// When a thread of the pool ends, however, so do the others: alone they would wait for ever.
struct EndsPool<'a>(&'a DevicePort, &'a Pool);

impl Drop for EndsPool<'_> {
    fn drop(&mut self) {
        self.1.end();
        self.0.close();
    }
}
