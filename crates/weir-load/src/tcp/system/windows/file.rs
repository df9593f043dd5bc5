//! TransmitFile: an overlapped operation, whose end sets an event. WSAPoll waits for no event, so a thread of the
//! system's pool does, and rings the set. A Windows for workstations sends two files at a time, those of all processes
//! together, and lets the others wait: that is in its times too (TransmitFile, "Remarks").

use super::WakeEvent;
use crate::lock::lock;
use socket2::Socket;
use std::{
    ffi::c_void,
    fs::File,
    io,
    os::windows::io::{AsRawHandle, AsRawSocket, FromRawHandle, OwnedHandle},
    ptr,
    sync::{Arc, Mutex},
};
use windows_sys::Win32::{
    Foundation::{HANDLE, INVALID_HANDLE_VALUE},
    Networking::WinSock::{
        SOCKET, TransmitFile, WSA_INVALID_EVENT, WSA_IO_INCOMPLETE, WSA_IO_PENDING, WSACreateEvent,
        WSAGetLastError, WSAGetOverlappedResult,
    },
    System::{
        IO::{CancelIoEx, OVERLAPPED},
        Threading::{
            INFINITE, RegisterWaitForSingleObject, UnregisterWaitEx, WT_EXECUTEINWAITTHREAD,
            WT_EXECUTEONLYONCE,
        },
    },
};

/// Bytes of one call (TransmitFile, "Remarks").
const MOST: usize = i32::MAX as usize - 1;

/// Numbers of sockets whose transmission is over, and how their set is woken.
#[derive(Debug)]
pub(super) struct Transmitted {
    numbers: Mutex<Vec<u32>>,
    wake_event: WakeEvent,
}

impl Transmitted {
    pub(super) fn new(wake_event: WakeEvent) -> Self {
        Self { numbers: Mutex::default(), wake_event }
    }

    pub(super) fn take(&self) -> impl Iterator<Item = u32> + use<> {
        std::mem::take(&mut *lock(&self.numbers)).into_iter()
    }
}

/// Who is notified of the end of a transmission.
#[derive(Debug)]
struct Listener {
    transmitted: Arc<Transmitted>,
    number: u32,
}

/// What of a file is under way on a socket, until all of it was [`sent`](Self::sent), or it was
/// [cancelled](Self::cancel).
pub(super) struct Transmission {
    /// Where the system writes what became of it. It is freed when that is over, and else never.
    operation: *mut OVERLAPPED,
    len: usize,
    /// The system is done with it.
    over: bool,
    /// Set by the system at the end.
    event: OwnedHandle,
    /// The wait of the pool's thread for the event, and what that thread has, from a box.
    wait: Option<(HANDLE, *mut Listener)>,
}

