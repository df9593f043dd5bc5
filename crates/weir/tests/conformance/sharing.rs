//! How sockets and threads share: an address that always has something leaves the others their turns, and a thread
//! that is busy leaves the other threads theirs.
//!
//! Handlers make what is to be seen happen themselves, so none of it depends on how soon anything is done.

use super::support::*;
use std::{
    net::{SocketAddr, UdpSocket},
    sync::{
        Arc, Condvar, Mutex, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::Instant,
};
use weir::udp::{Datagram, Handler, Replies, Server};

pub const CHECKS: &[Check] = &[
    ("one_address_is_never_empty", one_address_is_never_empty),
    ("a_busy_thread_leaves_the_others_theirs", a_busy_thread_leaves_the_others_theirs),
];

/// What handlers and check share.
struct Shared {
    sends: UdpSocket,
    /// The address that is never empty.
    to: OnceLock<SocketAddr>,
    over: AtomicBool,
    more: AtomicU64,
    others: AtomicU64,
    /// Handlers that are held, and whether they are let go.
    held: AtomicU64,
    open: Mutex<bool>,
    opened: Condvar,
}

impl Shared {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            sends: UdpSocket::bind(any_port()).unwrap(),
            to: OnceLock::new(),
            over: AtomicBool::new(false),
            more: AtomicU64::new(0),
            others: AtomicU64::new(0),
            held: AtomicU64::new(0),
            open: Mutex::new(false),
            opened: Condvar::new(),
        })
    }

    fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.opened.notify_all();
    }
}

/// Ends all of it, also where a check panics.
struct Ends<'a>(&'a Shared);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.over.store(true, Relaxed);
        self.0.open();
    }
}

/// What is sent to the address that is never empty, and what keeps a handler busy.
const MORE: &[u8] = b"more";
const HOLD: &[u8] = b"hold";

struct Answers {
    shared: Arc<Shared>,
    by: Instant,
}

impl Handler for Answers {
    fn on_datagram(&mut self, datagram: Datagram<'_>, _: &mut Replies<'_>) {
        let shared = &self.shared;
        match &*datagram.bytes {
            MORE => {
                shared.more.fetch_add(1, Relaxed);
                if !shared.over.load(Relaxed) && Instant::now() < self.by {
                    let to = shared.to.get().expect("it was told before the first was sent");
                    let _ = shared.sends.send_to(MORE, to);
                }
            }
            HOLD => {
                shared.held.fetch_add(1, Relaxed);
                let open = shared.open.lock().unwrap();
                let passed =
                    shared.opened.wait_timeout_while(open, 2 * PATIENCE, |open| !*open).unwrap();
                assert!(*passed.0, "the gate was never opened");
            }
            _ => drop(shared.others.fetch_add(1, Relaxed)),
        }
    }
}

fn start(subject: &Subject, server: &Server) -> (weir::udp::Running<Boxed>, Arc<Shared>) {
    let shared = Shared::new();
    let its = Arc::clone(&shared);
    let by = Instant::now() + 2 * PATIENCE;
    let make = move |_| Answers { shared: Arc::clone(&its), by };
    (subject.start(server, make).unwrap_or_else(|e| panic!("{e}")), shared)
}

/// There is a bound to what is received from one socket while others wait. Where there is none the one gives up after
/// a while.
fn one_address_is_never_empty(subject: &Subject) -> Result<(), Skipped> {
    /// Less than fills a socket's buffer, so that none is lost.
    const AHEAD: u64 = 64;
    let (server, shared) = start(subject, &Server::bind(any_port()).and_bind(any_port()));
    let (never_empty, other) = (server.local_addresses()[0], server.local_addresses()[1]);
    let ends = Ends(&shared);
    shared.to.set(never_empty).expect("it is set once");
    for _ in 0..AHEAD {
        shared.sends.send_to(MORE, never_empty).unwrap();
    }
    for round in 1..=3 {
        let from = shared.more.load(Relaxed);
        until("more at the one address", || shared.more.load(Relaxed) >= from + 500);
        shared.sends.send_to(b"other", other).unwrap();
        until("what came to the other", || shared.others.load(Relaxed) == round);
    }
    drop(ends);
    assert_whole(&server.stop());
    Ok(())
}

fn a_busy_thread_leaves_the_others_theirs(subject: &Subject) -> Result<(), Skipped> {
    if subject.threads() == 1 {
        return Err(Skipped("one thread handles all datagrams".into()));
    }
    if subject.has("threshold") {
        return Err(Skipped("it has more threads than one at work only while many wait".into()));
    }
    if thread::available_parallelism().is_ok_and(|cores| cores.get() == 1) {
        return Err(Skipped("on one core one thread of a port runs at a time".into()));
    }
    let (server, shared) = start(subject, &Server::bind(any_port()));
    let to = server.local_addresses()[0];
    let ends = Ends(&shared);
    shared.sends.send_to(HOLD, to).unwrap();
    until("a busy handler", || shared.held.load(Relaxed) == 1);
    // Of several senders: where each thread has a socket the system chooses by who sends.
    let senders = senders(64, to);
    for sender in &senders {
        sender.send_to(b"other", to).unwrap();
    }
    until("another thread's datagram", || shared.others.load(Relaxed) > 0);
    drop(ends);
    until("all datagrams", || shared.others.load(Relaxed) == senders.len() as u64);
    assert_whole(&server.stop());
    Ok(())
}
