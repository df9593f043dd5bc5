//! How often the ranking is right: simulated experiments with known truth, on recorded noise.
//!
//! ```text
//! cargo bench -p weir-lab --bench ranking               # 2000 experiments of each kind; half an hour
//! cargo bench -p weir-lab --bench ranking -- --quick    # 200
//! cargo bench -p weir-lab --bench ranking -- udp iops   # those on noise of these names
//! cargo bench -p weir-lab --bench ranking -- --rounds 50   # with so many rounds, as with --rounds of a comparison
//! ```
//!
//! Printed is, for each recording, depth, number of rows and planted difference, how many of a hundred experiments
//! called a row better than one that is as good (at most 5 may), found nothing but ties (of a planted 0 % at least
//! 95), found the better row to be better than every other (of a planted 3 % with `--full`, which is of UDP, at least
//! 90, where the machine is quiet), or left something open. What comes of it stands in the book (`book/src/measuring.md`).

mod simulation;

use simulation::{Recording, rates, recordings};
use weir_lab::experiment::plan::{Depth, Settings};

const ROWS: [usize; 3] = [2, 5, 16];
const PLANTED: [f64; 4] = [0.0, 0.01, 0.03, 0.1];

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let count = if arguments.iter().any(|argument| argument == "--quick") { 200 } else { 2000 };
    let value = arguments.iter().position(|argument| argument == "--rounds").map(|at| at + 1);
    let rounds: Option<u32> =
        value.map(|at| arguments[at].parse().expect("--rounds takes a number"));
    let names = arguments.iter().enumerate().skip(1);
    let names = names.filter(|(at, argument)| !argument.starts_with('-') && Some(*at) != value);
    let names: Vec<&String> = names.map(|(_, name)| name).collect();
    let usual =
        [(Settings::new(Depth::Standard), "standard"), (Settings::new(Depth::Full), "full")];
    let fixed = [(Settings { rounds, ..usual[1].0 }, "fixed")];
    let depths = if rounds.is_some() { &fixed[..] } else { &usual[..] };
    println!("{count} experiments each; of a hundred so many:");
    println!("recording         depth     rows  rounds  planted   false  all tied   found    open");
    let wanted = |of: &Recording| names.is_empty() || names.iter().any(|name| **name == of.name);
    for recording in recordings(include_str!("noise.txt")).into_iter().filter(wanted) {
        for (settings, name) in depths {
            for rows in ROWS {
                for planted in PLANTED {
                    let of = rates(&recording, *settings, rows, planted, count);
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
