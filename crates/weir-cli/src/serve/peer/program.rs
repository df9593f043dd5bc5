//! The program itself: started, asked, counted.

use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use serde::{Deserialize, de::DeserializeOwned};
use weir::counters::os::{OfThread, OtherProcess, Sampler, SystemUsage};
use weir::process::{Tree, TreeUsage};
use weir_lab::child::{Child, ChildError, CommandLine, Interrupt};
use weir_lab::wire;
use weir_load::audit::AuditSettings;
use weir_load::peer::{Ask, Begin, Count, Done, Ready, ReadyLine, Serve, setting};
use weir_load::proof::{Checked, OfRun, Shown};

use super::must_say;
use crate::exit::{self, Failure};

/// How the program is called in messages.
const PEER: &str = "the peer";
/// How long it may take to listen.
const READY_WITHIN: Duration = Duration::from_secs(10);
/// How long it may take for any other answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// How often is looked whether a program that says nothing listens. There is no event for that.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The setting that says where the counts come from.
const COUNTED: &str = "counted";
/// Its value for a program that knows nothing of weir.
const DERIVED: &str = "by the kernel: what it delivered to any program by UDP (InDatagrams)";

/// A program that receives.
pub struct Program {
    child: Child,
    /// What counts for it, if it does not count itself.
    derived: Option<Derived>,
}

/// The kernel's counts in the place of the program's.
struct Derived {
    sampler: Sampler,
    began: u64,
    started: u64,
}

/// Its account of a run, as far as it has one: a part of the audit's report.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Account {
    received: u64,
    strangers: u64,
    corrupt_headers: u64,
    corrupt_bodies: u64,
    unknown_flow: u64,
    wrong_size: u64,
    duplicates: u64,
    reordered: u64,
    /// What shows that it read the datagrams, where it shows any.
    proof: Option<Shown>,
    /// What it counted besides, by the names that weir's own counters have.
    pub counters: BTreeMap<String, u64>,
}

impl Account {
    /// Datagrams of the run that it says it received.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// What is found of what it shows of these runs, where it shows anything.
    pub fn check(&self, runs: &[OfRun]) -> Option<Checked> {
        Some(self.proof.as_ref()?.check_all(runs))
    }

    /// In the words of the laboratory.
    pub fn audit(self) -> wire::Audit {
        let corrupt = [self.corrupt_headers, self.corrupt_bodies, self.unknown_flow];
        let corrupt = corrupt.into_iter().fold(0, u64::saturating_add);
        wire::Audit {
            received: self.received,
            strangers: self.strangers,
            corrupt,
            wrong_size: self.wrong_size,
            duplicates: self.duplicates,
            reordered: self.reordered,
            data_errors: corrupt > 0 || self.wrong_size > 0 || self.duplicates > 0,
            // Its own would be no more than its word.
            latency_ns: None,
            latency_histogram: vec![],
        }
    }
}

impl Program {
    /// Starts it and waits until it listens.
    pub fn start(command: &CommandLine, asked: &Serve) -> Result<(Self, Ready), Failure> {
        let (program, ready) = match command.mentions("{port}") {
            false => Self::that_speaks(command, asked)?,
            true => Self::that_says_nothing(command, asked)?,
        };
        for (name, wanted) in must_say(asked) {
            if ready.settings.get(name) != Some(&wanted) {
                let what = format!("it does not say that it has {name} {wanted}");
                return Err(Failure {
                    message: format!("{what}, which was requested"),
                    code: exit::UNAVAILABLE,
                });
            }
        }
        Ok((program, ready))
    }

    fn that_speaks(command: &CommandLine, asked: &Serve) -> Result<(Self, Ready), Failure> {
        let child =
            Child::spawn_foreign(PEER, command, true, &Interrupt::new()).map_err(failure)?;
        let mut program = Self { child, derived: None };
        let ReadyLine { mut ready } =
            program.ask(&Ask::Serve(asked.clone()), "ready line", READY_WITHIN).map_err(failure)?;
        let at = ready.address;
        if at.ip() != asked.address.ip() || at.port() == 0 {
            let message = format!("{PEER} says that it receives on {at}, not {}", asked.address);
            return Err(Failure::failed(message));
        }
        // Whatever it says, only its own socket is flooded.
        if program.holds(at)? == Some(false) {
            return Err(Failure::failed(format!(
                "{PEER} says that it receives on {at}, but process {} has no such socket; a script \
                 that starts it must do so with exec",
                program.id()
            )));
        }
        ready.settings.insert(COUNTED.into(), "by the program".into());
        Ok((program, ready))
    }

    fn that_says_nothing(command: &CommandLine, asked: &Serve) -> Result<(Self, Ready), Failure> {
        let mut address = asked.address;
        if address.port() == 0 {
            // Free now; a program that finds it taken says so by its end.
            let free = UdpSocket::bind(address).and_then(|socket| socket.local_addr());
            address = free.map_err(|error| {
                Failure::failed(format!("there is no free port on {address}: {error}"))
            })?;
        }
        let command = command.clone().with("{ip}", address.ip()).with("{port}", address.port());
        let child =
            Child::spawn_foreign(PEER, &command, false, &Interrupt::new()).map_err(failure)?;
        let mut sampler = Sampler::new();
        let began = in_datagrams(&mut sampler, address).ok_or_else(|| Failure {
            message: "this system does not report how many datagrams it delivered".into(),
            code: exit::UNAVAILABLE,
        })?;
        let derived = Derived { sampler, began, started: began };
        let mut program = Self { child, derived: Some(derived) };
        let deadline = Instant::now() + READY_WITHIN;
        while program.holds(address)? != Some(true) {
            program.child.is_alive_after("socket", LOOK_EVERY).map_err(failure)?;
            if Instant::now() >= deadline {
                return Err(Failure::failed(format!(
                    "{PEER} was ended: it had no socket on {address} within {READY_WITHIN:?}"
                )));
            }
        }
        // The kernel counts for any number of them.
        let together = asked.runs_together.map(|runs| (setting::RUNS_TOGETHER, runs.to_string()));
        let settings = together.into_iter().chain([(COUNTED, DERIVED.to_owned())]);
        let settings = settings.map(|(name, value)| (name.to_owned(), value)).collect();
        Ok((program, Ready { address, settings }))
    }

