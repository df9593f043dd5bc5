//! What the generator costs beside the system calls it makes.
//!
//! For each engine: datagrams per second of a flood, and of a bare loop of the same system
//! call over a buffer that never changes; both on one core, to a socket that nobody reads,
//! one after the other in many short rounds. A socket whose buffer is full is the fastest
//! receiver there is, so whatever the generator adds weighs the most.
//!
//! Run it on a quiet machine: `cargo run --release -p weir-load --example engine_bench`

#[cfg_attr(target_os = "linux", path = "bare_linux.rs")]
#[cfg_attr(not(target_os = "linux"), path = "bare_elsewhere.rs")]
mod bare;

use std::{
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    sync::Arc,
    time::Duration,
};

use weir::affinity;
use weir_load::{FloodSpec, clock::now_ns, engine::engines};

const ROUNDS: usize = 21;
const ROUND: Duration = Duration::from_millis(100);
const SIZES_BYTES: [usize; 2] = [64, 1024];

/// Datagrams per second of a loop that sends some at each call, for one round.
fn rate_of(mut send: impl FnMut() -> std::io::Result<u64>) -> std::io::Result<f64> {
    let start_ns = now_ns();
    let end_ns = start_ns + ROUND.as_nanos() as u64;
    let mut sent = 0;
    loop {
        sent += send()?;
        let now = now_ns();
        if now >= end_ns {
            return Ok(sent as f64 * 1e9 / (now - start_ns) as f64);
        }
    }
}

fn median(samples: &mut [f64]) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let core = affinity::allowed_cores().last().copied().unwrap_or(0);
    affinity::pin_current_thread(core)?;
    let sink = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    let to: SocketAddr = sink.local_addr()?;
    println!("core {core}, {ROUNDS} rounds of {ROUND:?} each, medians, datagrams/s");
    println!(
        "{:>10} {:>6} {:>12} {:>12} {:>18}",
        "engine", "bytes", "generator", "bare loop", "ratio (p10-p90)"
    );
    for size_bytes in SIZES_BYTES {
        for engine in engines().iter().filter(|engine| engine.probe().is_ok()) {
            let spec = FloodSpec {
                ports: vec![to.port()],
                engine: Some(engine.name.into()),
                size_bytes,
                cores: vec![core],
                duration: ROUND,
                ..FloodSpec::new(Ipv4Addr::LOCALHOST.into())
            };
            let Some(mut bare) = bare::open(engine.name, to, size_bytes)? else { continue };
            let (mut ours, mut theirs, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
            for round in 0..ROUNDS {
                let flood = || weir_load::flood(&spec, &Arc::default(), |_| {});
                // Which goes first changes from round to round.
                let (generator, loop_rate) = if round % 2 == 0 {
                    let generator = flood()?;
                    (generator, rate_of(&mut bare)?)
                } else {
                    let loop_rate = rate_of(&mut bare)?;
                    (flood()?, loop_rate)
                };
                ours.push(generator.sent_per_s);
                theirs.push(loop_rate);
                ratios.push(generator.sent_per_s / loop_rate);
            }
            let ratio = median(&mut ratios);
            let (low, high) = (ratios[ROUNDS / 10], ratios[ROUNDS - 1 - ROUNDS / 10]);
            println!(
                "{:>10} {size_bytes:>6} {:>12.0} {:>12.0} {ratio:>6.3} ({low:.3}-{high:.3})",
                engine.name,
                median(&mut ours),
                median(&mut theirs),
            );
        }
    }
    Ok(())
}