impl Transmission {
    /// Begins to send so many bytes of a file, or as many as one call takes.
    pub(super) fn start(
        socket: &Socket,
        file: &File,
        at: u64,
        len: usize,
    ) -> io::Result<Box<Self>> {
        let len = len.min(MOST);
        // SAFETY: takes nothing.
        let event = unsafe { WSACreateEvent() };
        if event == WSA_INVALID_EVENT {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new event is nobody else's, and CloseHandle closes it.
        let event = unsafe { OwnedHandle::from_raw_handle(event as HANDLE) };
        // SAFETY: all zeroes is a valid OVERLAPPED.
        let mut operation: OVERLAPPED = unsafe { std::mem::zeroed() };
        // The low bit: no packet at a port of the socket's.
        operation.hEvent = event.as_raw_handle().map_addr(|address| address | 1);
        operation.Anonymous.Anonymous.Offset = at as u32;
        operation.Anonymous.Anonymous.OffsetHigh = (at >> 32) as u32;
        let operation = Box::into_raw(Box::new(operation));
        let mut started = Box::new(Self { operation, len, over: false, event, wait: None });
        let (socket, file) = (socket.as_raw_socket() as SOCKET, file.as_raw_handle());
        // SAFETY: both handles are open, and the system keeps their objects until the operation is over; so long its
        // structure stays in place.
        let begun = unsafe { TransmitFile(socket, file, len as u32, 0, operation, ptr::null(), 0) };
        if begun == 0 {
            // SAFETY: reads a variable of this thread.
            let code = unsafe { WSAGetLastError() };
            if code != WSA_IO_PENDING {
                started.over = true;
                return Err(io::Error::from_raw_os_error(code));
            }
        }
        Ok(started)
    }

    /// How many bytes were to be sent.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// How many bytes were sent, once it is over.
    pub(super) fn sent(&mut self, socket: &Socket) -> io::Result<Option<usize>> {
        match self.result(socket, false) {
            Err(e) if e.raw_os_error() == Some(WSA_IO_INCOMPLETE) => Ok(None),
            result => {
                self.over = true;
                result.map(Some)
            }
        }
    }

    /// Has the set woken when it is over.
    pub(super) fn notify(&mut self, transmitted: &Arc<Transmitted>, number: u32) -> io::Result<()> {
        if self.wait.is_some() {
            return Ok(());
        }
        let listener =
            Box::into_raw(Box::new(Listener { transmitted: Arc::clone(transmitted), number }));
        let (mut wait, event) = (ptr::null_mut(), self.event.as_raw_handle());
        let context: *const c_void = listener.cast();
        let flags = WT_EXECUTEONLYONCE | WT_EXECUTEINWAITTHREAD;
        // SAFETY: the event and the listener live until the wait was taken back, which the drop of this waits for.
        let begun = unsafe {
            RegisterWaitForSingleObject(&mut wait, event, Some(ended), context, INFINITE, flags)
        };
        if begun == 0 {
            let error = io::Error::last_os_error();
            // SAFETY: it comes from a box, and nobody was given it.
            drop(unsafe { Box::from_raw(listener) });
            return Err(error);
        }
        self.wait = Some((wait, listener));
        Ok(())
    }

    /// Ends it, whatever was sent.
    pub(super) fn cancel(&mut self, socket: &Socket) {
        // SAFETY: the operation was started on this socket, and its structure is in place. It may be over, and then
        // there is nothing to cancel.
        unsafe { CancelIoEx(socket.as_raw_socket() as HANDLE, self.operation) };
        let _ = self.result(socket, true);
        self.over = true;
    }

    fn result(&self, socket: &Socket, wait: bool) -> io::Result<usize> {
        let (socket, mut len, mut flags) = (socket.as_raw_socket() as SOCKET, 0, 0);
        let done =
            // SAFETY: the operation was started on this socket with an event, and its structure is in place.
            unsafe { WSAGetOverlappedResult(socket, self.operation, &mut len, wait.into(), &mut flags) };
        match done {
            // SAFETY: reads a variable of this thread.
            0 => Err(io::Error::from_raw_os_error(unsafe { WSAGetLastError() })),
            _ => Ok(len as usize),
        }
    }
}

impl Drop for Transmission {
    fn drop(&mut self) {
        if let Some((wait, listener)) = self.wait.take() {
            // SAFETY: the wait is registered. The call returns when nobody has the listener any more, which comes from a
            // box.
            unsafe {
                UnregisterWaitEx(wait, INVALID_HANDLE_VALUE);
                drop(Box::from_raw(listener));
            }
        }
        if self.over {
            // SAFETY: it comes from a box, and the system is done with it.
            drop(unsafe { Box::from_raw(self.operation) });
        }
    }
}

/// A transmission is over.
unsafe extern "system" fn ended(listener: *mut c_void, _: bool) {
    // SAFETY: the listener that the wait was registered with, which lives as long as that.
    let listener = unsafe { &*listener.cast::<Listener>() };
    let mut numbers = lock(&listener.transmitted.numbers);
    numbers.push(listener.number);
    drop(numbers);
    listener.transmitted.wake_event.signal();
}
