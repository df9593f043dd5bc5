//! A list of cores, as people write it: `0`, `2,3`, `4-7`.

use std::str::FromStr;

use crate::exit::Failure;

/// The cores of a list, in rising order, each once; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cores(pub Vec<usize>);

/// No machine has more cores than the largest kernel can manage.
const MOST_CORES: usize = 8192;

impl FromStr for Cores {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("{text:?} is not a list of cores; give for instance 0 or 2,3 or 4-7");
        let number = |part: &str| {
            part.trim().parse::<usize>().ok().filter(|core| *core < MOST_CORES).ok_or_else(wrong)
        };
        let mut cores = vec![];
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (number(first)?, number(last)?);
            if first > last {
                return Err(wrong());
            }
            cores.extend(first..=last);
        }
        cores.sort_unstable();
        cores.dedup();
        Ok(Self(cores))
    }
}

/// What is said where no thread may be bound to a core.
pub fn unbound(why: &std::io::Error) -> String {
    format!(
        "this process may not bind threads to cores (sched_setaffinity: {why}): everything runs on any \
         core; allow it in the container's seccomp profile, or run outside it"
    )
}

/// The cores that were asked for, where threads may be bound to any. Where not, none, and a warning says so.
pub fn permitted(command: &str, asked: &[usize]) -> Vec<usize> {
    let forbidden = if asked.is_empty() { None } else { weir::affinity::forbidden() };
    match forbidden {
        None => asked.to_vec(),
        Some(why) => {
            say!("weir {command}: warning: {}", unbound(&why));
            vec![]
        }
    }
}

/// Keeps the calling thread, and those that it starts, to these cores. Where no thread may be bound it warns,
/// and gives why.
///
/// # Errors
/// If these cores are no such that this process may use.
pub fn keep_to(command: &str, Cores(cores): &Cores) -> Result<Option<String>, Failure> {
    let kept = weir::affinity::keep_to_where_permitted(cores).map_err(|error| {
        Failure::usage(format!(
            "cannot run on the cores {cores:?}: {error}; this process may use {:?}",
            weir::affinity::allowed_cores()
        ))
    })?;
    Ok(kept.map(|why| {
        say!("weir {command}: warning: {}", unbound(&why));
        format!("any ({why})")
    }))
}

/// Most cores that the server is given unless told otherwise.
pub const MOST_SERVER_CORES: usize = 8;

/// The server's cores and the generators' (or the client's), as they were asked for: the last cores are the generators', the server has
/// the others. Where there are too few, generators share one, and last of all with the server.
pub fn share_out(
    server: &Option<Cores>,
    generator: &Option<Cores>,
    generators: usize,
) -> Result<(Vec<usize>, Vec<usize>), Failure> {
    let allowed = weir::affinity::allowed_cores();
    let known = |core: &usize| allowed.contains(core);
    let asked = server.iter().chain(generator).flat_map(|Cores(cores)| cores);
    if let Some(core) = asked.into_iter().find(|core| !known(core)) {
        return Err(Failure::usage(format!(
            "this process may not use core {core}; it may use {allowed:?}"
        )));
    }
    let list = |asked: &Option<Cores>| asked.as_ref().map(|Cores(cores)| cores.clone());
    let (server_asked, generator_asked) = (list(server), list(generator));
    let generator = generator_asked.unwrap_or_else(|| {
        let taken = server_asked.clone().unwrap_or_default();
        let free = allowed.iter().rev().filter(|core| !taken.contains(core)).copied();
        // One is left to a server that did not ask for any.
        let spare = free.clone().count().saturating_sub(usize::from(server_asked.is_none())).max(1);
        let cores: Vec<usize> = free.take(generators.min(spare)).collect();
        if cores.is_empty() { allowed.last().copied().into_iter().collect() } else { cores }
    });
    let server = server_asked.unwrap_or_else(|| {
        let others: Vec<usize> = allowed
            .iter()
            .copied()
            .filter(|core| !generator.contains(core))
            .take(MOST_SERVER_CORES)
            .collect();
        if others.is_empty() { generator.clone() } else { others }
    });
    Ok((server, generator))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_ranges() {
        assert_eq!("0".parse(), Ok(Cores(vec![0])));
        assert_eq!("4-6,1,5".parse(), Ok(Cores(vec![1, 4, 5, 6])));
        for wrong in ["", "a", "3-1", "1,", "0-99999999", "-1"] {
            let error = wrong.parse::<Cores>().unwrap_err();
            assert!(error.contains("list of cores"), "{wrong:?}: {error}");
        }
    }
}
