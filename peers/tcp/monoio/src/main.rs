//! monoio as an echo server: a runtime for each core, which listens for itself, and a task for each
//! connection; on io_uring, or on epoll.
//!
//! The echo is the one of monoio's own README: `read`, then `write_all`, of a buffer that is handed
//! over and comes back.

use std::{io, process::ExitCode};

use monoio::{
    IoUringDriver, LegacyDriver, RuntimeBuilder,
    io::{AsyncReadRent, AsyncWriteRentExt},
    net::{ListenerOpts, TcpListener, TcpStream},
};
use peer_tcp_common::{Asked, BACKLOG, PAUSE, complain, on_each_core};

fn main() -> ExitCode {
    peer_tcp_common::run(&["uring", "epoll"], |asked| match asked.form {
        "epoll" => on_each_core(move || {
            let runtime = RuntimeBuilder::<LegacyDriver>::new().enable_timer().build();
            runtime?.block_on(serve(asked))
        }),
        _ => on_each_core(move || {
            let runtime = RuntimeBuilder::<IoUringDriver>::new().enable_timer().build();
            runtime?.block_on(serve(asked))
        }),
    })
}

async fn serve(asked: Asked) -> io::Result<()> {
    let options = ListenerOpts::new().backlog(BACKLOG).reuse_port(true);
    let listener = TcpListener::bind_with_config(asked.address, &options)?;
    loop {
        match listener.accept().await {
            Ok((stream, _)) => drop(monoio::spawn(echo(stream, asked.buffer_bytes))),
            Err(error) => {
                complain(&error);
                monoio::time::sleep(PAUSE).await;
            }
        }
    }
}

async fn echo(mut stream: TcpStream, buffer_bytes: usize) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer: Vec<u8> = Vec::with_capacity(buffer_bytes);
    let mut result;
    loop {
        (result, buffer) = stream.read(buffer).await;
        if result? == 0 {
            return Ok(());
        }
        (result, buffer) = stream.write_all(buffer).await;
        result?;
        buffer.clear();
    }
}
