//! A UDP echo server that cannot be made to harm anyone: it never answers more than it
//! received, and at most so many datagrams a second. Two of them that are made to answer each other
//! come to rest: of equal replies to one source now and then one is dropped, and it answers neither
//! itself nor services that answer whatever they are sent (`Limits::refuse_loops`).
//!
//! ```text
//! cargo run --release -p weir-io --example udp_echo -- 127.0.0.1:7007 "rio-hybrid --threads 1"
//! ```

use std::{env, error::Error, net::SocketAddr, sync::mpsc, time::Duration};
use weir::{
    limits::Limits,
    udp::{AnyDesign, Datagram, Replies, Server},
};

/// Echoes per second, over all threads.
const ECHOES_PER_S: u64 = 100_000;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let address: SocketAddr = arguments.next().as_deref().unwrap_or("127.0.0.1:7007").parse()?;
    let design = arguments.next().unwrap_or_else(|| "blocking-batch".into());

    let server = Server::bind(address).limits(Limits::echo(ECHOES_PER_S)).start(
        AnyDesign::parse(&design)?,
        |_thread| {
            |_: Datagram<'_>, replies: &mut Replies<'_>| {
                // A refusal is counted by the server; there is nobody else to tell.
                let _ = replies.echo();
            }
        },
    )?;
    let (end, ended) = mpsc::channel();
    ctrlc::set_handler(move || end.send(()).expect("main waits for it"))?;
    println!("{design} on {} (Ctrl-C ends)", server.local_addresses()[0]);
    while server.is_running() && ended.recv_timeout(Duration::from_millis(200)).is_err() {}

    let report = server.stop();
    let total = report.total();
    println!(
        "{} datagrams, {} echoed, {} refused by the limits, {} dropped as loops",
        total.datagrams, total.replies, total.replies_refused, total.loops_dropped
    );
    report.failure.map_or(Ok(()), |failure| Err(failure.into()))
}
