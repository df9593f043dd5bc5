//! A statsd-like aggregator: adds up counters, keeps gauges, and prints both at an interval.
//!
//! It takes lines like `requests:1|c`, `requests:5|c|@0.1` (sampled: counts as 50) and
//! `memory:320|g`, several to a datagram. Each thread of the server adds up on its own and
//! hands its sums over once a batch, so no datagram waits for a lock.
//!
//! ```text
//! cargo run --release -p weir-io --example udp_statsd -- 127.0.0.1:8125 "rio-hybrid --threads 2"
//! echo "requests:1|c" > /dev/udp/127.0.0.1/8125     # in bash
//! ```

use std::{
    collections::BTreeMap,
    env,
    error::Error,
    mem,
    net::SocketAddr,
    sync::{Arc, Mutex, mpsc},
    time::Duration,
};
use weir::udp::{AnyDesign, Datagram, Handler, Outbox, Replies, Server};

/// Names kept at a time. A name beyond that is counted as dropped: whoever can send
/// datagrams must not be able to fill the memory.
const MOST_NAMES: usize = 10_000;

#[derive(Debug, Default)]
struct Totals {
    counters: BTreeMap<String, f64>,
    gauges: BTreeMap<String, f64>,
    bad_lines: u64,
    dropped_names: u64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Metric<'a> {
    Counter(&'a str, f64),
    Gauge(&'a str, f64),
}

/// Reads `name:value|c`, `name:value|c|@rate` or `name:value|g`.
fn parse(line: &str) -> Option<Metric<'_>> {
    let (name, rest) = line.split_once(':')?;
    let mut fields = rest.split('|');
    let value: f64 = fields.next()?.parse().ok().filter(|value: &f64| value.is_finite())?;
    let metric = match (fields.next()?, fields.next()) {
        ("c", None) => Metric::Counter(name, value),
        ("c", Some(rate)) => {
            let rate: f64 = rate.strip_prefix('@')?.parse().ok()?;
            if !(rate > 0.0 && rate <= 1.0) {
                return None;
            }
            Metric::Counter(name, value / rate)
        }
        ("g", None) => Metric::Gauge(name, value),
        _ => return None,
    };
    (!name.is_empty() && fields.next().is_none()).then_some(metric)
}

impl Totals {
    fn take_line(&mut self, line: &str) {
        let (map, name, value, add) = match parse(line) {
            Some(Metric::Counter(name, value)) => (&mut self.counters, name, value, true),
            Some(Metric::Gauge(name, value)) => (&mut self.gauges, name, value, false),
            None => {
                self.bad_lines += 1;
                return;
            }
        };
        if let Some(total) = map.get_mut(name) {
            *total = if add { *total + value } else { value };
        } else if map.len() < MOST_NAMES {
            map.insert(name.to_string(), value);
        } else {
            self.dropped_names += 1;
        }
    }

    fn merge(&mut self, other: Totals) {
        for (name, value) in other.counters {
            if self.counters.len() < MOST_NAMES || self.counters.contains_key(&name) {
                *self.counters.entry(name).or_default() += value;
            } else {
                self.dropped_names += 1;
            }
        }
        for (name, value) in other.gauges {
            if self.gauges.len() < MOST_NAMES || self.gauges.contains_key(&name) {
                self.gauges.insert(name, value);
            } else {
                self.dropped_names += 1;
            }
        }
        self.bad_lines += other.bad_lines;
        self.dropped_names += other.dropped_names;
    }
}

/// The handler of one thread.
struct Aggregator {
    mine: Totals,
    all: Arc<Mutex<Totals>>,
}

impl Handler for Aggregator {
    fn on_datagram(&mut self, datagram: Datagram<'_>, _replies: &mut Replies<'_>) {
        match std::str::from_utf8(datagram.bytes) {
            Ok(text) => text.lines().for_each(|line| self.mine.take_line(line)),
            Err(_) => self.mine.bad_lines += 1,
        }
    }

    fn on_batch_end(&mut self, _: &mut Outbox<'_>) {
        let mine = mem::take(&mut self.mine);
        self.all.lock().expect("nobody panics while holding it").merge(mine);
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let address: SocketAddr = arguments.next().as_deref().unwrap_or("127.0.0.1:8125").parse()?;
    let design = arguments.next().unwrap_or_else(|| "blocking-batch".into());

    let all = Arc::new(Mutex::new(Totals::default()));
    let for_threads = Arc::clone(&all);
    let server = Server::bind(address).start(AnyDesign::parse(&design)?, move |_thread| {
        Aggregator { mine: Totals::default(), all: Arc::clone(&for_threads) }
    })?;
    println!("{design} on {} (Ctrl-C ends)", server.local_addresses()[0]);

    let (end, ended) = mpsc::channel();
    ctrlc::set_handler(move || end.send(()).expect("main waits for it"))?;
    while ended.recv_timeout(Duration::from_secs(10)).is_err() && server.is_running() {
        print(&mut all.lock().expect("nobody panics while holding it"));
    }
    let failure = server.stop().failure;
    // What came after the last interval.
    print(&mut all.lock().expect("nobody panics while holding it"));
    failure.map_or(Ok(()), |failure| Err(failure.into()))
}

/// Prints what was gathered. Counters begin again at each interval; gauges stay.
fn print(all: &mut Totals) {
    for (name, total) in mem::take(&mut all.counters) {
        println!("{name} {total}");
    }
    for (name, value) in &all.gauges {
        println!("{name} {value} (gauge)");
    }
    if all.bad_lines + all.dropped_names > 0 {
        println!("{} bad lines, {} dropped names", all.bad_lines, all.dropped_names);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_statsd_does() {
        assert_eq!(parse("a:1|c"), Some(Metric::Counter("a", 1.0)));
        assert_eq!(parse("a:5|c|@0.1"), Some(Metric::Counter("a", 50.0)));
        assert_eq!(parse("a:-2.5|g"), Some(Metric::Gauge("a", -2.5)));
        for bad in [
            "",
            "a",
            "a:|c",
            ":1|c",
            "a:1",
            "a:1|x",
            "a:nan|c",
            "a:1|c|@0",
            "a:1|c|@2",
            "a:1|c|@1|z",
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn names_have_a_bound() {
        let mut totals = Totals::default();
        for i in 0..MOST_NAMES + 5 {
            totals.take_line(&format!("n{i}:1|c"));
        }
        assert_eq!((totals.counters.len(), totals.dropped_names), (MOST_NAMES, 5));
    }
}
