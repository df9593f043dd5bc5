//! Whether a process may have as many descriptors as what is asked for takes (RLIMIT_NOFILE).
//!
//! What is known to be impossible is said before anything runs: a server that finds no descriptor for a
//! connection, and a client that waits for it, would only take time.

use std::fmt::Display;

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
