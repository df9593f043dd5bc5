//! Reaching a connection from elsewhere: a [`Handle`] of it, what waits for it ([`Mail`]), and the mailbox of those that
//! serve it.
//!
//! A connection belongs to its thread. Who has a handle leaves what is meant for the connection in an inbox of its own, which
//! is bounded, and its slot in the mailbox of its thread, whose wait is ended once. The thread settles the connections
//! of these slots as it does after whatever else happened to them, and settling takes what is in the inbox. So a slot is a hint,
//! and one that was given to another connection meanwhile harms nobody; and a handle whose connection has gone finds its
//! inbox closed. A connection of which no handle was asked for has no inbox.

use super::Refused;
use crate::{lifecycle::lock, stream::Accepted, wake::Waker};
use std::{
    any::Any,
    cell::Cell,
    mem, ptr,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

/// The handler of an outgoing connection, on its way to it.
pub(super) type Given = Box<dyn Any + Send>;

/// A connection on its way to those that serve it.
pub(super) struct Incoming {
    pub(super) accepted: Accepted,
    /// The handler that it was given, where it is an outgoing one.
    pub(super) given: Option<Given>,
}

impl From<Accepted> for Incoming {
    fn from(accepted: Accepted) -> Self {
        Self { accepted, given: None }
    }
}

/// The slots of connections that something waits for, each once at most; and connections that others have made.
pub(crate) struct Mailbox {
    content: Mutex<Content>,
    /// Whether there is any. Changed under the lock.
    any: AtomicBool,
    /// Ends the wait of those that take them.
    waker: OnceLock<Waker>,
    /// Bytes that may wait for a connection.
    most: usize,
}

#[derive(Default)]
struct Content {
    slots: Vec<u32>,
    /// No more than there may be connections.
    came: Vec<Incoming>,
    /// Those that take were woken since they last did.
    woken: bool,
    /// Nobody takes connections from it any more.
    shut: bool,
}

/// The mailbox that the calling thread serves, as a number; 0 where it serves none.
pub(super) fn served() -> usize {
    SERVED.get().addr()
}

thread_local! {
    /// The mailbox that the calling thread looks into before it waits: to be compared, and nothing else.
    static SERVED: Cell<*const Mailbox> = const { Cell::new(ptr::null()) };
}

impl Mailbox {
    /// One of connections for each of which so many bytes may wait. Nobody is woken yet.
    pub(super) fn new(most: usize) -> Self {
        let (content, any, waker) = (Mutex::default(), AtomicBool::new(false), OnceLock::new());
        Self { content, any, waker, most }
    }

    /// Whose wait ends when something comes: to be said once, before there are connections.
    pub(super) fn wakes(&self, waker: Waker) {
        let _ = self.waker.set(waker);
    }

    /// The calling thread looks into it before each of its waits from now on: it need not be woken by itself.
    pub(super) fn serve(&self) {
        SERVED.set(self);
    }

    /// Whether anything is in it.
    #[inline]
    pub(super) fn any(&self) -> bool {
        self.any.load(Relaxed)
    }

    /// Moves all slots into `slots`, and gives the connections that came.
    #[cold]
    pub(super) fn take(&self, slots: &mut Vec<u32>) -> Vec<Incoming> {
        let mut content = lock(&self.content);
        self.any.store(false, Relaxed);
        content.woken = false;
        slots.append(&mut content.slots);
        mem::take(&mut content.came)
    }

    /// Takes a connection, unless it is shut.
    pub(super) fn bring(&self, incoming: Incoming) -> Result<(), Incoming> {
        let mut content = lock(&self.content);
        if content.shut {
            return Err(incoming);
        }
        content.came.push(incoming);
        self.tell(content);
        Ok(())
    }

    /// Takes no more connections. Gives those that came.
    pub(super) fn shut(&self) -> Vec<Incoming> {
        let mut content = lock(&self.content);
        content.shut = true;
        mem::take(&mut content.came)
    }

    fn post(&self, slot: u32) {
        let mut content = lock(&self.content);
        content.slots.push(slot);
        self.tell(content);
    }

    fn tell(&self, mut content: MutexGuard<'_, Content>) {
        self.any.store(true, Relaxed);
        // A thread that serves it comes here by itself, but nobody else can rely on when.
        let wakes = !content.woken && !ptr::eq(SERVED.get(), self);
        content.woken |= wakes;
        drop(content);
        if wakes && let Some(waker) = self.waker.get() {
            waker.wake();
        }
    }
}

/// How a connection is reached.
#[derive(Debug, Default)]
pub(crate) struct Reach {
    /// Where a handle was asked for.
    inbox: Option<Arc<Inbox>>,
    /// Where it stands among those that its thread serves, once it does.
    slot: Option<u32>,
}

impl Reach {
    /// It stands there from now on.
    pub(super) fn place(&mut self, mailbox: &Arc<Mailbox>, slot: u32) {
        self.slot = Some(slot);
        if let Some(inbox) = &self.inbox {
            inbox.place(mailbox, slot);
        }
    }

    /// Whether something waits for it.
    #[inline]
    pub(super) fn has_mail(&self) -> bool {
        self.inbox.as_ref().is_some_and(|inbox| inbox.waits.load(Relaxed))
    }

    /// Whether a handle of it was asked for.
    #[inline]
    pub(super) fn is_known(&self) -> bool {
        self.inbox.is_some()
    }

    pub(super) fn inbox(&self) -> Option<Arc<Inbox>> {
        self.inbox.clone()
    }

    /// A handle.
    pub(super) fn handle(&mut self, mailbox: &Arc<Mailbox>) -> Handle {
        let slot = self.slot;
        let new = || Arc::new(Inbox::new(mailbox, slot));
        Handle { inbox: Arc::clone(self.inbox.get_or_insert_with(new)) }
    }

    /// Nothing more can be sent on it.
    pub(super) fn finish(&self) {
        if let Some(inbox) = &self.inbox {
            lock(&inbox.state).finished = true;
        }
    }

    /// It has gone.
    pub(super) fn hang_up(&self) {
        if let Some(inbox) = &self.inbox {
            inbox.close();
        }
    }
}

/// However a connection goes, its handles say so: also where its thread failed.
impl Drop for Reach {
    fn drop(&mut self) {
        self.hang_up();
    }
}

/// What handles have left for a connection.
#[derive(Debug)]
pub(super) struct Inbox {
    state: Mutex<InboxState>,
    /// Whether anything is in it. Changed under the lock.
    waits: AtomicBool,
    most: usize,
}

#[derive(Debug)]
struct InboxState {
    mail: Mail,
    /// Bytes that the handler has in its hands, until what it leaves of them is put back.
    away: usize,
    /// Its slot is in the mailbox.
    posted: bool,
    /// Where that is, once the connection has a place.
    to: Option<(Arc<Mailbox>, u32)>,
    /// Nothing more can be sent on the connection.
    finished: bool,
    /// The connection has gone.
    closed: bool,
}

impl InboxState {
    /// Whether so many bytes more may wait.
    ///
    /// # Errors
    /// Why not.
    fn admit(&self, bytes: usize, most: usize) -> Result<(), Refused> {
        match bytes <= most.saturating_sub(self.mail.len() + self.away) {
            _ if self.finished => Err(Refused::Finished),
            true => Ok(()),
            false => Err(Refused::Full),
        }
    }
}

impl std::fmt::Debug for Mailbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mailbox").field("any", &self.any).finish_non_exhaustive()
    }
}

