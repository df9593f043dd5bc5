//! The generators of a run as one conversation: that of rank 0 is a child of this process, those of all others together are a
//! second one, which says what is true of all of them.

use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Value, json};
use weir_load::ranks::clocks::{Between, Offset};

use super::fleet::{Clocks, Fleet, OVER};
use super::message::{Latencies, Order, Task};
use super::own::Place;
use super::reports::{Generator, Kind, Reports};
use crate::child::{Child, ChildError, CommandLine, Interrupt};

/// How much longer than their task those of other ranks may take to say so: each is ended by its own rank when it is late.
const MORE: Duration = Duration::from_secs(5);
/// How long a generator may take to end after its report.
const END_WITHIN: Duration = Duration::from_secs(5);

/// What a generator says of how far it has come.
#[derive(Debug, Clone, Deserialize)]
struct Phase {
    phase: String,
    at_ns: Option<u64>,
}

/// Generators that do one task.
pub(crate) struct Children<'a> {
    fleet: &'a Fleet,
    task: Task,
    number: u32,
    /// That of rank 0, unless it serves.
    own: Option<Child>,
    /// Its report, if it had nothing else to say.
    own_report: Option<Value>,
    below: Option<Child>,
    /// What all below reported, if that was read already.
    below_report: Option<Value>,
    /// When the first of all was over, by its clock, if it is none of rank 0 and has said so.
    ended_ns: Option<u64>,
    deadline: Instant,
}

impl Fleet {
    /// Starts generators at all ranks that take part. `command` has marks for what each has of its own ([`super::own`]);
    /// `clock` is that of rank 0, as the server's sees it.
    ///
    /// # Errors
    /// If that of rank 0 cannot be started; what happens elsewhere is told by them.
    pub(crate) fn start_all(
        &self,
        task: Task,
        command: &CommandLine,
        clock: Offset,
        interrupt: &Interrupt,
    ) -> Result<Children<'_>, ChildError> {
        let deadline = Instant::now() + Duration::from_millis(task.within_ms);
        let (number, below) = self.spawn_below(&task, interrupt)?;
        let own = match self.hosts().server.rank {
            0 => None,
            _ => {
                let cores = &self.own().cores;
                let place = Place { index: 0, of: task.parts, cores, clock };
                let words = place.words(command.words());
                let command = CommandLine::new(command.program()).arguments(words);
                let command = command.with_key(Some(self.key()));
                let own = Child::spawn(task.kind.name(), &command, interrupt);
                Some(own.map_err(|why| self.failed_here(why))?)
            }
        };
        Ok(Children {
            fleet: self,
            task,
            number,
            own,
            own_report: None,
            below,
            below_report: None,
            ended_ns: None,
            deadline,
        })
    }
}

