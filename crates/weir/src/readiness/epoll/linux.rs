//! epoll_create1(2), epoll_ctl(2), epoll_wait(2), and epoll_pwait2(2) for times that are not whole milliseconds.

use crate::{
    Error, Unavailable,
    counters::Counters,
    readiness::{
        Interest, Streams, Trigger,
        wake_event::{self, WakeEvent},
    },
    rio::Woken,
    socket::{DatagramSocket, native},
    stream::{Listener, Stream},
    wake::Waker,
};
use std::{
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
    sync::Arc,
    time::Duration,
};

/// The wake event's token; those of sockets fit in 32 bits.
const WAKE_EVENT: u64 = u64::MAX;

/// A set of sockets to wait for with epoll(7).
#[derive(Debug)]
pub struct Epoll {
    set: OwnedFd,
    wake_event: Arc<WakeEvent>,
    events: Vec<libc::epoll_event>,
    ready: usize,
    /// Of those that are ready, how many were taken.
    taken: usize,
    /// The last wait had no room for more.
    full: bool,
    /// How sockets are reported, but for those that listen.
    trigger: Trigger,
    /// Whether only one of the sets that a listening socket is in reports it.
    exclusive: bool,
    /// Whether a wait may last for parts of a millisecond (epoll_pwait2, Linux 5.11): so it is until the system refuses.
    fine: bool,
    /// Kept open as long as they are in the set.
    sockets: Vec<(DatagramSocket, u32)>,
}

impl Epoll {
    /// Its name, where a provider is named.
    pub const PROVIDER: &'static str = "epoll";

    /// Whether the system has it, by trying.
    ///
    /// # Errors
    /// What it answered.
    pub fn availability() -> Result<(), Unavailable> {
        create().map(drop).map_err(|e| Unavailable::new("epoll", format!("epoll_create1: {e}")))
    }

    /// An empty set. One wait tells of at most `events_max` sockets; the others follow with the next. All sockets but those
    /// that listen are told as `trigger` says.
    ///
    /// # Errors
    /// [`Error::Io`] with what the system answered.
    pub fn new(events_max: usize, trigger: Trigger) -> Result<Self, Error> {
        let set = create().map_err(|e| Error::io("epoll_create1", e))?;
        let wake_event = Arc::new(WakeEvent::new().map_err(|e| Error::io("eventfd", e))?);
        let nothing = libc::epoll_event { events: 0, u64: 0 };
        let events = vec![nothing; events_max.max(1)];
        let epoll = Self {
            set,
            wake_event,
            events,
            ready: 0,
            taken: 0,
            full: false,
            trigger,
            exclusive: false,
            fine: true,
            sockets: Vec::new(),
        };
        epoll
            .control(libc::EPOLL_CTL_ADD, epoll.wake_event.fd(), libc::EPOLLIN, WAKE_EVENT)
            .map_err(|e| Error::io("epoll_ctl for the waker", e))?;
        Ok(epoll)
    }

    /// Has one of the sets that a listening socket is in report it, and not all (EPOLLEXCLUSIVE, Linux 4.5).
    pub fn exclusive(self, exclusive: bool) -> Self {
        Self { exclusive, ..self }
    }

    /// Adds a listening socket, to be reported as long as a connection waits.
    ///
    /// # Errors
    /// [`Error::Io`] with what the system answered.
    pub fn listen(&mut self, listener: &Listener, token: u32) -> Result<(), Error> {
        let exclusive = if self.exclusive { libc::EPOLLEXCLUSIVE } else { 0 };
        let events = libc::EPOLLIN | exclusive;
        self.control(libc::EPOLL_CTL_ADD, listener.native().fd(), events, token.into()).map_err(
            |e| Error::io(format!("epoll_ctl for the socket at {}", listener.local_address()), e),
        )
    }

    /// Adds a wake event, to be reported by its token once for each time that it was signalled since.
    pub(crate) fn watch_wake_event(
        &mut self,
        wake_event: &WakeEvent,
        token: u32,
    ) -> io::Result<()> {
        self.control(
            libc::EPOLL_CTL_ADD,
            wake_event.fd(),
            libc::EPOLLIN | libc::EPOLLET,
            token.into(),
        )
    }

    /// Takes a listening socket out of the set.
    pub fn forget_listener(&mut self, listener: &Listener) {
        // One that is not in the set need not be taken out.
        let _ = self.control(libc::EPOLL_CTL_DEL, listener.native().fd(), 0, 0);
    }

