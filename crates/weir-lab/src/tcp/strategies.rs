//! Strategies of a server (Jones and Ohlund, chapter 6) as rows, and the mixes of connections that each is for or has to
//! bear.

use serde::Serialize;

use super::mix::{Mix, MixName, Others};
use super::plan::{Load, Pattern};
use super::policy::Policy;
use super::results::Results;
use super::rows::{self, of_server};
use crate::experiment::cell::Skipped;
use crate::experiment::plan::{Depth, Row};

/// What a server is made for, told by its row's options.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Strategy {
    /// Nothing in particular: what the others are held against.
    Plain,
    /// Several receives on each connection, and large buffers.
    Throughput,
    /// No buffer while idle, and a bounded number of receives from one connection at a time.
    ManyConnections,
    /// A limited number of connections is served at a time.
    ActiveSet,
    /// Who asks too much is refused, closed or slowed down.
    Refusal,
}

impl Strategy {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Plain, Self::Throughput, Self::ManyConnections, Self::ActiveSet, Self::Refusal];

    /// Its name in a table.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Throughput => "throughput",
            Self::ManyConnections => "many",
            Self::ActiveSet => "active set",
            Self::Refusal => "refusal",
        }
    }

    /// That of a row.
    pub fn of(row: &Row) -> Self {
        let has = |name: &str| row.options.iter().any(|(of, _)| of == name);
        match () {
            () if has("active") => Self::ActiveSet,
            () if Policy::of(row).limits_anything() => Self::Refusal,
            () if has("idle") || has("drain") => Self::ManyConnections,
            () if has("receives") || of_server(row).iter().any(|(name, _)| *name == "buffer") => {
                Self::Throughput
            }
            () => Self::Plain,
        }
    }
}

/// Connections of a source address that are well-behaved: fewer than a limit on them allows.
const OF_EACH_SOURCE: u32 = 4;
/// The limit on connections of one address, of all connections, and on the bytes a second of one, and the time in which
/// a new one must send something, as the rows below spell them.
const PER_ADDRESS: &str = "--per-address 16";
const OF_AN_ADDRESS: u32 = 16;
const IN_ALL: &str = "--connections-max 256";
const RATE: &str = "--max-rate 1m";
const SILENT: &str = "--silent 500ms";
const WHEN_FULL: &str = "--close-when-full";

/// The rows, unless told otherwise: of a first look one or two for each strategy.
///
/// # Errors
/// None, unless a text here is wrong.
pub fn rows(depth: Depth) -> Result<Vec<Row>, String> {
    let all = format!("{PER_ADDRESS} {SILENT} {WHEN_FULL} {RATE}");
    let first = [
        "epoll".to_owned(),
        "port-ordered --receives 8 --buffer 64k".into(),
        "port --idle zero-byte --drain 4".into(),
        "epoll --active 100".into(),
        format!("epoll {all}"),
    ];
    let further = [
        "ring".to_owned(),
        "port".into(),
        "epoll --buffer 64k".into(),
        "port --buffer 64k".into(),
        "epoll --drain 4".into(),
        "ring --idle poll".into(),
        "port --active 100".into(),
        format!("epoll {PER_ADDRESS}"),
        format!("epoll {IN_ALL}"),
        format!("epoll {SILENT}"),
        format!("epoll {WHEN_FULL}"),
        format!("epoll {RATE}"),
        format!("port {all}"),
    ];
    let mut texts = first.to_vec();
    if depth != Depth::Quick {
        texts.extend(further);
    }
    let mut rows = rows::of_texts(&texts)?;
    // Beside each other in the plan, as they are in the report.
    rows.sort_by_key(|row| Strategy::ALL.iter().position(|of| *of == Strategy::of(row)));
    Ok(rows)
}

