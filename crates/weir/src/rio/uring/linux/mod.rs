//! The provider itself: opening and starting a ring, and the proof that it works here.
//!
//! | file | what |
//! | --- | --- |
//! | `forget_then_ask` | the order that keeps a post from going unheard |
//! | `buffers` | posted slices: the kernel's window, and a stack behind it |
//! | `frame` | where in a slice the kernel writes header, source and payload |
//! | `sends` | messages under way |
//! | `requests`, `completions`, `stop` | the contract's queues, and their end |
//! | `sweeping` | when receives stay armed, and when they are asked for anew |
//! | `common` | what the queues have in common |

pub(super) mod buffers;
mod common;
mod completions;
mod forget_then_ask;
mod frame;
mod requests;
mod sends;
mod stop;
mod sweeping;
#[cfg(test)]
mod tests;

pub use completions::UringCompletions;
pub use requests::UringRequests;

use super::{Polling, Uring};
use crate::{
    Error, Unavailable,
    counters::Counters,
    deadline::{LastLook, PROOF_TIMEOUT},
    error,
    memory::{Layout, Region, RegionOptions},
    ring::{self, Alarm, Ring, Use, Wanted},
    rio::{
        Batch, CompletionQueue, Needs, Opened, Outcome, Provider, RequestQueue, Started, Threading,
        sharing::Sharing,
    },
    socket::{DatagramSocket, Endpoint, native::Native},
};
use common::Common;
use std::{
    fmt,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    sync::Arc,
    time::Instant,
};

impl Uring {
    fn what(&self) -> String {
        format!("provider {}", self.name())
    }

    fn wanted<T: Threading>(&self, needs: &Needs, sockets: usize) -> Wanted {
        let r#use = match (self.polling, T::HANDS_OVER) {
            (Polling::KernelThread, false) => Use::KernelThread,
            (Polling::KernelThread, true) => Use::SharedKernelThread,
            (_, true) => Use::Shared,
            (Polling::Interrupt, false) => Use::Interrupt,
            (_, false) => Use::Deferred,
        };
        // A completion for every buffer and send, for the end of every sweep, and a few for
        // arming, alarm and cancels: then it overflows only where nobody dequeues while more is
        // posted.
        let submissions = needs.sends.clamp(SUBMISSIONS.0, SUBMISSIONS.1).next_power_of_two();
        let sweeps = sweeping::most_sweeps(needs.per_dequeue);
        let others = (4 + sweeps) * sockets as u32 + 16;
        let completions = (self.window.saturating_add(needs.sends))
            .saturating_add(others)
            .max(needs.per_dequeue)
            .clamp(8 * submissions, MOST_COMPLETIONS);
        let completions = completions.next_power_of_two();
        Wanted { r#use, submissions, completions, kernel: KERNEL }
    }

    /// Receives a datagram from ourselves, armed and swept: only that shows that all of it works
    /// here.
    fn prove<T: Sharing>(&self) -> Result<(), Unavailable> {
        let unavailable = |reason: String| Unavailable::new(self.what(), reason);
        // Two slices: the second is there for the sweep that finds nothing more.
        let needs = Needs {
            payload: 1,
            receives: 2,
            sends: 0,
            per_dequeue: 2,
            offload: false,
            meta: false,
        };
        let region = Region::new(frame::layout(&needs), 2, RegionOptions::default())
            .map_err(|e| unavailable(e.to_string()))?;
        let small = Self { window: 2, ..*self };
        let loopback: [SocketAddr; 2] =
            [(Ipv4Addr::LOCALHOST, 0).into(), (Ipv6Addr::LOCALHOST, 0).into()];
        let opened = loopback
            .iter()
            .map(|&at| Provider::<T>::open(&small, &[at.into()], &region, &needs))
            .reduce(|first, second| first.or(second))
            .expect("there are two addresses")
            .map_err(|error| error.into_reason(self.what()))?;
        let at = opened.local_addresses()[0];
        let started: Started<UringCompletions<T>, UringRequests<T>> =
            small.start(opened).map_err(|e| unavailable(e.to_string()))?;
        let (mut queue, mut requests) = (started.completions, started.requests);
        let mut received = receive_one(&region, &mut queue, &mut requests[0], at);
        if received.is_ok() && queue.sweep_from_now_on() {
            received = receive_one(&region, &mut queue, &mut requests[0], at);
        }
        let stopped = queue.stop(requests, Instant::now() + PROOF_TIMEOUT);
        match received {
            Ok(()) if stopped.missing == 0 => Ok(()),
            Ok(()) => Err(unavailable("a cancelled receive did not end".into())),
            Err(e) => Err(unavailable(format!("multishot receive into provided buffers: {e}"))
                .advise(
                    error::advice(&e).map_or_else(|| ring::use_a_kernel(KERNEL), String::from),
                )),
        }
    }
}

