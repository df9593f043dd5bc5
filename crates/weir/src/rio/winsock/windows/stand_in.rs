//! A stand-in for the functions of registered I/O, on plain sockets, for tests where the system has none.
//!
//! It does what the documentation of each function says, and panics (which ends the process) where the caller does what
//! that forbids: two threads at once in one queue, more requests than a queue was made for, memory that is not registered
//! or not whole, requests on a closed queue, memory that is taken back while a request names it. Receives of a socket are
//! filled in the order posted, by a thread for each socket; a send is made when it is committed. Faults are asked for by
//! [`fail_next`].
//!
//! What it cannot tell: how the system behaves where the documentation says nothing, and what anything costs.

use super::functions::Functions;
use crate::{
    lifecycle::lock,
    socket::native::{CONTROL_BYTES, last_error, new_event, without_packet},
};
use std::{
    cell::Cell,
    collections::{HashMap, VecDeque},
    ffi::c_void,
    mem,
    os::windows::io::AsRawHandle,
    ptr,
    sync::{
        Arc, Condvar, LazyLock, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
};
use windows_sys::Win32::{
    Foundation::HANDLE,
    Networking::WinSock::{
        LPFN_WSARECVMSG, RIO_BUF, RIO_BUFFERID, RIO_CORRUPT_CQ, RIO_CQ, RIO_EVENT_COMPLETION,
        RIO_IOCP_COMPLETION, RIO_MAX_CQ_SIZE, RIO_MSG_COMMIT_ONLY, RIO_MSG_DEFER,
        RIO_NOTIFICATION_COMPLETION, RIO_RQ, RIORESULT, SIO_GET_EXTENSION_FUNCTION_POINTER,
        SOCKADDR_INET, SOCKET, SOCKET_ERROR, WSA_IO_PENDING, WSA_OPERATION_ABORTED, WSABUF,
        WSAEALREADY, WSAEINVAL, WSAEMSGSIZE, WSAENOBUFS, WSAENOTSOCK, WSAGetOverlappedResult,
        WSAID_WSARECVMSG, WSAIoctl, WSAMSG, WSARecvFrom, WSASendMsg, WSASendTo, WSASetLastError,
        getsockname,
    },
    System::{
        IO::{OVERLAPPED, PostQueuedCompletionStatus},
        Threading::SetEvent,
    },
};

static INSTALLED: AtomicBool = AtomicBool::new(false);

/// Has the provider `winsock` call the stand-in from now on, if the system has no functions of its own. Says whether it
/// does.
pub fn install_where_absent() -> bool {
    INSTALLED.store(Functions::of_system().is_err(), SeqCst);
    is_installed()
}

pub(super) fn is_installed() -> bool {
    INSTALLED.load(SeqCst)
}

/// What is to go wrong once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Registering memory: there is no memory to lock.
    Register,
    /// Making a completion queue.
    CreateCompletionQueue,
    /// Making a request queue.
    CreateRequestQueue,
    /// A receive that is posted.
    Receive,
    /// A send that is posted.
    Send,
    /// A commit of receives.
    Commit,
    /// A dequeue: the queue is corrupt from then on.
    Corrupt,
    /// A notification.
    Notify,
}

thread_local! { static FAULT: Cell<Option<Fault>> = const { Cell::new(None) } }

/// Has the next call of this kind on this thread fail, with WSAENOBUFS or RIO_CORRUPT_CQ.
pub fn fail_next(fault: Fault) {
    FAULT.set(Some(fault));
}

/// Whether this call is to fail.
fn fails(fault: Fault) -> bool {
    let fails = FAULT.get() == Some(fault);
    if fails {
        FAULT.set(None);
        set_error(WSAENOBUFS);
    }
    fails
}

fn set_error(code: i32) {
    // SAFETY: sets a variable of this thread.
    unsafe { WSASetLastError(code) };
}

pub(super) fn functions() -> Functions {
    Functions {
        receive,
        receive_ex,
        send,
        send_ex,
        create_completion_queue,
        close_completion_queue,
        create_request_queue,
        dequeue,
        notify,
        register,
        deregister,
    }
}

/// What was made, by its number.
#[derive(Default)]
struct World {
    made: isize,
    buffers: HashMap<RIO_BUFFERID, Buffer>,
    queues: HashMap<RIO_CQ, Arc<Cq>>,
    requests: HashMap<RIO_RQ, Arc<Rq>>,
}

