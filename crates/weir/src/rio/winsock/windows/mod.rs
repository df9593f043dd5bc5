//! The queues, on Windows.

mod functions;
mod notice;
mod registered;
mod requests;
#[cfg(any(test, feature = "fake"))]
pub mod stand_in;
#[cfg(test)]
mod tests;

pub use requests::WinsockRequests;

use super::Winsock;
use crate::{
    Error, Unavailable,
    counters::Counters,
    deadline::LastLook,
    memory::{Layout, Posted, Region, Slice},
    rio::{
        Batch, CONTEXT_BYTES, Completion, CompletionQueue, Needs, Opened, Outcome, Provider,
        Started, Stopped, Woken, line_and_payload, received,
        sharing::{Count, Shared, Sharing},
        signals::Signals,
        turn::TurnPort,
    },
    socket::{
        Arrival, DatagramSocket, Endpoint, Received,
        context::{Origin as _, SOURCE, SOURCE_BYTES},
    },
    wake::Waker,
};
use functions::Functions;
use notice::{Beside, Delivery, Notice, Told};
use registered::{CONTROL_HEAD, Registered};
use requests::{Lane, Progress};
use std::{
    io,
    mem::size_of,
    ptr,
    sync::Arc,
    time::{Duration, Instant},
};
use windows_sys::Win32::{
    Foundation::{ERROR_MORE_DATA, STATUS_BUFFER_OVERFLOW},
    Networking::WinSock::{
        AF_INET6, RIO_CORRUPT_CQ, RIO_CQ, RIO_MAX_CQ_SIZE, RIORESULT, SOCKADDR_INET, WSAEMSGSIZE,
        WSAENETRESET,
    },
};

/// Alignment of slices: a cache line.
const ALIGN_BYTES: usize = 64;

/// The longest slice: an offset into registered memory has 32 bits.
const SLICE_BYTES_MAX: usize = 1 << 30;

/// The most slices: a request's context says which one in a pointer's bits, of which two say what it is.
const SLICES_MAX: u32 = 1 << 29;

// The source of a datagram lies in the line where the system writes it.
const _: () = assert!(size_of::<SOCKADDR_INET>() == SOURCE_BYTES);

/// What a request was, as its context says in the lowest bits.
const RECEIVE: usize = 0;
const SEND: usize = 1;
/// The datagram of a slice that holds several.
const SEND_OF_SEVERAL: usize = 2;
const KIND_BITS: u32 = 2;

/// Whose functions are called.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Calls {
    /// The system's.
    #[default]
    System,
    /// Those of the stand-in for tests.
    #[cfg(test)]
    StandIn,
}

impl Winsock {
    fn functions(&self) -> Result<Functions, Unavailable> {
        match self.calls {
            #[cfg(any(test, feature = "fake"))]
            Calls::System if stand_in::is_installed() => Ok(stand_in::functions()),
            Calls::System => Functions::of_system(),
            #[cfg(test)]
            Calls::StandIn => Ok(stand_in::functions()),
        }
    }
}

/// Sockets that are bound, and memory that is registered.
pub struct WinsockOpened {
    functions: Functions,
    sockets: Vec<DatagramSocket>,
    /// Whether each is asked for the address that a datagram was sent to.
    local: Vec<bool>,
    registered: Registered,
    needs: Needs,
}

impl Opened for WinsockOpened {
    fn sockets(&self) -> Vec<DatagramSocket> {
        self.sockets.clone()
    }
}

fn layout(needs: &Needs) -> Result<Layout, Unavailable> {
    let refused = |reason| Err(Unavailable::new("provider winsock", reason));
    let asked = u64::from(needs.receives) + u64::from(sends(needs));
    if asked > u64::from(RIO_MAX_CQ_SIZE) {
        let reason = format!("a completion queue holds {RIO_MAX_CQ_SIZE} requests, not {asked}");
        return refused(reason).map_err(|e| e.advise("ask for fewer outstanding receives"));
    }
    if needs.payload > SLICE_BYTES_MAX - CONTEXT_BYTES {
        return refused("a slice has at most 1 GiB".to_owned());
    }
    if needs.offload {
        return refused("receive offload is not supported on Windows yet".to_owned());
    }
    Ok(Layout::packed(CONTEXT_BYTES, needs.payload, ALIGN_BYTES))
}

