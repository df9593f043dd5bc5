//! How a thread learns that a completion queue is not empty: RIONotify, and an event or a completion port.

use super::functions::Functions;
use crate::{
    counters::Counters,
    port::{
        iocp::queue::{END, POSTED, Queue},
        winsock::event::{Event, Events},
    },
    rio::turn::TurnPort,
};
use std::{
    io, ptr,
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicIsize,
            Ordering::{AcqRel, Acquire, Relaxed, Release},
        },
    },
    time::{Duration, Instant},
};
use windows_sys::Win32::{
    Networking::WinSock::{
        RIO_CQ, RIO_EVENT_COMPLETION, RIO_IOCP_COMPLETION, RIO_NOTIFICATION_COMPLETION,
        RIO_NOTIFICATION_COMPLETION_0, RIO_NOTIFICATION_COMPLETION_0_0,
        RIO_NOTIFICATION_COMPLETION_0_1,
    },
    System::IO::OVERLAPPED,
};

/// What ended a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// The queue: it has something.
    Queue,
    /// Somebody who is not the queue.
    Somebody,
    /// The time was over.
    TimedOut,
}

/// What tells of one completion queue.
pub struct Notice {
    functions: Functions,
    /// 0 before it was made, and once it was closed.
    queue: AtomicIsize,
    /// RIONotify was called, and what it told was not taken: to call it again would be an error (WSAEALREADY).
    armed: AtomicBool,
    by: By,
}

enum By {
    Event {
        ready: Event,
        wake: Event,
    },
    Port {
        port: Queue,
        /// Names the packet by its address; nobody reads or writes there.
        packet: Box<Packet>,
        /// A packet that somebody woke the queue is on its way.
        waking: AtomicBool,
    },
}

/// In the place of an OVERLAPPED, which the system wants to be valid.
type Packet = [u64; size_of::<OVERLAPPED>().div_ceil(size_of::<u64>())];

impl Notice {
    /// By a completion port, or by an event.
    ///
    /// # Errors
    /// What the system answered.
    pub fn new(functions: Functions, by_port: bool) -> io::Result<Self> {
        let by = match by_port {
            false => By::Event { ready: Event::new()?, wake: Event::new()? },
            true => By::Port {
                port: Queue::new(0)?, // as many threads as processors; one has the turn
                packet: Box::default(),
                waking: AtomicBool::new(false),
            },
        };
        Ok(Self { functions, queue: AtomicIsize::new(0), armed: AtomicBool::new(false), by })
    }

    /// How the queue that is to be made tells.
    pub fn method(&self) -> RIO_NOTIFICATION_COMPLETION {
        match &self.by {
            By::Event { ready, .. } => {
                // The wait resets it.
                let event =
                    RIO_NOTIFICATION_COMPLETION_0_0 { EventHandle: ready.handle(), NotifyReset: 0 };
                RIO_NOTIFICATION_COMPLETION {
                    Type: RIO_EVENT_COMPLETION,
                    Anonymous: RIO_NOTIFICATION_COMPLETION_0 { Event: event },
                }
            }
            By::Port { port, packet, .. } => {
                let iocp = RIO_NOTIFICATION_COMPLETION_0_1 {
                    IocpHandle: port.handle(),
                    CompletionKey: ptr::null_mut(),
                    Overlapped: ptr::from_ref(&**packet).cast_mut().cast(),
                };
                RIO_NOTIFICATION_COMPLETION {
                    Type: RIO_IOCP_COMPLETION,
                    Anonymous: RIO_NOTIFICATION_COMPLETION_0 { Iocp: iocp },
                }
            }
        }
    }

