//! `weir serve udp --any-port`: who sends what to which port of a device's addresses.
//!
//! Datagrams are counted by who sent them (Ethernet and IP address) and to which port. How many of such pairs there will
//! be nobody knows, so a table has a limit, and the policy of *space-saving*: one that is not in a full table takes the
//! place of the one with the fewest datagrams. So whatever has more than one in [`ENTRIES`] of all datagrams is in the
//! table for certain, and what is shown of a pair is what was counted since it is in it: so many at least.
//!
//! Origin: Metwally, Agrawal and El Abbadi, "Efficient Computation of Frequent and Top-k Elements in Data Streams", 2005.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;
use weir::rio::Choice;
use weir::udp::Datagram;
use weir_lab::report::number::si;

use super::event::Event;
use crate::exit::Failure;

/// Most pairs of a table.
pub const ENTRIES: usize = 256;

/// Bytes of a datagram that are printed.
const PRINTED_BYTES: usize = 32;

/// The providers that receive the datagrams to every port, best first.
fn providers() -> impl Iterator<Item = Choice> {
    Choice::ALL.iter().copied().filter(|choice| choice.receives_any_port())
}

/// What a provider is called here: without what all of them have in common.
fn short(choice: Choice) -> String {
    let name = choice.to_string();
    name.strip_suffix("-any-port").unwrap_or(&name).to_owned()
}

/// Reads the name of a provider that receives the datagrams to every port.
pub fn parse_provider(text: &str) -> Result<Choice, String> {
    let named = |choice: &Choice| choice.to_string() == text || short(*choice) == text;
    providers().find(named).ok_or_else(|| {
        let all: Vec<String> = providers().map(short).collect();
        format!("{text:?} cannot receive the datagrams to every port; allowed: {}", all.join(", "))
    })
}

/// The addresses of a device, each with any free port.
pub fn addresses(device: &str) -> Result<Vec<SocketAddr>, Failure> {
    let found = weir::machine::addresses(device).map_err(|error| {
        Failure::usage(format!("--on {device}: {error}; name a network device of this machine"))
    })?;
    if found.is_empty() {
        return Err(Failure::usage(format!(
            "--on {device}: it has no address to receive at; give it one, or name another device"
        )));
    }
    Ok(found.into_iter().map(|ip| SocketAddr::new(ip, 0)).collect())
}

/// The design on a provider, and why no better one is used.
pub struct OnProvider {
    /// The design with its options.
    pub design: String,
    /// The provider, and what is to be known of it.
    pub said: String,
}

/// Starts a design on the provider that was asked for, or else on the first that can be used here.
pub fn start_on_first<S>(
    design: &str,
    asked: Option<Choice>,
    mut start: impl FnMut(&str) -> Result<S, weir::Error>,
) -> Result<(S, OnProvider), Failure> {
    if design.split_whitespace().any(|word| word.starts_with("--provider")) {
        return Err(Failure::usage(
            "with --any-port the provider is not an option of --design; give --provider beside it",
        ));
    }
    let tried: Vec<Choice> = match asked {
        Some(choice) => vec![choice],
        None => providers().collect(),
    };
    let mut refused: Vec<String> = vec![];
    for choice in &tried {
        let on_it = format!("{design} --provider {choice}");
        let started = choice.availability().map_err(weir::Error::from);
        match started.and_then(|()| start(&on_it)) {
            Ok(started) => {
                let mut said = format!("by {choice} ({})", choice.about().summary);
                for reason in &refused {
                    let _ = write!(said, "; {reason}");
                }
                return Ok((started, OnProvider { design: on_it, said }));
            }
            Err(weir::Error::Unavailable(why)) if tried.len() > 1 => refused.push(why.to_string()),
            Err(error) => return Err(error.into()),
        }
    }
    Err(Failure { message: refused.join("; "), code: crate::exit::UNAVAILABLE })
}

