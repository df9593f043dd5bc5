//! The provider itself: opening and starting a queue, further rings, and the proof that it works here.
//!
//! | file | what |
//! | --- | --- |
//! | `queue` | the contract's queue: what is asked for becomes entries; looking, waiting, stopping |
//! | `completed` | what a completion means |
//! | `arming` | what is with the kernel before a wait: receives, accepts, the alarm |
//! | `closing` | the end of a connection, and of the queue |
//! | `one_ring` | a ring, its table of connections, and entries that wait for room |
//! | `requests` | an entry for each kind of request |
//! | `accepts` | accepts under way, and where their addresses come |
//! | `slices` | slices in the kernel's rings of buffers |
//! | `loads` | what is being sent |

mod accepts;
mod arming;
mod closing;
mod completed;
mod loads;
mod one_ring;
mod queue;
mod requests;
mod slices;
#[cfg(test)]
mod tests;

pub use queue::UringStreamQueue;

use super::UringStreams;
use crate::{
    Error, Unavailable,
    counters::Counters,
    deadline::{LastLook, PROOF_TIMEOUT},
    memory::{Layout, Region, RegionOptions},
    readiness::wake_event::WakeEvent,
    ring::{self, Alarm, Flags, Ring, Use, Wanted},
    rio::{
        Batch,
        streams::{
            Idle, Load, Receiving, StartedStreams, StreamCompletion, StreamNeeds, StreamProvider,
            StreamQueue,
        },
        uring::linux::buffers::MOST_HELD,
    },
    stream::{Listener, StreamOptions},
};
use accepts::{ACCEPTS, Accepts};
use io_uring::IoUring;
use loads::Loads;
use nix::sys::resource::{Resource, getrlimit};
use one_ring::{NONE, OneRing};
use requests::class;
use slices::{Group, MOST_SLICES, Slices};
use std::{
    fmt, io,
    io::{Read as _, Write as _},
    marker::PhantomData,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream},
    sync::Arc,
    time::Instant,
};

/// The first Linux with what is asked here of a socket in a table.
const KERNEL: &str = "6.7";

const WHAT: &str = "provider uring for streams";

/// The most rings of a queue.
const MOST_RINGS: u32 = 1024;

/// A queue that was not started.
pub struct UringStreamsOpened {
    io: IoUring,
    flags: Flags,
    region: Arc<Region>,
    listeners: Vec<Listener>,
    needs: StreamNeeds,
    files: u32,
    rings: u32,
}

impl fmt::Debug for UringStreamsOpened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UringStreamsOpened").field("needs", &self.needs).finish()
    }
}

