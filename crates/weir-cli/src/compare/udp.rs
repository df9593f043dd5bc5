//! `weir compare udp`: every design of UDP that can run here, under the same load, side by side.

mod options;
mod over_hosts;

use std::sync::Arc;
use std::time::Duration;

use weir::socket::ReceiveBuffer;
use weir_lab::experiment::descriptors;
use weir_lab::experiment::plan::{Depth, Row, Settings, add_again};
use weir_lab::hosts::Hosts;
use weir_lab::machine::Machine;
use weir_lab::udp::experiment;
use weir_lab::udp::link::{self, Link, Site};
use weir_lab::udp::link_rows;
use weir_lab::udp::plan::{
    Asked, Held, LinkShare, Load, Rate, Replies, ReplyOffload, SWEPT_OPTIONS, Sweep, Takes, asked,
};
use weir_lab::udp::processes::Processes;
use weir_lab::udp::results::Results;
use weir_lab::udp::rows::{self, Breadth};
use weir_load::stamp::STAMP_BYTES;

pub use self::options::UdpArgs;
use self::options::{Joins, LinkSpeed, Pace, ReceiveOffload, Swept, VARIANTS_BUDGET_S};
use super::common::{On, Planned, depth};
use super::context::Context;
use super::part::Part;
use crate::cores;
use crate::exit::Failure;

fn compare_memory(args: &UdpArgs, context: &Context) -> Result<Part, Failure> {
    let (server_cores, _) = cores::share_out(&args.server_cpu, &args.generator_cpu, 1)?;
    let rows = designs(args, server_cores.len())?;
    crate::memory::compare(&super::program()?, &rows, context)
}

/// Compares them.
pub fn compare(args: &UdpArgs, context: &Context) -> Result<Part, Failure> {
    if args.memory {
        return compare_memory(args, context);
    }
    let depth = depth(args.quick, args.full);
    if args.hosts.mpi {
        over_hosts::check(args)?;
    }
    let args = &match args.study {
        None => args.clone(),
        Some(study) => UdpArgs {
            load: study.loads(),
            length: study.lengths(),
            design: if args.design.is_empty() { study.designs() } else { args.design.clone() },
            ..args.clone()
        },
    };
    let fleet = args.hosts.meet(
        context.ranks(),
        &args.server_cpu,
        &args.generator_cpu,
        args.generators.iter().copied().max().unwrap_or(1).into(),
    )?;
    let hosts = fleet.as_ref().map(|fleet| fleet.hosts());
    let asked = asked_on(args, depth, hosts)?;
    let mut loads = asked.loads();
    let most_generators = loads.iter().map(|load| load.generators).max().unwrap_or(1);
    let (server_cores, generator_cores) = match hosts {
        Some(hosts) => hosts.cores(),
        None => cores::share_out(&args.server_cpu, &args.generator_cpu, most_generators.into())?,
    };
    let program = super::program()?;
    let mut rows = rows(args, &asked, server_cores.len())?;
    if let Some(hosts) = hosts {
        over_hosts::adapt(args, hosts, &mut rows, &mut loads)?;
    }

    let mut results = Results::new(context.command.clone(), Machine::watch(), rows, loads);
    results.own.server_cores = server_cores.clone();
    results.own.generator_cores = generator_cores.clone();
    results.own.hosts = hosts.cloned();
    match hosts {
        Some(hosts) => results.warnings.extend(hosts.warnings()),
        None => results.warnings.extend(shared_cores(&results, most_generators)),
    }
    let budget_s = args
        .time
        .map(|time| time.as_secs_f64())
        .or_else(|| is_plain_variants(args, &results.loads).then_some(VARIANTS_BUDGET_S));
    let rounds = args.common.rounds;
    let settings = Settings { depth, rounds, budget_s, is_bound: args.time.is_some() };
    let warnings = descriptors::heed(&mut results, weir_load::tcp::descriptors());
    let places = match hosts {
        Some(hosts) => format!(
            "server: {}; generators: {}; ",
            hosts.links_in_words(),
            hosts.generators_in_words()
        ),
        None => format!(
            "server on core {:?}, generator on core {:?}; ",
            results.own.server_cores, results.own.generator_cores
        ),
    };
    let title = |row: &Row| {
        let swept = match (row.only_swept, row.swept_option) {
            (false, _) => String::new(),
            (true, of) => format!(" (for the sweep over {})", of.unwrap_or("threads")),
        };
        format!("{row}{swept}")
    };
    let planned =
        Planned { results, settings, common: &args.common, context, places, title, warnings };
    planned.make(|results, settings, making| {
        let (interrupt, display) = (making.interrupt.clone(), &mut making.display);
        let (first, more) = (generator_cores.first().copied(), generator_cores.get(1..));
        let mut bench = Processes::new(program, server_cores, first, interrupt, making.tell)
            .with_more_generator_cores(more.unwrap_or_default().to_vec())
            .logging_performance(args.common.logged_every());
        if args.on == On::Veth {
            // This thread is at the generator's end of it from now on.
            let link = Link::make().map_err(weir::Error::from)?;
            results.own.link = Some(link.describe().into());
            bench = bench.at(Site::Link(link));
        }
        if let Some(fleet) = &fleet {
            bench = bench.at(Site::Hosts(Arc::clone(fleet)));
        }
        experiment::run(&mut bench, results, settings, &mut |progress| {
            display.show(&progress, Row::to_string)
        });
        if let Some(fleet) = &fleet {
            over_hosts::conclude(fleet, results);
        }
        Ok(())
    })
}

