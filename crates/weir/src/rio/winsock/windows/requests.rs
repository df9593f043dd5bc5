//! Posting: what the two queues of a socket share, and the request queue.

use super::{
    KIND_BITS, RECEIVE, SEND, SEND_OF_SEVERAL,
    functions::Functions,
    last_os_error,
    notice::{Beside, Notice},
    registered::{CONTROL_HEAD, Registered},
};
use crate::{
    counters::Counters,
    memory::Slice,
    rio::{
        Needs, Outcome, Peer, Refused, RequestQueue, Span, line_and_payload,
        requests::{Outgoing, Reserved, of_region},
        sharing::{Count, Shared, Sharing},
        signals::Signals,
    },
    socket::{
        CONTEXT_BYTES, DatagramSocket, Unsent,
        context::{SOURCE, SOURCE_BYTES, write_source},
        native::{last_error, local_address_of},
    },
};
use std::{collections::VecDeque, io, net::IpAddr, num::NonZeroU16, ptr, sync::Arc};
use windows_sys::Win32::Networking::WinSock::{
    AF_INET6, RIO_MSG_COMMIT_ONLY, RIO_MSG_DEFER, RIO_RQ,
};

/// What all queues share.
pub(super) struct SharedPart<T: Sharing> {
    pub functions: Functions,
    pub registered: Arc<Registered>,
    pub needs: Needs,
    /// Receives outstanding over all sockets.
    pub receives: T::Count,
    /// Slices that the kernel has.
    pub in_kernel: T::Count,
    pub signals: Arc<Signals>,
    /// Some lane has sends that the system refused at once.
    pub beside: Arc<Beside>,
    pub notice: Arc<Notice>,
}

impl<T: Sharing> Clone for SharedPart<T> {
    fn clone(&self) -> Self {
        Self {
            functions: self.functions,
            registered: Arc::clone(&self.registered),
            needs: self.needs,
            receives: self.receives.clone(),
            in_kernel: self.in_kernel.clone(),
            signals: Arc::clone(&self.signals),
            beside: Arc::clone(&self.beside),
            notice: Arc::clone(&self.notice),
        }
    }
}

/// What the queues of one socket share.
pub(super) struct Part<T: Sharing> {
    pub lane: T::Shared<Lane>,
    pub receives: T::Count,
    pub sends: T::Count,
    /// Whether it is asked for the address that a datagram was sent to.
    pub control: bool,
    ipv6: bool,
}

impl<T: Sharing> Part<T> {
    pub fn new(lane: Lane) -> Self {
        let ipv6 = lane.socket.as_ref().is_some_and(|socket| socket.local_address().is_ipv6());
        let control = lane.control;
        let (receives, sends) = (T::Count::default(), T::Count::default());
        Self { lane: Shared::new(lane), receives, sends, control, ipv6 }
    }

    /// The address that a datagram was sent to, as its control data says.
    pub fn local_in(&self, data: &[u8]) -> Option<IpAddr> {
        local_address_of(data, self.ipv6)
    }
}

impl<T: Sharing> Clone for Part<T> {
    fn clone(&self) -> Self {
        Self {
            lane: self.lane.clone(),
            receives: self.receives.clone(),
            sends: self.sends.clone(),
            control: self.control,
            ipv6: self.ipv6,
        }
    }
}

/// The system's request queue of a socket: one thread at a time posts, whichever half of ours it has.
pub(super) struct Lane {
    queue: RIO_RQ,
    /// Open until the queues are stopped: with it its request queue goes.
    socket: Option<DatagramSocket>,
    control: bool,
    /// Sends that the system refused at once.
    pub refused: VecDeque<(Slice, Outcome)>,
}

impl Lane {
    pub fn new(queue: RIO_RQ, socket: DatagramSocket, control: bool) -> Self {
        Self { queue, socket: Some(socket), control, refused: VecDeque::new() }
    }

    /// Closes the socket, which ends what is outstanding. Says how many slices were kept here, which are back.
    pub fn close(&mut self) -> u32 {
        self.socket = None;
        self.refused.drain(..).count() as u32
    }

