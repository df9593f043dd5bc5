//! What a server does with a connection: written once, for every design.

use super::{
    Handle, Mail, Reason, Refused,
    mail::{Given, Mailbox, Reach},
};
use crate::{events::event, options::settings};
use std::{net::SocketAddr, sync::Arc, time::Instant};

/// Handles one connection. Each connection has a handler of its own, so its state needs no lock;
/// any thread of the server may call it, one at a time.
///
/// A panic closes the connection ([`Reason::Panicked`]); the server goes on.
pub trait Handler: Send + 'static {
    /// Called once, before anything else. A peer on a Unix socket has an address that only
    /// [`LocalPeer::of`](crate::stream::LocalPeer::of) can read.
    fn on_connect(&mut self, peer: SocketAddr, output: &mut Output<'_>) {
        let _ = (peer, output);
    }

    /// Called with what was received, in place: at least one byte, in the order sent, cut anywhere.
    /// The bytes may be changed, and sent back so by [`Output::echo`].
    fn on_receive(&mut self, bytes: &mut [u8], output: &mut Output<'_>);

    /// Called when the system has taken so many more bytes of output to send.
    fn on_sent(&mut self, bytes: usize, output: &mut Output<'_>) {
        let _ = (bytes, output);
    }

    /// Called once when the peer has sent all that it will: by default the server sends what is left
    /// and closes.
    fn on_end(&mut self, output: &mut Output<'_>) {
        output.finish();
    }

    /// Called once when the server stops, after all that was received by then: what is sent here goes
    /// out before the end. By default nothing more is.
    fn on_stop(&mut self, output: &mut Output<'_>) {
        output.finish();
    }

    /// Called when the moment has come that it asked for with [`Asks::deadline`], never before, and as soon as the
    /// system's timers wake the thread: on Linux 20 to 50 µs later where its core has nothing else to do, on Windows 1
    /// to 2 ms (the time-outs of its waits are in milliseconds). On a busy thread it is later by what is being handled.
    fn on_time(&mut self, output: &mut Output<'_>) {
        let _ = output;
    }

    /// Called when it was woken ([`Handle::wake`]), on the thread that serves its connection: once for all times since
    /// the last call.
    fn on_wake(&mut self, output: &mut Output<'_>) {
        let _ = output;
    }

    /// Called with what [handles](Handle) have left for it. By default it sends what is to be sent, as far as there is
    /// room (what is left comes again), calls [`on_wake`](Self::on_wake) where it was woken, and finishes where that
    /// was asked for. A handler that stands before another one, as a filter's, passes it on with its own output, as
    /// every call.
    fn on_mail(&mut self, mail: &mut Mail, output: &mut Output<'_>) {
        mail.send(output);
        if mail.take_wake() {
            self.on_wake(output);
        }
        mail.finish(output);
    }

    /// What it asks of its connection besides; read after each call of the others. Handlers that ask for
    /// nothing pay nothing.
    #[inline]
    fn asks(&self) -> Asks {
        Asks::NOTHING
    }

    /// Called once, last of all, with the reason. After a panic ([`Reason::Panicked`]) it is not called: the handler may
    /// be in any state then, and what it holds is dropped.
    fn on_close(&mut self, reason: &Reason) {
        let _ = reason;
    }
}