impl UringStreams {
    fn wanted(&self) -> Wanted {
        let submissions = self.submissions;
        Wanted { r#use: Use::Deferred, submissions, completions: 8 * submissions, kernel: KERNEL }
    }

    /// Connections of a ring, and how many rings, for so many connections and the accepts beside them.
    fn tables(&self, needs: &StreamNeeds) -> (u32, u32) {
        let wanted = needs.connections.saturating_add(ACCEPTS as u32);
        let files = wanted.min(self.files).min(most_descriptors()).clamp(1, super::MOST_FILES);
        let rings = if needs.tables == 0 { wanted.div_ceil(files) } else { needs.tables };
        (files, rings.min(MOST_RINGS))
    }

    /// Accepts from ourselves, and does with that connection all that there is to do.
    fn prove(&self) -> Result<(), Unavailable> {
        let unavailable = |reason: String| Unavailable::new(WHAT, reason);
        let loopback: [SocketAddr; 2] =
            [(Ipv4Addr::LOCALHOST, 0).into(), (Ipv6Addr::LOCALHOST, 0).into()];
        let listener = loopback
            .iter()
            .map(|&at| Listener::bind(at, StreamOptions::default()))
            .reduce(|first, second| first.or(second))
            .expect("there are two addresses")
            .map_err(|e| unavailable(e.to_string()))?;
        let at = listener.local_address();
        let needs = StreamNeeds {
            slice_bytes: 1,
            connections: 1,
            receiving: Receiving::Shared { slices: 2, idle: Idle::Receive },
            tables: 1,
            zero_copy_bytes: None,
        };
        let small = Self { files: 8, submissions: 16 };
        let opened = small.open(&[listener], &needs).map_err(|error| match error {
            Error::Unavailable(why) => why,
            error => unavailable(error.to_string()),
        })?;
        let started = small
            .start(opened, &Arc::default())
            .map_err(|e| unavailable(e.to_string()).advise(ring::use_a_kernel(KERNEL)))?;
        let mut queue = started.queue;
        let tried = try_all(&mut queue, at);
        let stopped = queue.stop(Instant::now() + PROOF_TIMEOUT);
        match tried {
            Ok(()) if stopped.missing == 0 => Ok(()),
            Ok(()) => Err(unavailable("what was cancelled did not end".into())),
            Err((what, e)) => {
                Err(unavailable(format!("{what}: {e}")).advise(ring::use_a_kernel(KERNEL)))
            }
        }
    }
}

/// A connection from ourselves, from its accept to its reset. Says what failed.
fn try_all(queue: &mut UringStreamQueue, at: SocketAddr) -> Result<(), (&'static str, io::Error)> {
    let in_vain = || io::Error::from(io::ErrorKind::TimedOut);
    let mut client =
        TcpStream::connect_timeout(&at, PROOF_TIMEOUT).map_err(|e| ("connecting", e))?;
    client.set_read_timeout(Some(PROOF_TIMEOUT)).map_err(|e| ("a time limit", e))?;
    let mut batch = Batch::new(1);
    let mut next = |queue: &mut UringStreamQueue, what: &'static str| {
        let mut look = LastLook::by(Instant::now() + PROOF_TIMEOUT);
        loop {
            if let Some(completion) = batch.drain().next() {
                return Ok(completion);
            }
            if queue.dequeue(&mut batch).map_err(|e| (what, e))? == 0 {
                let left = look.wait(false).ok_or_else(|| (what, in_vain()))?;
                queue.wait(Some(left)).map_err(|e| (what, e))?;
            }
        }
    };
    queue.accept();
    const ACCEPT: &str = "accepting into a table of files";
    let connection = match next(queue, ACCEPT)? {
        StreamCompletion::Accepted { connection, .. } => connection,
        StreamCompletion::AcceptFailed { error } => return Err((ACCEPT, error)),
        _ => return Err((ACCEPT, io::ErrorKind::InvalidData.into())),
    };
    client.write_all(&[1]).map_err(|e| ("sending to ourselves", e))?;
    const ASK: &str = "asking how much waits (SOCKET_URING_OP_SIOCINQ)";
    queue.ask_waiting(connection);
    match next(queue, ASK)? {
        StreamCompletion::Waiting { bytes: 1, .. } => {}
        StreamCompletion::Waiting { .. } => return Err((ASK, io::ErrorKind::Unsupported.into())),
        _ => return Err((ASK, io::ErrorKind::InvalidData.into())),
    }
    const RECEIVE: &str = "multishot receive into provided buffers";
    let _ = queue.receive(connection);
    let (slice, len) = match next(queue, RECEIVE)? {
        StreamCompletion::Received { slice, len, .. } => (slice, len),
        StreamCompletion::Failed { error, .. } => return Err((RECEIVE, error)),
        _ => return Err((RECEIVE, io::ErrorKind::InvalidData.into())),
    };
    const SEND: &str = "sending";
    let sent = queue.send(connection, Load::Slice { slice, start: 0, end: len });
    match next(queue, SEND)? {
        StreamCompletion::Sent { load, .. } if sent.is_ok() => {
            if let Some(Load::Slice { slice, .. }) = load {
                queue.give_back(slice);
            }
        }
        StreamCompletion::NotSent { error, .. } => return Err((SEND, error)),
        _ => return Err((SEND, io::ErrorKind::InvalidData.into())),
    }
    client.read_exact(&mut [0]).map_err(|e| (SEND, e))?;
    const CLOSE: &str = "a reset (SOCKET_URING_OP_SETSOCKOPT)";
    queue.close(connection, true);
    match next(queue, CLOSE)? {
        StreamCompletion::Closed { .. } => {}
        _ => return Err((CLOSE, io::ErrorKind::InvalidData.into())),
    }
    match client.read(&mut [0]) {
        Err(e) if e.kind() == io::ErrorKind::ConnectionReset => Ok(()),
        Err(e) => Err((CLOSE, e)),
        Ok(_) => Err((CLOSE, io::ErrorKind::Unsupported.into())),
    }
}

/// How many descriptors the process may have: as many files a table may hold.
fn most_descriptors() -> u32 {
    let limit = getrlimit(Resource::RLIMIT_NOFILE);
    limit.map_or(1024, |(most, _)| u32::try_from(most).unwrap_or(u32::MAX))
}

/// Slices lie a little apart from powers of two, so that their beginnings do not share a set of the cache.
fn layout(slice_bytes: usize) -> Layout {
    const LINE: usize = 64;
    Layout::packed(LINE, slice_bytes, LINE)
}

