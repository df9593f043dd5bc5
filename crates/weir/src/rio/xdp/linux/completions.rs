//! Dequeuing: the frames of the receive rings, what was sent, and waiting.

use super::{
    common::Common,
    packet,
    program::Passed,
    requests::XdpRequests,
    ring::Consumer,
    socket::{Frame, Statistics},
};
use crate::{
    counters::Counters,
    deadline::LastLook,
    memory::{Posted, Slice},
    readiness::wake_event::WakeEvent,
    rio::{
        self, Batch, Completion, CompletionQueue, Outcome, Received, Stopped, Woken,
        requests::Rotation,
        sharing::{Count as _, Shared as _, Sharing},
    },
    socket::Arrival,
    wake::Waker,
};
use nix::sys::time::TimeSpec;
use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

/// How long a wait leaves sends alone: nothing tells when the kernel is done with them.
const LOOK_AFTER_SENDS: Duration = Duration::from_millis(1);

/// How long a wait goes without asking what the kernel dropped and passed on, so that the counters
/// tell why nothing comes: first soon after something came, then a second later, and while there is
/// nothing new each time after twice as long. So a server that nobody sends to sleeps.
const LOOK_SOON_AFTER_DROPS: Duration = Duration::from_millis(5);
const LOOK_AFTER_DROPS: Duration = Duration::from_secs(1);
const LOOK_AT_REST: Duration = Duration::from_secs(60);

/// How long the next look may wait, after one that waited so long and saw something new or not.
fn next_look(after: Duration, is_new: bool) -> Duration {
    match is_new {
        true => LOOK_AFTER_DROPS,
        false => (2 * after).clamp(LOOK_AFTER_DROPS, LOOK_AT_REST),
    }
}

/// Dequeues and waits between two looks at what the kernel dropped and passed on: each is two calls.
const LOOKS_APART: u32 = 1024;

/// The completion queue of all addresses.
pub struct XdpCompletions<T: Sharing> {
    common: Arc<Common<T>>,
    receivers: Vec<Receiver>,
    rotation: Rotation,
    wake_event: Arc<WakeEvent>,
    /// The wake event comes first, then the sockets.
    entries: Vec<libc::pollfd>,
    /// Until the next look at what the kernel dropped.
    looks: u32,
}

/// The receiving side of one queue of a device.
struct Receiver {
    ring: Consumer<Frame>,
    /// Slices of frames that were discarded, to be posted again.
    again: Vec<Posted>,
    /// What the kernel had counted when last asked.
    counted: Statistics,
}

impl<T: Sharing> XdpCompletions<T> {
    pub(super) fn new(
        common: &Arc<Common<T>>,
        rings: Vec<Consumer<Frame>>,
        window: u32,
        wake_event: Arc<WakeEvent>,
    ) -> Self {
        let watch = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let sockets = common.ports.iter().map(|port| watch(port.socket().fd()));
        let entries = std::iter::once(watch(wake_event.fd())).chain(sockets).collect();
        let receivers = rings.into_iter().map(|ring| Receiver {
            ring,
            again: Vec::with_capacity(window as usize),
            counted: Statistics::default(),
        });
        let (common, receivers) = (Arc::clone(common), receivers.collect());
        Self { common, receivers, rotation: Rotation::default(), wake_event, entries, looks: 0 }
    }

    /// Takes what arrived by all devices, up to what fits.
    fn dequeue_ports(&mut self, out: &mut Batch, counters: &Counters) -> io::Result<usize> {
        let (mut rotation, count) = (self.rotation, self.receivers.len());
        let each = |index, out: &mut Batch| self.dequeue_port(index, out, counters);
        let received = rotation.dequeue(count, out, each);
        self.rotation = rotation;
        received
    }