    /// Posts a receive. The slice is the kernel's if that succeeds.
    #[inline]
    fn receive<T: Sharing>(&self, shared: &SharedPart<T>, slice: &Slice) -> io::Result<()> {
        let index = slice.index();
        let registered = &shared.registered;
        let data = registered.part_of(index, CONTEXT_BYTES, shared.needs.payload);
        let from = registered.part_of(index, SOURCE, SOURCE_BYTES);
        let control = registered.control_of(index).filter(|_| self.control);
        if let Some((control, _)) = control {
            // SAFETY: the control data goes with the slice, which is not the kernel's yet.
            unsafe { (*control).total = 0 };
        }
        let control = control.map(|(_, buffer)| buffer);
        let control = control.as_ref().map_or(ptr::null(), ptr::from_ref);
        let (none, context) = (ptr::null(), context(index, RECEIVE));
        // SAFETY: the queue is that of an open socket, and this thread is alone in it; what is written to lies in
        // registered memory that goes with the slice.
        let posted = unsafe {
            let receive = shared.functions.receive_ex;
            receive(self.queue, &data, 1, none, &from, control, none, RIO_MSG_DEFER, context)
        };
        if posted == 0 { Err(last_os_error()) } else { Ok(()) }
    }

    /// Posts a send of some bytes of a slice, whose line says where they go.
    fn send<T: Sharing>(
        &self,
        shared: &SharedPart<T>,
        index: u32,
        (from, length): (usize, usize),
        kind: usize,
    ) -> Result<(), i32> {
        let registered = &shared.registered;
        let data = registered.part_of(index, CONTEXT_BYTES + from, length);
        let (data, buffers) = if length == 0 { (ptr::null(), 0) } else { (&raw const data, 1) };
        let to = registered.part_of(index, SOURCE, SOURCE_BYTES);
        let control = registered.control_of(index).filter(|_| self.control);
        let control = control.and_then(|(control, mut buffer)| {
            // SAFETY: the control data goes with the slice, which is not the kernel's yet.
            buffer.Length = unsafe { (*control).total };
            (buffer.Length > 0).then_some(buffer)
        });
        let control = control.as_ref().map_or(ptr::null(), ptr::from_ref);
        let (none, context) = (ptr::null(), context(index, kind));
        // SAFETY: as for a receive; the system only reads.
        let posted = unsafe {
            let send = shared.functions.send_ex;
            send(self.queue, data, buffers, none, &to, control, none, RIO_MSG_DEFER, context)
        };
        if posted == 0 { Err(last_error()) } else { Ok(()) }
    }

    /// Posts the next datagram of several that the system takes. `false`: there is none left.
    pub fn send_next<T: Sharing>(
        &self,
        shared: &SharedPart<T>,
        slice: &mut Slice,
        progress: &mut Progress,
    ) -> bool {
        while self.socket.is_some()
            && let Some(next) = progress.next()
        {
            progress.write(slice);
            match self.send(shared, slice.index(), next, SEND_OF_SEVERAL) {
                Ok(()) => return true,
                Err(code) => progress.note(code),
            }
        }
        false
    }

    /// Writes into a slice where it goes, and posts it, or its first datagram. The slice is the kernel's if that succeeds;
    /// else its outcome is there.
    fn start_send<T: Sharing>(
        &self,
        shared: &SharedPart<T>,
        Outgoing { slice, span, to }: &mut Outgoing,
    ) -> Result<(), Outcome> {
        let (line, _) = line_and_payload(slice);
        write_source(line, &to.address);
        if to.address.is_ipv6() {
            line[SOURCE..SOURCE + 2].copy_from_slice(&AF_INET6.to_ne_bytes());
        }
        if let Some((control, _)) = shared.registered.control_of(slice.index()) {
            // SAFETY: the control data goes with the slice, which is ours.
            let control = unsafe { &mut *control };
            let native = self.socket.as_ref().map(DatagramSocket::native);
            let length = native.map_or(0, |native| native.name_source(&mut control.data, to));
            control.total = if length == 0 { 0 } else { (CONTROL_HEAD + length) as u32 };
        }
        match span.segment {
            None => self
                .send(shared, slice.index(), (0, span.len), SEND)
                .map_err(|code| Outcome::NotSent(io::Error::from_raw_os_error(code).into())),
            Some(_) => {
                let mut progress = Progress::new(*span);
                match self.send_next(shared, slice, &mut progress) {
                    true => Ok(()),
                    false => Err(progress.outcome()),
                }
            }
        }
    }

