//! A model of the UDP designs on as many cores as one likes: a discrete-event simulation of their threads, locks and
//! wake-ups on measured costs. It is a model, and what comes of it a prediction: no figure here was measured.
//!
//! | file | what |
//! | --- | --- |
//! | `events` | the clock, cores and threads |
//! | `kernel` | sockets, traffic and locks |
//! | `costs`, `calibrate` | what things cost, and measuring it here |
//! | `designs` | what the threads of each design do |
//! | `cell` | one design under one load on so many cores |
//! | `predict` | where one design overtakes another |
//! | `check` | the model held against a comparison that was measured |
//! | `report` | the document, tables and pictures |

pub mod calibrate;
mod cell;
pub mod check;
pub mod costs;
mod designs;
mod events;
mod kernel;
pub mod predict;
pub mod report;

pub use cell::{Course, Latency, Row, simulate};
pub use designs::{Copies, Design};

use costs::Costs;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Most cores of a model.
pub const MOST_CORES: usize = 256;
/// Most threads that handle datagrams, as of the designs.
pub const MOST_THREADS: usize = 256;
/// Most datagrams a second.
pub const MOST_PER_S: f64 = 1e9;
/// Most rows of one simulation.
pub const MOST_ROWS: usize = 20_000;

/// What is simulated: each design on each number of cores under each load with each work.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The designs.
    pub designs: Vec<Design>,
    /// Who copies.
    pub copies: Vec<Copies>,
    /// Numbers of cores.
    pub cores: Vec<usize>,
    /// Datagrams a second.
    pub loads: Vec<f64>,
    /// Work of each datagram on the state that all threads share, in nanoseconds.
    pub shared_work_ns: Vec<f64>,
    /// What is the same for all; design, cores, load, work and seed are replaced.
    pub course: Course,
    /// From which the seed of each row follows.
    pub seed: u64,
}

impl Plan {
    /// Its rows, in order: by who copies, work, cores, load and design.
    ///
    /// # Errors
    /// What cannot be simulated, and what to do.
    pub fn courses(&self) -> Result<Vec<Course>, String> {
        let Self { designs, copies, cores, loads, shared_work_ns, .. } = self;
        let sizes = [designs.len(), copies.len(), cores.len(), loads.len(), shared_work_ns.len()];
        let rows = sizes.into_iter().try_fold(1usize, usize::checked_mul);
        let rows = rows.filter(|rows| *rows <= MOST_ROWS).ok_or_else(|| {
            format!(
                "there are more than {MOST_ROWS} rows; ask for fewer designs, cores, loads or works"
            )
        })?;
        let mut courses = Vec::with_capacity(rows);
        for (&copies, &shared_work_ns) in
            copies.iter().flat_map(|copies| shared_work_ns.iter().map(move |work| (copies, work)))
        {
            for (&cores, &per_s) in
                cores.iter().flat_map(|cores| loads.iter().map(move |load| (cores, load)))
            {
                // The same traffic for all designs.
                let seed = self.seed ^ per_s.to_bits() ^ ((cores as u64) << 1);
                for &design in designs {
                    let course = Course {
                        design,
                        copies,
                        cores,
                        per_s,
                        shared_work_ns,
                        seed,
                        ..self.course
                    };
                    course.check()?;
                    courses.push(course);
                }
            }
        }
        Ok(courses)
    }
}

/// Simulates the rows of a plan, several at a time. `done` hears how many of how many are done.
pub fn simulate_all(
    courses: &[Course],
    costs: &Costs,
    done: impl Fn(usize, usize) + Sync,
) -> Vec<Row> {
    let workers =
        std::thread::available_parallelism().map_or(1, usize::from).min(courses.len().max(1));
    let (next, ended) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let work = || {
        let mut rows = vec![];
        loop {
            let index = next.fetch_add(1, Relaxed);
            let Some(course) = courses.get(index) else { return rows };
            rows.push((index, simulate(course, costs)));
            done(ended.fetch_add(1, Relaxed) + 1, courses.len());
        }
    };
    let mut rows: Vec<(usize, Row)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        let of = |worker: std::thread::ScopedJoinHandle<'_, Vec<_>>| {
            worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        workers.into_iter().flat_map(of).collect()
    });
    rows.sort_by_key(|(index, _)| *index);
    rows.into_iter().map(|(_, row)| row).collect()
}

#[cfg(test)]
mod tests;