/// Sends that a request queue has room for. The documentation does not say that there may be none.
fn sends(needs: &Needs) -> u32 {
    needs.sends.max(1)
}

/// Places of the completion queue: any socket may have all receives.
fn places(sockets: usize, needs: &Needs) -> Result<u32, Error> {
    let each = u64::from(needs.receives) + u64::from(sends(needs));
    let all = each.saturating_mul(sockets as u64);
    let fits = u32::try_from(all).ok().filter(|all| *all <= RIO_MAX_CQ_SIZE);
    fits.ok_or_else(|| {
        let reason = format!(
            "a completion queue holds {RIO_MAX_CQ_SIZE} requests, not {each} of each of {sockets} sockets"
        );
        Unavailable::new("provider winsock", reason)
            .advise("ask for fewer outstanding receives, or for fewer addresses")
            .into()
    })
}

impl<T: Sharing> Provider<T> for Winsock {
    type Cq = WinsockCompletions<T>;
    type Rq = WinsockRequests<T>;
    type Opened = WinsockOpened;

    fn layout(&self, needs: &Needs) -> Result<Layout, Unavailable> {
        self.functions()?;
        layout(needs)
    }

    fn open(
        &self,
        at: &[Endpoint],
        region: &Arc<Region>,
        needs: &Needs,
    ) -> Result<WinsockOpened, Error> {
        let functions = self.functions()?;
        region.check_layout(layout(needs)?)?;
        places(at.len(), needs)?;
        if region.count() > SLICES_MAX {
            let problem = format!("{} slices are more than {SLICES_MAX}", region.count());
            return Err(Error::option("region", problem));
        }
        let sockets =
            at.iter().map(DatagramSocket::bind_registered).collect::<Result<Vec<_>, _>>()?;
        let local: Vec<_> = sockets.iter().map(|socket| socket.native().has_control()).collect();
        let registered = Registered::new(functions, region, local.contains(&true))?;
        Ok(WinsockOpened { functions, sockets, local, registered, needs: *needs })
    }

    fn start(&self, opened: WinsockOpened) -> Result<Started<Self::Cq, Self::Rq>, Error> {
        let WinsockOpened { functions, sockets, local, registered, needs } = opened;
        let refused =
            |what: &'static str| move |source| Error::io(format!("registered I/O: {what}"), source);
        let places = places(sockets.len(), &needs)?;
        let notice =
            Notice::new(functions, T::HANDS_OVER).map_err(refused("an event or a port"))?;
        let mut granted = vec![("receives", "posted to registered I/O".to_owned())];
        granted.push(("notification", notice.told_by().into()));
        for bytes in sockets.iter().filter_map(|socket| socket.receive_buffer_bytes().ok()) {
            granted.push(("receive-buffer-bytes", bytes.to_string()));
        }
        // SAFETY: the notification names an event, or a port and a packet, which live as long as the queue.
        let queue = unsafe { (functions.create_completion_queue)(places, &notice.method()) };
        if queue == 0 {
            return Err(refused("RIOCreateCompletionQueue")(last_os_error()));
        }
        notice.set_queue(queue);
        let notice = Arc::new(notice);
        // From here on an error closes the queue.
        let queue = Queue { functions, queue, notice: Arc::clone(&notice) };
        let mut lanes = Vec::new();
        for (index, socket) in sockets.into_iter().enumerate() {
            let (raw, context) = (socket.native().raw(), ptr::without_provenance(index));
            // SAFETY: the socket and the queue are open; the context is a number.
            let requests = unsafe {
                (functions.create_request_queue)(
                    raw,
                    needs.receives,
                    1,
                    sends(&needs),
                    1,
                    queue.queue,
                    queue.queue,
                    context,
                )
            };
            if requests == 0 {
                return Err(refused("RIOCreateRequestQueue")(last_os_error()));
            }
            lanes.push(Lane::new(requests, socket, local[index]));
        }
        // Until the queues were stopped.
        registered.set_all_back(false);
        let shared = requests::SharedPart::<T> {
            functions,
            registered: Arc::new(registered),
            needs,
            receives: T::Count::default(),
            in_kernel: T::Count::default(),
            signals: Arc::new(Signals::default()),
            beside: Arc::new(Beside::default()),
            notice,
        };
        let parts: Vec<_> = lanes.into_iter().map(requests::Part::<T>::new).collect();
        let requests =
            parts.iter().map(|part| WinsockRequests::new(&shared, part.clone())).collect();
        let results = vec![RIORESULT::default(); needs.per_dequeue.max(1) as usize];
        let tally = vec![[0; 2]; parts.len()];
        let completions = WinsockCompletions {
            shared,
            queue,
            parts,
            results,
            tally,
            told: false,
            corrupt: false,
            stopped: false,
        };
        Ok(Started { completions, requests, granted })
    }
}

