//! A UDP sink: counts what comes, once a second.
//!
//! ```text
//! cargo run --release -p weir-io --example udp_sink -- 127.0.0.1:8080 "rio-hybrid --threads 1"
//! ```

use std::{env, error::Error, net::SocketAddr, sync::mpsc, time::Duration};
use weir::udp::{AnyDesign, Datagram, Replies, Server};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let address: SocketAddr = arguments.next().as_deref().unwrap_or("127.0.0.1:8080").parse()?;
    let design = arguments.next().unwrap_or_else(|| "blocking-batch".into());

    let server = Server::bind(address)
        .start(AnyDesign::parse(&design)?, |_thread| |_: Datagram<'_>, _: &mut Replies<'_>| {})?;
    let (end, ended) = mpsc::channel();
    ctrlc::set_handler(move || end.send(()).expect("main waits for it"))?;
    println!("{design} on {} (Ctrl-C ends)", server.local_addresses()[0]);
    let mut before = 0;
    while server.is_running() && ended.recv_timeout(Duration::from_secs(1)).is_err() {
        let datagrams: u64 = server.counters().iter().map(|thread| thread.datagrams).sum();
        println!("{} datagrams/s", datagrams - before);
        before = datagrams;
    }

    let report = server.stop();
    println!("{} datagrams in {:.1?}", report.total().datagrams, report.elapsed);
    report.failure.map_or(Ok(()), |failure| Err(failure.into()))
}
