//! One generator: a thread with its flows, its engine and its pacer.

use std::{
    net::SocketAddr,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use weir::{Unavailable, affinity, counters::Counter};

use super::{
    FloodError,
    answers::{Expected, Found, Taker},
};
use crate::{
    clock::{now_ns, thread_cpu_ns},
    engine::{self, Batch, Best, Blocking, Engine, Head, Lane, Refusals},
    lease::Lease,
    pacing::{Arrivals, Due, Pacer, Windows, wait::Waiter},
    proof::Secret,
    stop::{Stop, StopReason},
};

/// How often a generator whose lease has lapsed looks whether it was renewed.
const LAPSED_LOOK_NS: u64 = 1_000_000;
/// How long one that waits for its next datagram makes no turn at most.
const TURN_WITHIN_NS: u64 = 500_000_000;

/// What one generator is made of.
#[derive(Debug, Clone)]
pub(super) struct Setup {
    pub targets: Vec<SocketAddr>,
    pub first_flow: u16,
    pub size_bytes: usize,
    pub engine: Option<String>,
    pub blocking: Blocking,
    pub core: Option<usize>,
    pub single_core: bool,
    /// Where answers are expected: what is to be known of them.
    pub answers: Option<Expected>,
}

/// What became of a set-up.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Obtained {
    pub engine: &'static str,
    pub capacity: u32,
    pub calls_per_s: f64,
    pub settings: Vec<(&'static str, String)>,
    pub passed_over: Vec<Unavailable>,
    pub send_buffer_bytes: usize,
}

/// A flood, or the warm-up before it, as one generator sees it.
#[derive(Debug, Clone)]
pub(super) struct Phase {
    pub run: u32,
    /// Datagrams per second of this generator; none: saturation.
    pub datagrams_per_s: Option<f64>,
    pub arrivals: Arrivals,
    /// Where the gaps of a Poisson process begin.
    pub seed: u64,
    /// Datagrams per call.
    pub quantum: u32,
    pub start_ns: u64,
    pub end_ns: u64,
    pub datagrams: u64,
    /// What the proofs of reading in its datagrams are made of.
    pub secret: Secret,
    /// Written over the beginning of each datagram.
    pub head: Head,
}

/// What one generator did in a phase.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub sent_per_flow: Vec<u64>,
    pub offered: u64,
    pub sent: u64,
    pub refusals: Refusals,
    pub late_skipped: u64,
    pub windows: u64,
    pub windows_within: u64,
    pub started_ns: u64,
    pub ended_ns: u64,
    pub cpu_ns: Option<u64>,
    pub failure: Option<String>,
    /// What it found in the answers, where any were expected.
    pub found: Option<Found>,
}

/// What can be read while it runs. On cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Live {
    pub offered: Counter,
    pub sent: Counter,
    pub refused: Counter,
    pub late_skipped: Counter,
    /// How often it has looked whether it is over.
    turns: Counter,
    /// Whether it floods.
    floods: AtomicBool,
}

impl Live {
    /// The turns that it has made, while it floods.
    pub(super) fn turns(&self) -> Option<u64> {
        self.floods.load(Relaxed).then(|| self.turns.get())
    }
}

pub(super) struct Generator {
    lanes: Vec<Lane>,
    engine: Box<dyn Engine>,
    waiter: Waiter,
    /// Where answers are expected.
    taker: Option<Taker>,
    pub obtained: Obtained,
}

impl Generator {
    /// Opens it on the current thread, which it then belongs to.
    pub(super) fn open(setup: &Setup) -> Result<Self, FloodError> {
        if let Some(core) = setup.core {
            affinity::pin_current_thread(core)
                .map_err(|source| FloodError::Pin { core, source })?;
        }
        let lanes = (setup.first_flow..)
            .zip(&setup.targets)
            .map(|(flow, &target)| {
                Lane::connect(target, flow, setup.blocking)
                    .map_err(|source| FloodError::Lane { target, source })
            })
            .collect::<Result<Vec<_>, _>>()?;
        let Best { about, engine, passed_over } = match &setup.engine {
            None => engine::open_best(setup.size_bytes, &lanes)?,
            Some(name) => {
                let about = engine::named(name)?;
                let engine = (about.open)(setup.size_bytes, &lanes)?;
                Best { about, engine, passed_over: Vec::new() }
            }
        };
        let taker = setup.answers.as_ref().map(|expected| Taker::open(expected, &lanes));
        let no_answers = |source| FloodError::Lane { target: setup.targets[0], source };
        let taker = taker.transpose().map_err(no_answers)?;
        let mut settings = engine.settings();
        settings.extend(taker.as_ref().map(|taker| {
            let together = if taker.are_taken_together() { "yes" } else { "no" };
            ("answers taken together", together.to_owned())
        }));
        let obtained = Obtained {
            engine: about.name,
            capacity: engine.capacity(),
            calls_per_s: engine.calls_per_s(),
            settings,
            passed_over,
            send_buffer_bytes: lanes.first().map_or(0, |lane| lane.send_buffer_bytes),
        };
        let waiter = Waiter::for_current_thread(setup.single_core);
        Ok(Self { lanes, engine, waiter, taker, obtained })
    }

