//! How often the ranking is right: simulated experiments with known truth, on recorded noise.
//!
//! ```text
//! cargo bench -p weir-lab --bench ranking               # 2000 experiments of each kind; half an hour
//! cargo bench -p weir-lab --bench ranking -- --quick    # 200
//! cargo bench -p weir-lab --bench ranking -- udp iops   # those on noise of these names
//! ```
//!
//! Printed is, for each recording, depth, number of rows and planted difference, how many of a hundred experiments
//! called a row better than one that is as good (at most 5 may), found nothing but ties (of a planted 0 % at least
//! 95), found the better row to be better than every other (of a planted 3 % with `--full` at least 90, where the
//! machine is quiet), or left something open. What comes of it stands in the book (`book/src/measuring.md`).

mod simulation;

use simulation::{Recording, rates, recordings};
use weir_lab::experiment::plan::Depth;

const ROWS: [usize; 3] = [2, 5, 16];
const PLANTED: [f64; 4] = [0.0, 0.01, 0.03, 0.1];

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let count = if arguments.iter().any(|argument| argument == "--quick") { 200 } else { 2000 };
    let names = arguments[1..].iter().filter(|argument| !argument.starts_with('-'));
    let names: Vec<&String> = names.collect();
    println!("{count} experiments each; of a hundred so many:");
    println!("recording         depth     rows  rounds  planted   false  all tied   found    open");
    let wanted = |of: &Recording| names.is_empty() || names.iter().any(|name| **name == of.name);
    for recording in recordings(include_str!("noise.txt")).into_iter().filter(wanted) {
        for (depth, name) in [(Depth::Standard, "standard"), (Depth::Full, "full")] {
            for rows in ROWS {
                for planted in PLANTED {
                    let of = rates(&recording, depth, rows, planted, count);
                    println!(
                        "{:<16}  {name:<8} {rows:>5} {:>7.1} {:>6.0} % {:>7.1} {:>9.1} {:>7.1} {:>7.1}",
                        recording.name,
                        of.rounds,
                        planted * 100.0,
                        of.is_false,
                        of.all_tie,
                        of.is_found,
                        of.is_open
                    );
                }
            }
        }
    }
}