impl Children<'_> {
    /// Waits until all have come to this phase of their task.
    ///
    /// # Errors
    /// Which one did not.
    pub(crate) fn come_to(&mut self, phase: &str) -> Result<(), ChildError> {
        if let (Some(own), None) = (&mut self.own, &self.own_report) {
            let what = "word that it is ready";
            let failed = |why| self.fleet.failed_here(why);
            let said: Value = own.document(what, self.deadline).map_err(failed)?;
            if said["phase"] != phase {
                if self.task.kind == Kind::Udp {
                    // It is none of success.
                    self.report_of_own(said.clone(), false, None)?;
                }
                self.own_report = Some(said);
            }
        }
        self.all_below_come_to(phase)
    }

    fn all_below_come_to(&mut self, phase: &str) -> Result<(), ChildError> {
        let Some(below) = &mut self.below else { return Ok(()) };
        loop {
            let said: Phase = below.document("word that it is ready", self.deadline + MORE)?;
            if said.phase == phase {
                return Ok(());
            }
            // The first of all may be over before all have begun.
            self.ended_ns = said.at_ns.or(self.ended_ns);
        }
    }

    /// Tells all when to begin: soon.
    pub(crate) fn begin(&mut self, clocks: &Clocks) {
        let start_ns = clocks.start_soon();
        if self.below.is_some() {
            self.fleet.order_all(Order::BeginAll { child: self.number, start_ns });
        }
        if let Some(own) = &mut self.own {
            own.say(&json!({ "start_ns": start_ns }).to_string());
        }
    }

    /// Waits for the first of all to say that it has come to this phase, for which nobody waits of all; gives when that was, by
    /// the clock of rank 0. None where it has reported already.
    ///
    /// # Errors
    /// If any fails.
    pub(crate) fn first_comes_to(
        &mut self,
        phase: &str,
        clocks: &Clocks,
    ) -> Result<Option<u64>, ChildError> {
        let here = |ns: u64| clocks.of_first().here(ns);
        if self.own_report.is_some() {
            return Ok(None);
        }
        if let Some(own) = &mut self.own {
            let failed = |why| self.fleet.failed_here(why);
            let said: Value = own.document("report", self.deadline).map_err(failed)?;
            return match serde_json::from_value::<Phase>(said.clone()) {
                Ok(said) if said.phase == phase => Ok(said.at_ns.map(here)),
                _ => {
                    self.own_report = Some(said);
                    Ok(None)
                }
            };
        }
        if let (None, Some(below)) = (self.ended_ns, &mut self.below) {
            let said: Value = below.document("report", self.deadline + MORE)?;
            match serde_json::from_value::<Phase>(said.clone()) {
                Ok(said) => self.ended_ns = said.at_ns,
                Err(_) => self.below_report = Some(said),
            }
        }
        Ok(self.ended_ns.map(here))
    }

    /// Waits for the end of all, whose reports come when clocks have been compared.
    ///
    /// # Errors
    /// If any fails.
    pub(crate) fn end(&mut self) -> Result<(), ChildError> {
        self.take_own_report()?;
        match self.task.tells_end {
            true => self.all_below_come_to(OVER),
            false => Ok(()),
        }
    }

    /// Takes the report of rank 0's own, and has it end.
    fn take_own_report(&mut self) -> Result<(), ChildError> {
        let Some(mut own) = self.own.take() else { return Ok(()) };
        let failed = |why| self.fleet.failed_here(why);
        if self.own_report.is_none() {
            let document = match self.task.kind {
                Kind::Udp => own.whole_document("report", self.deadline),
                Kind::Tcp => own.document("report", self.deadline),
            };
            self.own_report = Some(document.map_err(failed)?);
        }
        let until = self.deadline.max(Instant::now() + END_WITHIN);
        own.finish(until).map(drop).map_err(failed)
    }

    /// What all did. `of_server` is the clock of rank 0 before and after the run, as that of the server sees it.
    ///
    /// # Errors
    /// If one failed, with its rank and host.
    pub(crate) fn reports(mut self, of_server: Between) -> Result<Reports, ChildError> {
        self.take_own_report()?;
        let mut all = None;
        if let Some(document) = self.own_report.take() {
            let of_server = (self.task.latencies != Latencies::None).then_some(of_server);
            let own = self.report_of_own(document, true, of_server)?;
            self.fleet.note_cpu_ns(own.cpu_ns());
            all = Some(own);
        }
        if let Some(below) = &mut self.below {
            let said = match self.below_report.take() {
                Some(said) => said,
                None => below.document("report", self.deadline + MORE)?,
            };
            let others: Reports = serde_json::from_value(said).map_err(|error| {
                let problem = error.to_string();
                ChildError::Garbage { name: self.task.kind.name(), what: "report", problem }
            })?;
            match &mut all {
                Some(all) => all.add(others),
                none => *none = Some(others),
            }
        }
        all.ok_or_else(|| ChildError::Garbage {
            name: self.task.kind.name(),
            what: "report",
            problem: "no rank takes part".into(),
        })
    }

    fn report_of_own(
        &self,
        document: Value,
        has_begun: bool,
        of_server: Option<Between>,
    ) -> Result<Reports, ChildError> {
        let place = place(self.fleet);
        let clock = Offset::default();
        let own = Generator { place: place.clone(), rank: 0, clock, later_ns: 0, of_server };
        Reports::of(self.task.kind, document, has_begun, &own).map_err(|why| why.at(&place))
    }
}

/// Where the generator of rank 0 runs, which is the first.
fn place(fleet: &Fleet) -> String {
    fleet.hosts().generators[0].to_string()
}