    /// Floods until the phase is over or a stop is requested; while the lease has lapsed, nothing
    /// leaves.
    pub(super) fn run(
        &mut self,
        phase: &Phase,
        live: &Live,
        stop: &Stop,
        lease: &Lease,
    ) -> Outcome {
        let Self { lanes, engine, waiter, taker, obtained } = self;
        let quantum = phase.quantum.min(engine.capacity());
        let mut pace = phase.datagrams_per_s.map(|rate| match phase.arrivals {
            Arrivals::Even => (
                Pacer::new(rate, quantum, phase.start_ns),
                Windows::new(rate, quantum, phase.start_ns),
            ),
            Arrivals::Poisson => (
                Pacer::poisson(rate, quantum, phase.start_ns, phase.seed),
                Windows::of_due(quantum, phase.start_ns),
            ),
        });
        let mut sending = Sending {
            phase,
            lanes,
            engine: engine.as_mut(),
            engine_name: obtained.engine,
            sequences: vec![0; lanes.len()],
            outcome: Outcome { sent_per_flow: vec![0; lanes.len()], ..Outcome::default() },
            live,
        };
        if let Some(taker) = taker {
            taker.begin(lanes, phase.run, phase.secret, phase.end_ns);
        }
        let now = waiter.wait(phase.start_ns, stop);
        let cpu_before_ns = thread_cpu_ns();
        sending.outcome.started_ns = now;
        live.floods.store(true, Relaxed);
        let went = match taker {
            None => sending.flood(quantum, &mut pace, waiter, (stop, lease), now),
            Some(taker) => sending.ask(quantum, &mut pace, taker, waiter, (stop, lease)),
        };
        live.floods.store(false, Relaxed);
        let mut outcome = sending.outcome;
        outcome.ended_ns = now_ns();
        outcome.cpu_ns = cpu_before_ns.zip(thread_cpu_ns()).map(|(before, after)| after - before);
        if let Some((_, mut windows)) = pace {
            windows.finish(outcome.ended_ns.min(phase.end_ns));
            (outcome.windows, outcome.windows_within) = (windows.count(), windows.within());
        }
        let mut failure = went.err();
        if let Some(taker) = taker {
            if failure.is_none() {
                let took = taker.take_rest(lanes, outcome.sent, waiter);
                failure = took.err().map(|error| no_answer(&error));
            }
            outcome.found = Some(taker.end(lanes));
        }
        if failure.is_some() {
            outcome.failure = failure;
            stop.request(StopReason::Failed);
        }
        outcome
    }
}

type Pace = Option<(Pacer, Windows)>;

/// A phase while it lasts.
struct Sending<'a> {
    phase: &'a Phase,
    lanes: &'a [Lane],
    engine: &'a mut dyn Engine,
    engine_name: &'static str,
    sequences: Vec<u64>,
    outcome: Outcome,
    live: &'a Live,
}

