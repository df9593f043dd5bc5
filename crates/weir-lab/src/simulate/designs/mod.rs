//! The designs of the model: each thread does what its design's does, in the same order, and decides by the library's
//! own code ([`weir::udp::policy`], [`weir::rio::turn::order`], [`weir::port::limit::rules`]).

mod plain;
mod port;
mod rio;

use super::{
    costs::Costs,
    events::{Thread, Time, of_ns},
    kernel::{Lock, LockCosts, Socket},
};
use plain::{Call, Waits};
use std::{cell::RefCell, future::Future, pin::Pin, rc::Rc};
use weir::udp::{Epoll, EpollBatch};

/// A design that is modelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Design {
    /// `blocking`: a call for each datagram, by several threads on one socket.
    Blocking,
    /// `blocking-batch`: a call for each batch.
    BlockingBatch,
    /// `epoll`: the same calls as `blocking`, once readiness was told.
    Epoll,
    /// `epoll-batch`.
    EpollBatch,
    /// `port`.
    Port,
    /// `port-batch`.
    PortBatch,
    /// `rio-port`.
    RioPort,
    /// `rio-hybrid`.
    RioHybrid,
    /// `rio-reader`.
    RioReader,
    /// `rio-hybrid-reader`.
    RioHybridReader,
    /// `rio-sharded`.
    RioSharded,
}

impl Design {
    /// All of them, simple ones first.
    pub const ALL: [Self; 11] = [
        Self::Blocking,
        Self::BlockingBatch,
        Self::Epoll,
        Self::EpollBatch,
        Self::Port,
        Self::PortBatch,
        Self::RioPort,
        Self::RioHybrid,
        Self::RioReader,
        Self::RioHybridReader,
        Self::RioSharded,
    ];

    /// Its name, as the library's.
    pub fn name(self) -> &'static str {
        match self {
            Self::Blocking => "blocking",
            Self::BlockingBatch => "blocking-batch",
            Self::Epoll => "epoll",
            Self::EpollBatch => "epoll-batch",
            Self::Port => "port",
            Self::PortBatch => "port-batch",
            Self::RioPort => "rio-port",
            Self::RioHybrid => "rio-hybrid",
            Self::RioReader => "rio-reader",
            Self::RioHybridReader => "rio-hybrid-reader",
            Self::RioSharded => "rio-sharded",
        }
    }

    /// The design of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|design| design.name() == name)
    }

    /// Whether it is on registered I/O.
    pub fn is_rio(self) -> bool {
        !self.is_plain() && !matches!(self, Self::Port | Self::PortBatch)
    }

    /// Whether its threads call a socket, each for itself.
    pub(super) fn is_plain(self) -> bool {
        matches!(self, Self::Blocking | Self::BlockingBatch | Self::Epoll | Self::EpollBatch)
    }

    /// Whether a thread besides those that handle datagrams posts their slices.
    fn has_reader(self) -> bool {
        matches!(self, Self::RioReader | Self::RioHybridReader)
    }

    /// How many sockets so many threads receive on.
    pub(super) fn sockets(self, threads: usize) -> usize {
        if self == Self::RioSharded { threads } else { 1 }
    }

    /// How many threads there are where so many handle datagrams.
    pub(super) fn all_threads(self, threads: usize) -> usize {
        threads + usize::from(self.has_reader())
    }
}

/// Who copies a datagram into the server's memory, which with registered I/O is most of what it costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Copies {
    /// The thread that dequeues or takes, as on plain sockets and io_uring: it copies what the others wait for.
    Thread,
    /// The network stack, on other cores, before the datagram is in the queue, as with RIO and AF_XDP. A call that
    /// receives one datagram still copies it.
    Stack,
}

impl Copies {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Thread, Self::Stack];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Thread => "thread",
            Self::Stack => "stack",
        }
    }

    /// That of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|copies| copies.name() == name)
    }
}

/// The numbers that designs let one choose.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Numbers {
    /// Threads that handle datagrams.
    pub threads: usize,
    /// Threads of a port that run at a time.
    pub concurrency: u32,
    /// Most datagrams of one dequeue, or take.
    pub dequeue_max: usize,
    /// Most datagrams of one call that receives a batch.
    pub batch: usize,
    /// Most datagrams that are received for one wake-up; 0 for the design's own number.
    pub drain: usize,
    /// Datagrams in one dequeue at which the hybrid lets another thread join.
    pub threshold: u64,
    /// How long the hybrid polls after the last datagram.
    pub spin: Time,
    /// Who copies.
    pub copies: Copies,
}

