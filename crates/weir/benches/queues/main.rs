//! What it costs to hand a completion queue on, and to post on request queues that threads share.
//!
//! ```text
//! cargo bench -p weir-io --bench queues             # 15 rounds
//! cargo bench -p weir-io --bench queues -- --quick  # 3 rounds
//! ```
//!
//! *Notify*: threads take the turn of a queue that always has something, and give it up at once. With one thread that is
//! the price of the turn itself; with more, each notify wakes the thread that parked last, and CPU time includes the
//! wake-up. What the kernel does for a queue that has to be waited for is in the benchmark `designs`.
//!
//! *Posts*: threads post receives, so many each time they take a lock. In one form each has a request queue of its own, in
//! the other all post on one. Both are for a queue that somebody dequeues from meanwhile.
//!
//! Forms are interleaved; printed are medians of the rounds. `cargo test` runs each once, for a moment, and says nothing
//! of speed.

use std::{
    hint::black_box,
    io,
    net::SocketAddr,
    sync::{
        Arc, Barrier, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
use weir::{
    counters::Counters,
    memory::{Region, RegionOptions, Slice},
    rio::{
        Batch, Choice, CompletionQueue, HandOver, Needs, Opened, Peer, Provider, Refused,
        RequestQueue, Span, Started, Stopped, Woken, batch::PlainSockets, turn::Turns,
    },
    wake::Waker,
};

/// Threads that take turns.
const TAKERS: [usize; 3] = [1, 2, 8];

/// Threads that post, and how much under one lock.
const POSTERS: [usize; 2] = [1, 2];
const PER_LOCK: [usize; 4] = [1, 16, 128, 1000];

/// How often each form is run, and how much of it.
struct Extent {
    says_of_speed: bool,
    rounds: usize,
    turns: u32,
    posts: u32,
}

impl Extent {
    /// `cargo bench` says `--bench`; without, it is a test.
    fn asked() -> Self {
        let given = |flag: &str| std::env::args().any(|argument| argument == flag);
        let of = |says_of_speed, rounds, turns, posts| Self { says_of_speed, rounds, turns, posts };
        match (given("--bench"), given("--quick")) {
            (true, false) => of(true, 15, 50_000, 50_000),
            (true, true) => of(true, 3, 50_000, 50_000),
            (false, _) => of(false, 1, 100, 100),
        }
    }
}

fn main() {
    let extent = Extent::asked();
    print("threads that take turns", &["ns per notify"]);
    let notifies = in_rounds(&extent, &TAKERS, |&threads| [notify(threads, extent.turns)]);
    for (threads, figures) in TAKERS.iter().zip(notifies) {
        print_row(&extent, &threads.to_string(), &figures);
    }
    posts("batch", PlainSockets, &extent);
    match Choice::Uring.availability_for(true) {
        #[cfg(target_os = "linux")]
        Ok(()) => posts("uring", weir::rio::uring::Uring::default(), &extent),
        #[cfg(not(target_os = "linux"))]
        Ok(()) => unreachable!("it is Linux's"),
        Err(why) => println!("\nskipped: {why}"),
    }
}

fn print(what: &str, figures: &[&str]) {
    print!("\n{what:<48}");
    figures.iter().for_each(|figure| print!(" {figure:>22}"));
    println!();
}

fn print_row(extent: &Extent, name: &str, figures: &[f64]) {
    print!("{name:<48}");
    match extent.says_of_speed {
        true => figures.iter().for_each(|figure| print!(" {figure:>22.1}")),
        false => print!(" {:>22}", "done"),
    }
    println!();
}

/// The medians of what each form answers, over rounds in which each is run once.
fn in_rounds<F, const N: usize>(
    extent: &Extent,
    forms: &[F],
    run: impl Fn(&F) -> [f64; N],
) -> Vec<[f64; N]> {
    let mut answers = vec![Vec::new(); forms.len()];
    for _ in 0..extent.rounds {
        for (form, answers) in forms.iter().zip(&mut answers) {
            answers.push(run(form));
        }
    }
    let median = |answers: &Vec<[f64; N]>, of: usize| {
        let mut values: Vec<f64> = answers.iter().map(|answer| answer[of]).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    answers.iter().map(|answers| std::array::from_fn(|of| median(answers, of))).collect()
}

/// A queue that always has something and never brings it.
struct Always;

impl CompletionQueue for Always {
    type Rq = NoRequests;

    fn dequeue(&mut self, _: &mut Batch, _: &Counters) -> io::Result<usize> {
        Ok(0)
    }

    fn wait(&mut self, _: u32, _: Option<Duration>, _: &Counters) -> io::Result<Woken> {
        Ok(Woken::Ready)
    }

    fn gather(&mut self, _: u32, _: Duration, _: &Counters) -> io::Result<Woken> {
        Ok(Woken::Ready)
    }

    fn gathers(&self) -> String {
        "never".into()
    }

    fn waker(&self) -> Waker {
        Waker::new(|| {})
    }

    fn stop(self, _: Vec<NoRequests>, _: Instant) -> Stopped {
        Stopped::default()
    }
}

/// Its request queue, of which there is none.
enum NoRequests {}

impl RequestQueue for NoRequests {
    fn receive(&mut self, _: Slice) -> Result<(), (Slice, Refused)> {
        match *self {}
    }

    fn send(&mut self, _: Slice, _: impl Into<Span>, _: &Peer) -> Result<(), (Slice, Refused)> {
        match *self {}
    }

    fn commit(&mut self, _: &Counters) -> io::Result<()> {
        match *self {}
    }

    fn outstanding(&self) -> (u32, u32) {
        match *self {}
    }
}

/// Time that a turn takes which is given up at once, in ns, of which `threads` threads take so many in all.
fn notify(threads: usize, turns: u32) -> f64 {
    let (queue, left) = (Turns::new(Always, threads), Mutex::new(turns));
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (queue, left) = (&queue, &left);
            scope.spawn(move || {
                let counters = Counters::default();
                while let Some(mut turn) = queue.take(thread, &counters).expect("it never fails") {
                    black_box(turn.queue());
                    // Of the thread that has the turn alone, so nobody waits for it.
                    let mut left = left.lock().expect("nobody panics");
                    *left = left.saturating_sub(1);
                    let over = *left == 0;
                    drop(left);
                    turn.notify(&counters);
                    if over {
                        queue.close();
                    }
                }
            });
        }
    });
    begun.elapsed().as_nanos() as f64 / f64::from(turns)
}

