//! io_uring: a ring of each thread, which receives and sends by itself.
//!
//! A connection has one receive, which goes on until the connection ends (a multishot receive). What came lies in a
//! buffer that the kernel took from a ring of them, which all connections share, so one that waits has none. A send is
//! written into memory of the ring and queued; one entry into the kernel submits all that were queued meanwhile, and
//! waits for what comes next. So a batch of messages costs one call, however many connections they are on, and the
//! clock is read once for all of it.
//!
//! A send may not wait (MSG_DONTWAIT), so it is over when the entry that submits it returns: the memory of one batch
//! serves the next, and a connection whose server reads slowly holds none of it. Where a socket has no room that
//! is awaited, as a connect is, by a poll.
//!
//! A buffer holds all that a connection may have under way, up to 64 KiB. So a receive that takes several (a bundle,
//! Linux 6.10) would find nothing for the second; and some kernels before 6.14.9 put the bytes of such receives out of
//! order.
//!
//! For a connection that waits the kernel holds what its receive takes, 896 bytes beside the socket, where epoll has
//! 208.

use super::{Socket, WakeEvent};
use crate::{clock::now_ns, tcp::system::Ready};
use io_uring::{
    EnterFlags, IoUring, cqueue, opcode,
    squeue::{Entry, Flags},
    types::{BufRingEntry, CancelBuilder, Fd, SubmitArgs, Timespec},
};
use std::{
    alloc, fmt, io,
    io::{Read as _, Write as _},
    mem,
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
    os::unix::net::UnixStream,
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{AtomicU16, Ordering::Release},
    },
    time::{Duration, Instant},
};
use weir::Unavailable;

/// The first Linux whose rings run what is put off when their thread enters the kernel.
const KERNEL: &str = "6.1";
/// Entries of the submission queue: sends that go with one entry into the kernel, at most.
const SUBMISSIONS: u32 = 512;
/// Entries of the completion queue, at least and at most: one for each send of a batch and each connection.
const COMPLETIONS: (u64, u64) = (4096, 65_536);
/// Buffers to receive into, at least and at most: one for each connection. Where they run short, receives begin anew.
const BUFFERS: (u64, u64) = (64, 4096);
/// Bytes of a buffer, at least and at most.
const BUFFER_BYTES: (usize, usize) = (256, 64 * 1024);
/// Bytes of all buffers, at most.
const BUFFERS_BYTES_MAX: usize = 16 << 20;
/// Bytes that wait to be sent, at least.
const SENDS_BYTES: usize = 256 * 1024;
/// The group of buffers.
const GROUP: u16 = 0;
/// What the kernel asks of the address of a ring of buffers.
const PAGE_BYTES: usize = 4096;
/// How long what was cancelled may take to end.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a byte may take to ourselves.
const PROOF_NS: u64 = 2_000_000_000;
/// How often the same entries are submitted in vain.
const TRIES: u32 = 1000;

/// What a request is.
mod kind {
    pub const RECEIVE: u32 = 1;
    pub const SEND: u32 = 2;
    pub const ROOM: u32 = 3;
    pub const END: u32 = 4;
    pub const WAKE: u32 = 5;
    /// Whatever becomes of it.
    pub const OTHER: u32 = 6;
}

/// What is under way on a connection. Bits.
mod state {
    pub const RECEIVING: u8 = 1;
    pub const AWAITS_ROOM: u8 = 2;
    pub const AWAITS_END: u8 = 4;
}

/// A completion.
#[derive(Debug, Clone, Copy)]
struct Came {
    token: u64,
    result: i32,
    flags: u32,
}

/// What a receive brought, until it is taken.
#[derive(Debug, Clone, Copy)]
struct Chunk {
    number: u32,
    result: i32,
    buffer: Option<u16>,
}

/// A ring, and what it knows of the connections of its thread.
pub(crate) struct Ring {
    /// Closed before the memory below is freed.
    io: IoUring,
    begun: bool,
    wake_event: WakeEvent,
    wake_armed: bool,
    buffers: Buffers,
    /// What is to be sent, and how much of it is queued.
    sends: Box<[u8]>,
    filled: usize,
    /// Sends that are queued.
    queued: u32,
    /// Whether entries are queued that name a descriptor.
    names_a_descriptor: bool,
    bytes: usize,
    /// Whether the completion of a send ends a wait.
    wakes_for_sends: bool,
    /// By connection.
    states: Vec<u8>,
    /// Requests that have completions to come: receives and polls.
    under_way: usize,
    came: Vec<Came>,
    chunk: Option<Chunk>,
    /// The buffer that was received into last.
    lent: Option<u16>,
    /// What a submission answered that could not say so itself.
    broken: Option<io::Error>,
    now_ns: u64,
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring").field("under_way", &self.under_way).finish()
    }
}

