//! Posting: slices are gathered here and told to the kernel at commit, under one guard.

use super::common::Common;
use crate::{
    counters::Counters,
    memory::{Posted, Slice},
    ring::{QueueFull, Submissions},
    rio::{
        Peer, Refused, RequestQueue, Span,
        requests::{Outgoing, Reserved, of_region},
        sharing::{Count as _, Shared as _, Sharing},
    },
};
use io_uring::{opcode, types};
use std::{collections::VecDeque, io, sync::Arc};

/// Receives gathered before they are handed on without a commit: few enough to stay in the
/// first-level cache, many enough that the guard costs nothing.
const GATHERED: usize = 256;

/// The request queue of one socket.
pub struct UringRequests<T: Sharing> {
    common: Arc<Common<T>>,
    socket: u32,
    receives: Vec<Posted>,
    sends: VecDeque<Outgoing>,
    reserved: Reserved,
    /// Someone holds the completion queue who was short of buffers.
    holder_starved: bool,
}

impl<T: Sharing> UringRequests<T> {
    pub(super) fn new(common: Arc<Common<T>>, socket: u32) -> Self {
        let sends = VecDeque::with_capacity(common.needs.sends as usize);
        Self {
            common,
            socket,
            receives: Vec::with_capacity(GATHERED),
            sends,
            reserved: Reserved::default(),
            holder_starved: false,
        }
    }

    fn hand_on(&mut self) {
        // Once it was stopped they stay here, and go back to their pool with this queue.
        self.holder_starved |= self.common.post(self.socket, &mut self.receives);
    }

    /// A slice that may be posted.
    #[inline]
    fn checked(&self, slice: Slice) -> Result<Slice, (Slice, Refused)> {
        match self.common.is_stopped() {
            true => Err((slice, Refused::Stopped)),
            false => of_region(slice, &self.common.region),
        }
    }

    /// Gives back what was not committed, and counts it.
    pub(super) fn give_back(&mut self) -> u32 {
        let receives = self.common.take_back(self.receives.drain(..));
        let sends = self.sends.drain(..).count() as u32;
        self.common.receives_out.take_off(receives);
        self.reserved.give_up(|left| self.common.receives_out.take_off(left));
        self.common.sends_out.take_off(sends);
        receives + sends
    }
}

/// Pushes sends until all are pushed or the submission queue takes no more.
fn push_sends<T: Sharing>(
    common: &Common<T>,
    socket: u32,
    outgoing: &mut VecDeque<Outgoing>,
    submissions: &mut Submissions,
) {
    let native = common.sockets[socket as usize].native();
    let longest = native.longest_joined();
    let mut room = true;
    while room && let Some(&Outgoing { to, .. }) = outgoing.front() {
        common.sends.with(|sends| {
            let Some((token, message)) = sends.prepare(outgoing, socket, longest) else {
                room = false;
                return;
            };
            let fd = types::Fd(native.fd());
            // In the kernel's hands it would wait for a Unix peer that takes nothing.
            let flags = if native.is_local() { libc::MSG_DONTWAIT as u32 } else { 0 };
            let entry = opcode::SendMsg::new(fd, message).flags(flags).build();
            let entry = entry.user_data(token.user_data());
            // SAFETY: message and slices stay until the send is over, since only its last
            // completion, or the lines below, end it.
            if let Err(QueueFull) = unsafe { submissions.push(&[entry]) } {
                room = false;
                let (mut next, mut place) = (Some(token), 0);
                while let Some(token) = next {
                    // SAFETY: the kernel never knew of it, and the slices are of this region.
                    let over = unsafe { sends.over(token, &common.region) };
                    let over = over.expect("prepared just above");
                    outgoing.insert(place, Outgoing { slice: over.slice, span: over.span, to });
                    (next, place) = (over.next, place + 1);
                }
            }
        });
    }
}

impl<T: Sharing> RequestQueue for UringRequests<T> {
    #[inline]
    fn receive(&mut self, slice: Slice) -> Result<(), (Slice, Refused)> {
        let slice = self.checked(slice)?;
        let Self { common, reserved, .. } = self;
        if let Err(refused) = reserved.take(|more| common.count_receives(more)) {
            return Err((slice, refused));
        }
        self.receives.push(slice.post());
        if self.receives.len() == GATHERED {
            self.hand_on();
        }
        Ok(())
    }

    fn reserve(&mut self, receives: u32) {
        let Self { common, reserved, .. } = self;
        reserved.fill(receives, |more| common.count_receives(more));
    }

    #[inline]
    fn send(
        &mut self,
        slice: Slice,
        span: impl Into<Span>,
        to: &Peer,
    ) -> Result<(), (Slice, Refused)> {
        let slice = self.checked(slice)?;
        let common = &self.common;
        let outstanding = (&common.sends_out, common.needs.sends);
        self.sends.push_back(Outgoing::new(slice, span.into(), to, outstanding)?);
        Ok(())
    }

    #[inline]
    fn commit(&mut self, counters: &Counters) -> io::Result<()> {
        if !self.receives.is_empty() {
            self.hand_on();
        }
        self.reserved.give_up(|left| self.common.receives_out.take_off(left));
        if self.holder_starved {
            self.holder_starved = false;
            // With one thread the holder is the caller, and looks again by itself.
            if T::HANDS_OVER {
                counters.kernel_entries.one();
                self.common.alarm.raise();
            }
        }
        let Self { common, sends, socket, .. } = self;
        while !sends.is_empty() {
            let before = sends.len();
            common.submissions.with(|submissions| {
                if common.is_stopped() {
                    return Err(Refused::Stopped.into());
                }
                push_sends(common, *socket, sends, submissions);
                submissions.submit(counters)
            })?;
            if sends.len() == before {
                // The kernel takes nothing before completions are taken; the rest goes with
                // the next commit.
                break;
            }
        }
        if common.is_stopped() { Err(Refused::Stopped.into()) } else { Ok(()) }
    }

    fn outstanding(&self) -> (u32, u32) {
        (self.common.receives_out.get(), self.common.sends_out.get())
    }
}

impl<T: Sharing> Drop for UringRequests<T> {
    fn drop(&mut self) {
        self.give_back();
    }
}
