//! Comparisons over hosts: what rank 0 does, and the others.

use std::net::IpAddr;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use clap::Args;
use weir_lab::child::Interrupt;
use weir_lab::hosts::agent::Peers;
use weir_lab::hosts::{Asked, Fleet, Watch, agent, call_off};
use weir_load::Stop;
use weir_load::ranks::Ranks;

use crate::cores::Cores;
use crate::exit::Usage;
use crate::exit::{self, Failure};
use crate::ranks::Together;

/// Options of a comparison over hosts.
#[derive(Debug, Clone, Default, PartialEq, Args)]
pub struct HostArgs {
    /// Compare over several hosts, as an MPI program: mpirun --hostfile hosts -n 4 weir compare … --mpi. One rank
    /// serves; the others, rank 0 among them, generate. A rate is that of all generators together; every other number
    /// of a load is per generator.
    #[arg(long)]
    pub mpi: bool,

    /// The rank that serves.
    #[arg(long, value_name = "RANK", default_value_t = 1, requires = "mpi")]
    pub mpi_server: usize,

    /// Address of the server's host to serve on [default: the first that every generator reaches: loopback if all ranks
    /// are on one machine, otherwise the address on the fastest link].
    #[arg(long, value_name = "ADDRESS", requires = "mpi")]
    pub mpi_address: Option<IpAddr>,
}

/// Why there is no link of its own over hosts.
pub const NO_LINK: &str = "--on veth makes a link within one machine, and with --mpi everything goes over the link between the hosts, \
     which the report names: leave --on veth out; or leave --mpi out, to compare over a link within this machine";

/// How often a signal, which has no waker, is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The ranks of this run, seen from rank 0. The others wait for it: dropped before they have met, it calls them off.
pub struct AtRoot {
    ranks: Arc<dyn Ranks>,
    signals: Arc<Stop>,
    have_met: AtomicBool,
    watch: OnceLock<Watch>,
}

impl AtRoot {
    /// Meets them.
    ///
    /// # Errors
    /// What is wrong with which of them.
    fn meet(&self, asked: &Asked, interrupt: &Interrupt) -> Result<Arc<Fleet>, Failure> {
        self.have_met.store(true, Ordering::Relaxed);
        let fleet = Fleet::meet(Arc::clone(&self.ranks), asked, interrupt);
        let fleet = fleet.map_err(Failure::failed)?;
        self.watch.get_or_init(|| fleet.watch());
        Ok(Arc::new(fleet))
    }

    /// An interrupt that the signals raise which end the run.
    pub fn interrupt(&self) -> Interrupt {
        let (interrupt, signals) = (Interrupt::new(), Arc::clone(&self.signals));
        let raised = interrupt.clone();
        std::thread::spawn(move || {
            while !signals.is_requested() {
                std::thread::sleep(LOOK_EVERY);
            }
            raised.raise();
        });
        interrupt
    }
}

impl Drop for AtRoot {
    fn drop(&mut self) {
        if !self.have_met.load(Ordering::Relaxed) {
            call_off(self.ranks.as_ref(), "rank 0 did not start the comparison; see its message");
        }
    }
}

/// Runs a comparison over hosts: at rank 0 `lead`, elsewhere an agent that serves it, and may start these peers.
///
/// # Errors
/// Why there are no ranks.
pub fn run(
    lead: impl FnOnce(Arc<AtRoot>) -> ExitCode,
    peers: impl FnOnce() -> Peers,
) -> Result<ExitCode, Failure> {
    let together = Together::start().map_err(|error| match error.is::<Usage>() {
        true => Failure::usage(format!("{error:#}")),
        false => Failure::failed(format!("{error:#}")),
    })?;
    let ranks = Arc::clone(together.ranks());
    // Results of different builds are not compared.
    let joined = together.join(false);
    if ranks.rank() == 0 {
        if let Err(refused) = joined {
            let _ = together.end();
            return Err(Failure::failed(refused));
        }
        let signals = Arc::clone(together.signals());
        let have_met = AtomicBool::new(false);
        let root = Arc::new(AtRoot { ranks, signals, have_met, watch: OnceLock::new() });
        let code = lead(Arc::clone(&root));
        let has_lost = root.watch.get().is_some_and(Watch::has_lost);
        drop(root);
        // Where it does not go well, mpirun says so.
        match has_lost {
            true => together.end_apart(),
            false => drop(together.end()),
        }
        return Ok(code);
    }
    let served = match joined {
        Ok(()) => agent::serve(ranks.as_ref(), super::program()?, peers()),
        // Why is told by rank 0.
        Err(_) => Ok(()),
    };
    // What became of the run is said by rank 0; only where that is gone there is something to say here.
    let heard = together.end();
    if let (Err(why), false) = (&served, heard) {
        let (rank, host) = (ranks.rank(), ranks.host(ranks.rank()));
        say!("weir compare: rank {rank} on {host}: {why}");
    }
    Ok(ExitCode::from(if heard { exit::OK } else { exit::FAILED }))
}

impl HostArgs {
    /// Meets the other ranks, where the comparison is one over hosts.
    ///
    /// # Errors
    /// What is wrong with which of them.
    pub fn meet(
        &self,
        (root, interrupt): (Option<&AtRoot>, &Interrupt),
        server: &Option<Cores>,
        generator: &Option<Cores>,
        threads: usize,
    ) -> Result<Option<Arc<Fleet>>, Failure> {
        if !self.mpi {
            return Ok(None);
        }
        let root = root.ok_or_else(|| {
            Failure::usage(
                "--mpi works only where mpirun starts weir compare itself; start that command with mpirun",
            )
        })?;
        let list =
            |cores: &Option<Cores>| cores.iter().flat_map(|Cores(list)| list.clone()).collect();
        let asked = Asked {
            server: self.mpi_server,
            address: self.mpi_address,
            server_cores: list(server),
            generator_cores: list(generator),
            threads,
        };
        root.meet(&asked, interrupt).map(Some)
    }
}