    /// Lets a wait poll the queues of devices that its sockets' datagrams come by, for so long
    /// (EPIOCSPARAMS, Linux 6.9). Says in words what came of it.
    pub fn busy_poll(&mut self, time: Duration) -> String {
        let us = native::microseconds(time);
        let params = libc::epoll_params {
            busy_poll_usecs: us,
            busy_poll_budget: native::BUDGET,
            prefer_busy_poll: 1,
            __pad: 0,
        };
        let result =
            // SAFETY: this call takes an epoll_params, which lives through it.
            unsafe { libc::ioctl(self.set.as_raw_fd(), libc::EPIOCSPARAMS, &raw const params) };
        if result == 0 {
            return format!("epoll polls for {us} µs (EPIOCSPARAMS)");
        }
        let e = io::Error::last_os_error();
        let us = native::of_the_system_us().map_or("unknown".into(), |us| us.to_string());
        format!("epoll polls for {us} µs (sysctl net.core.busy_poll): EPIOCSPARAMS: {e}")
    }

    /// Adds a socket, to be reported by its token when it can be received from.
    ///
    /// # Errors
    /// [`Error::Io`] with what the system answered; a socket can be added once.
    pub fn add(&mut self, socket: &DatagramSocket, token: u32) -> Result<(), Error> {
        let edge = if self.trigger == Trigger::Edge { libc::EPOLLET } else { 0 };
        self.control(libc::EPOLL_CTL_ADD, socket.native().fd(), libc::EPOLLIN | edge, token.into())
            .map_err(|e| {
                Error::io(format!("epoll_ctl for the socket at {}", socket.local_address()), e)
            })?;
        self.sockets.push((socket.clone(), token));
        Ok(())
    }

    /// Waits until a socket is ready, the time is over, or it is woken. `None`: no time-out.
    /// Before Linux 5.11 the time-out is rounded up to whole milliseconds. A signal may end a wait that has one, as if something
    /// were ready: what is left of the time is known to whoever waits.
    ///
    /// # Errors
    /// What the operating system answered.
    pub fn wait(&mut self, timeout: Option<Duration>, counters: &Counters) -> io::Result<Woken> {
        (self.ready, self.taken, self.full) = (0, 0, false);
        let count = loop {
            counters.kernel_entries.one();
            match self.call(timeout) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted && timeout.is_some() => {
                    return Ok(Woken::Ready);
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Ok(0) if timeout.is_none() => {} // a time-out of the system's own
                // A kernel without the call, or a sandbox that does not know it.
                Err(e)
                    if self.fine
                        && matches!(e.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) =>
                {
                    self.fine = false;
                }
                result => break result?,
            }
        };
        let (mut signalled, mut ready) = (false, 0);
        for i in 0..count {
            if self.events[i].u64 == WAKE_EVENT {
                signalled = true;
            } else {
                let event = self.events[i];
                if event.events & libc::EPOLLERR as u32 != 0 {
                    self.note_errors(event.u64);
                }
                self.events[ready] = event;
                ready += 1;
            }
        }
        (self.ready, self.full) = (ready, count == self.events.len());
        if signalled {
            counters.kernel_entries.one();
            self.wake_event.clear();
            return Ok(Woken::ByWaker);
        }
        Ok(if count == 0 { Woken::TimedOut } else { Woken::Ready })
    }

    /// The tokens of the sockets that were ready when the last wait ended.
    pub fn ready(&self) -> impl Iterator<Item = u32> {
        self.events[..self.ready].iter().map(|event| event.u64 as u32)
    }

    /// How many were ready when the last wait ended.
    #[inline]
    pub fn ready_count(&self) -> usize {
        self.ready
    }

    /// Takes the token of the next of them.
    #[inline]
    pub fn next_ready(&mut self) -> Option<u32> {
        self.next_told().map(|(token, _)| token)
    }

    /// The same, and whether its peer has ended, or it is broken.
    #[inline]
    pub(crate) fn next_told(&mut self) -> Option<(u32, bool)> {
        let event = self.events[..self.ready].get(self.taken)?;
        self.taken += 1;
        let end = (libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR) as u32;
        Some((event.u64 as u32, event.events & end != 0))
    }

    /// Whether the last wait told as many as it may, so that others may be ready.
    #[inline]
    pub(crate) fn may_have_left(&self) -> bool {
        self.full
    }

    /// Ends a wait of this set, now or the next one.
    pub fn waker(&self) -> Waker {
        wake_event::waker(&self.wake_event)
    }