    /// Makes sends known that were posted.
    pub fn commit_sends(&self, functions: Functions) -> io::Result<()> {
        // SAFETY: the queue is that of an open socket; it is given nothing.
        let committed = unsafe {
            (functions.send)(self.queue, ptr::null(), 0, RIO_MSG_COMMIT_ONLY, ptr::null())
        };
        if committed == 0 { Err(last_os_error()) } else { Ok(()) }
    }

    fn commit_receives(&self, functions: Functions) -> io::Result<()> {
        // SAFETY: as above.
        let committed = unsafe {
            (functions.receive)(self.queue, ptr::null(), 0, RIO_MSG_COMMIT_ONLY, ptr::null())
        };
        if committed == 0 { Err(last_os_error()) } else { Ok(()) }
    }
}

/// What a completion will say of its request.
fn context(index: u32, kind: usize) -> *const std::ffi::c_void {
    ptr::without_provenance((index as usize) << KIND_BITS | kind)
}

/// How far the datagrams of a slice that holds several have been sent: kept in its line, in front of where they go.
pub(super) struct Progress {
    span: Span,
    /// Where the next datagram begins.
    begin: usize,
    /// Whether one was posted: an empty span is one datagram.
    begun: bool,
    sent: u32,
    refused: u32,
    /// What the system answered the first time that it refused one.
    code: i32,
}

impl Progress {
    fn new(span: Span) -> Self {
        Self { span, begin: 0, begun: false, sent: 0, refused: 0, code: 0 }
    }

    /// The next datagram: where it begins, and how long it is.
    fn next(&mut self) -> Option<(usize, usize)> {
        if self.begun && self.begin >= self.span.len {
            return None;
        }
        self.begun = true;
        let segment = self.span.segment.map_or(self.span.len, |segment| segment.get().into());
        let (begin, length) = (self.begin, segment.min(self.span.len - self.begin));
        self.begin += length;
        Some((begin, length))
    }

    /// What came of one.
    pub fn note(&mut self, code: i32) {
        match code {
            0 => self.sent += 1,
            code => {
                if self.refused == 0 {
                    self.code = code;
                }
                self.refused += 1;
            }
        }
    }

    /// What came of all.
    pub fn outcome(&self) -> Outcome {
        let Self { span, sent, refused, code, .. } = *self;
        match refused {
            0 => Outcome::Sent(span),
            datagrams => Outcome::NotSent(Unsent {
                error: io::Error::from_raw_os_error(code),
                datagrams,
                sent,
            }),
        }
    }

    /// Keeps it in the line of a slice.
    pub fn write(&self, slice: &mut Slice) {
        let segment = self.span.segment.map_or(0, NonZeroU16::get);
        let numbers = [
            self.span.len as u32,
            u32::from(segment),
            self.begin as u32,
            u32::from(self.begun),
            self.sent,
            self.refused,
            self.code as u32,
        ];
        let places = line_and_payload(slice).0[..SOURCE].chunks_exact_mut(size_of::<u32>());
        places
            .zip(numbers)
            .for_each(|(place, number)| place.copy_from_slice(&number.to_ne_bytes()));
    }

    pub fn read(slice: &mut Slice) -> Self {
        let line = line_and_payload(slice).0;
        let number = |n: usize| {
            let bytes = line[n * size_of::<u32>()..].first_chunk();
            u32::from_ne_bytes(*bytes.expect("all lie inside the line"))
        };
        let (len, segment) = (number(0) as usize, NonZeroU16::new(number(1) as u16));
        Self {
            span: Span { len, segment },
            begin: number(2) as usize,
            begun: number(3) != 0,
            sent: number(4),
            refused: number(5),
            code: number(6) as i32,
        }
    }
}

/// The request queue of the provider `winsock`.
pub struct WinsockRequests<T: Sharing> {
    shared: SharedPart<T>,
    part: Part<T>,
    /// Posted since the last commit: the system cannot be asked to give them back.
    staged: Vec<Slice>,
    staged_sends: Vec<Outgoing>,
    reserved: Reserved,
}