impl Inbox {
    fn new(mailbox: &Arc<Mailbox>, slot: Option<u32>) -> Self {
        let to = slot.map(|slot| (Arc::clone(mailbox), slot));
        let mail = Mail::default();
        let state = InboxState { mail, away: 0, posted: false, to, finished: false, closed: false };
        Self { state: Mutex::new(state), waits: AtomicBool::new(false), most: mailbox.most }
    }

    /// Leaves something, and tells whoever serves the connection.
    fn put(&self, put: impl FnOnce(&mut InboxState) -> Result<(), Refused>) -> Result<(), Refused> {
        let mut state = lock(&self.state);
        if state.closed {
            return Err(Refused::Gone);
        }
        put(&mut state)?;
        self.waits.store(true, Relaxed);
        self.post(state);
        Ok(())
    }

    fn post(&self, mut state: MutexGuard<'_, InboxState>) {
        if state.posted || state.mail.is_empty() {
            return;
        }
        if let Some((mailbox, slot)) = state.to.clone() {
            state.posted = true;
            drop(state);
            mailbox.post(slot);
        }
    }

    fn place(&self, mailbox: &Arc<Mailbox>, slot: u32) {
        let mut state = lock(&self.state);
        state.to = Some((Arc::clone(mailbox), slot));
        self.post(state);
    }

