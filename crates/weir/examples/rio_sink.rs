//! A UDP sink by hand on registered I/O: no server, no design, only the contract (`weir::rio`). It counts what comes.
//!
//! ```text
//! cargo run --release -p weir-io --example rio_sink -- 127.0.0.1:8080 uring
//! ```
//!
//! Memory is registered once and cut into slices. A slice is owned by the program, or posted and owned by the kernel: a
//! posted one cannot be touched, and comes back exactly once, in a completion or when the queue is stopped.

use std::{
    env,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
        mpsc,
    },
    time::{Duration, Instant},
};
use weir::{
    Error,
    counters::Counters,
    memory::{Region, RegionOptions},
    rio::{
        Batch, Choice, CompletionQueue, HandOver, Needs, OnProvider, OneThread, Opened, Outcome,
        Provider, RequestQueue, Started,
    },
    wake::Waker,
};

/// Receives outstanding: a burst of as many datagrams finds memory while the thread is busy.
const OUTSTANDING: u32 = 1000;

/// Completions taken at a time.
const BATCH: usize = 64;

/// How long the kernel may take to give slices back.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a sink shares with whoever watches it.
#[derive(Default)]
struct Watched {
    datagrams: AtomicU64,
    bytes: AtomicU64,
    /// Set before its waker is called: then it ends.
    stopping: AtomicBool,
}

/// A sink that is to run.
struct Sink {
    at: SocketAddr,
    /// Is told the address, and what ends the sink's wait, once it receives.
    started: mpsc::Sender<(SocketAddr, Waker)>,
    watched: Arc<Watched>,
}

impl Sink {
    /// Runs it on this thread, which alone has the queues: they are not `Send`.
    fn run<P: Provider<OneThread>>(self, provider: &P) -> Result<(), Error> {
        let failed = |what: &'static str| move |error| Error::io(what, error);
        let needs = Needs {
            payload: 2048,
            receives: OUTSTANDING,
            sends: 0,
            per_dequeue: BATCH as u32,
            offload: false,
            meta: false,
        };
        // Slices are cut as the provider wants them. That it can run here is tried, and not guessed from a version.
        let region = Region::new(provider.layout(&needs)?, OUTSTANDING, RegionOptions::default())?;
        let opened = provider.open(&[self.at.into()], &region, &needs)?;
        let address = opened.local_addresses()[0];
        let Started { mut completions, mut requests, .. } = provider.start(opened)?;

        let counters = Counters::default();
        while let Some(slice) = region.take() {
            requests[0]
                .receive(slice)
                .map_err(|(_, why)| Error::option("receives", why.to_string()))?;
        }
        requests[0].commit(&counters).map_err(failed("posting receives"))?;
        let _ = self.started.send((address, completions.waker()));

        let mut batch = Batch::new(BATCH);
        while !self.watched.stopping.load(Relaxed) {
            completions.dequeue(&mut batch, &counters).map_err(failed("dequeuing"))?;
            if batch.is_empty() {
                completions.wait(1, None, &counters).map_err(failed("waiting"))?;
                continue;
            }
            for completion in batch.drain() {
                if let Outcome::Received(received) = completion.outcome {
                    self.watched.bytes.fetch_add(received.len() as u64, Relaxed);
                    self.watched.datagrams.fetch_add(received.datagrams() as u64, Relaxed);
                }
                // The bytes are `completion.slice.payload()[..received.len()]`; then the slice goes back.
                let _ = requests[0].receive(completion.slice);
            }
            requests[0].commit(&counters).map_err(failed("posting receives"))?;
        }
        // An error before this point drops the queues, which leaks their memory on purpose: the kernel may write there.
        let stopped = completions.stop(requests, Instant::now() + PATIENCE);
        assert_eq!(stopped.missing, 0, "the kernel has kept slices");
        Ok(())
    }
}

impl OnProvider for Sink {
    type Output = Result<(), Error>;

    fn on<P>(self, provider: P) -> Self::Output
    where
        P: Provider<OneThread> + Provider<HandOver>,
        <P as Provider<HandOver>>::Cq: Send,
        <P as Provider<HandOver>>::Rq: Send,
    {
        self.run(&provider)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = env::args().skip(1);
    let at = arguments.next().as_deref().unwrap_or("127.0.0.1:8080").parse()?;
    let choice: Choice = arguments.next().as_deref().unwrap_or("auto").parse()?;
    let (started, told) = mpsc::channel();
    let watched = Arc::new(Watched::default());
    let sink = Sink { at, started, watched: Arc::clone(&watched) };
    let running = std::thread::spawn(move || choice.with(sink));
    if let Ok((address, waker)) = told.recv() {
        println!("{} on {address} (Ctrl-C ends)", choice.about().name);
        let watched = Arc::clone(&watched);
        ctrlc::set_handler(move || {
            watched.stopping.store(true, Relaxed);
            waker.wake();
        })?;
    }
    running.join().expect("the sink does not panic")??;
    println!("{:?} datagrams, {:?} bytes", watched.datagrams, watched.bytes);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    /// On each provider that can run here and reaches loopback.
    #[test]
    fn it_counts_what_it_is_sent_on_every_provider() {
        // A burst fits into the socket's buffer, whatever that is, so none is lost.
        const BURSTS: u64 = 5;
        const BURST: u64 = 50;
        let runs = |choice: &&Choice| choice.reaches_loopback() && choice.availability().is_ok();
        for choice in Choice::ALL.iter().filter(runs) {
            let (started, told) = mpsc::channel();
            let watched = Arc::new(Watched::default());
            let at = SocketAddr::from(([127, 0, 0, 1], 0));
            let sink = Sink { at, started, watched: Arc::clone(&watched) };
            let running = std::thread::spawn(move || choice.with(sink).expect("it can run"));
            let (address, waker) = told.recv().expect("it starts");
            let sender = UdpSocket::bind("127.0.0.1:0").expect("a socket");
            for burst in 1..=BURSTS {
                for number in 0..BURST {
                    sender.send_to(&number.to_le_bytes(), address).expect("sent");
                }
                while watched.datagrams.load(Relaxed) < burst * BURST {
                    assert!(!running.is_finished(), "{choice} has ended");
                    std::thread::yield_now();
                }
            }
            watched.stopping.store(true, Relaxed);
            waker.wake();
            running.join().expect("no panic").expect("no error");
            assert_eq!(watched.datagrams.load(Relaxed), BURSTS * BURST, "{choice}");
            assert_eq!(watched.bytes.load(Relaxed), BURSTS * BURST * 8, "{choice}");
        }
    }
}