/// Whether all variants are compared under the usual loads, and nothing that takes longer was asked for.
fn is_plain_variants(args: &UdpArgs, loads: &[Load]) -> bool {
    let ordinary = loads.len() <= 2 && loads.iter().all(|load| load.takes == Takes::default());
    let usual_rows = args.on == On::Loopback && args.threads.is_empty();
    args.variants
        && depth(args.quick, args.full) == Depth::Standard
        && ordinary
        && usual_rows
        && args.common.rounds.is_none()
}

/// What was asked for, as the plan takes it.
#[cfg(test)]
fn asked(args: &UdpArgs, depth: Depth) -> Result<Asked, Failure> {
    asked_on(args, depth, None)
}

/// The same, on these hosts where it is over hosts.
fn asked_on(args: &UdpArgs, depth: Depth, hosts: Option<&Hosts>) -> Result<Asked, Failure> {
    const MOST_BYTES: usize = weir_load::stamp::DATAGRAM_BYTES_MAX;
    if let Some(length) = args.length.iter().find(|length| **length > MOST_BYTES) {
        return Err(Failure::usage(format!(
            "a datagram of {length} bytes is too long; a UDP datagram carries at most {MOST_BYTES}"
        )));
    }
    let too_long = |length: &&usize| **length > link::LONGEST_BYTES as usize;
    if let (On::Veth, Some(length)) = (args.on, args.length.iter().find(too_long)) {
        return Err(Failure::usage(format!(
            "a datagram of {length} bytes does not go over the link in one packet; at most {} do",
            link::LONGEST_BYTES
        )));
    }
    let sizes_bytes: Vec<u32> = args.length.iter().map(|length| *length as u32).collect();
    let generators = args.generators.first().copied().unwrap_or(1);
    let ports = args.ports.first().copied().unwrap_or(1);
    let offload = offload(args);
    let base = Load {
        replies: replies(args, &sizes_bytes)?,
        work: args.work.first().copied().unwrap_or_default(),
        ports,
        flows: args.parallel.first().copied().unwrap_or(1),
        generators,
        arrivals: args.arrivals,
        receive_offload: offload == ReceiveOffload::Only,
        send_offload: !args.no_send_offload,
        rcvbuf: args.rcvbuf.unwrap_or(match args.burst.is_empty() {
            true => ReceiveBuffer::System,
            false => ReceiveBuffer::Outstanding,
        }),
        busy_poll_us: args.busy_poll,
        ..Load::saturation(sizes_bytes.first().copied().unwrap_or(64))
    };
    let besides = (!args.pace.is_empty()).then_some(Pace::At(Rate::Saturation));
    let paces = args.load.iter().copied().chain(besides).chain(args.pace.iter().copied());
    let rates = rates(args, paces.collect(), hosts)?;
    let asked = Asked {
        rates,
        sizes_bytes,
        works: args.work.clone(),
        ports: args.ports.clone(),
        flows: args.parallel.clone(),
        generators: args.generators.clone(),
        sweeps: args
            .sweep
            .iter()
            .map(|swept| match swept {
                Swept::Load => Sweep::Load,
                Swept::Work => Sweep::Work,
                Swept::Threads => Sweep::Threads,
                Swept::Outstanding => Sweep::Option(&SWEPT_OPTIONS[0]),
                Swept::Dequeue => Sweep::Option(&SWEPT_OPTIONS[1]),
                Swept::Threshold => Sweep::Option(&SWEPT_OPTIONS[2]),
                Swept::Defer => Sweep::Option(&SWEPT_OPTIONS[3]),
            })
            .collect(),
        // Their stamp needs room.
        answers: (args.adds_answers() && base.size_bytes as usize >= STAMP_BYTES).then(|| {
            Replies {
                outstanding: weir_load::flood::Replies::default().outstanding,
                size_bytes: None,
                offload: ReplyOffload::On,
            }
        }),
        with_offload: offload == ReceiveOffload::Paired,
        bursts: bursts(args),
        holds: match args.held.is_empty() {
            true => HOLDS.to_vec(),
            false => args.held.clone(),
        },
        ..Asked::new(depth, base)
    };
    Ok(if depth == Depth::Full { asked.or_the_whole_study() } else { asked })
}

