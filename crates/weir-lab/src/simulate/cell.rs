//! One row: a design under one load on so many cores, once.

use super::{
    costs::Costs,
    designs::{self, Copies, Design, Noted, Numbers, Server, Taken, Times},
    events::{Ended, Scheduling, Thread, Time, World, of_ns, run},
    kernel::{Account, Socket, Traffic},
};
use crate::stats::random::Random;
use serde::{Deserialize, Serialize};
use std::{pin::Pin, rc::Rc};

/// A row simulates at least so long and at most so long, as long as its datagrams take.
const SHORTEST_PS: f64 = 6e9;
const LONGEST_PS: f64 = 1e12;
/// Of which so much passes before anything is noted.
const WARM_UP: f64 = 0.25;
/// Most events of a row; one that needs more is cut short, and says so.
const MOST_EVENTS: u64 = 20_000_000;

/// What is simulated in a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Course {
    /// The design.
    pub design: Design,
    /// Who copies.
    pub copies: Copies,
    /// Cores of the server.
    pub cores: usize,
    /// Threads that handle datagrams; 0 for as many as cores.
    pub threads: usize,
    /// Threads of other programs that always run and share the cores.
    pub competitors: usize,
    /// These threads send the datagrams, and only while they have a core. `per_s` is what they send if they always have one.
    pub competitors_send: bool,
    /// On how many of the cores they run, and no others; 0 for all.
    pub shared_cores: usize,
    /// Datagrams that come in a second.
    pub per_s: f64,
    /// Datagrams that come at once.
    pub train: u32,
    /// Flows, which sharding spreads over its sockets by a hash.
    pub flows: u32,
    /// Work of each datagram, in nanoseconds.
    pub own_work_ns: f64,
    /// Work of each datagram on the state that all threads share, under its lock, in nanoseconds.
    pub shared_work_ns: f64,
    /// Datagrams for which there is room, shared among the sockets.
    pub buffer: usize,
    /// Most datagrams of one dequeue.
    pub dequeue_max: usize,
    /// Most datagrams of one call of the designs on plain sockets that receive batches.
    pub batch: usize,
    /// Most datagrams that these receive for one wake-up where they wait for readiness; 0 for the design's own number.
    pub drain: usize,
    /// Datagrams in one dequeue at which the hybrid lets another thread join.
    pub threshold: u64,
    /// How long the hybrid polls after the last datagram, in microseconds.
    pub spin_us: f64,
    /// About so many datagrams are simulated.
    pub datagrams: u64,
    /// Seed of the traffic.
    pub seed: u64,
}

impl Default for Course {
    /// The designs' own numbers.
    fn default() -> Self {
        Self {
            design: Design::RioHybrid,
            copies: Copies::Thread,
            cores: 1,
            threads: 0,
            competitors: 0,
            competitors_send: false,
            shared_cores: 0,
            per_s: 1e6,
            train: 1,
            flows: 1024,
            own_work_ns: 0.0,
            shared_work_ns: 0.0,
            buffer: 16_384,
            dequeue_max: 1000,
            batch: weir::udp::BlockingBatch::default().batch as usize,
            drain: 0,
            threshold: 666,
            spin_us: 50.0,
            datagrams: 20_000,
            seed: 1,
        }
    }
}

