//! A socket that several processes have, as quinn takes it.

use super::{
    ConnectionIds,
    forwarded::{ENDED, LONGEST, header, read},
    way::{Inbox, Sent, Way, pair},
};
use crate::WeirSocket;
use quinn::{
    AsyncUdpSocket, EndpointConfig, UdpPoller,
    udp::{RecvMeta, Transmit},
};
use std::{
    fmt,
    future::poll_fn,
    io::{self, IoSliceMut},
    mem,
    net::SocketAddr,
    ops::Range,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll, Waker, ready},
};
use weir::{
    Error,
    inherited::{Inherited, Socket},
};

/// The most processes before one whose connections go on: more have to wait until one of these has ended.
pub const MOST_BEFORE: usize = 8;

/// What the way to a process is called where it is passed on; its key follows.
const NAME: &str = "weir-quinn-1 ";

/// A socket for quinn that one process hands over to the next, while the connections of the old one go on there.
///
/// It is made of the socket and of what was [passed on](Self::passed_on) with it, and is the endpoint's socket; the endpoint's
/// connection IDs have to be [its own](Self::configure). A process that takes over says that it serves, waits for its
/// [turn](Self::turn), and [begins](Self::begin). The one before [ends receiving](Self::end_receiving), and is over when its
/// connections are.
///
/// ```no_run
/// use quinn::{Endpoint, EndpointConfig, Runtime, TokioRuntime};
/// use std::{net::UdpSocket, path::Path, sync::Arc, time::Duration};
/// use weir::inherited::{Inherited, Offer, Socket, take_over};
/// use weir_quinn::{Settings, SharedSocket, WeirSocket};
///
/// # async fn serve(server: quinn::ServerConfig) -> Result<(), Box<dyn std::error::Error>> {
/// let path = Path::new("/run/example/next");
/// let mut before = take_over(path)?;
/// let (mut udp, mut passed_on) = (None, vec![]);
/// for one in before.as_mut().map(|before| before.sockets()).unwrap_or_default() {
///     match one.socket {
///         Socket::Datagrams(socket) => udp = Some(socket),
///         _ => passed_on.push(one),
///     }
/// }
/// let udp = udp.map_or_else(|| UdpSocket::bind("127.0.0.1:4433"), Ok)?;
/// let kept = Inherited { name: "udp".into(), socket: Socket::Datagrams(udp.try_clone()?) };
/// let runtime: Arc<dyn Runtime> = Arc::new(TokioRuntime);
/// let socket = WeirSocket::from_std(udp, &Settings::default(), &runtime)?;
/// let socket = Arc::new(SharedSocket::new(Arc::new(socket), passed_on)?);
/// let mut config = EndpointConfig::default();
/// socket.configure(&mut config);
/// let shared = Arc::clone(&socket);
/// let endpoint = Endpoint::new_with_abstract_socket(config, Some(server), socket, runtime)?;
/// let offer = Offer::at(path)?;
/// if let Some(before) = before {
///     before.serving()?;
///     let _ = tokio::time::timeout(Duration::from_secs(2), shared.turn()).await;
/// }
/// shared.begin();
/// // Meanwhile connections are accepted, which is left out here.
/// let mut passed_on = shared.passed_on()?;
/// passed_on.push(kept);
/// tokio::task::spawn_blocking(move || offer.hand_over(&passed_on)).await??; // there is a next one
/// shared.end_receiving().await;
/// endpoint.wait_idle().await;
/// # Ok(())
/// # }
/// ```
pub struct SharedSocket {
    socket: Arc<dyn AsyncUdpSocket>,
    /// The same, where it takes datagrams before it is asked for them.
    weir: Option<Arc<WeirSocket>>,
    ids: ConnectionIds,
    inbox: Inbox,
    /// The way to that inbox.
    way: Way,
    state: Mutex<State>,
    counts: Counts,
}

