//! `weir compare`: every design that can run here, under the same load, side by side.

mod all;
mod common;
pub mod context;
pub mod display;
pub mod hosts;
mod iops;
mod live;
pub mod output;
pub mod part;
mod plan;
pub mod run;
pub mod saved;
pub mod stream;
mod tcp;
mod udp;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, Parser, Subcommand};
use weir_lab::child::Interrupt;
use weir_lab::hosts::agent::Peers;

use common::CommonArgs;
use context::Context;
use hosts::AtRoot;
use part::Part;
use run::Asked;

use crate::designs;
use crate::exit::Failure;

/// What a caller may rely on.
const EXIT_CODES: &str = "Exit codes: 0 success; 1 it failed, or nothing could be judged against the baseline; 2 wrong \
                          usage; 3 it finished, but a row failed its check, a run failed, or the data or ledger of a \
                          run are wrong; 4 a figure is worse than the baseline's; 5 no design can run here; 130 it was \
                          ended by Ctrl-C or a signal, and reports what was measured until then.";

/// Compare every design that can run here, under the same load.
///
/// Without a kind (udp, tcp, iops) all three are compared, with the options that they have in common. An option that
/// only UDP has implies udp; with one that several kinds have, name the kind.
#[derive(Debug, Clone, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct CompareArgs {
    #[command(subcommand)]
    kind: Option<Kind>,

    #[command(flatten)]
    udp: udp::UdpArgs,
}

/// The words for what is compared.
const KINDS: [&str; 3] = ["udp", "tcp", "iops"];

/// What is compared.
#[derive(Debug, Clone, Subcommand)]
enum Kind {
    /// UDP servers: how many datagrams they receive, and what that costs.
    Udp(Box<udp::UdpArgs>),
    /// TCP servers that echo: how many messages come back, how soon, and what that costs.
    Tcp(Box<tcp::TcpArgs>),
    /// Reads of devices that do nothing: I/Os per second of every design, and of fio if requested.
    Iops(Box<iops::IopsArgs>),
}

impl CompareArgs {
    fn common(&self) -> &CommonArgs {
        match &self.kind {
            None => &self.udp.common,
            Some(Kind::Udp(args)) => &args.common,
            Some(Kind::Tcp(args)) => &args.common,
            Some(Kind::Iops(args)) => &args.common,
        }
    }

    /// Whether it is one over hosts.
    fn is_over_hosts(&self) -> bool {
        match &self.kind {
            None => self.udp.hosts.mpi,
            Some(Kind::Udp(args)) => args.hosts.mpi,
            Some(Kind::Tcp(args)) => args.hosts.mpi,
            Some(Kind::Iops(_)) => false,
        }
    }

    /// Whether other programs are among the rows, which are run.
    pub fn has_peers(&self) -> bool {
        match &self.kind {
            None => !self.udp.peer.is_empty(),
            Some(Kind::Udp(args)) => !args.peer.is_empty(),
            Some(Kind::Tcp(args)) => args.has_peers(),
            Some(Kind::Iops(_)) => false,
        }
    }

    /// The peers that this command names itself, and with its plan.
    fn peers(&self) -> Peers {
        let of_plan = self.common().plan.plan.as_deref().and_then(|path| {
            let words: Vec<OsString> = std::env::args_os().collect();
            Some(plan::expanded(path, &words).ok()?.0)
        });
        // What is wrong with a plan rank 0 says.
        let args = of_plan.as_ref().unwrap_or(self);
        match &args.kind {
            None => Peers::of(&args.udp.peer, None),
            Some(Kind::Udp(args)) => Peers::of(&args.peer, None),
            Some(Kind::Tcp(args)) => args.peers(),
            Some(Kind::Iops(_)) => Peers::default(),
        }
    }