#[derive(Clone, Copy)]
struct Buffer {
    at: usize,
    length: u32,
    /// Requests that name it.
    named: u32,
}

static WORLD: LazyLock<Mutex<World>> = LazyLock::new(Mutex::default);

impl World {
    fn number(&mut self) -> isize {
        self.made += 1;
        self.made
    }

    /// Where a part of registered memory lies.
    fn resolve(&mut self, part: &RIO_BUF) -> *mut u8 {
        let Some(buffer) = self.buffers.get_mut(&part.BufferId) else {
            panic!("a request names memory that is not registered: {}", part.BufferId)
        };
        let end = part.Offset.checked_add(part.Length).expect("an offset of 32 bits");
        assert!(
            end <= buffer.length,
            "{} + {} of {} bytes",
            part.Offset,
            part.Length,
            buffer.length
        );
        buffer.named += 1;
        ptr::with_exposed_provenance_mut(buffer.at + part.Offset as usize)
    }

    fn over(&mut self, names: &[RIO_BUFFERID]) {
        for name in names {
            let buffer = self.buffers.get_mut(name).expect("it is not taken back meanwhile");
            buffer.named -= 1;
        }
    }
}

/// Catches two threads in one queue at once.
#[derive(Default)]
struct Alone(AtomicBool);

impl Alone {
    fn enter(&self, what: &str) -> Entered<'_> {
        assert!(!self.0.swap(true, SeqCst), "two threads at once in one {what}");
        Entered(self)
    }
}

struct Entered<'a>(&'a Alone);

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.0.0.store(false, SeqCst);
    }
}

struct Cq {
    alone: Alone,
    places: u32,
    method: Method,
    state: Mutex<CqState>,
}

#[derive(Default)]
struct CqState {
    /// Places that request queues were promised.
    promised: u32,
    results: VecDeque<RIORESULT>,
    armed: bool,
    corrupt: bool,
    closed: bool,
}

/// How it tells, by addresses and handles as numbers.
enum Method {
    None,
    Event { event: usize, reset: bool },
    Port { port: usize, key: usize, overlapped: usize },
}

impl Cq {
    fn complete(&self, result: RIORESULT) {
        let mut state = lock(&self.state);
        if state.closed {
            return; // dropped silently, as documented
        }
        assert!((state.results.len() as u32) < self.places, "more results than places");
        state.results.push_back(result);
        self.tell(&mut state);
    }

    fn tell(&self, state: &mut CqState) {
        if !state.armed || state.results.is_empty() {
            return;
        }
        state.armed = false;
        let handle = |number: usize| ptr::without_provenance_mut::<c_void>(number);
        // SAFETY: the caller keeps event and port open as long as the queue.
        let told = unsafe {
            match self.method {
                Method::None => 0,
                Method::Event { event, .. } => SetEvent(handle(event)),
                Method::Port { port, key, overlapped } => {
                    let overlapped = ptr::without_provenance(overlapped);
                    PostQueuedCompletionStatus(handle(port), 0, key, overlapped)
                }
            }
        };
        assert!(told != 0, "the event or port of a completion queue is gone");
    }
}

struct Rq {
    alone: Alone,
    socket: SOCKET,
    /// Of the socket, which is known by it: another may have the number once it was closed.
    name: Vec<u8>,
    context: u64,
    most: [u32; 2],
    receives_to: Arc<Cq>,
    sends_to: Arc<Cq>,
    state: Mutex<RqState>,
    posted: Condvar,
}

#[derive(Default)]
struct RqState {
    outstanding: [u32; 2],
    deferred: [Vec<Request>; 2],
    receives: VecDeque<Request>,
    closed: bool,
}

const RECEIVES: usize = 0;
const SENDS: usize = 1;

/// A request: where its parts lie, as numbers.
struct Request {
    data: (usize, u32),
    remote: usize,
    control: Option<(usize, u32)>,
    names: Vec<RIO_BUFFERID>,
    context: u64,
}

impl Rq {
    fn complete(&self, kind: usize, request: &Request, status: i32, bytes: u32) {
        lock(&WORLD).over(&request.names);
        lock(&self.state).outstanding[kind] -= 1;
        let to = if kind == RECEIVES { &self.receives_to } else { &self.sends_to };
        to.complete(RIORESULT {
            Status: status,
            BytesTransferred: bytes,
            SocketContext: self.context,
            RequestContext: request.context,
        });
    }