fn last_os_error() -> io::Error {
    io::Error::from_raw_os_error(crate::socket::native::last_error())
}

/// A completion queue of the system's.
struct Queue {
    functions: Functions,
    queue: RIO_CQ,
    notice: Arc<Notice>,
}

impl Drop for Queue {
    fn drop(&mut self) {
        // Nobody asks it to notify any more.
        self.notice.set_queue(0);
        // SAFETY: it is open, and nobody is in it. What completes afterwards is dropped by the system.
        unsafe { (self.functions.close_completion_queue)(self.queue) };
    }
}

/// The completion queue of the provider `winsock`.
pub struct WinsockCompletions<T: Sharing> {
    shared: requests::SharedPart<T>,
    queue: Queue,
    parts: Vec<requests::Part<T>>,
    /// Room for what one dequeue takes.
    results: Vec<RIORESULT>,
    /// Receives and sends of each socket in the dequeue under way.
    tally: Vec<[u32; 2]>,
    /// The queue has told that it is not empty, and nobody waited for that.
    told: bool,
    /// Nothing of it can be trusted.
    corrupt: bool,
    stopped: bool,
}

impl<T: Sharing> WinsockCompletions<T> {
    /// Takes up to `room` results.
    fn take(&mut self, room: usize) -> io::Result<usize> {
        let room = room.min(self.results.len());
        if room == 0 || self.corrupt {
            return if self.corrupt { Err(corrupt()) } else { Ok(0) };
        }
        let (queue, into) = (self.queue.queue, self.results.as_mut_ptr());
        // SAFETY: the queue is open and ours alone, by `&mut`; there is room for as many results.
        match unsafe { (self.shared.functions.dequeue)(queue, into, room as u32) } {
            RIO_CORRUPT_CQ => {
                self.corrupt = true;
                Err(corrupt())
            }
            taken => Ok(taken as usize),
        }
    }

    /// What a result is of: its kind, and its slice, which is the program's again.
    #[inline]
    fn slice_of(&self, result: &RIORESULT) -> (usize, Slice) {
        let context = result.RequestContext as usize;
        let posted = Posted::from_index((context >> KIND_BITS) as u32);
        // SAFETY: the context is that of a request which has completed: its slice was posted with it from this region,
        // and by no other.
        let slice = unsafe { posted.reclaim(self.shared.registered.region()) };
        (context & ((1 << KIND_BITS) - 1), slice)
    }

