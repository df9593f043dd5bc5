//! The options of `weir compare udp`.

use std::time::Duration;

use clap::{Args, ValueEnum};
use weir::socket::{MOST_BUSY_POLL, ReceiveBuffer};
use weir_lab::experiment::plan::budget::{QUICK_S, STANDARD_S};
use weir_lab::udp::plan::budget::WITH_ANSWERS;
use weir_lab::udp::plan::{Held, Rate, Work};
use weir_load::flood::{OUTSTANDING_MAX, Replies};
use weir_load::pacing::Arrivals;
use weir_load::quantity::{
    parse_bit_rate, parse_count, parse_percent, parse_rate, parse_size, parse_time,
};

use crate::compare::common::{
    ALL_QUICK_S, ALL_STANDARD_S, CommonArgs, OfAll, On, parse_time_given,
};
use crate::compare::hosts::HostArgs;
use crate::compare::{EXIT_CODES, defaults};
use crate::cores::{Cores, MOST_SERVER_CORES};
use crate::serve::parse_receive_buffer;

/// Seconds for every variant of every design, with the loads of the default.
pub const VARIANTS_BUDGET_S: f64 = 300.0;
/// The least time in which servers that answer are compared beside sinks.
const LEAST_FOR_ANSWERS: Duration = Duration::from_secs(20);

/// What says something of speed, or of rows that the comparison of memory does not have.
const IGNORED_BY_MEMORY: &[&str] = &[
    "rounds",
    "performance_interval",
    "peer",
    "peer_head",
    "quick",
    "full",
    "time",
    "length",
    "work",
    "threads",
    "ports",
    "parallel",
    "reply",
    "reply_size",
    "reply_offload",
    "outstanding",
    "generators",
    "rcvbuf",
    "load",
    "study",
    "link_speed",
    "pace",
    "sweep",
    "burst",
    "held",
    "arrivals",
    "no_send_offload",
    "receive_offload",
    "busy_poll",
    "confidence",
    "on",
    "mpi",
    "seed",
    "verbose",
    "dry_run",
];

/// Options of `weir compare udp`.
#[derive(Debug, Clone, PartialEq, Args)]
#[command(after_help = EXIT_CODES)]
pub struct UdpArgs {
    /// Design with its options, such as "rio-hybrid --threads 2"; repeatable [default: every design once, on
    /// its best provider, with at most as many threads as the server has cores].
    #[arg(long)]
    pub(in crate::compare) design: Vec<String>,

    /// A program on another library, to be compared with the designs: a name, "=", and its command. It talks with
    /// weir over its standard input and output (see peers/README.md). A program with {port} in its command need not:
    /// what it received is then taken from the kernel's counts. Repeatable.
    #[arg(long, value_name = "NAME=COMMAND")]
    pub(in crate::compare) peer: Vec<String>,

    /// Bytes that such a program expects at the beginning of each datagram.
    #[arg(long, value_name = "NAME=HEX", requires = "peer")]
    pub(super) peer_head: Vec<String>,

    /// A first look in three quarters of a minute (all kinds: one and a quarter): saturation only, sinks and servers that
    /// answer, and too few rounds for intervals and verdicts.
    #[arg(long, conflicts_with = "full")]
    pub(in crate::compare) quick: bool,

    /// The whole study: every load, size, work and number of ports, flows and generators, with and without
    /// receive offload, and sweeps over load, work and threads. Takes more than an hour (81 minutes on two cores);
    /// --dry-run says how long.
    #[arg(long)]
    pub(super) full: bool,

    /// Each design on each of its providers, on one thread and on its own number of threads; takes
    /// about 5 minutes.
    #[arg(long, conflicts_with = "design")]
    pub(super) variants: bool,

    /// Instead of speed, the memory that the kernel holds for 100 to 150,000 outstanding receives of
    /// each design; takes about 3 minutes.
    #[arg(long, conflicts_with_all = IGNORED_BY_MEMORY)]
    pub(in crate::compare) memory: bool,