/// What changes.
struct State {
    stage: Stage,
    /// Those whose connections go on, the last one first.
    before: Vec<Process>,
    /// Something that was forwarded here, what is told of it, and where the part lies that quinn has not had.
    forwarded: Vec<u8>,
    meta: RecvMeta,
    left: Range<usize>,
    /// Who receives.
    reader: Option<Waker>,
    /// Who waits for the end of receiving.
    waiting: Vec<Waker>,
}

/// What it receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Nothing: it is the turn of the process before.
    Waits,
    /// What comes by the socket.
    Receives,
    /// What the socket has taken already: the next one waits.
    Ends,
    /// What is forwarded.
    Ended,
}

/// A process before this one.
struct Process {
    ids: ConnectionIds,
    way: Way,
    /// What is to be forwarded to it.
    gathered: Vec<u8>,
    datagrams: u64,
}

impl Process {
    /// The one that a socket is the way to.
    fn of(one: Inherited) -> Result<Self, Error> {
        let wrong = |problem: String| Error::option("sockets", problem);
        let Some(key) = one.name.strip_prefix(NAME) else {
            // A key may follow.
            let name = one.name.split(' ').next().unwrap_or_default();
            return Err(wrong(format!("{name:?} is no way to a process that serves QUIC")));
        };
        let Socket::UnixDatagrams(socket) = one.socket else {
            return Err(wrong(
                "the way to a process that serves QUIC is a Unix socket of datagrams".into(),
            ));
        };
        let ids = key.parse().map_err(wrong)?;
        Ok(Self { ids, way: Way::of(socket)?, gathered: Vec::new(), datagrams: 0 })
    }

    /// Whether somebody is there.
    fn lives(&self) -> bool {
        self.way.send(&[]) != Sent::Gone
    }
}

/// Datagrams, as counted.
#[derive(Debug, Default)]
struct Counts {
    forwarded: AtomicU64,
    dropped: AtomicU64,
    taken: AtomicU64,
}

/// What a [`SharedSocket`] counts, in datagrams.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Forwarding {
    /// Forwarded to processes before this one.
    pub forwarded: u64,
    /// Those that were to be forwarded, and had no room or nobody to go to; and those that came and that quinn had no room
    /// for.
    pub dropped: u64,
    /// Those that came from processes after this one.
    pub taken: u64,
}

impl SharedSocket {
    /// Of a socket of weir's, and of what the process before passed on besides the UDP socket
    /// ([`passed_on`](Self::passed_on)): nothing where there is none.
    ///
    /// # Errors
    /// [`Error::Option`] for what is no way to a process, and where more than [`MOST_BEFORE`] have connections yet;
    /// [`Error::Unavailable`] where sockets cannot be handed over, or without a runtime of tokio; [`Error::Io`].
    ///
    /// # Panics
    /// If this thread's runtime of tokio has no I/O (`enable_io`).
    pub fn new(socket: Arc<WeirSocket>, before: Vec<Inherited>) -> Result<Self, Error> {
        let weir = Some(Arc::clone(&socket));
        Self::made(socket, weir, before)
    }

    /// Of any other socket that takes nothing from the system but when it is polled, as quinn's own.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    ///
    /// # Panics
    /// As [`new`](Self::new).
    pub fn of(socket: Arc<dyn AsyncUdpSocket>, before: Vec<Inherited>) -> Result<Self, Error> {
        Self::made(socket, None, before)
    }

