//! The completion port of the system: packets go in, and come out to threads that wait. It knows no operation.

use crate::{
    port::Refused,
    socket::native::{last_error, milliseconds},
};
use std::{
    io::{self, ErrorKind},
    os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle},
    ptr,
    time::Duration,
};
use windows_sys::Win32::{
    Foundation::{
        ERROR_COMMITMENT_LIMIT, ERROR_NO_SYSTEM_RESOURCES, ERROR_NONPAGED_SYSTEM_RESOURCES,
        ERROR_NOT_ENOUGH_MEMORY, ERROR_NOT_ENOUGH_QUOTA, ERROR_OUTOFMEMORY,
        ERROR_PAGED_SYSTEM_RESOURCES, ERROR_WORKING_SET_QUOTA, GetLastError, HANDLE,
        INVALID_HANDLE_VALUE, WAIT_TIMEOUT,
    },
    Networking::WinSock::{
        SO_PROTOCOL_INFOW, SOCKET, SOL_SOCKET, WSAPROTOCOL_INFOW, XP1_IFS_HANDLES, getsockopt,
    },
    Storage::FileSystem::SetFileCompletionNotificationModes,
    System::{
        IO::{
            CreateIoCompletionPort, GetQueuedCompletionStatusEx, OVERLAPPED_ENTRY,
            PostQueuedCompletionStatus,
        },
        WindowsProgramming::FILE_SKIP_COMPLETION_PORT_ON_SUCCESS,
    },
};

/// The address of the packet that ends waits. No block has it, since blocks are aligned; so below.
pub(crate) const END: usize = 1;

/// The address of packets that say that something lies in a queue of ours.
pub(crate) const POSTED: usize = 2;

/// A port.
pub(crate) struct Queue {
    /// Closed when no thread can be waiting at it: each has the packet that ends its wait first. So nothing depends on
    /// ERROR_ABANDONED_WAIT_0 (735), by which Windows ends the waits at a handle that is closed.
    port: OwnedHandle,
    /// A port that never has a packet: a thread that asks it for one belongs to it from then on, and no longer to the
    /// first, which lets another in.
    aside: OwnedHandle,
}

/// Room for the packets of one take.
pub(crate) struct Entries(Vec<OVERLAPPED_ENTRY>);

impl Entries {
    pub fn new() -> Self {
        Self(Vec::new())
    }
}

impl Queue {
    /// Lets so many of the threads that take from it run at a time.
    pub fn new(concurrency: u32) -> io::Result<Self> {
        Ok(Self { port: create(concurrency)?, aside: create(1)? })
    }

    /// Has the packets of a socket's operations come here. With `skip` an operation that is done when its call
    /// returns has none.
    ///
    /// # Errors
    /// What the system answered; or [`Refused::MustHavePackets`], before it was asked.
    pub fn associate(&self, socket: SOCKET, skip: bool) -> io::Result<()> {
        if skip {
            may_skip(service_flags(socket)?)?;
        }
        let (socket, port) = (socket as HANDLE, self.port.as_raw_handle());
        // The key says nothing: a socket that is used again would keep the one it had.
        // SAFETY: both handles are open; the call reads and writes nothing of ours.
        let port = unsafe { CreateIoCompletionPort(socket, port, 0, 0) };
        if port.is_null() {
            return Err(io::Error::last_os_error());
        }
        if skip {
            let mode = FILE_SKIP_COMPLETION_PORT_ON_SUCCESS as u8;
            // SAFETY: the handle is open.
            if unsafe { SetFileCompletionNotificationModes(socket, mode) } == 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    }

    /// Puts a packet of this address at the end.
    ///
    /// # Errors
    /// Where the system has no memory for it.
    pub fn post(&self, address: usize) -> io::Result<()> {
        let address = ptr::without_provenance(address);
        let port = self.port.as_raw_handle();
        // SAFETY: the port is open; the address is passed on as a number.
        let posted = unsafe { PostQueuedCompletionStatus(port, 0, 0, address) };
        if posted == 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// The same for a packet that must not be lost. There are only so many of them, and memory for a few bytes comes
    /// back by itself.
    ///
    /// # Panics
    /// Where it is not for want of memory: then it would never end.
    pub fn post_surely(&self, address: usize) {
        while let Err(e) = self.post(address) {
            assert!(is_want_of_memory(&e), "posting to a completion port: {e}");
            std::thread::yield_now();
        }
    }

    /// Waits for packets, and takes up to `most`: their addresses. None where the time is over.
    pub fn take<'e>(
        &self,
        entries: &'e mut Entries,
        most: usize,
        timeout: Option<Duration>,
    ) -> io::Result<impl Iterator<Item = usize> + use<'e>> {
        if entries.0.len() < most {
            entries.0.resize_with(most, OVERLAPPED_ENTRY::default);
        }
        let port = self.port.as_raw_handle();
        let (into, room) = (entries.0.as_mut_ptr(), most.min(u32::MAX as usize) as u32);
        let mut taken = 0;
        // SAFETY: the port is open, and the entries have room for as many as are asked for.
        let ok = unsafe {
            GetQueuedCompletionStatusEx(port, into, room, &mut taken, milliseconds(timeout), 0)
        };
        if ok == 0 {
            // SAFETY: reads a variable of this thread.
            match unsafe { GetLastError() } {
                WAIT_TIMEOUT => taken = 0,
                code => return Err(io::Error::from_raw_os_error(code as i32)),
            }
        }
        Ok(entries.0[..taken as usize].iter().map(|entry| entry.lpOverlapped.addr()))
    }

