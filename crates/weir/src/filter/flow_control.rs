//! Bounds what a handler has outstanding, message by message.

use super::{Filter, is_due};
use crate::tcp::{Asks, Echo, Handler, Mail, Output, Queue, Reason};
use std::{
    collections::VecDeque,
    fmt,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// Bounds what a handler has outstanding: sent, and not yet taken by the system. Up to half of the bound is
/// handed on; what is beyond waits in the filter as messages, of which whole ones can be dropped: a
/// peer that cannot follow is sent the newest prices, not all of them. A message is what one call of
/// [`Output::send`] or [`Output::echo`] brings.
///
/// The bound should not be above [`Limits::output_bytes`](crate::tcp::Limits::output_bytes), which
/// pauses receiving of its own.
#[derive(Debug, Clone)]
pub struct FlowControl(Arc<Settings>);

#[derive(Debug)]
struct Settings {
    bytes: usize,
    policy: Policy,
    dropped_messages: AtomicU64,
    dropped_bytes: AtomicU64,
    blocked: AtomicU64,
}

/// What happens to a message that would exceed the bound.
#[derive(Clone)]
pub enum Policy {
    /// It waits, and nothing is received until less is outstanding. What a handler sends while there is
    /// no room is refused ([`Refused::Full`](crate::tcp::Refused)), except for one message that crosses
    /// the bound as an echo.
    Block,
    /// The oldest ones that wait make room for it.
    DropOldest,
    /// It is dropped.
    DropNewest,
    /// The program is asked.
    Ask(Arc<dyn Fn(&Full) -> Verdict + Send + Sync>),
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Policy::Block => "Block",
            Policy::DropOldest => "DropOldest",
            Policy::DropNewest => "DropNewest",
            Policy::Ask(_) => "Ask",
        })
    }
}

/// What a program is told that is asked.
#[derive(Debug, Clone, Copy)]
pub struct Full {
    /// The other end.
    pub peer: SocketAddr,
    /// Bytes outstanding.
    pub outstanding: usize,
    /// Bytes of the message that would exceed the bound.
    pub message: usize,
    /// The bound.
    pub bound: usize,
}

/// What a program answers that is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The message waits, and nothing is received until less is outstanding.
    Block,
    /// The oldest ones that wait make room for it.
    DropOldest,
    /// It is dropped.
    DropNewest,
    /// The connection is broken off.
    Close,
}

impl FlowControl {
    /// At most so many bytes, at least 1, and what happens beyond.
    pub fn new(bytes: usize, policy: Policy) -> Self {
        let (dropped_messages, dropped_bytes) = Default::default();
        let blocked = AtomicU64::new(0);
        let bytes = bytes.max(1);
        Self(Arc::new(Settings { bytes, policy, dropped_messages, dropped_bytes, blocked }))
    }

    /// Messages dropped so far, of all connections, and their bytes.
    pub fn dropped(&self) -> (u64, u64) {
        (self.0.dropped_messages.load(Relaxed), self.0.dropped_bytes.load(Relaxed))
    }

    /// Times a connection was no longer received from, since too much was outstanding.
    pub fn blocked(&self) -> u64 {
        self.0.blocked.load(Relaxed)
    }
}

impl Filter for FlowControl {
    type Of<H: Handler> = Flow<H>;

    fn around<H: Handler>(&self, peer: SocketAddr, next: H) -> Flow<H> {
        Flow {
            shared: Arc::clone(&self.0),
            peer,
            waiting: Queue::default(),
            messages: VecDeque::new(),
            begun: false,
            handed: 0,
            said: Queue::default(),
            lengths: Vec::new(),
            blocked: false,
            stopped: false,
            finished: false,
            declined: None,
            next,
        }
    }
}

/// A handler behind a [`FlowControl`].
#[derive(Debug)]
pub struct Flow<H> {
    shared: Arc<Settings>,
    peer: SocketAddr,
    /// What waits, and how it is cut into messages. None waits without something being handed on.
    waiting: Queue,
    messages: VecDeque<usize>,
    /// A part of the first one was handed on.
    begun: bool,
    /// Bytes handed on, of which the system has not taken all.
    handed: usize,
    /// What the handler says in a call, and how it is cut.
    said: Queue,
    lengths: Vec<usize>,
    /// Nothing is to be received until less is outstanding.
    blocked: bool,
    /// The server stops.
    stopped: bool,
    finished: bool,
    /// Why it finishes, where the handler said that.
    declined: Option<Box<Reason>>,
    next: H,
}

impl<H: Handler> Flow<H> {
    fn outstanding(&self) -> usize {
        self.handed + self.waiting.len()
    }

    /// Bytes that may be handed on: half the bound, so that something is left to be dropped.
    fn window(&self) -> usize {
        self.shared.bytes.div_ceil(2)
    }

