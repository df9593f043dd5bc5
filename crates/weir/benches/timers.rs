//! How late alarms of handlers go off ([`Asks::deadline`](weir::tcp::Asks)), by design.
//!
//! ```text
//! cargo bench -p weir-io --bench timers                 # every design: 2000 alarms of one connection, 200 others at rest
//! cargo bench -p weir-io --bench timers -- epoll        # those whose name contains "epoll"
//! cargo bench -p weir-io --bench timers -- --busy-core  # beside a thread that computes, on the same core
//! ```
//!
//! One connection asks for a moment 0.3 to 2.3 ms ahead, again and again; all others have alarms far ahead, so that
//! there are many to choose from. The client does nothing. Printed is how late the handler was called, in microseconds: by the
//! time that it reads itself. All of it runs on one core, or where the system puts it if the machine has no other.
//!
//! `cargo test` lets each design go off a few times, and says nothing of speed.

use std::{
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
    tcp::{Asks, Handler, Limits, Output, Server, designs},
};

/// Connections beside the one that is measured.
const OTHERS: u32 = 200;

/// When their alarms would go off.
const FAR: Duration = Duration::from_secs(3600);

/// Far longer than all alarms of a design take.
const PATIENCE: Duration = Duration::from_secs(60);

/// The connection that came last is measured; the others rest.
enum Alarmed {
    Rests(Instant),
    Measured(Box<Measured>),
}

struct Measured {
    due: Option<Instant>,
    /// A number that changes, for times that have nothing to do with each other.
    state: u64,
    left: usize,
    late: Vec<Duration>,
    done: mpsc::Sender<Vec<Duration>>,
}

impl Measured {
    fn next(&mut self, now: Instant) {
        // Xorshift, Marsaglia 2003.
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.due = Some(now + Duration::from_micros(300 + self.state % 2000));
    }
}

impl Handler for Alarmed {
    fn on_connect(&mut self, _: SocketAddr, output: &mut Output<'_>) {
        if let Alarmed::Measured(measured) = self {
            measured.next(output.now());
        }
    }

    fn on_receive(&mut self, _: &mut [u8], _: &mut Output<'_>) {}

    fn on_time(&mut self, output: &mut Output<'_>) {
        let Alarmed::Measured(measured) = self else { return };
        let now = output.now();
        measured.late.push(now - measured.due.take().expect("it was asked for"));
        measured.left -= 1;
        if measured.left == 0 {
            let _ = measured.done.send(std::mem::take(&mut measured.late));
        } else {
            measured.next(now);
        }
    }

    fn asks(&self) -> Asks {
        Asks::NOTHING.at(match self {
            Alarmed::Rests(due) => Some(*due),
            Alarmed::Measured(measured) => measured.due,
        })
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    let (alarms, others) = if has("--bench") { (2000, OTHERS) } else { (3, 3) };
    let word = arguments.iter().find(|argument| !argument.starts_with('-'));
    let core = allowed_cores().last().copied();
    if let Some(core) = core {
        let _ = pin_current_thread(core); // and the threads that it starts
    }
    let ended = Arc::new(AtomicBool::new(false));
    let busy = has("--busy-core").then(|| {
        let ended = Arc::clone(&ended);
        thread::spawn(move || while !ended.load(Relaxed) {})
    });
    println!("alarms of one connection beside {others} at rest: how late, in µs");
    println!("{:<18}{:>10}{:>10}{:>10}{:>10}", "design", "median", "90 %", "99 %", "most");
    for mut design in designs() {
        let name = design.about().name;
        if word.is_some_and(|word| !name.contains(word.as_str())) {
            continue;
        }
        if let Err(why) = design.availability() {
            println!("{name:<18}cannot run here: {why}");
            continue;
        }
        if design.known_options().iter().any(|option| option.name == "threads") {
            design.set("threads", "1").expect("every design runs with one");
        }
        let (done, late) = mpsc::channel();
        let (connected, done) = (AtomicU32::new(0), Mutex::new(done));
        let server = Server::bind(SocketAddr::from(([127, 0, 0, 1], 0)))
            .limits(Limits::default().silent(None));
        let running = server.start(design, move |_| {
            if connected.fetch_add(1, Relaxed) < others {
                return Alarmed::Rests(Instant::now() + FAR);
            }
            let done = done.lock().expect("nobody panics with it").clone();
            let (late, state) = (Vec::with_capacity(alarms), 0x9e37_79b9_7f4a_7c15);
            Alarmed::Measured(Box::new(Measured { due: None, state, left: alarms, late, done }))
        });
        let running = running.unwrap_or_else(|e| panic!("{name}: {e}"));
        let to = running.local_addresses()[0];
        let connect = |_| TcpStream::connect(to).unwrap_or_else(|e| panic!("{name}: {e}"));
        let clients: Vec<_> = (0..=others).map(connect).collect();
        let mut late = late.recv_timeout(PATIENCE).unwrap_or_else(|e| panic!("{name}: {e}"));
        drop(clients);
        let report = running.stop();
        assert!(report.failure.is_none(), "{name}: {:?}", report.failure);
        assert_eq!(late.len(), alarms, "{name}");
        if !has("--bench") {
            continue;
        }
        late.sort_unstable();
        let at = |share: f64| late[(share * (alarms - 1) as f64) as usize].as_nanos() as f64 / 1e3;
        let [median, most_of_them, nearly_all, most] = [0.5, 0.9, 0.99, 1.0].map(at);
        println!("{name:<18}{median:>10.1}{most_of_them:>10.1}{nearly_all:>10.1}{most:>10.1}");
    }
    ended.store(true, Relaxed);
    busy.into_iter().for_each(|thread| thread.join().expect("it only computes"));
}