fn unavailable(what: &str, error: &io::Error) -> Unavailable {
    let advice = match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            "the sysctl kernel.io_uring_disabled or a container's filter forbids it: allow it, or use the engine readiness"
                .into()
        }
        Some(libc::ENOMEM) => "raise the limit on locked memory (ulimit -l), or use the engine readiness".into(),
        Some(libc::EMFILE | libc::ENFILE) => "raise the limit on open files (ulimit -n), or use fewer threads".into(),
        _ => format!("it needs Linux {KERNEL} or later: use such a kernel, or the engine readiness"),
    };
    Unavailable::new("engine uring", format!("{what}: {error}")).advise(advice)
}

/// When a ring goes, the kernel interrupts the thread that made it some time later: not one that waits for something.
fn on_a_thread_of_its_own<R: Send>(
    f: impl FnOnce() -> Result<R, Unavailable> + Send,
) -> Result<R, Unavailable> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().spawn_scoped(scope, f);
        let thread = thread.map_err(|e| unavailable("starting a thread", &e))?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

impl Ring {
    /// Whether one can be had here, and does what is asked of it: receives and sends a byte.
    pub(crate) fn probe() -> Result<(), Unavailable> {
        on_a_thread_of_its_own(|| {
            let proven = Self::set_up(1, 1, true)?.prove();
            proven.map_err(|e| unavailable("a byte to ourselves and back", &e))
        })
    }

    fn prove(mut self) -> io::Result<()> {
        let (one, mut other) = UnixStream::pair()?;
        other.set_read_timeout(Some(Duration::from_nanos(PROOF_NS)))?;
        let socket = Socket(one.into());
        self.begin()?;
        self.begin_to_receive(&socket, 0);
        self.wait(0)?;
        other.write_all(&[1])?;
        self.wait(PROOF_NS)?;
        let wrong = || Err(io::Error::from(io::ErrorKind::InvalidData));
        if self.came.is_empty() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        if !self.ready(0).receive || self.receive(&socket, 0)? != Some(1) || self.received(1) != [1]
        {
            return wrong();
        }
        self.send(&socket, 0, 1, |bytes| bytes[0] = 2);
        if self.wait(PROOF_NS)? == 0 || self.ready(0).sent != Some(Ok(1)) {
            return wrong();
        }
        let mut back = [0];
        other.read_exact(&mut back)?;
        self.forget(0);
        if back == [2] { Ok(()) } else { wrong() }
    }

    /// A ring that was not begun: for so many connections of a thread, and so many bytes of a receive, and of a send, at
    /// most. With `wakes_for_sends` the completion of a send ends a wait; else it is told when something else comes.
    pub(crate) fn open(
        connections: u64,
        bytes: usize,
        wakes_for_sends: bool,
    ) -> Result<Self, Unavailable> {
        on_a_thread_of_its_own(|| Self::set_up(connections, bytes, wakes_for_sends))
    }

    fn set_up(connections: u64, bytes: usize, wakes_for_sends: bool) -> Result<Self, Unavailable> {
        let io = build(connections).map_err(|e| unavailable("io_uring_setup", &e))?;
        let buffers = Buffers::new(connections, bytes);
        // SAFETY: the entries and the buffers live until the ring has given them up, or for ever (see `drop`).
        unsafe {
            let (first, count) = (buffers.entries.as_ptr() as u64, buffers.count);
            io.submitter().register_buf_ring_with_flags(first, count, GROUP, 0)
        }
        .map_err(|e| unavailable("a ring of buffers (IORING_REGISTER_PBUF_RING)", &e))?;
        // SAFETY: takes no pointers.
        let wake_event = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if wake_event < 0 {
            return Err(unavailable("eventfd", &io::Error::last_os_error()));
        }
        // SAFETY: a new descriptor, which nobody else owns.
        let wake_event = WakeEvent(Arc::new(unsafe { OwnedFd::from_raw_fd(wake_event) }));
        Ok(Self {
            io,
            begun: false,
            wake_event,
            wake_armed: false,
            buffers,
            sends: vec![0; SENDS_BYTES.max(bytes)].into(),
            filled: 0,
            queued: 0,
            names_a_descriptor: false,
            bytes,
            wakes_for_sends,
            states: Vec::new(),
            under_way: 0,
            came: Vec::new(),
            chunk: None,
            lent: None,
            broken: None,
            now_ns: 0,
        })
    }

