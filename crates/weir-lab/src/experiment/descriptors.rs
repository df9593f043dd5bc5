//! Whether a process may have as many descriptors as what is asked for takes (RLIMIT_NOFILE).
//!
//! What is known to be impossible is said before anything runs: a server that finds no descriptor for a
//! connection, and a client that waits for it, would only take time.

use std::fmt::Display;

use crate::experiment::cell::Skipped;
use crate::experiment::results::{Results, Study};

/// What a server or a client has open besides its connections or sockets, at least: its standard streams, and
/// a few rings, sets, events and counters of the system.
pub const BESIDES: u64 = 32;

/// Why a process that takes so many descriptors cannot run here, and what to do; `None` if it can.
pub fn missing(limit: Option<u64>, who: impl Display, takes: u64) -> Option<String> {
    let limit = limit.filter(|limit| *limit < takes)?;
    Some(format!(
        "{who} takes {takes} descriptors or more, and a process may have {limit} here: raise the limit \
         (ulimit -n {takes}, where the hard limit allows it)"
    ))
}

/// What is missing of what these take, besides what each process has open.
pub fn lacking(takes: Vec<(String, u64)>, limit: Option<u64>) -> Option<String> {
    takes.into_iter().find_map(|(who, count)| missing(limit, who, count + BESIDES))
}

/// Leaves out, under each load, the rows for which a process may not have the descriptors; what can be run under
/// no load cannot run here. Gives what that makes of the comparison, to be said before anything runs.
pub fn heed<K: Study>(results: &mut Results<K>, limit: Option<u64>) -> Vec<String> {
    let mut said: Vec<String> = vec![];
    for (load, cells) in results.loads.iter().zip(&mut results.cells) {
        for (row, cell) in results.rows.iter().zip(cells) {
            let Some(lacks) = lacking(K::descriptors(load, row), limit) else { continue };
            let of_load = format!("left out: {load}: {lacks}");
            if !said.contains(&of_load) {
                said.push(of_load);
            }
            cell.skipped = Some(Skipped::Unavailable(lacks));
        }
    }
    for (index, row) in results.rows.iter_mut().enumerate() {
        let reasons: Option<Vec<&Skipped>> =
            results.cells.iter().map(|cells| cells[index].skipped.as_ref()).collect();
        if let Some(reason) = reasons.as_ref().and_then(|all| all.first()) {
            row.unavailable.get_or_insert_with(|| reason.reason().clone());
        }
    }
    results.warnings.extend(said.iter().cloned());
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_said_with_what_to_do() {
        let said = missing(Some(64), "a server of 1000 connections", 1032).unwrap();
        assert!(said.starts_with("a server of 1000 connections takes 1032 descriptors or more"));
        assert!(said.contains("may have 64 here") && said.contains("ulimit -n 1032"), "{said}");
        assert_eq!(missing(Some(1032), "a server", 1032), None);
        assert_eq!(
            missing(None, "a server", u64::MAX),
            None,
            "where it is not known nothing is said"
        );
    }
}