    /// What came of a receive.
    #[inline]
    fn received(&self, slice: &mut Slice, result: &RIORESULT, socket: usize) -> Outcome {
        let (line, payload) = line_and_payload(slice);
        let bytes = result.BytesTransferred as usize;
        let truncated = match result.Status {
            0 => bytes > payload.len(),
            WSAEMSGSIZE | STATUS_BUFFER_OVERFLOW => true,
            code if code == ERROR_MORE_DATA as i32 => true,
            // An earlier reply died on its way, which is no news of a datagram.
            WSAENETRESET => return Outcome::Returned,
            code => return Outcome::Failed(io::Error::from_raw_os_error(code)),
        };
        let len = if truncated { payload.len() } else { bytes };
        // The line says by Linux's number that an address is of IPv6; one of IPv4 has the same number everywhere.
        let family = &mut line[SOURCE..SOURCE + 2];
        if *family == AF_INET6.to_ne_bytes() {
            family.copy_from_slice(&crate::socket::context::AF_INET6.to_ne_bytes());
        }
        let in_place = Received::new(len, truncated);
        let Some((control, _)) = self.shared.registered.control_of(slice.index()) else {
            return Outcome::Received(in_place);
        };
        let arrival = in_place.with(crate::rio::line(slice)).arrival();
        // SAFETY: the control data goes with the slice, and the kernel is done with both.
        let control = unsafe { &*control };
        let length = (control.total as usize).saturating_sub(CONTROL_HEAD);
        let data = &control.data.0[..length.min(control.data.0.len())];
        let local = self.parts[socket].control.then(|| self.parts[socket].local_in(data)).flatten();
        Outcome::Received(received(slice, &Arrival { local, ..arrival }))
    }

    /// Goes on with a slice of several datagrams after one of them. `None`: it is the kernel's again.
    #[cold]
    fn send_on(
        &mut self,
        mut slice: Slice,
        result: &RIORESULT,
        socket: usize,
        counters: &Counters,
    ) -> Option<(Slice, Outcome)> {
        let mut progress = Progress::read(&mut slice);
        progress.note(result.Status);
        let shared = &self.shared;
        let posted = self.parts[socket].lane.with(|lane| {
            let posted = lane.send_next(shared, &mut slice, &mut progress);
            if posted {
                counters.kernel_entries.one();
                // Closing the socket completes what could not be made known.
                let _ = lane.commit_sends(shared.functions);
            }
            posted
        });
        if posted {
            let _ = slice.post();
            return None;
        }
        Some((slice, progress.outcome()))
    }

    /// Takes what the system refused at once.
    #[cold]
    fn take_refused(&mut self, out: &mut Batch) {
        let mut more = false;
        for (socket, part) in self.parts.iter().enumerate() {
            part.lane.with(|lane| {
                while out.room() > 0
                    && let Some((slice, outcome)) = lane.refused.pop_front()
                {
                    part.sends.take_off(1);
                    out.push(Completion { slice, socket: socket as u32, outcome });
                }
                more |= !lane.refused.is_empty();
            });
        }
        if more {
            self.shared.beside.set();
        }
    }

    /// Counts off what was taken.
    fn settle_tally(&mut self) {
        let mut taken = 0;
        for (part, [receives, sends]) in self.parts.iter().zip(&mut self.tally) {
            let (of_receives, of_sends) = (std::mem::take(receives), std::mem::take(sends));
            if of_receives > 0 {
                part.receives.take_off(of_receives);
                self.shared.receives.take_off(of_receives);
            }
            if of_sends > 0 {
                part.sends.take_off(of_sends);
            }
            taken += of_receives + of_sends;
        }
        if taken > 0 {
            self.shared.in_kernel.take_off(taken);
        }
    }

    /// Whether what woke it was the program.
    fn woken_by(&self, told: Told) -> Woken {
        match told {
            Told::TimedOut => Woken::TimedOut,
            Told::Somebody if self.shared.signals.take_woken() => Woken::ByWaker,
            // A poster: what the system refused is there to be dequeued.
            Told::Queue | Told::Somebody => Woken::Ready,
        }
    }
}

fn corrupt() -> io::Error {
    io::Error::other("the completion queue is corrupt (RIO_CORRUPT_CQ)")
}

impl<T: Sharing> CompletionQueue for WinsockCompletions<T> {
    type Rq = WinsockRequests<T>;

