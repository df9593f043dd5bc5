//! Ranks introduce themselves: nothing runs unless all are the same program.

use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::{Lost, Ranks};
use crate::control::Build;

/// Version of what ranks say to one another. What is said first, [`Hello`], is understood by all versions.
pub const PROTOCOL: u32 = 3;

/// The first that each rank says.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Hello {
    protocol: u32,
    version: String,
    /// Of the executable file; none if it could not be read.
    fingerprint: Option<String>,
}

impl Hello {
    fn own() -> Self {
        let Build { version, fingerprint } = Build::own().clone();
        Self { protocol: PROTOCOL, version, fingerprint }
    }
}

/// Why ranks do not make a run.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// Some are other programs.
    #[error("{0}")]
    Refused(String),
    /// One did not come.
    #[error(transparent)]
    Lost(#[from] Lost),
}

/// Holds all ranks against rank 0; every rank calls it first.
///
/// # Errors
/// Which ranks speak another protocol or are another build, which all ranks are told; or who did not come until then.
pub fn join(ranks: &dyn Ranks, any_build: bool, until: Instant) -> Result<(), JoinError> {
    introduce(ranks, &Hello::own(), any_build, until)
}

fn introduce(
    ranks: &dyn Ranks,
    own: &Hello,
    any_build: bool,
    until: Instant,
) -> Result<(), JoinError> {
    let said = serde_json::to_vec(own).expect("it has no keys but texts");
    let refusal = ranks.gather(&said, until)?.map(|all| {
        let others = all.iter().enumerate().skip(1);
        let refused = others.filter_map(|(rank, said)| {
            let problem = problem(own, said, any_build)?;
            Some(format!("rank {rank} on {} {problem}", ranks.host(rank)))
        });
        refused.collect::<Vec<_>>().join("; ")
    });
    let refusal = ranks.broadcast(0, refusal.unwrap_or_default().into_bytes(), until)?;
    match refusal.is_empty() {
        true => Ok(()),
        false => Err(JoinError::Refused(String::from_utf8_lossy(&refusal).into_owned())),
    }
}

/// Why a rank that said this cannot take part.
fn problem(own: &Hello, said: &[u8], any_build: bool) -> Option<String> {
    let theirs: Hello = match serde_json::from_slice(said) {
        Ok(theirs) => theirs,
        Err(_) => return Some("does not introduce itself as weir does".into()),
    };
    if theirs.protocol != own.protocol {
        return Some(format!(
            "speaks protocol {} of ranks, and rank 0 speaks {}; put the same weir on all hosts",
            theirs.protocol, own.protocol
        ));
    }
    let same = own.fingerprint.is_some() && theirs.fingerprint == own.fingerprint;
    if !same && !any_build {
        let (its, ours) = (&theirs.version, &own.version);
        return Some(format!(
            "is another build (version {its}) than rank 0 (version {ours}); put the same file on all hosts, or give \
             --any-build"
        ));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ranks::memory;
    use std::{thread, time::Duration};

    fn outcome(others: Hello, any_build: bool) -> Vec<Result<(), String>> {
        let until = Instant::now() + Duration::from_secs(60);
        thread::scope(|scope| {
            let all = memory::ranks(["a", "b", "c"]).into_iter().map(|rank| {
                let own = if rank.rank() == 2 { others.clone() } else { Hello::own() };
                scope.spawn(move || {
                    let joined = introduce(&rank, &own, any_build, until);
                    joined.map_err(|error| error.to_string())
                })
            });
            let all: Vec<_> = all.collect();
            all.into_iter().map(|rank| rank.join().expect("no panic")).collect()
        })
    }

    #[test]
    fn the_same_build_is_taken_and_another_is_named_to_all() {
        assert!(outcome(Hello::own(), false).iter().all(Result::is_ok));
        let other = Hello { fingerprint: Some("0".into()), ..Hello::own() };
        assert!(outcome(other.clone(), true).iter().all(Result::is_ok));
        let old = Hello { protocol: PROTOCOL + 1, ..Hello::own() };
        let unknown = Hello { fingerprint: None, ..Hello::own() };
        for (said, any_build, word) in [
            (other, false, "another build"),
            (unknown, false, "another build"),
            (old, true, "protocol"),
        ] {
            for refused in outcome(said.clone(), any_build) {
                let refusal = refused.unwrap_err();
                assert!(refusal.starts_with("rank 2 on c") && refusal.contains(word), "{refusal}");
            }
        }
    }

    #[test]
    fn what_is_no_weir_is_refused() {
        let own = Hello::own();
        assert!(problem(&own, b"hello", true).unwrap().contains("does not introduce itself"));
    }
}
