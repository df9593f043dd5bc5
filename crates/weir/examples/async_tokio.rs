//! Datagrams of a weir server awaited in tokio: each is answered by a task of its own.
//!
//! ```text
//! cargo run --release -p weir-io --example async_tokio -- 127.0.0.1:7009 "rio-event"
//! ```

use std::{env, error::Error, net::SocketAddr, sync::Arc};
use tokio::sync::{Notify, Semaphore};
use weir::{
    asynchronous::{Datagrams, Full, datagrams},
    limits::Limits,
    udp::{AnyDesign, Running, Server, SharedOutbox, Transmit},
};

/// Datagrams that wait for the tasks at a time; more are lost, and counted.
const WAITING: usize = 4096;

/// Tasks at a time.
const TASKS: usize = 256;

/// A server, and what it receives.
fn start(
    address: SocketAddr,
    design: &str,
) -> Result<(Running<impl weir::udp::Handler>, Datagrams), weir::Error> {
    let (receive, datagrams) = datagrams(WAITING, Full::DropNewest);
    let server = Server::bind(address)
        .limits(Limits::SINK.transmits_outstanding(1024))
        .start(AnyDesign::parse(design)?, move |_thread| receive.handler())?;
    Ok((server, datagrams))
}

/// Answers with the text in capitals, until no more come. Says how many that were.
async fn serve(mut datagrams: Datagrams, outbox: SharedOutbox) -> u64 {
    let tasks = Arc::new(Semaphore::new(TASKS));
    let mut answered = 0;
    while let Some(datagram) = datagrams.next().await {
        let Ok(permit) = Arc::clone(&tasks).acquire_owned().await else { break };
        let outbox = outbox.clone();
        answered += 1;
        tokio::spawn(async move {
            // Here a real server would await a database, say.
            let text = datagram.bytes.to_ascii_uppercase();
            // What finds the socket's buffer full is lost, as on its way.
            let _ = outbox.send(Transmit::new(datagram.source, &text));
            drop(permit);
        });
    }
    let _ = tasks.acquire_many(TASKS as u32).await; // the last ones
    answered
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let address: SocketAddr = arguments.next().as_deref().unwrap_or("127.0.0.1:7009").parse()?;
    let design = arguments.next().unwrap_or_else(|| "blocking-batch".into());
    let (server, datagrams) = start(address, &design)?;
    println!("{design} on {} (Ctrl-C ends)", server.local_addresses()[0]);
    let end = Arc::new(Notify::new());
    let asked = Arc::clone(&end);
    ctrlc::set_handler(move || asked.notify_one())?;
    let outbox = server.outbox();
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let answered = runtime.block_on(async {
        let serving = tokio::spawn(serve(datagrams, outbox));
        end.notified().await;
        // Its end ends the datagrams, and they the task.
        let report = tokio::task::spawn_blocking(|| server.stop()).await?;
        report.failure.map_or(Ok(()), |failure| Err(Box::<dyn Error>::from(failure)))?;
        Ok::<_, Box<dyn Error>>(serving.await?)
    })?;
    println!("{answered} answered");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_answers_in_capitals() {
        let (server, datagrams) = start("127.0.0.1:0".parse().unwrap(), "blocking-batch").unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let client = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        client.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
        client.connect(server.local_addresses()[0]).unwrap();
        let outbox = server.outbox();
        let client = std::thread::spawn(move || {
            for _ in 0..10 {
                client.send(b"hello").unwrap();
                let mut answer = [0; 16];
                let bytes = client.recv(&mut answer).unwrap();
                assert_eq!(&answer[..bytes], b"HELLO");
            }
            assert!(server.stop().failure.is_none());
        });
        assert_eq!(runtime.block_on(serve(datagrams, outbox)), 10);
        client.join().unwrap();
    }
}