    /// What is in it.
    pub(super) fn take(&self) -> Mail {
        let mut state = lock(&self.state);
        state.posted = false;
        self.waits.store(false, Relaxed);
        let mail = mem::take(&mut state.mail);
        state.away = mail.len();
        mail
    }

    /// Puts back what there was no room for, before what has come meanwhile. It is taken again when the connection is
    /// settled next: what leaves too little room is under way, and its end settles it.
    pub(super) fn put_back(&self, mut mail: Mail) {
        let mut state = lock(&self.state);
        state.away = 0;
        if !state.closed && !mail.is_empty() {
            mail.append(mem::take(&mut state.mail));
            state.mail = mail;
            self.waits.store(true, Relaxed);
        }
    }

    fn close(&self) {
        let mut state = lock(&self.state);
        (state.closed, state.to, state.mail) = (true, None, Mail::default());
        self.waits.store(false, Relaxed);
    }
}

/// A connection as other threads, and the handlers of others, reach it: [`Output::handle`](super::Output::handle). Cheap to clone, and safe to use
/// when the connection has gone.
///
/// What is left with it reaches the connection's handler in [`Handler::on_mail`](super::Handler::on_mail), on the thread
/// that serves the connection, behind its filters. A server that stops still sends what has reached its handler by then.
#[derive(Debug, Clone)]
pub struct Handle {
    inbox: Arc<Inbox>,
}

impl Handle {
    /// Sends a copy of `bytes`, all of them or none, behind what was sent before with any handle of this connection. They
    /// wait for room in its output where it has none. So many bytes may wait besides as may in its output
    /// ([`Limits::output_bytes`](super::Limits::output_bytes)). What waits when the connection finishes is lost, as is
    /// what waits when it goes.
    ///
    /// # Errors
    /// [`Refused::Full`] where as many wait as may: [`wake`](Self::wake) the one that sends when this connection's
    /// [`on_sent`](super::Handler::on_sent) finds that there is room. [`Refused::Finished`] where the connection sends
    /// nothing more, [`Refused::Gone`] where it has gone.
    pub fn send(&self, bytes: &[u8]) -> Result<(), Refused> {
        let most = self.inbox.most;
        self.inbox.put(|state| {
            state.admit(bytes.len(), most)?;
            state.mail.bytes.extend_from_slice(bytes);
            Ok(())
        })
    }

    /// Bytes that [`send`](Self::send) would take now; none where the connection has finished or gone. Others may have
    /// sent by the time that one does.
    pub fn room(&self) -> usize {
        let state = lock(&self.inbox.state);
        match state.closed || state.finished {
            true => 0,
            false => self.inbox.most.saturating_sub(state.mail.len() + state.away),
        }
    }

    /// Has the connection finish once what was sent before has gone out: as [`Output::finish`](super::Output::finish) does. One that has gone
    /// already is left alone.
    pub fn close(&self) {
        let _ = self.inbox.put(|state| {
            state.mail.close = true;
            Ok(())
        });
    }

    /// Has the handler called on its thread ([`Handler::on_wake`](super::Handler::on_wake)): once for all times that it
    /// was woken since the last call.
    ///
    /// # Errors
    /// [`Refused::Gone`] where the connection has gone.
    pub fn wake(&self) -> Result<(), Refused> {
        self.inbox.put(|state| {
            state.mail.wake = true;
            Ok(())
        })
    }

    /// Whether the connection has gone.
    pub fn is_gone(&self) -> bool {
        lock(&self.inbox.state).closed
    }

    /// Whether both are of the same connection.
    pub fn is_of_same(&self, other: &Handle) -> bool {
        Arc::ptr_eq(&self.inbox, &other.inbox)
    }
}

/// What handles of a connection have left for it since its handler was last told.
#[derive(Debug, Default)]
pub struct Mail {
    /// What is to be sent; those before `taken` were.
    bytes: Vec<u8>,
    taken: usize,
    wake: bool,
    close: bool,
}

impl Mail {
    fn len(&self) -> usize {
        self.bytes.len() - self.taken
    }

