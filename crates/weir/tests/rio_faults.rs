//! Every design on registered I/O, on both providers in memory, while things go wrong: wake-ups
//! for nothing, short batches, receives and sends that fail, datagrams dropped for want of a
//! buffer, completions that come late, and a wire that is cut.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};
use weir::{
    Error,
    limits::Limits,
    rio::{
        HandOver, OneThread, Provider,
        fake::{FakeWinsock, FakeXdp, Faults, Injected, Wire},
    },
    udp::{
        Datagram, Final, Handler, Job, Replies, RioEvent, RioEventPolled, RioHybrid,
        RioHybridReader, RioPolled, RioPort, RioReader, RioSharded, Running, Server,
    },
};

const PATIENCE: Duration = Duration::from_secs(60);

/// What all threads of a server saw: how often each number.
type Seen = Arc<Mutex<BTreeMap<u32, u32>>>;

struct Echo {
    seen: Seen,
}

impl Handler for Echo {
    fn on_datagram(&mut self, datagram: Datagram<'_>, replies: &mut Replies<'_>) {
        let number = u32::from_le_bytes((&*datagram.bytes).try_into().expect("four bytes"));
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner).entry(number).or_default() += 1;
        let _ = replies.echo(); // a refusal is the server's to count
    }
}

/// A design that can be started on a provider of the test's own.
trait OnFakes {
    fn start<P>(job: Job<Echo>, provider: P) -> Result<Running<Echo>, Error>
    where
        P: Provider<OneThread> + Provider<HandOver>,
        <P as Provider<HandOver>>::Cq: Send,
        <P as Provider<HandOver>>::Rq: Send;
}

macro_rules! on_fakes {
    ($($Name:ident: $options:expr;)*) => {
        $(struct $Name;

        impl OnFakes for $Name {
            fn start<P>(job: Job<Echo>, provider: P) -> Result<Running<Echo>, Error>
            where
                P: Provider<OneThread> + Provider<HandOver>,
                <P as Provider<HandOver>>::Cq: Send,
                <P as Provider<HandOver>>::Rq: Send,
            {
                $options.start_on(job, provider)
            }
        })*
    };
}

on_fakes! {
    Polled: RioPolled::default().outstanding(64).dequeue_max(16);
    Event: RioEvent::default().outstanding(64).dequeue_max(16);
    EventPolled: RioEventPolled::default().outstanding(64).dequeue_max(16);
    Port: RioPort::default().threads(3).outstanding(64).dequeue_max(16);
    PortAsItWas: RioPort::default().threads(3).outstanding(64).dequeue_max(16).posts_per_lock(1);
    // Enough receives for all that is sent: the reader may be late.
    Reader: RioReader::default().threads(3).outstanding(1400).dequeue_max(16);
    Sharded: RioSharded::default().threads(2).outstanding(64).dequeue_max(16);
    HybridReader: RioHybridReader::default().threads(3).outstanding(1400).dequeue_max(16).threshold(4);
    HybridAlone: RioHybrid::default().threads(1).outstanding(64).dequeue_max(16).threshold(4);
    HybridTogether: RioHybrid::default().threads(3).outstanding(64).dequeue_max(16).threshold(4);
}

fn address(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

fn start<D: OnFakes, P>(provider: P, limits: Limits) -> (Running<Echo>, Seen)
where
    P: Provider<OneThread> + Provider<HandOver>,
    <P as Provider<HandOver>>::Cq: Send,
    <P as Provider<HandOver>>::Rq: Send,
{
    let seen = Seen::default();
    let of_handlers = Arc::clone(&seen);
    let make = move |_| Echo { seen: Arc::clone(&of_handlers) };
    let job = Server::bind(address(9000)).and_bind(address(9001)).limits(limits).job(make).unwrap();
    (D::start(job, provider).unwrap(), seen)
}

fn assert_slices(report: &Final<Echo>) {
    assert!(report.slices.made > 0);
    assert_eq!((report.slices.returned, report.slices.missing), (report.slices.made, 0));
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let by = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < by, "{what} did not happen");
        std::thread::yield_now();
    }
}

