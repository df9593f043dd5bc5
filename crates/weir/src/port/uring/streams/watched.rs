//! The connections of a port whose receives are not armed, since messages gather.
//!
//! A receive that is armed wakes its thread when something comes for it. So while messages gather the receives that are
//! started are kept back, and their sockets are in an epoll set, which wakes nobody who does not wait for it. When the time
//! is over the set says which of them have something, and those are handed to the kernel, which has them done as they are
//! submitted. Where the next message is to end a wait, the set itself is waited for.
//!
//! A socket is told of when something comes (edge-triggered), and comes into the set with the first receive that is kept
//! back. Something may be left of what it was told of if a receive filled its slice, and the peer's end is told with the
//! bytes before it: then the next receive is not kept back. A wait to receive cannot know, and asks again, by a call, and
//! the set is asked before anything gathers. Where the system has no set, or no room in one, receives are armed as ever.

use crate::{
    counters::Counters,
    port::arming::Arming,
    readiness::{Epoll, Interest, Streams as _, Trigger},
    stream::Stream,
};
use std::{io, os::fd::RawFd, time::Duration};

#[derive(Default)]
pub(super) struct Watched {
    pub arming: Arming,
    /// None until a receive is kept back.
    set: Option<Epoll>,
    /// The system had no set.
    refused: bool,
    /// It is to be asked: it may have something to tell.
    pub due: bool,
    /// Looks at what has finished since it was asked.
    looks: u32,
}

/// What is known of a connection's socket.
#[derive(Debug, Default)]
pub(super) struct Seen {
    is_watched: bool,
    /// Something may be there that the next receive is to have.
    pub has_some: bool,
    /// Its peer has ended: no receive has to wait.
    pub has_ended: bool,
}

/// After so many looks without a wait the set is asked: connections must not wait for ever for one that always has something.
const LOOKS: u32 = 16;

/// Sockets told of by one call.
const TOLD_AT_ONCE: usize = 256;

impl Watched {
    /// Whether a receive of this socket can be kept back until the set tells of it. One that `asks` does not know whether
    /// something is left.
    pub fn keeps_back(&mut self, stream: &Stream, slot: u32, seen: &mut Seen, asks: bool) -> bool {
        if std::mem::take(&mut seen.has_some) || seen.has_ended || self.refused {
            return false;
        }
        if self.set.is_none() {
            self.set = Epoll::new(TOLD_AT_ONCE, Trigger::Edge).ok();
            self.refused = self.set.is_none();
        }
        let Some(set) = &mut self.set else { return false };
        let interest = Interest { receive: true, send: false };
        let is_told = match seen.is_watched {
            false => set.watch(stream, slot, interest).is_ok(),
            true if asks => set.change(stream, slot, interest).is_ok(),
            true => true,
        };
        seen.is_watched |= is_told;
        // What was left is not to gather.
        self.due |= asks && is_told;
        is_told
    }

    /// Asks which sockets have something, and tells their slots, and whether their peers have ended.
    pub fn ask(&mut self, counters: &Counters, mut tell: impl FnMut(u32, bool)) -> io::Result<()> {
        let is_due = std::mem::take(&mut self.due) || self.is_overdue();
        let Some(set) = self.set.as_mut().filter(|_| is_due) else { return Ok(()) };
        self.looks = 0;
        loop {
            set.wait(Some(Duration::ZERO), counters)?;
            while let Some((slot, has_ended)) = set.next_told() {
                tell(slot, has_ended);
            }
            if !set.may_have_left() {
                return Ok(());
            }
        }
    }

    /// Somebody looks at what has finished.
    #[inline]
    pub fn looks(&mut self) {
        self.looks = self.looks.saturating_add(1);
    }

    /// Whether it is to be asked although nobody has waited.
    #[inline]
    pub fn is_overdue(&self) -> bool {
        self.arming != Arming::Each && self.set.is_some() && self.looks >= LOOKS
    }

    /// The set, for who waits for it, where there is one.
    pub fn fd(&self) -> Option<RawFd> {
        self.set.as_ref().map(Epoll::fd)
    }
}
