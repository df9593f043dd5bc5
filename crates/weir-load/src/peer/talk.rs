//! A peer's end of the talk, for programs in Rust.

use std::{
    hint::black_box,
    io::{self, BufRead, Read, Write},
    sync::{Arc, Mutex},
};

use serde::Serialize;
use serde_json::{Value, json};
use weir::counters::Counter;

use super::message::{Ask, Count, Done, Ready, ReadyLine, Serve};
use crate::{
    audit::{Audit, AuditReport, Auditor},
    clock::now_ns,
    lock::lock,
    proof::Sieve,
};

/// The longest ask in bytes: that which ends runs names a count for each of 1024 flows of each of 64.
const ASK_BYTES_MAX: u64 = 1 << 20;

/// Why a talk ended otherwise than by the end of the input.
#[derive(Debug, thiserror::Error)]
pub enum TalkError {
    /// The pipes broke.
    #[error("the talk with weir broke: {0}")]
    Io(#[from] io::Error),
    /// The other side said something else.
    #[error("weir sent something that is not understood: {0}; is that another build?")]
    Ask(String),
}

/// What one thread of a peer counted.
#[derive(Debug, Default)]
pub struct Tally {
    /// Datagrams that it was given.
    pub datagrams: Counter,
    /// Calls that entered the kernel to receive or to wait, where it knows them.
    pub kernel_entries: Counter,
}

/// The tallies of all threads.
#[derive(Debug, Clone, Default)]
pub struct Tallies(Arc<Mutex<Vec<Arc<Tally>>>>);

impl Tallies {
    fn add(&self) -> Arc<Tally> {
        let tally = Arc::new(Tally::default());
        lock(&self.0).push(Arc::clone(&tally));
        tally
    }

    fn sum(&self, of: fn(&Tally) -> &Counter) -> u64 {
        let all = lock(&self.0);
        all.iter().map(|tally| of(tally).get()).sum()
    }
}

/// What one thread of a peer does with each datagram: exactly what weir's own servers do when
/// they are measured. It accounts for it, and works on it.
#[derive(Debug)]
pub struct Sink {
    auditor: Auditor,
    tally: Arc<Tally>,
    steps: u32,
    random: u32,
}

impl Sink {
    /// Takes one datagram.
    #[inline]
    pub fn datagram(&mut self, bytes: &[u8]) {
        self.auditor.record(bytes, now_ns);
        for _ in 0..=self.steps {
            self.random = self.random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        }
        black_box(self.random);
        self.tally.datagrams.one();
    }

    /// Takes what came as one: datagrams of `segment_bytes`, the last of which may be shorter.
    #[inline]
    pub fn segments(&mut self, bytes: &[u8], segment_bytes: usize) {
        if bytes.len() <= segment_bytes || segment_bytes == 0 {
            return self.datagram(bytes);
        }
        bytes.chunks(segment_bytes).for_each(|datagram| self.datagram(datagram));
    }

    /// Counts a call that entered the kernel.
    #[inline]
    pub fn entered_kernel(&self) {
        self.tally.kernel_entries.one();
    }
}

/// A peer's end of the talk.
#[derive(Debug)]
pub struct Talk<I, O> {
    input: I,
    output: O,
    audit: Arc<Audit>,
    tallies: Tallies,
    /// Those that are open, in the order in which they began, each with its number of flows.
    runs: Vec<(u32, usize)>,
    entries_before: u64,
    datagrams_before: u64,
}

impl<I: BufRead, O: Write> Talk<I, O> {
    /// Reads the first ask: where to receive, and how.
    ///
    /// # Errors
    /// If there is none, or it is something else.
    pub fn open(mut input: I, output: O) -> Result<(Self, Serve), TalkError> {
        match read(&mut input)? {
            Some(Ask::Serve(serve)) => {
                let talk = Self {
                    input,
                    output,
                    audit: Audit::new(),
                    tallies: Tallies::default(),
                    runs: vec![],
                    entries_before: 0,
                    datagrams_before: 0,
                };
                Ok((talk, serve))
            }
            Some(other) => Err(TalkError::Ask(format!("{other:?} before \"serve\""))),
            None => Err(TalkError::Ask("nothing: the input ended".into())),
        }
    }

    /// What a thread does with its datagrams; one for each thread.
    pub fn sink(&self, serve: &Serve) -> Sink {
        Sink {
            auditor: self.audit.auditor(),
            tally: self.tallies.add(),
            steps: serve.work_steps.unwrap_or(0),
            random: 1,
        }
    }