    /// To be called by the thread that uses it from then on: no other may.
    pub(crate) fn begin(&mut self) -> io::Result<()> {
        self.io.submitter().register_enable_rings()?;
        self.begun = true;
        self.now_ns = now_ns();
        Ok(())
    }

    pub(crate) fn wake_event(&self) -> WakeEvent {
        self.wake_event.clone()
    }

    /// What is sent lies here; what nobody writes anew stays as it is.
    pub(crate) fn memory_of_sends(&mut self) -> &mut [u8] {
        &mut self.sends
    }

    /// When the last wait was over.
    #[inline]
    pub(crate) fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Queues an entry, and submits where there is no room for it.
    ///
    /// # Safety
    /// What it points at stays as it is until its last completion.
    #[inline]
    unsafe fn push(&mut self, entry: &Entry) {
        // SAFETY: as the caller says.
        if unsafe { self.io.submission().push(entry) }.is_ok() {
            return;
        }
        self.submit();
        // SAFETY: as above.
        if unsafe { self.io.submission().push(entry) }.is_err() {
            self.broken.get_or_insert_with(|| io::Error::other("the submission queue stays full"));
        }
    }

    /// Submits what is queued. Its sends are over then.
    fn submit(&mut self) {
        for _ in 0..TRIES {
            let left = self.io.submission().len();
            if left == 0 {
                break;
            }
            // SAFETY: without EXT_ARG the argument is a signal mask, and there is none. Entries that
            // point at memory are sends, for which see `send`, and receives, which point at none.
            let entered =
                unsafe { self.io.submitter().enter::<libc::sigset_t>(left as u32, 0, 0, None) };
            match entered.map_err(|e| (e.raw_os_error(), e)) {
                Ok(_) | Err((Some(libc::EINTR), _)) => {}
                // Completions found no room, or the kernel has no memory for requests now.
                Err((Some(libc::EBUSY | libc::EAGAIN), _)) => {
                    // SAFETY: as above.
                    let flushed = unsafe {
                        let flags = EnterFlags::GETEVENTS.bits();
                        self.io.submitter().enter::<libc::sigset_t>(0, 0, flags, None)
                    };
                    if let Err(e) = flushed {
                        self.broken.get_or_insert(e);
                    }
                }
                Err((_, e)) => {
                    self.broken.get_or_insert(e);
                    break;
                }
            }
        }
        if self.io.submission().is_empty() {
            self.all_submitted();
        } else {
            self.broken.get_or_insert_with(|| io::Error::other("the kernel takes no requests"));
        }
    }

    fn all_submitted(&mut self) {
        (self.filled, self.queued, self.names_a_descriptor) = (0, 0, false);
    }

    #[inline]
    fn state(&mut self, number: u32) -> &mut u8 {
        let place = number as usize;
        if place >= self.states.len() {
            self.states.resize(place + 1, 0);
        }
        &mut self.states[place]
    }

    /// Asks for something that is under way until it is told.
    fn ask(&mut self, number: u32, bit: u8, entry: Entry) {
        let state = self.state(number);
        if *state & bit != 0 {
            return;
        }
        *state |= bit;
        self.under_way += 1;
        self.names_a_descriptor = true;
        // SAFETY: it points at nothing; what a receive writes into are the buffers, which live until it is over.
        unsafe { self.push(&entry) };
    }

    /// Receives from a connection from now on.
    pub(crate) fn begin_to_receive(&mut self, socket: &Socket, number: u32) {
        let entry = opcode::RecvMulti::new(Fd(socket.fd()), GROUP).build();
        self.ask(number, state::RECEIVING, entry.user_data(token(kind::RECEIVE, number)));
    }

    /// A connection tells when there is room to send, or when it is made, or cannot be.
    pub(crate) fn await_room(&mut self, socket: &Socket, number: u32) {
        let entry = opcode::PollAdd::new(Fd(socket.fd()), libc::POLLOUT as u32).build();
        self.ask(number, state::AWAITS_ROOM, entry.user_data(token(kind::ROOM, number)));
    }

