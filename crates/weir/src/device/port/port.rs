//! `port`: reads are outstanding, and several threads take what is over from one completion port.
//!
//! Each thread takes completions, handles them, and starts as many reads again. A port lets only so many
//! of its threads run at a time, and hands the next completion to the thread that parked last. It costs
//! what `ring` costs, and a lock around each start and each take, since a ring used by several threads
//! gives up the flags of a ring of one. It fails where an I/O is over as soon as it is started: there is
//! nothing to wait for, so all that several threads add is the hand-over.
//!
//! Origin: I/O completion ports, Windows NT 3.5; on Linux a shared ring with the scheduler of
//! [`crate::port::limit`].

use crate::{
    Error,
    design::{design, or_cores},
    device::{
        Handler, Job, Running, Worker,
        io::{self, Done},
        native::DevicePort,
    },
};
use std::sync::Arc;

design! {
    #[derive(Copy, Eq)]
    device::Port "port", Port;
    summary: "several threads take completions from one completion port, and read again";
    origin: "I/O completion ports, Windows NT 3.5";
    options {
        /// Reads outstanding.
        depth: u32 = 100, 1..=io::MOST_DEPTH;
        /// Threads that take from the port; 0 for as many as there are cores.
        threads: u32 = 0, 0..=256;
        /// Most of them that run at a time; 0 for as many as there are cores.
        concurrency: u32 = 0, 0..=256;
        /// Most completions taken at a time.
        dequeue_max: u32 = 32, 1..=io::MOST_DEPTH;
    }
    provider: |_| DevicePort::PROVIDER;
    availability: |_| DevicePort::availability("design port");
    resolve: |design| [&mut design.threads, &mut design.concurrency].into_iter().for_each(or_cores);
    parks_threads: |design| design.threads != 1;
}

impl Port {
    fn begin<H: Handler>(self, mut job: Job<H>) -> Result<Running<H>, Error> {
        DevicePort::availability("design port")?;
        let region = job.buffers(self.depth as usize)?;
        let (descriptor, threads) = (&job.device.descriptor, self.threads);
        let port =
            DevicePort::open("design port", descriptor, region.clone(), threads, self.concurrency)?;
        port.granted().into_iter().for_each(|(name, value)| job.state(name, value));
        let port = Arc::new(port);
        for thread in 0..threads {
            let port = Arc::clone(&port);
            let first = if thread == 0 { Some(Arc::clone(&region)) } else { None };
            let most = self.dequeue_max as usize;
            job.spawn(move |worker| {
                worker.ready(Some(port.ender()));
                // One thread starts all reads; each is started again by the thread that took it.
                while let Some(slice) = first.as_ref().and_then(|region| region.take()) {
                    if !worker.start_on(&port, slice) {
                        break;
                    }
                }
                run(worker, &port, most)
            })?;
        }
        job.run()
    }
}

fn run<H: Handler>(worker: &mut Worker<H>, port: &DevicePort, most: usize) -> Result<(), Error> {
    let calls = Arc::clone(&worker.calls);
    let mut taker = port.worker();
    let mut done = Vec::with_capacity(most);
    loop {
        // Nothing is outstanding and nobody holds what could be started again: it is over for all.
        if worker.is_last(port) {
            port.close();
        }
        let taken = taker.take(&mut done, most, &calls);
        let taken = taken.map_err(|e| Error::io("taking the I/Os that are over", e))?;
        let Some(taken) = taken else { return Ok(()) };
        worker.took(taken);
        done.drain(..).for_each(|done| handle(worker, port, done));
    }
}

#[inline]
fn handle<H: Handler>(worker: &mut Worker<H>, port: &DevicePort, done: Done) {
    let Done { slice, issue, outcome } = done;
    worker.finish(&issue, outcome, slice.payload());
    worker.start_on(port, slice);
}
