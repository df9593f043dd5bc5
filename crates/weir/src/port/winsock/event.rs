//! Events, and the wait for a group of them.

use crate::socket::native::milliseconds;
use std::{
    io,
    os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle},
    ptr,
    time::Duration,
};
use windows_sys::Win32::{
    Foundation::{HANDLE, WAIT_TIMEOUT},
    Networking::WinSock::{WSA_MAXIMUM_WAIT_EVENTS, WSA_WAIT_FAILED, WSAWaitForMultipleEvents},
    System::Threading::{CreateEventW, SetEvent},
};

/// An event that the wait resets which tells it.
pub struct Event(OwnedHandle);

impl Event {
    pub fn new() -> io::Result<Self> {
        // SAFETY: makes an event without a name, and is given nothing of ours.
        let event = unsafe { CreateEventW(ptr::null(), 0, 0, ptr::null()) };
        if event.is_null() {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new handle is nobody else's, and CloseHandle closes it.
        Ok(Self(unsafe { OwnedHandle::from_raw_handle(event) }))
    }

    pub fn set(&self) {
        // SAFETY: the event is open, and then it can be set.
        unsafe { SetEvent(self.handle()) };
    }

    pub fn handle(&self) -> HANDLE {
        self.0.as_raw_handle()
    }
}

/// Events that somebody waits for, as many as the system takes.
pub(crate) struct Events {
    handles: [HANDLE; WSA_MAXIMUM_WAIT_EVENTS as usize],
    count: usize,
}

impl Events {
    /// # Panics
    /// Where there are more than a thread waits for.
    pub fn of<'e>(events: impl Iterator<Item = &'e Event>) -> Self {
        let mut all = Self { handles: [ptr::null_mut(); _], count: 0 };
        for event in events {
            all.handles[all.count] = event.handle();
            all.count += 1;
        }
        all
    }

    /// Waits until one of them is set, and tells the first that is. `None` where the time was over before.
    ///
    /// # Errors
    /// What the system answered.
    pub fn wait(&self, mut left: impl FnMut() -> Option<Duration>) -> io::Result<Option<usize>> {
        loop {
            let left = left();
            let left_ms = milliseconds(left);
            let (count, handles) = (self.count as u32, self.handles.as_ptr());
            // SAFETY: the events are open: they are waited for by who has them.
            match unsafe { WSAWaitForMultipleEvents(count, handles, 0, left_ms, 0) } {
                // The system's clock may have it early.
                WAIT_TIMEOUT if left_ms > 0 => {}
                WAIT_TIMEOUT => return Ok(None),
                WSA_WAIT_FAILED => return Err(io::Error::last_os_error()),
                told => return Ok(Some(told as usize)),
            }
        }
    }
}