impl Course {
    /// Whether it can be simulated.
    ///
    /// # Errors
    /// What is out of range, and what to do.
    pub fn check(&self) -> Result<(), String> {
        let refuse = |what: String| Err(what);
        if !(1..=super::MOST_CORES).contains(&self.cores) {
            return refuse(format!(
                "{} cores cannot be simulated; ask for 1 to {}",
                self.cores,
                super::MOST_CORES
            ));
        }
        if self.threads.max(self.competitors) > super::MOST_THREADS {
            return refuse(format!(
                "{} threads cannot be simulated; ask for at most {}",
                self.threads.max(self.competitors),
                super::MOST_THREADS
            ));
        }
        if self.shared_cores > self.cores {
            return refuse(format!(
                "other programs cannot run on {} of {} cores",
                self.shared_cores, self.cores
            ));
        }
        if !(1.0..=super::MOST_PER_S).contains(&self.per_s) {
            return refuse(format!(
                "a load of {}/s cannot be simulated; ask for 1 to 1000M",
                self.per_s
            ));
        }
        for (name, ns) in [("work", self.own_work_ns), ("shared work", self.shared_work_ns)] {
            if !(0.0..=1e6).contains(&ns) {
                return refuse(format!(
                    "{name} of {ns} ns cannot be simulated; ask for at most 1ms"
                ));
            }
        }
        if !(1..=10_000_000).contains(&self.buffer) {
            return refuse("a buffer holds 1 to 10,000,000 datagrams".into());
        }
        if !(1..=65_536).contains(&self.dequeue_max)
            || !(1..=self.dequeue_max as u64).contains(&self.threshold)
        {
            let Self { threshold, dequeue_max, .. } = self;
            return refuse(format!(
                "a threshold of {threshold} is not reached by dequeues of at most {dequeue_max}"
            ));
        }
        if !(1..=1024).contains(&self.batch) || self.drain > 65_536 {
            return refuse(
                "a call receives 1 to 1024 datagrams, and a wake-up at most 65,536".into(),
            );
        }
        if !(1..=65_536).contains(&self.train) || !(1..=1_000_000).contains(&self.flows) {
            return refuse("a train is 1 to 65,536 datagrams, and flows are 1 to 1,000,000".into());
        }
        if !(1000..=1_000_000).contains(&self.datagrams) {
            return refuse(format!(
                "{} datagrams cannot be simulated; ask for 1000 to 1M",
                self.datagrams
            ));
        }
        if !(0.0..=1e6).contains(&self.spin_us) {
            return refuse("the hybrid spins for at most 1s".into());
        }
        Ok(())
    }

    fn all_threads(&self) -> usize {
        if self.threads == 0 { self.cores } else { self.threads }
    }
}

/// Latencies, from coming to handled.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Latency {
    /// The mean.
    pub mean: f64,
    /// The median.
    pub p50: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The 99.9th percentile.
    #[serde(rename = "p99_9")]
    pub p999: f64,
    /// The longest.
    pub max: f64,
    /// How many there are.
    pub n: u64,
}

/// What a row predicts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Row {
    /// The design.
    pub design: String,
    /// Who copies: the thread that dequeues or takes, or the network stack.
    pub copies: String,
    /// Cores of the server.
    pub cores: usize,
    /// Threads that handle datagrams.
    pub threads: usize,
    /// Datagrams that came in a second.
    pub offered_per_s: f64,
    /// Work of each datagram on shared state.
    pub shared_work_ns: f64,
    /// Datagrams handled in a second.
    pub received_per_s: f64,
    /// Of those that came, how many were lost.
    pub lost_percent: f64,
    /// Datagrams that came, from the beginning.
    pub arrived: u64,
    /// Of these, those that the server took.
    pub received: u64,
    /// Those that were lost before a socket, which takes one at a time.
    pub lost_before_socket: u64,
    /// Those that found a socket's queue full.
    pub lost_at_socket: u64,
    /// Those that waited at the end.
    pub waiting: u64,
    /// Datagrams of a batch: the mean, null if there was none.
    pub batch_mean: Option<f64>,
    /// The median of the same.
    pub batch_p50: Option<u32>,
    /// Fewest threads that together handled 99 % of the datagrams.
    pub threads_active: usize,
    /// Cores that the server's threads kept busy, on average.
    pub cores_busy: f64,
    /// The same for each datagram; null if none was received.
    pub cpu_ns_per_datagram: Option<f64>,
    /// How often one thread woke another, for 1000 datagrams; null if none was received.
    pub wakes_per_1000_datagrams: Option<f64>,
    /// Null if no datagram was handled.
    pub latency_ns: Option<Latency>,
    /// How long was simulated.
    pub simulated_ms: f64,
    /// It needed more events than a row may have, and was ended before its time.
    pub cut_short: bool,
}