    /// A connection tells when the other side has ended it.
    pub(crate) fn await_end(&mut self, socket: &Socket, number: u32) {
        let entry = opcode::PollAdd::new(Fd(socket.fd()), libc::POLLRDHUP as u32).build();
        self.ask(number, state::AWAITS_END, entry.user_data(token(kind::END, number)));
    }

    /// Ends what is under way on a connection, whose socket may be closed then.
    pub(crate) fn forget(&mut self, number: u32) {
        // What is queued means the socket that has this descriptor now.
        if self.names_a_descriptor {
            self.submit();
        }
        let state = mem::take(self.state(number));
        for (bit, kind) in [
            (state::RECEIVING, kind::RECEIVE),
            (state::AWAITS_ROOM, kind::ROOM),
            (state::AWAITS_END, kind::END),
        ] {
            if state & bit != 0 {
                let entry = opcode::AsyncCancel::new(token(kind, number)).build();
                let entry = entry.user_data(token(kind::OTHER, 0)).flags(Flags::SKIP_SUCCESS);
                // SAFETY: it points at nothing.
                unsafe { self.push(&entry) };
            }
        }
    }

    /// Queues a send of so many bytes, or as many as go at a time, which `make` writes; returns how many. What becomes of
    /// it is told. There is none under way on this connection.
    #[inline]
    pub(crate) fn send(
        &mut self,
        socket: &Socket,
        number: u32,
        len: u64,
        make: impl FnOnce(&mut [u8]),
    ) -> usize {
        let asked = len.min(self.bytes as u64) as usize;
        if self.sends.len() - self.filled < asked {
            self.submit();
            // Only where the ring is broken, which the next wait tells.
            self.filled = self.filled.min(self.sends.len() - asked);
        }
        if self.io.submission().is_full() {
            self.submit();
        }
        let bytes = &mut self.sends[self.filled..self.filled + asked];
        make(bytes);
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        let entry = opcode::Send::new(Fd(socket.fd()), bytes.as_ptr(), asked as u32)
            .flags(flags)
            .build()
            .user_data(token(kind::SEND, number));
        self.filled += asked;
        self.queued += 1;
        self.names_a_descriptor = true;
        // SAFETY: a send that may not wait is over when the entry into the kernel that submits it returns, and what
        // it sends is written anew only after that; the memory lives as long as the ring, and is only read.
        unsafe { self.push(&entry) };
        asked
    }

    /// Submits what is queued, and waits until something comes, the wake event is signalled, or so long; returns how many
    /// are to be attended to.
    pub(crate) fn wait(&mut self, timeout_ns: u64) -> io::Result<usize> {
        self.give_back();
        self.came.clear();
        if !self.wake_armed {
            self.wake_armed = true;
            let wakes =
                opcode::PollAdd::new(Fd(self.wake_event.0.as_raw_fd()), libc::POLLIN as u32);
            let entry = wakes.multi(true).build().user_data(token(kind::WAKE, 0));
            self.under_way += 1;
            // SAFETY: it points at nothing.
            unsafe { self.push(&entry) };
        }
        if let Some(e) = self.broken.take() {
            return Err(e);
        }
        let want = match timeout_ns {
            0 => 0,
            _ if !self.io.completion().is_empty() => 0,
            // Those of the sends come at once.
            _ if !self.wakes_for_sends => self.queued + 1,
            _ => 1,
        };
        match self.enter(want, timeout_ns) {
            Ok(()) => {}
            Err(e) => match e.raw_os_error() {
                Some(libc::ETIME | libc::EINTR | libc::EAGAIN | libc::EBUSY) => {}
                _ => return Err(e),
            },
        }
        if self.io.submission().is_empty() {
            self.all_submitted();
        } else {
            self.submit();
        }
        self.now_ns = now_ns();
        self.take_completions();
        Ok(self.came.len())
    }

    /// Enters the kernel: submits, runs what was put off, and waits.
    fn enter(&self, want: u32, timeout_ns: u64) -> io::Result<()> {
        const SECOND: u64 = 1_000_000_000;
        // SAFETY: entries are of this thread alone, which has no other view of the queue now.
        let queued = unsafe { self.io.submission_shared() }.len() as u32;
        let time = Timespec::new().sec(timeout_ns / SECOND).nsec((timeout_ns % SECOND) as u32);
        let args = SubmitArgs::new().timespec(&time);
        let flags = EnterFlags::GETEVENTS | EnterFlags::EXT_ARG;
        // SAFETY: `args` is the io_uring_getevents_arg that EXT_ARG announces, and it and the time it points at live
        // through the call. For what entries point at see where they are pushed.
        unsafe { self.io.submitter().enter(queued, want, flags.bits(), Some(&args)) }.map(drop)
    }

