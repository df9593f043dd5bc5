//! What differs from rank to rank, and how each knows it by itself.
//!
//! What a rank is for is told to all once, when they have met ([`Own`]). From then on an order to all generators is one text:
//! where a word differs a mark stands in its place, which each replaces by its own.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use weir_load::ranks::clocks::Offset;

use super::Hosts;
use crate::udp::together::share;

/// What a rank has to itself, and what it tells of what it shares.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Own {
    /// The cores of what it runs.
    pub cores: Vec<usize>,
    /// Whether its clock is known to be that of the server.
    pub has_server_clock: bool,
    /// Whether it is the one of its host that says how busy that is.
    pub tells_of_host: bool,
    /// Whether it is the one of those that send by a device that says what this drops.
    pub tells_of_device: bool,
    /// Of the one that says how busy its host is: which generators are there, and whether the server is.
    pub generators_here: Vec<usize>,
    /// See `generators_here`.
    pub is_server_here: bool,
}

impl Own {
    /// CPU time of all children on its host, in ns, where so many generators took part, the first ones: those of one host are
    /// alike.
    pub fn cpu_ns(&self, generator_ns: u64, parts: usize, server_ns: u64) -> u64 {
        let took_part = self.generators_here.iter().filter(|index| **index < parts);
        let of_generators = took_part.count() as u64 * generator_ns;
        of_generators + if self.is_server_here { server_ns } else { 0 }
    }
}

/// What each rank has, of hosts that are told apart by these names, and clocks likewise.
pub fn of_all(hosts: &Hosts, host_ids: &[String], clock_ids: &[Option<String>]) -> Vec<Own> {
    let server = &hosts.server;
    let mut all = vec![Own::default(); host_ids.len()];
    let (mut told, mut devices) = (BTreeSet::new(), BTreeSet::new());
    // The server last: it does not know what generators beside it need.
    for (host, sends) in hosts.generators.iter().map(|host| (host, true)).chain([(server, false)]) {
        let id = &host_ids[host.rank];
        let is_here = |rank: usize| host_ids[rank] == *id;
        let clock = &clock_ids[host.rank];
        let tells_of_host = told.insert(id);
        let generators = hosts.generators.iter().enumerate();
        let here = generators.filter(|(_, of)| tells_of_host && is_here(of.rank));
        all[host.rank] = Own {
            cores: host.cores.clone(),
            has_server_clock: host.rank == server.rank
                || clock.is_some() && *clock == clock_ids[server.rank],
            tells_of_host,
            tells_of_device: sends && devices.insert((id, host.link.address)),
            generators_here: here.map(|(index, _)| index).collect(),
            is_server_here: tells_of_host && is_here(server.rank),
        };
    }
    all
}

/// Which of the generators a rank is, from 0; none is the server.
pub fn index(rank: usize, server: usize) -> Option<usize> {
    (rank != server).then(|| rank - usize::from(rank > server))
}

/// The one rank whose clock rank 0 hears: the server's, or if that is its own the first generator's, which says when the
/// first of all has ended.
pub fn heard_at_root(server: usize) -> usize {
    server.max(1)
}

/// Stands for the options that bind to the rank's cores,
pub const CORES: &str = "{cores}";
/// for the one that has as many threads,
pub const THREADS: &str = "{threads}";
/// and for what the rank's clock and that of the server showed at one moment.
pub const CLOCKS: &str = "{clocks}";

/// Stands for what a rank has of a number that goes with another one, which is divided as evenly as can be; 1 at least.
pub fn part(number: u64, of: u64) -> String {
    format!("{PART}{number} of {of}}}")
}

const PART: &str = "{part ";

/// One of the generators that take part.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// Which.
    pub index: usize,
    /// How many there are.
    pub of: usize,
    /// Its cores.
    pub cores: &'a [usize],
    /// Its clock, as that of the server sees it.
    pub clock: Offset,
}