impl Sending<'_> {
    fn is_over(&self, stop: &Stop) -> bool {
        self.live.turns.add(1);
        self.outcome.offered >= self.phase.datagrams || stop.is_requested()
    }

    /// Sends whatever comes back.
    ///
    /// # Errors
    /// What ended it.
    fn flood(
        &mut self,
        quantum: u32,
        pace: &mut Pace,
        waiter: &Waiter,
        (stop, lease): (&Stop, &Lease),
        mut now: u64,
    ) -> Result<(), String> {
        let phase = self.phase;
        let mut turn = 0;
        while !self.is_over(stop) {
            if pace.is_none() {
                now = now_ns();
            }
            if !lease.holds(now) {
                if now >= phase.end_ns {
                    break;
                }
                now = waiter.wait(now + LAPSED_LOOK_NS, stop);
                continue;
            }
            let due_ns = match pace {
                None => now,
                Some((pacer, windows)) => match pacer.poll(now) {
                    Due::At { ns } => {
                        now = waiter.wait(ns.min(phase.end_ns).min(now + TURN_WITHIN_NS), stop);
                        if now >= phase.end_ns {
                            break;
                        }
                        continue;
                    }
                    Due::Now { due_ns, skipped } => {
                        self.skipped(skipped);
                        windows.due(due_ns, skipped + u64::from(quantum));
                        due_ns
                    }
                },
            };
            if now >= phase.end_ns {
                break;
            }
            let (offered, ..) = self.send(turn, due_ns, quantum)?;
            if let Some((_, windows)) = pace {
                windows.record(now, offered.into());
            }
            turn = if turn + 1 == self.lanes.len() { 0 } else { turn + 1 };
        }
        Ok(())
    }

    /// Sends, and takes the answers meanwhile: without a pace, so many requests as may be under way; with one, each
    /// request at its time, whatever came back by then.
    ///
    /// # Errors
    /// What ended it.
    fn ask(
        &mut self,
        quantum: u32,
        pace: &mut Pace,
        taker: &mut Taker,
        waiter: &Waiter,
        (stop, lease): (&Stop, &Lease),
    ) -> Result<(), String> {
        let phase = self.phase;
        let mut turn = 0;
        while !self.is_over(stop) {
            let now = now_ns();
            if now >= phase.end_ns {
                break;
            }
            let mut busy = taker.take(self.lanes, now).map_err(|error| no_answer(&error))?;
            let due = match pace {
                _ if !lease.holds(now) => None,
                None => {
                    let room = taker.room(turn).unwrap_or(quantum).min(quantum);
                    // Read just before the call, as at saturation.
                    (room > 0).then(|| (now_ns(), room))
                }
                Some((pacer, windows)) => match pacer.poll(now) {
                    Due::At { .. } => None,
                    Due::Now { due_ns, skipped } => {
                        self.skipped(skipped);
                        windows.due(due_ns, skipped + u64::from(quantum));
                        Some((due_ns, quantum))
                    }
                },
            };
            if let Some((due_ns, most)) = due {
                let first = self.sequences[turn];
                let (offered, sent) = self.send(turn, due_ns, most)?;
                if sent > 0 {
                    taker.sent(turn, first, sent, offered);
                }
                if let Some((_, windows)) = pace {
                    windows.record(now, offered.into());
                }
                busy = true;
            }
            if due.is_some() || pace.is_none() {
                turn = if turn + 1 == self.lanes.len() { 0 } else { turn + 1 };
            }
            taker.note(busy, now);
            if !busy {
                waiter.pause();
            }
        }
        Ok(())
    }

    fn skipped(&mut self, datagrams: u64) {
        self.outcome.late_skipped += datagrams;
        self.live.late_skipped.add(datagrams);
    }

    /// Sends at most so many on a lane; gives how many were offered to the engine, and how many it sent.
    ///
    /// # Errors
    /// What ends the flood.
    fn send(&mut self, turn: usize, due_ns: u64, most: u32) -> Result<(u32, u32), String> {
        let Self { phase, lanes, outcome, live, .. } = self;
        let left = phase.datagrams - outcome.offered;
        let batch = Batch {
            run: phase.run,
            flow: lanes[turn].flow,
            first_sequence: self.sequences[turn],
            due_ns,
            datagrams: most.min(left.min(u64::from(u32::MAX)) as u32),
            secret: phase.secret,
            head: phase.head,
        };
        // Counted before the engine says what became of it, so that the two can differ.
        outcome.offered += u64::from(batch.datagrams);
        let sent = self.engine.send(&lanes[turn], &batch);
        live.offered.add(u64::from(batch.datagrams));
        if sent.sent > 0 {
            // A batch refused as a whole leaves no gap in the sequence.
            self.sequences[turn] += u64::from(batch.datagrams);
        }
        outcome.sent += u64::from(sent.sent);
        outcome.sent_per_flow[turn] += u64::from(sent.sent);
        live.sent.add(u64::from(sent.sent));
        if let Some(refusal) = sent.refusal {
            outcome.refusals.add(refusal, u64::from(sent.refused));
            live.refused.add(u64::from(sent.refused));
        }
        let Some(error) = sent.failure else { return Ok((batch.datagrams, sent.sent)) };
        outcome.refusals.failed += u64::from(sent.failed);
        live.refused.add(u64::from(sent.failed));
        let (engine, target) = (self.engine_name, lanes[turn].target);
        Err(format!("the engine {engine} failed to send to {target}: {error}{}", advice(&error)))
    }
}

fn no_answer(error: &std::io::Error) -> String {
    format!("receiving the answers failed: {error}")
}

fn advice(error: &std::io::Error) -> &'static str {
    match error.kind() {
        std::io::ErrorKind::PermissionDenied => "; a firewall rule of this machine forbids it",
        std::io::ErrorKind::InvalidInput | std::io::ErrorKind::ArgumentListTooLong => {
            "; try --engine sendmmsg, or smaller datagrams"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests;