    /// Takes what arrived by one device, up to what fits.
    fn dequeue_port(
        &mut self,
        index: usize,
        out: &mut Batch,
        counters: &Counters,
    ) -> io::Result<usize> {
        let common = &self.common;
        let Receiver { ring, again, .. } = &mut self.receivers[index];
        let available = ring.available();
        let (mut taken, mut received) = (0, 0);
        while taken < available && out.room() > 0 {
            let Some(frame) = ring.take() else { break };
            taken += 1;
            let Some(mut slice) = common.table.received(&frame) else {
                return Err(io::Error::other("the kernel named a slice that it was not given"));
            };
            match understand(common, index, &mut slice, &frame) {
                Some((socket, came)) => {
                    received += 1;
                    out.push(Completion { slice, socket, outcome: Outcome::Received(came) });
                }
                None => {
                    counters.discarded.one();
                    again.push(slice.post());
                }
            }
        }
        if taken > 0 {
            ring.release();
            common.receives_out.take_off(received as u32);
            let port = &common.ports[index];
            let wanted = port.filling.with(|filling| {
                let wanted = filling.came_back(taken, &common.table);
                filling.post(again, &common.table) || wanted
            });
            if wanted {
                counters.kernel_entries.one();
                port.socket().rouse();
            }
        }
        Ok(received)
    }

    /// Sends what had to wait. Nothing tells when there is room again: the sends under way may all have been taken
    /// back, so that no completion follows, and what the kernel did not take then would wait for the next datagram.
    fn send_blocked(&self, counters: &Counters) -> io::Result<()> {
        for port in &self.common.ports {
            port.transmit.with(|transmit| {
                transmit.send_blocked(&self.common.bounds, counters);
                match transmit.is_blocked() {
                    true => transmit.kick(port.socket(), || counters.kernel_entries.one()),
                    false => Ok(()),
                }
            })?;
        }
        Ok(())
    }

    /// Sends what had to wait, and takes what was sent.
    fn dequeue_sends(&mut self, out: &mut Batch, counters: &Counters) -> io::Result<()> {
        self.send_blocked(counters)?;
        let common = &self.common;
        for port in &common.ports {
            port.transmit.with(|transmit| {
                while out.room() > 0
                    && let Some((slice, socket, outcome)) = transmit.take(&common.table)
                {
                    common.sends_out.take_off(1);
                    out.push(Completion { slice, socket, outcome });
                }
                transmit.release();
            });
        }
        Ok(())
    }

    /// Has each device serve its queue, on this thread.
    #[cold]
    fn serve_devices(&self, counters: &Counters) {
        for port in &self.common.ports {
            counters.kernel_entries.one();
            port.socket().rouse();
        }
    }

    /// Counts what the kernel dropped, and what was passed on to it, since it was last asked. Gives whether there was
    /// any.
    fn count_drops(&mut self, counters: &Counters) -> bool {
        let mut is_new = false;
        for (port, receiver) in self.common.ports.iter().zip(&mut self.receivers) {
            counters.kernel_entries.add(2);
            if let Some(lease) = &port.lease {
                let passed = lease.passed_on();
                is_new |= passed.iter().any(|count| *count > 0);
                counters.passed_foreign.add(passed[Passed::Foreign as usize]);
                counters.passed_fragments.add(passed[Passed::Fragment as usize]);
                counters.passed_unserved.add(passed[Passed::Unserved as usize]);
            }
            let Ok(now) = port.socket().statistics() else { continue };
            let before = std::mem::replace(&mut receiver.counted, now);
            counters.no_buffer.add(now.no_buffer.saturating_sub(before.no_buffer));
            counters.overflows.add(now.overflows.saturating_sub(before.overflows));
            counters.too_long.add(now.too_long.saturating_sub(before.too_long));
            is_new |= now != before;
        }
        is_new
    }

    /// Counts it where that is due.
    fn count_drops_at_times(&mut self, counters: &Counters) {
        if self.looks == 0 {
            self.looks = LOOKS_APART;
            self.count_drops(counters);
        }
        self.looks -= 1;
    }

    /// Prepares a wait. True: there is something already.
    fn about_to_wait(&mut self) -> bool {
        self.common.signals.about_to_look();
        let mut done = self.receivers.iter_mut().any(|receiver| receiver.ring.available() > 0);
        if self.common.needs.sends > 0 {
            for port in &self.common.ports {
                done |= port.transmit.with(|transmit| transmit.has_done());
            }
        }
        // A poster fills the ring by himself.
        self.common.signals.looked(false);
        done
    }

    /// Waits for the wake event and for the devices.
    fn poll(&mut self, timeout: Duration, counters: &Counters) -> io::Result<Woken> {
        self.poll_first(self.entries.len(), timeout, counters)
    }