/// The first Linux with multishot receives of messages. Task work is deferred from 6.1 on; on 6.0 the
/// kernel interrupts, and the provider says so.
const KERNEL: &str = "6.0";

/// Entries of the submission queue: at least for arming many sockets at once, at most for a
/// batch of sends that stays in the second-level cache.
const SUBMISSIONS: (u32, u32) = (64, 256);

/// The most entries of a completion queue that the kernel gives.
const MOST_COMPLETIONS: u32 = 1 << 16;

fn receive_one<T: Sharing>(
    region: &Arc<Region>,
    queue: &mut UringCompletions<T>,
    requests: &mut UringRequests<T>,
    at: SocketAddr,
) -> std::io::Result<()> {
    let counters = Counters::default();
    while let Some(slice) = region.take() {
        requests.receive(slice).expect("all may be posted");
    }
    requests.commit(&counters)?;
    let sender = UdpSocket::bind(SocketAddr::new(at.ip(), 0))?;
    sender.send_to(&[1], at)?;
    let (mut batch, mut look) = (Batch::new(2), LastLook::by(Instant::now() + PROOF_TIMEOUT));
    while batch.is_empty() {
        let Some(left) = look.wait(false) else {
            return Err(std::io::ErrorKind::TimedOut.into());
        };
        if !queue.sweeps() {
            queue.wait(1, Some(left), &counters)?;
        }
        queue.dequeue(&mut batch, &counters)?;
    }
    match batch.drain().next().expect("there is one").outcome {
        Outcome::Failed(e) => Err(e),
        _ => Ok(()),
    }
}

/// A ring and its sockets, bound, not started.
pub struct UringOpened {
    io: io_uring::IoUring,
    flags: ring::Flags,
    sockets: Vec<DatagramSocket>,
    region: Arc<Region>,
    needs: Needs,
    alarm: Alarm,
}

impl Opened for UringOpened {
    fn sockets(&self) -> Vec<DatagramSocket> {
        self.sockets.clone()
    }
}

impl fmt::Debug for UringOpened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UringOpened").field("at", &self.local_addresses()).finish()
    }
}

impl<T: Sharing> Provider<T> for Uring {
    type Cq = UringCompletions<T>;
    type Rq = UringRequests<T>;
    type Opened = UringOpened;

    fn layout(&self, needs: &Needs) -> Result<Layout, Unavailable> {
        if !(1..=buffers::MOST_HELD).contains(&self.window) {
            let reason = format!("the kernel cannot hold a window of {} slices", self.window);
            return Err(Unavailable::new(self.what(), reason)
                .advise(format!("choose 1 to {}", buffers::MOST_HELD)));
        }
        ring::proved(|| self.prove::<T>())?;
        Ok(frame::layout(needs))
    }

