//! A TCP server by hand on a completion port (`weir::port::streams`): it counts the lines that a client sends, and tells it
//! how many there were when the client ends its sending. Several threads take completions from one port, as on Windows.
//!
//! ```text
//! cargo run --release -p weir-io --example port_lines -- 127.0.0.1:5150 4
//! printf 'one\ntwo\n' | nc -N 127.0.0.1 5150
//! ```
//!
//! An operation is started (accept, receive, send), and comes back exactly once when it has finished, to any of the threads,
//! with its memory. A connection here has one operation outstanding at a time, so one thread at a time has it in its hands.

use std::{
    collections::HashMap,
    env, io,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};
use weir::{
    Error,
    counters::Counters,
    memory::{Layout, Load, Region, RegionOptions, Slice},
    port::{
        Key,
        streams::{
            Closing, Completion, ListenerId, Native, Needs, Outcome, Port, Provider, StreamId,
            Taken, Worker,
        },
    },
    stream::{Accepted, Listener, Stream, StreamOptions},
    wake::Waker,
};

/// Connections at a time: one more waits in the backlog until another has gone.
const CONNECTIONS: u32 = 1000;

/// Bytes received at a time.
const BUFFER_BYTES: usize = 4096;

/// Completions that a thread takes at a time.
const BATCH: usize = 16;

/// How long a stop may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// A connection, and what was counted of it.
struct Client {
    stream: Stream,
    lines: u64,
}

/// What the threads share.
struct Lines<P> {
    port: P,
    listener: ListenerId,
    region: Arc<Region>,
    /// By their keys; taken out while a thread has one in its hands.
    clients: Mutex<HashMap<u64, Client>>,
    next_key: AtomicU64,
}

/// Serves until the port is closed. `started` is told the address, and what closes the port.
fn serve(
    at: SocketAddr,
    threads: u32,
    started: impl FnOnce(SocketAddr, Waker),
) -> Result<(), Error> {
    let needs = Needs {
        listeners: 1,
        streams: CONNECTIONS,
        accepts: 1,
        receives: CONNECTIONS,
        sends: CONNECTIONS,
        packets: 0,
        threads,
        concurrency: 0, // as many threads run at a time as there are cores
    };
    let layout = Layout::packed(0, BUFFER_BYTES, 64);
    let region = Region::new(layout, CONNECTIONS, RegionOptions::default())?;
    let port = Native::default().open(&needs)?;
    let socket = Listener::bind(at, StreamOptions::default())?;
    let address = socket.local_address();
    let listener = port.listen(socket, Key(0))?;
    started(address, port.closer());
    let (clients, next_key) = (Mutex::default(), AtomicU64::new(1));
    let lines = Lines { port, listener, region, clients, next_key };
    let first_error = thread::scope(|scope| {
        let run = |number| {
            let result = lines.take_completions(number == 0);
            lines.port.close(); // one that fails ends the others
            result
        };
        let threads: Vec<_> = (0..threads).map(|number| scope.spawn(move || run(number))).collect();
        threads.into_iter().filter_map(|thread| thread.join().expect("no panic").err()).next()
    });
    let stopped = lines.port.stop(Instant::now() + PATIENCE);
    assert_eq!(stopped.missing, 0, "the kernel has kept slices");
    first_error.map_or(Ok(()), Err)
}

impl<P: Port> Lines<P> {
    /// The loop of a thread, until the port is closed.
    fn take_completions(&self, first: bool) -> Result<(), Error> {
        let failed = |what: &'static str| move |error| Error::io(what, error);
        let counters = Counters::default();
        let mut worker = self.port.worker()?;
        if first {
            self.accept(&mut worker);
        }
        let mut taken = Taken::new(BATCH);
        // A take also makes known to the kernel what was started meanwhile.
        while worker.take(&mut taken, None, &counters).map_err(failed("taking"))?.is_some() {
            for completion in taken.drain() {
                self.handle(completion, &mut worker, &counters);
            }
        }
        Ok(())
    }

