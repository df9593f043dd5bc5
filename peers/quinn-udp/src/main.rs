//! quinn-udp as a receiver: its `UdpSocketState`, which receives up to 32 messages a call
//! (recvmmsg), each of which may be several datagrams where receive offload is on.
//!
//! Answers in a row to one sender and of one size leave as one, as quinn sends the packets of a connection: put behind
//! each other and cut by the kernel (UDP_SEGMENT).
//!
//! It waits as quinn does, in tokio's runtime, or with nothing but poll(2). quinn-udp turns
//! receive offload on by itself; it is turned off again where it was not asked for.

use std::{
    convert::Infallible,
    io::{self, IoSliceMut},
    net::{SocketAddr, UdpSocket},
    ops::Range,
    os::fd::AsFd,
    process::ExitCode,
};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use peer_common::{Failure, Given, Library, Serve, Sink, set_receive_offload};
use quinn_udp::{BATCH_SIZE, RecvMeta, Transmit, UdpSocketState};
use tokio::{io::Interest, runtime};

/// Bytes that leave as one at most.
const LONGEST_BYTES: usize = 65_507;

/// Most calls before other tasks have their turn.
const MOST_AT_A_TIME: usize = 64;

fn main() -> ExitCode {
    let form = std::env::args().nth(1).unwrap_or_else(|| "tokio".into());
    let library = |name| Library { name, receive_offload: true };
    match form.as_str() {
        "tokio" => peer_common::run(library("quinn-udp 0.5.14 on tokio"), 1, on_tokio),
        "poll" => peer_common::run(library("quinn-udp 0.5.14 with poll"), 1, with_poll),
        other => {
            eprintln!("peer-quinn-udp: {other:?} is no form; there are: tokio, poll");
            ExitCode::from(2)
        }
    }
}

/// What messages are received into.
struct Batch {
    state: UdpSocketState,
    buffers: Vec<Vec<u8>>,
    metas: [RecvMeta; BATCH_SIZE],
    /// Answers that leave as one.
    joined: Vec<u8>,
    sink: Sink,
    serve: Serve,
}

impl Batch {
    fn new(given: &mut Given) -> Result<Self, Failure> {
        let state = UdpSocketState::new((&given.socket).into())?;
        set_receive_offload(&given.socket, given.serve.receive_offload)?;
        // As quinn does: room for as many datagrams as may come as one.
        let segments = if given.serve.receive_offload { state.gro_segments() } else { 1 };
        let bytes = (given.serve.size_bytes * segments).clamp(given.serve.size_bytes + 1, 1 << 16);
        let buffers = vec![vec![0; bytes]; BATCH_SIZE];
        let sink = given.sinks.pop().ok_or("no sink")?;
        let (metas, serve) = ([RecvMeta::default(); BATCH_SIZE], given.serve.clone());
        let joined = Vec::with_capacity(1 << 16);
        Ok(Self { state, buffers, metas, joined, sink, serve })
    }

    /// Receives once; gives whether anything came.
    fn receive(&mut self, socket: &impl AsFd) -> io::Result<()> {
        let mut buffers = self.buffers.iter_mut();
        let mut slices: [IoSliceMut<'_>; BATCH_SIZE] = std::array::from_fn(|_| {
            IoSliceMut::new(buffers.next().map_or(&mut [], |buffer| buffer.as_mut_slice()))
        });
        let count = self.state.recv(socket.into(), &mut slices, &mut self.metas)?;
        for (meta, buffer) in self.metas[..count].iter().zip(&self.buffers) {
            self.sink.segments(&buffer[..meta.len], meta.stride);
        }
        if let Some(most) = self.serve.reply_bytes {
            let mut answered = 0;
            while answered < count {
                answered += self.answer_some(socket, &(answered..count), most)?;
            }
        }
        Ok(())
    }

    /// Answers the first of these messages, together with those behind it that can leave as one with it; gives how many.
    fn answer_some(
        &mut self,
        socket: &impl AsFd,
        messages: &Range<usize>,
        most: usize,
    ) -> io::Result<usize> {
        let first = self.metas[messages.start];
        let size = first.len.min(most);
        let fit = self.state.max_gso_segments().min(LONGEST_BYTES / size.max(1));
        let alike = self.metas[messages.clone()].iter().take(fit).take_while(|meta| {
            // Those that came as one by receive offload are long enough as they are.
            meta.addr == first.addr && meta.len <= meta.stride && meta.len.min(most) == size
        });
        let alike = if self.serve.send_offload && size > 0 { alike.count() } else { 0 };
        if alike < 2 {
            let received = &self.buffers[messages.start][..first.len];
            return self.answer(socket, &first, received, most).map(|()| 1);
        }
        self.joined.clear();
        for buffer in &self.buffers[messages.start..messages.start + alike] {
            self.joined.extend_from_slice(&buffer[..size]);
        }
        self.send(socket, first.addr, &self.joined, Some(size)).map(|()| alike)
    }

    /// Answers what came as one as it came, so that it leaves as one (UDP_SEGMENT); each by itself where an answer is
    /// shorter.
    fn answer(
        &self,
        socket: &impl AsFd,
        meta: &RecvMeta,
        received: &[u8],
        most: usize,
    ) -> io::Result<()> {
        let transmit = |contents, segment| self.send(socket, meta.addr, contents, segment);
        match most >= meta.stride {
            true => transmit(received, (meta.len > meta.stride).then_some(meta.stride)),
            false => received
                .chunks(meta.stride.max(1))
                .try_for_each(|datagram| transmit(&datagram[..datagram.len().min(most)], None)),
        }
    }

    fn send(
        &self,
        socket: &impl AsFd,
        destination: SocketAddr,
        contents: &[u8],
        segment_size: Option<usize>,
    ) -> io::Result<()> {
        let transmit = Transmit { destination, ecn: None, contents, segment_size, src_ip: None };
        match self.state.try_send(socket.into(), &transmit) {
            // What the system has no room for is lost, as for any server that does not wait.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            sent => sent,
        }
    }
}

fn on_tokio(mut given: Given) -> Result<Infallible, Failure> {
    let mut batch = Batch::new(&mut given)?;
    let runtime = runtime::Builder::new_current_thread().enable_io().build()?;
    runtime.block_on(async {
        let socket = tokio::net::UdpSocket::from_std(given.socket)?;
        loop {
            socket.readable().await?;
            for _ in 0..MOST_AT_A_TIME {
                let received = || batch.receive(&socket);
                match socket.try_io(Interest::READABLE, received) {
                    Ok(()) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error.into()),
                }
            }
        }
    })
}

fn with_poll(mut given: Given) -> Result<Infallible, Failure> {
    let mut batch = Batch::new(&mut given)?;
    let socket: UdpSocket = given.socket;
    loop {
        batch.sink.entered_kernel();
        match batch.receive(&socket) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                batch.sink.entered_kernel();
                let mut wait = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
                poll(&mut wait, PollTimeout::NONE)?;
            }
            Err(error) => return Err(error.into()),
        }
    }
}
