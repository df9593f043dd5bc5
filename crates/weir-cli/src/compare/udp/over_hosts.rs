//! What of a comparison of UDP is different over hosts.

use weir_lab::experiment::plan::Row;
use weir_lab::hosts::{Fleet, Hosts};
use weir_lab::udp::plan::{Load, Replies};
use weir_lab::udp::results::Results;
use weir_load::stamp::STAMP_BYTES;

use super::options::UdpArgs;
use crate::compare::common::On;
use crate::compare::hosts::NO_LINK;
use crate::exit::Failure;

/// Whether everything that was asked for can be had over hosts.
pub(super) fn check(args: &UdpArgs) -> Result<(), Failure> {
    match args.on {
        On::Veth => Err(Failure::usage(NO_LINK)),
        On::Loopback => Ok(()),
    }
}

/// Adapts rows and loads. What this machine lacks the server's may have. One-way latency may not be known between hosts, as it
/// depends on how well their clocks can be compared: a paced load that nobody asked for by name is answered, so that round
/// trips tell of latency; others are ranked by what arrives.
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
    if hosts.is_elsewhere() {
        rows.iter_mut().for_each(|row| row.unavailable = None);
    }
    let by_name = !args.load.is_empty() || !args.pace.is_empty() || args.full;
    for load in loads {
        load.over_hosts = hosts.is_elsewhere();
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

/// What became of the ranks, and what was lost between the hosts.
pub(super) fn conclude(fleet: &Fleet, results: &mut Results) {
    fleet.conclude(results);
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

#[cfg(test)]
mod tests {
    use super::*;
    use weir_lab::experiment::plan::Role;
    use weir_lab::hosts::{Host, Link};
    use weir_lab::udp::rows;

    fn args(words: &[&str]) -> UdpArgs {
        crate::compare::parsed(words).unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    fn hosts(address: &str, generators: usize) -> Hosts {
        let link = Link { bits_per_s: Some(10_000_000_000), ..Link::default() };
        let host =
            |rank| Host { rank, name: format!("h{rank}"), link: link.clone(), ..Host::default() };
        Hosts {
            server: host(1),
            generators: (0..generators).map(|number| host(number + 2)).collect(),
            address: address.parse().ok(),
        }
    }

    fn adapted(words: &[&str], hosts: &Hosts) -> Result<Vec<Load>, Failure> {
        let args = args(words);
        let depth = crate::compare::common::depth(args.quick, args.full);
        let asked = super::super::asked_on(&args, depth, Some(hosts))?;
        let mut loads = asked.loads();
        adapt(&args, hosts, &mut rows::of_texts(&["epoll".into()]).unwrap(), &mut loads)?;
        Ok(loads)
    }

    #[test]
    fn what_needs_one_machine_is_refused_with_what_to_do() {
        let failed = check(&args(&["--mpi", "--on", "veth"])).expect_err("refused");
        assert!(failed.message.contains("leave --on veth out"), "{}", failed.message);
        assert_eq!(failed.code, crate::exit::USAGE);
        for words in [&["--mpi", "--mpi-server", "2"], &["--mpi", "--peer=x=y"][..]] {
            assert!(check(&args(words)).is_ok(), "{words:?}");
        }
        for words in [
            &["--mpi-server", "2"][..],
            &["--study", "holgate"],
            &["--mpi", "--study", "holgate", "--load", "50k"],
        ] {
            assert!(crate::compare::parsed::<UdpArgs>(words).is_err(), "{words:?}");
        }
    }

    #[test]
    fn a_study_has_its_servers_in_their_settings() {
        let study = args(&["--mpi", "--study", "holgate"]).study.expect("asked for");
        let rows = rows::of_texts(&study.designs()).expect("each can be written so");
        let traditional: Vec<_> =
            rows.iter().filter(|row| row.role == Role::Traditional).map(Row::spec).collect();
        assert_eq!(traditional, ["port --armed 5000 --submit-after 1"]);
        let of_eight = rows.iter().filter(|row| {
            let design = weir::udp::AnyDesign::parse(&row.spec()).expect("it was read before");
            design.values().iter().any(|(name, value)| *name == "threads" && value == "8")
        });
        assert_eq!(
            of_eight.count(),
            6,
            "one on plain receives, one with many, four on registered I/O"
        );
    }

    #[test]
    fn a_paced_load_over_a_network_is_answered_unless_it_was_asked_for() {
        let over = hosts("10.0.0.1", 2);
        let paced = |words: &[&str], hosts: &Hosts| {
            let loads = adapted(words, hosts).unwrap();
            *loads.iter().find(|load| load.is_paced()).expect("one is paced")
        };
        let usual = paced(&["--mpi"], &over);
        assert!(usual.replies.is_some() && usual.over_hosts);
        assert_eq!(paced(&["--mpi", "--load", "50k"], &over).replies, None);
        let here = paced(&["--mpi"], &hosts("127.0.0.1", 1));
        assert!(here.replies.is_none() && !here.over_hosts, "one machine has one clock");
    }

    #[test]
    fn datagrams_that_cannot_be_told_apart_are_refused() {
        let words = ["--mpi", "-l", "16"];
        let failed = adapted(&words, &hosts("10.0.0.1", 2)).expect_err("two generators");
        assert!(failed.message.contains("32 or more with -l"), "{}", failed.message);
        assert!(adapted(&words, &hosts("10.0.0.1", 1)).is_ok());
    }

    #[test]
    fn a_share_of_the_link_is_of_that_between_the_hosts() {
        let loads = adapted(&["--mpi", "--load", "link:50%", "-l", "1024"], &hosts("10.0.0.1", 2));
        assert_eq!(loads.unwrap()[0].offered_per_s(), Some(573_394));
        let mut unknown = hosts("10.0.0.1", 2);
        unknown.server.link.bits_per_s = None;
        let failed = adapted(&["--mpi", "--load", "link:50%"], &unknown).expect_err("no speed");
        assert!(failed.message.contains("the link between the hosts does not report a speed"));
    }
}
