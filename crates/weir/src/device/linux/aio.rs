//! A queue of I/Os on the asynchronous I/O of Linux before io_uring.
//!
//! io_submit(2) starts as many as are given to it, and io_getevents(2) takes what is over: two entries
//! for each batch. What needs no device, as the cache of pages does not, is done within io_submit. What
//! waits for somebody (a pipe) would wait in there, too: such devices are refused.
//!
//! Bounds: a context has room for the depth of the queue; the system has fs.aio-max-nr for all contexts.
//! Most drivers cannot call an I/O back: then it is waited for.
//!
//! Origin: Linux 2.6; linux/aio_abi.h. Its poll, which ends waits, came with 4.18.

use super::{
    Descriptor, outcome,
    under_way::{self, UnderWay},
};
use crate::{
    Error, Unavailable,
    counters::Counters,
    deadline::LastLook,
    device::{
        io::{Issue, Outcome, PATIENCE, Queue},
        kind::Direction,
    },
    memory::{Layout, Region, RegionOptions, Slice},
    readiness::wake_event::WakeEvent,
    ring::{Slots, Token},
    wake::Waker,
};
use nix::sys::time::TimeSpec;
use std::{io, sync::Arc, time::Instant};

const IO: u8 = 1;
const ALARM: Token = Token::bare(2);

/// `IOCB_CMD_PREAD`, `IOCB_CMD_PWRITE` and `IOCB_CMD_POLL`.
const READ: u16 = 0;
const WRITE: u16 = 1;
const POLL: u16 = 5;

/// `struct iocb`. The two fields that change places with the order of bytes are always zero here.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
struct Iocb {
    data: u64,
    key_and_flags: [u32; 2],
    opcode: u16,
    priority: i16,
    fd: u32,
    buffer: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    eventfd: u32,
}

/// `struct io_event`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
struct Event {
    data: u64,
    object: u64,
    result: i64,
    second_result: i64,
}

/// A queue on a context of its own.
#[derive(Debug)]
pub struct AioQueue {
    /// `aio_context_t`; 0 before it was made.
    context: libc::c_ulong,
    descriptor: Arc<Descriptor>,
    region: Arc<Region>,
    wake_event: Arc<WakeEvent>,
    /// One for each slot, and one for the wake event. The kernel reads them while they are submitted.
    blocks: Box<[Iocb]>,
    /// Slots that were started and are not submitted: addresses of their blocks.
    started: Vec<usize>,
    events: Box<[Event]>,
    /// Of the events that came, those that were not looked at yet: a handler may panic in between.
    unseen: std::ops::Range<usize>,
    slots: Slots<UnderWay>,
    idle: Vec<Slice>,
    /// The kernel gave up.
    broken: bool,
}

/// The answer of a system call of which the C library knows nothing.
fn answer(result: libc::c_long) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

impl AioQueue {
    /// The name of what drives it.
    pub const PROVIDER: &'static str = "aio";

    /// A queue with all slices of a region.
    pub fn open(
        what: &str,
        descriptor: &Arc<Descriptor>,
        region: Arc<Region>,
    ) -> Result<Self, Error> {
        if descriptor.may_wait || descriptor.delay.is_some() {
            let reason = "a read of this device waits for data, and libaio would wait for it when starting \
                          one";
            return Err(Unavailable::new(what, reason)
                .advise("use a design on io_uring, or read a file or /dev/zero")
                .into());
        }
        let wake_event =
            WakeEvent::new().map_err(|e| Error::io("making an eventfd to end waits", e))?;
        let idle: Vec<Slice> = std::iter::from_fn(|| region.take()).collect();
        let depth = idle.len();
        Ok(Self {
            context: 0,
            descriptor: Arc::clone(descriptor),
            region,
            wake_event: Arc::new(wake_event),
            blocks: vec![Iocb::default(); depth + 1].into(),
            started: Vec::with_capacity(depth),
            events: vec![Event::default(); depth + 1].into(),
            unseen: 0..0,
            slots: Slots::new(IO, depth),
            idle,
            broken: false,
        })
    }