impl Place<'_> {
    /// The words with its own in place of what stands for them.
    pub fn words(&self, words: &[String]) -> Vec<String> {
        words.iter().flat_map(|word| self.word(word)).collect()
    }

    fn word(&self, word: &str) -> Vec<String> {
        let option = |name: &str, value: String| vec![name.to_owned(), value];
        let cores = self.cores;
        match word {
            CORES if cores.is_empty() => vec![],
            CORES => {
                let list: Vec<String> = cores.iter().map(usize::to_string).collect();
                option("--cpu", list.join(","))
            }
            THREADS if cores.len() < 2 => vec![],
            THREADS => option("--threads", cores.len().to_string()),
            CLOCKS => {
                let offset_ns = self.clock.offset_ns;
                vec![format!("{}:{}", offset_ns.max(0), offset_ns.saturating_neg().max(0))]
            }
            _ => vec![self.part(word).unwrap_or_else(|| word.to_owned())],
        }
    }

    fn part(&self, word: &str) -> Option<String> {
        let (number, of) = word.strip_prefix(PART)?.strip_suffix('}')?.split_once(" of ")?;
        let (number, of): (u64, u64) = (number.parse().ok()?, of.parse().ok()?);
        let own = u128::from(number) * u128::from(share(of, self.index, self.of));
        Some((own / u128::from(of.max(1))).max(1).to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hosts::{Host, Link};

    #[test]
    fn a_rank_puts_its_own_in_place_of_what_stands_for_it() {
        let words = ["flood", CORES, THREADS, "-k", &part(10, 10), "-r", &part(1000, 10), CLOCKS];
        let words: Vec<String> = words.map(String::from).into();
        let clock = Offset { offset_ns: -70, uncertainty_ns: 1 };
        let one = Place { index: 1, of: 4, cores: &[3, 5], clock };
        let told = "flood --cpu 3,5 --threads 2 -k 3 -r 300 0:70";
        assert_eq!(one.words(&words).join(" "), told);
        let last = Place { index: 3, of: 4, cores: &[], clock: Offset::default() };
        assert_eq!(last.words(&words).join(" "), "flood -k 2 -r 200 0:0");
        let few = Place { index: 3, of: 20, ..last };
        assert_eq!(few.words(&[part(3, 3), "{part 1}".into()]), ["1", "{part 1}"]);
    }

    #[test]
    fn what_ranks_share_is_told_by_one_of_them() {
        let host = |rank: usize, address: &str| {
            let link = Link { address: address.parse().ok(), ..Link::default() };
            Host { rank, cores: vec![rank], link, ..Host::default() }
        };
        let hosts = Hosts {
            server: host(1, "10.0.0.1"),
            generators: vec![host(0, "10.0.0.2"), host(2, "10.0.0.1"), host(3, "10.0.0.2")],
            address: None,
        };
        let ids = ["a", "b", "b", "a"].map(String::from);
        let clocks = [None, Some("x".into()), Some("x".into()), None];
        let all = of_all(&hosts, &ids, &clocks);
        let of = |what: fn(&Own) -> bool| all.iter().map(what).collect::<Vec<_>>();
        assert_eq!(of(|own| own.tells_of_host), [true, false, true, false]);
        assert_eq!(of(|own| own.tells_of_device), [true, false, true, false]);
        assert_eq!(of(|own| own.has_server_clock), [false, true, true, false]);
        assert_eq!((all[0].cpu_ns(5, 3, 100), all[2].cpu_ns(5, 3, 100)), (10, 105));
        // The first two alone: on the host of rank 0 is the third one, too.
        assert_eq!((all[0].cpu_ns(5, 2, 100), all[2].cpu_ns(5, 2, 100)), (5, 105));
        assert_eq!((all[0].cpu_ns(5, 1, 100), all[2].cpu_ns(0, 1, 100)), (5, 100));
        assert_eq!(all[3].cores, [3]);
        assert_eq!([0, 1, 2, 3].map(|rank| index(rank, 1)), [Some(0), None, Some(1), Some(2)]);
    }
}
