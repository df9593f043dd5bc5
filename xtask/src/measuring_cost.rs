//! What measuring costs: the rate and the CPU time of a design as `weir compare` measures it, to those of the same design
//! in a program that measures nothing.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use serde_json::Value;
use weir_lab::stats::CONFIDENCE;
use weir_lab::stats::Estimate;
use weir_lab::stats::bootstrap::paired_ratio;

use crate::compared::{by_round, compare, row};

/// The name of the program that measures nothing.
const BARE: &str = "bare";
/// CPU time of a process for each datagram.
const CPU: &str = "cpu_ns_per_datagram";
/// Gives the same intervals again.
const SEED: u64 = 1;

/// Compares designs with themselves in the example `udp_sink`, whose handler does nothing.
///
/// What that receives is told by the kernel. Not covered are the counters of the library, which cannot be left out (the
/// example `counter_cost` of weir gives them: nanoseconds for a datagram), and, of the rate, the readings every 20 ms, which
/// both have. The CPU time of the program is without them.
#[derive(Args)]
pub struct MeasuringCost {
    /// The `weir` to use, of a release build.
    weir: PathBuf,
    /// The example `udp_sink`, of a release build.
    sink: PathBuf,
    /// Designs.
    #[arg(long = "design", default_values = ["blocking", "epoll-batch", "rio-event"])]
    designs: Vec<String>,
    /// Rounds of each comparison.
    #[arg(long, default_value_t = 25)]
    rounds: u32,
}

impl MeasuringCost {
    /// Makes a comparison for each design, and prints what measuring costs it.
    ///
    /// # Errors
    /// If a comparison cannot be made.
    pub fn run(&self) -> anyhow::Result<()> {
        let weir = Path::canonicalize(&self.weir).context("finding weir")?;
        let sink = Path::canonicalize(&self.sink).context("finding udp_sink")?;
        println!("with all that is measured to without, median and 95 % interval over the rounds");
        println!(
            "design                      datagrams/s     CPU for a datagram    of what receives alone"
        );
        for design in &self.designs {
            let peer = format!("{BARE}={} {{ip}}:{{port}} '{design}'", sink.display());
            let rounds = self.rounds.to_string();
            let document = compare(
                &weir,
                &[
                    "udp",
                    "--design",
                    design,
                    "--peer",
                    &peer,
                    "--load",
                    "saturation",
                    "--rounds",
                    &rounds,
                ],
            )
            .with_context(|| format!("comparing {design}"))?;
            let name = design.split(' ').next().unwrap_or(design);
            let (with, without) = (row(&document, name)?, row(&document, BARE)?);
            let rate = ratio((with, "received_per_s"), (without, "received_per_s"))?;
            let cpu = ratio((with, CPU), (without, CPU))?;
            let threads = ratio((with, "threads_cpu_ns_per_datagram"), (without, CPU))?;
            println!("{design:<14} {:>24} {:>24} {:>24}", said(&rate), said(&cpu), said(&threads));
        }
        Ok(())
    }
}

/// A figure of one row to a figure of another, over the rounds of both.
fn ratio(
    (with, figure): (&Value, &str),
    (without, of_other): (&Value, &str),
) -> anyhow::Result<Estimate> {
    let (with, without) = (by_round(with, figure), by_round(without, of_other));
    let pairs: Vec<(f64, f64)> = with
        .iter()
        .filter_map(|(round, with)| {
            let (_, without) = without.iter().find(|(other, _)| other == round)?;
            Some((*with, *without))
        })
        .collect();
    let ratio = paired_ratio(&pairs, CONFIDENCE, SEED);
    ratio.with_context(|| format!("no round has both figures of {figure}"))
}

/// "0.985 (0.970 to 1.001)".
fn said(ratio: &Estimate) -> String {
    let interval = ratio.interval.map(|i| format!("{:.3} to {:.3}", i.low, i.high));
    format!("{:.3} ({})", ratio.median, interval.unwrap_or_else(|| "too few rounds".into()))
}