    /// What is compared, and where its results go.
    pub fn asked(&self) -> Asked<'_> {
        let of_udp =
            |args: &udp::UdpArgs| ("weir compare udp", if args.memory { "memory" } else { "udp" });
        let (name, kind) = match &self.kind {
            None if self.udp.are_for_all() => ("weir compare", "all"),
            None => of_udp(&self.udp),
            Some(Kind::Udp(args)) => of_udp(args),
            Some(Kind::Tcp(_)) => ("weir compare tcp", "tcp"),
            Some(Kind::Iops(_)) => ("weir compare iops", "iops"),
        };
        let CommonArgs { output, dry_run, .. } = self.common();
        Asked { name, kind, output, dry_run: *dry_run }
    }

    /// The same where nothing is heeded yet: without a word it is not said what is compared.
    fn asked_so_far(&self) -> Asked<'_> {
        match self.kind {
            None => Asked { name: "weir compare", ..self.asked() },
            Some(_) => self.asked(),
        }
    }

    /// Where no word says what is compared: refuses options that several kinds have, and says that it is UDP alone where
    /// only UDP has one.
    fn heed_what_is_meant(&self, words: &[OsString]) -> Result<(), Failure> {
        if self.kind.is_some() || self.udp.are_for_all() {
            return Ok(());
        }
        let for_all = CommonArgs::augment_args(clap::Command::new("compare"));
        let options = plan::not_of_all(words, &for_all)?;
        let only_udp = options.iter().find(|option| option.kinds == ["udp"]);
        if let Some(option) = only_udp {
            say!("comparing UDP only: {} is an option of weir compare udp", option.name);
            return Ok(());
        }
        let has_all = |kind: &&str| options.iter().all(|option| option.kinds.contains(kind));
        let mut kinds: Vec<&str> = KINDS.into_iter().filter(has_all).collect();
        self.heed_designs()?;
        kinds.retain(|kind| self.udp.design.iter().all(|spec| has_design(kind, spec)));
        let names: Vec<&str> = options.iter().map(|option| option.name.as_str()).collect();
        let names = names.join(" and ");
        if kinds.is_empty() {
            return Err(Failure::usage(format!(
                "{names} do not go together here: no comparison has both such a design and these options; weir compare udp \
                 --help, tcp --help and iops --help show the options of each"
            )));
        }
        let given: Vec<String> =
            words.iter().skip(2).map(|word| word.to_string_lossy().into_owned()).collect();
        let given = crate::shell_words(&given);
        let by = if self.udp.hosts.mpi { "mpirun -n 3 " } else { "" };
        let commands: Vec<String> =
            kinds.iter().map(|kind| format!("{by}weir compare {kind} {given}")).collect();
        Err(Failure::usage(format!(
            "{names} {} options of several kinds of comparison; say which you mean: {}",
            if options.len() == 1 { "is among the" } else { "are" },
            commands.join(", or ")
        )))
    }

    /// Where no word says what is compared: refuses designs that there are not, or not in one comparison.
    fn heed_designs(&self) -> Result<(), Failure> {
        let all: Vec<(&str, Vec<&str>)> = self
            .udp
            .design
            .iter()
            .map(|spec| {
                let kinds = KINDS.into_iter().filter(|kind| has_design(kind, spec)).collect();
                (name_of_design(spec), kinds)
            })
            .collect();
        if let Some((name, _)) = all.iter().find(|(_, kinds)| kinds.is_empty()) {
            return Err(weir::Error::unknown_name("design", *name, designs::names()).into());
        }
        if all.is_empty() || KINDS.iter().any(|kind| all.iter().all(|(_, of)| of.contains(kind))) {
            return Ok(());
        }
        let each: Vec<String> =
            all.iter().map(|(name, kinds)| format!("{name} of {}", kinds.join(" and "))).collect();
        Err(Failure::usage(format!(
            "no comparison has all of these designs ({}); compare those of each kind by themselves, as in weir compare {} \
             --design {}",
            each.join(", "),
            all[0].1[0],
            all[0].0
        )))
    }

    /// Compares, and gives what came of it.
    pub fn compare(&self, context: &Context) -> Result<Part, Failure> {
        match &self.kind {
            None if self.udp.are_for_all() => all::compare(&self.udp, context),
            None => udp::compare(&self.udp, context),
            Some(Kind::Udp(args)) => udp::compare(args, context),
            Some(Kind::Tcp(args)) => tcp::compare(args, context),
            Some(Kind::Iops(args)) => iops::compare(args, context),
        }
    }
}

/// Runs `weir compare`.
pub fn run(args: CompareArgs) -> ExitCode {
    if !args.is_over_hosts() {
        return run_here(&args, None);
    }
    if !weir_mpi::is_started() && args.common().plan.plan.is_none() {
        // What is wrong with the command is told before that nobody has started ranks.
        let words: Vec<OsString> = std::env::args_os().collect();
        if let Err(failed) = args.heed_what_is_meant(&words) {
            return run::refuse(&args.asked_so_far(), &crate::arguments(), &failed);
        }
    }
    let ran = hosts::run(|root| run_here(&args, Some(root)), || args.peers());
    ran.unwrap_or_else(|failed| run::refuse(&args.asked(), &crate::arguments(), &failed))
}

/// Runs it where its laboratory is; over hosts, that is rank 0.
fn run_here(args: &CompareArgs, root: Option<Arc<AtRoot>>) -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().collect();
    let planned = match &args.common().plan.plan {
        Some(path) => plan::expanded(path, &words),
        None => Ok((args.clone(), words)),
    };
    let planned = planned.and_then(|(planned, words)| {
        planned.heed_what_is_meant(&words)?;
        if let Some(path) = &args.common().plan.save_plan {
            plan::save(path, &words)?;
        }
        Ok((planned, words))
    });
    match planned {
        Ok((args, words)) => {
            let command = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
            run::run(&args.asked(), command, root, |context| args.compare(context))
        }
        Err(failed) => run::refuse(&args.asked_so_far(), &crate::arguments(), &failed),
    }
}

/// Whether a kind of comparison has the design that a row begins with.
fn has_design(kind: &str, spec: &str) -> bool {
    let name = name_of_design(spec);
    match kind {
        "udp" => weir::udp::AnyDesign::parse(name).is_ok(),
        "tcp" => weir::tcp::AnyDesign::parse(name).is_ok(),
        _ => weir::device::AnyDesign::parse(name).is_ok(),
    }
}

/// The name with which a row begins.
fn name_of_design(spec: &str) -> &str {
    spec.split_whitespace().next().unwrap_or_default()
}

/// An interrupt that Ctrl-C raises.
fn heed_interrupts() -> Result<Interrupt, Failure> {
    let interrupt = Interrupt::new();
    let raised = interrupt.clone();
    ctrlc::set_handler(move || raised.raise())
        .map_err(|error| Failure::failed(format!("cannot handle Ctrl-C: {error}")))?;
    Ok(interrupt)
}

/// The executable itself, of which every run is a process.
fn program() -> Result<PathBuf, Failure> {
    std::env::current_exe()
        .map_err(|error| Failure::failed(format!("cannot find weir's own executable: {error}")))
}

/// The arguments that these words are.
fn parsed<A: clap::Args>(words: &[&str]) -> Result<A, clap::Error> {
    #[derive(Parser)]
    struct Line<A: clap::Args> {
        #[command(flatten)]
        args: A,
    }
    let all = std::iter::once("compare").chain(words.iter().copied());
    Line::try_parse_from(all).map(|line| line.args)
}

/// The arguments where there is no word.
fn defaults<A: clap::Args>() -> A {
    parsed(&[]).expect("no argument of a comparison is required")
}