impl StreamProvider for UringStreams {
    type Queue = UringStreamQueue;
    type Opened = UringStreamsOpened;

    fn name(&self) -> &'static str {
        "uring"
    }

    /// What receives into slices that connections share receives into posted ones, too.
    fn availability(&self, _: Receiving) -> Result<(), Unavailable> {
        ring::proved(|| self.prove())
    }

    fn open(
        &self,
        listeners: &[Listener],
        needs: &StreamNeeds,
    ) -> Result<UringStreamsOpened, Error> {
        let (files, rings) = self.tables(needs);
        let (count, rings) = match needs.receiving {
            Receiving::Shared { slices, .. } => {
                let each = slices.clamp(1, MOST_HELD);
                // Further rings would have no slice.
                let rings = rings.min(MOST_SLICES / each);
                (each * rings, rings)
            }
            Receiving::Posted { slices, .. } => (slices.max(1), rings),
        };
        let (io, flags) = ring::set_up(WHAT, &self.wanted())?;
        let region = Region::new(layout(needs.slice_bytes), count, RegionOptions::default())?;
        let listeners = listeners.to_vec();
        Ok(UringStreamsOpened { io, flags, region, listeners, needs: *needs, files, rings })
    }

    fn start(
        &self,
        opened: UringStreamsOpened,
        counters: &Arc<Counters>,
    ) -> Result<StartedStreams<UringStreamQueue>, Error> {
        let UringStreamsOpened { io, flags, region, listeners, needs, files, rings } = opened;
        let posted = matches!(needs.receiving, Receiving::Posted { .. });
        let free = std::iter::from_fn(|| posted.then(|| region.take()).flatten());
        let free = free.map(crate::memory::Slice::post).collect();
        let behind = vec![NONE; if posted { region.count() as usize } else { 0 }].into();
        let most = ACCEPTS.min(files.div_ceil(2) as usize);
        let mut queue = UringStreamQueue {
            rings: Vec::new(),
            most_rings: rings as usize,
            files,
            needs,
            slices: Slices::new(region),
            free,
            behind,
            accepts: Accepts::new(class::ACCEPT, listeners, most),
            loads: Loads::new(class::SEND),
            alarm: Alarm::new().map_err(|e| Error::io("making an eventfd", e))?,
            alarm_armed: false,
            wake_event: WakeEvent::new().map_err(|e| Error::io("making an eventfd", e))?,
            wake_armed: false,
            raw: Vec::new(),
            turn: 0,
            open: 0,
            no_ring: false,
            broken: None,
            ended: false,
            counters: Arc::clone(counters),
            config: *self,
            stays: PhantomData,
        };
        add_ring(&mut queue, io, flags).map_err(|e| Error::io("starting a ring", e))?;
        let ring = &queue.rings[0].ring;
        let granted = vec![
            ("ring-flags", ring.flags()),
            ("completion-queue", ring.sizes().1.to_string()),
            ("connections-of-a-ring", files.to_string()),
            ("rings-most", rings.to_string()),
            ("slices-obtained", needs.receiving.to_string()),
        ];
        Ok(StartedStreams { queue, granted })
    }
}

/// Makes another ring, for further connections.
fn one_more(queue: &mut UringStreamQueue) -> io::Result<()> {
    let (io, flags) =
        ring::set_up(WHAT, &queue.config.wanted()).map_err(|e| io::Error::other(e.to_string()))?;
    add_ring(queue, io, flags)
}

fn add_ring(queue: &mut UringStreamQueue, io: IoUring, flags: Flags) -> io::Result<()> {
    let (ring, submissions, completions) = Ring::split(io, flags);
    ring.enable()?;
    ring.make_file_table(queue.files)?;
    if !queue.rings.is_empty() {
        ring.ring_at(queue.wake_event.fd())?;
    }
    let group = match queue.needs.receiving {
        Receiving::Posted { .. } => None,
        Receiving::Shared { .. } => {
            let each = queue.slices.region.count() / queue.most_rings as u32;
            let mut group = Group::new(each, queue.rings.len() as u16);
            let (address, entries) = group.extent();
            // SAFETY: the entries and the region live as long as the queue does, which takes the group away
            // or leaks both.
            unsafe { ring.register_buffers(address, entries, requests::GROUP) }?;
            group.grow(&mut queue.slices);
            Some(group)
        }
    };
    queue.rings.push(OneRing::new((ring, submissions, completions), queue.files, group));
    Ok(())
}