    fn handle(&self, completion: Completion, worker: &mut P::Worker<'_>, counters: &Counters) {
        match completion {
            Completion::Accept { outcome, .. } => {
                if let Outcome::Done(Accepted { stream, .. }) = outcome {
                    self.welcome(stream, worker, counters);
                }
                self.accept(worker);
            }
            Completion::Receive { stream, key, slice, outcome: Outcome::Done(bytes), .. } => {
                let Some(mut client) = self.take_client(key) else { return };
                let received = &slice.payload()[..bytes];
                client.lines += received.iter().filter(|byte| **byte == b'\n').count() as u64;
                let lines = client.lines;
                self.keep(key, client);
                let goes_on = match bytes {
                    0 => Self::answer(lines, stream, slice, worker),
                    _ => worker.receive(stream, slice).is_ok(),
                };
                if !goes_on {
                    self.close(stream, key, worker, counters);
                }
            }
            Completion::Send { stream, key, mut load, outcome: Outcome::Done(bytes), .. } => {
                load.sent(bytes);
                if load.left().is_empty() || worker.send(stream, load).is_err() {
                    self.close(stream, key, worker, counters);
                }
            }
            // What failed, or was cancelled.
            Completion::Receive { stream, key, .. } | Completion::Send { stream, key, .. } => {
                self.close(stream, key, worker, counters);
            }
            // Waits and packets are not used here, and nothing is left to be done for a stream that is over.
            _ => {}
        }
    }

    fn accept(&self, worker: &mut P::Worker<'_>) {
        // The only error that is left is that the port is closed.
        let _ = worker.accept(self.listener);
    }

    fn welcome(&self, stream: Stream, worker: &mut P::Worker<'_>, counters: &Counters) {
        let key = Key(self.next_key.fetch_add(1, Relaxed));
        // Dropped, it is closed: there are too many.
        let Ok(id) = self.port.associate(stream.clone(), key) else { return };
        self.keep(key, Client { stream, lines: 0 });
        let slice = self.region.take();
        if slice.is_none_or(|slice| worker.receive(id, slice).is_err()) {
            self.close(id, key, worker, counters);
        }
    }

    /// Sends the number of lines, from the slice that the last receive came in. Says whether that was started.
    fn answer(lines: u64, stream: StreamId, mut slice: Slice, worker: &mut P::Worker<'_>) -> bool {
        let text = format!("{lines}\n");
        slice.payload_mut()[..text.len()].copy_from_slice(text.as_bytes());
        worker.send(stream, Load::of_slice(slice, text.len())).is_ok()
    }

    /// The peer sees the end when the last clone of the stream has gone: ours goes here, the port's when it lets go.
    fn close(&self, id: StreamId, key: Key, worker: &mut P::Worker<'_>, counters: &Counters) {
        if let Some(client) = self.take_client(key) {
            let _ = client.stream.end_sending(counters); // it may have gone
        }
        match worker.close(id, counters) {
            Closing::Over | Closing::Gone => {}
            Closing::Follows => {} // `Completion::Closed` comes; nothing waits for it here
        }
    }

    fn take_client(&self, key: Key) -> Option<Client> {
        self.clients.lock().expect("nobody panics with it").remove(&key.0)
    }

    fn keep(&self, key: Key, client: Client) {
        self.clients.lock().expect("nobody panics with it").insert(key.0, client);
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = env::args().skip(1);
    let at = arguments.next().as_deref().unwrap_or("127.0.0.1:5150").parse()?;
    let threads = arguments.next().as_deref().unwrap_or("2").parse()?;
    let mut failed = None;
    serve(at, threads, |address, closer| {
        println!("{} on {address} (Ctrl-C ends)", Native::NAME);
        failed = ctrlc::set_handler(move || closer.wake()).err();
    })?;
    failed.map_or(Ok(()), |error| Err(io::Error::other(error).into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io::{Read as _, Write as _},
        net::{Shutdown, TcpStream},
        sync::mpsc,
    };

    fn ask(at: SocketAddr, text: &[u8]) -> String {
        let mut client = TcpStream::connect(at).expect("it listens");
        client.set_read_timeout(Some(Duration::from_secs(60))).expect("a time-out");
        client.write_all(text).expect("sent");
        client.shutdown(Shutdown::Write).expect("ended");
        let mut answer = String::new();
        client.read_to_string(&mut answer).expect("an answer");
        answer
    }

    #[test]
    fn each_client_is_told_how_many_lines_it_has_sent() {
        if Native::default().availability().is_err() {
            return;
        }
        for threads in [1, 3] {
            let (tell, told) = mpsc::channel();
            let server = thread::spawn(move || {
                serve(([127, 0, 0, 1], 0).into(), threads, |at, closer| {
                    tell.send((at, closer)).expect("the test waits");
                })
            });
            let (at, closer) = told.recv().expect("it starts");
            thread::scope(|scope| {
                for lines in 0..8 {
                    // Longer than a buffer, so that it comes in parts.
                    let text = [&b"x".repeat(3000)[..], b"\n"].concat().repeat(lines);
                    scope.spawn(move || assert_eq!(ask(at, &text), format!("{lines}\n")));
                }
            });
            closer.wake();
            server.join().expect("no panic").expect("no error");
        }
    }
}
