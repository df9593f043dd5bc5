//! One generator: a thread with its flows, its engine and its pacer.

use std::net::SocketAddr;

use weir::{Unavailable, affinity, counters::Counter};

use super::FloodError;
use crate::{
    clock::{now_ns, thread_cpu_ns},
    engine::{self, Batch, Best, Blocking, Engine, Head, Lane, Refusals},
    lease::Lease,
    pacing::{Due, Pacer, Windows, wait::Waiter},
    proof::Secret,
    stop::{Stop, StopReason},
};

/// How often a generator whose lease has lapsed looks whether it was renewed.
const LAPSED_LOOK_NS: u64 = 1_000_000;

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
}

/// What can be read while it runs. On cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Live {
    pub offered: Counter,
    pub sent: Counter,
    pub refused: Counter,
    pub late_skipped: Counter,
}

pub(super) struct Generator {
    lanes: Vec<Lane>,
    engine: Box<dyn Engine>,
    waiter: Waiter,
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
        let obtained = Obtained {
            engine: about.name,
            capacity: engine.capacity(),
            calls_per_s: engine.calls_per_s(),
            settings: engine.settings(),
            passed_over,
            send_buffer_bytes: lanes.first().map_or(0, |lane| lane.send_buffer_bytes),
        };
        Ok(Self { lanes, engine, waiter: Waiter::for_current_thread(setup.single_core), obtained })
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
        let Self { lanes, engine, waiter, .. } = self;
        let quantum = phase.quantum.min(engine.capacity());
        let mut pace = phase.datagrams_per_s.map(|rate| {
            (Pacer::new(rate, quantum, phase.start_ns), Windows::new(rate, quantum, phase.start_ns))
        });
        let mut sequences = vec![0u64; lanes.len()];
        let mut outcome = Outcome { sent_per_flow: vec![0; lanes.len()], ..Outcome::default() };
        let mut turn = 0;

        let mut now = waiter.wait(phase.start_ns, stop);
        let cpu_before_ns = thread_cpu_ns();
        outcome.started_ns = now;
        while outcome.offered < phase.datagrams && !stop.is_requested() {
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
            let due_ns = match &mut pace {
                None => now,
                Some((pacer, _)) => match pacer.poll(now) {
                    Due::At { ns } => {
                        now = waiter.wait(ns.min(phase.end_ns), stop);
                        if now >= phase.end_ns {
                            break;
                        }
                        continue;
                    }
                    Due::Now { due_ns, skipped } => {
                        outcome.late_skipped += skipped;
                        live.late_skipped.add(skipped);
                        due_ns
                    }
                },
            };
            if now >= phase.end_ns {
                break;
            }
            let left = phase.datagrams - outcome.offered;
            let batch = Batch {
                run: phase.run,
                flow: lanes[turn].flow,
                first_sequence: sequences[turn],
                due_ns,
                datagrams: quantum.min(left.min(u64::from(u32::MAX)) as u32),
                secret: phase.secret,
                head: phase.head,
            };
            // Counted before the engine says what became of it, so that the two can differ.
            let offered = u64::from(batch.datagrams);
            outcome.offered += offered;
            let sent = engine.send(&lanes[turn], &batch);
            live.offered.add(offered);
            if sent.sent > 0 {
                // A batch refused as a whole leaves no gap in the sequence.
                sequences[turn] += u64::from(batch.datagrams);
            }
            outcome.sent += u64::from(sent.sent);
            outcome.sent_per_flow[turn] += u64::from(sent.sent);
            live.sent.add(u64::from(sent.sent));
            if let Some(refusal) = sent.refusal {
                outcome.refusals.add(refusal, u64::from(sent.refused));
                live.refused.add(u64::from(sent.refused));
            }
            if let Some((_, windows)) = &mut pace {
                windows.record(now, offered);
            }
            if let Some(error) = sent.failure {
                outcome.refusals.failed += u64::from(sent.failed);
                live.refused.add(u64::from(sent.failed));
                let (engine, target) = (self.obtained.engine, lanes[turn].target);
                outcome.failure = Some(format!(
                    "the engine {engine} failed to send to {target}: {error}{}",
                    advice(&error)
                ));
                stop.request(StopReason::Failed);
                break;
            }
            turn = if turn + 1 == lanes.len() { 0 } else { turn + 1 };
        }
        outcome.ended_ns = now_ns();
        outcome.cpu_ns = cpu_before_ns.zip(thread_cpu_ns()).map(|(before, after)| after - before);
        if let Some((_, mut windows)) = pace {
            windows.finish(outcome.ended_ns.min(phase.end_ns));
            (outcome.windows, outcome.windows_within) = (windows.count(), windows.within());
        }
        outcome
    }
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