/// Simulates a row. The same course and costs give the same row.
pub fn simulate(course: &Course, costs: &Costs) -> Row {
    let threads = course.all_threads();
    let until = length(course, costs);
    let from = (until as f64 * WARM_UP) as Time;
    let scheduling = Scheduling {
        wake: of_ns(costs.wake),
        switch: of_ns(costs.switch),
        slice: of_ns(costs.slice),
    };
    let (sockets, flows) = sockets(course, costs, threads);
    let numbers = Numbers {
        threads,
        concurrency: course.cores as u32,
        dequeue_max: course.dequeue_max,
        batch: course.batch,
        drain: course.drain,
        threshold: course.threshold,
        spin: of_ns(course.spin_us * 1000.0),
        copies: course.copies,
    };
    let mut times = Times::of(costs, course.copies);
    times.handle += of_ns(course.own_work_ns);
    let world = World::new(course.cores, scheduling);
    let all = course.design.all_threads(threads);
    let work = of_ns(course.shared_work_ns);
    let noted = Noted {
        from,
        until,
        handled: vec![0; all],
        taken: vec![Taken::default(); sockets.len()],
        ..Noted::default()
    };
    let server = Server::new(times, numbers, sockets.clone(), work, noted);
    let mut thread_of = designs::threads(course.design, &server);
    let start = |thread: Thread| {
        if thread.number() < all {
            return thread_of(thread);
        }
        if course.shared_cores > 0 {
            thread.bind(course.cores - course.shared_cores..course.cores);
        }
        match course.competitors_send {
            true => Box::pin(send(thread, sockets.clone(), flows.clone(), *course)),
            false => Box::pin(compete(thread)) as Pin<Box<dyn Future<Output = ()>>>,
        }
    };
    let ended = run(&world, &sockets, all + course.competitors, start, until, MOST_EVENTS);
    let account = together(&sockets, world.now());
    let ran = world.ran()[..all].iter().sum();
    let noted = server.noted.replace(Noted::default());
    row(course, threads, world.now(), ended, &account, ran, noted)
}

/// How long is simulated: until so many datagrams could be handled, if each core did nothing else, or their work on the
/// shared state, one after the other.
fn length(course: &Course, costs: &Costs) -> Time {
    let each_ns = costs.dequeue_each.max(costs.handle).max(1.0) + course.own_work_ns;
    let by_cores = course.cores as f64 * 1e9 / each_ns;
    let by_work = 1e9 / course.shared_work_ns.max(f64::MIN_POSITIVE);
    let per_s = course.per_s.min(by_cores).min(by_work);
    (course.datagrams as f64 * 1e12 / per_s).clamp(SHORTEST_PS, LONGEST_PS) as Time
}

/// A thread of another program.
async fn compete(thread: Thread) {
    loop {
        thread.run(of_ns(5000.0)).await;
    }
}

/// A generator among them: it sends a train to the socket of a flow, then the next. A train takes a tenth more or less.
async fn send(thread: Thread, sockets: Vec<Rc<Socket>>, flows: Vec<u32>, course: Course) {
    let mut random = Random::seeded(course.seed ^ thread.number() as u64);
    let each_ns = 1e9 * course.competitors as f64 / course.per_s;
    let train_ns = each_ns * f64::from(course.train);
    loop {
        thread.run(of_ns(train_ns * (0.9 + 0.2 * random.share()))).await;
        let mut flow = random.below(course.flows as usize) as u32;
        let of_flow = |&&of: &&u32| {
            let is_before = flow >= of;
            flow = flow.saturating_sub(of);
            is_before
        };
        let socket = flows.iter().take_while(of_flow).count();
        sockets[socket].arrive(thread.world(), course.train);
    }
}

/// The sockets, and how many of the flows each has.
fn sockets(course: &Course, costs: &Costs, threads: usize) -> (Vec<Rc<Socket>>, Vec<u32>) {
    let count = course.design.sockets(threads);
    let mut random = Random::seeded(course.seed);
    let mut flows = vec![0u32; count];
    (0..course.flows).for_each(|_| flows[(random.next_u64() % count as u64) as usize] += 1);
    let most = match count {
        1 => course.buffer,
        _ => {
            weir::udp::policy::receives_of_shard(course.buffer as u32, count as u32).max(1) as usize
        }
    };
    let socket = |(number, flows): (usize, u32)| {
        let share = f64::from(flows) / f64::from(course.flows);
        let seed = random.next_u64();
        let per_s = if course.competitors_send { 0.0 } else { course.per_s * share };
        let traffic = Traffic { per_s, train: course.train, seed };
        Rc::new(Socket::new(number, &traffic, of_ns(costs.enqueue), most))
    };
    (flows.iter().copied().enumerate().map(socket).collect(), flows)
}