    /// Proves by one I/O that it runs here.
    pub fn availability(what: &'static str) -> Result<(), Unavailable> {
        let prove = || {
            let region = Region::new(Layout::packed(0, 64, 64), 1, RegionOptions::default())?;
            let null = super::null().map_err(|e| Error::io("opening /dev/null", e))?;
            let mut queue = Self::open(what, &null, region)?;
            let calls = Counters::default();
            queue.begin(&calls)?;
            queue.start(Issue { at: 0, since: None }, &calls);
            let mut read = None;
            let until = Some(Instant::now() + PATIENCE);
            let taken = queue.take(1, until, &calls, |_, outcome, _| read = Some(outcome));
            taken.map_err(|e| Error::io("io_getevents", e))?;
            match read {
                Some(Outcome::Moved(0)) => Ok(()),
                other => {
                    let problem = format!("a read of /dev/null brought {other:?}");
                    Err(Error::io("trying it", io::Error::other(problem)))
                }
            }
        };
        prove().map_err(|error| error.into_reason(what))
    }

    /// Submits what was started. What the kernel refuses is over at once.
    fn submit(
        &mut self,
        calls: &Counters,
        each: &mut impl FnMut(Issue, Outcome, &[u8]),
    ) -> io::Result<usize> {
        let (mut first, mut taken) = (0, 0);
        while first < self.started.len() {
            calls.kernel_entries.one();
            let rest = &self.started[first..];
            // SAFETY: the array holds addresses of blocks that live as long as this queue; their
            // buffers are slices in their slots, which are leaked if the queue goes before.
            let submitted = answer(unsafe {
                libc::syscall(libc::SYS_io_submit, self.context, rest.len(), rest.as_ptr())
            });
            match submitted {
                Ok(0) => {}
                Ok(count) => first += count,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                // No room before something was taken.
                Err(e) if e.raw_os_error() == Some(libc::EAGAIN) => break,
                Err(e) => {
                    let refused = self.started[first];
                    first += 1;
                    let base = self.blocks.as_ptr() as usize;
                    let block = &self.blocks[(refused - base) / size_of::<Iocb>()];
                    if block.opcode == POLL {
                        return Err(e);
                    }
                    let token = Token::from_user_data(block.data);
                    let UnderWay { slice, issue } =
                        self.slots.remove(token).expect("what was started is in its slot");
                    each(issue, Outcome::Failed(e), slice.payload());
                    self.idle.push(slice);
                    taken += 1;
                }
            }
        }
        self.started.drain(..first);
        Ok(taken)
    }

    /// Takes up to as many as there is room for, and waits for one if `wait`. Says how many events came,
    /// and how many of them were I/Os.
    fn reap(
        &mut self,
        wait: bool,
        until: Option<Instant>,
        calls: &Counters,
        each: &mut impl FnMut(Issue, Outcome, &[u8]),
    ) -> io::Result<(usize, usize)> {
        if self.unseen.is_empty() {
            self.unseen = 0..self.get_events(wait, until, calls)?;
        }
        let (came, mut taken) = (self.unseen.len(), 0);
        while let Some(event) = self.unseen.next().map(|index| self.events[index]) {
            let token = Token::from_user_data(event.data);
            let Some(UnderWay { slice, issue }) = self.slots.remove(token) else { continue };
            each(issue, outcome(event.result), slice.payload());
            self.idle.push(slice);
            taken += 1;
        }
        Ok((came, taken))
    }
}

impl AioQueue {
    fn get_events(
        &mut self,
        wait: bool,
        until: Option<Instant>,
        calls: &Counters,
    ) -> io::Result<usize> {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let time = left.map(TimeSpec::from);
        let time = time.as_ref().map_or(std::ptr::null(), |time| std::ptr::from_ref(time.as_ref()));
        calls.kernel_entries.one();
        if wait {
            calls.waits.one();
        }
        // SAFETY: the kernel writes at most so many events into the array, and reads the time; both
        // outlive the call.
        let came = answer(unsafe {
            libc::syscall(
                libc::SYS_io_getevents,
                self.context,
                libc::c_long::from(wait),
                self.events.len(),
                self.events.as_mut_ptr(),
                time,
            )
        });
        match came {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(0),
            other => other,
        }
    }
}

