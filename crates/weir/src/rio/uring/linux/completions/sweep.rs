//! Dequeuing by sweeps: when to is said in `sweeping`.

use super::{Found, Kind, Receive, UringCompletions, push, receive_entry};
use crate::{
    counters::Counters,
    rio::{
        Batch,
        sharing::{Shared as _, Sharing},
    },
};
use std::io;

/// Sweeps that are submitted under one guard where other threads submit, too: they copy up to 264
/// datagrams meanwhile.
const SWEEPS_PER_GUARD: u32 = 8;

impl<T: Sharing> UringCompletions<T> {
    pub(super) fn dequeue_sweeping(
        &mut self,
        out: &mut Batch,
        counters: &Counters,
    ) -> io::Result<Found> {
        let room = out.room();
        let mut found = self.look(out, counters); // what had no room in the last batch
        // What is under way here was armed: sweeps are over when they have been submitted.
        let failed = found.failed.is_some();
        if out.room() == room && self.receives.len() > 0 && self.cancels == 0 && !failed {
            self.cancel_all(counters);
            found = found.and(self.look(out, counters));
        }
        if out.room() < room || found.failed.is_some() || !self.sweep(counters)? {
            if let Some(sweeping) = &mut self.sweeping {
                sweeping.put_off(found.received as u32);
            }
            return Ok(found);
        }
        let swept = self.look(out, counters);
        let sockets = self.disarmed.len() as u32;
        if let Some(sweeping) = &mut self.sweeping {
            sweeping.swept(swept.received as u32, sockets, swept.emptied);
        }
        Ok(found.and(swept))
    }

    /// Takes what lies in the sockets with receives that do not wait. Returns whether that may
    /// have brought something.
    fn sweep(&mut self, counters: &Counters) -> io::Result<bool> {
        if self.ended || self.disarmed.is_empty() || !self.common.has_buffers() {
            return self.enter_if_useful(counters);
        }
        self.attention(counters)?;
        let Self { common, receives, disarmed, sweeping: Some(sweeping), .. } = self else {
            return Ok(false);
        };
        sweeping.gather();
        let per_guard = if T::HANDS_OVER { SWEEPS_PER_GUARD } else { u32::MAX };
        let mut left = sweeping.sweeps();
        while left > 0 {
            let now = left.min(per_guard);
            left -= now;
            common.submissions.with(|submissions| {
                for _ in 0..now {
                    for &socket in &*disarmed {
                        let receive = Receive { socket, kind: Kind::Sweep };
                        let Ok(token) = receives.insert(receive) else { break };
                        let flags = libc::MSG_DONTWAIT as u32;
                        let entry = receive_entry(common, socket, token, 0, flags);
                        // SAFETY: see `receive_entry`.
                        match unsafe { push(submissions, &[entry], counters) } {
                            Ok(true) => {}
                            refused => {
                                receives.remove(token);
                                refused?;
                                break;
                            }
                        }
                    }
                }
                submissions.submit(counters)
            })?;
        }
        Ok(true)
    }
}