impl<F: FnMut(&mut [u8], &mut Output<'_>) + Send + 'static> Handler for F {
    fn on_receive(&mut self, bytes: &mut [u8], output: &mut Output<'_>) {
        self(bytes, output);
    }
}

/// All functions of a handler but `on_connect` and `on_wake`, which the last one calls itself, each passed on to the handler that one of these patterns names; where
/// it fits none, nothing comes of the call.
macro_rules! passed_on {
    ($next:ident: $($to:pat),+) => {
        #[inline]
        fn on_receive(&mut self, bytes: &mut [u8], output: &mut $crate::tcp::Output<'_>) {
            $crate::tcp::passed_on!(@ self, $next.on_receive(bytes, output), $($to),+)
        }

        #[inline]
        fn on_sent(&mut self, bytes: usize, output: &mut $crate::tcp::Output<'_>) {
            $crate::tcp::passed_on!(@ self, $next.on_sent(bytes, output), $($to),+)
        }

        #[inline]
        fn on_end(&mut self, output: &mut $crate::tcp::Output<'_>) {
            $crate::tcp::passed_on!(@ self, $next.on_end(output), $($to),+)
        }

        #[inline]
        fn on_stop(&mut self, output: &mut $crate::tcp::Output<'_>) {
            $crate::tcp::passed_on!(@ self, $next.on_stop(output), $($to),+)
        }

        #[inline]
        fn on_time(&mut self, output: &mut $crate::tcp::Output<'_>) {
            $crate::tcp::passed_on!(@ self, $next.on_time(output), $($to),+)
        }

        #[inline]
        fn on_mail(&mut self, mail: &mut $crate::tcp::Mail, output: &mut $crate::tcp::Output<'_>) {
            $crate::tcp::passed_on!(@ self, $next.on_mail(mail, output), $($to),+)
        }

        #[inline]
        fn asks(&self) -> $crate::tcp::Asks {
            $crate::tcp::passed_on!(@ self, $next.asks(), $($to),+)
        }

        #[inline]
        fn on_close(&mut self, reason: &$crate::tcp::Reason) {
            $crate::tcp::passed_on!(@ self, $next.on_close(reason), $($to),+)
        }
    };
    (@ $own:ident, $call:expr, $($to:pat),+) => {
        #[allow(unreachable_patterns, reason = "they may be all that there are")]
        match $own { $($to => $call,)+ _ => Default::default() }
    };
}
pub(crate) use passed_on;

/// Makes the handler of each connection from the address of its peer; of an outgoing one from what it was given.
pub(super) type MakeHandler<H> = Box<dyn Fn(SocketAddr, Option<Given>) -> H + Send + Sync>;

/// A handler of any type.
pub(super) struct Boxed(Box<dyn Handler>);

impl Boxed {
    /// Makes handlers as `make_handler` does, in boxes.
    pub(super) fn made_by<H: Handler>(make_handler: MakeHandler<H>) -> MakeHandler<Self> {
        Box::new(move |peer, given| Self(Box::new(make_handler(peer, given))))
    }
}

impl Handler for Boxed {
    #[inline]
    fn on_connect(&mut self, peer: SocketAddr, output: &mut Output<'_>) {
        self.0.on_connect(peer, output);
    }

    passed_on!(next: Boxed(next));
}

settings! {
    /// What a handler asks of its connection.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct Asks {
        /// To be called then ([`Handler::on_time`]), if it still asks for it by then. There may be thousands, one for each
        /// connection; while none is asked for no thread wakes up for any. A handler that waits for several things asks
        /// for the first of them, and then for the next.
        pub deadline: Option<Instant>,
        /// That nothing is received for now, so the peer's own sending comes to rest. What has been received
        /// already may still come. The handler needs a deadline, or output that waits, to take it back; a
        /// connection that has finished is received from all the same, and what comes is dropped.
        pub pause: bool,
        /// That sending does not end, since output follows that it holds back. It needs a deadline, or
        /// output that waits, to bring it.
        pub holds: bool,
        /// That receiving goes on whatever becomes of sending, for who answers to somebody else, as a proxy: while the output
        /// is full, and when this side has finished ([`Output::finish`]). Otherwise nothing is received while it is full; and
        /// when it has finished what comes is dropped, and the peer has [`Limits::linger`](super::Limits::linger) to close.
        pub hears: bool,
    }
}

impl Asks {
    /// Nothing.
    pub const NOTHING: Self = Self { deadline: None, pause: false, holds: false, hears: false };

    /// To be called at this moment too, if any: the sooner one counts.
    #[must_use]
    pub fn at(mut self, deadline: Option<Instant>) -> Self {
        self.deadline = [self.deadline, deadline].into_iter().flatten().min();
        self
    }
}

