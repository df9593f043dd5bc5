//! How late alarms of handlers go off, by design: of a TCP connection ([`Asks::deadline`](weir::tcp::Asks)), and of a thread of a
//! UDP server ([`Outbox::call_at`](weir::udp::Outbox::call_at)).
//!
//! ```text
//! cargo bench -p weir-io --bench timers                  # every design: 2000 alarms, beside 5000 that are far ahead
//! cargo bench -p weir-io --bench timers -- epoll         # those whose name contains "epoll"
//! cargo bench -p weir-io --bench timers -- udp           # those of one kind of server
//! cargo bench -p weir-io --bench timers -- --others 200  # beside so many
//! cargo bench -p weir-io --bench timers -- --busy-core   # beside a thread that computes, on the same core
//! ```
//!
//! One alarm is asked for 0.3 to 2.3 ms ahead, again and again. All others are far ahead: of TCP each belongs to a connection
//! of its own, of UDP they stand in the handler's heap. The clients do nothing. Printed is how late the handler was called,
//! in microseconds: by the time that it reads itself. All of it runs on one core, or where the system puts it if the
//! machine has no other.
//!
//! `cargo test` lets each design go off a few times, and says nothing of speed.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    net::{SocketAddr, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};
use weir::{
    affinity::{allowed_cores, pin_current_thread},
    tcp, udp,
};

/// When the others would go off.
const FAR: Duration = Duration::from_secs(3600);

/// Far longer than all alarms of a design take.
const PATIENCE: Duration = Duration::from_secs(60);

/// The one that goes off again and again.
struct Alarm {
    due: Instant,
    /// A number that changes, for times that have nothing to do with each other.
    state: u64,
    left: usize,
    late: Vec<Duration>,
    done: mpsc::Sender<Vec<Duration>>,
}

impl Alarm {
    fn new(alarms: usize, done: mpsc::Sender<Vec<Duration>>) -> Self {
        let (due, late) = (Instant::now(), Vec::with_capacity(alarms));
        let mut alarm = Self { due, state: 0x9e37_79b9_7f4a_7c15, left: alarms, late, done };
        alarm.next(due);
        alarm
    }

    fn next(&mut self, now: Instant) {
        // Xorshift, Marsaglia 2003.
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.due = now + Duration::from_micros(300 + self.state % 2000);
    }

    /// It went off; says whether it is to go off again.
    fn went_off(&mut self, now: Instant) -> bool {
        self.late.push(now - self.due);
        self.left -= 1;
        self.next(now);
        if self.left == 0 {
            let _ = self.done.send(std::mem::take(&mut self.late));
        }
        self.left > 0
    }
}

/// The connection that came last is measured; the others rest.
enum Connection {
    Rests(Instant),
    Measured(Option<Box<Alarm>>),
}

impl tcp::Handler for Connection {
    fn on_receive(&mut self, _: &mut [u8], _: &mut tcp::Output<'_>) {}

    fn on_time(&mut self, output: &mut tcp::Output<'_>) {
        if let Self::Measured(alarm) = self
            && !alarm.as_mut().expect("it was asked for").went_off(output.now())
        {
            *alarm = None;
        }
    }

    fn asks(&self) -> tcp::Asks {
        tcp::Asks::NOTHING.at(match self {
            Self::Rests(due) => Some(*due),
            Self::Measured(alarm) => alarm.as_ref().map(|alarm| alarm.due),
        })
    }
}

/// A thread that has many alarms.
struct Alarms {
    /// Those that rest.
    others: BinaryHeap<Reverse<Instant>>,
    alarm: Alarm,
}

impl Alarms {
    fn ask(&self, outbox: &mut udp::Outbox<'_>) {
        let first = self.others.peek().map_or(self.alarm.due, |other| other.0.min(self.alarm.due));
        outbox.call_at(first);
    }
}

impl udp::Handler for Alarms {
    fn on_start(&mut self, outbox: &mut udp::Outbox<'_>) {
        self.ask(outbox);
    }

    fn on_datagram(&mut self, _: udp::Datagram<'_>, _: &mut udp::Replies<'_>) {}

