//! What of a comparison of UDP is different over hosts.

use weir_lab::experiment::plan::Row;
use weir_lab::hosts::{Fleet, Hosts};
use weir_lab::udp::plan::{Load, Replies};
use weir_lab::udp::results::Results;
use weir_load::stamp::STAMP_BYTES;

use super::options::{On, UdpArgs};
use crate::exit::Failure;

/// Whether everything that was asked for can be had over hosts.
pub(super) fn check(args: &UdpArgs) -> Result<(), Failure> {
    let refused = [
        (
            args.on == On::Veth,
            "--on veth makes a link within one machine, and with --mpi server and generators are on hosts of their own: leave \
             one of the two out",
        ),
        (
            !args.peer.is_empty(),
            "--peer starts another program, and with --mpi ranks start nothing but weir: compare with it on one machine, \
             without --mpi",
        ),
    ];
    match refused.into_iter().find(|(is_asked, _)| *is_asked) {
        Some((_, why)) => Err(Failure::usage(why)),
        None => Ok(()),
    }
}

/// The cores of the server, and those of all generators.
pub(super) fn cores(hosts: &Hosts) -> (Vec<usize>, Vec<usize>) {
    let generators = hosts.generators.iter().flat_map(|host| host.cores.clone()).collect();
    (hosts.server.cores.clone(), generators)
}

/// Adapts rows and loads. What this machine lacks the server's may have. One-way latency is not known between hosts: a
/// paced load that nobody asked for by name is answered, so that round trips tell of latency; others are ranked by what
/// arrives.
pub(super) fn adapt(
    args: &UdpArgs,
    hosts: &Hosts,
    rows: &mut [Row],
    loads: &mut [Load],
) -> Result<(), Failure> {
    let short = |load: &Load| (load.size_bytes as usize) < STAMP_BYTES;
    if hosts.generators.len() > 1
        && let Some(load) = loads.iter().find(|load| short(load))
    {
        return Err(Failure::usage(format!(
            "datagrams of {} bytes have no room for a stamp, so those of {} generators cannot be told apart; give {STAMP_BYTES} \
             or more with -l, or start one generator",
            load.size_bytes,
            hosts.generators.len()
        )));
    }
    if is_elsewhere(hosts) {
        rows.iter_mut().for_each(|row| row.unavailable = None);
    }
    let by_name = !args.load.is_empty() || !args.pace.is_empty() || args.full;
    for load in loads {
        load.over_hosts = is_elsewhere(hosts);
        if load.over_hosts && load.is_paced() && !by_name && !short(load) {
            load.replies.get_or_insert(Replies {
                outstanding: weir_load::flood::Replies::default().outstanding,
                size_bytes: None,
                offload: Default::default(),
            });
        }
    }
    Ok(())
}

/// Whether any generator is on another machine than the server.
fn is_elsewhere(hosts: &Hosts) -> bool {
    !hosts.address.is_some_and(|address| address.is_loopback())
}

/// What must be known of these hosts.
pub(super) fn warnings(hosts: &Hosts) -> Vec<String> {
    let mut warnings = vec![];
    let on_one = hosts.generators.iter().filter(|host| host.name == hosts.server.name);
    let shared = |cores: &[usize]| cores.iter().any(|core| hosts.server.cores.contains(core));
    let sharing: Vec<usize> =
        on_one.filter(|host| shared(&host.cores)).map(|host| host.rank).collect();
    if !is_elsewhere(hosts) && !sharing.is_empty() {
        warnings.push(format!(
            "the server and the generators of ranks {sharing:?} share cores: rates say little about either"
        ));
    }
    let mtus = hosts.generators.iter().map(|host| host.link.mtu_bytes);
    if let Some(other) =
        mtus.flatten().find(|mtu| hosts.server.link.mtu_bytes.is_some_and(|own| own != *mtu))
    {
        warnings.push(format!(
            "the links have different MTUs ({} bytes at the server, {other} at a generator): long datagrams may be cut or lost",
            hosts.server.link.mtu_bytes.unwrap_or_default()
        ));
    }
    warnings
}

/// What became of the ranks, and what was lost between the hosts.
pub(super) fn conclude(fleet: &Fleet, results: &mut Results) {
    if let Some(lost) = fleet.lost() {
        results.interrupted = true;
        results.error = Some(format!("the comparison was ended: {lost}"));
    }
    let worst = results
        .samples()
        .filter_map(|sample| {
            let lost = sample.ledger.lost_network? as f64;
            Some(lost / (sample.ledger.sent as f64).max(1.0))
        })
        .fold(0.0, f64::max);
    if worst > weir_lab::udp::ledger::TOLERANCE {
        results.warnings.push(format!(
            "up to {:.1} % of what was sent in a run was lost in the network: it left the senders' devices, as far as those tell, and \
             no place at the server's host counts it; look at the switch, at pause frames, and at the queues of the senders \
             (tc -s qdisc)",
            worst * 100.0
        ));
    }
}
