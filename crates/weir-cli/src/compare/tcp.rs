//! `weir compare tcp`: every design of TCP that can run here, under the same load, side by side.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum, builder::PossibleValue};
use weir_lab::experiment::descriptors;
use weir_lab::experiment::plan::budget::{QUICK_S, STANDARD_S};
use weir_lab::experiment::plan::{Depth, Row, Settings};
use weir_lab::hosts::agent::Peers;
use weir_lab::hosts::{Host, Hosts, Room};
use weir_lab::machine::Machine;
use weir_lab::tcp::classic::{self, Classic};
use weir_lab::tcp::experiment::{self, PART_OF_THE_SEARCH};
use weir_lab::tcp::mix::MixName;
use weir_lab::tcp::peers;
use weir_lab::tcp::plan::{
    self, Asked, BUFFER_BYTES, Load, Pattern, STREAM_BYTES, STREAM_MESSAGES,
};
use weir_lab::tcp::processes::Processes;
use weir_lab::tcp::results::Results;
use weir_lab::tcp::rows::{self, title};
use weir_lab::tcp::strategies;
use weir_lab::udp::link::{Link, Site};
use weir_load::quantity::{parse_count, parse_size};
use weir_load::tcp::{CONNECTIONS_MAX, MESSAGE_BYTES_MAX};

use super::EXIT_CODES;
use super::common::{CommonArgs, OfAll, On, Planned, depth, parse_time_given};
use super::context::Context;
use super::hosts::{HostArgs, NO_LINK};
use super::part::Part;
use crate::cores::{self, Cores, MOST_SERVER_CORES};
use crate::exit::Failure;

/// What the comparison of strategies fixes by itself.
const FIXED_BY_STRATEGIES: [&str; 7] =
    ["classic", "length", "pattern", "outstanding", "sweep", "buffer", "peers"];

/// What the experiment of the original study fixes by itself.
const FIXED_BY_CLASSIC: [&str; 6] =
    ["length", "connections", "pattern", "outstanding", "sweep", "quick"];

/// Connections where all kinds are compared: between few and many.
const CONNECTIONS_OF_ALL: u64 = 64;

/// Rounds of the loads of the original, unless told otherwise: each makes thousands of connections.
const ROUNDS_OF_CLASSIC: u32 = 3;

/// What a list has by itself, for the help.
fn defaults_of(list: fn(Depth) -> &'static [u32]) -> String {
    let of = |depth| list(depth).iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let (own, quick, sweep) = (of(Depth::Standard), of(Depth::Quick), of(Depth::Full));
    format!("default: {own}; with --quick {quick}, with --sweep {sweep}")
}

/// Options of `weir compare tcp`.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXIT_CODES)]
pub struct TcpArgs {
    /// Design with its options, such as "epoll --trigger edge"; repeatable [default: every design once]. It may have
    /// limits of the server, too: "port --active 100 --per-address 16" (--active, --buffer, --close-when-full,
    /// --connections-max, --max-rate, --max-receives, --output-bytes, --per-address, --read-timeout, --silent,
    /// --stalled, as for weir serve tcp).
    #[arg(long)]
    design: Vec<String>,

    /// Any program that echoes TCP, to be compared with the designs: a name, "=", and its command, in
    /// which {ip} and {port} are replaced by the address to listen on, and {buffer} by the bytes that weir's
    /// servers receive at a time. It is started without a shell, and is ready when it accepts a connection.
    /// Repeatable.
    #[arg(long, value_name = "NAME=COMMAND")]
    peer: Vec<String>,