    /// Waits for one packet: its address. `None` where the time is over.
    pub fn take_one(&self, timeout: Option<Duration>) -> io::Result<Option<usize>> {
        let port = self.port.as_raw_handle();
        let (mut entry, mut taken) = (OVERLAPPED_ENTRY::default(), 0);
        // SAFETY: the port is open, and there is room for one entry.
        let ok = unsafe {
            let timeout_ms = milliseconds(timeout);
            GetQueuedCompletionStatusEx(port, &mut entry, 1, &mut taken, timeout_ms, 0)
        };
        if ok != 0 {
            return Ok(Some(entry.lpOverlapped.addr()));
        }
        // SAFETY: reads a variable of this thread.
        match unsafe { GetLastError() } {
            WAIT_TIMEOUT => Ok(None),
            code => Err(io::Error::from_raw_os_error(code as i32)),
        }
    }

    /// The port, for what posts to it by itself.
    pub fn handle(&self) -> HANDLE {
        self.port.as_raw_handle()
    }

    /// Has the calling thread count no longer among those that run, until its next take.
    pub fn step_aside(&self) {
        let (port, mut entry, mut taken) =
            (self.aside.as_raw_handle(), OVERLAPPED_ENTRY::default(), 0);
        // SAFETY: the port is open, and there is room for one entry. It never has a packet, so the time is over at once.
        unsafe { GetQueuedCompletionStatusEx(port, &mut entry, 1, &mut taken, 0, 0) };
    }
}

/// Whether the system has no memory for something just now.
pub(super) fn is_want_of_memory(error: &io::Error) -> bool {
    let of_memory = [
        ERROR_NOT_ENOUGH_MEMORY,
        ERROR_OUTOFMEMORY,
        ERROR_NO_SYSTEM_RESOURCES,
        ERROR_NONPAGED_SYSTEM_RESOURCES,
        ERROR_PAGED_SYSTEM_RESOURCES,
        ERROR_WORKING_SET_QUOTA,
        ERROR_COMMITMENT_LIMIT,
        ERROR_NOT_ENOUGH_QUOTA,
    ];
    error.raw_os_error().is_some_and(|code| of_memory.contains(&(code as u32)))
}

/// What the provider of Winsock that a socket belongs to says of its sockets.
pub(super) fn service_flags(socket: SOCKET) -> io::Result<u32> {
    let mut info = WSAPROTOCOL_INFOW::default();
    let (value, mut len) = ((&raw mut info).cast(), size_of_val(&info) as i32);
    // SAFETY: the call writes at most as many bytes as there are, which outlive it.
    match unsafe { getsockopt(socket, SOL_SOCKET, SO_PROTOCOL_INFOW, value, &mut len) } {
        0 => Ok(info.dwServiceFlags1),
        _ => Err(io::Error::from_raw_os_error(last_error())),
    }
}

/// A provider whose sockets are not the system's own handles posts packets itself, and knows nothing of those that are
/// to be skipped: what was ready would be taken twice.
pub(super) fn may_skip(service_flags: u32) -> io::Result<()> {
    match service_flags & XP1_IFS_HANDLES {
        0 => Err(io::Error::new(ErrorKind::Unsupported, Refused::MustHavePackets.to_string())),
        _ => Ok(()),
    }
}

fn create(concurrency: u32) -> io::Result<OwnedHandle> {
    let (no_file, new) = (INVALID_HANDLE_VALUE, ptr::null_mut());
    // SAFETY: makes a port, and is given nothing of ours.
    let port = unsafe { CreateIoCompletionPort(no_file, new, 0, concurrency) };
    if port.is_null() {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new handle is nobody else's, and CloseHandle closes it.
    Ok(unsafe { OwnedHandle::from_raw_handle(port) })
}
