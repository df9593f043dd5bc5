//! What measuring costs: the rate of a design as `weir compare` measures it to that of the same design in a program that
//! measures nothing.

use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use clap::Args;
use weir_lab::stats::CONFIDENCE;
use weir_lab::stats::bootstrap::paired_ratio;

use crate::compared::{by_round, compare, row};

/// The name of the program that measures nothing.
const BARE: &str = "bare";
/// Gives the same intervals again.
const SEED: u64 = 1;

/// Compares designs with themselves in the example `udp_sink`, whose handler does nothing.
///
/// What that receives is told by the kernel. Not covered are the counters of the library, which cannot be left out (the
/// example `counter_cost` of weir gives them: nanoseconds for a datagram), and the reading of the kernel's counters every
/// 20 ms, which both have.
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
        println!(
            "rate with all that is measured to that without, median and 95 % interval over the rounds:"
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
            let with = by_round(row(&document, name)?, "received_per_s");
            let without = by_round(row(&document, BARE)?, "received_per_s");
            let pairs: Vec<(f64, f64)> = with
                .iter()
                .filter_map(|(round, with)| {
                    let (_, without) = without.iter().find(|(other, _)| other == round)?;
                    Some((*with, *without))
                })
                .collect();
            ensure!(!pairs.is_empty(), "no round of {design} has both figures");
            let ratio = paired_ratio(&pairs, CONFIDENCE, SEED).context("no ratio")?;
            let interval = ratio.interval.map(|i| format!("{:.3} to {:.3}", i.low, i.high));
            println!(
                "{design:<24} {:.3} ({}) over {} rounds",
                ratio.median,
                interval.unwrap_or_else(|| "too few rounds".into()),
                ratio.samples
            );
        }
        Ok(())
    }
}
