//! A program that is measured, and all processes that it starts.

// What this module needs of an OS:
//   Tree::{of(&mut Command), started(id), processes() -> Vec<u32>, cpu_ns() -> Option<u64>,
//          usage() -> TreeUsage, threads() -> Vec<OfThread>, end()}
#[cfg_attr(target_os = "linux", path = "linux.rs")]
#[cfg_attr(windows, path = "windows.rs")]
mod native;

use std::process::Command;

use crate::counters::os::{OfThread, ProcessUsage};

/// A program and all processes that it starts, until it is dropped: then those that are left are killed. A process
/// that leaves its parents behind belongs to it all the same.
///
/// Who is killed itself drops nothing. What a tree in a control group leaves then is killed when the next one is
/// made in the same place; without control groups it stays.
#[derive(Debug)]
pub struct Tree(native::Tree);

/// What the processes of a tree used together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TreeUsage {
    /// Those that have ended are in the CPU time. Context switches are those of processes and threads that are
    /// alive; memory that several share counts for each.
    pub usage: ProcessUsage,
    /// Processes that are alive.
    pub processes: u32,
    /// Grows when one ends.
    pub ended: u64,
    /// The system's numbers of the threads that are alive, where it says so.
    pub threads: Vec<u32>,
    /// Why the CPU time is not known, where it is not.
    pub unknown: Option<String>,
    /// Why the context switches are not known, where they are not.
    pub switches_unknown: Option<String>,
}

impl TreeUsage {
    /// What was used since `earlier`. Context switches are not known where a process or a thread has ended meanwhile: its
    /// own have gone with it.
    pub fn since(&self, earlier: &Self) -> Self {
        let mut usage = self.usage.since(&earlier.usage);
        let mut switches_unknown = self.switches_unknown.clone();
        let threads_ended = earlier.threads.iter().any(|thread| !self.threads.contains(thread));
        if self.ended != earlier.ended || threads_ended {
            (usage.voluntary_switches, usage.involuntary_switches) = (None, None);
            switches_unknown.get_or_insert_with(|| {
                "processes or threads of the program ended while it was measured, and their context switches \
                 with them"
                    .into()
            });
        }
        Self { usage, switches_unknown, ..self.clone() }
    }
}

impl Tree {
    /// Makes the program that this command starts the root of a tree. Start it, then say so
    /// ([`started`](Self::started)).
    pub fn of(command: &mut Command) -> Self {
        Self(native::Tree::of(command))
    }

    /// The program was started, and has this process id.
    pub fn started(&mut self, id: u32) {
        self.0.started(id);
    }

    /// The process ids of all that are alive, and of those that have ended and were not waited for.
    pub fn processes(&mut self) -> Vec<u32> {
        self.0.processes()
    }

    /// The CPU time of all of them, those included that have ended, in ns; `None` where it cannot be known.
    pub fn cpu_ns(&mut self) -> Option<u64> {
        self.0.cpu_ns()
    }

    /// What all of them used.
    pub fn usage(&mut self) -> TreeUsage {
        self.0.usage()
    }

    /// Their threads that are alive.
    pub fn threads(&mut self) -> Vec<OfThread> {
        self.0.threads()
    }

    /// Kills all of them, until none is left; the root is to be waited for by its owner.
    pub fn end(&mut self) {
        self.0.end();
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests;