/// Takes what a handler sends.
#[derive(Debug)]
pub struct Output<'a> {
    pub(crate) queue: &'a mut Queue,
    pub(crate) spare: &'a mut Spare,
    pub(crate) limit: usize,
    pub(crate) echo: Echo,
    pub(crate) finished: &'a mut bool,
    pub(crate) end: Option<Box<Reason>>,
    pub(crate) refused: u64,
    /// The time, once it was asked for.
    pub(crate) now: Option<Instant>,
    /// How long each message is that was sent, for a filter that keeps them apart.
    pub(crate) messages: Option<&'a mut Vec<usize>>,
    /// How the connection is reached from elsewhere.
    pub(super) reach: &'a mut Reach,
    pub(super) mailbox: &'a Arc<Mailbox>,
    /// The session of TLS that the handler stands behind.
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<&'a rustls::ServerConnection>,
}

/// Whether what was received goes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Echo {
    /// Nothing was received.
    Nothing,
    Possible,
    Asked,
    /// Something was sent before it.
    TooLate,
    /// As much waits as may, of a connection that hears on all the same.
    Full,
}

impl Output<'_> {
    /// Sends the bytes received back, as they stand when the handler returns, and without copying
    /// them where the system takes them at once. They go before whatever else this call
    /// sends. A second call changes nothing.
    ///
    /// # Errors
    /// [`Refused`], counted.
    pub fn echo(&mut self) -> Result<(), Refused> {
        match self.echo {
            _ if *self.finished => self.refuse(Refused::Finished),
            Echo::Nothing => self.refuse(Refused::NothingReceived),
            Echo::TooLate => self.refuse(Refused::TooLate),
            Echo::Full => self.refuse(Refused::Full),
            Echo::Possible | Echo::Asked => {
                self.echo = Echo::Asked;
                Ok(())
            }
        }
    }

    /// Sends a copy of `bytes`: all of them, or none.
    ///
    /// # Errors
    /// [`Refused`], counted.
    pub fn send(&mut self, bytes: &[u8]) -> Result<(), Refused> {
        if *self.finished {
            return self.refuse(Refused::Finished);
        }
        if bytes.len() > self.room() {
            return self.refuse(Refused::Full);
        }
        if self.echo == Echo::Possible && !bytes.is_empty() {
            self.echo = Echo::TooLate;
        }
        self.queue.borrow(self.spare);
        self.queue.push(bytes);
        if let Some(messages) = &mut self.messages {
            messages.push(bytes.len());
        }
        Ok(())
    }

    /// Bytes that [`send`](Self::send) would take now.
    pub fn room(&self) -> usize {
        if *self.finished { 0 } else { self.limit.saturating_sub(self.queue.len()) }
    }

    /// Bytes that wait for the peer to take them.
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Whether nothing more can be sent.
    pub fn is_finished(&self) -> bool {
        *self.finished
    }

    /// Says that nothing follows: what waits is sent, then the peer is told. What it still sends is
    /// dropped, until it closes too, unless the handler [hears](Asks::hears) on.
    pub fn finish(&mut self) {
        *self.finished = true;
        self.reach.finish();
    }

    /// Breaks the connection off: what waits is lost, and the peer sees a reset.
    pub fn abort(&mut self) {
        self.end.get_or_insert_with(|| Box::new(Reason::Aborted));
    }

    /// Breaks the connection off as [`abort`](Self::abort) does, for this reason
    /// ([`Reason::Filter`]).
    #[cold]
    pub fn close(&mut self, why: impl Into<String>) {
        self.end.get_or_insert_with(|| {
            let why = why.into();
            event!(DEBUG, why, "a filter breaks a connection off");
            Box::new(Reason::Filter(why))
        });
    }

    /// Finishes the connection as [`finish`](Self::finish) does, for this reason
    /// ([`Reason::Declined`]): what waits is sent.
    #[cold]
    pub fn decline(&mut self, why: impl Into<String>) {
        self.finish();
        self.end.get_or_insert_with(|| {
            let why = why.into();
            event!(DEBUG, why, "a filter shuts a connection down");
            Box::new(Reason::Declined(why))
        });
    }

    /// A handle of the connection, for other threads and for the handlers of other connections. The first one makes its
    /// inbox, 150 bytes or so.
    pub fn handle(&mut self) -> Handle {
        let handle = self.reach.handle(self.mailbox);
        if *self.finished {
            self.reach.finish();
        }
        handle
    }

    /// The session of TLS that the handler stands behind ([`Tls`](crate::filter::Tls)), whose handshake is over: what
    /// the client asked for (`server_name`, SNI of RFC 6066), what was agreed upon (`alpn_protocol`, RFC 7301; version,
    /// cipher suite) and who the client is (`peer_certificates`). `None` without TLS, and before it.
    #[cfg(feature = "tls")]
    pub fn tls(&self) -> Option<&rustls::ServerConnection> {
        self.tls
    }

    /// The time. It is read once a call.
    pub fn now(&mut self) -> Instant {
        *self.now.get_or_insert_with(Instant::now)
    }

    /// The output of a handler behind a filter that changes or holds back what it sends: it goes into
    /// `queue`, which holds at most `limit` bytes, and `messages` is told how it was cut.
    pub(crate) fn inner<'b>(
        &'b mut self,
        queue: &'b mut Queue,
        limit: usize,
        echo: Echo,
        finished: &'b mut bool,
        messages: Option<&'b mut Vec<usize>>,
    ) -> Output<'b> {
        let Self { spare, now, reach, mailbox, .. } = self;
        let (end, refused, now) = (None, 0, *now);
        Output {
            queue,
            spare,
            limit,
            echo,
            finished,
            end,
            refused,
            now,
            messages,
            reach,
            mailbox,
            #[cfg(feature = "tls")]
            tls: self.tls,
        }
    }

    /// What a call brought that is not output.
    pub(crate) fn outcome(self) -> Outcome {
        Outcome {
            echo: self.echo == Echo::Asked,
            end: self.end,
            refused: self.refused,
            now: self.now,
        }
    }

    /// Makes the outcome of a call behind a filter its own. Says whether an echo was asked for. An end in
    /// order goes into `end`, since what the filter holds back is to be sent before it:
    /// [`end_in_order`](Self::end_in_order).
    pub(crate) fn take_over(&mut self, outcome: Outcome, end: &mut Option<Box<Reason>>) -> bool {
        let Outcome { echo, end: its, refused, now } = outcome;
        match its {
            Some(reason) if matches!(*reason, Reason::Declined(_)) => _ = end.get_or_insert(reason),
            Some(reason) => _ = self.end.get_or_insert(reason),
            None => {}
        }
        self.refused += refused;
        self.now = now;
        echo
    }

    /// Finishes, for this reason if any.
    pub(crate) fn end_in_order(&mut self, reason: Option<Box<Reason>>) {
        self.finish();
        self.end = self.end.take().or(reason);
    }

    fn refuse(&mut self, why: Refused) -> Result<(), Refused> {
        self.refused += 1;
        Err(why)
    }
}