fn together(sockets: &[Rc<Socket>], now: Time) -> Account {
    sockets.iter().map(|socket| socket.account(now)).fold(Account::default(), |one, other| {
        Account {
            arrived: one.arrived + other.arrived,
            lost_before: one.lost_before + other.lost_before,
            lost_full: one.lost_full + other.lost_full,
            received: one.received + other.received,
            waiting: one.waiting + other.waiting,
        }
    })
}

fn row(
    course: &Course,
    threads: usize,
    now: Time,
    ended: Ended,
    account: &Account,
    ran: Time,
    noted: Noted,
) -> Row {
    let received_per_s = match course.shared_work_ns > 0.0 {
        true => handled_per_s(&noted, now),
        false => taken_per_s(&noted, now),
    };
    let Noted { mut handled, mut batches, mut latencies, wakes, .. } = noted;
    let total: u64 = handled.iter().sum();
    batches.sort_unstable();
    latencies.sort_unstable();
    handled.sort_unstable_by(|one, other| other.cmp(one));
    let mut sum = 0;
    let active = handled.iter().take_while(|&&of| {
        let counts = of > 0 && sum * 100 < total * 99;
        sum += of;
        counts
    });
    let lost = account.lost_before + account.lost_full;
    let per_received = |value: f64| (account.received > 0).then(|| value / account.received as f64);
    Row {
        design: course.design.name().into(),
        copies: course.copies.name().into(),
        cores: course.cores,
        threads,
        offered_per_s: course.per_s,
        shared_work_ns: course.shared_work_ns,
        received_per_s,
        lost_percent: 100.0 * lost as f64 / account.arrived.max(1) as f64,
        arrived: account.arrived,
        received: account.received,
        lost_before_socket: account.lost_before,
        lost_at_socket: account.lost_full,
        waiting: account.waiting,
        threads_active: active.count(),
        batch_mean: (!batches.is_empty())
            .then(|| batches.iter().map(|&of| f64::from(of)).sum::<f64>() / batches.len() as f64),
        batch_p50: batches.get(batches.len() / 2).copied(),
        cores_busy: ran as f64 / now.max(1) as f64,
        cpu_ns_per_datagram: per_received(ran as f64 / 1000.0),
        wakes_per_1000_datagrams: per_received(1000.0 * wakes as f64),
        latency_ns: latency(&latencies),
        simulated_ms: now as f64 / 1e9,
        cut_short: ended == Ended::TooManyEvents,
    }
}

/// Datagrams handled in a second, each noted when it was: for work on shared state, of which threads take more than they
/// can do.
fn handled_per_s(noted: &Noted, now: Time) -> f64 {
    noted.handled.iter().sum::<u64>() as f64 * 1e12 / now.saturating_sub(noted.from).max(1) as f64
}

/// Datagrams received in a second, of all sockets: what was taken of each from its first batch to its last, without the
/// last, in the time between them. A few large batches would make the time until the end a matter of chance; with fewer
/// than three of them it has to do.
fn taken_per_s(noted: &Noted, now: Time) -> f64 {
    let of = |taken: &Taken| {
        let (first, last) = taken.span;
        let (datagrams, time) = match taken.batches > 2 && last > first {
            true => (taken.before, last - first),
            false => (taken.before + taken.last, now.saturating_sub(noted.from)),
        };
        datagrams as f64 * 1e12 / time.max(1) as f64
    };
    noted.taken.iter().map(of).sum()
}

fn latency(sorted: &[Time]) -> Option<Latency> {
    let max = *sorted.last()? as f64 / 1000.0;
    let at =
        |share: f64| sorted[((sorted.len() - 1) as f64 * share).round() as usize] as f64 / 1000.0;
    let sum: f64 = sorted.iter().map(|&time| time as f64).sum();
    let mean = sum / sorted.len() as f64 / 1000.0;
    Some(Latency {
        mean,
        p50: at(0.5),
        p99: at(0.99),
        p999: at(0.999),
        max,
        n: sorted.len() as u64,
    })
}