/// The mixes, in the order in which they are run: all, unless some are named; with so many connections whose figures
/// count, and so many others, if that was asked for.
pub fn loads(
    depth: Depth,
    only: &[MixName],
    connections: Option<u32>,
    others: Option<u32>,
) -> Vec<Load> {
    let asked = |name: &MixName| only.is_empty() || only.contains(name);
    let names = MixName::ALL.into_iter().filter(asked);
    names.map(|name| load(depth, name, connections, others)).collect()
}

/// A mix as a load. By themselves all together have fewer than 6000 connections at a time, at the server and at the
/// clients.
fn load(depth: Depth, name: MixName, own: Option<u32>, beside: Option<u32>) -> Load {
    let is_quick = depth == Depth::Quick;
    let of = |quick: u32, else_: u32| if is_quick { quick } else { else_ };
    let (pattern, bytes, connections, under_way) = match name {
        MixName::Busy => (Pattern::Streaming, 16 << 10, 8, Some(4)),
        MixName::Turns => (Pattern::Streaming, 4 << 10, of(400, 1000), Some(4)),
        MixName::Idle => (Pattern::PingPong, 64, 16, None),
        MixName::Flood | MixName::Silent | MixName::Stuck => (Pattern::PingPong, 64, 64, None),
    };
    let connections = own.unwrap_or(connections);
    let others = |connections: u32, sources: fn(u32) -> u32| {
        let connections = beside.unwrap_or(connections);
        Some(Others { connections, sources: sources(connections).clamp(1, connections.max(1)) })
    };
    let mix = Mix {
        name,
        messages_per_s: name.is_attack().then_some(2000),
        messages_each: (name == MixName::Turns).then_some(20),
        sources: connections.div_ceil(OF_EACH_SOURCE),
        others: match name {
            MixName::Busy | MixName::Turns => None,
            MixName::Idle => others(of(1000, 5000), |all| all.div_ceil(OF_EACH_SOURCE)),
            MixName::Flood => others(4, |_| 1),
            MixName::Silent => others(of(1000, 4000), |_| 4),
            MixName::Stuck => others(of(40, 100), |_| 1),
        },
        send_buffer_bytes: (name == MixName::Stuck).then_some(64 << 10),
    };
    Load { mix: Some(mix), ..Load::new(pattern, bytes, connections, under_way, Some(BUFFER_BYTES)) }
}

/// Adapts mixes to clients at other hosts, each of which has one address. Unless their number was asked for, no more of those
/// that are held against an attack come from theirs than a row allows (`PER_ADDRESS`).
pub fn over_hosts(loads: &mut [Load], is_number_asked: bool) {
    for load in loads {
        let Some(mix) = &mut load.mix else { continue };
        mix.sources = 1;
        mix.others.iter_mut().for_each(|others| others.sources = 1);
        if mix.name.is_attack() && !is_number_asked {
            load.connections = load.connections.min(OF_AN_ADDRESS);
        }
    }
}

/// Leaves out, under each mix, rows that would refuse those whose figures count since they have one address, or share it with
/// the others (`is_shared`). Gives what that makes of the comparison, to be said before anything runs.
pub fn heed_addresses(results: &mut Results, is_shared: bool) -> Vec<String> {
    let mut said = vec![];
    for (load, cells) in results.loads.iter().zip(&mut results.cells) {
        let Some(mix) = load.mix else { continue };
        for (row, cell) in results.rows.iter().zip(cells) {
            let limit = Policy::of(row).per_address.filter(|_| takes_part(&mix, row));
            let why = match limit {
                Some(_) if is_shared && mix.others.is_some() => {
                    "those whose figures count and the others come from one host, and so from one address: start one more \
                     generator, on a host of its own, such as mpirun -n 3 with a rank on each"
                        .to_owned()
                }
                Some(limit) if load.connections > limit => format!(
                    "those whose figures count come from one address, of which the row admits {limit} connections: -c {limit}"
                ),
                _ => continue,
            };
            said.push(format!("left out: {}: {}: {why}", mix.name.name(), rows::title(row)));
            cell.skipped = Some(Skipped::Unavailable(why));
        }
    }
    results.warnings.extend(said.iter().cloned());
    said
}