    /// Also compare the echo servers on other libraries that peers/build has built, each as with --peer: those in
    /// peers/bin of the current folder, or in FOLDER.
    #[arg(
        long, value_name = "FOLDER", num_args = 0..=1, require_equals = true,
        default_missing_value = peers::FOLDER
    )]
    peers: Option<PathBuf>,

    #[arg(
        short = 'l', long, visible_alias = "size", value_parser = parse_size, value_delimiter = ',',
        help = format!(
            "Bytes of a message (k = 1024). Each length is measured with each number of connections in each \
             pattern [{}]", defaults_of(plan::message_bytes)
        )
    )]
    length: Vec<usize>,

    #[arg(short, long, value_parser = parse_count, value_delimiter = ',', help = format!(
        "Connections (k = 1000) [{}]", defaults_of(plan::connections)
    ))]
    connections: Vec<u64>,

    /// What each connection does [default: ping-pong; with --sweep both].
    #[arg(long, value_enum, value_delimiter = ',')]
    pattern: Vec<Does>,

    #[arg(short, long, value_parser = clap::value_parser!(u32).range(1..=65_536), help = format!(
        "Messages under way on each streaming connection [default: as many as make {} KiB, {} to {}]",
        STREAM_BYTES >> 10, STREAM_MESSAGES.0, STREAM_MESSAGES.1
    ))]
    outstanding: Option<u32>,

    #[arg(long, value_parser = parse_size, help = format!(
        "Bytes that weir's servers receive at a time (k = 1024) [default: what is under way on a connection, \
         {} KiB to {} KiB]", BUFFER_BYTES.0 >> 10, BUFFER_BYTES.1 >> 10
    ))]
    buffer: Option<usize>,

    /// A first look in half a minute: one load, and too few rounds for intervals and verdicts.
    #[arg(long, conflicts_with = "sweep")]
    quick: bool,

    /// Every length, number of connections and pattern. --dry-run says how long it takes.
    #[arg(long)]
    sweep: bool,

    #[arg(long, conflicts_with_all = FIXED_BY_CLASSIC, help = format!(
        "The experiment of the original study (Jones and Ohlund, 2002): 7000 connections as fast as they can, 12,000 \
         with 200,000 bytes/s for each block of 1000, and the most that each design can hold; {ROUNDS_OF_CLASSIC} \
         rounds unless --rounds says otherwise"
    ))]
    classic: bool,

    #[arg(long, conflicts_with_all = FIXED_BY_STRATEGIES, help = format!(
        "Strategies of a server (several receives on each connection and large buffers; no buffer while idle and a \
         bounded drain; an active set; limits) against mixes of connections: {}. -c sets the number of connections \
         whose figures count, --design the rows",
        MixName::ALL.map(MixName::name).join(", ")
    ))]
    strategies: bool,

    /// Only these mixes [default: all].
    #[arg(long, value_enum, value_delimiter = ',', requires = "strategies")]
    mix: Vec<MixGiven>,

    /// Connections besides those whose figures count, in each mix that has some (k = 1000) [default: 4 that flood, 100
    /// that are stuck, 4000 that are silent, 5000 that are idle; with --quick fewer].
    #[arg(long, requires = "strategies", value_parser = parse_count)]
    others: Option<u64>,

    /// Most connections that --classic tries (k = 1000).
    #[arg(long, default_value = "50k", requires = "classic", value_parser = parse_count)]
    most: u64,

    #[arg(short = 't', long, value_parser = parse_time_given, help = format!(
        "Total time [default: {STANDARD_S}s, with --quick {QUICK_S}s; with --rounds, or with more loads than usual, as \
         long as their rounds take: see --dry-run]. If given, it is a limit: nothing that does not fit is begun, and \
         the results are written when it is over. With --classic the search gets {:.0} % of it; without -t it takes as long as it needs",
        PART_OF_THE_SEARCH * 100.0
    ))]
    time: Option<Duration>,

    #[arg(long, help = format!(
        "Cores of the server: 0 or 2,3 or 4-7 [default: the first ones, at most {MOST_SERVER_CORES}]"
    ))]
    server_cpu: Option<Cores>,

    /// Cores of the client, with a thread on each [default: the last one].
    #[arg(long, visible_alias = "generator-cpu")]
    client_cpu: Option<Cores>,

    /// Where server and client meet. Figures of one place are compared only with each other.
    #[arg(long, value_enum, default_value_t = On::Loopback)]
    on: On,

    #[command(flatten)]
    pub(super) hosts: HostArgs,

    #[command(flatten)]
    pub(super) common: CommonArgs,
}