/// The rates of these loads. The speed of a link is asked for where one is a share of it.
fn rates(args: &UdpArgs, paces: Vec<Pace>, hosts: Option<&Hosts>) -> Result<Vec<Rate>, Failure> {
    let of_link = paces.iter().any(|pace| matches!(pace, Pace::OfLink(_)));
    if !of_link && args.link_speed.is_some() {
        return Err(Failure::usage(
            "--link-speed is for loads that are a share of a link, and none is; give --load \
             link:25%,link:50%, or leave it out",
        ));
    }
    let bits_per_s = if of_link { link_speed(args, hosts)? } else { 0 };
    let rate = |pace| match pace {
        Pace::At(rate) => rate,
        Pace::OfLink(share) => Rate::OfLink(LinkShare { share, bits_per_s }),
    };
    Ok(paces.into_iter().map(rate).collect())
}

/// The speed of the link that loads are a share of, in bits per second.
fn link_speed(args: &UdpArgs, hosts: Option<&Hosts>) -> Result<u64, Failure> {
    let (what, known) = match (&args.link_speed, args.on) {
        (Some(LinkSpeed::Stated(bits)), _) => return Ok(*bits),
        (None, _) if hosts.is_some() => {
            let speed = hosts.and_then(Hosts::bits_per_s);
            ("the link between the hosts".to_owned(), speed)
        }
        (Some(LinkSpeed::OfDevice(name)), _) => {
            let asked = weir::machine::link_bits_per_s(name).map_err(|error| {
                Failure::usage(format!(
                    "--link-speed {name}: {error}; name a network device of this machine, or state \
                     the speed, such as --link-speed 10G"
                ))
            })?;
            (format!("the device {name}"), asked)
        }
        (None, On::Veth) => {
            let asked = link::bits_per_s().map_err(weir::Error::from)?;
            ("the virtual link".to_owned(), asked)
        }
        (None, On::Loopback) => ("loopback, which is no link,".to_owned(), None),
    };
    known.ok_or_else(|| {
        Failure::usage(format!(
            "a load is a share of a link, and {what} does not report a speed; state it, such as \
             --link-speed 10G, or name a device that has one, such as --link-speed eth0"
        ))
    })
}

/// What the server does while a burst comes, where nothing else is said.
const HOLDS: [Held; 4] = [
    Held::No,
    Held::For(Duration::from_millis(1)),
    Held::For(Duration::from_millis(10)),
    Held::UntilSent,
];

/// Each burst once, the smallest first.
fn bursts(args: &UdpArgs) -> Vec<u64> {
    let mut bursts = args.burst.clone();
    bursts.sort_unstable();
    bursts.dedup();
    bursts
}