/// Whatever goes wrong, each datagram that the mechanism took is handled once, replies are
/// never more than datagrams, and every slice comes back.
fn everything_taken_is_handled_once<D: OnFakes, P>(seed: u64, provider: impl Fn(&Wire) -> P)
where
    P: Provider<OneThread> + Provider<HandOver>,
    <P as Provider<HandOver>>::Cq: Send,
    <P as Provider<HandOver>>::Rq: Send,
{
    let faults =
        Faults { receive_error: 0.1, send_error: 0.2, no_buffer: 0.1, ..Faults::harmless(0.2) };
    let wire = Wire::with_faults(seed, faults);
    let limits = Limits::default().replies_outstanding(8);
    let (server, seen) = start::<D, P>(provider(&wire), limits);
    let addresses = server.local_addresses().to_vec();
    let mut taken = BTreeMap::new();
    for number in 0..600u32 {
        let from = address(20_000 + (number % 5) as u16);
        let to = addresses[number as usize % 2];
        if wire.inject(to, from, &number.to_le_bytes()) == Injected::Taken {
            taken.insert(number, 1);
        }
        if number % 24 == 23 {
            assert!(wire.wait_for_dequeued(PATIENCE), "{:?}", server.counters());
        }
    }
    assert!((300..600).contains(&taken.len()), "the seed makes no faults, or only faults");
    assert!(wire.wait_for_dequeued(PATIENCE), "{:?}", server.counters());
    // Who sends may be a thread of its own, which had no core yet.
    let by = Instant::now() + PATIENCE;
    let mut sent = wire.sent();
    while sent.is_empty() && Instant::now() < by {
        std::thread::yield_now();
        sent = wire.sent();
    }
    let report = server.stop();
    assert!(report.failure.is_none(), "{}", report.failure.as_ref().unwrap());
    assert_slices(&report);
    assert_eq!(*seen.lock().unwrap(), taken, "handled and taken");
    let total = report.total();
    assert_eq!(total.datagrams, taken.len() as u64);
    sent.extend(wire.sent());
    assert!(total.replies <= sent.len() as u64);
    assert!(sent.len() as u64 + total.send_errors + total.replies_refused <= total.datagrams);
    assert!(!sent.is_empty());
    let mut echoed = BTreeMap::new();
    for sent in sent {
        let number = u32::from_le_bytes(sent.bytes[..].try_into().expect("four bytes"));
        assert_eq!(sent.to, address(20_000 + (number % 5) as u16));
        assert_eq!(sent.from, addresses[number as usize % 2], "it leaves by the socket it came in");
        assert!(echoed.insert(number, ()).is_none(), "{number} was echoed twice");
        assert!(taken.contains_key(&number));
    }
}

/// A device that goes away ends the server with an error that says so, and with every slice.
fn a_cut_wire_ends_the_server<D: OnFakes, P>(seed: u64, provider: impl Fn(&Wire) -> P)
where
    P: Provider<OneThread> + Provider<HandOver>,
    <P as Provider<HandOver>>::Cq: Send,
    <P as Provider<HandOver>>::Rq: Send,
{
    let wire = Wire::new(seed);
    let (server, _) = start::<D, P>(provider(&wire), Limits::default());
    for number in 0..10u32 {
        wire.inject(server.local_addresses()[0], address(20_000), &number.to_le_bytes());
    }
    wire.close();
    until("the end of the server", || !server.is_running());
    let report = server.stop();
    let text = report.failure.as_ref().expect("the wire was cut").to_string();
    assert!(text.contains("completions"), "{text}");
    assert_slices(&report);
}

/// Slices that the kernel does not give back are told as missing, and the stop ends in time.
/// One design stands for all: the wait is the same, and it takes its time.
#[test]
fn what_does_not_come_back_is_told() {
    let wire = Wire::with_faults(1, Faults { stuck: 0.5, ..Faults::default() });
    let (server, _) = start::<HybridTogether, _>(FakeWinsock::new(&wire), Limits::default());
    let since = Instant::now();
    let report = server.stop();
    assert!(since.elapsed() < PATIENCE);
    let slices = report.slices;
    assert!(slices.missing > 0);
    assert_eq!(slices.returned + slices.missing, slices.made);
}

macro_rules! for_every_design {
    ($($module:ident: $Design:ident;)*) => {
        $(mod $module {
            use super::*;

            #[test]
            fn everything_taken_is_handled_once() {
                for seed in 0..8 {
                    super::everything_taken_is_handled_once::<$Design, _>(seed, FakeXdp::new);
                    super::everything_taken_is_handled_once::<$Design, _>(seed, FakeWinsock::new);
                    super::everything_taken_is_handled_once::<$Design, _>(
                        seed,
                        FakeWinsock::with_port,
                    );
                }
            }

            #[test]
            fn a_cut_wire_ends_the_server() {
                for seed in 0..4 {
                    super::a_cut_wire_ends_the_server::<$Design, _>(seed, FakeXdp::new);
                    super::a_cut_wire_ends_the_server::<$Design, _>(seed, FakeWinsock::new);
                    super::a_cut_wire_ends_the_server::<$Design, _>(seed, FakeWinsock::with_port);
                }
            }
        })*
    };
}

for_every_design! {
    polled: Polled;
    event: Event;
    event_polled: EventPolled;
    port: Port;
    port_as_it_was: PortAsItWas;
    reader: Reader;
    sharded: Sharded;
    hybrid_reader: HybridReader;
    hybrid_alone: HybridAlone;
    hybrid_together: HybridTogether;
}