    fn is_empty(&self) -> bool {
        self.bytes().is_empty() && !self.wake && !self.close
    }

    fn append(&mut self, behind: Mail) {
        self.bytes.drain(..self.taken);
        self.taken = 0;
        self.bytes.extend_from_slice(&behind.bytes[behind.taken..]);
        self.wake |= behind.wake;
        self.close |= behind.close;
    }

    /// The bytes that are to be sent, one behind the other: what was sent with one call is not kept apart.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.taken..]
    }

    /// So many of them were sent.
    pub(super) fn take(&mut self, count: usize) {
        self.taken += count;
    }

    /// Whether the handler was woken: `true` once.
    pub fn take_wake(&mut self) -> bool {
        mem::take(&mut self.wake)
    }

    /// Whether finishing was asked for, and all bytes were sent: `true` once.
    pub(super) fn take_close(&mut self) -> bool {
        self.bytes().is_empty() && mem::take(&mut self.close)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        sync::atomic::{AtomicU32, AtomicUsize},
        thread,
    };

    fn mailbox(most: usize) -> (Arc<Mailbox>, Arc<AtomicU32>) {
        let (mailbox, woken) = (Arc::new(Mailbox::new(most)), Arc::new(AtomicU32::new(0)));
        let count = Arc::clone(&woken);
        mailbox.wakes(Waker::new(move || _ = count.fetch_add(1, Relaxed)));
        (mailbox, woken)
    }

    fn slots(mailbox: &Mailbox) -> Vec<u32> {
        let mut slots = Vec::new();
        mailbox.take(&mut slots);
        slots
    }

    #[test]
    fn a_slot_is_posted_once_until_it_is_taken() {
        let (mailbox, woken) = mailbox(10);
        let (mut one, mut other) = (Reach::default(), Reach::default());
        one.place(&mailbox, 3);
        other.place(&mailbox, 5);
        assert!(!one.is_known() && !one.has_mail() && !mailbox.any());
        let (to_one, to_other) = (one.handle(&mailbox), other.handle(&mailbox));
        assert!(!to_one.is_of_same(&to_other) && to_one.is_of_same(&one.handle(&mailbox)));
        to_one.send(b"hello").unwrap();
        to_one.wake().unwrap();
        to_other.wake().unwrap();
        assert!(one.has_mail() && other.has_mail() && mailbox.any());
        assert_eq!((slots(&mailbox), woken.load(Relaxed)), (vec![3, 5], 1));
        assert!(!mailbox.any());
        // Not again before it was taken.
        to_one.send(b"!").unwrap();
        assert!(!mailbox.any());
        let mut mail = one.inbox().unwrap().take();
        assert_eq!(mail.bytes(), b"hello!");
        assert_eq!((mail.take_wake(), mail.take_wake()), (true, false));
        to_one.wake().unwrap();
        assert_eq!((slots(&mailbox), woken.load(Relaxed)), (vec![3], 2));
    }

    #[test]
    fn a_thread_that_looks_is_not_woken_by_itself() {
        let (mailbox, woken) = mailbox(10);
        let mut reach = Reach::default();
        reach.place(&mailbox, 3);
        let handle = reach.handle(&mailbox);
        thread::scope(|scope| {
            scope.spawn(|| {
                mailbox.serve();
                handle.wake().unwrap();
                assert_eq!((slots(&mailbox), woken.load(Relaxed)), (vec![3], 0));
            });
        });
        reach.inbox().unwrap().take();
        handle.wake().unwrap();
        assert_eq!((slots(&mailbox), woken.load(Relaxed)), (vec![3], 1));
    }

    /// The one that has left something for itself may be at work for long, and others may wait meanwhile.
    #[test]
    fn who_comes_second_wakes_where_the_first_one_had_not() {
        let (mailbox, woken) = mailbox(10);
        let reaches = [0, 1, 2].map(|slot| {
            let mut reach = Reach::default();
            reach.place(&mailbox, slot);
            reach
        });
        let handles = reaches.map(|mut reach| (reach.handle(&mailbox), reach));
        thread::scope(|scope| {
            scope.spawn(|| {
                mailbox.serve();
                handles[0].0.wake().unwrap();
            });
        });
        assert!(mailbox.any() && woken.load(Relaxed) == 0);
        handles[1..].iter().for_each(|(handle, _)| handle.wake().unwrap());
        assert_eq!((slots(&mailbox), woken.load(Relaxed)), (vec![0, 1, 2], 1));
    }

    #[test]
    fn a_handle_of_what_has_finished_says_so() {
        let (mailbox, _) = mailbox(10);
        let mut reach = Reach::default();
        reach.place(&mailbox, 3);
        let handle = reach.handle(&mailbox);
        handle.send(b"before").unwrap();
        reach.finish();
        assert_eq!((handle.send(b"!"), handle.room()), (Err(Refused::Finished), 0));
        assert_eq!(handle.send(b"more than may wait"), Err(Refused::Finished));
        // It is still there: to be woken, and to go.
        assert_eq!((handle.wake(), handle.is_gone()), (Ok(()), false));
        reach.hang_up();
        assert_eq!((handle.send(b"!"), handle.wake()), (Err(Refused::Gone), Err(Refused::Gone)));
    }

    #[test]
    fn what_waits_is_bounded_and_comes_in_order() {
        let (mailbox, _) = mailbox(10);
        let mut reach = Reach::default();
        reach.place(&mailbox, 0);
        let handle = reach.handle(&mailbox);
        handle.send(b"01234567").unwrap();
        assert_eq!((handle.room(), handle.send(b"89a")), (2, Err(Refused::Full)));
        let inbox = reach.inbox().unwrap();
        let mut mail = inbox.take();
        mail.taken = 3;
        // What the handler has in its hands counts: it may put all of it back.
        assert_eq!((handle.room(), handle.send(b"89a")), (2, Err(Refused::Full)));
        handle.send(b"89").unwrap();
        handle.close();
        inbox.put_back(mail);
        assert_eq!((reach.has_mail(), handle.room()), (true, 3));
        let mail = inbox.take();
        assert_eq!((mail.bytes(), mail.close), (&b"3456789"[..], true));
        inbox.put_back(Mail::default());
        assert!(!reach.has_mail());
    }

    #[test]
    fn a_handle_of_what_has_gone_says_so() {
        let (mailbox, woken) = mailbox(10);
        let mut reach = Reach::default();
        let handle = reach.handle(&mailbox);
        // Before the connection has a place nobody can be told.
        handle.send(b"early").unwrap();
        assert!(reach.has_mail() && !mailbox.any() && !handle.is_gone());
        reach.place(&mailbox, 7);
        assert_eq!(slots(&mailbox), [7]);
        let mail = reach.inbox().unwrap().take();
        reach.hang_up();
        reach.inbox().unwrap().put_back(mail);
        assert!(handle.is_gone() && !reach.has_mail());
        assert_eq!((handle.send(b"late"), handle.wake()), (Err(Refused::Gone), Err(Refused::Gone)));
        handle.close();
        assert_eq!((handle.room(), woken.load(Relaxed), mailbox.any()), (0, 1, false));
    }

    #[test]
    fn nothing_is_lost_between_threads() {
        const EACH: usize = 1000;
        let (mailbox, _) = mailbox(64);
        let mut reach = Reach::default();
        reach.place(&mailbox, 1);
        let handle = reach.handle(&mailbox);
        let sending = AtomicUsize::new(4);
        let received = thread::scope(|scope| {
            for number in 0..4u8 {
                let (handle, sending) = (handle.clone(), &sending);
                scope.spawn(move || {
                    for _ in 0..EACH {
                        while handle.send(&[number; 3]).is_err() {
                            thread::yield_now();
                        }
                    }
                    sending.fetch_sub(1, Relaxed);
                });
            }
            let (mut received, inbox) = (Vec::new(), reach.inbox().unwrap());
            let mut take = || {
                received.extend_from_slice(inbox.take().bytes());
                inbox.put_back(Mail::default()); // nothing is left
            };
            loop {
                let over = sending.load(Relaxed) == 0;
                if !mailbox.any() && over {
                    break;
                }
                if mailbox.any() {
                    assert_eq!(slots(&mailbox), [1]);
                    take();
                }
                thread::yield_now();
            }
            take();
            received
        });
        assert_eq!(received.len(), 4 * 3 * EACH);
        for triple in received.chunks(3) {
            assert!(triple.iter().all(|byte| *byte == triple[0]), "a send was cut");
        }
    }
}