/// The answers that were asked for.
fn replies(args: &UdpArgs, sizes_bytes: &[u32]) -> Result<Option<Replies>, Failure> {
    if !args.reply {
        return Ok(None);
    }
    let least = args.reply_size.unwrap_or(STAMP_BYTES).max(STAMP_BYTES) as u32;
    let sizes = if sizes_bytes.is_empty() { &[64][..] } else { sizes_bytes };
    if args.reply_size.is_some_and(|bytes| bytes < STAMP_BYTES) {
        return Err(Failure::usage(format!(
            "an answer needs {STAMP_BYTES} bytes, for the stamp that tells it from others; give --reply-size as many or \
             more"
        )));
    }
    if let Some(short) = sizes.iter().find(|size| **size < least) {
        return Err(Failure::usage(format!(
            "a datagram of {short} bytes (-l) cannot be answered with {least}: an answer has {STAMP_BYTES} bytes or more, \
             and no more than what it answers"
        )));
    }
    Ok(Some(Replies {
        outstanding: args.outstanding.unwrap_or(weir_load::flood::Replies::default().outstanding),
        size_bytes: args.reply_size.map(|bytes| bytes as u32),
        offload: match args.reply_offload {
            None | Some(Joins::On) => ReplyOffload::On,
            Some(Joins::WithReceive) => ReplyOffload::WithReceive,
            Some(Joins::Off) => ReplyOffload::Off,
        },
    }))
}

fn offload(args: &UdpArgs) -> ReceiveOffload {
    let unless_said = if args.full && args.on == On::Loopback {
        ReceiveOffload::Paired
    } else {
        ReceiveOffload::No
    };
    args.receive_offload.unwrap_or(unless_said)
}

/// The designs that were asked for; without any, those that suit the place.
fn designs(args: &UdpArgs, cores: usize) -> Result<Vec<Row>, Failure> {
    let breadth = match args.variants {
        true => Breadth::Variants,
        false => Breadth::Designs { cores },
    };
    Ok(match (args.design.is_empty(), args.on) {
        (false, _) => rows::of_texts(&args.design).map_err(Failure::usage)?,
        (true, On::Veth) => link_rows::all(breadth),
        (true, On::Loopback) => rows::all(breadth),
    })
}

/// The rows: designs, on the numbers of threads that were asked for, with receive offload beside
/// them if that was, and one of them twice.
fn rows(args: &UdpArgs, asked: &Asked, cores: usize) -> Result<Vec<Row>, Failure> {
    let mut rows = designs(args, cores)?;
    let in_sweep = asked.sweeps.contains(&Sweep::Threads);
    let numbers = match (args.threads.is_empty(), in_sweep) {
        (false, _) => args.threads.clone(),
        (true, true) => asked::THREADS.to_vec(),
        (true, false) => vec![],
    };
    let by_itself = |row: &Row| !args.design.is_empty() && row.threads().is_some();
    if !numbers.is_empty() {
        rows::on_threads(&mut rows, &numbers, in_sweep, by_itself);
    }
    for sweep in &asked.sweeps {
        if let Sweep::Option(of) = sweep {
            rows::on_options(&mut rows, of, |_| !args.design.is_empty());
        }
    }
    rows.extend(rows::of_peers(&args.peer, &args.peer_head, &rows).map_err(Failure::usage)?);
    if asked.with_offload {
        rows::with_offload(&mut rows);
    }
    let again = rows::preferred_again(&rows);
    add_again(&mut rows, again);
    Ok(rows)
}