/// Bytes received at a time where a row says nothing else: the originals' buffer.
const BUFFER_BYTES: u32 = 4096;

/// Whether a row takes part in a mix: one that refuses something only where that is asked of it.
pub fn takes_part(mix: &Mix, row: &Row) -> bool {
    Strategy::of(row) != Strategy::Refusal || Policy::of(row).is_aimed_at(mix.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir::tcp::AnyDesign;

    #[test]
    fn every_strategy_has_a_row_and_every_row_is_understood() {
        for depth in [Depth::Quick, Depth::Standard] {
            let rows = rows(depth).unwrap();
            for strategy in Strategy::ALL {
                assert!(rows.iter().any(|row| Strategy::of(row) == strategy), "{strategy:?}");
            }
            for row in &rows {
                AnyDesign::parse(&rows::text_of_design(row)).unwrap();
            }
        }
    }

    #[test]
    fn a_row_that_refuses_takes_part_where_that_is_asked_of_it() {
        let rows = rows(Depth::Standard).unwrap();
        let taking = |name: MixName| -> Vec<String> {
            let load = load(Depth::Standard, name, None, None);
            let mix = load.mix.unwrap();
            let rows = rows.iter().filter(|row| Strategy::of(row) == Strategy::Refusal);
            rows.filter(|row| takes_part(&mix, row)).map(Row::spec).collect()
        };
        assert!(taking(MixName::Idle).is_empty() && taking(MixName::Busy).is_empty());
        assert_eq!(taking(MixName::Flood).len(), 3, "{:?}", taking(MixName::Flood));
        assert!(taking(MixName::Silent).contains(&format!("epoll {IN_ALL}")));
        assert!(!taking(MixName::Stuck).contains(&format!("epoll {SILENT}")));
    }

    #[test]
    fn who_shares_an_address_is_not_refused_for_it() {
        let mut loads = loads(Depth::Quick, &[MixName::Silent, MixName::Busy], None, None);
        over_hosts(&mut loads, false);
        assert_eq!(
            (loads[0].connections, loads[1].connections),
            (8, 16),
            "the attack is the second"
        );
        let of = |is_shared: bool, connections: u32| {
            loads[1].connections = connections;
            let rows = rows(Depth::Quick).unwrap();
            let mut results =
                Results::new(vec![], crate::machine::Machine::default(), rows, loads.clone());
            heed_addresses(&mut results, is_shared)
        };
        let mut of = of;
        assert!(of(false, 16).is_empty());
        let (shared, many) = (of(true, 16), of(false, 17));
        assert!(shared.len() == 1 && shared[0].contains("mpirun -n 3"), "{shared:?}");
        assert!(many.len() == 1 && many[0].ends_with("-c 16"), "{many:?}");
    }

    #[test]
    fn the_mixes_fit_a_process_with_few_descriptors() {
        for load in loads(Depth::Full, &[], None, None) {
            let mix = load.mix.unwrap();
            assert!(load.connections + mix.others() < 6000, "{load}");
            let own = Others { connections: load.connections, sources: mix.sources };
            let most = own.of_each_source().max();
            assert!(most.is_some_and(|most| most <= OF_EACH_SOURCE), "{load}");
        }
        let tiny = loads(Depth::Quick, &[MixName::Stuck, MixName::Silent], Some(2), Some(3));
        let of = |load: &Load| (load.connections, load.mix.unwrap().others.unwrap());
        let (silent, stuck) = (of(&tiny[0]), of(&tiny[1]));
        assert_eq!(silent, (2, Others { connections: 3, sources: 3 }));
        assert_eq!((stuck, tiny.len()), ((2, Others { connections: 3, sources: 1 }), 2));
    }
}