    /// A descriptor that can be read from while a socket of the set is ready: for who waits for it otherwise.
    pub(crate) fn fd(&self) -> RawFd {
        self.set.as_raw_fd()
    }

    /// Has the next wait that finds a socket of another set ready tell that, once.
    pub(crate) fn tell_once(&mut self, other: RawFd, token: u32) -> io::Result<()> {
        let events = libc::EPOLLIN | libc::EPOLLONESHOT;
        match self.control(libc::EPOLL_CTL_MOD, other, events, token.into()) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                self.control(libc::EPOLL_CTL_ADD, other, events, token.into())
            }
            result => result,
        }
    }

    /// A socket stays ready until its errors are taken.
    #[cold]
    fn note_errors(&self, token: u64) {
        let of_token = |(_, its): &&(DatagramSocket, u32)| u64::from(*its) == token;
        if let Some((socket, _)) = self.sockets.iter().find(of_token) {
            socket.native().note_errors();
        }
    }

    fn call(&mut self, timeout: Option<Duration>) -> io::Result<usize> {
        let is_fine = |time: &Duration| !time.subsec_nanos().is_multiple_of(1_000_000);
        if let Some(timeout) = timeout.filter(is_fine).filter(|_| self.fine) {
            return self.call_fine(timeout);
        }
        // Rounded up: a wait is never short. A negative number means no time-out.
        let timeout_ms = timeout.map_or(-1, |timeout| {
            libc::c_int::try_from(timeout.as_nanos().div_ceil(1_000_000))
                .unwrap_or(libc::c_int::MAX)
        });
        let room = libc::c_int::try_from(self.events.len()).unwrap_or(libc::c_int::MAX);
        // SAFETY: the kernel writes at most `room` events, and there are as many.
        let count = unsafe {
            libc::epoll_wait(self.set.as_raw_fd(), self.events.as_mut_ptr(), room, timeout_ms)
        };
        if count >= 0 { Ok(count as usize) } else { Err(io::Error::last_os_error()) }
    }

    fn call_fine(&mut self, timeout: Duration) -> io::Result<usize> {
        let timeout = libc::timespec {
            tv_sec: timeout.as_secs().try_into().unwrap_or(libc::time_t::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        // By its number: the C library has it since glibc 2.35.
        // SAFETY: the kernel writes at most as many events as there are, and reads a time-out that outlives the call;
        // there is no signal mask.
        let count = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                self.set.as_raw_fd(),
                self.events.as_mut_ptr(),
                libc::c_int::try_from(self.events.len()).unwrap_or(libc::c_int::MAX),
                &raw const timeout,
                std::ptr::null::<libc::sigset_t>(),
                0usize,
            )
        };
        if count >= 0 { Ok(count as usize) } else { Err(io::Error::last_os_error()) }
    }

    fn control(
        &self,
        what: libc::c_int,
        fd: RawFd,
        events: libc::c_int,
        token: u64,
    ) -> io::Result<()> {
        let mut event = libc::epoll_event { events: events as u32, u64: token };
        // SAFETY: the event outlives the call, which copies it.
        let result = unsafe { libc::epoll_ctl(self.set.as_raw_fd(), what, fd, &raw mut event) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

impl Streams for Epoll {
    fn watch(&mut self, stream: &Stream, slot: u32, interest: Interest) -> io::Result<()> {
        let events = events(interest, self.trigger);
        self.control(libc::EPOLL_CTL_ADD, stream.native().fd(), events, slot.into())
    }

    fn change(&mut self, stream: &Stream, slot: u32, interest: Interest) -> io::Result<()> {
        let events = events(interest, self.trigger);
        self.control(libc::EPOLL_CTL_MOD, stream.native().fd(), events, slot.into())
    }

    fn forget(&mut self, stream: &Stream, _: u32) {
        // One that is not in the set need not be taken out.
        let _ = self.control(libc::EPOLL_CTL_DEL, stream.native().fd(), 0, 0);
    }
}

fn events(interest: Interest, trigger: Trigger) -> libc::c_int {
    let mut events = 0;
    if interest.receive {
        events |= libc::EPOLLIN | libc::EPOLLRDHUP;
    }
    if interest.send {
        events |= libc::EPOLLOUT;
    }
    if trigger == Trigger::Edge {
        events |= libc::EPOLLET;
    }
    events
}

fn create() -> io::Result<OwnedFd> {
    // SAFETY: takes no pointers.
    let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor, which nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
