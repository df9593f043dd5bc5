//! A panic of a server's own thread, outside the handler: an error in weir. It ends the server,
//! is told, and every slice comes back all the same.

use std::{
    io,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};
use weir::{
    Error, Unavailable,
    counters::Counters,
    memory::{Layout, Region},
    rio::{
        Batch, CompletionQueue, HandOver, Needs, OneThread, Provider, Started, Stopped, Threading,
        Woken,
        fake::{FakeWinsock, FakeXdp, Wire},
    },
    socket::Endpoint,
    udp::{
        Datagram, Job, Replies, RioEvent, RioHybrid, RioHybridReader, RioPolled, RioPort,
        RioReader, Running, Server,
    },
    wake::Waker,
};

const PATIENCE: Duration = Duration::from_secs(60);

/// A provider whose completion queue panics when it has dequeued so many datagrams, with those of
/// the last dequeue in the program's hands.
#[derive(Clone)]
struct Panics<P>(P);

const AT: usize = 5;

struct PanickingQueue<Q> {
    queue: Q,
    dequeued: usize,
}

impl<T: Threading, P: Provider<T>> Provider<T> for Panics<P> {
    type Cq = PanickingQueue<P::Cq>;
    type Rq = P::Rq;
    type Opened = P::Opened;

    fn layout(&self, needs: &Needs) -> Result<Layout, Unavailable> {
        self.0.layout(needs)
    }

    fn open(
        &self,
        at: &[Endpoint],
        region: &Arc<Region>,
        needs: &Needs,
    ) -> Result<P::Opened, Error> {
        self.0.open(at, region, needs)
    }

    fn start(&self, opened: P::Opened) -> Result<Started<Self::Cq, P::Rq>, Error> {
        let Started { completions: queue, requests, granted } = self.0.start(opened)?;
        Ok(Started { completions: PanickingQueue { queue, dequeued: 0 }, requests, granted })
    }
}

impl<Q: CompletionQueue> CompletionQueue for PanickingQueue<Q> {
    type Rq = Q::Rq;

    fn dequeue(&mut self, out: &mut Batch, counters: &Counters) -> io::Result<usize> {
        let received = self.queue.dequeue(out, counters)?;
        self.dequeued += received;
        assert!(received == 0 || self.dequeued < AT, "panicked on purpose");
        Ok(received)
    }

    fn wait(
        &mut self,
        at_least: u32,
        timeout: Option<Duration>,
        counters: &Counters,
    ) -> io::Result<Woken> {
        self.queue.wait(at_least, timeout, counters)
    }

    fn gather(&mut self, enough: u32, at_most: Duration, counters: &Counters) -> io::Result<Woken> {
        self.queue.gather(enough, at_most, counters)
    }

    fn gathers(&self) -> String {
        self.queue.gathers()
    }

    fn waker(&self) -> Waker {
        self.queue.waker()
    }

    fn stop(self, requests: Vec<Q::Rq>, by: Instant) -> Stopped {
        self.queue.stop(requests, by)
    }
}

/// Starts a server, lets it panic, and checks what is left.
fn ends_whole<H: weir::udp::Handler>(
    wire: &Wire,
    start: impl FnOnce(Job<fn(Datagram<'_>, &mut Replies<'_>)>) -> Result<Running<H>, Error>,
) {
    let at = SocketAddr::from(([127, 0, 0, 1], 9000));
    let sink: fn(Datagram<'_>, &mut Replies<'_>) = |_, _| ();
    let server = start(Server::bind(at).job(move |_| sink).unwrap()).unwrap();
    let from = SocketAddr::from(([127, 0, 0, 1], 20_000));
    for _ in 0..2 * AT {
        wire.inject(server.local_addresses()[0], from, b"datagram");
    }
    let by = Instant::now() + PATIENCE;
    while server.is_running() {
        assert!(Instant::now() < by, "the panic did not end the server");
        std::thread::yield_now();
    }
    let report = server.stop();
    match &report.failure {
        Some(Error::ThreadPanicked { message, .. }) => assert!(message.contains("on purpose")),
        other => panic!("{other:?}"),
    }
    assert!(report.slices.made > 0);
    assert_eq!((report.slices.returned, report.slices.missing), (report.slices.made, 0));
}

fn every_design<P>(provider: impl Fn(&Wire) -> P)
where
    P: Provider<OneThread> + Provider<HandOver>,
    <P as Provider<HandOver>>::Cq: Send,
    <P as Provider<HandOver>>::Rq: Send,
{
    let hybrid = |threads| RioHybrid::default().threads(threads).outstanding(64);
    let event = RioEvent::default().outstanding(64);
    let polled = RioPolled::default().outstanding(64);
    let with = |wire: &Wire| Panics(provider(wire));
    let wire = Wire::new(1);
    ends_whole(&wire, |job| event.start_on(job, with(&wire)));
    let reader = RioReader::default().threads(2).outstanding(64);
    let wire = Wire::new(4);
    ends_whole(&wire, |job| reader.start_on(job, with(&wire)));
    let port = RioPort::default().threads(3).outstanding(64);
    let wire = Wire::new(5);
    ends_whole(&wire, |job| port.start_on(job, with(&wire)));
    let hybrid_reader = RioHybridReader::default().threads(2).outstanding(64);
    let wire = Wire::new(6);
    ends_whole(&wire, |job| hybrid_reader.start_on(job, with(&wire)));
    let wire = Wire::new(2);
    ends_whole(&wire, |job| polled.start_on(job, with(&wire)));
    for threads in [1, 3] {
        let wire = Wire::new(3);
        ends_whole(&wire, |job| hybrid(threads).start_on(job, with(&wire)));
    }
}

#[test]
fn every_slice_comes_back_by_the_rules_of_xdp() {
    every_design(FakeXdp::new);
}

#[test]
fn every_slice_comes_back_by_the_rules_of_winsock() {
    every_design(FakeWinsock::new);
    every_design(FakeWinsock::with_port);
}