    fn on_time(&mut self, outbox: &mut udp::Outbox<'_>) {
        if self.alarm.went_off(Instant::now()) {
            self.ask(outbox);
        }
    }
}

fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

fn of_tcp(name: &str, design: tcp::AnyDesign, alarms: usize, others: u32) -> Vec<Duration> {
    let (done, late) = mpsc::channel();
    let (connected, done) = (AtomicU32::new(0), Mutex::new(done));
    let limits = tcp::Limits::default().silent(None);
    let running = tcp::Server::bind(loopback()).limits(limits).start(design, move |_| {
        if connected.fetch_add(1, Relaxed) < others {
            return Connection::Rests(Instant::now() + FAR);
        }
        let done = done.lock().expect("nobody panics with it").clone();
        Connection::Measured(Some(Box::new(Alarm::new(alarms, done))))
    });
    let running = running.unwrap_or_else(|e| panic!("{name}: {e}"));
    let to = running.local_addresses()[0];
    let connect = |_| TcpStream::connect(to).unwrap_or_else(|e| panic!("{name}: {e}"));
    let clients: Vec<_> = (0..=others).map(connect).collect();
    let late = late.recv_timeout(PATIENCE).unwrap_or_else(|e| panic!("{name}: {e}"));
    drop(clients);
    let report = running.stop();
    assert!(report.failure.is_none(), "{name}: {:?}", report.failure);
    late
}

fn of_udp(name: &str, design: udp::AnyDesign, alarms: usize, others: u32) -> Vec<Duration> {
    let (done, late) = mpsc::channel();
    let running = udp::Server::bind(loopback()).start(design, move |_thread| Alarms {
        others: (0..others).map(|_| Reverse(Instant::now() + FAR)).collect(),
        alarm: Alarm::new(alarms, done.clone()),
    });
    let running = running.unwrap_or_else(|e| panic!("{name}: {e}"));
    let late = late.recv_timeout(PATIENCE).unwrap_or_else(|e| panic!("{name}: {e}"));
    let report = running.stop();
    assert!(report.failure.is_none(), "{name}: {:?}", report.failure);
    late
}

/// Alarms of each design of a kind, on one thread.
macro_rules! measure {
    ($kind:ident, $of:ident, $asked:expr) => {
        for mut design in weir::$kind::designs() {
            let Asked { alarms, others, word, says } = $asked;
            let name = format!("{} {}", stringify!($kind), design.about().name);
            if !word.is_none_or(|word| name.contains(word)) {
                continue;
            }
            if let Err(why) = design.availability() {
                println!("{name:<24}cannot run here: {why}");
                continue;
            }
            for (option, value) in [("threads", "1"), ("outstanding", "256")] {
                if design.known_options().iter().any(|known| known.name == option) {
                    design.set(option, value).expect("every design runs with that");
                }
            }
            let mut late = $of(&name, design, alarms, others);
            assert_eq!(late.len(), alarms, "{name}");
            if says {
                say(&name, &mut late);
            }
        }
    };
}

#[derive(Clone, Copy)]
struct Asked<'a> {
    alarms: usize,
    others: u32,
    word: Option<&'a str>,
    says: bool,
}

fn say(name: &str, late: &mut [Duration]) {
    late.sort_unstable();
    let at = |share: f64| late[(share * (late.len() - 1) as f64) as usize].as_nanos() as f64 / 1e3;
    let [median, most_of_them, nearly_all, most] = [0.5, 0.9, 0.99, 1.0].map(at);
    println!("{name:<24}{median:>10.1}{most_of_them:>10.1}{nearly_all:>10.1}{most:>10.1}");
}

fn main() {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let others = arguments.iter().position(|argument| argument == "--others").map(|at| {
        let value = arguments.get(at + 1).and_then(|value| value.parse().ok());
        arguments.drain(at..(at + 2).min(arguments.len()));
        value.expect("--others: a number follows")
    });
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    let says = has("--bench");
    let (alarms, others) = if says { (2000, others.unwrap_or(5000)) } else { (3, 3) };
    let word = arguments.iter().map(|argument| &**argument).find(|word| !word.starts_with('-'));
    let core = allowed_cores().last().copied();
    if let Some(core) = core {
        let _ = pin_current_thread(core); // and the threads that it starts
    }
    let ended = Arc::new(AtomicBool::new(false));
    let busy = has("--busy-core").then(|| {
        let ended = Arc::clone(&ended);
        thread::spawn(move || while !ended.load(Relaxed) {})
    });
    println!("an alarm beside {others} that are far ahead: how late, in µs");
    println!("{:<24}{:>10}{:>10}{:>10}{:>10}", "design", "median", "90 %", "99 %", "most");
    let asked = Asked { alarms, others, word, says };
    measure!(tcp, of_tcp, asked);
    measure!(udp, of_udp, asked);
    ended.store(true, Relaxed);
    busy.into_iter().for_each(|thread| thread.join().expect("it only computes"));
}