    #[arg(short = 't', long, value_parser = parse_time_given, help = format!(
        "Total time [default: {}s, with --quick {}s (all kinds: {}s and {}s), with --variants {VARIANTS_BUDGET_S}s; \
         with --rounds, or with more loads than usual, as long as their rounds take: see --dry-run]. If given, it is a \
         limit: nothing that does not fit is begun, and the results are written when it is over",
        WITH_ANSWERS * STANDARD_S, WITH_ANSWERS * QUICK_S, ALL_STANDARD_S, ALL_QUICK_S
    ))]
    pub(in crate::compare) time: Option<Duration>,

    /// Payload of a datagram in bytes (k = 1024). The first value of this list, and of those of --work, --ports,
    /// --parallel and --generators, is the base; each other value is compared alone, with the first values of the
    /// other lists.
    #[arg(
        short = 'l', long, visible_alias = "size", value_parser = parse_size, value_delimiter = ','
    )]
    pub(super) length: Vec<usize>,

    /// Work per datagram: this many steps plus one of a pseudo-random generator; shared:500 runs them on
    /// state that all threads share under a lock [default: 0].
    #[arg(long, value_delimiter = ',')]
    pub(super) work: Vec<Work>,

    /// Servers that answer each datagram, instead of sinks. At saturation each flow keeps --outstanding requests under
    /// way (closed loop), and rows are ranked by answers per second. At a paced load each request goes out at its time
    /// (open loop), and rows are ranked by round trip. Every answer is verified byte for byte.
    #[arg(long, conflicts_with = "burst")]
    pub(super) reply: bool,

    /// Bytes of each answer, which repeats the beginning of the datagram: 32 to the datagram's length (k = 1024)
    /// [default: all of it].
    #[arg(long, requires = "reply", value_parser = parse_size)]
    pub(super) reply_size: Option<usize>,

    /// Whether servers that send batches send several answers to one client as one (UDP_SEGMENT). With the value
    /// with-receive only those with receive offload do, so that --receive-offload=paired says what both offloads are
    /// worth together [default: on].
    #[arg(long, requires = "reply")]
    pub(super) reply_offload: Option<Joins>,

    /// Servers that answer beside sinks, as one of all kinds of comparisons.
    #[arg(skip)]
    pub(super) answers_too: bool,

    #[arg(
        long, requires = "reply",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(OUTSTANDING_MAX)),
        help = format!(
            "Requests that each flow keeps outstanding in a closed loop [default: {}]",
            Replies::default().outstanding
        )
    )]
    pub(super) outstanding: Option<u32>,

    /// Numbers of threads: a row for each, for every design that has this option and whose --design does not set it.
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(super) threads: Vec<u32>,

    /// Ports that the server listens on; a flow goes to one of them [default: 1].
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(super) ports: Vec<u16>,

    /// Flows of each generator [default: 1].
    #[arg(
        short = 'P', long, visible_alias = "flows", value_delimiter = ',',
        value_parser = clap::value_parser!(u16).range(1..=1024)
    )]
    pub(super) parallel: Vec<u16>,

    /// Generators: threads that send, on separate cores if available [default: 1].
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(super) generators: Vec<u16>,

    /// Receive buffer of each socket: system (its default), outstanding (room for as many datagrams as the design has
    /// receives outstanding), or bytes to request (k = 1024). Rates and latencies can be compared only if all rows
    /// have the same buffer, as with system or bytes [default: system, with --burst outstanding].
    #[arg(long, value_parser = parse_receive_buffer)]
    pub(super) rcvbuf: Option<ReceiveBuffer>,

    /// Instead of rates, measure how much of a burst each design receives: so many datagrams (k = 1000) sent at once,
    /// such as 1k,5k,20k,150k.
    #[arg(
        long, value_parser = parse_burst, value_delimiter = ',',
        conflicts_with_all = ["load", "pace", "sweep", "full", "receive_offload"]
    )]
    pub(super) burst: Vec<u64>,

    /// What the server does while a burst arrives. 0: it waits for datagrams. A time, such as 1ms: each thread stops at
    /// its first datagram for this long. sent: it stops there until everything has been sent, so that it receives only
    /// what there was room for [default: 0,1ms,10ms,sent].
    #[arg(long, value_delimiter = ',', requires = "burst")]
    pub(super) held: Vec<Held>,

    /// Loads: saturation, datagrams per second (k = 1000), a share of each design's own maximum, or a share of a link
    /// (--link-speed), as in saturation,75%,50k,link:50% [default: saturation,50k and servers that answer, with 64
    /// requests under way; with --quick without 50k; without servers that answer if --rounds or a --time below 20s is
    /// given, or another option that changes what is compared than --design, --threads and --length].
    #[arg(long, value_parser = parse_load, value_delimiter = ',', conflicts_with = "pace")]
    pub(super) load: Vec<Pace>,

    /// Repeat a published study as far as the hosts allow, with its servers (or those of --design), sizes and loads,
    /// and show its figures beside the new ones.
    #[arg(
        long, requires = "mpi",
        conflicts_with_all = ["load", "pace", "length", "sweep", "burst", "reply", "quick", "full"]
    )]
    pub(super) study: Option<StudyOf>,

    /// The link of which link:50% is a share: its speed in bits per second (k = 1000), such as 10G, or the name of a
    /// network device of this machine, such as eth0, to use its speed. A datagram of n bytes takes n + 8 (UDP) + 20
    /// (IPv4) + 14 (Ethernet) + 4 (check sequence) + 8 (preamble) + 12 (gap) bytes of the link, with at least 64 from
    /// Ethernet header to check sequence. With 1024 bytes that is 1090, so 50 % of 10G is 10e9 / 8 x 0.5 / 1090 =
    /// 573,394 datagrams per second. A datagram that does not fit into 1500 bytes goes in fragments, each with its own
    /// headers below UDP [default: on veth, what its driver says].
    #[arg(long, value_name = "SPEED|DEVICE", value_parser = parse_link_speed)]
    pub(super) link_speed: Option<LinkSpeed>,

    /// Paced load besides saturation, in datagrams per second (k = 1000) or as a share of each
    /// design's own maximum or of a link: 50k, 75% or link:50%; repeatable.
    #[arg(long, value_parser = parse_pace)]
    pub(super) pace: Vec<Pace>,

    /// What to vary in small steps. load: the offered load, for each design's no-drop and partial-drop rate and the
    /// latencies below the latter. work, threads: where designs overtake one another. outstanding, dequeue,
    /// threshold, defer: an option of the designs that have it.
    #[arg(long, value_delimiter = ',')]
    pub(super) sweep: Vec<Swept>,

    /// How the datagrams of a paced load follow one another: at even intervals, or at the times of a Poisson process,
    /// as from many independent senders.
    #[arg(long, value_name = "EVEN|POISSON", default_value = Arrivals::Even.name())]
    pub(super) arrivals: Arrivals,

    /// Generator without segmentation offload.
    #[arg(long)]
    pub(super) no_send_offload: bool,

    /// Servers with receive offload (UDP_GRO): several datagrams of one sender and one size arrive as one. only: such
    /// rows alone. paired: each design with and without it in the same rounds, ranked separately, with the ratio of
    /// the two [with --full on loopback: paired].
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "only")]
    pub(super) receive_offload: Option<ReceiveOffload>,

    /// Servers whose sockets poll the queue of their device for this long before they wait, such as 50us; may
    /// need CAP_NET_ADMIN. Such figures are compared only with each other. On loopback there is nothing to
    /// poll, and the report says so.
    #[arg(long, value_parser = parse_polling)]
    pub(super) busy_poll: Option<u64>,

    #[arg(long, help = format!(
        "Cores of the server: 0 or 2,3 or 4-7 [default: the first ones, at most {MOST_SERVER_CORES}]"
    ))]
    pub(in crate::compare) server_cpu: Option<Cores>,

    /// Cores of the generators, which take them in turn [default: the last ones].
    #[arg(long)]
    pub(in crate::compare) generator_cpu: Option<Cores>,

    /// Where server and generator meet. On a virtual link AF_XDP takes part, and every row is flooded with live frames,
    /// or from a socket if the load is slow. Figures of one place are compared only with each other.
    #[arg(long, value_enum, default_value_t = On::Loopback)]
    pub(super) on: On,

    #[command(flatten)]
    pub(in crate::compare) hosts: HostArgs,

    #[command(flatten)]
    pub(in crate::compare) common: CommonArgs,
}

