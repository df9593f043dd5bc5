use std::{
    collections::BTreeMap,
    error::Error,
    io::{self, Write},
    net::TcpStream,
    time::{Duration, Instant},
};
use weir::{
    counters::Counters,
    readiness::{Epoll, Events, Interest, Poll, Select, SelectIndexed, Signals, Streams, Trigger},
    stream::{Accepted, Listener, Mode, Stream, StreamOptions},
};

const OPEN: [usize; 4] = [64, 1000, 4000, 8000];
const READY: [usize; 2] = [1, 64];
/// Waits that are timed for each figure, and times that the mechanisms are gone through.
const WAITS: usize = 200;
const ROUNDS: usize = 5;

const NOW: Option<Duration> = Some(Duration::ZERO);

/// A connection with both its ends.
struct Pair {
    stream: Stream,
    peer: TcpStream,
}

/// A mechanism: takes connections, and puts the slots of those that are ready into a list.
trait Mechanism: Streams {
    fn wait(&mut self, pairs: &[Pair], ready: &mut Vec<u32>) -> io::Result<()>;
}

impl Mechanism for Epoll {
    fn wait(&mut self, _: &[Pair], ready: &mut Vec<u32>) -> io::Result<()> {
        Epoll::wait(self, NOW, &Counters::default())?;
        ready.extend(std::iter::from_fn(|| self.next_ready()));
        Ok(())
    }
}

impl Mechanism for Poll {
    fn wait(&mut self, _: &[Pair], ready: &mut Vec<u32>) -> io::Result<()> {
        Poll::wait(self, NOW, &Counters::default())?;
        ready.extend(std::iter::from_fn(|| self.next_ready()));
        Ok(())
    }
}

impl Mechanism for Select {
    fn wait(&mut self, pairs: &[Pair], ready: &mut Vec<u32>) -> io::Result<()> {
        self.clear();
        pairs.iter().for_each(|pair| self.put(&pair.stream, Interest::RECEIVE));
        Select::wait(self, NOW, &Counters::default())?;
        let slots = pairs.iter().enumerate().filter(|(_, pair)| self.is_ready(&pair.stream));
        ready.extend(slots.map(|(slot, _)| slot as u32));
        Ok(())
    }
}

impl Mechanism for SelectIndexed {
    fn wait(&mut self, _: &[Pair], ready: &mut Vec<u32>) -> io::Result<()> {
        SelectIndexed::wait(self, NOW, &Counters::default())?;
        ready.extend(std::iter::from_fn(|| self.next_ready()));
        Ok(())
    }
}

impl Mechanism for Signals {
    fn wait(&mut self, _: &[Pair], ready: &mut Vec<u32>) -> io::Result<()> {
        Signals::wait(self, NOW, &Counters::default())?;
        ready.extend(std::iter::from_fn(|| self.next_ready()));
        Ok(())
    }
}

/// A group of 63 connections is all that a thread of `event-select` waits for.
const GROUP: usize = 63;

impl Mechanism for Events {
    fn wait(&mut self, _: &[Pair], ready: &mut Vec<u32>) -> io::Result<()> {
        Events::wait(self, NOW, &Counters::default())?;
        ready.extend(self.next_ready());
        Ok(())
    }
}

pub fn main() -> Result<(), Box<dyn Error>> {
    let listener = Listener::bind("127.0.0.1:0".parse()?, StreamOptions::default())?;
    let mut pairs = Vec::new();
    println!("{:<16} {:>6} {:>16} {:>16}", "mechanism", "open", "µs, 1 ready", "µs, 64 ready");
    for open in OPEN {
        while pairs.len() < open {
            match pair(&listener) {
                Ok(pair) => pairs.push(pair),
                Err(e) => return Err(format!("{open} connections cannot be had: {e}").into()),
            }
        }
        let mut all = BTreeMap::new();
        for round in 0..ROUNDS {
            let mut note = |name, figures: [f64; 2]| {
                all.entry(name).or_insert_with(Vec::new).push(figures);
            };
            // Not always the same one first.
            for turn in 0..6 {
                match (turn + round) % 6 {
                    0 => note("select", time(&mut Select::new()?, &mut pairs[..open])?),
                    1 => {
                        note(
                            "select-indexed",
                            time(&mut SelectIndexed::new()?, &mut pairs[..open])?,
                        );
                    }
                    2 => note("poll", time(&mut Poll::new()?, &mut pairs[..open])?),
                    3 => note("signals", time(&mut Signals::new()?, &mut pairs[..open])?),
                    4 => {
                        let mut events = Events::new(GROUP as u32 + 1)?;
                        note("events, of 63", time(&mut events, &mut pairs[..GROUP.min(open)])?);
                    }
                    _ => {
                        let mut epoll = Epoll::new(512, Trigger::Level)?;
                        note("epoll", time(&mut epoll, &mut pairs[..open])?);
                    }
                }
            }
        }
        for (name, figures) in all {
            let [one, many] = [0, 1].map(|which| median(figures.iter().map(|of| of[which])));
            println!("{name:<16} {open:>6} {one:>16.2} {many:>16.2}");
        }
    }
    Ok(())
}

fn pair(listener: &Listener) -> Result<Pair, Box<dyn Error>> {
    let peer = TcpStream::connect(listener.local_address())?;
    peer.set_nodelay(true)?;
    let accepted = listener.accept(Mode::Wait, &Counters::default())?;
    let Accepted { stream, .. } = accepted.ok_or("accepting was ended")?;
    Ok(Pair { stream, peer })
}

/// µs until all that are ready are known, in as many waits as that takes: the median.
fn time(set: &mut impl Mechanism, pairs: &mut [Pair]) -> Result<[f64; 2], Box<dyn Error>> {
    let counters = Counters::default();
    for (slot, pair) in pairs.iter().enumerate() {
        set.watch(&pair.stream, slot as u32, Interest::RECEIVE)?;
    }
    let (mut ready, mut figures) = (Vec::new(), [0.0; 2]);
    for (figure, wanted) in figures.iter_mut().zip(READY) {
        let wanted = wanted.min(pairs.len());
        let mut samples = Vec::new();
        for wait in 0..WAITS {
            // Spread over all of them.
            let slots: Vec<_> =
                (0..wanted).map(|n| (wait * 31 + n * pairs.len() / wanted) % pairs.len()).collect();
            for slot in &slots {
                pairs[*slot].peer.write_all(b"x")?;
            }
            ready.clear();
            let mut taken = Duration::ZERO;
            while ready.len() < wanted {
                let start = Instant::now();
                set.wait(pairs, &mut ready)?;
                taken += start.elapsed();
                // A mechanism that tells of one at a time is to tell of the next.
                if let Some(slot) = ready.last() {
                    take(&pairs[*slot as usize], &counters)?;
                }
            }
            samples.push(taken.as_nanos() as f64 / 1000.0);
            for slot in slots {
                take(&pairs[slot], &counters)?;
            }
        }
        *figure = median(samples.into_iter());
    }
    for (slot, pair) in pairs.iter().enumerate() {
        set.forget(&pair.stream, slot as u32);
    }
    Ok(figures)
}

fn take(pair: &Pair, counters: &Counters) -> io::Result<()> {
    pair.stream.receive(&mut [0; 8], Mode::Try, counters)?;
    Ok(())
}

fn median(samples: impl Iterator<Item = f64>) -> f64 {
    let mut samples: Vec<f64> = samples.collect();
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}