/// What a connection does, as written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Does {
    /// One message at a time.
    PingPong,
    /// Several under way.
    Streaming,
}

impl TcpArgs {
    /// What a comparison of all kinds has of it: one number of connections, since three take longer.
    pub fn of_all(of: &OfAll) -> Self {
        Self {
            connections: vec![CONNECTIONS_OF_ALL],
            quick: of.quick,
            time: of.time,
            server_cpu: of.server_cpu.clone(),
            client_cpu: of.generator_cpu.clone(),
            common: of.common.clone(),
            ..super::defaults()
        }
    }

    /// Whether other programs are among the rows.
    pub(super) fn has_peers(&self) -> bool {
        !self.peer.is_empty() || self.peers.is_some()
    }

    /// The programs that these options name.
    pub(super) fn peers(&self) -> Peers {
        Peers::of(&self.peer, self.peers.as_deref())
    }
}

/// Compares them.
pub fn compare(args: &TcpArgs, context: &Context) -> Result<Part, Failure> {
    let mut loads = match (args.classic, args.strategies) {
        (true, _) => classic::loads(),
        (_, true) => mixes(args)?,
        _ => asked(args)?.loads(),
    };
    if args.on == On::Veth {
        can_be_on_a_link(args)?;
    }
    let fleet = args.hosts.meet(context.ranks(), &args.server_cpu, &args.client_cpu, 1)?;
    let hosts = fleet.as_ref().map(|fleet| fleet.hosts());
    let (server_cores, client_cores) = match hosts {
        // The clients of a mix do not share its connections.
        Some(hosts) if args.strategies => (hosts.cores().0, hosts.generators[0].cores.clone()),
        Some(hosts) => hosts.cores(),
        None => cores::share_out(&args.server_cpu, &args.client_cpu, 1)?,
    };
    let is_elsewhere = hosts.is_some_and(Hosts::is_elsewhere);
    let mut rows = rows(args, server_cores.len(), is_elsewhere)?;
    if is_elsewhere {
        // What this machine lacks the server's may have.
        rows.iter_mut().for_each(|row| row.unavailable = None);
        strategies::over_hosts(&mut loads, !args.connections.is_empty());
    }
    let program = super::program()?;
    let mut results = Results::new(context.command.clone(), Machine::watch(), rows, loads);
    results.own.server_cores = server_cores.clone();
    results.own.client_cores = client_cores.clone();
    results.own.hosts = hosts.cloned();
    if let Some(hosts) = hosts {
        results.warnings.extend(hosts.warnings());
    } else if let Some(core) = client_cores.iter().find(|core| server_cores.contains(core)) {
        results
            .warnings
            .push(format!("server and client share core {core}: rates say little about either"));
    }
    let settings = settings(args);
    let room = fleet.as_ref().map(|fleet| fleet.room());
    let mut warnings = vec![];
    if args.classic {
        results.own.classic = Some(Classic::up_to(most_tried(args, room, &mut warnings)?));
        results.warnings.extend(warnings.iter().cloned());
    }
    let clients = hosts.map_or(1, |hosts| hosts.generators.len());
    let descriptors = match room {
        Some(room) => most_descriptors(&room, if args.strategies { 1 } else { clients }),
        None => weir_load::tcp::descriptors(),
    };
    warnings.extend(experiment::heed_descriptors(&mut results, descriptors));
    if let Some(hosts) = hosts.filter(|_| is_elsewhere) {
        // Several ranks of one host have one address, too.
        let address = |host: Option<&Host>| host.map(|host| host.link.address);
        let is_shared = address(hosts.generators.first()) == address(hosts.generators.last());
        warnings.extend(strategies::heed_addresses(&mut results, is_shared));
    }
    let most = results.own.classic.as_ref().map(|classic| {
        format!("and the search for the most connections, up to {}, ", classic.most)
    });
    let most = most.unwrap_or_default();
    let places = match hosts {
        Some(hosts) => format!("{most}server: {}; ", hosts.links_in_words()),
        None => format!(
            "{most}server on core {:?}, client on core {:?}; ",
            results.own.server_cores, results.own.client_cores
        ),
    };
    let planned =
        Planned { results, settings, common: &args.common, context, places, title, warnings };
    planned.make(|results, settings, making| {
        let (interrupt, display) = (making.interrupt.clone(), &mut making.display);
        let mut bench = Processes::new(program, server_cores, client_cores, interrupt, making.tell)
            .logging_performance(args.common.logged_every());
        if args.on == On::Veth {
            // This thread is at the client's end of it from now on.
            let link = Link::make().map_err(weir::Error::from)?;
            link.give_clients_addresses().map_err(weir::Error::from)?;
            results.own.link = Some(link.describe().into());
            bench = bench.at(Site::Link(link));
        }
        if let Some(fleet) = &fleet {
            bench = bench.at(Site::Hosts(Arc::clone(fleet)));
        }
        experiment::run(&mut bench, results, settings, &mut |progress| {
            display.show(&progress, title)
        });
        fleet.iter().for_each(|fleet| fleet.conclude(results));
        Ok(())
    })
}