impl UdpArgs {
    /// What a comparison of all kinds has of it: saturation alone, since a second load takes as long again.
    pub fn of_all(of: &OfAll) -> Self {
        Self {
            quick: of.quick,
            time: of.time,
            load: vec![Pace::At(Rate::Saturation)],
            answers_too: of.common.rounds.is_none()
                && of.time.is_none_or(|time| time >= LEAST_FOR_ANSWERS),
            server_cpu: of.server_cpu.clone(),
            generator_cpu: of.generator_cpu.clone(),
            common: of.common.clone(),
            ..defaults()
        }
    }

    /// Whether servers that answer are compared beside sinks: where nothing is asked for but designs, their numbers of
    /// threads, a size, and a time that is long enough.
    pub fn adds_answers(&self) -> bool {
        let plain = Self {
            design: self.design.clone(),
            quick: self.quick,
            time: self.time.filter(|time| *time >= LEAST_FOR_ANSWERS),
            length: self.length.clone(),
            threads: self.threads.clone(),
            server_cpu: self.server_cpu.clone(),
            generator_cpu: self.generator_cpu.clone(),
            common: CommonArgs { rounds: None, ..self.common.clone() },
            ..defaults()
        };
        self.answers_too || *self == plain
    }

    /// Whether nothing is asked for that only UDP has.
    pub fn are_for_all(&self) -> bool {
        let of_all = Self {
            quick: self.quick,
            time: self.time,
            server_cpu: self.server_cpu.clone(),
            generator_cpu: self.generator_cpu.clone(),
            common: self.common.clone(),
            ..defaults()
        };
        *self == of_all
    }
}

