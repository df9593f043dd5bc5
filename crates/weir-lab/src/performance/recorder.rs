//! Takes readings, and makes records of what lies between them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::{Duration, Instant};

use weir::counters::os::{
    CoreUsage, OfCore, ProcessUsage, Sampler, SocketUsage, SystemUsage, ThreadId, ThreadSampler,
    ThreadUsage,
};

use super::{
    Core, Counts, Figures, IDLE, INTERVALS, MOST_CORES, MOST_RECORDS, MOST_THREADS, Record, Thread,
};

/// What a server tells of itself at a moment.
#[derive(Debug, Clone, Default)]
pub struct Now {
    /// What its threads have counted, all together.
    pub counts: Vec<(&'static str, u64)>,
    /// What they took, all together.
    pub batches: Batches,
    /// Its threads.
    pub threads: Vec<ThreadNow>,
    /// Further threads, which are not told apart.
    pub more_threads: u64,
    /// Its settings that may be changed while it runs, as they are.
    pub settings: Vec<(&'static str, u64)>,
    /// Its sockets; empty where they cannot be told.
    pub sockets: Vec<SocketUsage>,
}

/// A thread at a moment.
#[derive(Debug, Clone)]
pub struct ThreadNow {
    /// The system's number of it.
    pub id: ThreadId,
    /// What it is called.
    pub name: String,
    /// What it has counted itself.
    pub counts: Vec<(&'static str, u64)>,
    /// What it took.
    pub batches: Batches,
}

/// What dequeues brought that brought anything.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Batches {
    /// How many there were.
    pub dequeues: u64,
    /// What they brought.
    pub brought: u64,
}

impl Batches {
    fn mean_since(self, earlier: Self) -> Option<f64> {
        let dequeues = self.dequeues.saturating_sub(earlier.dequeues);
        let brought = self.brought.saturating_sub(earlier.brought);
        (dequeues > 0).then(|| brought as f64 / dequeues as f64)
    }
}

/// All that is read at a moment.
#[derive(Debug, Clone)]
struct Moment {
    at: Instant,
    now: Now,
    /// Of the threads that are told apart, in their order.
    usage: Vec<ThreadUsage>,
    process: ProcessUsage,
    system: SystemUsage,
    interrupts: Vec<OfCore<u64>>,
}

/// Takes a reading of a server now and then.
///
/// A reading opens no file but for a thread that is new, and takes some 0.1 ms of the core that it is made on: the
/// caller's, never that of a server's thread, unless both are bound to the same.
#[derive(Debug)]
pub struct Recorder {
    every: Duration,
    began: Instant,
    next: Instant,
    sampler: Sampler,
    samplers: HashMap<ThreadId, ThreadSampler>,
    moments: Vec<Moment>,
}

impl Recorder {
    /// One that has not begun, for readings at these intervals (within [`INTERVALS`]).
    pub fn new(every: Duration) -> Self {
        let every = every.clamp(INTERVALS.0, INTERVALS.1);
        let now = Instant::now();
        Self {
            every,
            began: now,
            next: now + every,
            sampler: Sampler::new(),
            samplers: HashMap::new(),
            moments: vec![],
        }
    }

    /// Begins with a first reading, and forgets those before.
    pub fn begin(&mut self, now: Now) {
        self.moments.clear();
        let moment = self.moment(now);
        self.began = moment.at;
        self.next = moment.at + self.every;
        self.moments.push(moment);
    }

    /// Whether it has begun.
    pub fn has_begun(&self) -> bool {
        !self.moments.is_empty()
    }

    /// When the next reading is due, once it has begun.
    pub fn due(&self) -> Option<Instant> {
        self.has_begun().then_some(self.next)
    }

    /// Whether a reading is due.
    pub fn is_due(&self) -> bool {
        self.due().is_some_and(|due| Instant::now() >= due)
    }

    /// Takes a reading, of a recorder that has begun.
    pub fn read(&mut self, now: Now) {
        if !self.has_begun() {
            return;
        }
        let moment = self.moment(now);
        // After a late reading no record is made of what is left of an interval.
        while self.next <= moment.at {
            self.next += self.every;
        }
        self.moments.push(moment);
        if self.moments.len() > MOST_RECORDS + 1 {
            self.thin();
        }
    }

    /// Takes the last reading, gives the records, and has not begun any more.
    pub fn end(&mut self, now: Now) -> Vec<Record> {
        self.read(now);
        let records = self.records();
        self.moments.clear();
        records
    }

    /// The same as [`Recorder::read`], of one whose records are taken as they come: what lies between this reading and the one before, which
    /// is forgotten.
    pub fn read_one(&mut self, now: Now) -> Option<Record> {
        self.read(now);
        let record = self.records().pop();
        self.moments.drain(..self.moments.len().saturating_sub(1));
        record
    }

    /// What lies between the readings.
    pub fn records(&self) -> Vec<Record> {
        self.moments.windows(2).map(|pair| self.between(&pair[0], &pair[1])).collect()
    }

    /// Of two records one is made, and from now on each is twice as long.
    fn thin(&mut self) {
        let mut index = 0;
        let last = self.moments.len() - 1;
        self.moments.retain(|_| {
            index += 1;
            (index - 1) % 2 == 0 || index - 1 == last
        });
        self.every = (self.every * 2).min(INTERVALS.1);
        if let Some(last) = self.moments.last() {
            self.next = last.at + self.every;
        }
    }

    fn moment(&mut self, mut now: Now) -> Moment {
        now.more_threads += now.threads.len().saturating_sub(MOST_THREADS) as u64;
        now.threads.truncate(MOST_THREADS);
        self.samplers.retain(|id, _| now.threads.iter().any(|thread| thread.id == *id));
        let usage = now.threads.iter().map(|thread| self.usage(thread.id)).collect();
        let (process, system) = (self.sampler.process(), self.sampler.system());
        let interrupts = self.sampler.interrupts();
        Moment { at: Instant::now(), now, usage, process, system, interrupts }
    }

    /// What a thread used; nothing is known of one that has just ended, or where no descriptor is left.
    fn usage(&mut self, thread: ThreadId) -> ThreadUsage {
        if let Entry::Vacant(entry) = self.samplers.entry(thread)
            && let Ok(sampler) = ThreadSampler::new(thread)
        {
            entry.insert(sampler);
        }
        let read = self.samplers.get_mut(&thread).map(ThreadSampler::read);
        read.and_then(Result::ok).unwrap_or_default()
    }

    fn between(&self, from: &Moment, to: &Moment) -> Record {
        let since_began = |at: Instant| at.saturating_duration_since(self.began).as_nanos() as u64;
        let (from_ns, to_ns) = (since_began(from.at), since_began(to.at));
        let system = to.system.since(&from.system);
        let interrupts = |core: usize| {
            let of = |all: &[OfCore<u64>]| all.iter().find(|of| of.core == core).map(|of| of.usage);
            Some(of(&to.interrupts)?.saturating_sub(of(&from.interrupts)?))
        };
        let (cores, idle_cores) = cores(&system.cores, interrupts, to_ns - from_ns);
        Record {
            from_ns,
            to_ns,
            counts: counts(&from.now.counts, &to.now.counts),
            mean_batch: to.now.batches.mean_since(from.now.batches),
            threads: to.threads_since(from),
            more_threads: to.now.more_threads,
            cores,
            idle_cores,
            process: figures(to.process.since(&from.process).named()),
            system: figures(system.total.named()),
            udp: figures(system.udp().named()),
            network: figures(system.softnet_total().named()),
            settings: to
                .now
                .settings
                .iter()
                .map(|(name, value)| ((*name).to_owned(), *value))
                .collect(),
            sockets: sockets(&from.now.sockets, &to.now.sockets),
        }
    }
}

impl Moment {
    /// What its threads did since an earlier moment; those that came in between did all of it since.
    fn threads_since(&self, earlier: &Self) -> Vec<Thread> {
        let of = |(index, (thread, usage)): (usize, (&ThreadNow, &ThreadUsage))| {
            let same = |index: usize| {
                let known = earlier.now.threads.get(index);
                known.is_some_and(|known| known.id == thread.id).then_some(index)
            };
            // They stand where they stood, unless some have ended.
            let found = same(index).or_else(|| (0..earlier.now.threads.len()).find_map(same));
            let then = found.map(|index| (&earlier.now.threads[index], &earlier.usage[index]));
            let usage = then.map_or(*usage, |(_, then)| usage.since(then));
            let (counted, batches) = match then {
                Some((then, _)) => (then.counts.as_slice(), then.batches),
                None => (&[][..], Batches::default()),
            };
            Thread {
                name: thread.name.clone(),
                id: thread.id.number(),
                usage: figures(usage.named()),
                counts: counts(counted, &thread.counts),
                mean_batch: thread.batches.mean_since(batches),
            }
        };
        self.now.threads.iter().zip(&self.usage).enumerate().map(of).collect()
    }
}

fn figures(named: Vec<(&'static str, Option<u64>)>) -> Figures {
    named.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// What was counted in between, where anything was. What is named twice, by a server and by its calls, is added up.
fn counts(from: &[(&'static str, u64)], to: &[(&'static str, u64)]) -> Counts {
    let mut counts = Counts::new();
    for (name, count) in to {
        *counts.entry((*name).to_owned()).or_default() += count;
    }
    for (name, count) in from {
        if let Some(now) = counts.get_mut(*name) {
            *now = now.saturating_sub(*count);
        }
    }
    counts.retain(|_, count| *count > 0);
    counts
}

/// What each core did in so many ns, and how many did hardly anything.
fn cores(
    all: &[OfCore<CoreUsage>],
    interrupts: impl Fn(usize) -> Option<u64>,
    elapsed_ns: u64,
) -> (Vec<Core>, u64) {
    // By ticks a core may have had a little more than the clock gave it.
    let share = |ns: Option<u64>| Some((ns? as f64 / elapsed_ns.max(1) as f64).min(1.0));
    let percent = |ns: Option<u64>| Some((share(ns)? * 1000.0).round() / 10.0);
    let is_idle =
        |of: &&OfCore<CoreUsage>| share(of.usage.busy_ns()).is_some_and(|busy| busy < IDLE);
    let idle = all.iter().filter(is_idle).count() as u64;
    let told = all.iter().filter(|of| !is_idle(of)).take(MOST_CORES);
    let told = told.map(|OfCore { core, usage }| Core {
        core: *core,
        busy_percent: percent(usage.busy_ns()),
        user_percent: percent(usage.user_ns),
        system_percent: percent(usage.system_ns),
        irq_percent: percent(usage.irq_ns),
        softirq_percent: percent(usage.softirq_ns),
        steal_percent: percent(usage.steal_ns),
        interrupts: interrupts(*core),
    });
    (told.collect(), idle)
}

/// Sockets are there for as long as their server is, in the same order.
fn sockets(from: &[SocketUsage], to: &[SocketUsage]) -> Figures {
    if to.is_empty() {
        return Figures::new();
    }
    let sum = |each: &mut dyn Iterator<Item = Option<u64>>| each.sum::<Option<u64>>();
    let dropped = sum(&mut from.iter().zip(to).map(|(then, now)| now.since(then).drops));
    let queued = sum(&mut to.iter().map(|socket| socket.queued_bytes));
    let room = sum(&mut to.iter().map(|socket| socket.receive_buffer_bytes));
    [("dropped", dropped), ("queued_bytes", queued), ("receive_buffer_bytes", room)]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server of one thread, this one, that has handled so many in so many dequeues.
    fn now(datagrams: u64, dequeues: u64) -> Now {
        let batches = Batches { dequeues, brought: datagrams };
        let counts = vec![("datagrams", datagrams), ("parks", 7)];
        let thread = ThreadNow {
            id: ThreadId::current(),
            name: "one".into(),
            counts: counts.clone(),
            batches,
        };
        let socket = SocketUsage { drops: Some(datagrams / 10), ..SocketUsage::default() };
        Now {
            counts,
            batches,
            threads: vec![thread],
            settings: vec![("spin", datagrams)],
            sockets: vec![socket],
            ..Now::default()
        }
    }

    #[test]
    fn a_record_is_what_lies_between_two_readings() {
        let mut recorder = Recorder::new(Duration::from_secs(1));
        recorder.read(now(5, 5));
        assert!(recorder.records().is_empty() && recorder.due().is_none(), "it has not begun");
        recorder.begin(now(100, 10));
        recorder.read(now(400, 40));
        recorder.read(now(400, 40));
        let [first, second] = recorder.records().try_into().unwrap();
        assert_eq!((first.from_ns, first.to_ns), (0, second.from_ns));
        assert!(second.to_ns >= second.from_ns);
        assert_eq!(first.counts, Counts::from([("datagrams".into(), 300)]));
        assert_eq!((first.mean_batch, second.mean_batch), (Some(10.0), None));
        assert!(second.counts.is_empty(), "nothing was counted: {second:?}");
        let [thread] = first.threads.try_into().unwrap();
        assert_eq!((thread.name.as_str(), thread.counts), ("one", first.counts));
        // Where the system counts it by ticks, the readings may have taken none.
        assert!(thread.usage["cpu_ns"].is_some(), "it took the readings itself");
        assert_eq!(first.sockets["dropped"], Some(30));
        assert_eq!(first.settings["spin"], 400, "as it was at the end");
        assert_eq!(first.sockets["queued_bytes"], None, "not known is not zero");
        recorder.begin(now(0, 0));
        assert!(recorder.records().is_empty(), "it has begun anew");
    }

    #[test]
    fn what_is_counted_twice_by_one_name_is_added_up() {
        let of =
            |[one, other, rest]: [u64; 3]| [("errors", one), ("errors", other), ("rest", rest)];
        let counted = counts(&of([1, 2, 5]), &of([2, 5, 5]));
        assert_eq!(counted, Counts::from([("errors".into(), 4)]));
    }

    #[test]
    fn when_there_are_too_many_each_becomes_twice_as_long_and_nothing_is_lost() {
        let mut recorder = Recorder::new(Duration::from_millis(10));
        recorder.begin(now(0, 0));
        let readings = 3 * MOST_RECORDS as u64;
        for reading in 1..=readings {
            recorder.read(now(reading * 10, reading));
            assert!(recorder.records().len() <= MOST_RECORDS);
        }
        assert!(recorder.every >= Duration::from_millis(40), "{:?}", recorder.every);
        let records = recorder.records();
        let all: u64 = records.iter().map(|record| record.counts["datagrams"]).sum();
        assert_eq!(all, readings * 10);
        assert!(records.windows(2).all(|pair| pair[0].to_ns == pair[1].from_ns));
    }

    #[test]
    fn records_that_are_taken_as_they_come_are_not_kept() {
        let mut recorder = Recorder::new(Duration::from_millis(10));
        assert_eq!(recorder.read_one(now(1, 1)), None);
        recorder.begin(now(0, 0));
        for reading in 1..50 {
            let record = recorder.read_one(now(reading * 10, reading)).unwrap();
            assert_eq!(record.counts["datagrams"], 10);
            assert_eq!(recorder.moments.len(), 1);
        }
    }

    #[test]
    fn threads_that_come_and_go_are_told_by_their_number() {
        let mut recorder = Recorder::new(Duration::from_secs(1));
        let (tell, told) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || {
            tell.send(ThreadId::current()).unwrap();
            let _ = ended.recv();
        });
        let (mut both, other_id) = (now(7, 7), told.recv().unwrap());
        both.threads
            .insert(0, ThreadNow { id: other_id, name: "other".into(), ..both.threads[0].clone() });
        recorder.begin(now(3, 3));
        recorder.read(both);
        recorder.read(now(9, 9));
        let [came, gone] = recorder.records().try_into().unwrap();
        let counted = |thread: &Thread| thread.counts["datagrams"];
        assert_eq!(came.threads.iter().map(counted).collect::<Vec<_>>(), [7, 4]);
        assert!(came.threads[0].usage["cpu_ns"].is_some());
        assert_eq!(gone.threads.iter().map(counted).collect::<Vec<_>>(), [2]);
        drop(end);
        other.join().unwrap();
    }

    #[test]
    fn more_threads_than_are_told_apart_are_counted() {
        let mut recorder = Recorder::new(Duration::from_secs(1));
        let mut many = now(1, 1);
        many.threads = vec![many.threads[0].clone(); MOST_THREADS + 5];
        recorder.begin(many.clone());
        recorder.read(many);
        let record = recorder.records().pop().unwrap();
        assert_eq!((record.threads.len(), record.more_threads), (MOST_THREADS, 5));
    }

    #[test]
    fn idle_cores_are_counted_and_busy_ones_told() {
        let of = |core, user_ms: u64, softirq_ms: u64| OfCore {
            core,
            usage: CoreUsage {
                user_ns: Some(user_ms * 1_000_000),
                softirq_ns: Some(softirq_ms * 1_000_000),
                ..CoreUsage::default()
            },
        };
        let all = [of(0, 500, 250), of(1, 2, 3), of(5, 1200, 0)];
        let (told, idle) = cores(&all, |core| (core == 5).then_some(9), 1_000_000_000);
        assert_eq!((told.len(), idle), (2, 1));
        assert_eq!((told[0].busy_percent, told[0].softirq_percent), (Some(75.0), Some(25.0)));
        assert_eq!((told[0].interrupts, told[0].irq_percent), (None, None));
        assert_eq!(
            (told[1].core, told[1].busy_percent, told[1].interrupts),
            (5, Some(100.0), Some(9))
        );
    }

    #[test]
    fn an_interval_is_within_its_limits() {
        assert_eq!(Recorder::new(Duration::ZERO).every, INTERVALS.0);
        assert_eq!(Recorder::new(Duration::from_secs(1 << 20)).every, INTERVALS.1);
    }
}
