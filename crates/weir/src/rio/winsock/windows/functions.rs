//! The functions of registered I/O, which have to be asked for at run time.

use crate::{Unavailable, socket::native::control_call};
use socket2::{Domain, Protocol, Socket, Type};
use std::{ffi::c_void, io, sync::OnceLock};
use windows_sys::Win32::Networking::WinSock::{
    RIO_BUF, RIO_BUFFERID, RIO_CQ, RIO_EXTENSION_FUNCTION_TABLE, RIO_NOTIFICATION_COMPLETION,
    RIO_RQ, RIORESULT, SIO_GET_MULTIPLE_EXTENSION_FUNCTION_POINTER, SOCKET, WSAID_MULTIPLE_RIO,
};

type Request = unsafe extern "system" fn(RIO_RQ, *const RIO_BUF, u32, u32, *const c_void) -> i32;
type RequestEx = unsafe extern "system" fn(
    RIO_RQ,
    *const RIO_BUF,
    u32,
    *const RIO_BUF,
    *const RIO_BUF,
    *const RIO_BUF,
    *const RIO_BUF,
    u32,
    *const c_void,
) -> i32;

/// Those of the table that are used here.
#[derive(Clone, Copy)]
pub struct Functions {
    pub receive: Request,
    pub receive_ex: RequestEx,
    pub send: Request,
    pub send_ex: RequestEx,
    pub create_completion_queue:
        unsafe extern "system" fn(u32, *const RIO_NOTIFICATION_COMPLETION) -> RIO_CQ,
    pub close_completion_queue: unsafe extern "system" fn(RIO_CQ),
    pub create_request_queue: unsafe extern "system" fn(
        SOCKET,
        u32,
        u32,
        u32,
        u32,
        RIO_CQ,
        RIO_CQ,
        *const c_void,
    ) -> RIO_RQ,
    pub dequeue: unsafe extern "system" fn(RIO_CQ, *mut RIORESULT, u32) -> u32,
    pub notify: unsafe extern "system" fn(RIO_CQ) -> i32,
    pub register: unsafe extern "system" fn(*const u8, u32) -> RIO_BUFFERID,
    pub deregister: unsafe extern "system" fn(RIO_BUFFERID),
}

impl Functions {
    /// Those of a table, if all are there.
    pub fn of(table: &RIO_EXTENSION_FUNCTION_TABLE) -> Option<Self> {
        Some(Self {
            receive: table.RIOReceive?,
            receive_ex: table.RIOReceiveEx?,
            send: table.RIOSend?,
            send_ex: table.RIOSendEx?,
            create_completion_queue: table.RIOCreateCompletionQueue?,
            close_completion_queue: table.RIOCloseCompletionQueue?,
            create_request_queue: table.RIOCreateRequestQueue?,
            dequeue: table.RIODequeueCompletion?,
            notify: table.RIONotify?,
            register: table.RIORegisterBuffer?,
            deregister: table.RIODeregisterBuffer?,
        })
    }

    /// Those of the system, which are the same for all sockets.
    ///
    /// # Errors
    /// Why there are none.
    pub fn of_system() -> Result<Self, Unavailable> {
        static TOLD: OnceLock<Result<Functions, String>> = OnceLock::new();
        let told = TOLD.get_or_init(|| match asked() {
            Ok(table) => Self::of(&table)
                .ok_or_else(|| "the system's table of its functions has gaps".to_owned()),
            Err(refused) => Err(format!("the system has no registered I/O: {refused}")),
        });
        told.clone().map_err(|reason| {
            Unavailable::new("provider winsock", reason)
                .advise("it is there since Windows 8, and not under Wine; use provider batch")
        })
    }
}

fn asked() -> io::Result<RIO_EXTENSION_FUNCTION_TABLE> {
    let kind = Type::DGRAM.registered_io();
    let socket = Socket::new(Domain::IPV4, kind, Some(Protocol::UDP))?;
    let mut table = RIO_EXTENSION_FUNCTION_TABLE {
        cbSize: size_of::<RIO_EXTENSION_FUNCTION_TABLE>() as u32,
        ..Default::default()
    };
    let ask = SIO_GET_MULTIPLE_EXTENSION_FUNCTION_POINTER;
    // SAFETY: the call reads a GUID and writes the table of that GUID, whose size it is told.
    unsafe { control_call(&socket, ask, &WSAID_MULTIPLE_RIO, &mut table) }?;
    Ok(table)
}