/// Whose study is repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum StudyOf {
    /// Len Holgate's of 2011 and 2012: his servers, with his settings, and datagrams of 1024 bytes at 25, 50 and 75 % of
    /// the link between two hosts.
    Holgate,
}

impl StudyOf {
    /// Its loads.
    pub(super) fn loads(self) -> Vec<Pace> {
        match self {
            Self::Holgate => [0.25, 0.5, 0.75].map(Pace::OfLink).to_vec(),
        }
    }

    /// Its servers, in the settings that they had.
    pub(super) fn designs(self) -> Vec<String> {
        let all: &[&str] = match self {
            Self::Holgate => &[
                "blocking",
                "port --threads 1 --armed 5000 --submit-after 1",
                "port --armed 5000 --submit-after 1",
                "port-batch",
                "rio-polled",
                "rio-event",
                "rio-event-polled",
                "rio-port --threads 1 --posts-per-lock 1",
                "rio-port --posts-per-lock 1",
                "rio-hybrid --spin 0",
                "rio-reader",
                "rio-hybrid-reader --spin 0",
            ],
        };
        all.iter().map(ToString::to_string).collect()
    }

    /// Its payloads in bytes.
    pub(super) fn lengths(self) -> Vec<usize> {
        match self {
            Self::Holgate => vec![1024],
        }
    }
}

/// A load, as written.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Pace {
    /// At this rate.
    At(Rate),
    /// At a share of a link, whose speed is asked for only then.
    OfLink(f64),
}

/// Where the speed of a link is known from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LinkSpeed {
    /// It was said, in bits per second.
    Stated(u64),
    /// The device of this name says it.
    OfDevice(String),
}

/// What is swept, as written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Swept {
    /// The offered load.
    Load,
    /// Work per datagram.
    Work,
    /// Threads.
    Threads,
    /// Receives outstanding, 64 to 150,000, of each design that can be told how many.
    Outstanding,
    /// Most completions of one dequeue, 1 to 1000; the hybrid's threshold stays at two thirds.
    Dequeue,
    /// Datagrams in one dequeue at which another thread joins a hybrid, 16 to 1000.
    Threshold,
    /// Posts that are committed together, 1 to 1000.
    Defer,
}

/// Which servers let answers leave as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Joins {
    /// All that can.
    On,
    /// Those with receive offload.
    WithReceive,
    /// None: each answer leaves by itself.
    Off,
}

/// Which rows have receive offload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum ReceiveOffload {
    /// No row.
    No,
    /// Every row.
    Only,
    /// Each row with and without.
    Paired,
}

fn parse_load(text: &str) -> Result<Pace, String> {
    match text {
        "saturation" => Ok(Pace::At(Rate::Saturation)),
        _ => parse_pace(text),
    }
}

fn parse_pace(text: &str) -> Result<Pace, String> {
    if let Some(share) = text.strip_prefix("link:") {
        return parse_percent(share).map(Pace::OfLink);
    }
    Ok(Pace::At(match text.ends_with('%') {
        true => Rate::OfMaximum(parse_percent(text)?),
        false => Rate::PerSecond(parse_rate(text)?.round().max(1.0) as u64),
    }))
}

/// The fastest link that is believed: above it a rate would be no number of a datagram's time any more.
const FASTEST_BITS_PER_S: f64 = 1e13;

/// What begins with a digit is a speed; names of devices do not.
fn parse_link_speed(text: &str) -> Result<LinkSpeed, String> {
    if !text.starts_with(|c: char| c.is_ascii_digit() || c == '.' || c == '-') {
        return match text.is_empty() {
            true => Err("give a speed, such as 10G, or the name of a device, such as eth0".into()),
            false => Ok(LinkSpeed::OfDevice(text.into())),
        };
    }
    match parse_bit_rate(text)? {
        bits if bits <= FASTEST_BITS_PER_S => Ok(LinkSpeed::Stated(bits.round().max(1.0) as u64)),
        _ => Err(format!("{text:?} is more than any link carries; allowed: at most 10T")),
    }
}