    /// Waits for the first of these: 1 for the wake event alone.
    fn poll_first(
        &mut self,
        entries: usize,
        timeout: Duration,
        counters: &Counters,
    ) -> io::Result<Woken> {
        let timeout = TimeSpec::from(timeout);
        for entry in &mut self.entries {
            entry.revents = 0; // a call that fails writes none
        }
        counters.kernel_entries.one();
        debug_assert!((1..=self.entries.len()).contains(&entries), "the wake event is the first");
        // SAFETY: entries and time-out outlive the call, and there are so many; no signal mask. The descriptors are
        // open as long as the queue.
        let ready = unsafe {
            libc::ppoll(
                self.entries.as_mut_ptr(),
                entries as libc::nfds_t,
                timeout.as_ref(),
                std::ptr::null(),
            )
        };
        if ready < 0 {
            let error = io::Error::last_os_error();
            let interrupted = error.kind() == io::ErrorKind::Interrupted;
            return if interrupted { Ok(Woken::TimedOut) } else { Err(error) };
        }
        if self.entries[0].revents != 0 {
            counters.kernel_entries.one();
            self.wake_event.clear();
            return Ok(Woken::ByWaker);
        }
        if let Some(gone) = self.entries[1..]
            .iter()
            .position(|entry| entry.revents & (libc::POLLERR | libc::POLLHUP | libc::POLLNVAL) != 0)
        {
            let name = &self.common.ports[gone].device.name;
            return Err(io::Error::other(format!("the device {name} is down or gone")));
        }
        Ok(if ready == 0 { Woken::TimedOut } else { Woken::Ready })
    }

    /// Takes everything back that is over, and returns how many slices that was.
    fn discard(&mut self, batch: &mut Batch, counters: &Counters) -> u32 {
        let mut count = 0;
        loop {
            // An error leaves slices missing, and it shows.
            let _ = self.dequeue_sends(batch, counters);
            if batch.is_empty() {
                return count;
            }
            count += batch.drain().count() as u32;
        }
    }
}

/// Reads the datagram of a frame, and puts its payload where that of a slice is expected.
#[inline]
fn understand<T: Sharing>(
    common: &Common<T>,
    port: usize,
    slice: &mut Slice,
    frame: &Frame,
) -> Option<(u32, Received)> {
    let layout = common.region.layout();
    let start = frame.addr as usize % layout.stride;
    let whole = slice.whole_mut();
    let packet = packet::parse(whole.get(start..start + frame.len as usize)?).ok()?;
    if packet.left_to_device && common.ports[port].may_be_several {
        return None;
    }
    let takes = |bound: &super::common::Bound| bound.port == port && bound.takes(packet.to);
    let socket = common.bounds.iter().position(takes)?;
    let length = packet.payload.len();
    let kept = length.min(layout.payload);
    let from = start + packet.payload.start;
    if from != layout.headroom {
        // Where addresses of both families are received by one device.
        whole.copy_within(from..from + kept, layout.headroom);
    }
    let arrival = Arrival {
        len: kept,
        from: packet.from,
        local: common.bounds[socket].tells_local.then(|| packet.to.ip()),
        truncated: kept < length,
        at: None,
        segment: None,
        link: Some(packet.link()),
        meta: crate::socket::Meta::NONE,
    };
    // Over the headers, which nobody needs any more.
    Some((socket as u32, rio::received(slice, &arrival)))
}

impl<T: Sharing> CompletionQueue for XdpCompletions<T> {
    type Rq = XdpRequests<T>;

    fn dequeue(&mut self, out: &mut Batch, counters: &Counters) -> io::Result<usize> {
        if self.common.sends_out.get() > 0 {
            self.dequeue_sends(out, counters)?;
        }
        self.count_drops_at_times(counters);
        let received = self.dequeue_ports(out, counters)?;
        if received == 0 && self.common.serves_devices && out.room() > 0 {
            self.serve_devices(counters);
            return self.dequeue_ports(out, counters);
        }
        Ok(received)
    }

