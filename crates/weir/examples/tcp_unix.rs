//! Notes for users of this machine, over a Unix socket: everybody reads them, and only one of them writes.
//!
//! ```text
//! cargo run -p weir-io --example tcp_unix -- /tmp/notes.sock $(id -u)
//! printf 'hello\\n' | socat - UNIX-CONNECT:/tmp/notes.sock
//! ```

use std::{
    error::Error,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use weir::{
    stream::LocalPeer,
    tcp::{AnyDesign, Handler, Output, Server},
};

/// Bytes of notes, at most: the oldest go.
const MOST: usize = 4096;

type Notes = Arc<Mutex<Vec<u8>>>;

/// A connection: what it says is added to the notes, and all of them are its answer.
struct Visitor {
    peer: Option<LocalPeer>,
    may_write: bool,
    notes: Notes,
}

impl Visitor {
    fn new(peer: SocketAddr, writer: u32, notes: Notes) -> Self {
        let peer = LocalPeer::of(peer);
        // Users are told by the kernel, so nobody can pretend to be another.
        Self { peer, may_write: peer.is_some_and(|peer| peer.user == writer), notes }
    }

    fn notes(&self) -> MutexGuard<'_, Vec<u8>> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Handler for Visitor {
    fn on_receive(&mut self, bytes: &mut [u8], output: &mut Output<'_>) {
        if !self.may_write {
            return output.decline("you may read the notes, and not write");
        }
        let mut notes = self.notes();
        notes.extend_from_slice(bytes);
        let beyond = notes.len().saturating_sub(MOST);
        notes.drain(..beyond);
    }

    fn on_end(&mut self, output: &mut Output<'_>) {
        let who = self.peer.map_or_else(String::new, |peer| peer.to_string());
        let _ = output.send(format!("you are {who}\n").as_bytes());
        let notes = self.notes().clone();
        let _ = output.send(&notes);
        output.finish();
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("give a path for the socket")?;
    let writer =
        arguments.next().ok_or("give the number of the user who may write: id -u")?.parse()?;
    let design = arguments.next().unwrap_or_else(|| "blocking".into());
    let notes = Notes::default();
    let server = Server::bind_unix(&path)
        .unix_mode(0o666)
        .start(AnyDesign::parse(&design)?, move |peer| {
            Visitor::new(peer, writer, Arc::clone(&notes))
        })?;
    println!("{} until the standard input ends", server.unix_addresses()[0]);
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    match server.stop().failure {
        Some(failure) => Err(failure.into()),
        None => Ok(()),
    }
}
