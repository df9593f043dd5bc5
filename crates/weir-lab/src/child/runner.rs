//! What starts the children of an experiment, and knows how long each may take.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::Value;
use weir::counters::os::KernelEntries;
use weir_load::ranks::clocks::Offset;

use super::{Child, ChildError, CommandLine, Interrupt, TimeLimit};
use crate::hosts::own::Place;
use crate::hosts::{Children, Fleet, Host, Task};

/// A server that has crashed says so by its end; it is asked for no longer than this when whoever used it failed,
/// since its fault is the likelier cause.
const BLAME_WITHIN: Duration = Duration::from_secs(2);

/// Starts this executable's commands, and those of other programs.
pub struct Runner {
    program: PathBuf,
    interrupt: Interrupt,
    tell: Option<fn(&str)>,
    /// Whether the kernel is to count the entries of what is measured.
    counts_entries: bool,
    /// How often the performance of what is measured is logged.
    performance: Option<Duration>,
    /// The time that all may take.
    pub time: TimeLimit,
}

impl Runner {
    /// With the executable at `program`, which is `weir` itself. `tell` is given every command before it is
    /// started.
    pub fn new(program: PathBuf, interrupt: Interrupt, tell: Option<fn(&str)>) -> Self {
        Self {
            program,
            interrupt,
            tell,
            counts_entries: false,
            performance: None,
            time: TimeLimit::none(),
        }
    }

    /// The command of this executable.
    pub fn weir(&self) -> CommandLine {
        CommandLine::new(&self.program)
    }

    /// Starts a command of this executable.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn spawn(&self, name: &'static str, command: &CommandLine) -> Result<Child, ChildError> {
        self.announce(command);
        Child::spawn(name, command, &self.interrupt)
    }

    /// Starts a command of this executable at a host of several.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn spawn_at(
        &self,
        fleet: &Fleet,
        host: &Host,
        name: &'static str,
        command: &CommandLine,
    ) -> Result<Child, ChildError> {
        if let Some(tell) = self.tell {
            tell(&format!("{host}: {command}"));
        }
        fleet.spawn(host, name, command, &self.interrupt)
    }

    /// Starts a command of this executable at all generators' hosts that take part. `clock` is that of rank 0, as the server's
    /// sees it.
    ///
    /// # Errors
    /// If that of rank 0 cannot be started.
    pub(crate) fn start_all<'a>(
        &self,
        fleet: &'a Fleet,
        task: Task,
        command: &CommandLine,
        clock: Offset,
    ) -> Result<Children<'a>, ChildError> {
        if let Some(tell) = self.tell {
            let hosts = &fleet.hosts().generators[..task.parts];
            for (index, Host { cores, .. }) in hosts.iter().enumerate() {
                let words = Place { index, of: task.parts, cores, clock }.words(&task.words);
                tell(&format!("{}: {}", hosts[index], self.weir().arguments(words)));
            }
        }
        fleet.start_all(task, command, clock, &self.interrupt)
    }

    /// Starts what may be another program.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn spawn_foreign(
        &self,
        name: &'static str,
        command: &CommandLine,
    ) -> Result<Child, ChildError> {
        self.announce(command);
        Child::spawn_foreign(name, command, true, &self.interrupt)
    }

    fn announce(&self, command: &CommandLine) {
        if let Some(tell) = self.tell {
            tell(&command.to_string());
        }
    }

    /// When a wait that begins now, for which so long is enough on any machine, is over.
    pub fn within(&self, usual: Duration) -> Instant {
        self.time.deadline(Duration::ZERO, usual)
    }

    /// Has the kernel count entries from now on, or no longer; gives whether it can: what this process may, its
    /// children may, too.
    pub fn count_entries(&mut self, on: bool) -> bool {
        self.counts_entries = on && KernelEntries::begin().is_ok();
        self.counts_entries
    }

    /// Has the performance of what is measured logged at these intervals.
    pub fn log_performance(&mut self, every: Option<Duration>) {
        self.performance = every;
    }

    /// The words by which one of weir's own logs its performance in its report, where it is to.
    pub fn logging(&self) -> Vec<String> {
        // Where the kernel counts entries, nothing else is kept of a run.
        let every = self.performance.filter(|_| !self.counts_entries);
        let words = every
            .map(|every| ["--performance-interval".to_owned(), format!("{}ms", every.as_millis())]);
        words.into_iter().flatten().collect()
    }

    /// The word by which one of weir's own has the kernel count its entries, where it is to.
    pub fn counting(&self) -> Option<&'static str> {
        self.counts_entries.then_some("--count-entries")
    }
}

impl Child {
    /// Whose fault it was that whoever used this server failed: its own, if it has ended.
    pub fn or_blame(mut self, other: ChildError) -> ChildError {
        if matches!(other, ChildError::Interrupted) {
            return other;
        }
        self.close_input();
        match self.document::<Value>("report", Instant::now() + BLAME_WITHIN) {
            Err(ended) if ended.is_of_its_end() => ended,
            _ => other,
        }
    }
}
