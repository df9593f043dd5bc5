//! A proxy: what a client says goes to another server, and what that answers goes back, on any design.
//!
//! ```text
//! cargo run --release -p weir-io --example tcp_proxy -- 127.0.0.1:5150 127.0.0.1:8080 epoll
//! ```
//!
//! `Relay` has the back-pressure of both directions and their ends.

use std::net::SocketAddr;
use weir::tcp::{AnyDesign, Connector, Relay, Running, Server};

/// Starts a proxy at an address for the server at another.
pub fn start(at: SocketAddr, to: SocketAddr, design: AnyDesign) -> Result<Running, weir::Error> {
    let connector = Connector::new();
    let its = connector.clone();
    Server::bind(at).start_connecting(design, &connector, move |_client| {
        let (client, server) = Relay::pair();
        let _ = its.connect(to, server); // refused, it is dropped, and the client's connection ends
        client
    })
}

#[allow(dead_code, reason = "a test includes the rest")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [at, to, design @ ..] = arguments.as_slice() else {
        return Err("give the address to listen on, that of the server behind, and a design".into());
    };
    let design = AnyDesign::parse(design.first().map_or("epoll", String::as_str))?;
    let running = start(at.parse()?, to.parse()?, design)?;
    println!("{} leads to {to}", running.local_addresses()[0]);
    running.wait();
    running.stop().failure.map_or(Ok(()), |failure| Err(failure.into()))
}