    /// How it tells, in words.
    pub fn told_by(&self) -> &'static str {
        match self.by {
            By::Event { .. } => "RIONotify, an event",
            By::Port { .. } => "RIONotify, a completion port",
        }
    }

    pub fn set_queue(&self, queue: RIO_CQ) {
        self.queue.store(queue, Release);
    }

    /// Asks to be told, unless that was asked already.
    ///
    /// # Errors
    /// What the system answered.
    pub fn arm(&self, counters: &Counters) -> io::Result<()> {
        if self.armed.swap(true, AcqRel) {
            return Ok(());
        }
        counters.kernel_entries.one();
        let queue = self.queue.load(Acquire);
        // SAFETY: the queue is open, or 0, which is refused; nobody else is in it, as `wait` and `notify` demand.
        match unsafe { (self.functions.notify)(queue) } {
            0 => Ok(()),
            code => {
                self.armed.store(false, Release);
                Err(io::Error::from_raw_os_error(code))
            }
        }
    }

    /// Waits until the queue tells that it was asked to, or somebody wakes, for so long at most.
    ///
    /// # Errors
    /// What the system answered.
    pub fn wait(&self, timeout: Option<Duration>, counters: &Counters) -> io::Result<Told> {
        counters.kernel_entries.one();
        match &self.by {
            By::Event { ready, wake } => {
                match Events::of([wake, ready].into_iter()).wait(left_of(timeout))? {
                    None => Ok(Told::TimedOut),
                    Some(0) => Ok(Told::Somebody),
                    Some(_) => Ok(self.disarmed()),
                }
            }
            By::Port { .. } => self.wait_at_port(timeout),
        }
    }

    /// Waits for whoever wakes, and not for the queue. Whether the queue told meanwhile, which is not told again.
    ///
    /// # Errors
    /// What the system answered.
    pub fn wait_aside(&self, time: Duration, counters: &Counters) -> io::Result<(Told, bool)> {
        counters.kernel_entries.one();
        let mut left = left_of(Some(time));
        match &self.by {
            By::Event { wake, .. } => {
                let told = Events::of(std::iter::once(wake)).wait(left)?;
                Ok((told.map_or(Told::TimedOut, |_| Told::Somebody), false))
            }
            By::Port { .. } => {
                let mut queue_told = false;
                loop {
                    match self.wait_at_port(left())? {
                        Told::Queue => queue_told = true,
                        told => return Ok((told, queue_told)),
                    }
                }
            }
        }
    }

    fn wait_at_port(&self, timeout: Option<Duration>) -> io::Result<Told> {
        let By::Port { port, packet, waking } = &self.by else { unreachable!("it has a port") };
        let mut left = left_of(timeout);
        loop {
            let left = left();
            match port.take_one(left)? {
                // The system's clock may have it early.
                None if left.is_some_and(|left| !left.is_zero()) => {}
                None => return Ok(Told::TimedOut),
                Some(address) if address == ptr::from_ref(&**packet).addr() => {
                    return Ok(self.disarmed());
                }
                Some(address) => {
                    if address == POSTED {
                        waking.store(false, Release);
                    }
                    return Ok(Told::Somebody);
                }
            }
        }
    }

    fn disarmed(&self) -> Told {
        self.armed.store(false, Release);
        Told::Queue
    }

    /// Ends a wait, this one or the next.
    pub fn wake(&self) {
        match &self.by {
            By::Event { wake, .. } => wake.set(),
            By::Port { port, waking, .. } => {
                if !waking.swap(true, AcqRel) {
                    port.post_surely(POSTED);
                }
            }
        }
    }

    pub fn has_port(&self) -> bool {
        matches!(self.by, By::Port { .. })
    }
}

/// What is left of a time.
fn left_of(time: Option<Duration>) -> impl FnMut() -> Option<Duration> {
    let until = time.and_then(|time| Instant::now().checked_add(time));
    move || until.map(|until| until.saturating_duration_since(Instant::now()))
}

/// The port that delivers the turn of a queue.
pub struct Delivery(pub Arc<Notice>, pub Arc<Beside>);

impl TurnPort for Delivery {
    fn notify(&self) -> io::Result<()> {
        // The entry is counted by whoever takes.
        self.0.arm(&Counters::default())?;
        // Whoever was woken for it while another had the queue found none.
        if self.1.is_set() {
            self.0.wake();
        }
        Ok(())
    }

    fn post(&self, packets: usize) {
        let By::Port { port, .. } = &self.0.by else { unreachable!("it has a port") };
        (0..packets).for_each(|_| port.post_surely(END));
    }

    fn take(&self, timeout: Option<Duration>, counters: &Counters) -> io::Result<bool> {
        counters.kernel_entries.one(); // that of `notify`
        Ok(self.0.wait(timeout, counters)? != Told::TimedOut)
    }
}

/// Whether something waits for whoever dequeues that the queue does not tell of.
#[derive(Default)]
pub struct Beside(AtomicBool);

impl Beside {
    pub fn set(&self) {
        self.0.store(true, Release);
    }

    /// Whether there is, which is then not told again.
    pub fn take(&self) -> bool {
        self.0.load(Relaxed) && self.0.swap(false, Acquire)
    }

    pub fn is_set(&self) -> bool {
        self.0.load(Acquire)
    }
}