    /// Calls the handler, and does with what it says as the policy wants.
    fn call(
        &mut self,
        mut received: Option<&mut [u8]>,
        output: &mut Output<'_>,
        call: impl FnOnce(&mut H, Option<&mut [u8]>, &mut Output<'_>),
    ) {
        let limit = match self.shared.policy {
            Policy::Block => self.shared.bytes.saturating_sub(self.outstanding()),
            // What is said in one call is no more than may wait in all.
            _ => self.shared.bytes,
        };
        let echo = if received.is_some() { Echo::Possible } else { Echo::Nothing };
        let Self { said, lengths, finished, next, .. } = self;
        let mut inner = output.inner(said, limit, echo, finished, Some(lengths));
        call(next, received.as_deref_mut(), &mut inner);
        let outcome = inner.outcome();
        let echo = output.take_over(outcome, &mut self.declined);
        if echo && let Some(bytes) = received {
            self.echo(bytes, output);
        }
        let mut at = 0;
        for index in 0..self.lengths.len() {
            let length = self.lengths[index];
            if self.admit(length, output) {
                self.waiting.borrow(output.spare);
                self.waiting.push(&self.said.bytes()[at..at + length]);
                self.messages.push_back(length);
            }
            at += length;
        }
        self.lengths.clear();
        let all = self.said.len();
        self.said.take(all, output.spare);
        self.hand_on(output);
    }

    /// Sends back what was received: in place where nothing waits before it.
    fn echo(&mut self, bytes: &[u8], output: &mut Output<'_>) {
        if self.waiting.is_empty() && self.handed + bytes.len() <= self.window() {
            if output.echo().is_ok() {
                self.handed += bytes.len();
            }
        } else if self.admit(bytes.len(), output) {
            self.waiting.borrow(output.spare);
            self.waiting.push(bytes);
            self.messages.push_back(bytes.len());
        }
    }

    /// Whether a message may wait, where need be instead of others.
    fn admit(&mut self, length: usize, output: &mut Output<'_>) -> bool {
        let bound = self.shared.bytes;
        if length == 0 || self.outstanding() + length <= bound {
            return length > 0;
        }
        let verdict = match &self.shared.policy {
            Policy::Block => Verdict::Block,
            Policy::DropOldest => Verdict::DropOldest,
            Policy::DropNewest => Verdict::DropNewest,
            Policy::Ask(ask) => ask(&Full {
                peer: self.peer,
                outstanding: self.outstanding(),
                message: length,
                bound,
            }),
        };
        match verdict {
            Verdict::Block => {
                self.block();
                true
            }
            Verdict::DropOldest => {
                while self.outstanding() + length > bound && self.drop_oldest() {}
                let fits = self.outstanding() + length <= bound;
                if !fits {
                    self.count_dropped(length);
                }
                fits
            }
            Verdict::DropNewest => {
                self.count_dropped(length);
                false
            }
            Verdict::Close => {
                output.close(format!("more than {bound} bytes are outstanding"));
                false
            }
        }
    }

    fn block(&mut self) {
        if !std::mem::replace(&mut self.blocked, true) {
            self.shared.blocked.fetch_add(1, Relaxed);
        }
    }

    /// Drops the oldest message of which nothing was handed on. Says whether there was one.
    fn drop_oldest(&mut self) -> bool {
        let index = usize::from(self.begun);
        let Some(length) = self.messages.remove(index) else { return false };
        let at = if self.begun { self.messages[0] } else { 0 };
        self.waiting.remove(at, length);
        self.count_dropped(length);
        true
    }

    fn count_dropped(&self, bytes: usize) {
        self.shared.dropped_messages.fetch_add(1, Relaxed);
        self.shared.dropped_bytes.fetch_add(bytes as u64, Relaxed);
    }

    /// Hands on what may be, and the end where nothing is left.
    fn hand_on(&mut self, output: &mut Output<'_>) {
        while let Some(length) = self.messages.front().copied() {
            let count = length.min(self.window().saturating_sub(self.handed)).min(output.room());
            if count == 0 || output.send(&self.waiting.bytes()[..count]).is_err() {
                break;
            }
            self.waiting.take(count, output.spare);
            self.handed += count;
            self.begun = count < length;
            if self.begun {
                self.messages[0] -= count;
            } else {
                self.messages.pop_front();
            }
        }
        if self.outstanding() >= self.shared.bytes && matches!(self.shared.policy, Policy::Block) {
            self.block();
        } else if self.outstanding() < self.shared.bytes {
            self.blocked = false;
        }
        // What it sends after a stop is refused, as everywhere.
        self.finished |= self.stopped && !self.next.asks().holds;
        if self.finished && self.waiting.is_empty() {
            output.end_in_order(self.declined.take());
        }
    }
}

impl<H: Handler> Handler for Flow<H> {
    fn on_connect(&mut self, peer: SocketAddr, output: &mut Output<'_>) {
        self.call(None, output, |next, _, output| next.on_connect(peer, output));
    }

    fn on_receive(&mut self, bytes: &mut [u8], output: &mut Output<'_>) {
        self.call(Some(bytes), output, |next, bytes, output| {
            next.on_receive(bytes.expect("they were given"), output);
        });
    }

    fn on_sent(&mut self, bytes: usize, output: &mut Output<'_>) {
        self.handed = self.handed.saturating_sub(bytes);
        self.call(None, output, |next, _, output| next.on_sent(bytes, output));
    }

    fn on_end(&mut self, output: &mut Output<'_>) {
        self.call(None, output, |next, _, output| next.on_end(output));
    }

    fn on_stop(&mut self, output: &mut Output<'_>) {
        self.stopped = true;
        self.call(None, output, |next, _, output| next.on_stop(output));
    }

    fn on_mail(&mut self, mail: &mut Mail, output: &mut Output<'_>) {
        self.call(None, output, |next, _, output| next.on_mail(mail, output));
    }

    fn on_time(&mut self, output: &mut Output<'_>) {
        if is_due(&self.next, output.now()) {
            self.call(None, output, |next, _, output| next.on_time(output));
        }
    }

    fn asks(&self) -> Asks {
        let asks = self.next.asks();
        Asks {
            pause: asks.pause || self.blocked,
            holds: asks.holds || !self.waiting.is_empty(),
            ..asks
        }
    }

    fn on_close(&mut self, reason: &Reason) {
        self.next.on_close(reason);
    }
}