/// What costs, in the time of the model.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    pub call: Time,
    pub clock: Time,
    pub hop: Time,
    pub wake_call: Time,
    pub switch: Time,
    pub receive: Time,
    pub receive_hold: Time,
    pub receive_none: Time,
    pub readiness: Time,
    /// A call that receives a batch, and each datagram of it.
    pub batch: Time,
    pub batch_each: Time,
    pub dequeue: Time,
    pub dequeue_each: Time,
    pub post: Time,
    pub take: Time,
    pub take_each: Time,
    pub port_post: Time,
    /// Of a port that threads share.
    pub port_lock: LockCosts,
    pub handle: Time,
    pub moved: Time,
    pub lock: LockCosts,
}

impl Times {
    pub fn of(costs: &Costs, copies: Copies) -> Self {
        let copied = match copies {
            Copies::Thread => 0.0,
            Copies::Stack => (costs.dequeue_each - costs.completion).max(0.0),
        };
        let lock = LockCosts {
            lock: of_ns(costs.lock),
            hop: of_ns(costs.hop),
            spin: of_ns(costs.lock_spin),
            wake_call: of_ns(costs.wake_call),
            sleep_call: of_ns(costs.call),
        };
        Self {
            call: of_ns(costs.call),
            clock: of_ns(costs.clock),
            hop: of_ns(costs.hop),
            wake_call: of_ns(costs.wake_call),
            switch: of_ns(costs.switch),
            receive: of_ns(costs.receive),
            receive_hold: of_ns(costs.receive_hold),
            receive_none: of_ns(costs.receive_none),
            readiness: of_ns(costs.readiness),
            // A dequeue on plain sockets is such a call, and copies whoever else could.
            batch: of_ns(costs.dequeue),
            batch_each: of_ns(costs.dequeue_each),
            dequeue: of_ns(costs.dequeue),
            dequeue_each: of_ns(costs.dequeue_each - copied),
            post: of_ns(costs.post),
            take: of_ns(costs.take),
            take_each: of_ns((costs.take_each - copied).max(0.0)),
            port_post: of_ns(costs.port_post),
            port_lock: LockCosts { lock: of_ns(costs.port_lock), ..lock },
            handle: of_ns(costs.handle),
            moved: of_ns(costs.moved),
            lock,
        }
    }
}

/// Batches of a socket.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Taken {
    /// How many.
    pub batches: u64,
    /// Datagrams of all but the last.
    pub before: u64,
    /// Datagrams of the last.
    pub last: u64,
    /// When the first was taken, and the last.
    pub span: (Time, Time),
}

/// What the server noted of datagrams that it handled after the warm-up, and before the end.
#[derive(Debug, Default)]
pub(super) struct Noted {
    /// From when on it is noted.
    pub from: Time,
    /// Until when.
    pub until: Time,
    /// Of each thread, the datagrams that it handled.
    pub handled: Vec<u64>,
    /// Batches by how many datagrams they had, in order.
    pub batches: Vec<u32>,
    /// What came of each socket.
    pub taken: Vec<Taken>,
    /// From coming to handled.
    pub latencies: Vec<Time>,
    /// How often a thread woke another.
    pub wakes: u64,
}

/// What all designs have in common.
pub(super) struct Server {
    pub times: Times,
    pub numbers: Numbers,
    pub sockets: Vec<Rc<Socket>>,
    /// How long a datagram's work on the state takes that all threads share; 0 for none.
    pub work: Time,
    state: Lock,
    state_core: RefCell<Option<usize>>,
    pub noted: RefCell<Noted>,
}

impl Server {
    pub fn new(
        times: Times,
        numbers: Numbers,
        sockets: Vec<Rc<Socket>>,
        work: Time,
        noted: Noted,
    ) -> Rc<Self> {
        Rc::new(Self {
            times,
            numbers,
            sockets,
            work,
            state: Lock::new(times.lock),
            state_core: RefCell::default(),
            noted: RefCell::new(noted),
        })
    }

    /// Handles a batch, one datagram after the other. `each` is what a datagram costs besides.
    async fn handle(&self, thread: &Thread, batch: &[Time], each: Time) {
        self.note_batch(thread, batch.len());
        self.handle_each(thread, batch, each).await;
    }