impl Mail {
    /// Sends as much of the bytes as there is room for; what is left comes again. Where nothing more can be sent they are
    /// lost, as what a handler sends is.
    pub fn send(&mut self, output: &mut Output<'_>) {
        if output.is_finished() {
            output.reach.finish(); // also where it was a filter that has finished
            self.take(self.bytes().len());
        }
        let fit = self.bytes().len().min(output.room());
        if fit > 0 && output.send(&self.bytes()[..fit]).is_ok() {
            self.take(fit);
        }
    }

    /// Finishes, where that was asked for and all bytes were sent.
    pub fn finish(&mut self, output: &mut Output<'_>) {
        if self.take_close() {
            output.finish();
        }
    }
}

/// What a call of a handler brought besides output.
pub(crate) struct Outcome {
    echo: bool,
    end: Option<Box<Reason>>,
    refused: u64,
    now: Option<Instant>,
}

/// Output that waits for room. Empty, it holds no memory.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    bytes: Vec<u8>,
    /// Those before it were taken.
    start: usize,
}

impl Queue {
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        // Moving is no dearer than what it moves: at least as much was taken since the last time.
        if self.start >= self.len() && self.start > 0 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Puts bytes before all others.
    pub(crate) fn push_front(&mut self, bytes: &[u8]) {
        if bytes.len() <= self.start {
            self.start -= bytes.len();
            self.bytes[self.start..][..bytes.len()].copy_from_slice(bytes);
        } else {
            self.bytes.drain(..self.start);
            self.start = 0;
            self.insert(0, bytes);
        }
    }

