//! A proxy: what a client says goes to another server, and what that answers goes back, on any design.
//!
//! ```text
//! cargo run --release -p weir-io --example tcp_proxy -- 127.0.0.1:5150 127.0.0.1:8080 epoll
//! ```
//!
//! Each side of a pair is a connection with a handle of the other. A side whose peer does not keep up keeps what it has
//! received last and pauses, so the sender's own sending comes to rest; when the other side has sent something, it wakes
//! this one.

use std::{
    net::SocketAddr,
    sync::{Arc, OnceLock},
};
use weir::tcp::{
    AnyDesign, Asks, Connector, Handle, Handler, Mail, Output, Reason, Refused, Running, Server,
};

/// Where the handle of a side is, once its connection stands.
type Cell = Arc<OnceLock<Handle>>;

/// A connection to a client, or to the server behind.
pub struct Side {
    own: Cell,
    other: Cell,
    /// Of a client: how to reach the server.
    behind: Option<(SocketAddr, Connector<Side>)>,
    /// What the other side had no room for, and whether nothing follows.
    kept: Vec<u8>,
    ended: bool,
    /// The other side has nothing more to send here.
    over: bool,
}

impl Side {
    fn new(own: Cell, other: Cell, behind: Option<(SocketAddr, Connector<Side>)>) -> Self {
        Self { own, other, behind, kept: Vec::new(), ended: false, over: false }
    }

    /// Passes on as much as the other side has room for, and then the end.
    fn pass_on(&mut self) {
        let Some(other) = self.other.get() else { return };
        let fit = self.kept.len().min(other.room());
        match other.send(&self.kept[..fit]) {
            Ok(()) => drop(self.kept.drain(..fit)),
            Err(Refused::Full) => {}     // somebody else was faster
            Err(_) => self.kept.clear(), // nothing more goes there
        }
        if self.ended && self.kept.is_empty() {
            other.close();
        }
    }
}

impl Handler for Side {
    fn on_connect(&mut self, _: SocketAddr, output: &mut Output<'_>) {
        let own = self.own.get_or_init(|| output.handle());
        if let Some((to, connector)) = &self.behind {
            let side = Side::new(Arc::clone(&self.other), Arc::clone(&self.own), None);
            if connector.connect(*to, side).is_err() {
                own.close();
            }
        } else if self.other.get().is_none_or(|client| client.wake().is_err()) {
            own.close(); // it has gone meanwhile
        }
    }

    fn on_receive(&mut self, bytes: &mut [u8], _: &mut Output<'_>) {
        self.kept.extend_from_slice(bytes);
        self.pass_on();
    }

    fn on_sent(&mut self, _: usize, _: &mut Output<'_>) {
        let _ = self.other.get().map(Handle::wake); // there is room here
    }

    fn on_end(&mut self, _: &mut Output<'_>) {
        self.ended = true;
        self.pass_on();
    }

    fn on_mail(&mut self, mail: &mut Mail, output: &mut Output<'_>) {
        mail.send(output);
        mail.finish(output);
        self.over = output.is_finished();
        if mail.take_wake() {
            self.pass_on();
        }
    }

    fn asks(&self) -> Asks {
        // The directions have nothing to do with each other: its peer's end is not its own, which comes from the other
        // side; and it hears its peer though that does not read, or two of these could wait for each other for ever.
        Asks::NOTHING.pause(!self.kept.is_empty()).holds(!self.over).hears(true)
    }

    fn on_close(&mut self, _: &Reason) {
        self.other.get().into_iter().for_each(Handle::close);
    }
}

/// Starts a proxy at an address for the server at another.
pub fn start(at: SocketAddr, to: SocketAddr, design: AnyDesign) -> Result<Running, weir::Error> {
    let connector = Connector::new();
    let its = connector.clone();
    Server::bind(at).start_connecting(design, &connector, move |_| {
        Side::new(Cell::default(), Cell::default(), Some((to, its.clone())))
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