    fn take_completions(&mut self) {
        for entry in self.io.completion() {
            let (token, result, flags) = (entry.user_data(), entry.result(), entry.flags());
            let is_last = !cqueue::more(flags);
            match (token >> 32) as u32 {
                kind::OTHER => {}
                kind::WAKE => {
                    self.wake_armed &= !is_last;
                    self.under_way -= usize::from(is_last);
                }
                kind::SEND => self.came.push(Came { token, result, flags }),
                _ => {
                    self.under_way -= usize::from(is_last);
                    self.came.push(Came { token, result, flags });
                }
            }
        }
    }

    /// One of those that the last wait told.
    #[inline]
    pub(crate) fn ready(&mut self, index: usize) -> Ready {
        self.give_back();
        let Came { token, result, flags } = self.came[index];
        let (kind, number) = ((token >> 32) as u32, token as u32);
        match kind {
            kind::SEND => {
                let sent = Some(usize::try_from(result).map_err(|_| -result));
                Ready { number, receive: false, ended: false, sent }
            }
            kind::RECEIVE => {
                if !cqueue::more(flags) {
                    *self.state(number) &= !state::RECEIVING;
                }
                self.chunk = Some(Chunk { number, result, buffer: cqueue::buffer_select(flags) });
                Ready::of(number, true, false)
            }
            kind::END => {
                *self.state(number) &= !state::AWAITS_END;
                Ready::of(number, false, true)
            }
            _ => {
                *self.state(number) &= !state::AWAITS_ROOM;
                Ready::of(number, false, false)
            }
        }
    }

    /// Gives the kernel back the buffer that was received into last.
    #[inline]
    fn give_back(&mut self) {
        let unused = self.chunk.take().and_then(|chunk| chunk.buffer);
        for buffer in [self.lent.take(), unused].into_iter().flatten() {
            self.buffers.give(buffer);
        }
    }

    /// Takes what came of a connection that was told: how many bytes, 0 for the end; else `None`, and it is
    /// received from.
    #[inline]
    pub(crate) fn receive(&mut self, socket: &Socket, number: u32) -> io::Result<Option<usize>> {
        if let Some(chunk) = self.chunk.take_if(|chunk| chunk.number == number) {
            if let Some(last) = mem::replace(&mut self.lent, chunk.buffer) {
                self.buffers.give(last);
            }
            if let Ok(count) = usize::try_from(chunk.result) {
                return Ok(Some(count));
            }
            match -chunk.result {
                // There was no buffer; those of what was told before it are back.
                libc::ENOBUFS | libc::ECANCELED | libc::EINTR | libc::EAGAIN => {}
                error => return Err(io::Error::from_raw_os_error(error)),
            }
        }
        self.begin_to_receive(socket, number);
        Ok(None)
    }

    /// The bytes that the last receive took, so many.
    #[inline]
    pub(crate) fn received(&self, count: usize) -> &[u8] {
        match self.lent {
            Some(buffer) => self.buffers.bytes(buffer, count),
            None => &[],
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if !self.begun {
            return;
        }
        self.submit();
        let by = Instant::now() + PATIENCE;
        let time = Timespec::from(PATIENCE);
        // What is not found has ended before.
        let _ = self.io.submitter().register_sync_cancel(Some(time), CancelBuilder::any());
        while self.under_way > 0 && Instant::now() < by {
            // It ends at the deadline, whatever the call answers.
            let _ = self.enter(1, 50_000_000);
            self.came.clear();
            self.take_completions();
        }
        if self.under_way > 0 {
            self.buffers.leave();
        }
    }
}

fn token(kind: u32, number: u32) -> u64 {
    u64::from(kind) << 32 | u64::from(number)
}

/// Sets a ring up, with the best flags that this system takes.
fn build(connections: u64) -> io::Result<IoUring> {
    let completions = u64::from(2 * SUBMISSIONS).saturating_add(connections.saturating_mul(2));
    let completions = completions.clamp(COMPLETIONS.0, COMPLETIONS.1) as u32;
    let build = |no_array: bool| {
        let mut builder = IoUring::builder();
        builder.setup_cqsize(completions.next_power_of_two()).setup_clamp().setup_r_disabled();
        builder.setup_single_issuer().setup_defer_taskrun().setup_submit_all().dontfork();
        if no_array {
            builder.setup_no_sqarray();
        }
        builder.build(SUBMISSIONS)
    };
    match build(true) {
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => build(false),
        result => result,
    }
}

/// Buffers that the kernel receives into, and the ring in which it finds them.
struct Buffers {
    entries: NonNull<BufRingEntry>,
    count: u16,
    tail: u16,
    memory: NonNull<u8>,
    /// Bytes of a buffer.
    bytes: usize,
    /// From one buffer to the next.
    stride: usize,
    /// The kernel may write into them for ever.
    left: bool,
}

// SAFETY: plain memory, reached only through its owner.
unsafe impl Send for Buffers {}

impl Buffers {
    /// For so many connections, and receives of so many bytes.
    fn new(connections: u64, bytes: usize) -> Self {
        const LINE: usize = 64;
        let bytes = bytes.next_multiple_of(LINE).clamp(BUFFER_BYTES.0, BUFFER_BYTES.1);
        // A little apart from powers of two, so that their beginnings do not share a set of the cache.
        let stride = bytes + LINE;
        let most = (BUFFERS_BYTES_MAX / stride) as u64;
        let count = connections.clamp(BUFFERS.0, BUFFERS.1.min(most));
        let count = 1 << count.next_power_of_two().min(BUFFERS.1).ilog2();
        let mut buffers = Self {
            entries: zeroed(Self::layout_of_entries(count)).cast(),
            count,
            tail: 0,
            memory: zeroed(Self::layout(count, stride)),
            bytes,
            stride,
            left: false,
        };
        (0..count).for_each(|buffer| buffers.give(buffer));
        buffers
    }