    /// Whether it talks with weir; else its counts are the kernel's.
    pub fn talks(&self) -> bool {
        self.derived.is_none()
    }

    /// What it and all that it starts used.
    pub fn usage(&mut self) -> TreeUsage {
        self.child.tree().map(Tree::usage).unwrap_or_default()
    }

    /// Their CPU time, in ns.
    pub fn cpu_ns(&mut self) -> Option<u64> {
        self.child.tree()?.cpu_ns()
    }

    /// Their threads that are alive.
    pub fn threads(&mut self) -> Vec<OfThread> {
        self.child.tree().map(Tree::threads).unwrap_or_default()
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether a socket of its process is bound there; `None` where that cannot be seen.
    fn holds(&self, address: SocketAddr) -> Result<Option<bool>, Failure> {
        let process = match OtherProcess::new(self.id()) {
            Ok(process) => process,
            Err(error) => {
                return Err(Failure { message: error.to_string(), code: exit::UNAVAILABLE });
            }
        };
        let is_it = |socket: &SocketAddr| {
            socket.port() == address.port()
                && (socket.ip().is_unspecified() || socket.ip() == address.ip())
        };
        Ok(process.udp_sockets().map(|sockets| sockets.iter().any(is_it)))
    }

    /// A run begins, of several generators `beside` those that are open.
    pub fn begin(
        &mut self,
        settings: &AuditSettings,
        beside: bool,
        at: SocketAddr,
    ) -> Result<(), ChildError> {
        match &mut self.derived {
            Some(derived) => derived.start(at),
            None => {
                let begin = Begin { beside, ..Begin::from(settings) };
                let Done { .. } = self.ask(&Ask::Begin(begin), "ok", ANSWER_WITHIN)?;
            }
        }
        Ok(())
    }

    /// Its warm-up is over.
    pub fn started(&mut self, at: SocketAddr) -> Result<(), ChildError> {
        match &mut self.derived {
            Some(derived) => derived.start(at),
            None => {
                let Done { .. } = self.ask(&Ask::Start, "ok", ANSWER_WITHIN)?;
            }
        }
        Ok(())
    }

    /// How many by now.
    pub fn count(&mut self, at: SocketAddr) -> Result<Count, ChildError> {
        match &mut self.derived {
            Some(derived) => {
                self.child.is_alive_after("counts", Duration::ZERO)?;
                Ok(derived.count(at))
            }
            None => self.ask(&Ask::Count, "counts", ANSWER_WITHIN),
        }
    }

    /// The run is over.
    pub fn end(&mut self, sent_per_flow: &[u64], at: SocketAddr) -> Result<Account, ChildError> {
        match &mut self.derived {
            Some(derived) => {
                Ok(Account { received: derived.count(at).received, ..Account::default() })
            }
            None => {
                let ask = Ask::End { sent_per_flow: sent_per_flow.to_vec() };
                self.ask(&ask, "account", ANSWER_WITHIN)
            }
        }
    }

    /// Ends it: one that talks ends with its input, one that does not is ended. Gives what was
    /// wrong with its end.
    pub fn finish(self, within: Duration) -> Result<(), ChildError> {
        if self.derived.is_some() {
            return Ok(()); // dropping it ends it
        }
        match self.child.finish(Instant::now() + within)? {
            ended if ended.success() => Ok(()),
            ended => Err(ChildError::BadEnd { name: PEER, status: ended.to_string() }),
        }
    }

    fn ask<T: DeserializeOwned>(
        &mut self,
        ask: &Ask,
        what: &'static str,
        within: Duration,
    ) -> Result<T, ChildError> {
        let line = serde_json::to_string(ask).unwrap_or_default(); // it is numbers and words
        self.child.say(&line);
        self.child.document(what, Instant::now() + within)
    }
}

impl Derived {
    fn now(&mut self, at: SocketAddr) -> u64 {
        in_datagrams(&mut self.sampler, at).unwrap_or(self.started)
    }

    fn start(&mut self, at: SocketAddr) {
        self.started = self.now(at);
    }

    fn count(&mut self, at: SocketAddr) -> Count {
        let now = self.now(at);
        Count {
            received: now.saturating_sub(self.started),
            handled: now.saturating_sub(self.began),
        }
    }
}

/// Datagrams that the kernel has delivered to any program, over the IP version of this address.
fn in_datagrams(sampler: &mut Sampler, at: SocketAddr) -> Option<u64> {
    delivered(&sampler.system(), at)
}

/// The same, of what the system counted.
pub fn delivered(system: &SystemUsage, at: SocketAddr) -> Option<u64> {
    if at.is_ipv4() { system.udp4.in_datagrams } else { system.udp6.in_datagrams }
}

/// One that says so cannot be measured here. That it is not there is a failure: it was asked for by its name.
fn failure(error: ChildError) -> Failure {
    let code = match &error {
        ChildError::Reported(reported) if reported.unavailable => exit::UNAVAILABLE,
        _ => exit::FAILED,
    };
    Failure { message: error.to_string(), code }
}