/// Who sent to which port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Pair {
    from: IpAddr,
    mac: [u8; 6],
    /// The address of ours, where there are several.
    to: Option<IpAddr>,
    port: u16,
}

/// What is known of a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    pair: Pair,
    /// What decides who leaves a full table: what was counted of it, and what it may have had before.
    weight: u64,
    /// What was counted since it is in the table.
    datagrams: u64,
    bytes: u64,
}

/// The pairs with the most datagrams.
#[derive(Debug, Default)]
struct Table {
    entries: Vec<Entry>,
    places: HashMap<Pair, usize>,
    datagrams: u64,
    bytes: u64,
    /// Whether one had to leave it.
    is_short: bool,
}

impl Table {
    fn add(&mut self, pair: Pair, datagrams: u64, bytes: u64) {
        self.datagrams += datagrams;
        self.bytes += bytes;
        let place = match self.places.get(&pair) {
            Some(place) => *place,
            None => self.place_for(pair),
        };
        let entry = &mut self.entries[place];
        entry.weight += datagrams;
        entry.datagrams += datagrams;
        entry.bytes += bytes;
    }

    fn place_for(&mut self, pair: Pair) -> usize {
        let fresh = Entry { pair, weight: 0, datagrams: 0, bytes: 0 };
        let place = if self.entries.len() < ENTRIES {
            self.entries.push(fresh);
            self.entries.len() - 1
        } else {
            self.is_short = true;
            let lightest = (0..ENTRIES).min_by_key(|place| self.entries[*place].weight);
            let place = lightest.expect("it is full");
            let left = std::mem::replace(&mut self.entries[place], fresh);
            // It may have been sent as many before.
            self.entries[place].weight = left.weight;
            self.places.remove(&left.pair);
            place
        };
        self.places.insert(pair, place);
        place
    }

    /// Adds what another one has.
    fn take_in(&mut self, other: &Table) {
        self.is_short |= other.is_short;
        let counted: (u64, u64) =
            other.entries.iter().fold((0, 0), |(n, b), e| (n + e.datagrams, b + e.bytes));
        for Entry { pair, datagrams, bytes, .. } in &other.entries {
            self.add(*pair, *datagrams, *bytes);
        }
        // What left it is of nobody in particular.
        self.datagrams += other.datagrams - counted.0;
        self.bytes += other.bytes - counted.1;
    }

    /// The pairs with the most datagrams.
    fn most(&self, top: usize) -> Vec<Entry> {
        let mut entries: Vec<Entry> =
            self.entries.iter().copied().filter(|entry| entry.datagrams > 0).collect();
        entries.sort_unstable_by(|a, b| {
            b.datagrams.cmp(&a.datagrams).then(b.bytes.cmp(&a.bytes)).then(a.pair.cmp(&b.pair))
        });
        entries.truncate(top);
        entries
    }

    fn text(&self, top: usize) -> String {
        if self.datagrams == 0 {
            return String::new();
        }
        let shown = self.most(top);
        let least = if self.is_short { "≥ " } else { "" };
        let mut text = format!(
            "  {:>11}  {:>11}  {:>7}  {:<17}  from\n",
            "datagrams", "bytes", "to port", "Ethernet address"
        );
        for Entry { pair, datagrams, bytes, .. } in &shown {
            let to = pair.to.map_or(String::new(), |to| format!(" (to {to})"));
            let _ = writeln!(
                text,
                "  {:>11}  {:>11}  {:>7}  {}  {}{to}",
                format!("{least}{}", si(*datagrams as f64)),
                format!("{least}{}", si(*bytes as f64)),
                pair.port,
                ethernet(pair.mac),
                pair.from
            );
        }
        let others = self.datagrams - shown.iter().map(|entry| entry.datagrams).sum::<u64>();
        if others > 0 {
            let _ = writeln!(text, "  {:>11}  of others", si(others as f64));
        }
        text
    }
}

