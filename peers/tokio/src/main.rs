//! tokio as a receiver: `UdpSocket` in its runtime, on one thread or on several.
//!
//! It waits until the socket is readable, and then receives until nothing is left
//! (`try_recv_from`), as tokio's documentation advises: one system call a datagram, one wait for
//! as many as have come. tokio has no call for several datagrams and no receive offload. An answer is sent at
//! once (`try_send_to`), and waited for only where the socket is full.

use std::{convert::Infallible, io, process::ExitCode, sync::Arc, thread};

use peer_common::{Failure, Given, Library, Serve, Sink};
use tokio::{net::UdpSocket, runtime, task::JoinSet};

/// Most datagrams before other tasks have their turn.
const MOST_AT_A_TIME: usize = 256;

fn main() -> ExitCode {
    let form = std::env::args().nth(1).unwrap_or_else(|| "current".into());
    match form.as_str() {
        "current" => {
            let name = "tokio 1.48.0, current thread";
            peer_common::run(Library { name, receive_offload: false }, 1, on_current_thread)
        }
        "multi" => {
            let threads = thread::available_parallelism().map_or(1, usize::from);
            let name = "tokio 1.48.0, multi-thread";
            peer_common::run(Library { name, receive_offload: false }, threads, on_several)
        }
        other => {
            eprintln!("peer-tokio: {other:?} is no form; there are: current, multi");
            ExitCode::from(2)
        }
    }
}

fn on_current_thread(given: Given) -> Result<Infallible, Failure> {
    let Given { serve, socket, mut sinks } = given;
    let sink = sinks.pop().ok_or("no sink")?;
    let runtime = runtime::Builder::new_current_thread().enable_io().build()?;
    runtime.block_on(async {
        let socket = UdpSocket::from_std(socket)?;
        Ok(receive(&socket, sink, &serve).await?)
    })
}

fn on_several(given: Given) -> Result<Infallible, Failure> {
    let Given { serve, socket, sinks } = given;
    let threads = sinks.len();
    let runtime =
        runtime::Builder::new_multi_thread().worker_threads(threads).enable_io().build()?;
    runtime.block_on(async {
        let socket = Arc::new(UdpSocket::from_std(socket)?);
        let mut tasks = JoinSet::new();
        for sink in sinks {
            let socket = Arc::clone(&socket);
            let serve = serve.clone();
            tasks.spawn(async move { receive(&socket, sink, &serve).await });
        }
        match tasks.join_next().await {
            Some(ended) => Ok(ended??),
            None => Err("no task".into()),
        }
    })
}

async fn receive(socket: &UdpSocket, mut sink: Sink, serve: &Serve) -> io::Result<Infallible> {
    let mut buffer = vec![0; serve.size_bytes + 1];
    loop {
        socket.readable().await?;
        for _ in 0..MOST_AT_A_TIME {
            match socket.try_recv_from(&mut buffer) {
                Ok((length, from)) => {
                    sink.datagram(&buffer[..length]);
                    let Some(reply) = serve.reply(&buffer[..length]) else { continue };
                    match socket.try_send_to(reply, from) {
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                            socket.send_to(reply, from).await?;
                        }
                        sent => drop(sent?),
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
    }
}