    fn wait(
        &mut self,
        _at_least: u32,
        timeout: Option<Duration>,
        counters: &Counters,
    ) -> io::Result<Woken> {
        let by = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        self.count_drops_at_times(counters);
        let mut look_after = LOOK_SOON_AFTER_DROPS;
        loop {
            if self.about_to_wait() {
                self.common.signals.no_longer_waiting();
                return Ok(Woken::Ready);
            }
            let left = by.map(|by| by.saturating_duration_since(Instant::now()));
            let sending = self.common.sends_out.get() > 0;
            let most = if sending { LOOK_AFTER_SENDS } else { look_after };
            let woken = self.poll(left.map_or(most, |left| left.min(most)), counters);
            self.common.signals.no_longer_waiting();
            match woken? {
                // A poster's kick: look again what there is to wait for.
                Woken::ByWaker if !self.common.signals.take_woken() => {}
                Woken::TimedOut => {
                    if sending {
                        self.send_blocked(counters)?;
                    }
                    if by.is_some_and(|by| Instant::now() >= by) {
                        return Ok(Woken::TimedOut);
                    }
                    if !sending {
                        look_after = next_look(look_after, self.count_drops(counters));
                    }
                }
                // Mostly the end: nobody asks afterwards.
                Woken::ByWaker => {
                    self.count_drops(counters);
                    return Ok(Woken::ByWaker);
                }
                woken => return Ok(woken),
            }
        }
    }

    fn gather(
        &mut self,
        _enough: u32,
        at_most: Duration,
        counters: &Counters,
    ) -> io::Result<Woken> {
        let by = Instant::now() + at_most;
        self.count_drops_at_times(counters);
        let mut left = at_most;
        while !left.is_zero() {
            self.common.signals.about_to_look();
            self.common.signals.looked(false);
            let sending = self.common.sends_out.get() > 0;
            let most = if sending { left.min(LOOK_AFTER_SENDS) } else { left };
            let woken = self.poll_first(1, most, counters);
            self.common.signals.no_longer_waiting();
            match woken? {
                Woken::ByWaker if self.common.signals.take_woken() => return Ok(Woken::ByWaker),
                // A poster's kick, or sends to look after.
                Woken::ByWaker => break,
                Woken::Ready | Woken::TimedOut if sending => break,
                Woken::Ready | Woken::TimedOut => {}
            }
            left = by.saturating_duration_since(Instant::now());
        }
        Ok(Woken::Ready)
    }

    fn gathers(&self) -> String {
        "a timed poll that does not watch the devices".into()
    }

    fn waker(&self) -> Waker {
        let wake_event = Arc::clone(&self.wake_event);
        self.common.signals.waker(move || wake_event.signal())
    }

    fn stop(mut self, mut requests: Vec<XdpRequests<T>>, by: Instant) -> Stopped {
        // What is counted here is nobody's: the run is over.
        let counters = Counters::default();
        let mut batch = Batch::new(self.common.needs.per_dequeue.max(1) as usize);
        self.common.stop(by);
        let mut returned: u32 = requests.iter_mut().map(XdpRequests::give_back).sum();
        drop(requests);
        let mut found = self.discard(&mut batch, &counters);
        returned += found;
        let mut look = LastLook::by(by);
        // Not those that a request queue was given and has not committed: it may be kept.
        while self.common.table.sending() > 0 && look.wait(found > 0).is_some() {
            let _ = self.poll(LOOK_AFTER_SENDS, &counters);
            found = self.discard(&mut batch, &counters);
            returned += found;
        }
        let Self { common, receivers, .. } = self;
        drop(receivers);
        returned += common.take_waiting();
        let missing = common.table.given();
        let Some(mut common) = Arc::into_inner(common) else {
            // A request queue was kept: it holds the sockets open, and what was posted goes back with it.
            return Stopped { returned, missing };
        };
        let (by_count, missing) = common.close(by);
        Stopped { returned: returned + by_count, missing }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_at_what_was_dropped_become_rare_while_nothing_is() {
        let next = |after: &Duration| Some(next_look(*after, false));
        let looks = std::iter::successors(Some(LOOK_SOON_AFTER_DROPS), next);
        let seconds: Vec<_> = looks.skip(1).take(8).map(|look| look.as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(next_look(LOOK_AT_REST, true), LOOK_AFTER_DROPS);
    }
}