    /// Says that it listens.
    ///
    /// # Errors
    /// If nobody hears it.
    pub fn ready(&mut self, ready: Ready) -> Result<(), TalkError> {
        self.say(&ReadyLine { ready })
    }

    /// Says why it cannot; `unavailable` if it never can on this machine.
    ///
    /// # Errors
    /// If nobody hears it.
    pub fn fail(&mut self, message: &str, unavailable: bool) -> Result<(), TalkError> {
        self.say(&json!({ "error": { "message": message, "unavailable": unavailable } }))
    }

    /// Answers until the input ends.
    ///
    /// # Errors
    /// If the pipes break, or something else is asked.
    pub fn answer(&mut self) -> Result<(), TalkError> {
        while let Some(ask) = read(&mut self.input)? {
            match ask {
                Ask::Serve(_) => return Err(TalkError::Ask("\"serve\" a second time".into())),
                Ask::Begin(begin) => match self.audit.begin((&begin).into()) {
                    Ok(()) => {
                        if !begin.beside {
                            self.runs.clear();
                        }
                        self.runs.push((begin.run, begin.flows));
                        self.since_now();
                        self.say(&Done { ok: true })?;
                    }
                    Err(reason) => self.fail(&reason, false)?,
                },
                Ask::Start => {
                    self.runs.iter().for_each(|(run, _)| self.audit.start(*run));
                    self.since_now();
                    self.say(&Done { ok: true })?;
                }
                Ask::Count => {
                    let received = self.runs.iter().map(|(run, _)| self.audit.received(*run)).sum();
                    let handled = self.tallies.sum(|tally| &tally.datagrams);
                    self.say(&Count { received, handled })?;
                }
                Ask::End { sent_per_flow } => match self.end_runs(&sent_per_flow) {
                    Some(report) => {
                        let account = self.account(&report)?;
                        self.say(&account)?;
                    }
                    None => self.fail("no run is open", false)?,
                },
            }
        }
        Ok(())
    }

    /// Ends all runs; gives what came of all. The flows of each are numbered on behind those of the runs before it.
    fn end_runs(&mut self, sent_per_flow: &[u64]) -> Option<AuditReport> {
        let mut all: Option<AuditReport> = None;
        let (mut first, mut proof) = (0, Sieve::default());
        for (run, flows) in std::mem::take(&mut self.runs) {
            let sent = sent_per_flow.get(first..first + flows);
            let report = self.audit.end(run, sent)?;
            proof.add(&Sieve::of_flows_from(report.proof.clone(), first as u16));
            match &mut all {
                Some(all) => all.merge(report),
                none => *none = Some(report),
            }
            first += flows;
        }
        Some(AuditReport { proof: proof.shown(), ..all? })
    }

    fn since_now(&mut self) {
        self.entries_before = self.tallies.sum(|tally| &tally.kernel_entries);
        self.datagrams_before = self.tallies.sum(|tally| &tally.datagrams);
    }

    /// The audit's report, and what the program counted since the start of the run.
    fn account(&self, report: &AuditReport) -> Result<Value, TalkError> {
        let mut account = serde_json::to_value(report).map_err(io::Error::from)?;
        let entries = self.tallies.sum(|tally| &tally.kernel_entries) - self.entries_before;
        let datagrams = self.tallies.sum(|tally| &tally.datagrams) - self.datagrams_before;
        account["proof"] = serde_json::to_value(&report.proof).map_err(io::Error::from)?;
        account["counters"] = match entries {
            0 => json!({ "datagrams": datagrams }),
            _ => json!({ "datagrams": datagrams, "kernel_entries": entries }),
        };
        Ok(account)
    }

    fn say(&mut self, answer: &impl Serialize) -> Result<(), TalkError> {
        let mut line = serde_json::to_vec(answer).map_err(io::Error::from)?;
        line.push(b'\n');
        self.output.write_all(&line)?;
        Ok(self.output.flush()?)
    }
}

/// The next ask; `None` at the end of the input.
fn read(input: &mut impl BufRead) -> Result<Option<Ask>, TalkError> {
    let mut line = Vec::new();
    if input.take(ASK_BYTES_MAX).read_until(b'\n', &mut line)? == 0 {
        return Ok(None);
    }
    let ask = serde_json::from_slice(&line);
    ask.map(Some).map_err(|error| TalkError::Ask(error.to_string()))
}