/// An Ethernet address as it is written.
fn ethernet(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// How many datagrams may be printed, and how many were not.
#[derive(Debug)]
struct Printing {
    per_s: u32,
    /// When the second began that is counted in, and how many were printed in it.
    second: Instant,
    printed: u32,
    left_out: u64,
}

impl Printing {
    fn may(&mut self, now: Instant) -> bool {
        if now.saturating_duration_since(self.second) >= Duration::from_secs(1) {
            (self.second, self.printed) = (now, 0);
        }
        if self.printed == self.per_s {
            self.left_out += 1;
            return false;
        }
        self.printed += 1;
        true
    }
}

/// What all threads of a server see.
#[derive(Debug)]
pub struct Ports {
    /// What each thread counted since it was last looked at.
    recent: Mutex<Vec<Arc<Mutex<Table>>>>,
    /// What was looked at before.
    whole: Mutex<Table>,
    printing: Option<Mutex<Printing>>,
    /// Rows that are shown.
    top: usize,
    began: Instant,
    has_several: bool,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Ports {
    /// Nothing yet, of a server at so many addresses, of which so many datagrams a second are printed.
    pub fn new(addresses: usize, top: usize, printed_per_s: Option<u32>) -> Arc<Self> {
        let began = Instant::now();
        let printing = |per_s| Printing { per_s, second: began, printed: 0, left_out: 0 };
        Arc::new(Self {
            recent: Mutex::default(),
            whole: Mutex::default(),
            printing: printed_per_s.map(|per_s| Mutex::new(printing(per_s))),
            top,
            began,
            has_several: addresses > 1,
        })
    }

    /// What one thread counts with.
    pub fn recorder(self: &Arc<Self>, events: &Sender<Event>) -> Recorder {
        let table = Arc::<Mutex<Table>>::default();
        lock(&self.recent).push(Arc::clone(&table));
        Recorder { ports: Arc::clone(self), table, events: events.clone() }
    }

    /// What came since this was last asked.
    fn take(&self) -> Table {
        let mut recent = Table::default();
        for of_thread in lock(&self.recent).iter() {
            let table = std::mem::take(&mut *lock(of_thread));
            recent.take_in(&table);
        }
        lock(&self.whole).take_in(&recent);
        recent
    }

    /// The table of what came since this was last asked, and what was not printed meanwhile.
    pub fn interval(&self) -> String {
        let mut text = self.take().text(self.top);
        if let Some(printing) = &self.printing {
            let mut printing = lock(printing);
            let left_out = std::mem::take(&mut printing.left_out);
            if left_out > 0 {
                let most = printing.per_s;
                let _ = writeln!(text, "  {left_out} not printed: at most {most} a second are");
            }
        }
        text
    }

    /// The table of all that came.
    pub fn report(&self) -> (String, Report) {
        self.take();
        let whole = lock(&self.whole);
        let rows = whole.most(ENTRIES).into_iter().map(|entry| Row {
            datagrams: entry.datagrams,
            bytes: entry.bytes,
            to: entry.pair.to,
            port: entry.pair.port,
            ethernet_address: ethernet(entry.pair.mac),
            from: entry.pair.from,
        });
        let report = Report {
            datagrams: whole.datagrams,
            bytes: whole.bytes,
            at_least: whole.is_short,
            pairs: rows.collect(),
        };
        (whole.text(self.top), report)
    }
}

/// Who sent what to which port, for programs.
#[derive(Debug, Serialize)]
pub struct Report {
    /// All that came.
    datagrams: u64,
    bytes: u64,
    /// Whether there were more pairs than a table holds: then those of a pair are so many at least.
    at_least: bool,
    /// The pairs with the most datagrams, most first.
    pairs: Vec<Row>,
}

/// A sender and a port.
#[derive(Debug, Serialize)]
struct Row {
    datagrams: u64,
    bytes: u64,
    /// The address that it was sent to, where the server has several.
    to: Option<IpAddr>,
    port: u16,
    ethernet_address: String,
    from: IpAddr,
}

/// What one thread counts with.
#[derive(Debug)]
pub struct Recorder {
    ports: Arc<Ports>,
    table: Arc<Mutex<Table>>,
    events: Sender<Event>,
}

impl Recorder {
    /// Counts a datagram, and prints it where that is asked for and is not too much.
    pub fn record(&self, datagram: &Datagram<'_>) {
        let Some(link) = datagram.link else { return };
        let pair = Pair {
            from: datagram.source.ip(),
            mac: link.mac,
            to: datagram.local.filter(|_| self.ports.has_several),
            port: link.local_port,
        };
        lock(&self.table).add(pair, 1, datagram.bytes.len() as u64);
        let Some(printing) = &self.ports.printing else { return };
        let now = Instant::now();
        if lock(printing).may(now) {
            let since = now.saturating_duration_since(self.ports.began);
            // Who prints has gone: it ends.
            let _ = self.events.send(Event::Line(line(since, datagram, link)));
        }
    }
}

/// A datagram as it is printed.
fn line(since: Duration, datagram: &Datagram<'_>, link: weir::socket::Link) -> String {
    let to = match datagram.local {
        Some(ip) => SocketAddr::new(ip, link.local_port).to_string(),
        None => format!("port {}", link.local_port),
    };
    let bytes = &*datagram.bytes;
    let beginning = bytes[..bytes.len().min(PRINTED_BYTES)].escape_ascii();
    let more = if bytes.len() > PRINTED_BYTES { "..." } else { "" };
    let cut = if datagram.truncated { " or more" } else { "" };
    format!(
        "{:>11.6}  {}  {} > {to}  length {}{cut}: \"{beginning}\"{more}",
        since.as_secs_f64(),
        ethernet(link.mac),
        datagram.source,
        bytes.len(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::mpsc::channel;
    use weir::socket::Link;

    fn pair(number: u32) -> Pair {
        let from = IpAddr::from(number.to_be_bytes());
        Pair { from, mac: [2, 0, 0, 0, 0, 1], to: None, port: number as u16 }
    }

    proptest! {
        #[test]
        fn what_is_frequent_is_in_a_full_table_and_no_count_is_too_high(
            rare in prop::collection::vec(1000u32..3000, 0..3000),
            often in 1u64..200,
        ) {
            let mut table = Table::default();
            for (turn, number) in rare.iter().enumerate() {
                table.add(pair(*number), 1, 10);
                if (turn as u64) < often {
                    table.add(pair(1), 1, 100);
                }
            }
            prop_assert!(table.entries.len() <= ENTRIES && table.places.len() == table.entries.len());
            let sent = often.min(rare.len() as u64);
            prop_assert_eq!(table.datagrams, rare.len() as u64 + sent);
            let counted: u64 = table.entries.iter().map(|entry| entry.datagrams).sum();
            prop_assert!(counted <= table.datagrams);
            let found = table.entries.iter().find(|entry| entry.pair == pair(1));
            if sent > table.datagrams / ENTRIES as u64 {
                prop_assert!(found.is_some_and(|entry| entry.weight >= sent));
            }
            for entry in &table.entries {
                let number = u32::from_be_bytes(match entry.pair.from {
                    IpAddr::V4(ip) => ip.octets(),
                    IpAddr::V6(_) => unreachable!("of no test"),
                });
                let of = rare.iter().filter(|other| **other == number).count() as u64;
                let of = if number == 1 { sent } else { of };
                prop_assert!(entry.datagrams <= of && of <= entry.weight);
            }
        }
    }

    fn datagram<'a>(bytes: &'a mut [u8], source: &str, port: u16) -> Datagram<'a> {
        let link = Link { mac: [2, 0, 0, 0, 0, 9], local_port: port };
        Datagram {
            bytes,
            source: source.parse().unwrap(),
            local: Some("10.0.0.1".parse().unwrap()),
            socket: 0,
            received_at: None,
            truncated: false,
            meta: weir::udp::Meta::NONE,
            segment: None,
            link: Some(link),
        }
    }

    #[test]
    fn threads_count_apart_and_are_shown_together_most_first() {
        let ports = Ports::new(1, 2, None);
        let (sender, _events) = channel();
        let threads = [ports.recorder(&sender), ports.recorder(&sender)];
        for (number, (source, port)) in [
            ("10.0.0.2:1000", 53),
            ("10.0.0.2:1001", 53),
            ("10.0.0.3:1000", 7),
            ("10.0.0.2:1002", 53),
            ("10.0.0.4:1", 9),
        ]
        .into_iter()
        .enumerate()
        {
            threads[number % 2].record(&datagram(&mut [7; 100], source, port));
        }
        let text = ports.interval();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4, "{text}");
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(words(lines[1]), ["3", "300", "53", "02:00:00:00:00:09", "10.0.0.2"]);
        assert_eq!(words(lines[3]), ["1", "of", "others"]);
        assert_eq!(ports.interval(), "", "nothing came since");
        let (text, report) = ports.report();
        assert!(text.contains("10.0.0.2"), "{text}");
        assert_eq!((report.datagrams, report.bytes, report.at_least), (5, 500, false));
        let document = serde_json::to_value(&report).unwrap();
        let first = serde_json::json!({
            "datagrams": 3, "bytes": 300, "to": null, "port": 53,
            "ethernet_address": "02:00:00:00:00:09", "from": "10.0.0.2",
        });
        assert_eq!((&document["pairs"][0], report.pairs.len()), (&first, 3));
    }

    #[test]
    fn so_many_are_printed_in_a_second_and_the_rest_is_counted() {
        let ports = Ports::new(2, 10, Some(2));
        let (sender, events) = channel();
        let recorder = ports.recorder(&sender);
        let mut text = *b"hello\n\"\x1b[31m, this is long enough to be cut";
        for _ in 0..5 {
            recorder.record(&datagram(&mut text, "10.0.0.2:4000", 53));
        }
        let lines: Vec<String> = events
            .try_iter()
            .map(|event| match event {
                Event::Line(line) => line,
                _ => panic!("a line"),
            })
            .collect();
        // On a machine that is held up for a second in between there are more.
        assert!((2..=5).contains(&lines.len()), "{lines:?}");
        let said = "02:00:00:00:00:09  10.0.0.2:4000 > 10.0.0.1:53  length 43: \
                    \"hello\\n\\\"\\x1b[31m, this is long enoug\"...";
        assert!(lines[0].ends_with(said), "{}", lines[0]);
        let mut printing = Printing { per_s: 2, second: Instant::now(), printed: 0, left_out: 0 };
        let (now, later) = (printing.second, printing.second + Duration::from_secs(1));
        let may = [now, now, now, later, later, later].map(|at| printing.may(at));
        assert_eq!((may, printing.left_out), ([true, true, false, true, true, false], 2));
    }

    #[test]
    fn a_provider_is_the_one_that_was_asked_for_or_the_first_that_starts() {
        assert_eq!(parse_provider("packet"), Ok(Choice::PacketAnyPort));
        assert_eq!(parse_provider("xdp-any-port"), Ok(Choice::XdpAnyPort));
        assert!(parse_provider("uring").unwrap_err().contains("xdp, packet"));
        let within = start_on_first("rio-event --provider xdp", None, |_| Ok(()));
        assert!(within.err().expect("refused").message.contains("--provider beside it"));
        let refuse = |_: &str| -> Result<(), weir::Error> {
            Err(weir::Unavailable::new("this", "it is a test").into())
        };
        let failed = start_on_first("rio-event", None, refuse).err().expect("none starts");
        assert_eq!(failed.code, crate::exit::UNAVAILABLE);
    }
}
