//! tokio as an echo server: a task for each connection, on one thread or on several.
//!
//! The echo is the one of tokio's own documentation: `read`, then `write_all`.

use std::{io, process::ExitCode};

use peer_tcp_common::{Asked, PAUSE, complain, listen};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    runtime::Builder,
};

fn main() -> ExitCode {
    peer_tcp_common::run(&["current", "multi"], |asked| {
        let mut builder = match asked.form {
            "multi" => Builder::new_multi_thread(), // a worker for each core
            _ => Builder::new_current_thread(),
        };
        builder.enable_all().build()?.block_on(serve(asked))
    })
}

async fn serve(asked: Asked) -> io::Result<()> {
    let listener = TcpListener::from_std(listen(asked.address, false)?)?;
    loop {
        match listener.accept().await {
            Ok((stream, _)) => drop(tokio::spawn(echo(stream, asked.buffer_bytes))),
            Err(error) => {
                complain(&error);
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

async fn echo(mut stream: TcpStream, buffer_bytes: usize) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = vec![0; buffer_bytes];
    loop {
        match stream.read(&mut buffer).await? {
            0 => return Ok(()),
            count => stream.write_all(&buffer[..count]).await?,
        }
    }
}