    /// The same for a part of a batch.
    async fn handle_each(&self, thread: &Thread, batch: &[Time], each: Time) {
        let each = each + self.times.handle;
        if self.work == 0 {
            let begun = thread.world().now();
            for (number, came) in (1..).zip(batch) {
                self.note(thread, *came, begun + each * number);
            }
            thread.run(each * batch.len() as Time).await;
            return;
        }
        for came in batch {
            thread.run(each).await;
            self.state.take(thread).await;
            let core = thread.core();
            let moved = self.state_core.replace(Some(core)).is_some_and(|of| of != core);
            thread.run(self.work + if moved { self.times.hop } else { 0 }).await;
            self.note(thread, *came, thread.world().now());
            self.state.release(thread).await;
        }
    }

    fn note_batch(&self, thread: &Thread, datagrams: usize) {
        let now = thread.world().now();
        // A shard has a thread of its own.
        let socket = if self.sockets.len() > 1 { thread.number() } else { 0 };
        let mut noted = self.noted.borrow_mut();
        if now >= noted.from && datagrams > 0 {
            noted.batches.push(datagrams as u32);
            let taken = &mut noted.taken[socket];
            if taken.batches == 0 {
                taken.span.0 = now;
            }
            taken.span.1 = now;
            taken.batches += 1;
            taken.before += taken.last;
            taken.last = datagrams as u64;
        }
    }

    fn note(&self, thread: &Thread, came: Time, handled: Time) {
        let mut noted = self.noted.borrow_mut();
        if (noted.from..=noted.until).contains(&handled) {
            noted.handled[thread.number()] += 1;
            noted.latencies.push(handled.saturating_sub(came));
        }
    }

    /// Wakes another thread. That is dear where a core that sleeps has to be woken for it.
    async fn wake(&self, thread: &Thread, other: usize) {
        let asleep = thread.world().has_idle_core();
        thread.run(if asleep { self.times.wake_call } else { self.times.call }).await;
        self.noted.borrow_mut().wakes += 1;
        thread.world().wake(other);
    }

    /// Sleeps in the kernel until a datagram comes to a socket: what that costs is the call, and leaving the core.
    async fn wait(&self, thread: &Thread, socket: &Socket) {
        while !socket.is_ready(thread.world().now()) {
            thread.run(self.times.call + self.times.switch).await;
            socket.wait(thread).await;
        }
    }

    /// Sleeps until a socket is ready, in a set of the thread's own: what comes wakes all that do. One that finds the
    /// socket empty again sleeps on in the same call.
    async fn watch(&self, thread: &Thread, socket: &Socket) {
        thread.run(self.times.readiness).await;
        while !socket.is_ready(thread.world().now()) {
            thread.run(self.times.switch).await;
            socket.watch(thread).await;
        }
    }
}

/// What a thread of a design does until the end.
pub(super) type Does = Pin<Box<dyn Future<Output = ()>>>;

/// The threads of a design.
pub(super) fn threads(design: Design, server: &Rc<Server>) -> Box<dyn FnMut(Thread) -> Does> {
    let server = Rc::clone(server);
    let Numbers { dequeue_max, batch, drain, .. } = server.numbers;
    let drain = |of_design: u32| Waits::ForReadiness {
        drain: if drain == 0 { of_design as usize } else { drain },
    };
    let (waits, batch) = (Waits::InCall, Call::Batch(batch));
    match design {
        Design::Blocking => Box::new(plain::threads(server, waits, Call::One)),
        Design::BlockingBatch => Box::new(plain::threads(server, waits, batch)),
        Design::Epoll => Box::new(plain::threads(server, drain(Epoll::default().drain), Call::One)),
        Design::EpollBatch => {
            Box::new(plain::threads(server, drain(EpollBatch::default().drain), batch))
        }
        Design::Port => Box::new(port::threads(server, 1)),
        Design::PortBatch => Box::new(port::threads(server, dequeue_max)),
        Design::RioSharded => Box::new(rio::sharded(server)),
        Design::RioPort => Box::new(rio::sharing(server, rio::Holding::Never, false)),
        Design::RioReader => Box::new(rio::sharing(server, rio::Holding::Never, true)),
        Design::RioHybrid => Box::new(rio::sharing(server, rio::Holding::UntilOverwhelmed, false)),
        Design::RioHybridReader => {
            Box::new(rio::sharing(server, rio::Holding::UntilOverwhelmed, true))
        }
    }
}
