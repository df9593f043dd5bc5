//! A chat by hand on readiness (`weir::readiness`): one thread waits until connections can be received from or sent to, and
//! makes the calls itself. What one client says goes to all others.
//!
//! ```text
//! cargo run --release -p weir-io --example readiness_chat -- 127.0.0.1:5150 epoll
//! nc 127.0.0.1 5150
//! ```
//!
//! The same loop runs on poll, epoll and select, which are types of one shape (`Tokens`).

use std::{
    collections::VecDeque,
    env, io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};
use weir::{
    Error,
    counters::Counters,
    readiness::{Interest, Poll, SelectIndexed, Tokens},
    stream::{Accepted, Listener, Mode, Stream, StreamOptions},
    wake::Waker,
};

/// Clients at a time: a further one is closed at once.
const CLIENTS: usize = 500;

/// Bytes that wait for a client that does not read. One that leaves more lying misses what is said meanwhile.
const WAITING_BYTES: usize = 64 * 1024;

/// The token of the listening socket. Those of clients are their places.
const LISTENER: u32 = u32::MAX;

/// A client.
struct Client {
    stream: Stream,
    /// What it has not taken yet.
    waiting: VecDeque<u8>,
}

/// The room: a set of sockets, and who is in it.
struct Room<S> {
    set: S,
    listener: Listener,
    clients: Vec<Option<Client>>,
    counters: Counters,
}

impl<S: Tokens> Room<S> {
    /// Listens. What the set is told of the listening socket it tells as long as a connection waits.
    fn new(mut set: S, at: SocketAddr) -> Result<Self, Error> {
        let listener = Listener::bind(at, StreamOptions::default())?;
        set.listen(&listener, LISTENER)?;
        let clients = (0..CLIENTS).map(|_| None).collect();
        Ok(Self { set, listener, clients, counters: Counters::default() })
    }

    /// Serves until `stopping` is set and the set's waker was called.
    fn run(&mut self, stopping: &AtomicBool) -> Result<(), Error> {
        while !stopping.load(Relaxed) {
            self.set.wait(None, &self.counters).map_err(|e| Error::io("waiting", e))?;
            while let Some(token) = self.set.next_ready() {
                match token {
                    LISTENER => self.accept(),
                    place => self.serve(place),
                }
            }
        }
        Ok(())
    }

    /// Takes in one client: the socket is told as ready again if more of them wait.
    fn accept(&mut self) {
        // Readiness is a hint: it may have gone, or descriptors are short for a moment.
        let Ok(Some(Accepted { stream, peer })) = self.listener.accept(Mode::Try, &self.counters)
        else {
            return;
        };
        let Some(place) = self.clients.iter().position(Option::is_none) else { return };
        if self.set.watch(&stream, place as u32, Interest::RECEIVE).is_ok() {
            self.clients[place] = Some(Client { stream, waiting: VecDeque::new() });
            self.say(&format!("{peer} has come\n").into_bytes(), usize::MAX);
        }
    }

    /// Receives once from a client, and sends what waits for it.
    fn serve(&mut self, place: u32) {
        let (index, mut buffer) = (place as usize, [0; 4096]);
        let Some(client) = &mut self.clients[index] else { return };
        if send_waiting(client, &self.counters).is_err() {
            return self.leave(index);
        }
        match client.stream.receive(&mut buffer, Mode::Try, &self.counters) {
            Ok(Some(0)) | Err(_) => self.leave(index),
            Ok(Some(bytes)) => self.say(&buffer[..bytes], index),
            Ok(None) => {}
        }
        self.want(index);
    }

    /// Sends to all but one, as far as they take it; the rest waits for them.
    fn say(&mut self, bytes: &[u8], but: usize) {
        for index in (0..self.clients.len()).filter(|index| *index != but) {
            let Some(client) = &mut self.clients[index] else { continue };
            if client.waiting.len() + bytes.len() > WAITING_BYTES {
                continue;
            }
            client.waiting.extend(bytes);
            match send_waiting(client, &self.counters) {
                Ok(()) => self.want(index),
                Err(_) => self.leave(index),
            }
        }
    }

    /// Has a client told as ready to send only while something waits: it is nearly always.
    fn want(&mut self, index: usize) {
        let Some(Client { stream, waiting }) = &self.clients[index] else { return };
        let interest = Interest { receive: true, send: !waiting.is_empty() };
        let _ = self.set.change(stream, index as u32, interest);
    }

