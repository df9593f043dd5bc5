//! What the request queues and the completion queue of one ring have in common.

use super::{
    buffers::{Buffers, Table},
    frame::{Beside, Frame},
    sends::Sends,
};
use crate::{
    memory::{Posted, Region},
    ring::{Alarm, Ring, Submissions},
    rio::{
        Needs,
        combining::Combining,
        sharing::{Count as _, Shared as _, Sharing},
    },
    socket::{DatagramSocket, native::Native},
};
use std::{
    mem,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

/// Classes of tokens.
pub(super) mod class {
    pub const RECEIVE: u8 = 1;
    pub const SEND: u8 = 2;
    pub const ALARM: u8 = 3;
    pub const CANCEL: u8 = 4;
}

/// The group of buffers: a ring of ours has one.
pub(super) const GROUP: u16 = 0;

/// What all queues of one ring share. Where it goes away before [`Common::end`] was called, the
/// kernel may still write to slices: they are left to it, and counted.
///
/// Guards are taken in this order: submissions, sends; or buffers alone.
pub(super) struct Common<T: Sharing> {
    pub region: Arc<Region>,
    pub ring: Arc<Ring>,
    pub sockets: Vec<DatagramSocket>,
    pub needs: Needs,
    pub frame: Frame,
    pub alarm: Alarm,
    pub table: Table,
    pub buffers: Combining<T, Buffers, Posted>,
    pub submissions: T::Shared<Submissions>,
    pub sends: T::Shared<Sends>,
    /// Receives that are outstanding, over all sockets, those not committed included.
    pub receives_out: T::Count,
    /// Sends that are outstanding, the same way.
    pub sends_out: T::Count,
    /// The message header of every receive.
    pub message: MessageHeader,
    /// Nothing is posted any more. Whoever posts looks again under the guard of what he posts to.
    stopped: AtomicBool,
    /// The kernel holds nothing any more.
    ended: AtomicBool,
}

/// A message header that never moves. It holds no pointer.
pub(super) struct MessageHeader(Box<libc::msghdr>);

// SAFETY: the header's pointers are null; the kernel only reads its lengths.
unsafe impl Send for MessageHeader {}
// SAFETY: as above; it is never changed.
unsafe impl Sync for MessageHeader {}

impl MessageHeader {
    pub fn as_ptr(&self) -> *const libc::msghdr {
        &raw const *self.0
    }
}

impl<T: Sharing> Common<T> {
    pub fn new(
        region: &Arc<Region>,
        ring: Arc<Ring>,
        submissions: Submissions,
        sockets: Vec<DatagramSocket>,
        needs: Needs,
        window: u32,
        alarm: Alarm,
    ) -> Self {
        let of = |is: fn(&Native) -> bool| sockets.iter().any(|socket| is(socket.native()));
        let beside = match (of(Native::is_local), of(Native::has_control)) {
            (true, _) => Beside::LocalName,
            (false, true) => Beside::Control,
            (false, false) => Beside::Name,
        };
        let frame = Frame::new(region, beside);
        let window = window.min(needs.receives);
        let queues = sockets.len();
        let (buffers, table) = Buffers::new(window, needs.receives, frame);
        Self {
            region: Arc::clone(region),
            ring,
            sockets,
            needs,
            frame,
            alarm,
            table,
            buffers: Combining::new(buffers, queues, needs.receives as usize),
            submissions: T::Shared::<_>::new(submissions),
            sends: T::Shared::<_>::new(Sends::new(class::SEND, needs.sends)),
            receives_out: T::Count::default(),
            sends_out: T::Count::default(),
            message: MessageHeader(Box::new(frame.message())),
            stopped: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        }
    }

    /// Has nothing posted from now on, by request queues that are kept, too.
    pub fn stop(&self) {
        // Who holds a guard just now is waited for.
        self.submissions.with(|_| self.stopped.store(true, Relaxed));
        self.buffers.wait_for_all();
    }

    /// Works on the posted slices, those included that a poster could not put there. Says, too, whether that made an end
    /// to a want of them.
    #[inline]
    pub fn with_buffers<R>(&self, work: impl FnOnce(&mut Buffers) -> R) -> (R, bool) {
        self.buffers.with(|buffers, left| buffers.post(left, &self.table), work)
    }

    /// Posts slices of a socket's queue, unless it was stopped, and waits for nobody. Says whether somebody was in want of
    /// them.
    #[inline]
    pub fn post(&self, socket: u32, slices: &mut Vec<Posted>) -> bool {
        self.buffers.bring(
            socket as usize,
            slices,
            || !self.is_stopped(),
            |buffers, slices| buffers.post(slices, &self.table),
        )
    }

    /// Whether there is anything to receive into. If not, whoever posts next will be told.
    pub fn has_buffers(&self) -> bool {
        loop {
            match self.with_buffers(Buffers::ready) {
                (false, true) => {} // posted just after the answer
                (ready, _) => return ready,
            }
        }
    }

    /// Whether it was stopped.
    #[inline]
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Relaxed)
    }

    /// Counts more receives as outstanding, as far as there is room, and says how many.
    pub fn count_receives(&self, more: u32) -> u32 {
        self.receives_out.add_below(more, self.needs.receives)
    }

    /// Takes slices back that were never made known to the kernel, and counts them.
    pub fn take_back(&self, slices: impl Iterator<Item = Posted>) -> u32 {
        // SAFETY: the caller owns these, posted, and says that the kernel does not know them.
        slices.map(|slice| drop(unsafe { slice.reclaim(&self.region) })).count() as u32
    }

    /// Takes back by count what lies in the kernel's ring and behind it, once no request is
    /// left that could use any of it; returns how many slices that were.
    pub fn end(&self) -> u32 {
        let ended = self.ring.take_buffers_away(GROUP).is_ok();
        let (count, _) = self.with_buffers(|buffers| {
            let waiting = buffers.take_waiting(&self.region);
            if !ended {
                return waiting;
            }
            // SAFETY: the kernel gave the ring up, and the caller says that no request is left.
            waiting + unsafe { buffers.take_held(&self.region, &self.table) }
        });
        self.ended.store(ended, Relaxed);
        count
    }

    /// Slices that the kernel holds.
    pub fn in_kernel(&self) -> u32 {
        self.with_buffers(|buffers| buffers.held()).0 + self.sends.with(|sends| sends.len())
    }
}

impl<T: Sharing> Drop for Common<T> {
    fn drop(&mut self) {
        if self.ended.load(Relaxed) {
            return;
        }
        let held = self.in_kernel();
        self.region.count_leaked(held);
        // Closing the ring cancels what is under way, but only after this: so everything that
        // the kernel may read or write until then stays where it is for ever.
        self.with_buffers(|buffers| {
            buffers.take_waiting(&self.region);
            buffers.leak();
        });
        self.sends.with(Sends::leak);
        mem::forget(mem::replace(&mut self.message.0, Box::new(self.frame.message())));
    }
}
