//! Connections of a weir server awaited in smol: each is a task of its own, which answers line by line.
//!
//! ```text
//! cargo run --release -p weir-io --example async_smol -- 127.0.0.1:7010 epoll
//! ```

use std::{env, error::Error, io, net::SocketAddr};
use weir::{
    asynchronous::{Connection, Connections, connections},
    tcp::{AnyDesign, Running, Server},
};

/// Connections that wait for a task at a time, and bytes that wait to be read of each.
const WAITING: usize = 128;
const UNREAD_BYTES: usize = 64 * 1024;

/// The longest line; who sends a longer one is cut off.
const LONGEST: usize = 16 * 1024;

/// A server, and its connections.
fn start(address: SocketAddr, design: &str) -> Result<(Running, Connections), weir::Error> {
    let (accept, connections) = connections(WAITING, UNREAD_BYTES);
    let server =
        Server::bind(address).start(AnyDesign::parse(design)?, move |peer| accept.handler(peer))?;
    Ok((server, connections))
}

/// Answers each line with the line backwards.
async fn answer(mut connection: Connection) -> io::Result<()> {
    let (mut line, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let count = connection.read(&mut buffer).await?;
        if count == 0 {
            connection.finish();
            return Ok(());
        }
        for &byte in &buffer[..count] {
            if byte == b'\n' {
                line.reverse();
                line.push(byte);
                connection.write_all(&line).await?;
                line.clear();
            } else if line.len() == LONGEST {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "a line is too long"));
            } else {
                line.push(byte);
            }
        }
    }
}

/// Serves until no more connections come. Says how many came.
async fn serve(mut connections: Connections, executor: &smol::LocalExecutor<'_>) -> usize {
    let mut count = 0;
    while let Some(connection) = connections.next().await {
        count += 1;
        let peer = connection.peer();
        executor
            .spawn(async move {
                if let Err(error) = answer(connection).await {
                    eprintln!("{peer}: {error}");
                }
            })
            .detach();
    }
    count
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let address: SocketAddr = arguments.next().as_deref().unwrap_or("127.0.0.1:7010").parse()?;
    let design = arguments.next().unwrap_or_else(|| "blocking".into());
    let (server, connections) = start(address, &design)?;
    println!("{design} on {} (Ctrl-C ends)", server.local_addresses()[0]);
    let stopper = server.stopper();
    ctrlc::set_handler(move || stopper.wake())?;
    // A server that was asked to stop brings no more connections, once it has stopped.
    let stopping = std::thread::spawn(move || {
        server.wait();
        server.stop()
    });
    let executor = smol::LocalExecutor::new();
    let count = smol::block_on(executor.run(serve(connections, &executor)));
    println!("{count} connections");
    let report = stopping.join().expect("stopping does not panic");
    report.failure.map_or(Ok(()), |failure| Err(failure.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io::{BufRead as _, BufReader, Write as _},
        net::TcpStream,
    };

    #[test]
    fn it_answers_lines_backwards() {
        let (server, connections) = start("127.0.0.1:0".parse().unwrap(), "blocking").unwrap();
        let address = server.local_addresses()[0];
        let client = std::thread::spawn(move || {
            for _ in 0..3 {
                let mut stream = TcpStream::connect(address).unwrap();
                stream.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
                stream.write_all(b"abc\nde").unwrap();
                let mut lines = BufReader::new(stream.try_clone().unwrap());
                let mut line = String::new();
                lines.read_line(&mut line).unwrap();
                stream.write_all(b"f\n").unwrap();
                lines.read_line(&mut line).unwrap();
                assert_eq!(line, "cba\nfed\n");
            }
            assert!(server.stop().failure.is_none());
        });
        let executor = smol::LocalExecutor::new();
        assert_eq!(smol::block_on(executor.run(serve(connections, &executor))), 3);
        client.join().unwrap();
    }
}
