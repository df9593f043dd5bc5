//! What it costs to read the figures of the operating system: µs of the reader for each
//! reading, so that an interval can be chosen that does not disturb a run.
//!
//! ```text
//! cargo run --release -p weir-io --example os_cost
//! ```

use std::hint::black_box;
use std::time::Instant;
use weir::counters::os::{Sampler, SocketUsage, ThreadId, ThreadSampler, ThreadUsage};

const READINGS: usize = 2001;

/// The median and the 99th percentile of many readings, in µs.
fn time<T>(mut read: impl FnMut() -> T) -> (f64, f64) {
    let mut samples: Vec<f64> = (0..READINGS)
        .map(|_| {
            let start = Instant::now();
            black_box(read());
            start.elapsed().as_nanos() as f64 / 1000.0
        })
        .collect();
    samples.sort_by(f64::total_cmp);
    (samples[READINGS / 2], samples[READINGS * 99 / 100])
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0")?;
    let mut sampler = Sampler::new();
    let mut thread = ThreadSampler::new(ThreadId::current())?;
    // Tried once before, so that what cannot be read is an error here and not a fast reading.
    thread.read()?;
    SocketUsage::of(&socket)?;

    println!("{:<22}  {:>9}  {:>9}", "reading", "median µs", "p99 µs");
    let row = |name: &str, (median, p99): (f64, f64)| {
        println!("{name:<22}  {median:>9.2}  {p99:>9.2}");
    };
    row("ThreadUsage::current", time(ThreadUsage::current));
    row("ThreadSampler::read", time(|| thread.read()));
    row("Sampler::process", time(|| sampler.process()));
    row("Sampler::system", time(|| sampler.system()));
    row("Sampler::interrupts", time(|| sampler.interrupts()));
    row("SocketUsage::of", time(|| SocketUsage::of(&socket)));
    Ok(())
}
