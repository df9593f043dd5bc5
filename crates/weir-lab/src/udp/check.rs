//! The check of a row before it is timed: a paced flood of which every byte is verified and accounted for, then
//! an echo of all sizes.

use weir_load::peer::setting;

use super::bench::{Bench, Extent, Made, Run};
use super::exchange::Echoed;
use super::plan::{Load, Rate};
use super::sample::{Circumstances, Sample};
use crate::experiment::course::RunError;
use crate::experiment::plan::Row;
use crate::report::words::number_of;
use crate::wire::{FloodReport, ServerReport};

/// Datagrams of a check, and the flows they come from.
const CHECK: Extent = Extent::Checked { datagrams: 1000, flows: 4 };

/// What a row was checked with, and passed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Checked {
    /// A design of weir's: by echo, too.
    Design(Echoed),
    /// A peer answers nothing: it was only made to receive.
    Peer {
        /// What it says that it stands on.
        library: Option<String>,
    },
}

/// Checks a row that is to be run under these loads.
///
/// # Errors
/// [`RunError::Disturbed`] where the account does not add up, which may be others' doing; that wrong data came is
/// the row's own.
pub fn of(bench: &mut dyn Bench, row: &Row, loads: &[Load]) -> Result<Checked, RunError> {
    // Slices are as long as the longest datagrams, so those are checked; else it is the base.
    let longest = loads.iter().map(|load| load.size_bytes).max().unwrap_or_default();
    let Some(base) = loads.first().map(|base| base.at(Rate::Saturation)) else {
        return Err(RunError::Failed("there is no load to check it with".into()));
    };
    let receive_offload = base.receive_offload || row.receive_offload;
    let load = Load { size_bytes: longest, receive_offload, ..base };
    let load = match row.peer {
        None => load,
        // One that cannot have several ports or work is there under the other loads.
        Some(_) => Load { ports: 1, work: Default::default(), ..load },
    };
    let Made { server, flood, .. } = bench.run_once(&Run { row, load: &load, extent: CHECK })?;
    conforms(&server, &flood)?;
    match row.peer {
        None => Ok(Checked::Design(bench.echo(row, &load)?)),
        Some(_) => Ok(Checked::Peer { library: server.settings.get(setting::LIBRARY).cloned() }),
    }
}

/// Whether every datagram of a check arrived once and whole, or is accounted for as dropped
/// by the kernel before the design could see it.
///
/// # Errors
/// [`RunError::Disturbed`] where it does not add up, or nothing was sent.
fn conforms(server: &ServerReport, flood: &FloodReport) -> Result<(), RunError> {
    let at = Circumstances { answered: flood.answers.is_some(), ..Circumstances::default() };
    let sample = Sample::of(&at, server, flood);
    let unanswered = flood.answers.as_ref().map_or(0, |answers| answers.missing);
    let unexplained = sample.ledger.unexplained();
    let strangers = server.audit.strangers;
    let failed = |reason: String| Err(RunError::Failed(reason));
    if flood.sent == 0 {
        // One that gets no core in the time of a check sends nothing.
        Err(RunError::Disturbed("the generator sent nothing".into()))
    } else if server.audit.received == 0 {
        let (sent, seen) = (flood.sent, seen_elsewhere(server, flood));
        failed(format!("none of {sent} datagrams reached the handler ({seen})"))
    } else if let Some(reason) = sample.disproved() {
        failed(reason)
    } else if let Some(error) = sample.data_error() {
        failed(error)
    } else if unexplained != 0 {
        let text = format!(
            "sent {}, received {}, dropped {}: {unexplained} unexplained",
            flood.sent,
            server.audit.received,
            sample.ledger.dropped()
        );
        let text = format!("{text} ({})", seen_elsewhere(server, flood));
        // A machine that is busy may lose some where nobody counts them, and strangers may have sent some.
        let beside = match strangers {
            0 => String::new(),
            n => format!(", beside {} of strangers", number_of(n as usize, "datagram")),
        };
        Err(RunError::Disturbed(text + &beside))
    } else if unanswered > flood.sent.saturating_sub(server.audit.received) {
        let back = unanswered - flood.sent.saturating_sub(server.audit.received);
        Err(RunError::Disturbed(format!(
            "{back} of {} datagrams that the server received were not answered",
            server.audit.received
        )))
    } else if !server.end_signalled {
        failed("the server did not see the end of the run".into())
    } else {
        Ok(())
    }
}

/// Where datagrams were seen that are missing in the account, and what is known of each place: it tells a server that
/// was given no core from one that lost what it had, and from datagrams that went elsewhere.
fn seen_elsewhere(server: &ServerReport, flood: &FloodReport) -> String {
    let known = |count: Option<u64>| count.map_or("?".into(), |count| count.to_string());
    let counted = |name: &str| known(server.counters.get(name).copied());
    let (audit, system) = (&server.audit, &server.system);
    let mut seen = format!(
        "the server took {} in {} dequeues, {} of strangers and {} damaged; {} bytes are left in its sockets; on the \
         whole machine {} came to a port that nobody had; the generator was refused {}",
        counted("datagrams"),
        counted("dequeues"),
        audit.strangers,
        audit.corrupt,
        known(system.queued_bytes),
        known(system.no_port),
        flood.refused,
    );
    if let Some(reason) = &server.cut_short {
        seen += "; ";
        seen += reason;
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Audit, SystemReport};

    /// What a check says of a thousand datagrams of which so many came, strangers among them.
    fn said(received: u64, strangers: u64, left_bytes: Option<u64>) -> String {
        let flood = FloodReport { offered: 1000, sent: 1000, ..FloodReport::default() };
        let counters = [("datagrams", received + strangers), ("dequeues", 3)];
        let server = ServerReport {
            end_signalled: true,
            counters: counters.map(|(name, count)| (name.to_owned(), count)).into(),
            audit: Audit { received, strangers, ..Audit::default() },
            system: SystemReport {
                dropped_socket: Some(0),
                dropped_device: Some(0),
                dropped_cpu_queue: Some(0),
                queued_bytes: left_bytes,
                no_port: Some(17),
                ..SystemReport::default()
            },
            ..ServerReport::default()
        };
        match conforms(&server, &flood) {
            Err(RunError::Failed(reason) | RunError::Disturbed(reason)) => reason,
            other => panic!("some are missing: {other:?}"),
        }
    }

    #[test]
    fn a_check_that_fails_says_where_datagrams_were_seen() {
        let starved = said(0, 0, Some(64_000));
        assert!(starved.starts_with("none of 1000 datagrams reached the handler"), "{starved}");
        assert!(
            starved.contains("took 0 in 3 dequeues") && starved.contains("64000 bytes"),
            "{starved}"
        );
        assert!(starved.contains("17 came to a port that nobody had"), "{starved}");
        let strange = said(0, 1000, None);
        assert!(
            strange.contains("took 1000") && strange.contains("1000 of strangers"),
            "{strange}"
        );
        assert!(strange.contains("? bytes are left"), "what is not known is not 0: {strange}");
        let some = said(990, 0, Some(0));
        assert!(some.contains("10 unexplained") && some.contains("took 990"), "{some}");
    }
}
