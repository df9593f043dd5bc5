//! compio as an echo server: a runtime for each core, which listens for itself, and a task for each
//! connection, on io_uring.
//!
//! The ring is set up as compio's documentation advises for a runtime of one thread.

use std::{io, process::ExitCode};

use compio::{
    buf::{BufResult, IntoInner, IoBuf},
    driver::ProactorBuilder,
    io::{AsyncRead, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    runtime::RuntimeBuilder,
};
use peer_tcp_common::{Asked, PAUSE, complain, listen, on_each_core};

fn main() -> ExitCode {
    peer_tcp_common::run(&["uring"], |asked| {
        on_each_core(move || {
            let mut ring = ProactorBuilder::new();
            ring.single_issuer(true).defer_taskrun(true).taskrun_flag(true);
            let runtime = RuntimeBuilder::new().with_proactor(ring).build()?;
            runtime.block_on(serve(asked))
        })
    })
}

async fn serve(asked: Asked) -> io::Result<()> {
    let listener = listen(asked.address, true)?;
    listener.set_nonblocking(false)?; // on a ring it is the request that waits
    let listener = TcpListener::from_std(listener)?;
    loop {
        match listener.accept().await {
            Ok((stream, _)) => compio::runtime::spawn(echo(stream, asked.buffer_bytes)).detach(),
            Err(error) => {
                complain(&error);
                compio::time::sleep(PAUSE).await;
            }
        }
    }
}

async fn echo(mut stream: TcpStream, buffer_bytes: usize) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer: Vec<u8> = Vec::with_capacity(buffer_bytes);
    loop {
        let BufResult(result, filled) = stream.read(buffer).await;
        let count = result?;
        if count == 0 {
            return Ok(());
        }
        let BufResult(result, sent) = stream.write_all(filled.slice(..count)).await;
        result?;
        buffer = sent.into_inner();
        buffer.clear();
    }
}