    fn made(
        socket: Arc<dyn AsyncUdpSocket>,
        weir: Option<Arc<WeirSocket>>,
        before: Vec<Inherited>,
    ) -> Result<Self, Error> {
        let (inbox, way) = pair()?;
        let before = before.into_iter().map(Process::of).collect::<Result<Vec<_>, _>>()?;
        // Its turn comes by the last one's word, though that may be over by then.
        let stage = if before.is_empty() { Stage::Receives } else { Stage::Waits };
        if before.iter().filter(|process| process.lives()).count() > MOST_BEFORE {
            let problem = format!(
                "more than {MOST_BEFORE} earlier processes still have connections: wait until one has none"
            );
            return Err(Error::option("sockets", problem));
        }
        let state = State {
            stage,
            before,
            forwarded: vec![0; LONGEST],
            meta: RecvMeta::default(),
            left: 0..0,
            reader: None,
            waiting: Vec::new(),
        };
        let (ids, state, counts) = (ConnectionIds::new()?, Mutex::new(state), Counts::default());
        Ok(Self { socket, weir, ids, inbox, way, state, counts })
    }

    /// Has the endpoint that is made of it give its connections IDs by which the processes after this one tell them.
    pub fn configure(&self, config: &mut EndpointConfig) {
        self.ids.configure(config);
    }

    /// What the next process needs besides the UDP socket: the ways to this one and to those before it that have connections
    /// yet.
    ///
    /// # Errors
    /// [`Error::Io`] with what the operating system answered.
    pub fn passed_on(&self) -> Result<Vec<Inherited>, Error> {
        let mut state = self.state();
        state.before.retain(Process::lives);
        let before = state.before.iter().map(|process| (&process.ids, &process.way));
        let named = |(ids, way): (&ConnectionIds, &Way)| {
            let socket = Socket::UnixDatagrams(way.socket()?);
            Ok(Inherited { name: format!("{NAME}{ids:x}"), socket })
        };
        [(&self.ids, &self.way)].into_iter().chain(before).map(named).collect()
    }

    /// Waits until the process before receives no more, which it says when it [has ended](Self::end_receiving). At once where there
    /// is none. One that has died says nothing: wait for a time, and begin.
    pub async fn turn(&self) {
        let answers = {
            let state = self.state();
            let last = state.before.first().filter(|_| state.stage == Stage::Waits);
            last.map(|process| process.way.answers())
        };
        let Some(Ok(answers)) = answers else { return };
        let mut said = [1; ENDED.len()];
        while said != *ENDED {
            let heard = poll_fn(|cx| answers.poll_recv(cx, &mut said)).await;
            if heard.is_err() {
                return; // nothing more is heard
            }
        }
    }

    /// Receives from now on, unless it does already. Before that, what comes waits.
    pub fn begin(&self) {
        self.enter(Stage::Waits, Stage::Receives);
    }