    fn layout_of_entries(count: u16) -> alloc::Layout {
        alloc::Layout::array::<BufRingEntry>(count.into())
            .and_then(|layout| layout.align_to(PAGE_BYTES))
            .expect("a ring of at most 4096 entries fits the address space")
    }

    fn layout(count: u16, stride: usize) -> alloc::Layout {
        alloc::Layout::from_size_align(usize::from(count) * stride, PAGE_BYTES)
            .expect("some megabytes fit the address space")
    }

    /// Gives the kernel a buffer: one that it took before, or has never had.
    #[inline]
    fn give(&mut self, buffer: u16) {
        assert!(buffer < self.count, "the kernel names a buffer that it was not given");
        let place = usize::from(self.tail & (self.count - 1));
        // SAFETY: inside the allocation, which starts as zeroes and is a valid entry. The kernel reads an entry only after
        // the tail that covers it was published. The tail itself lies in a reserved field of the first
        // entry, which these setters leave alone.
        let entry = unsafe { self.entries.add(place).as_mut() };
        entry.set_addr(self.memory.as_ptr() as u64 + (usize::from(buffer) * self.stride) as u64);
        entry.set_len(self.bytes as u32);
        entry.set_bid(buffer);
        self.tail = self.tail.wrapping_add(1);
        // SAFETY: the tail is an aligned 16-bit field of the first entry, which the kernel reads while we
        // write it: so both do so atomically.
        unsafe {
            let tail_at = BufRingEntry::tail(self.entries.as_ptr()).cast_mut();
            AtomicU16::from_ptr(tail_at).store(self.tail, Release);
        }
    }

    /// The first bytes of a buffer that the kernel took and has not back.
    #[inline]
    fn bytes(&self, buffer: u16, count: usize) -> &[u8] {
        assert!(buffer < self.count && count <= self.bytes);
        // SAFETY: within the memory, all of which was written, and which the kernel has written and is done with.
        unsafe {
            let first = self.memory.add(usize::from(buffer) * self.stride);
            std::slice::from_raw_parts(first.as_ptr(), count)
        }
    }

    /// Leaves them to the kernel.
    fn leave(&mut self) {
        self.left = true;
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        if self.left {
            return;
        }
        // SAFETY: allocated in `new` with these layouts; no request is left that could write there, and the ring is
        // closed.
        unsafe {
            alloc::dealloc(self.entries.as_ptr().cast(), Self::layout_of_entries(self.count));
            alloc::dealloc(self.memory.as_ptr(), Self::layout(self.count, self.stride));
        }
    }
}

fn zeroed(layout: alloc::Layout) -> NonNull<u8> {
    // SAFETY: the layout has a size, since there is at least one buffer.
    let first = unsafe { alloc::alloc_zeroed(layout) };
    NonNull::new(first).unwrap_or_else(|| alloc::handle_alloc_error(layout))
}

#[cfg(test)]
mod tests;