impl Queue for AioQueue {
    fn begin(&mut self, calls: &Counters) -> Result<(), Error> {
        let depth = self.blocks.len();
        // SAFETY: the kernel writes the context's name into the field, which outlives the call.
        let made = answer(unsafe {
            libc::syscall(libc::SYS_io_setup, depth as libc::c_uint, &raw mut self.context)
        });
        made.map_err(|e| {
            let advice = match e.raw_os_error() {
                Some(libc::EAGAIN) => {
                    "; the contexts of the machine hold fs.aio-max-nr I/Os already: ask for less depth, or raise that \
                     limit (as root: sysctl fs.aio-max-nr=...)"
                }
                Some(libc::ENOSYS) => "; this kernel was built without CONFIG_AIO",
                _ => "",
            };
            Error::io(format!("io_setup of {depth} I/Os{advice}"), e)
        })?;
        let wake_event = self.blocks.last_mut().expect("one for the wake event");
        wake_event.data = ALARM.user_data();
        wake_event.opcode = POLL;
        wake_event.fd = self.wake_event.fd() as u32;
        wake_event.buffer = libc::POLLIN as u64;
        self.started.push(std::ptr::from_mut(wake_event) as usize);
        let armed = self.submit(calls, &mut |_, _, _| {});
        armed.map_err(|e| Error::io("submitting a poll, which is of Linux 4.18", e))?;
        Ok(())
    }

    fn waker(&self) -> Waker {
        let wake_event = Arc::clone(&self.wake_event);
        Waker::new(move || wake_event.signal())
    }

    #[inline]
    fn room(&self) -> usize {
        self.idle.len()
    }

    #[inline]
    fn outstanding(&self) -> usize {
        self.slots.len()
    }

    #[inline]
    fn start(&mut self, issue: Issue, _: &Counters) {
        let slice = self.idle.pop().expect("the caller looks for room");
        let buffer = slice.base().as_ptr() as u64;
        let token = self.slots.insert(UnderWay { slice, issue });
        let token = token.expect("as many slots as slices");
        let block = &mut self.blocks[token.slot()];
        block.data = token.user_data();
        block.opcode = match self.descriptor.direction {
            Direction::Read => READ,
            Direction::Write => WRITE,
        };
        block.fd = self.descriptor.raw() as u32;
        block.buffer = buffer;
        block.bytes = self.region.layout().payload as u64;
        block.offset = issue.at as i64;
        self.started.push(std::ptr::from_mut(block) as usize);
    }

    fn take(
        &mut self,
        at_least: usize,
        until: Option<Instant>,
        calls: &Counters,
        mut each: impl FnMut(Issue, Outcome, &[u8]),
    ) -> io::Result<usize> {
        let at_least = at_least.min(self.outstanding());
        let mut taken = self.submit(calls, &mut each)?;
        loop {
            let submitted = self.outstanding() - self.started.len().min(self.outstanding());
            let wait = taken < at_least && submitted > 0;
            if !wait && submitted == 0 {
                return Ok(taken);
            }
            let reaped = self.reap(wait, until, calls, &mut each);
            let (came, ios) = reaped.inspect_err(|_| self.broken = true)?;
            taken += ios;
            // The wake event, or the time: what called for it is to be looked at.
            if taken >= at_least || ios < came || came == 0 {
                return Ok(taken);
            }
        }
    }

    fn cancel_all(&mut self, calls: &Counters) {
        let under_way: Vec<usize> = self.slots.iter().map(|(token, _)| token.slot()).collect();
        for slot in under_way {
            let mut event = Event::default();
            calls.kernel_entries.one();
            // Most answer that they cannot: those are waited for. One that can is told with the others.
            // SAFETY: the block lives as long as this queue; the event outlives the call.
            unsafe {
                libc::syscall(
                    libc::SYS_io_cancel,
                    self.context,
                    &raw const self.blocks[slot],
                    &raw mut event,
                )
            };
        }
    }

    fn granted(&self) -> Vec<(&'static str, String)> {
        vec![("context-ios", self.blocks.len().to_string())]
    }
}

impl Drop for AioQueue {
    fn drop(&mut self) {
        if self.context == 0 {
            return;
        }
        let (calls, mut found) = (Counters::default(), 0);
        let mut look = LastLook::by(Instant::now() + PATIENCE);
        while self.outstanding() > 0 && !self.broken {
            let Some(left) = look.wait(found > 0) else { break };
            match self.take(1, Some(Instant::now() + left), &calls, |_, _, _| {}) {
                Ok(taken) => found = taken,
                Err(_) => break,
            }
        }
        if self.outstanding() == 0 {
            // SAFETY: takes a number. It waits for the poll of the wake event, which it cancels.
            unsafe { libc::syscall(libc::SYS_io_destroy, self.context) };
            return;
        }
        // It would wait for what does not come; the kernel ends it with the process. Until then it may
        // use the memory.
        under_way::leak(&mut self.slots);
        std::mem::forget(std::mem::take(&mut self.blocks));
    }
}