    /// Has it receive no more than is forwarded by those who have the socket from now on, and waits until that is so and the next
    /// one was told. What was taken from the socket by then quinn has had. It takes an endpoint that runs.
    pub async fn end_receiving(&self) {
        self.enter(Stage::Waits, Stage::Ends);
        self.enter(Stage::Receives, Stage::Ends);
        if let Some(weir) = &self.weir {
            weir.end_receiving();
        }
        poll_fn(|cx| {
            let mut state = self.state();
            if state.stage == Stage::Ended {
                return Poll::Ready(());
            }
            if !state.waiting.iter().any(|waiting| waiting.will_wake(cx.waker())) {
                state.waiting.push(cx.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }

    /// What it counts.
    pub fn forwarding(&self) -> Forwarding {
        let Counts { forwarded, dropped, taken } = &self.counts;
        let [forwarded, dropped, taken] =
            [forwarded, dropped, taken].map(|count| count.load(Relaxed));
        Forwarding { forwarded, dropped, taken }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing under the lock panics half way through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Goes from one stage to another, if it is there, and has who receives look.
    fn enter(&self, from: Stage, to: Stage) {
        let mut state = self.state();
        if state.stage == from {
            state.stage = to;
            let reader = state.reader.take();
            drop(state);
            reader.into_iter().for_each(Waker::wake);
        }
    }

    /// Takes those datagrams out of a buffer that are of processes before this one, and forwards them.
    fn sort(&self, before: &mut Vec<Process>, buffer: &mut [u8], meta: &mut RecvMeta) {
        let stride = meta.stride.max(1);
        let mut kept = 0;
        for begin in (0..meta.len).step_by(stride) {
            let datagram = begin..meta.len.min(begin + stride);
            let bytes = &buffer[datagram.clone()];
            let is_of = |process: &&mut Process| process.ids.are_of(bytes);
            match before.iter_mut().find(is_of).filter(|_| !self.ids.are_of(bytes)) {
                Some(process) => {
                    if process.datagrams == 0 {
                        process.gathered.extend_from_slice(&header(meta));
                    }
                    process.gathered.extend_from_slice(bytes);
                    process.datagrams += 1;
                }
                None => {
                    let len = datagram.len();
                    buffer.copy_within(datagram, kept);
                    kept += len;
                }
            }
        }
        meta.len = kept; // quinn passes over nothing
        before.retain_mut(|process| {
            let datagrams = mem::take(&mut process.datagrams);
            if datagrams == 0 {
                return true;
            }
            let sent = process.way.send(&process.gathered);
            process.gathered.clear();
            let Counts { forwarded, dropped, .. } = &self.counts;
            let count = if sent == Sent::Yes { forwarded } else { dropped };
            count.fetch_add(datagrams, Relaxed);
            sent != Sent::Gone
        });
    }

    /// Gives quinn what was forwarded here.
    fn poll_forwarded(
        &self,
        state: &mut State,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        metas: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let State { forwarded, meta, left, .. } = state;
        let places = buffers.len().min(metas.len());
        let mut count = 0;
        while count < places {
            if left.start == left.end {
                let len = match self.inbox.poll_recv(cx, forwarded) {
                    Poll::Ready(Ok(len)) => len,
                    Poll::Pending if count == 0 => return Poll::Pending,
                    Poll::Ready(Err(error)) if count == 0 => return Poll::Ready(Err(error)),
                    _ => break,
                };
                let Some(told) = read(&forwarded[..len]) else { continue };
                let datagrams = told.len.div_ceil(told.stride) as u64;
                self.counts.taken.fetch_add(datagrams, Relaxed);
                (*meta, *left) = (told, len - told.len..len);
            }
            let room = buffers[count].len();
            let fits = if left.len() <= room { left.len() } else { room - room % meta.stride };
            if fits == 0 {
                let dropped = left.len().div_ceil(meta.stride) as u64;
                self.counts.dropped.fetch_add(dropped, Relaxed);
                *left = 0..0;
                continue;
            }
            buffers[count][..fits].copy_from_slice(&forwarded[left.start..left.start + fits]);
            left.start += fits;
            metas[count] = RecvMeta { len: fits, stride: meta.stride.min(fits), ..*meta };
            count += 1;
        }
        Poll::Ready(Ok(count))
    }

    /// Receives from the socket. Pending: nothing is there, or it is not asked.
    fn poll_socket(
        &self,
        state: &mut State,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        metas: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let receives = state.stage == Stage::Receives;
        // One of weir's gives what it has taken, and takes back what was sent.
        if !receives && self.weir.is_none() {
            return Poll::Pending;
        }
        let count = ready!(self.socket.poll_recv(cx, buffers, metas))?;
        if !state.before.is_empty() {
            for (buffer, meta) in buffers.iter_mut().zip(metas).take(count) {
                self.sort(&mut state.before, buffer, meta);
            }
        }
        Poll::Ready(Ok(count))
    }
}

impl AsyncUdpSocket for SharedSocket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Arc::clone(&self.socket).create_io_poller()
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        self.socket.try_send(transmit)
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        metas: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let mut state = self.state();
        if !state.reader.as_ref().is_some_and(|reader| reader.will_wake(cx.waker())) {
            state.reader = Some(cx.waker().clone());
        }
        if state.stage == Stage::Waits {
            return Poll::Pending;
        }
        let received = self.poll_socket(&mut state, cx, buffers, metas);
        if received.is_ready() {
            return received;
        }
        let mut waiting = Vec::new();
        let weir_has_ended = self.weir.as_ref().is_none_or(|weir| weir.has_ended_receiving());
        if state.stage == Stage::Ends && weir_has_ended {
            state.stage = Stage::Ended;
            self.inbox.say(ENDED);
            waiting = mem::take(&mut state.waiting);
        }
        let forwarded = match state.stage {
            Stage::Ended => self.poll_forwarded(&mut state, cx, buffers, metas),
            _ => Poll::Pending,
        };
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
        forwarded
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.socket.max_transmit_segments()
    }

    fn max_receive_segments(&self) -> usize {
        self.socket.max_receive_segments()
    }

    fn may_fragment(&self) -> bool {
        self.socket.may_fragment()
    }
}

impl fmt::Debug for SharedSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedSocket")
            .field("socket", &self.socket)
            .field("forwarding", &self.forwarding())
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use quinn::{ConnectionIdGenerator as _, Runtime as _, TokioRuntime};

    fn in_runtime(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(test);
    }

    fn socket(before: Vec<Inherited>) -> Result<SharedSocket, Error> {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        SharedSocket::of(TokioRuntime.wrap_udp_socket(socket).unwrap(), before)
    }

    /// A datagram of 20 bytes to a connection with an ID of these, full of this.
    fn datagram(ids: &ConnectionIds, content: u8) -> Vec<u8> {
        let id = ids.clone().generate_cid();
        [&[0x40][..], &id, &[content; 11]].concat()
    }

    const STRIDE: usize = 20;

    fn told(bytes: &[u8]) -> RecvMeta {
        RecvMeta {
            addr: "192.0.2.1:5000".parse().unwrap(),
            len: bytes.len(),
            stride: STRIDE,
            ecn: Some(quinn::udp::EcnCodepoint::Ce),
            dst_ip: Some("192.0.2.2".parse().unwrap()),
        }
    }

    /// What quinn is given of what was forwarded, in buffers of this size, when the reactor has said that something is there.
    async fn forwarded_to(socket: &SharedSocket, buffer_bytes: usize) -> Vec<(RecvMeta, Vec<u8>)> {
        let mut memory = vec![vec![0; buffer_bytes]; 4];
        let mut metas = [RecvMeta::default(); 4];
        let mut buffers: Vec<_> = memory.iter_mut().map(|one| IoSliceMut::new(one)).collect();
        let count = poll_fn(|cx| {
            let mut state = socket.state();
            socket.poll_forwarded(&mut state, cx, &mut buffers, &mut metas)
        });
        let count = count.await.unwrap();
        drop(buffers);
        let of = |(meta, bytes): (RecvMeta, Vec<u8>)| (meta, bytes[..meta.len].to_vec());
        metas.into_iter().zip(memory).take(count).map(of).collect()
    }

    /// Sorts what lies in a buffer; gives what is left.
    fn sorted(socket: &SharedSocket, bytes: &[u8]) -> Vec<u8> {
        let (mut buffer, mut meta) = (bytes.to_vec(), told(bytes));
        socket.sort(&mut socket.state().before, &mut buffer, &mut meta);
        buffer.truncate(meta.len);
        buffer
    }

    #[test]
    fn datagrams_go_to_the_process_whose_connection_ids_they_have() {
        in_runtime(async {
            let first = socket(vec![]).unwrap();
            let second = socket(first.passed_on().unwrap()).unwrap();
            let third = socket(second.passed_on().unwrap()).unwrap();
            let stranger = ConnectionIds::new().unwrap();
            let all = [
                datagram(&first.ids, 1),
                datagram(&third.ids, 2),
                datagram(&second.ids, 3),
                datagram(&stranger, 4),
                datagram(&first.ids, 5)[..15].to_vec(),
            ];
            assert_eq!(sorted(&third, &all.concat()), [&all[1][..], &all[3]].concat());
            let came = forwarded_to(&first, 1500).await;
            assert_eq!(came.len(), 1);
            assert_eq!(came[0].1, [&all[0][..], &all[4]].concat());
            let (expected, meta) = (told(&all.concat()), came[0].0);
            assert_eq!((meta.addr, meta.stride), (expected.addr, STRIDE));
            assert_eq!((meta.ecn, meta.dst_ip), (expected.ecn, expected.dst_ip));
            assert_eq!(forwarded_to(&second, 1500).await[0].1, all[2]);
            assert_eq!(third.forwarding(), Forwarding { forwarded: 3, dropped: 0, taken: 0 });
            assert_eq!(first.forwarding(), Forwarding { forwarded: 0, dropped: 0, taken: 2 });
        });
    }

    #[test]
    fn what_fits_into_no_buffer_at_once_comes_in_parts_and_too_long_a_datagram_not_at_all() {
        in_runtime(async {
            let first = socket(vec![]).unwrap();
            let second = socket(first.passed_on().unwrap()).unwrap();
            let all: Vec<_> = (0..7).map(|number| datagram(&first.ids, number)).collect();
            assert!(sorted(&second, &all.concat()).is_empty());
            // Each buffer has room for one, and a bit.
            let mut parts = forwarded_to(&first, 30).await;
            parts.extend(forwarded_to(&first, 30).await);
            let parts: Vec<_> = parts.into_iter().map(|(_, bytes)| bytes).collect();
            assert_eq!(parts, all);
            assert!(sorted(&second, &all.concat()).is_empty());
            // Those are dropped, up to the one that is shorter.
            let short = &datagram(&first.ids, 8)[..STRIDE - 1];
            assert!(sorted(&second, short).is_empty());
            assert_eq!(forwarded_to(&first, STRIDE - 1).await[0].1, short);
            assert_eq!(first.forwarding(), Forwarding { forwarded: 0, dropped: 7, taken: 15 });
        });
    }

    #[test]
    fn forwarding_ends_where_there_is_no_room_and_where_nobody_is() {
        in_runtime(async {
            let first = socket(vec![]).unwrap();
            let second = socket(first.passed_on().unwrap()).unwrap();
            let mine = datagram(&first.ids, 1);
            let mut sent = 0;
            while second.forwarding().dropped == 0 {
                assert!(sorted(&second, &mine).is_empty());
                sent += 1;
            }
            assert_eq!(second.forwarding().forwarded, sent - 1);
            while first.forwarding().taken < sent - 1 {
                forwarded_to(&first, 1500).await;
            }
            // What is there is found out when it is passed on, or by the next datagram.
            assert_eq!(second.passed_on().unwrap().len(), 2);
            drop(first);
            assert!(sorted(&second, &mine).is_empty());
            assert_eq!(second.forwarding().dropped, 2);
            assert_eq!(sorted(&second, &mine), mine, "nobody's");
            assert_eq!(second.passed_on().unwrap().len(), 1);
        });
    }

    #[test]
    fn so_many_processes_may_be_before_one_and_no_more() {
        in_runtime(async {
            let mut all = vec![socket(vec![]).unwrap()];
            for _ in 0..MOST_BEFORE {
                let passed_on = all.last().unwrap().passed_on().unwrap();
                all.push(socket(passed_on).unwrap());
            }
            let passed_on = || all.last().unwrap().passed_on().unwrap();
            let error = socket(passed_on()).unwrap_err().to_string();
            assert!(error.contains("wait until"), "{error}");
            let mut others = passed_on();
            others[0].name = "quic 0123456789abcdef".into();
            let error = socket(others).unwrap_err().to_string();
            assert!(error.contains("\"quic\"") && !error.contains("0123"), "{error}");
            let mut others = passed_on();
            others[0].name.pop();
            assert!(socket(others).unwrap_err().to_string().contains("32"));
            all.remove(0);
            assert!(socket(all.last().unwrap().passed_on().unwrap()).is_ok());
        });
    }
}