/// The most connections that a search tries: no more than the clients have ports for.
fn most_tried(
    args: &TcpArgs,
    room: Option<Room>,
    warnings: &mut Vec<String>,
) -> Result<u32, Failure> {
    let asked = connections(args.most)?;
    let ports = room.and_then(|room| room.connections).filter(|most| *most < asked.into());
    Ok(match ports {
        None => asked,
        Some(most) => {
            warnings.push(format!(
                "no more than {most} connections are tried, because the clients' hosts have ports for no more \
                 (ip_local_port_range): start more generators"
            ));
            most as u32
        }
    })
}

/// How many descriptors a process may have at any host, as if all connections were of one: so many clients share them.
fn most_descriptors(room: &Room, clients: usize) -> Option<u64> {
    let of_clients = room.of_client.map(|own| {
        own.saturating_sub(descriptors::BESIDES) * clients as u64 + descriptors::BESIDES
    });
    room.of_server.into_iter().chain(of_clients).min()
}

/// Whether everything that was asked for can be had on a link.
fn can_be_on_a_link(args: &TcpArgs) -> Result<(), Failure> {
    refuse(&[
        (args.hosts.mpi, NO_LINK),
        (
            args.classic,
            "--classic searches for the most connections with addresses of loopback: leave out --classic or --on veth",
        ),
    ])
}

/// Refuses the first of these that was asked for.
fn refuse(refused: &[(bool, &str)]) -> Result<(), Failure> {
    match refused.iter().find(|(is_asked, _)| *is_asked) {
        Some((_, why)) => Err(Failure::usage(*why)),
        None => Ok(()),
    }
}

fn settings(args: &TcpArgs) -> Settings {
    Settings {
        depth: if args.classic { Depth::Full } else { depth(args.quick, args.sweep) },
        rounds: args.common.rounds.or(args.classic.then_some(ROUNDS_OF_CLASSIC)),
        budget_s: args.time.map(|time| time.as_secs_f64()),
        is_bound: args.time.is_some(),
    }
}