impl<T: Sharing> WinsockRequests<T> {
    pub(super) fn new(shared: &SharedPart<T>, part: Part<T>) -> Self {
        Self {
            shared: shared.clone(),
            part,
            staged: Vec::with_capacity(shared.needs.receives as usize),
            staged_sends: Vec::with_capacity(shared.needs.sends as usize),
            reserved: Reserved::default(),
        }
    }

    /// Gives back what was not committed; says how many slices that were.
    pub(super) fn give_back(self) -> u32 {
        (self.staged.len() + self.staged_sends.len()) as u32
    }

    #[inline]
    fn checked(&self, slice: Slice) -> Result<Slice, (Slice, Refused)> {
        match self.shared.signals.is_stopped() {
            true => Err((slice, Refused::Stopped)),
            false => of_region(slice, self.shared.registered.region()),
        }
    }
}

/// Counts more receives, over all sockets and for this one.
fn count_receives<'a, T: Sharing>(
    shared: &'a SharedPart<T>,
    part: &'a Part<T>,
) -> impl FnOnce(u32) -> u32 + use<'a, T> {
    |more| {
        let added = shared.receives.add_below(more, shared.needs.receives);
        part.receives.add_below(added, u32::MAX);
        added
    }
}

impl<T: Sharing> RequestQueue for WinsockRequests<T> {
    #[inline]
    fn receive(&mut self, slice: Slice) -> Result<(), (Slice, Refused)> {
        let slice = self.checked(slice)?;
        if let Err(refused) = self.reserved.take(count_receives(&self.shared, &self.part)) {
            return Err((slice, refused));
        }
        self.staged.push(slice);
        Ok(())
    }

    fn reserve(&mut self, receives: u32) {
        self.reserved.fill(receives, count_receives(&self.shared, &self.part));
    }

    #[inline]
    fn send(
        &mut self,
        slice: Slice,
        span: impl Into<Span>,
        to: &Peer,
    ) -> Result<(), (Slice, Refused)> {
        let slice = self.checked(slice)?;
        let outstanding = (&self.part.sends, self.shared.needs.sends);
        self.staged_sends.push(Outgoing::new(slice, span.into(), to, outstanding)?);
        Ok(())
    }

    fn commit(&mut self, counters: &Counters) -> io::Result<()> {
        let Self { shared, part, staged, staged_sends, reserved } = self;
        reserved.give_up(|left| {
            part.receives.take_off(left);
            shared.receives.take_off(left);
        });
        if staged.is_empty() && staged_sends.is_empty() {
            return if shared.signals.is_stopped() { Err(Refused::Stopped.into()) } else { Ok(()) };
        }
        let mut refused = false;
        let committed = part.lane.with(|lane| {
            if lane.socket.is_none() {
                return Err(Refused::Stopped.into());
            }
            let mut result = Ok(());
            if !staged.is_empty() {
                // Before the first is posted: another thread may have its completion at once.
                shared.in_kernel.add_below(staged.len() as u32, u32::MAX);
                let mut posted = 0;
                while posted < staged.len() {
                    if let Err(e) = lane.receive(shared, &staged[posted]) {
                        result = Err(e);
                        break;
                    }
                    posted += 1;
                }
                staged.drain(..posted).for_each(drop_to_kernel);
                shared.in_kernel.take_off(staged.len() as u32);
                counters.kernel_entries.one();
                result = result.and(lane.commit_receives(shared.functions));
            }
            if !staged_sends.is_empty() {
                shared.in_kernel.add_below(staged_sends.len() as u32, u32::MAX);
                for mut outgoing in staged_sends.drain(..) {
                    match lane.start_send(shared, &mut outgoing) {
                        Ok(()) => drop_to_kernel(outgoing.slice),
                        Err(outcome) => {
                            shared.in_kernel.take_off(1);
                            lane.refused.push_back((outgoing.slice, outcome));
                        }
                    }
                }
                counters.kernel_entries.one();
                result = result.and(lane.commit_sends(shared.functions));
                refused = !lane.refused.is_empty();
            }
            result
        });
        if refused {
            shared.beside.set();
            shared.notice.wake();
        }
        committed
    }

    fn outstanding(&self) -> (u32, u32) {
        (self.part.receives.get(), self.part.sends.get())
    }
}

/// Leaves a slice to the kernel: its completion names it.
fn drop_to_kernel(slice: Slice) {
    let _ = slice.post();
}
