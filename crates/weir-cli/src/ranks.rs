//! `--mpi`: one run made by many ranks, which mpirun started with the same command.
//!
//! Rank 0 resolves the command and tells the others, parses nothing that they would parse otherwise, and reports. The others
//! do their part, print nothing, and end as rank 0 does.

use std::{
    process::{Command, ExitCode},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context;
use clap::Parser;
use serde::{Serialize, de::DeserializeOwned};
use weir_load::{
    Stop, StopReason,
    ranks::{
        JoinError, Ranks,
        course::{self, Course},
        join,
    },
};
use weir_mpi::Mpi;

use crate::{
    Cli,
    exit::{FAILED, OK, Usage},
    interrupts,
    shown::{self, Ending, Finding, Shown, TellArgs},
};

/// The name of the command that speaks MPI for a rank.
pub const LINK: &str = "mpi-link";
/// How long a rank may take to say who it is, and to hear the plan.
const WITHIN: Duration = Duration::from_secs(30);

/// What `weir --version` says of MPI.
pub const ABOUT_MPI: &str = if weir_mpi::IS_BUILT_IN {
    "MPI: built in (--mpi)"
} else {
    "MPI: not in this build (cargo build --release --features mpi, with an MPI and libclang installed)"
};

/// A plan that was not made: the others have nothing to do, and rank 0 says why.
const NO_PLAN: &[u8] = b"";

/// Runs a command on all ranks: at rank 0 `lead`, which shows and reports, elsewhere `follow`.
pub fn run<F: Finding>(
    tell: TellArgs,
    any_build: bool,
    lead: impl FnOnce(&Together, &mut Shown<F>) -> anyhow::Result<Option<F>>,
    follow: impl FnOnce(&Together) -> anyhow::Result<()>,
) -> ExitCode {
    let together = match Together::start() {
        Ok(together) => together,
        Err(error) => return shown::run(tell, |_: &mut Shown<F>| Err(error)),
    };
    let joined = together.join(any_build);
    if together.ranks.rank() == 0 {
        let code = shown::run(tell, |shown| {
            joined?;
            let found = lead(&together, shown);
            let is_ended = together.ranks.lost().is_none()
                && (together.signals.is_requested() || together.ranks.is_asked_to_end());
            let has_failed = |found: &F| matches!(found.ending(), Ending::Failed(_));
            if is_ended && !found.as_ref().is_ok_and(|found| found.as_ref().is_some_and(has_failed))
            {
                // Whichever rank the signal came to. Where one failed or is lost that ended the others.
                interrupts::hear();
            }
            if found.is_err() {
                // Those that wait for a plan are not to wait longer.
                together.withdraw();
            }
            found
        });
        // Where it does not go well, mpirun says so.
        let _ = together.end();
        return code;
    }
    // Why they did not join is told by rank 0.
    let followed = if joined.is_ok() { follow(&together) } else { Ok(()) };
    if let Err(error) = followed {
        say!("{}: rank {}: {error:#}", F::COMMAND, together.ranks.rank());
    }
    // What became of the run is said by rank 0, once.
    ExitCode::from(if together.end() { OK } else { FAILED })
}

/// This process as one of many.
pub struct Together {
    mpi: Arc<Mpi>,
    ranks: Arc<dyn Ranks>,
    signals: Arc<Stop>,
    planned: std::cell::Cell<bool>,
}

impl Together {
    /// This process as one of those that MPI started.
    ///
    /// # Errors
    /// Why it is none.
    pub fn start() -> anyhow::Result<Self> {
        if !weir_mpi::IS_BUILT_IN {
            let text = "this weir was built without MPI: build it with `cargo build --release --features mpi`, where an MPI \
                        (libopenmpi-dev or libmpich-dev) and libclang-dev are installed; or leave --mpi out";
            return Err(Usage(text.into()).into());
        }
        if !weir_mpi::is_started() {
            let text = format!(
                "--mpi is for ranks that MPI starts, and it did not start this one: put mpirun before the command, as in \
                 `mpirun -n 3 {}`; or leave --mpi out",
                crate::shell_words(&crate::arguments())
            );
            return Err(Usage(text).into());
        }
        let program = std::env::current_exe().context("cannot find weir's own executable")?;
        if !weir_mpi::is_worker() {
            let mut again = Command::new(program);
            again.args(std::env::args_os().skip(1));
            let code = weir_mpi::guard::keep(again, |raise| {
                ctrlc::set_handler(raise).map_err(std::io::Error::other)
            });
            // It has nothing of its own that is to be dropped.
            std::process::exit(code.context("cannot start this command again")?.into());
        }
        // mpirun asks all to end when one of the ranks is gone, which is to be reported.
        let signals = Arc::new(Stop::new());
        let (raised, told) = (Arc::clone(&signals), Arc::clone(&signals));
        ctrlc::set_handler(move || raised.request(StopReason::Asked))
            .context("cannot handle Ctrl-C")?;
        let mut command = Command::new(program);
        command.arg(LINK);
        let mpi = Arc::new(Mpi::start(command, move || told.request(StopReason::Asked))?);
        let ranks: Arc<dyn Ranks> = Arc::clone(&mpi) as _;
        Ok(Self { mpi, ranks, signals, planned: std::cell::Cell::new(false) })
    }

    /// Holds all ranks against rank 0; each calls it first.
    ///
    /// # Errors
    /// As [`join`].
    pub fn join(&self, any_build: bool) -> Result<(), JoinError> {
        join(&*self.ranks, any_build, Instant::now() + WITHIN)
    }

    /// Where signals to end are noted: those of a person, and those of mpirun when another rank is gone.
    pub fn signals(&self) -> &Arc<Stop> {
        &self.signals
    }

    /// Ends the run, when all has been told; gives whether all went well.
    pub fn end(&self) -> bool {
        // Only now, as others that end first would have mpirun end this one.
        course::over(&*self.ranks) && self.mpi.leave()
    }

    /// Ends it where rank 0 knows that another cannot do its part any more: nobody waits for that one to leave MPI.
    pub fn end_apart(&self) {
        course::over_apart(&*self.ranks);
    }

    /// The ranks.
    pub fn ranks(&self) -> &Arc<dyn Ranks> {
        &self.ranks
    }

    /// The MPI, in its own words.
    pub fn library(&self) -> &str {
        self.mpi.library()
    }

    /// At rank 0: tells all what is to be done.
    pub fn plan(&self, plan: &impl Serialize) -> anyhow::Result<()> {
        self.planned.set(true);
        let plan = serde_json::to_vec(plan)?;
        self.ranks.broadcast(0, plan, Instant::now() + WITHIN)?;
        Ok(())
    }

    fn withdraw(&self) {
        if !self.planned.replace(true) {
            // Whoever does not hear it ends when rank 0 does.
            let _ = self.ranks.broadcast(0, NO_PLAN.into(), Instant::now() + WITHIN);
        }
    }

    /// Elsewhere: what is to be done; none if rank 0 could not make a plan.
    pub fn planned<P: DeserializeOwned>(&self) -> anyhow::Result<Option<P>> {
        let plan = self.ranks.broadcast(0, Vec::new(), Instant::now() + WITHIN)?;
        if plan == NO_PLAN {
            return Ok(None);
        }
        serde_json::from_slice(&plan).context("the plan of rank 0 cannot be read").map(Some)
    }

    /// Begins the course of it, as all do.
    pub fn course(&self) -> anyhow::Result<Arc<Course>> {
        Ok(Arc::new(Course::begin(Arc::clone(&self.ranks), Arc::clone(&self.signals))?))
    }
}

/// The command of rank 0, as this rank understands it.
pub fn parse(words: &[String]) -> anyhow::Result<Cli> {
    Cli::try_parse_from(words).context("the command of rank 0 is not understood")
}