    /// Fills receives in the order posted, until the socket or the queue is closed.
    fn fill(&self) {
        let ended = new_event().expect("an event");
        loop {
            let mut state = lock(&self.state);
            while state.receives.is_empty() && !state.closed {
                state = self.posted.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            let Some(request) = state.receives.pop_front() else { return };
            let closed = state.closed;
            drop(state);
            let (status, bytes) = if closed || name_of(self.socket) != self.name {
                (WSA_OPERATION_ABORTED, 0)
            } else {
                // SAFETY: the parts lie in registered memory, which is not taken back before this is over.
                unsafe { receive_into(self.socket, &request, ended.as_raw_handle()) }
            };
            let gone = matches!(status, WSA_OPERATION_ABORTED | WSAENOTSOCK);
            self.complete(
                RECEIVES,
                &request,
                if gone { WSA_OPERATION_ABORTED } else { status },
                bytes,
            );
            if gone {
                self.abort();
            }
        }
    }

    /// The socket was closed: what is outstanding ends.
    fn abort(&self) {
        let mut state = lock(&self.state);
        state.closed = true;
        let receives: Vec<_> = state.receives.drain(..).collect();
        let [deferred, sends] = mem::take(&mut state.deferred);
        drop(state);
        let of = |kind, requests: Vec<Request>| {
            for request in requests {
                self.complete(kind, &request, WSA_OPERATION_ABORTED, 0);
            }
        };
        of(RECEIVES, receives);
        of(RECEIVES, deferred);
        of(SENDS, sends);
    }
}

fn name_of(socket: SOCKET) -> Vec<u8> {
    let mut name = [0; size_of::<SOCKADDR_INET>()];
    let mut length = name.len() as i32;
    // SAFETY: the call writes at most as many bytes as there are.
    let told = unsafe { getsockname(socket, name.as_mut_ptr().cast(), &mut length) };
    if told == 0 { name.to_vec() } else { Vec::new() }
}

/// Waits for what a call started that returned so: how it ended.
///
/// # Safety
/// It was started on this socket with this operation, which is in place.
unsafe fn ended(socket: SOCKET, result: i32, operation: *mut OVERLAPPED) -> (i32, u32) {
    if result == SOCKET_ERROR {
        match last_error() {
            WSA_IO_PENDING => {}
            code => return (code, 0),
        }
    }
    let (mut bytes, mut flags) = (0, 0);
    // SAFETY: the caller's word.
    match unsafe { WSAGetOverlappedResult(socket, operation, &mut bytes, 1, &mut flags) } {
        0 => (last_error(), bytes),
        _ => (0, bytes),
    }
}

/// # Safety
/// The parts of the request are valid memory.
unsafe fn receive_into(socket: SOCKET, request: &Request, event: HANDLE) -> (i32, u32) {
    let mut vector =
        WSABUF { len: request.data.1, buf: ptr::with_exposed_provenance_mut(request.data.0) };
    let mut name = [0u8; 128];
    // SAFETY: all zeroes is a valid OVERLAPPED.
    let mut operation: OVERLAPPED = unsafe { mem::zeroed() };
    operation.hEvent = without_packet(event);
    let operation = &raw mut operation;
    let mut control = [0u64; CONTROL_BYTES / 8];
    let mut message = WSAMSG {
        name: name.as_mut_ptr().cast(),
        namelen: name.len() as i32,
        lpBuffers: &mut vector,
        dwBufferCount: 1,
        Control: WSABUF { len: CONTROL_BYTES as u32, buf: control.as_mut_ptr().cast() },
        dwFlags: 0,
    };
    // SAFETY: all of it stays in place until the operation is over, which is waited for.
    let (status, bytes) = unsafe {
        let result = match request.control {
            Some(_) => match receive_message_of(socket) {
                Some(call) => call(socket, &mut message, ptr::null_mut(), operation, None),
                None => return (WSAENOTSOCK, 0),
            },
            None => WSARecvFrom(
                socket,
                message.lpBuffers,
                1,
                ptr::null_mut(),
                &mut message.dwFlags,
                message.name,
                &mut message.namelen,
                operation,
                None,
            ),
        };
        ended(socket, result, operation)
    };
    if status != 0 && status != WSAEMSGSIZE {
        return (status, 0);
    }
    // SAFETY: the caller's word.
    unsafe {
        let remote = ptr::with_exposed_provenance_mut::<u8>(request.remote);
        ptr::copy_nonoverlapping(name.as_ptr(), remote, size_of::<SOCKADDR_INET>());
        if let Some((at, room)) = request.control {
            let told = message.Control.len.min(room - 8);
            let at = ptr::with_exposed_provenance_mut::<u8>(at);
            at.cast::<u32>().write_unaligned(8 + told);
            ptr::copy_nonoverlapping(control.as_ptr().cast(), at.add(8), told as usize);
        }
    }
    (status, if status == 0 { bytes } else { request.data.1 })
}

/// WSARecvMsg of a socket.
fn receive_message_of(socket: SOCKET) -> LPFN_WSARECVMSG {
    let (id, mut call) = (WSAID_WSARECVMSG, None);
    // SAFETY: the call reads a GUID and writes the pointer to the function of that GUID.
    unsafe {
        WSAIoctl(
            socket,
            SIO_GET_EXTENSION_FUNCTION_POINTER,
            (&raw const id).cast(),
            size_of_val(&id) as u32,
            (&raw mut call).cast(),
            size_of_val(&call) as u32,
            &mut 0,
            ptr::null_mut(),
            None,
        )
    };
    call
}

/// # Safety
/// The parts of the request are valid memory.
unsafe fn send_from(socket: SOCKET, request: &Request) -> (i32, u32) {
    let event = new_event().expect("an event");
    let mut vector =
        WSABUF { len: request.data.1, buf: ptr::with_exposed_provenance_mut(request.data.0) };
    // SAFETY: all zeroes is a valid OVERLAPPED.
    let mut operation: OVERLAPPED = unsafe { mem::zeroed() };
    operation.hEvent = without_packet(event.as_raw_handle());
    let operation = &raw mut operation;
    let name = ptr::with_exposed_provenance_mut::<c_void>(request.remote);
    // A name has the length of its family.
    // SAFETY: the caller's word.
    let length = match unsafe { name.cast::<u16>().read_unaligned() } {
        2 => 16,
        _ => size_of::<SOCKADDR_INET>() as i32,
    };
    // SAFETY: all of it stays in place until the operation is over, which is waited for.
    unsafe {
        let sent = ptr::null_mut();
        let result = match request.control {
            None => WSASendTo(socket, &vector, 1, sent, 0, name.cast(), length, operation, None),
            Some((at, bytes)) => {
                let message = WSAMSG {
                    name: name.cast(),
                    namelen: length,
                    lpBuffers: &mut vector,
                    dwBufferCount: 1,
                    Control: WSABUF {
                        len: bytes - 8,
                        buf: ptr::with_exposed_provenance_mut(at + 8),
                    },
                    dwFlags: 0,
                };
                WSASendMsg(socket, &message, 0, sent, operation, None)
            }
        };
        ended(socket, result, operation)
    }
}

fn requests_of(number: RIO_RQ) -> Arc<Rq> {
    let found = lock(&WORLD).requests.get(&number).map(Arc::clone);
    found.unwrap_or_else(|| panic!("{number} is no request queue"))
}

fn queue_of(number: RIO_CQ) -> Option<Arc<Cq>> {
    lock(&WORLD).queues.get(&number).map(Arc::clone)
}

unsafe extern "system" fn register(at: *const u8, length: u32) -> RIO_BUFFERID {
    if fails(Fault::Register) {
        return 0xFFFF_FFFF;
    }
    let mut world = lock(&WORLD);
    let id = world.number();
    let at = at.expose_provenance();
    world.buffers.insert(id, Buffer { at, length, named: 0 });
    id
}

unsafe extern "system" fn deregister(id: RIO_BUFFERID) {
    let buffer = lock(&WORLD).buffers.remove(&id).expect("it was registered");
    assert_eq!(buffer.named, 0, "memory is taken back that requests name");
}

unsafe extern "system" fn create_completion_queue(
    places: u32,
    method: *const RIO_NOTIFICATION_COMPLETION,
) -> RIO_CQ {
    if fails(Fault::CreateCompletionQueue) {
        return 0;
    }
    if places == 0 || places > RIO_MAX_CQ_SIZE {
        set_error(WSAEINVAL);
        return 0;
    }
    // SAFETY: the caller names a method, or none; its kind says which part of it is there.
    let method = unsafe {
        match method.as_ref() {
            None => Method::None,
            Some(method) if method.Type == RIO_EVENT_COMPLETION => Method::Event {
                event: method.Anonymous.Event.EventHandle.addr(),
                reset: method.Anonymous.Event.NotifyReset != 0,
            },
            Some(method) => {
                assert_eq!(method.Type, RIO_IOCP_COMPLETION);
                let iocp = method.Anonymous.Iocp;
                assert!(!iocp.Overlapped.is_null(), "the packet needs a valid OVERLAPPED");
                Method::Port {
                    port: iocp.IocpHandle.addr(),
                    key: iocp.CompletionKey.addr(),
                    overlapped: iocp.Overlapped.addr(),
                }
            }
        }
    };
    let cq = Cq { alone: Alone::default(), places, method, state: Mutex::default() };
    let mut world = lock(&WORLD);
    let number = world.number();
    world.queues.insert(number, Arc::new(cq));
    number
}

unsafe extern "system" fn close_completion_queue(number: RIO_CQ) {
    let mut world = lock(&WORLD);
    let Some(cq) = world.queues.remove(&number) else { return }; // ignored, as documented
    let of_it = |rq: &Rq| Arc::ptr_eq(&rq.receives_to, &cq) || Arc::ptr_eq(&rq.sends_to, &cq);
    let requests: Vec<_> = world.requests.extract_if(|_, rq| of_it(rq)).collect();
    drop(world);
    let _entered = cq.alone.enter("completion queue");
    lock(&cq.state).closed = true;
    for (_, rq) in requests {
        lock(&rq.state).closed = true;
        rq.posted.notify_one();
    }
}

unsafe extern "system" fn create_request_queue(
    socket: SOCKET,
    receives: u32,
    receive_buffers: u32,
    sends: u32,
    send_buffers: u32,
    receives_to: RIO_CQ,
    sends_to: RIO_CQ,
    context: *const c_void,
) -> RIO_RQ {
    assert_eq!((receive_buffers, send_buffers), (1, 1), "a request has one buffer");
    if fails(Fault::CreateRequestQueue) {
        return 0;
    }
    let (Some(receives_to), Some(sends_to)) = (queue_of(receives_to), queue_of(sends_to)) else {
        set_error(WSAEINVAL);
        return 0;
    };
    for (cq, more) in [(&receives_to, receives), (&sends_to, sends)] {
        let mut state = lock(&cq.state);
        if state.promised + more > cq.places {
            set_error(WSAENOBUFS);
            return 0;
        }
        state.promised += more;
    }
    let name = name_of(socket);
    assert!(!name.is_empty(), "a request queue is made for an open socket that is bound");
    let rq = Arc::new(Rq {
        alone: Alone::default(),
        socket,
        name,
        context: context.addr() as u64,
        most: [receives, sends],
        receives_to,
        sends_to,
        state: Mutex::default(),
        posted: Condvar::new(),
    });
    let filled = Arc::clone(&rq);
    thread::spawn(move || filled.fill());
    let mut world = lock(&WORLD);
    let number = world.number();
    world.requests.insert(number, rq);
    number
}

unsafe extern "system" fn dequeue(number: RIO_CQ, into: *mut RIORESULT, room: u32) -> u32 {
    let cq = queue_of(number).expect("a dequeue from a completion queue that is open");
    let _entered = cq.alone.enter("completion queue");
    let mut state = lock(&cq.state);
    state.corrupt |= fails(Fault::Corrupt);
    if state.corrupt {
        return RIO_CORRUPT_CQ;
    }
    let taken = state.results.len().min(room as usize);
    for (n, result) in state.results.drain(..taken).enumerate() {
        // SAFETY: the caller has room for as many.
        unsafe { into.add(n).write(result) };
    }
    taken as u32
}

unsafe extern "system" fn notify(number: RIO_CQ) -> i32 {
    if fails(Fault::Notify) {
        return WSAENOBUFS;
    }
    let Some(cq) = queue_of(number) else { return WSAEINVAL };
    let _entered = cq.alone.enter("completion queue");
    let mut state = lock(&cq.state);
    if state.armed {
        return WSAEALREADY;
    }
    if let Method::Event { event, reset: true } = cq.method {
        // SAFETY: the caller keeps the event open.
        unsafe {
            windows_sys::Win32::System::Threading::ResetEvent(ptr::without_provenance_mut(event))
        };
    }
    state.armed = true;
    cq.tell(&mut state);
    0
}

unsafe extern "system" fn receive(
    number: RIO_RQ,
    data: *const RIO_BUF,
    buffers: u32,
    flags: u32,
    context: *const c_void,
) -> i32 {
    assert_eq!(flags, RIO_MSG_COMMIT_ONLY, "datagrams are received with RIOReceiveEx");
    assert!(data.is_null() && buffers == 0 && context.is_null(), "a commit names nothing");
    if fails(Fault::Commit) {
        return 0;
    }
    let rq = requests_of(number);
    let _entered = rq.alone.enter("request queue");
    let mut state = lock(&rq.state);
    let deferred = mem::take(&mut state.deferred[RECEIVES]);
    state.receives.extend(deferred);
    rq.posted.notify_one();
    1
}

unsafe extern "system" fn send(
    number: RIO_RQ,
    data: *const RIO_BUF,
    buffers: u32,
    flags: u32,
    context: *const c_void,
) -> i32 {
    assert_eq!(flags, RIO_MSG_COMMIT_ONLY, "datagrams are sent with RIOSendEx");
    assert!(data.is_null() && buffers == 0 && context.is_null(), "a commit names nothing");
    let rq = requests_of(number);
    let _entered = rq.alone.enter("request queue");
    let deferred = mem::take(&mut lock(&rq.state).deferred[SENDS]);
    for request in deferred {
        // SAFETY: the parts lie in registered memory, which is not taken back before this is over.
        let (status, bytes) = unsafe { send_from(rq.socket, &request) };
        rq.complete(SENDS, &request, status, bytes);
    }
    1
}

unsafe extern "system" fn receive_ex(
    number: RIO_RQ,
    data: *const RIO_BUF,
    buffers: u32,
    local: *const RIO_BUF,
    remote: *const RIO_BUF,
    control: *const RIO_BUF,
    flags_part: *const RIO_BUF,
    flags: u32,
    context: *const c_void,
) -> i32 {
    if fails(Fault::Receive) {
        return 0;
    }
    assert!(local.is_null() && flags_part.is_null());
    // SAFETY: the caller's parts.
    unsafe { post(RECEIVES, number, (data, buffers), remote, control, flags, context) }
}

unsafe extern "system" fn send_ex(
    number: RIO_RQ,
    data: *const RIO_BUF,
    buffers: u32,
    local: *const RIO_BUF,
    remote: *const RIO_BUF,
    control: *const RIO_BUF,
    flags_part: *const RIO_BUF,
    flags: u32,
    context: *const c_void,
) -> i32 {
    if fails(Fault::Send) {
        return 0;
    }
    assert!(local.is_null(), "the local address of RIOSendEx is reserved");
    assert!(flags_part.is_null());
    // SAFETY: the caller's parts.
    unsafe { post(SENDS, number, (data, buffers), remote, control, flags, context) }
}

/// Takes a request, which is committed later.
///
/// # Safety
/// Each part is null or valid.
unsafe fn post(
    kind: usize,
    number: RIO_RQ,
    (data, buffers): (*const RIO_BUF, u32),
    remote: *const RIO_BUF,
    control: *const RIO_BUF,
    flags: u32,
    context: *const c_void,
) -> i32 {
    assert_eq!(flags, RIO_MSG_DEFER, "weir posts deferred");
    let rq = requests_of(number);
    let _entered = rq.alone.enter("request queue");
    // SAFETY: the caller's word.
    let (data, remote, control) = unsafe { (data.as_ref(), remote.as_ref(), control.as_ref()) };
    assert_eq!(buffers, u32::from(data.is_some()), "one buffer of data, or none");
    let remote = remote.expect("datagrams have a remote address");
    assert_eq!(remote.Length as usize, size_of::<SOCKADDR_INET>());
    let mut names = vec![remote.BufferId];
    names.extend(data.map(|part| part.BufferId));
    names.extend(control.map(|part| part.BufferId));
    let mut world = lock(&WORLD);
    let mut resolve = |part: &RIO_BUF| (world.resolve(part).addr(), part.Length);
    let request = Request {
        data: data.map_or((0, 0), &mut resolve),
        remote: resolve(remote).0,
        control: control.map(resolve),
        names,
        context: context.addr() as u64,
    };
    drop(world);
    let mut state = lock(&rq.state);
    assert!(!state.closed, "a request on a queue whose socket was closed");
    assert!(state.outstanding[kind] < rq.most[kind], "more requests than the queue was made for");
    state.outstanding[kind] += 1;
    state.deferred[kind].push(request);
    1
}