/// What was asked for, as the plan takes it.
fn asked(args: &TcpArgs) -> Result<Asked, Failure> {
    let length = |length: &usize| match u32::try_from(*length) {
        Ok(bytes) if (1..=MESSAGE_BYTES_MAX).contains(&bytes) => Ok(bytes),
        _ => Err(Failure::usage(format!(
            "a message (--length) of {length} bytes; it must be 1 to {MESSAGE_BYTES_MAX}"
        ))),
    };
    let does = |does: &Does| match does {
        Does::PingPong => Pattern::PingPong,
        Does::Streaming => Pattern::Streaming,
    };
    let buffer = |bytes: usize| match bytes {
        1..=weir::tcp::MOST_BUFFER_BYTES => Ok(bytes as u32),
        _ => Err(Failure::usage(format!(
            "a buffer (--buffer) of {bytes} bytes; it must be 1 to {}",
            weir::tcp::MOST_BUFFER_BYTES
        ))),
    };
    let asked = Asked {
        message_bytes: args.length.iter().map(length).collect::<Result<_, _>>()?,
        connections: args.connections.iter().map(|n| connections(*n)).collect::<Result<_, _>>()?,
        patterns: args.pattern.iter().map(does).collect(),
        outstanding: args.outstanding,
        buffer_bytes: args.buffer.map(buffer).transpose()?,
        ..Asked::new(depth(args.quick, args.sweep))
    };
    let streams = |load: &Load| load.pattern == Pattern::Streaming;
    if asked.outstanding.is_some() && !asked.loads().iter().any(streams) {
        return Err(Failure::usage(
            "--outstanding applies to streaming connections only, as in ping-pong one message is under way; \
             add --pattern streaming",
        ));
    }
    Ok(asked)
}

/// The mixes that were asked for.
fn mixes(args: &TcpArgs) -> Result<Vec<Load>, Failure> {
    let own = match args.connections.as_slice() {
        [] => None,
        [one] => Some(connections(*one)?),
        _ => {
            return Err(Failure::usage(
                "--strategies takes one number of connections (-c), that of the connections whose figures count; give \
                 one",
            ));
        }
    };
    let others = args.others.map(connections).transpose()?;
    let only: Vec<MixName> = args.mix.iter().map(|mix| mix.0).collect();
    Ok(strategies::loads(depth(args.quick, false), &only, own, others))
}

/// A mix as it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct MixGiven(MixName);

impl ValueEnum for MixGiven {
    fn value_variants<'a>() -> &'a [Self] {
        const ALL: [MixGiven; MixName::ALL.len()] = {
            let mut all = [MixGiven(MixName::Idle); MixName::ALL.len()];
            let mut place = 0;
            while place < all.len() {
                all[place] = MixGiven(MixName::ALL[place]);
                place += 1;
            }
            all
        };
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.0.name()))
    }
}

fn connections(number: u64) -> Result<u32, Failure> {
    match number {
        1..=CONNECTIONS_MAX => Ok(number as u32),
        _ => {
            Err(Failure::usage(format!("{number} connections; it must be 1 to {CONNECTIONS_MAX}")))
        }
    }
}

