//! WSAEventSelect, WSAWaitForMultipleEvents, WSAEnumNetworkEvents.

use crate::{
    Error, Unavailable,
    counters::Counters,
    readiness::{
        Interest, Streams,
        network_events::{OF_LISTENER, OF_STREAM, Wanted, closed},
    },
    rio::Woken,
    socket::native::{last_error, milliseconds, new_event, tell_anew},
    stream::{Listener, Stream},
    wake::Waker,
};
use socket2::Socket;
use std::{
    io,
    os::windows::io::{AsRawHandle, AsRawSocket, OwnedHandle},
    ptr,
    sync::Arc,
    time::{Duration, Instant},
};
use windows_sys::Win32::{
    Foundation::HANDLE,
    Networking::WinSock::{
        FD_CLOSE_BIT, SOCKET, WSA_MAXIMUM_WAIT_EVENTS, WSA_WAIT_FAILED, WSA_WAIT_TIMEOUT, WSAEVENT,
        WSAEnumNetworkEvents, WSAEventSelect, WSANETWORKEVENTS, WSAResetEvent, WSASetEvent,
        WSAWaitForMultipleEvents,
    },
};

/// The name of the provider.
pub const PROVIDER: &str = "WSAEventSelect";

/// A wait takes no more (WSA_MAXIMUM_WAIT_EVENTS).
pub const MOST: u32 = WSA_MAXIMUM_WAIT_EVENTS;

/// Whether the system has it, by trying.
pub fn availability() -> Result<(), Unavailable> {
    new_event().map(drop).map_err(|e| Unavailable::new("events of sockets", e.to_string()))
}

/// An empty set, which tells one at a time.
pub fn new() -> Result<Set, Error> {
    let wake_event = new_event().map_err(|e| Error::io("making a waker", e))?;
    Ok(Set { wake_event: Arc::new(wake_event), entries: Vec::new(), told: None })
}

/// Sockets with an event each, fewer than [`MOST`].
#[derive(Debug)]
pub struct Set {
    wake_event: Arc<OwnedHandle>,
    /// Whichever was told last stands last: so of those that are ready the first has waited longest.
    entries: Vec<Entry>,
    told: Option<u32>,
}

#[derive(Debug)]
struct Entry {
    socket: SOCKET,
    event: OwnedHandle,
    token: u32,
    wanted: Wanted,
    /// It was ready, and was not told since.
    found: bool,
    /// FD_CLOSE has come, with this error: that is told once only.
    closed: Option<i32>,
    /// If it listens.
    listener: Option<Listener>,
    /// A listening socket was told: what waits still, or comes, is asked for anew.
    told: bool,
}

impl Entry {
    fn is_ready(&self) -> bool {
        self.found || self.wanted.are(0, self.closed)
    }

    /// Takes what has happened, so that the next time is told again.
    fn take_events(&mut self) -> io::Result<()> {
        let mut happened = WSANETWORKEVENTS::default();
        // SAFETY: the event is open, and the call writes one struct, which outlives it. A socket that is not open any
        // more is refused.
        let result = unsafe { WSAEnumNetworkEvents(self.socket, raw(&self.event), &mut happened) };
        if result != 0 {
            return Err(io::Error::from_raw_os_error(last_error()));
        }
        let events = happened.lNetworkEvents as u32;
        let end = closed(events, happened.iErrorCode[FD_CLOSE_BIT as usize]);
        self.closed = end.or(self.closed);
        self.found |= self.wanted.are(events, end);
        Ok(())
    }

    /// Asks a listening socket that was told whether another connection waits, and to be told of the next.
    fn ask_anew(&mut self) -> io::Result<()> {
        self.told = false;
        let Some(listener) = &self.listener else { return Ok(()) };
        let ask = |_: &Socket| {
            tell_anew(self.socket);
            select(self.socket, &self.event, OF_LISTENER)?;
            self.wanted.is_there(self.socket)
        };
        self.found = listener.native().with_socket(ask).unwrap_or(Ok(false))?;
        Ok(())
    }
}

impl Set {
    /// Adds a listening socket, to be told when a connection has come, or waits already; again after each accept.
    pub fn listen(&mut self, listener: &Listener, token: u32) -> Result<(), Error> {
        let wanted = Wanted::of_listener();
        let put = listener.native().with_socket(|socket| {
            let socket = socket.as_raw_socket() as SOCKET;
            tell_anew(socket);
            self.put(socket, token, wanted, Some(listener))
        });
        put.unwrap_or(Ok(())).map_err(|e| {
            Error::io(format!("WSAEventSelect for the socket at {}", listener.local_address()), e)
        })
    }

    /// Takes a listening socket out.
    pub fn forget_listener(&mut self, listener: &Listener) {
        let its = listener.native().as_raw_socket() as SOCKET;
        listener.native().with_socket(|_| no_more(its));
        // Where it listens no longer its number may be that of a connection.
        self.entries.retain(|entry| entry.listener.is_none() || entry.socket != its);
    }