/// What must be known of cores that several share.
fn shared_cores(results: &Results, most_generators: u16) -> Vec<String> {
    let mut warnings = vec![];
    let both =
        results.own.generator_cores.iter().find(|core| results.own.server_cores.contains(core));
    if let Some(core) = both {
        warnings
            .push(format!("server and generator share core {core}: rates say little about either"));
    }
    let cores = results.own.generator_cores.len();
    if usize::from(most_generators) > cores {
        warnings.push(format!(
            "{most_generators} generators share {cores} of the cores: fewer would send as much"
        ));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(words: &[&str]) -> UdpArgs {
        crate::compare::parsed(words).unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    fn loads(words: &[&str]) -> Vec<String> {
        let args = args(words);
        let asked = asked(&args, depth(args.quick, args.full)).unwrap();
        asked.loads().iter().map(Load::to_string).collect()
    }

    #[test]
    fn lists_are_one_load_for_each_value() {
        let words = ["--size", "64,1k", "--work", "0,shared:9", "--flows=1,4", "--load=saturation"];
        let wanted = [
            "saturation, 64 B",
            "saturation, 1024 B",
            "saturation, 64 B, work shared:9",
            "saturation, 64 B, 4 flows",
        ];
        assert_eq!(loads(&words), wanted);
        let answered = "closed loop of 64 requests per flow, 1400 B, each answered";
        assert_eq!(loads(&["-l", "1400", "--quick"]), ["saturation, 1400 B", answered]);
        assert_eq!(loads(&["-l", "31", "--quick"]), ["saturation, 31 B"], "no room for a stamp");
        let paced = ["--load", "50k,75%"];
        let wanted = [
            "saturation, 64 B",
            "paced at 50000/s, 64 B",
            "paced at 75 % of each row's maximum, 64 B",
        ];
        assert_eq!(loads(&paced), wanted);
        assert_eq!(loads(&["--pace", "75%", "--pace", "50k"]).len(), 3);
        assert_eq!(loads(&["--ports", "4", "--quick"]), ["saturation, 64 B, 4 ports, 4 flows"]);
        assert_eq!(loads(&["--sweep", "load", "--quick"]).len(), 14);
    }

    #[test]
    fn bursts_come_at_every_hold_and_nothing_beside_them() {
        let words = ["--burst", "5k,70", "--held", "0,sent"];
        let wanted = [
            "70 at once to an idle server, 64 B",
            "5000 at once to an idle server, 64 B",
            "70 at once to a server held until all is sent, 64 B",
            "5000 at once to a server held until all is sent, 64 B",
        ];
        assert_eq!(loads(&words), wanted);
        assert_eq!(loads(&["--burst", "1k,5k,20k,150k"]).len(), 4 * HOLDS.len());
        let rcvbuf = |words: &[&str]| asked(&args(words), Depth::Standard).unwrap().base.rcvbuf;
        assert_eq!(rcvbuf(&[]), ReceiveBuffer::System, "rows that are compared have the same");
        assert_eq!(rcvbuf(&["--burst", "9"]), ReceiveBuffer::Outstanding);
        assert_eq!(rcvbuf(&["--burst", "9", "--rcvbuf", "1m"]), ReceiveBuffer::Bytes(1 << 20));
    }

    #[test]
    fn a_share_of_a_link_is_so_many_datagrams_of_each_size() {
        let words = ["--load", "link:25%,link:50%", "--link-speed", "10G", "-l", "1k,64"];
        let wanted = [
            "paced at 25 % of 10 Gbit/s (286697 datagrams/s), 1024 B",
            "paced at 50 % of 10 Gbit/s (573394 datagrams/s), 1024 B",
            "paced at 25 % of 10 Gbit/s (2403846 datagrams/s), 64 B",
            "paced at 50 % of 10 Gbit/s (4807692 datagrams/s), 64 B",
        ];
        assert_eq!(loads(&words), wanted);
        let paced = ["--pace", "link:50%", "--link-speed", "1G"];
        assert_eq!(loads(&paced)[1], "paced at 50 % of 1 Gbit/s (480769 datagrams/s), 64 B");
        for (words, said) in [
            (&["--load", "link:50%"][..], "state it, such as --link-speed 10G"),
            (&["--load", "link:50%", "--link-speed", "weir-none"], "--link-speed weir-none: "),
            (&["--load", "50k", "--link-speed", "10G"], "and none is"),
        ] {
            let failed = asked(&args(words), Depth::Standard).expect_err("refused");
            assert!(failed.message.contains(said), "{words:?}: {}", failed.message);
            assert_eq!(failed.code, crate::exit::USAGE);
        }
    }

    #[test]
    fn answers_are_expected_under_every_load() {
        let wanted = [
            "closed loop of 8 requests per flow, 64 B, each answered with 32 B",
            "paced at 50000/s, 64 B, each answered with 32 B",
        ];
        assert_eq!(loads(&["--reply", "--reply-size", "32", "--outstanding", "8"]), wanted);
        let wanted = ["closed loop of 64 requests per flow, 64 B, each answered"];
        assert_eq!(loads(&["--reply", "--quick"]), wanted);
        for (words, said) in [
            (&["--reply", "--reply-size", "31"][..], "needs 32 bytes"),
            (&["--reply", "-l", "31"], "31 bytes (-l)"),
            (&["--reply", "-l", "64,1k", "--reply-size", "100"], "64 bytes (-l)"),
        ] {
            let error = asked(&args(words), Depth::Standard).expect_err("refused").message;
            assert!(error.contains(said), "{words:?}: {error}");
        }
        assert!(crate::compare::parsed::<UdpArgs>(&["--outstanding", "8"]).is_err());
    }

    #[test]
    fn receive_offload_is_for_all_for_none_or_beside() {
        let of = |words: &[&str]| offload(&args(words));
        assert_eq!(of(&[]), ReceiveOffload::No);
        assert_eq!(of(&["--receive-offload"]), ReceiveOffload::Only);
        assert_eq!(of(&["--receive-offload=paired"]), ReceiveOffload::Paired);
        assert_eq!(of(&["--full"]), ReceiveOffload::Paired);
        assert_eq!(of(&["--full", "--receive-offload=no"]), ReceiveOffload::No);
    }

    #[test]
    fn rows_follow_from_designs_threads_and_offload() {
        let of = |words: &[&str]| -> Vec<String> {
            let args = args(words);
            let asked = asked(&args, depth(args.quick, args.full)).unwrap();
            rows(&args, &asked, 1).unwrap().iter().map(Row::title).collect()
        };
        let words = ["--design", "blocking", "--threads", "1,2"];
        assert_eq!(
            of(&words),
            ["blocking --threads 1", "blocking --threads 2", "blocking --threads 1 (again)"]
        );
        let words = ["--design", "blocking --threads 4", "--threads", "1,2"];
        assert_eq!(of(&words), ["blocking --threads 4", "blocking --threads 4 (again)"]);
        let words = ["--design", "blocking", "--receive-offload=paired"];
        let wanted =
            ["blocking", "blocking (offload)", "blocking (again)", "blocking (offload) (again)"];
        assert_eq!(of(&words), wanted);
        let swept = of(&["--design", "blocking", "--sweep", "threads", "--quick"]);
        assert_eq!(
            swept,
            [
                "blocking --threads 1",
                "blocking --threads 2",
                "blocking --threads 8",
                "blocking --threads 1 (again)"
            ]
        );
    }

    #[test]
    fn an_option_that_is_swept_over_has_rows_of_its_own() {
        let design = "rio-event --provider batch";
        let args = args(&["--design", design, "--sweep", "outstanding,defer", "--quick"]);
        let asked = asked(&args, Depth::Quick).unwrap();
        let titles: Vec<_> = rows(&args, &asked, 1).unwrap().iter().map(Row::title).collect();
        let wanted = [64, 1000, 10_000].map(|n| format!("rio-event --outstanding {n}"));
        assert_eq!(titles[1..4], wanted);
        assert!(titles[4..].iter().any(|title| title == "rio-event --defer 16"), "{titles:?}");
        assert_eq!(asked.loads().len(), 1);
    }

    #[test]
    fn all_variants_have_their_time_where_nothing_more_is_asked_for() {
        let of = |words: &[&str]| {
            let args = args(words);
            is_plain_variants(&args, &asked(&args, depth(args.quick, args.full)).unwrap().loads())
        };
        assert!(of(&["--variants"]) && of(&["--variants", "-l", "1024"]));
        for more in [
            &["--quick"][..],
            &["--threads", "1,2"],
            &["--receive-offload=paired"],
            &["--sweep", "threads"],
            &["--on", "veth"],
            &["-l", "64,1024"],
        ] {
            assert!(!of(&[&["--variants"], more].concat()), "{more:?}");
        }
        assert!(!of(&[]));
    }

    #[test]
    fn a_row_or_a_load_given_twice_is_there_once() {
        assert_eq!(loads(&["--load", "50k,50k"]), ["paced at 50000/s, 64 B"]);
        let args = args(&["--design", "blocking", "--threads", "2,2"]);
        let asked = asked(&args, depth(args.quick, args.full)).unwrap();
        let rows = rows(&args, &asked, 1).unwrap();
        assert_eq!(rows.len(), 2, "one, and again: {rows:?}");
    }
}