/// The largest burst: more are a flood.
const MOST_AT_ONCE: u64 = 10_000_000;

/// How many datagrams are sent at once.
fn parse_burst(text: &str) -> Result<u64, String> {
    match parse_count(text)? {
        count if (1..=MOST_AT_ONCE).contains(&count) => Ok(count),
        _ => Err(format!("{text:?} is not allowed; allowed: 1 to {MOST_AT_ONCE}")),
    }
}

/// How long sockets poll, in microseconds.
fn parse_polling(text: &str) -> Result<u64, String> {
    let time = parse_time(text)?;
    match u64::try_from(time.as_micros()) {
        Ok(us) if us > 0 && time <= MOST_BUSY_POLL => Ok(us),
        _ => Err(format!("{text:?} is not allowed; allowed: 1us to {MOST_BUSY_POLL:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn are_for_all(words: &[&str]) -> bool {
        crate::compare::parsed::<UdpArgs>(words).unwrap().are_for_all()
    }

    #[test]
    fn what_all_kinds_have_is_no_word_for_udp() {
        assert!(
            are_for_all(&[])
                && are_for_all(&["--quick", "-t", "9", "--seed", "4", "--rounds", "2", "--json"])
        );
        for words in [
            &["--design", "blocking"][..],
            &["--peer", "tokio=peer"],
            &["--peer", "tokio=peer", "--peer-head", "tokio=00"],
            &["--full"],
            &["--variants"],
            &["--memory"],
            &["-l", "64"],
            &["--work", "0"],
            &["--threads", "1"],
            &["--ports", "1"],
            &["-P", "1"],
            &["--generators", "1"],
            &["--rcvbuf", "1m"],
            &["--load", "50k"],
            &["--pace", "50k"],
            &["--link-speed", "10G"],
            &["--sweep", "load"],
            &["--burst", "1k"],
            &["--quick", "--no-send-offload"],
            &["--receive-offload=no"],
            &["--busy-poll", "50us"],
            &["--on", "veth"],
            &["--mpi"],
            &["--reply"],
            &["--reply", "--reply-size", "32"],
            &["--reply", "--outstanding", "8"],
        ] {
            assert!(!are_for_all(words), "{words:?}");
        }
    }

    #[test]
    fn a_time_of_polling_has_limits() {
        assert_eq!(parse_polling("50us"), Ok(50));
        assert_eq!(parse_polling("1ms"), Ok(1000));
        assert!(parse_polling("0").is_err() && parse_polling("2").is_err());
    }

    #[test]
    fn a_burst_is_a_number_within_limits() {
        assert_eq!(parse_burst("150k"), Ok(150_000));
        for wrong in ["0", "11m", "x"] {
            assert!(parse_burst(wrong).is_err(), "{wrong}");
        }
        let of = crate::compare::parsed::<UdpArgs>;
        assert!(of(&["--burst", "1k,5k", "--held", "0,10ms,sent"]).is_ok());
        assert!(of(&["--held", "0"]).is_err(), "of what burst?");
        assert!(of(&["--burst", "1k", "--load", "50k"]).is_err());
        assert!(of(&["--burst", "1k", "--reply"]).is_err(), "nobody waits for answers to a burst");
    }

    #[test]
    fn the_speed_of_a_link_is_stated_or_that_of_a_device() {
        assert_eq!(parse_link_speed("10G"), Ok(LinkSpeed::Stated(10_000_000_000)));
        assert_eq!(parse_link_speed("2.5Gbit/s"), Ok(LinkSpeed::Stated(2_500_000_000)));
        assert_eq!(parse_link_speed("eth0"), Ok(LinkSpeed::OfDevice("eth0".into())));
        for wrong in ["", "0", "-1", "10X", "11T", "1e9"] {
            assert!(parse_link_speed(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_pace_is_a_rate_or_a_share() {
        assert_eq!(parse_pace("50k"), Ok(Pace::At(Rate::PerSecond(50_000))));
        assert_eq!(parse_pace("75%"), Ok(Pace::At(Rate::OfMaximum(0.75))));
        assert_eq!(parse_pace("link:33%"), Ok(Pace::OfLink(0.33)));
        assert!(parse_pace("link:").is_err() && parse_pace("link:101%").is_err());
        assert!(
            parse_pace("0").is_err() && parse_pace("150%").is_err() && parse_pace("x").is_err()
        );
    }
}
