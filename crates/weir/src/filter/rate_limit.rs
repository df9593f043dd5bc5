//! Lets a connection bring no more than so many bytes and messages a second.

use super::{Filter, is_due};
use crate::{
    tcp::{Asks, Handler, Mail, Output, Reason},
    timer::TICK,
};
use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

/// Lets each connection bring no more than so many bytes, and so many messages, a second. What is beyond is
/// not dropped: receiving pauses, so the peer's own sending comes to rest. A message is what one
/// receive brings; it cannot be known what the peer calls one.
///
/// It is a token bucket for each: within any time `t` a connection brings at most `rate * (t + burst)`, and
/// one receive. The burst is also what makes the rate reachable on a thread that is busy, where a pause ends late.
#[derive(Debug, Clone, Copy)]
pub struct RateLimit {
    bytes_per_s: Option<u64>,
    messages_per_s: Option<u64>,
    burst: Duration,
}

/// The burst unless told otherwise.
const BURST: Duration = TICK.saturating_mul(4);

/// The longest pause, whatever a receive has cost: far beyond what anyone waits for.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

impl RateLimit {
    /// So many a second of each; `None` for any number, and 0 counts as 1.
    pub fn new(bytes_per_s: Option<u64>, messages_per_s: Option<u64>) -> Self {
        Self { bytes_per_s, messages_per_s, burst: BURST }
    }

    /// How much may come at once: what the rate allows in this time. By default 200 ms; less than two
    /// [ticks](TICK) are taken as two.
    pub fn burst(mut self, time: Duration) -> Self {
        self.burst = time.max(2 * TICK);
        self
    }
}

impl Filter for RateLimit {
    type Of<H: Handler> = Rated<H>;

    fn around<H: Handler>(&self, _: SocketAddr, next: H) -> Rated<H> {
        Rated { limit: *self, bytes: None, messages: None, until: None, next }
    }
}

/// A handler behind a [`RateLimit`].
#[derive(Debug)]
pub struct Rated<H> {
    limit: RateLimit,
    /// When what has come will have been paid for, at the rate.
    bytes: Option<Instant>,
    messages: Option<Instant>,
    /// When the pause is over.
    until: Option<Instant>,
    next: H,
}

/// When `count` more will have been paid for at so many a second.
fn charge(paid: Option<Instant>, now: Instant, count: u64, per_s: Option<u64>) -> Option<Instant> {
    let nanos = u128::from(count) * 1_000_000_000 / u128::from(per_s?.max(1));
    let cost = u64::try_from(nanos).map_or(LONGEST, Duration::from_nanos).min(LONGEST);
    Some(paid.map_or(now, |paid| paid.max(now)) + cost)
}

impl<H: Handler> Rated<H> {
    fn count(&mut self, bytes: usize, now: Instant) {
        self.bytes = charge(self.bytes, now, bytes as u64, self.limit.bytes_per_s);
        self.messages = charge(self.messages, now, 1, self.limit.messages_per_s);
        let paid = self.bytes.max(self.messages);
        let until = paid.and_then(|paid| paid.checked_sub(self.limit.burst));
        self.until = until.filter(|until| *until > now);
    }
}

impl<H: Handler> Handler for Rated<H> {
    fn on_connect(&mut self, peer: SocketAddr, output: &mut Output<'_>) {
        self.next.on_connect(peer, output);
    }

    fn on_receive(&mut self, bytes: &mut [u8], output: &mut Output<'_>) {
        self.count(bytes.len(), output.now());
        self.next.on_receive(bytes, output);
    }

    fn on_sent(&mut self, bytes: usize, output: &mut Output<'_>) {
        self.next.on_sent(bytes, output);
    }

    fn on_end(&mut self, output: &mut Output<'_>) {
        self.until = None;
        self.next.on_end(output);
    }

    fn on_stop(&mut self, output: &mut Output<'_>) {
        self.until = None;
        self.next.on_stop(output);
    }

    fn on_mail(&mut self, mail: &mut Mail, output: &mut Output<'_>) {
        self.next.on_mail(mail, output);
    }

    fn on_time(&mut self, output: &mut Output<'_>) {
        let now = output.now();
        self.until = self.until.filter(|until| *until > now);
        if is_due(&self.next, now) {
            self.next.on_time(output);
        }
    }

    fn asks(&self) -> Asks {
        let asks = self.next.asks().at(self.until);
        Asks { pause: asks.pause || self.until.is_some(), ..asks }
    }

    fn on_close(&mut self, reason: &Reason) {
        self.next.on_close(reason);
    }
}
