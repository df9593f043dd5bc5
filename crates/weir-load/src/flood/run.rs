//! The course of a flood.

use std::{net::SocketAddr, sync::Arc, thread};

use super::{
    FloodError, FloodSpec,
    answers::Expected,
    describe::describe,
    generator::{Generator, Live, Obtained, Setup},
    report::{Event, FloodReport, assemble},
    threads::{Senders, text_of},
};
use crate::{
    audit::{Audit, AuditSettings},
    clock::now_ns,
    control::{ClientSettings, ControlClient, RunEnd},
    engine::Blocking,
    lease::Lease,
    pacing::{self, Load},
    stop::Stop,
};

/// How long before its start a phase is handed to the generators, so that all are ready.
const LEAD_NS: u64 = 2_000_000;

/// Floods as specified; returns when it is over.
///
/// `stop` ends it early, and its report is whole then. `watch` is told how it goes, on the
/// calling thread.
///
/// # Errors
/// If it cannot begin. What happens later stands in the report.
pub fn flood(
    spec: &FloodSpec,
    stop: &Arc<Stop>,
    watch: impl FnMut(Event<'_>),
) -> Result<FloodReport, FloodError> {
    flood_from(spec, stop, &mut || Ok(now_ns() + LEAD_NS), watch)
}

/// The same, from the moments on that `start` gives, in ns of [`now_ns`]: it is asked when all is ready for the warm-up, if
/// there is one, and when all is ready for the flood. A moment that is over is as good as now.
///
/// # Errors
/// As [`flood`], and as `start`.
pub fn flood_from(
    spec: &FloodSpec,
    stop: &Arc<Stop>,
    start: &mut dyn FnMut() -> Result<u64, FloodError>,
    mut watch: impl FnMut(Event<'_>),
) -> Result<FloodReport, FloodError> {
    spec.check()?;
    let mut ports = spec.ports.clone();
    let control = match spec.control {
        None => None,
        Some(address) => {
            let settings = ClientSettings {
                any_build: spec.any_build,
                key: spec.key.clone(),
                ..ClientSettings::default()
            };
            let control = ControlClient::connect(address, &settings, Arc::clone(stop))?;
            let consent = control.ask(&spec.ask(), spec.target, &ports)?;
            if ports.is_empty() {
                ports = consent.ports;
                // More ports than flows: the first ones.
                ports.truncate(spec.flows_in_all());
            }
            Some(control)
        }
    };
    let audit = audit_of_answers(spec)?;
    let setups = setups(spec, &ports, audit.as_ref());
    let lives: Vec<Live> = setups.iter().map(|_| Live::default()).collect();
    let lease = control.as_ref().map_or_else(Arc::<Lease>::default, ControlClient::lease);
    // While datagrams leave, a server that was asked must give signs of life.
    let armed = || control.is_some().then(|| lease.arm(now_ns()));

    thread::scope(|scope| {
        // Dropping `senders` ends their threads, on every way out of here.
        let senders = Senders::start(scope, spec, &setups, &lives, stop, &lease)?;
        let obtained = senders.obtained()?;
        let quantum = quantum(spec, &obtained)?;
        watch(Event::Ready(&describe(spec, &ports, &obtained, quantum)));

        let mut warm_up_sent = 0;
        if let Some(run) = spec.warm_up_run() {
            let start_ns = start()?;
            let armed = armed();
            let outcomes =
                senders.run(run, quantum, (start_ns, spec.warm_up), None, &mut |_| {})?;
            drop(armed);
            warm_up_sent = outcomes.iter().map(|outcome| outcome.sent).sum();
        }
        if let Some(audit) = &audit {
            audit.start(spec.run);
        }
        if let Some(control) = &control {
            control.start(spec.run)?;
        }
        let time = (start()?, spec.duration);
        let armed = armed();
        let outcomes = senders.run(spec.run, quantum, time, spec.datagrams, &mut watch)?;
        drop(armed);
        let sent_per_flow: Vec<u64> =
            outcomes.iter().flat_map(|outcome| &outcome.sent_per_flow).copied().collect();
        let answers = audit.as_ref().and_then(|audit| audit.end(spec.run, Some(&sent_per_flow)));
        let mut report = assemble(spec, ports, obtained, quantum, outcomes, answers.as_ref(), stop);
        report.warm_up_sent = warm_up_sent;
        if let Some(control) = &control {
            let end = RunEnd {
                run: spec.run,
                sent_per_flow: report.sent_per_flow.clone(),
                refused: report.refused,
                late_skipped: report.late_skipped,
                cpu_ns: report.cpu_ns,
                elapsed_ns: report.elapsed_ns,
                secret: Some(senders.secret),
            };
            match control.end(end) {
                Ok(account) => report.reported(account),
                Err(error) => {
                    report.failure.get_or_insert_with(|| format!("no report: {error}"));
                }
            }
        }
        Ok(report)
    })
}

/// The settings that a flood would have, without sending anything or asking the server.
///
/// # Errors
/// As [`flood`], as far as that can be known beforehand.
pub fn settings(spec: &FloodSpec) -> Result<Vec<(&'static str, String)>, FloodError> {
    spec.check()?;
    // Connecting a UDP socket sends nothing, so any port serves to try the engine.
    const ANY: [u16; 1] = [9];
    let ports: &[u16] = if spec.ports.is_empty() { &ANY } else { &spec.ports };
    let audit = audit_of_answers(spec)?;
    let setup = setups(spec, ports, audit.as_ref()).swap_remove(0);
    // On a thread of its own: it may be bound to a core.
    let obtained = thread::scope(|scope| {
        let opening = scope.spawn(|| Generator::open(&setup).map(|generator| generator.obtained));
        opening.join().unwrap_or_else(|panic| Err(FloodError::Panicked(text_of(&*panic))))
    })?;
    Ok(describe(spec, &spec.ports, &obtained, quantum(spec, &obtained)?))
}

/// The account of the answers, where any are expected: every byte is compared, and every time taken.
fn audit_of_answers(spec: &FloodSpec) -> Result<Option<Arc<Audit>>, FloodError> {
    let Some(size_bytes) = spec.reply_bytes() else { return Ok(None) };
    let audit = Audit::new();
    let settings = AuditSettings {
        warm_up_run: spec.warm_up_run(),
        verify_every: 1,
        latency_every: 1,
        ..AuditSettings::new(spec.run, size_bytes, spec.flows_in_all(), true)
    };
    audit.begin(settings).map_err(FloodError::Spec)?;
    Ok(Some(audit))
}

fn setups(spec: &FloodSpec, ports: &[u16], audit: Option<&Arc<Audit>>) -> Vec<Setup> {
    let single_core = thread::available_parallelism().is_ok_and(|cores| cores.get() == 1);
    let closed = spec.load == Load::Saturation;
    // Who waits for room takes no answers meanwhile.
    let blocking = match closed && spec.replies.is_none() {
        true => Blocking::Yes,
        false => Blocking::No,
    };
    let answers = audit.zip(spec.replies).map(|(audit, replies)| Expected {
        audit: Arc::clone(audit),
        outstanding: closed.then_some(replies.outstanding),
        another_within_ns: u64::try_from(replies.another_within.as_nanos()).unwrap_or(u64::MAX),
    });
    let target = |flow: usize| SocketAddr::new(spec.target, ports[flow % ports.len()]);
    (0..spec.generators)
        .map(|number| {
            let first_flow = number * spec.flows;
            Setup {
                targets: (first_flow..first_flow + spec.flows).map(target).collect(),
                first_flow: first_flow as u16,
                size_bytes: spec.size_bytes,
                engine: spec.engine.clone(),
                blocking,
                core: spec.cores.get(number % spec.cores.len().max(1)).copied(),
                single_core,
                answers: answers.clone(),
            }
        })
        .collect()
}

fn quantum(spec: &FloodSpec, obtained: &Obtained) -> Result<u32, FloodError> {
    let Obtained { capacity, calls_per_s, .. } = *obtained;
    match (spec.quantum, spec.load.datagrams_per_s()) {
        (Some(asked), _) if asked > capacity => Err(FloodError::Spec(format!(
            "a quantum of {asked} (--quantum) is more than one call of the engine carries, \
             {capacity}"
        ))),
        (Some(asked), _) => Ok(asked),
        (None, None) => Ok(capacity),
        (None, Some(rate)) => {
            Ok(pacing::quantum(rate / spec.generators as f64, calls_per_s, capacity))
        }
    }
}
