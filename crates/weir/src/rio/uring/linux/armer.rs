//! Who arms the receives. A receive is done in the thread that armed it: the kernel interrupts that
//! thread, and there it copies.
//!
//! | | arms | copies |
//! | --- | --- | --- |
//! | `Holder` | who holds the queue when a receive has ended | the same, long after it gave the queue up |
//! | `EachHolder` | who holds the queue and is about to wait, in place of the one before | who waits |
//! | `Armer` | a thread that does nothing else | that thread |

use super::{
    KERNEL,
    common::{Common, class},
    completions::{Kind, UringCompletions, push},
    stop::ASK_AGAIN,
};
use crate::{
    counters::Counters,
    privilege,
    ring::{self, Alarm, Ring, Submissions, Token, Use, Wanted},
    rio::{
        Woken,
        sharing::{Shared as _, Sharing},
        uring::Polling,
    },
    sync::Mutex,
    wake::Waker,
};
use io_uring::{opcode, squeue};
use std::{
    io,
    sync::{Arc, mpsc},
    thread::{self, JoinHandle, ThreadId},
    time::{Duration, Instant},
};

/// Who arms.
pub(super) enum ArmedBy {
    /// Who holds the queue when a receive has ended.
    Holder,
    /// Who holds the queue and is about to wait; and who did so last.
    EachHolder(ThreadId),
    /// A thread that does nothing else.
    Armer(Armer),
}

impl ArmedBy {
    /// As a form of polling says; the calling thread arms first.
    pub fn new<T: Sharing>(polling: Polling, common: &Common<T>) -> io::Result<Self> {
        let submissions = T::for_another_thread(&common.submissions);
        Ok(match (polling, submissions) {
            (Polling::Armer, Some(submissions)) => {
                Self::Armer(Armer::start(submissions, common.sockets.len())?)
            }
            (Polling::Rearm, _) => Self::EachHolder(thread::current().id()),
            _ => Self::Holder,
        })
    }

    /// Whether the calling thread is about to wait for receives that another one armed. From now
    /// on it is the one that arms.
    #[inline]
    pub fn passes_to_this_thread(&mut self) -> bool {
        let Self::EachHolder(last) = self else { return false };
        let this = thread::current().id();
        std::mem::replace(last, this) != this
    }
}

impl<T: Sharing> UringCompletions<T> {
    /// Takes the place of another thread's receives with such as this thread arms; unless earlier
    /// ones are not over yet, which bounds them.
    ///
    /// The other thread may be receiving just now: then a few datagrams change places.
    #[cold]
    pub(super) fn replace(&mut self, counters: &Counters) -> io::Result<()> {
        if self.replaced > 0 {
            return Ok(());
        }
        self.replaced_at = Instant::now();
        let Self { common, receives, disarmed, tokens, replaced, .. } = self;
        tokens.extend(receives.iter().map(|(token, _)| token));
        common.submissions.with(|submissions| {
            for token in tokens.drain(..) {
                // SAFETY: a cancel points at nothing.
                if !unsafe { push(submissions, &[end_of_replaced(token)], counters) }? {
                    break; // this one stays armed where it is
                }
                let receive = receives.get_mut(token).expect("it is under way");
                receive.kind = Kind::Replaced;
                disarmed.push(receive.socket);
                *replaced += 1;
            }
            Ok(())
        })
    }

    /// Waits while receives that were replaced are not over: their ends complete, too, and are
    /// nothing to wake for. A cancel may have missed one that was running just then, so after a
    /// while each is asked for again; that also bounds how long the wait is for too many.
    #[cold]
    pub(super) fn wait_beside_replaced(
        &mut self,
        at_least: u32,
        timeout: Option<Duration>,
        counters: &Counters,
    ) -> io::Result<Woken> {
        let by = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            let now = Instant::now();
            if now.duration_since(self.replaced_at) >= ASK_AGAIN {
                self.replaced_at = now;
                self.ask_again(counters)?;
            }
            let left = by.map(|by| by.saturating_duration_since(now));
            let slice = left.map_or(ASK_AGAIN, |left| left.min(ASK_AGAIN));
            let Self { common, completions, replaced, .. } = self;
            let at_least = at_least.saturating_add(*replaced);
            let woken =
                common.alarm.wait(&common.ring, completions, at_least, Some(slice), counters)?;
            if woken != Woken::TimedOut || left.is_some_and(|left| left <= slice) {
                return Ok(woken);
            }
        }
    }

    /// Asks once more for the end of every receive that was replaced.
    fn ask_again(&mut self, counters: &Counters) -> io::Result<()> {
        let Self { common, receives, .. } = self;
        common.submissions.with(|submissions| {
            for (token, _) in receives.iter().filter(|(_, at)| at.kind == Kind::Replaced) {
                // SAFETY: a cancel points at nothing.
                if !unsafe { push(submissions, &[end_of_replaced(token)], counters) }? {
                    break; // the next time
                }
            }
            submissions.submit(counters)
        })
    }
}