    /// Waits until one is ready, the time is over, or it is woken. `None`: no time-out.
    pub fn wait(&mut self, timeout: Option<Duration>, counters: &Counters) -> io::Result<Woken> {
        self.told = None;
        for entry in self.entries.iter_mut().filter(|entry| entry.told) {
            counters.kernel_entries.add(2);
            entry.ask_anew()?;
        }
        let by = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            let at_once = self.entries.iter().any(Entry::is_ready);
            let left = by.map(|by| by.saturating_duration_since(Instant::now()));
            let left = if at_once { Some(Duration::ZERO) } else { left };
            counters.kernel_entries.one();
            match self.wait_once(left)? {
                Some(0) => {
                    counters.kernel_entries.one();
                    // SAFETY: the event is open.
                    unsafe { WSAResetEvent(raw(&self.wake_event)) };
                    return Ok(Woken::ByWaker);
                }
                Some(place) => {
                    counters.kernel_entries.one();
                    self.entries[place - 1].take_events()?;
                }
                None if !at_once && left.is_some_and(|left| left.is_zero()) => {
                    return Ok(Woken::TimedOut);
                }
                None => {} // a little early, or something was found before
            }
            if let Some(place) = self.entries.iter().position(Entry::is_ready) {
                let entry = &mut self.entries[place];
                entry.found = false;
                entry.told = entry.listener.is_some();
                self.told = Some(entry.token);
                self.entries[place..].rotate_left(1);
                return Ok(Woken::Ready);
            }
        }
    }

    /// Takes the token of the one that was ready when the last wait ended.
    #[inline]
    pub fn next_ready(&mut self) -> Option<u32> {
        self.told.take()
    }

    /// Nobody asks for it: nothing gathers on this system, whose timed waits end too late.
    pub fn may_have_left(&self) -> bool {
        false
    }

    /// Ends a wait of this group, now or the next one.
    pub fn waker(&self) -> Waker {
        let wake_event = Arc::clone(&self.wake_event);
        Waker::new(move || {
            // SAFETY: the event is open.
            unsafe { WSASetEvent(raw(&wake_event)) };
        })
    }

    /// Waits for the first handle that is signalled: 0 is the waker's, the others are those of the entries.
    fn wait_once(&self, timeout: Option<Duration>) -> io::Result<Option<usize>> {
        let mut handles: [HANDLE; MOST as usize] = [ptr::null_mut(); MOST as usize];
        let all =
            std::iter::once(&*self.wake_event).chain(self.entries.iter().map(|its| &its.event));
        for (place, event) in handles.iter_mut().zip(all) {
            *place = event.as_raw_handle();
        }
        let count = 1 + self.entries.len() as u32;
        // SAFETY: so many handles of events stand there, all of them open; a group has no more entries than that.
        let woken = unsafe {
            WSAWaitForMultipleEvents(count, handles.as_ptr(), 0, milliseconds(timeout), 0)
        };
        match woken {
            WSA_WAIT_FAILED => Err(io::Error::from_raw_os_error(last_error())),
            WSA_WAIT_TIMEOUT => Ok(None),
            place => Ok(Some(place as usize)), // WSA_WAIT_EVENT_0 is 0
        }
    }

    fn put(
        &mut self,
        socket: SOCKET,
        token: u32,
        wanted: Wanted,
        listener: Option<&Listener>,
    ) -> io::Result<()> {
        let event = new_event()?;
        select(socket, &event, if listener.is_some() { OF_LISTENER } else { OF_STREAM })?;
        let found = wanted.is_there(socket)?;
        let (closed, listener, told) = (None, listener.cloned(), false);
        self.entries.push(Entry { socket, event, token, wanted, found, closed, listener, told });
        Ok(())
    }
}

impl Streams for Set {
    fn watch(&mut self, stream: &Stream, slot: u32, interest: Interest) -> io::Result<()> {
        self.put(stream.native().raw(), slot, Wanted::of_stream(interest), None)
    }

    fn change(&mut self, stream: &Stream, slot: u32, interest: Interest) -> io::Result<()> {
        let wanted = Wanted::of_stream(interest);
        let found = wanted.is_there(stream.native().raw())?;
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.token == slot) {
            (entry.wanted, entry.found) = (wanted, found);
        }
        Ok(())
    }

    fn forget(&mut self, stream: &Stream, slot: u32) {
        no_more(stream.native().raw());
        self.entries.retain(|entry| entry.token != slot);
    }
}

/// Has an event signalled for these events of a socket from now on.
fn select(socket: SOCKET, event: &OwnedHandle, events: i32) -> io::Result<()> {
    // SAFETY: both are open. The event is closed when the socket is taken out, or with the set; the system keeps what
    // it signals as long as it may.
    match unsafe { WSAEventSelect(socket, raw(event), events) } {
        0 => Ok(()),
        _ => Err(io::Error::from_raw_os_error(last_error())),
    }
}

/// Ends the events of a socket.
fn no_more(socket: SOCKET) {
    // It fails for no socket that is open.
    // SAFETY: the socket is open; nothing is asked for, so no event is needed.
    unsafe { WSAEventSelect(socket, 0, 0) };
}

fn raw(event: &OwnedHandle) -> WSAEVENT {
    event.as_raw_handle() as WSAEVENT
}