    fn dequeue(&mut self, out: &mut Batch, counters: &Counters) -> io::Result<usize> {
        if self.shared.beside.take() {
            self.take_refused(out);
        }
        let mut datagrams = 0;
        for n in 0..self.take(out.room())? {
            let result = self.results[n];
            let socket = result.SocketContext as usize;
            let (kind, mut slice) = self.slice_of(&result);
            let outcome = match kind {
                RECEIVE => {
                    self.tally[socket][0] += 1;
                    let outcome = self.received(&mut slice, &result, socket);
                    datagrams += usize::from(matches!(outcome, Outcome::Received(_)));
                    outcome
                }
                SEND_OF_SEVERAL => match self.send_on(slice, &result, socket, counters) {
                    None => continue,
                    Some((back, outcome)) => {
                        slice = back;
                        self.tally[socket][1] += 1;
                        outcome
                    }
                },
                _ => {
                    self.tally[socket][1] += 1;
                    match result.Status {
                        0 => Outcome::Sent((result.BytesTransferred as usize).into()),
                        code => Outcome::NotSent(io::Error::from_raw_os_error(code).into()),
                    }
                }
            };
            out.push(Completion { slice, socket: socket as u32, outcome });
        }
        self.settle_tally();
        Ok(datagrams)
    }

    fn wait(
        &mut self,
        _at_least: u32, // RIONotify tells of the first
        timeout: Option<Duration>,
        counters: &Counters,
    ) -> io::Result<Woken> {
        if std::mem::take(&mut self.told) || self.shared.beside.is_set() {
            return Ok(Woken::Ready);
        }
        self.shared.notice.arm(counters)?;
        let told = self.shared.notice.wait(timeout, counters)?;
        Ok(self.woken_by(told))
    }

    fn gather(
        &mut self,
        _enough: u32,
        at_most: Duration,
        counters: &Counters,
    ) -> io::Result<Woken> {
        let (told, queue_told) = self.shared.notice.wait_aside(at_most, counters)?;
        self.told |= queue_told;
        Ok(match self.woken_by(told) {
            Woken::ByWaker => Woken::ByWaker,
            Woken::Ready | Woken::TimedOut => Woken::Ready,
        })
    }

    fn gathers(&self) -> String {
        "a timed wait that the completion queue does not end".into()
    }

    fn waker(&self) -> Waker {
        let notice = Arc::clone(&self.shared.notice);
        self.shared.signals.waker(move || notice.wake())
    }

    fn turn_port(&self) -> Option<Box<dyn TurnPort>> {
        let (notice, beside) = (&self.shared.notice, &self.shared.beside);
        let delivery = || Box::new(Delivery(Arc::clone(notice), Arc::clone(beside)));
        notice.has_port().then(|| delivery() as Box<dyn TurnPort>)
    }

    fn stop(mut self, requests: Vec<WinsockRequests<T>>, by: Instant) -> Stopped {
        self.shared.signals.set_stopped();
        let mut returned: u32 = requests.into_iter().map(WinsockRequests::give_back).sum();
        for part in &self.parts {
            returned += part.lane.with(Lane::close);
        }
        let counters = Counters::default();
        let mut look = LastLook::by(by);
        // Of a queue that is corrupt nothing comes back.
        while let Ok(taken) = self.take(usize::MAX) {
            for n in 0..taken {
                drop(self.slice_of(&self.results[n]));
            }
            self.shared.in_kernel.take_off(taken as u32);
            returned += taken as u32;
            if taken > 0 {
                continue;
            }
            if self.shared.in_kernel.get() == 0 {
                break;
            }
            let Some(left) = look.wait(false) else { break };
            let notice = &self.shared.notice;
            if notice.arm(&counters).and_then(|()| notice.wait(Some(left), &counters)).is_err() {
                break;
            }
        }
        Stopped { returned, missing: self.end() }
    }
}

impl<T: Sharing> WinsockCompletions<T> {
    /// Says how many slices the kernel has still, which are leaked, with the memory that they are in.
    fn end(&mut self) -> u32 {
        self.stopped = true;
        let missing = self.shared.in_kernel.get();
        let registered = &self.shared.registered;
        match missing {
            0 => registered.set_all_back(true),
            missing => registered.region().count_leaked(missing),
        }
        missing
    }
}

impl<T: Sharing> Drop for WinsockCompletions<T> {
    fn drop(&mut self) {
        if !self.stopped {
            // What was posted stays the kernel's. Of what is posted from now on nothing is committed.
            for part in &self.parts {
                part.lane.with(Lane::close);
            }
            self.end();
        }
    }
}