    fn open(
        &self,
        at: &[Endpoint],
        region: &Arc<Region>,
        needs: &Needs,
    ) -> Result<UringOpened, Error> {
        region.check_layout(frame::layout(needs))?;
        if !needs.offload && at.iter().any(|endpoint| endpoint.options.receive_offload) {
            // The size of the datagrams would find no room, and several be taken for one.
            let problem = "a socket asks for it, and the needs do not say so";
            return Err(Error::option("offload", problem));
        }
        if !needs.meta && at.iter().any(|endpoint| endpoint.options.asks_for_meta()) {
            let problem = "a socket asks for traffic class or hops, and the needs do not say so";
            return Err(Error::option("meta", problem));
        }
        let sockets = at.iter().map(DatagramSocket::bind).collect::<Result<Vec<_>, Error>>()?;
        let of = |is: fn(&Native) -> bool| sockets.iter().any(|socket| is(socket.native()));
        if of(Native::is_local) && of(Native::has_control) {
            let reason = "what is asked of a socket of the internet comes as control data, and the name of a Unix peer has its place";
            let why = Unavailable::new(self.what(), reason);
            return Err(why.advise("give each a server of its own, or use provider batch").into());
        }
        let (io, flags) = ring::set_up(&self.what(), &self.wanted::<T>(needs, at.len()))?;
        let alarm = Alarm::new().map_err(|e| Error::io("making an eventfd", e))?;
        Ok(UringOpened { io, flags, sockets, region: Arc::clone(region), needs: *needs, alarm })
    }

    fn start(&self, opened: UringOpened) -> Result<Started<Self::Cq, Self::Rq>, Error> {
        let UringOpened { io, flags, sockets, region, needs, alarm } = opened;
        let (ring, submissions, completions) = Ring::split(io, flags);
        ring.enable().map_err(|e| Error::io("enabling the ring", e))?;
        let count = sockets.len() as u32;
        let busy_poll = sockets.iter().find_map(DatagramSocket::busy_poll);
        let receive_buffers: Vec<_> =
            sockets.iter().filter_map(|socket| socket.receive_buffer_bytes().ok()).collect();
        let common = Arc::new(Common::<T>::new(
            &region,
            Arc::clone(&ring),
            submissions,
            sockets,
            needs,
            self.window,
            alarm,
        ));
        let (window, (address, entries)) =
            common.with_buffers(|buffers| (buffers.window(), buffers.extent())).0;
        // SAFETY: the entries and the region live as long as `common` does, which takes the
        // group away or leaks both.
        unsafe { ring.register_buffers(address, entries, common::GROUP) }
            .map_err(|e| Error::io("registering the ring of buffers", e))?;
        let sweeps = self.polling == Polling::Deferred;
        let counters = Counters::default();
        let queue = UringCompletions::start(Arc::clone(&common), completions, sweeps, &counters)
            .map_err(|e| Error::io("arming the receives", e))?;
        let requests =
            (0..count).map(|socket| UringRequests::new(Arc::clone(&common), socket)).collect();
        let mut granted = vec![
            ("ring-flags", ring.flags()),
            ("polling", polled(&ring, self.polling)),
            ("window", window.to_string()),
            ("completion-queue", ring.sizes().1.to_string()),
        ];
        for bytes in receive_buffers {
            granted.push(("receive-buffer-bytes", bytes.to_string()));
        }
        if let Some(time) = busy_poll {
            granted.push(("busy-poll-wait", ring.busy_poll(time)));
        }
        Ok(Started { completions: queue, requests, granted })
    }
}

/// What came of the polling asked for, and who copies.
fn polled(ring: &Ring, asked: Polling) -> String {
    match (asked, ring.defers(), ring.has_kernel_thread()) {
        (_, true, _) => "deferred: the thread that dequeues copies when it enters the kernel",
        (_, _, true) => "kernel thread: it copies",
        (Polling::Interrupt, ..) => "interrupt: the thread that armed the receives copies at once",
        (Polling::Deferred, ..) => {
            "interrupt, since deferral needs one thread and a newer kernel: the thread that armed \
             the receives copies at once; under load the one that dequeues does"
        }
        (Polling::Armed | Polling::KernelThread, ..) => {
            "interrupt, since deferral needs one thread and a newer kernel: the thread that armed \
             the receives copies at once"
        }
    }
    .into()
}