/// The rows: designs, peers, and one of the designs twice. What the server's host has is not known here where it is another.
fn rows(args: &TcpArgs, cores: usize, is_elsewhere: bool) -> Result<Vec<Row>, Failure> {
    let mut rows = match (args.design.is_empty(), args.strategies) {
        (true, false) => rows::all(cores),
        (true, true) => strategies::rows(depth(args.quick, args.sweep)).map_err(Failure::failed)?,
        (false, _) => rows::of_texts(&args.design).map_err(Failure::usage)?,
    };
    if let Some(folder) = &args.peers {
        let needs_one = !is_elsewhere;
        rows.extend(peers::of_folder(folder, &rows, needs_one).map_err(Failure::usage)?);
    }
    rows.extend(rows::of_peers(&args.peer, &rows).map_err(Failure::usage)?);
    rows::add_again(&mut rows);
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(words: &[&str]) -> TcpArgs {
        crate::compare::parsed(words).unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    fn loads(words: &[&str]) -> Vec<String> {
        asked(&args(words)).unwrap().loads().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn lists_are_every_combination() {
        assert_eq!(loads(&[]).len(), 3);
        assert_eq!(loads(&["--quick"]), ["ping-pong, 64 B, 64 connections"]);
        assert_eq!(loads(&["--sweep"]).len(), 32);
        let words = ["-l", "64,1k", "-c", "1,2k", "--pattern", "streaming", "-o", "8"];
        let wanted = [
            "streaming, 64 B, 1 connection, 8 under way on each",
            "streaming, 64 B, 2000 connections, 8 under way on each",
            "streaming, 1024 B, 1 connection, 8 under way on each",
            "streaming, 1024 B, 2000 connections, 8 under way on each",
        ];
        assert_eq!(loads(&words), wanted);
    }

    #[test]
    fn the_help_names_what_is_so() {
        use clap::CommandFactory as _;
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            _args: TcpArgs,
        }
        let help = Line::command().render_long_help().to_string();
        let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
        let by_itself = loads(&["--sweep"]);
        assert!(by_itself.iter().any(|load| load.contains("10000 connections")));
        for said in [
            "[default: 1,64,1000; with --quick 64, with --sweep 1,64,1000,10000]",
            "[default: 64; with --quick 64, with --sweep 64,1024,16384,65536]",
            "[default: 110s, with --quick 30s;",
            "With --classic the search gets 40 % of it",
        ] {
            assert!(help.contains(said), "{said:?} is missing of {help}");
        }
    }

    #[test]
    fn the_experiment_of_the_original_has_its_own_rounds() {
        let of = |words: &[&str]| settings(&args(words));
        assert_eq!(of(&["--classic"]).rounds, Some(ROUNDS_OF_CLASSIC));
        assert_eq!(of(&["--classic", "--rounds", "1"]).rounds, Some(1));
        assert_eq!((of(&[]).rounds, of(&["-t", "5"]).budget_s), (None, Some(5.0)));
    }

    #[test]
    fn strategies_have_mixes_of_their_own() {
        let mixes = |words: &[&str]| {
            let words = [&["--strategies"], words].concat();
            let loads = mixes(&args(&words));
            loads.map(|loads| loads.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        assert_eq!(mixes(&[]).unwrap().len(), MixName::ALL.len());
        let tiny = mixes(&["--mix", "stuck,silent", "-c", "2", "--others", "3"]).unwrap();
        assert_eq!(
            tiny,
            [
                "silent: ping-pong, 64 B, 2 connections, 2000/s in all beside 3 from 3 addresses that send nothing",
                "stuck: ping-pong, 64 B, 2 connections, 2000/s in all beside 3 from 1 address that send and do not \
                 read",
            ]
        );
        assert!(mixes(&["-c", "1,2"]).unwrap_err().message.contains("give one"));
        let rows = rows(&args(&["--strategies", "--quick"]), 1, false).unwrap();
        assert!(rows.iter().any(|row| title(row) == "epoll --active 100"));
    }

    #[test]
    fn what_a_link_has_not_is_refused_with_the_reason() {
        let refused = |more: &[&str]| {
            let words = [&["--on", "veth"], more].concat();
            can_be_on_a_link(&args(&words)).map_err(|failure| failure.message)
        };
        assert!(refused(&[]).is_ok() && refused(&["--strategies"]).is_ok());
        for (words, said) in [
            (&["--mpi"][..], "leave --on veth out"),
            (&["--classic"], "leave out --classic or --on veth"),
        ] {
            let why = refused(words).expect_err("it has not");
            assert!(why.contains(said), "{why}");
        }
    }

    #[test]
    fn a_design_is_added_once_more() {
        let args = args(&["--design", "select", "--design", "epoll", "--peer", "go=x {port}"]);
        let titles: Vec<String> = rows(&args, 1, false).unwrap().iter().map(title).collect();
        assert_eq!(titles[..3], ["select", "epoll", "go (peer)"]);
    }
}