/// The cancel of a receive that another one took the place of.
fn end_of_replaced(token: Token) -> squeue::Entry {
    opcode::AsyncCancel::new(token.user_data())
        .build()
        .user_data(Token::bare(class::REPLACE).user_data())
        .flags(squeue::Flags::SKIP_SUCCESS)
}

/// A thread that arms what it is told to. It waits in a ring of its own meanwhile: there the kernel
/// does its work, which is to copy, without a way back into the program.
pub(super) struct Armer {
    entries: mpsc::SyncSender<squeue::Entry>,
    bell: Waker,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Armer {
    fn start(submissions: Arc<Mutex<Submissions>>, sockets: usize) -> io::Result<Self> {
        let wanted =
            Wanted { r#use: Use::Interrupt, submissions: 8, completions: 64, kernel: KERNEL };
        let (io, flags) = ring::set_up("the thread that arms receives", &wanted)
            .map_err(|why| io::Error::other(why.to_string()))?;
        let alarm = Alarm::new()?;
        let bell = alarm.waker();
        // Each socket has one receive that waits, so there is always room for it.
        let (entries, wanted) = mpsc::sync_channel(sockets);
        let (ready, given_up) = mpsc::sync_channel(1);
        let run = move || {
            // It needs none, so it keeps none, whether or not a server's own threads give theirs up.
            let given = privilege::give_up();
            let may_arm = given.is_ok();
            let _ = ready.send(given);
            if may_arm { arm(io, flags, &alarm, &submissions, &wanted) } else { Ok(()) }
        };
        let thread = thread::Builder::new().name("weir-armer".into()).spawn(run)?;
        let armer = Self { entries, bell, thread: Some(thread) };
        // Whoever starts a server finds no thread of it with privilege.
        match given_up.recv() {
            Ok(given) => given.map(|()| armer),
            Err(mpsc::RecvError) => Err(io::Error::other("the thread that arms receives panicked")),
        }
    }

    /// Has a receive armed.
    ///
    /// # Errors
    /// Why the thread has ended, if it has.
    pub fn arm(&mut self, entry: squeue::Entry) -> io::Result<()> {
        if self.entries.try_send(entry).is_err() {
            return Err(self.failure());
        }
        self.bell.wake();
        Ok(())
    }

    fn failure(&mut self) -> io::Error {
        let ended = self.thread.take().map(JoinHandle::join);
        match ended {
            Some(Ok(Err(error))) => error,
            _ => io::Error::other("the thread that arms receives has ended"),
        }
    }
}

impl Drop for Armer {
    /// Ends the thread, and with it what it armed, if that is not over.
    fn drop(&mut self) {
        let (closed, _) = mpsc::sync_channel(0);
        self.entries = closed;
        self.bell.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // what it failed with was told to whoever asked it to arm
        }
    }
}

/// The thread's loop: waits, arms what it was told to, until nobody is left to tell it anything.
fn arm(
    io: io_uring::IoUring,
    flags: ring::Flags,
    alarm: &Alarm,
    submissions: &Mutex<Submissions>,
    wanted: &mpsc::Receiver<squeue::Entry>,
) -> io::Result<()> {
    // Its entries into the kernel are nobody's, as those of a thread of the kernel are.
    let counters = Counters::default();
    let (ring, mut own, mut completions) = Ring::split(io, flags);
    ring.enable()?;
    let mut armed = false;
    loop {
        if !armed {
            alarm.reset();
            // SAFETY: the alarm's time is static, and its bell is of this function's caller, as
            // the ring is of this function.
            unsafe { own.push(&alarm.entries(Token::bare(0))) }
                .map_err(|_| io::Error::other("no room for the alarm in an empty queue"))?;
            own.submit(&counters)?;
            armed = true;
        }
        loop {
            match wanted.try_recv() {
                Ok(entry) => submit(submissions, &entry, &counters)?,
                Err(mpsc::TryRecvError::Empty) => break,
                Err(mpsc::TryRecvError::Disconnected) => return Ok(()),
            }
        }
        alarm.wait(&ring, &mut completions, 1, None, &counters)?;
        armed &= completions.take().count() == 0;
    }
}

/// Submits an entry in the calling thread, and no other: under the guard all the time.
fn submit(
    submissions: &Mutex<Submissions>,
    entry: &squeue::Entry,
    counters: &Counters,
) -> io::Result<()> {
    loop {
        let mut submissions = submissions.lock().unwrap_or_else(|e| e.into_inner());
        // SAFETY: the queue that asked for it keeps what it points at until it is over.
        let pushed = unsafe { submissions.push(std::slice::from_ref(entry)) }.is_ok();
        submissions.submit(counters)?;
        drop(submissions);
        if pushed {
            return Ok(());
        }
        // The kernel had no memory for what is before it in the queue.
        thread::yield_now();
    }
}