    /// Puts bytes behind the first `before` ones.
    pub(crate) fn insert(&mut self, before: usize, bytes: &[u8]) {
        // In blocks, which splicing in an iterator is not; what was appended only makes room.
        let (at, end) = (self.start + before, self.bytes.len());
        self.bytes.extend_from_slice(bytes);
        self.bytes.copy_within(at..end, at + bytes.len());
        self.bytes[at..][..bytes.len()].copy_from_slice(bytes);
    }

    /// Takes so many bytes out, behind the first `at` ones.
    pub(crate) fn remove(&mut self, at: usize, count: usize) {
        let from = self.start + at;
        self.bytes.drain(from..from + count);
    }

    /// Forgets so many bytes, which were taken. Memory goes to `spare` when none is left.
    pub(crate) fn take(&mut self, count: usize, spare: &mut Spare) {
        self.start += count;
        debug_assert!(self.start <= self.bytes.len());
        if self.is_empty() {
            spare.put(std::mem::take(&mut self.bytes));
            self.start = 0;
        }
    }

    /// Moves all bytes into `out`, which is empty, and takes its memory in return.
    pub(crate) fn move_into(&mut self, out: &mut Vec<u8>) {
        self.bytes.drain(..self.start);
        self.start = 0;
        std::mem::swap(&mut self.bytes, out);
    }

    /// Makes room before the first push, from memory that another connection needs no longer.
    pub(crate) fn borrow(&mut self, spare: &mut Spare) {
        if self.bytes.capacity() == 0 {
            self.bytes = spare.get();
        }
    }
}

/// Memory of queues that are empty, for those that will not be.
#[derive(Debug, Default)]
pub(crate) struct Spare(Vec<Vec<u8>>);

impl Spare {
    /// Most pieces kept, and most bytes of each: 4 MiB for each thread.
    const MOST: usize = 64;
    const LONGEST: usize = 64 * 1024;

    pub(super) fn put(&mut self, mut bytes: Vec<u8>) {
        if bytes.capacity() > 0 && bytes.capacity() <= Self::LONGEST && self.0.len() < Self::MOST {
            bytes.clear();
            self.0.push(bytes);
        }
    }

    fn get(&mut self) -> Vec<u8> {
        self.0.pop().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    #[derive(Debug, Clone)]
    enum Step {
        Push(Vec<u8>),
        Front(Vec<u8>),
        Take(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        let bytes = || prop::collection::vec(any::<u8>(), 0..50);
        prop_oneof![
            bytes().prop_map(Step::Push),
            bytes().prop_map(Step::Front),
            (0..60usize).prop_map(Step::Take),
        ]
    }

    proptest! {
        #[test]
        fn a_queue_is_a_queue(steps in prop::collection::vec(step(), 1..60)) {
            let (mut queue, mut model) = (Queue::default(), VecDeque::new());
            let mut spare = Spare::default();
            for step in steps {
                match step {
                    Step::Push(bytes) => {
                        queue.borrow(&mut spare);
                        queue.push(&bytes);
                        model.extend(bytes);
                    }
                    Step::Front(bytes) => {
                        queue.push_front(&bytes);
                        bytes.into_iter().rev().for_each(|byte| model.push_front(byte));
                    }
                    Step::Take(count) => {
                        let count = count.min(queue.len());
                        queue.take(count, &mut spare);
                        model.drain(..count);
                    }
                }
                prop_assert_eq!(queue.len(), model.len());
                prop_assert!(queue.bytes().iter().eq(&model));
            }
            queue.take(queue.len(), &mut spare);
            prop_assert_eq!(queue.bytes.capacity(), 0);
        }
    }
}