    fn leave(&mut self, index: usize) {
        if let Some(client) = self.clients[index].take() {
            // Before it is closed: its descriptor may be another's then.
            self.set.forget(&client.stream, index as u32);
        }
    }
}

fn send_waiting(client: &mut Client, counters: &Counters) -> io::Result<()> {
    while !client.waiting.is_empty() {
        let (first, _) = client.waiting.as_slices();
        match client.stream.send(first, Mode::Try, counters)? {
            Some(sent) => _ = client.waiting.drain(..sent),
            None => break,
        }
    }
    Ok(())
}

/// Runs a room on a set. `started` is told the address, and what ends a wait.
fn chat<S: Tokens>(
    set: S,
    at: SocketAddr,
    stopping: &AtomicBool,
    started: impl FnOnce(SocketAddr, Waker),
) -> Result<(), Error> {
    let mut room = Room::new(set, at)?;
    started(room.listener.local_address(), room.set.waker());
    room.run(stopping)
}

/// The same on the set of this name.
fn chat_on(
    mechanism: &str,
    at: SocketAddr,
    stopping: &AtomicBool,
    started: impl FnOnce(SocketAddr, Waker),
) -> Result<(), Error> {
    match mechanism {
        "poll" => chat(Poll::new()?, at, stopping, started),
        "select" => chat(SelectIndexed::new()?, at, stopping, started),
        #[cfg(target_os = "linux")]
        "epoll" => {
            use weir::readiness::{Epoll, Trigger};
            chat(Epoll::new(64, Trigger::Level)?, at, stopping, started)
        }
        other => Err(Error::unknown_name("mechanism", other, ["poll", "select", "epoll"])),
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = env::args().skip(1);
    let at = arguments.next().as_deref().unwrap_or("127.0.0.1:5150").parse()?;
    let mechanism = arguments.next().unwrap_or_else(|| "poll".into());
    let stopping = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&stopping);
    let mut failed = None;
    chat_on(&mechanism, at, &stopping, |address, waker| {
        println!("{mechanism} on {address} (Ctrl-C ends)");
        failed = ctrlc::set_handler(move || {
            asked.store(true, Relaxed);
            waker.wake();
        })
        .err();
    })?;
    failed.map_or(Ok(()), |error| Err(error.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io::{BufRead as _, BufReader, Write as _},
        net::TcpStream,
        sync::mpsc,
        thread,
        time::Duration,
    };

    #[test]
    fn what_one_says_all_others_hear() {
        let mechanisms = ["poll", "select", "epoll"];
        let is_here = |name: &&str| *name != "epoll" || cfg!(target_os = "linux");
        let here = mechanisms.into_iter().filter(is_here);
        for mechanism in here {
            let stopping = Arc::new(AtomicBool::new(false));
            let asked = Arc::clone(&stopping);
            let (tell, told) = mpsc::channel();
            let running = thread::spawn(move || {
                let at = ([127, 0, 0, 1], 0).into();
                chat_on(mechanism, at, &asked, |at, waker| tell.send((at, waker)).unwrap())
            });
            let (at, waker) = told.recv().expect("it starts");
            let mut clients: Vec<_> = (0..3)
                .map(|_| {
                    let client = TcpStream::connect(at).expect("it listens");
                    client.set_read_timeout(Some(Duration::from_secs(60))).expect("a time-out");
                    let mut client = BufReader::new(client);
                    // It hears of its own coming, too: then it is in the room.
                    let its = client.get_ref().local_addr().expect("an address");
                    assert_eq!(line(&mut client), format!("{its} has come"));
                    client
                })
                .collect();
            clients[0].get_mut().write_all(b"hello\n").expect("sent");
            for client in &mut clients[1..] {
                let mut heard = line(client);
                while heard.ends_with("has come") {
                    heard = line(client);
                }
                assert_eq!(heard, "hello", "{mechanism}");
            }
            stopping.store(true, Relaxed);
            waker.wake();
            running.join().expect("no panic").expect("no error");
        }
    }

    fn line(client: &mut BufReader<TcpStream>) -> String {
        let mut text = String::new();
        client.read_line(&mut text).expect("a line");
        text.trim_end().to_owned()
    }
}