/// How posts are made.
struct Form {
    threads: usize,
    /// Each on a queue of its own.
    own: bool,
    per_lock: usize,
}

fn posts<P: Provider<HandOver, Cq: Send, Rq: Send>>(name: &str, provider: P, extent: &Extent) {
    print(&format!("posts on {name}"), &["ns per post", "% of locks contended"]);
    let forms: Vec<Form> = PER_LOCK
        .iter()
        .flat_map(|&per_lock| {
            let form = move |(threads, own)| Form { threads, own, per_lock };
            POSTERS.into_iter().flat_map(|threads| [(threads, true), (threads, false)]).map(form)
        })
        .filter(|form| form.own || form.threads > 1)
        .collect();
    let figures = in_rounds(extent, &forms, |form| post(&provider, form, extent.posts));
    for (Form { threads, own, per_lock }, figures) in forms.iter().zip(figures) {
        let queues = if *own { "a queue each" } else { "one queue" };
        print_row(extent, &format!("{threads} threads, {queues}, {per_lock} per lock"), &figures);
    }
}

/// Time per post of a thread in ns, and the share of locks in % that another thread held.
fn post<P: Provider<HandOver, Cq: Send, Rq: Send>>(
    provider: &P,
    form: &Form,
    posts: u32,
) -> [f64; 2] {
    let receives = posts * form.threads as u32;
    let needs =
        Needs { payload: 64, receives, sends: 0, per_dequeue: 64, offload: false, meta: false };
    let layout = provider.layout(&needs).expect("it was asked whether it can run");
    let region = Region::new(layout, receives, RegionOptions::default()).expect("memory");
    let queues = if form.own { form.threads } else { 1 };
    let at = vec![SocketAddr::from(([127, 0, 0, 1], 0)).into(); queues];
    let opened = provider.open(&at, &region, &needs).expect("sockets");
    assert_eq!(opened.local_addresses().len(), queues);
    let Started { completions, requests, .. } = provider.start(opened).expect("a queue");
    let requests: Vec<_> = requests.into_iter().map(Mutex::new).collect();
    let (start, stop) = (Barrier::new(form.threads + 1), AtomicBool::new(false));
    let (mut ns, counters) = (0, Arc::new(Counters::default()));
    let completions = std::thread::scope(|scope| {
        let dequeuer = scope.spawn(|| {
            let (mut completions, counters) = (completions, Counters::default());
            let mut batch = Batch::new(64);
            while !stop.load(Relaxed) {
                completions.dequeue(&mut batch, &counters).expect("a queue that runs");
                batch.drain().for_each(drop);
                let little = Duration::from_micros(20);
                completions.wait(1, Some(little), &counters).expect("a queue that runs");
            }
            completions
        });
        let posters: Vec<_> = (0..form.threads)
            .map(|thread| {
                let queue = &requests[if form.own { thread } else { 0 }];
                let (region, start) = (&region, &start);
                scope.spawn(move || {
                    let mut slices: Vec<_> =
                        std::iter::from_fn(|| region.take()).take(posts as usize).collect();
                    let counters = Counters::default();
                    start.wait();
                    let begun = Instant::now();
                    while !slices.is_empty() {
                        let rest = slices.len().saturating_sub(form.per_lock);
                        counters.locks.one();
                        let mut queue = queue.try_lock().unwrap_or_else(|_| {
                            counters.locks_contended.one();
                            queue.lock().expect("nobody panics")
                        });
                        for slice in slices.drain(rest..) {
                            queue.receive(slice).expect("room for it");
                        }
                        queue.commit(&counters).expect("a queue that runs");
                    }
                    (begun.elapsed(), counters.snapshot())
                })
            })
            .collect();
        start.wait();
        for poster in posters {
            let (time, counted) = poster.join().expect("nobody panics");
            ns += time.as_nanos();
            counters.locks.add(counted.locks);
            counters.locks_contended.add(counted.locks_contended);
        }
        stop.store(true, Relaxed);
        dequeuer.join().expect("nobody panics")
    });
    let requests = requests.into_iter().map(|queue| queue.into_inner().expect("nobody panics"));
    completions.stop(requests.collect(), Instant::now() + Duration::from_secs(10));
    let contended = counters.locks_contended.get() as f64 / counters.locks.get() as f64;
    [ns as f64 / f64::from(receives), 100.0 * contended]
}
