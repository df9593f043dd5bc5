//! What the peers in Rust share: the talk with weir, the socket, and what is done with a datagram.
//! How it is received is theirs.

use std::{
    convert::Infallible,
    error::Error,
    io::{self, BufReader, Stdin, Stdout},
    net::{SocketAddr, UdpSocket},
    process::{ExitCode, exit},
    thread,
};

use nix::sys::socket::{getsockopt, setsockopt, sockopt};
use socket2::{Domain, Socket, Type};
use weir_load::peer::{Ready, Talk, setting};
pub use weir_load::peer::{Serve, Sink};

/// Why a peer ends before it is told to.
pub type Failure = Box<dyn Error + Send + Sync>;

/// A library under test.
#[derive(Debug, Clone, Copy)]
pub struct Library {
    /// Its name and version, and the form in which it is used.
    pub name: &'static str,
    /// Whether it can receive several datagrams as one (UDP_GRO).
    pub receive_offload: bool,
}

/// What a peer receives with.
#[derive(Debug)]
pub struct Given {
    /// What was asked for.
    pub serve: Serve,
    /// Bound, and non-blocking.
    pub socket: UdpSocket,
    /// What is done with a datagram, one for each thread that receives.
    pub sinks: Vec<Sink>,
}

/// Runs a peer: hears what is asked, binds, answers on a thread of its own, and receives on
/// `threads` sinks until the input ends.
pub fn run(
    library: Library,
    threads: usize,
    receive: impl FnOnce(Given) -> Result<Infallible, Failure>,
) -> ExitCode {
    match attempt(library, threads, receive) {
        Ok(never) => match never {},
        Err(failure) => {
            eprintln!("{}: {failure}", library.name);
            ExitCode::FAILURE
        }
    }
}

fn attempt(
    library: Library,
    threads: usize,
    receive: impl FnOnce(Given) -> Result<Infallible, Failure>,
) -> Result<Infallible, Failure> {
    let (mut talk, serve) = Talk::open(BufReader::new(io::stdin()), io::stdout())?;
    if serve.receive_offload && !library.receive_offload {
        let message = format!("{} has no receive offload", library.name);
        talk.fail(&message, true)?;
        return Err(message.into());
    }
    let socket = match bind(&serve) {
        Ok(socket) => socket,
        Err(error) => {
            talk.fail(&format!("cannot bind {}: {error}", serve.address), false)?;
            return Err(error);
        }
    };
    let sinks = (0..threads).map(|_| talk.sink(&serve)).collect();
    talk.ready(Ready {
        address: socket.local_addr()?,
        settings: settings(library, &serve, &socket)?,
    })?;
    thread::spawn(move || answer(talk));
    receive(Given { serve, socket, sinks })
}

fn answer(mut talk: Talk<BufReader<Stdin>, Stdout>) {
    match talk.answer() {
        Ok(()) => exit(0),
        Err(error) => {
            eprintln!("{error}");
            exit(1)
        }
    }
}

fn bind(serve: &Serve) -> Result<UdpSocket, Failure> {
    let socket = Socket::new(Domain::for_address(serve.address), Type::DGRAM, None)?;
    if let Some(bytes) = serve.receive_buffer_bytes {
        socket.set_recv_buffer_size(bytes)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&SocketAddr::into(serve.address))?;
    set_receive_offload(&socket, serve.receive_offload)?;
    Ok(socket.into())
}

/// Has several datagrams of one sender come as one, or not: libraries that turn it on by
/// themselves must leave it off where it was not asked for.
///
/// # Errors
/// If the kernel does not know it (before Linux 5.0).
pub fn set_receive_offload(socket: &impl std::os::fd::AsFd, on: bool) -> Result<(), Failure> {
    Ok(setsockopt(socket, sockopt::UdpGroSegment, &on)?)
}

fn settings(
    library: Library,
    serve: &Serve,
    socket: &UdpSocket,
) -> Result<std::collections::BTreeMap<String, String>, Failure> {
    let mut settings = vec![
        (setting::LIBRARY, library.name.to_owned()),
        (setting::RECEIVE_BUFFER, getsockopt(socket, sockopt::RcvBuf)?.to_string()),
        (setting::RECEIVE_OFFLOAD, serve.receive_offload.to_string()),
    ];
    settings.extend(serve.work_steps.map(|steps| (setting::WORK, steps.to_string())));
    settings.extend(serve.reply_bytes.map(|bytes| (setting::REPLY_BYTES, bytes.to_string())));
    settings.extend(serve.runs_together.map(|runs| (setting::RUNS_TOGETHER, runs.to_string())));
    Ok(settings.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}
