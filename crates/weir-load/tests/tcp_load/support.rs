//! Servers of the standard library, and how a load of them is run.

use std::{
    io::{self, Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
        mpsc::{Receiver, Sender, channel},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};
use weir_load::{
    Stop,
    tcp::{EndedBy, Engine, LoadReport, LoadSpec, load},
};

/// Makes of each function that checks an engine two tests, one for each.
macro_rules! each_engine {
    ($($check:ident),* $(,)?) => {
        $(mod $check {
            use weir_load::tcp::Engine;

            #[test]
            fn uring() {
                crate::support::on(Engine::Uring, super::$check);
            }

            #[test]
            fn readiness() {
                crate::support::on(Engine::Readiness, super::$check);
            }
        })*
    };
}

/// Makes a check of an engine, if there is such a one here.
pub fn on(engine: Engine, check: impl Fn(Engine)) {
    match engine.availability() {
        Ok(()) => check(engine),
        Err(why) => {
            let required = std::env::var("WEIR_REQUIRE").unwrap_or_default();
            let is_known = cfg!(not(target_os = "linux"));
            assert!(required != "all" || is_known, "required by WEIR_REQUIRE: {why}");
            eprintln!("not run: {why}");
        }
    }
}

/// A load of a server at that address, with an engine.
pub fn spec_of(engine: Engine, address: SocketAddr) -> LoadSpec {
    LoadSpec { engine: Some(engine), ..LoadSpec::new(address) }
}

/// Nothing here may take so long: reached only by a test that fails.
pub const SOON: Duration = Duration::from_secs(60);
pub const INSTANT: Duration = Duration::from_millis(200);

/// A server that gives each connection, with its number, to a thread of its own.
pub struct Server {
    address: SocketAddr,
    listener: TcpListener,
    stopping: Arc<AtomicBool>,
    accepting: Option<JoinHandle<()>>,
}

impl Server {
    pub fn start(serve: impl Fn(TcpStream, u64) -> io::Result<()> + Send + Sync + 'static) -> Self {
        Self::listening(TcpListener::bind("127.0.0.1:0").unwrap(), serve)
    }

    pub fn listening(
        listener: TcpListener,
        serve: impl Fn(TcpStream, u64) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        let address = listener.local_addr().unwrap();
        // The standard library's backlog is short. What comes to a full one in a flood of connects may be
        // answered with a cookie, and reset when a second message arrives before it is accepted.
        socket2::SockRef::from(&listener).listen(4096).unwrap();
        let kept = listener.try_clone().unwrap();
        let stopping = Arc::new(AtomicBool::new(false));
        let (seen, serve) = (Arc::clone(&stopping), Arc::new(serve));
        let accepting = thread::spawn(move || {
            let mut threads = Vec::new();
            for (number, stream) in (0..).zip(listener.incoming()) {
                if seen.load(SeqCst) {
                    break;
                }
                let (stream, serve) = (stream.unwrap(), Arc::clone(&serve));
                stream.set_nodelay(true).unwrap();
                stream.set_read_timeout(Some(SOON)).unwrap();
                let builder = thread::Builder::new().stack_size(128 * 1024);
                // What goes wrong is seen at the other end.
                threads.push(builder.spawn(move || drop(serve(stream, number))).unwrap());
            }
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
        Self { address, listener: kept, stopping, accepting: Some(accepting) }
    }

    pub fn echo() -> Self {
        Self::start(|stream, _| echo(stream, |_, _| {}))
    }

    pub fn spec(&self, engine: Engine) -> LoadSpec {
        // No more at a time than find room in the backlog.
        let connecting = 64;
        let (answer_timeout, connect_timeout, duration, drain) = (SOON, SOON, SOON, SOON);
        let spec = spec_of(engine, self.address);
        LoadSpec { connecting, answer_timeout, connect_timeout, duration, drain, ..spec }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stopping.store(true, SeqCst);
        // Either wakes who accepts: the one also where there is no port left to connect from, the other also where no
        // shutdown does.
        if TcpStream::connect(self.address).is_err() {
            socket2::SockRef::from(&self.listener).shutdown(Shutdown::Read).unwrap();
        }
        if let Some(accepting) = self.accepting.take() {
            accepting.join().unwrap();
        }
    }
}

/// Sends back what comes, after `spoil` has had it, with its offset.
pub fn echo(mut stream: TcpStream, mut spoil: impl FnMut(u64, &mut Vec<u8>)) -> io::Result<()> {
    let mut buffer = vec![0; 16 * 1024];
    let mut offset = 0;
    loop {
        let count = stream.read(&mut buffer)?;
        if count == 0 {
            return Ok(());
        }
        let mut bytes = buffer[..count].to_vec();
        spoil(offset, &mut bytes);
        offset += count as u64;
        stream.write_all(&bytes)?;
    }
}

/// Bytes of each message that [`cheat`] looks for.
pub const MESSAGE_BYTES: u32 = 64;
/// Messages that it answers rightly, where it is right at first.
pub const HONEST: u64 = 3;

/// How a server pretends to echo.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cheat {
    /// The same bytes are the answer to every message.
    Fixed,
    /// A bit of a message is changed.
    Flip,
    /// The last byte of a message is left out.
    Drop,
    /// A message is answered twice.
    Duplicate,
    /// Two connections get one another's answers.
    Swap,
    /// The answer to the message before is given again.
    Stale,
    /// Each answer comes when the next message has come; so the last one never does.
    Late,
    /// The connection is closed in order, after right answers.
    Close,
    /// The connection is reset, after right answers.
    Reset,
    /// Nothing more comes, after right answers.
    Stall,
}

/// Where a connection meets the one that it swaps answers with.
type Waiting = Mutex<Option<(Sender<Message>, Receiver<Message>)>>;
type Message = [u8; MESSAGE_BYTES as usize];

impl Server {
    /// A server that cheats on all its connections, or on none.
    pub fn cheating(cheat: Option<Cheat>) -> Self {
        let waiting = Waiting::default();
        Self::start(move |stream, _| match cheat {
            None => echo(stream, |_, _| {}),
            Some(Cheat::Swap) => swap(stream, &waiting),
            Some(cheat) => self::cheat(stream, cheat),
        })
    }
}

/// The next message; none where no more come.
fn next(stream: &mut TcpStream) -> io::Result<Option<Message>> {
    let mut message = [0; MESSAGE_BYTES as usize];
    match stream.read_exact(&mut message) {
        Ok(()) => Ok(Some(message)),
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(e) => Err(e),
    }
}

fn swap(mut stream: TcpStream, waiting: &Waiting) -> io::Result<()> {
    let (to_other, of_other) = {
        let mut waiting = waiting.lock().unwrap();
        waiting.take().unwrap_or_else(|| {
            let ((to_this, of_other), (to_other, of_this)) = (channel(), channel());
            *waiting = Some((to_this, of_this));
            (to_other, of_other)
        })
    };
    while let Some(message) = next(&mut stream)? {
        // The other one may have gone.
        to_other.send(message).map_err(io::Error::other)?;
        let other = of_other.recv_timeout(SOON).map_err(io::Error::other)?;
        stream.write_all(&other)?;
    }
    Ok(())
}

fn cheat(mut stream: TcpStream, cheat: Cheat) -> io::Result<()> {
    let mut before = None;
    for number in 0.. {
        let Some(message) = next(&mut stream)? else { break };
        let (last, mut changed) = (before.replace(message), message);
        changed[17] ^= 0x10;
        let now = number == HONEST;
        match cheat {
            Cheat::Fixed => stream.write_all(&[0x57; MESSAGE_BYTES as usize])?,
            Cheat::Flip if now => stream.write_all(&changed)?,
            Cheat::Drop if now => stream.write_all(&message[..message.len() - 1])?,
            Cheat::Duplicate if now => stream.write_all(&[message, message].concat())?,
            Cheat::Stale => stream.write_all(&last.unwrap_or(message))?,
            Cheat::Late => stream.write_all(last.as_ref().map_or(&[][..], |last| &last[..]))?,
            Cheat::Close if now => {
                stream.shutdown(Shutdown::Write)?;
                return stream.read_to_end(&mut Vec::new()).map(drop);
            }
            Cheat::Reset if now => {
                return socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO));
            }
            Cheat::Stall if now => return stream.read_to_end(&mut Vec::new()).map(drop),
            _ => stream.write_all(&message)?,
        }
    }
    Ok(())
}

pub fn run(spec: &LoadSpec) -> LoadReport {
    let began = Instant::now();
    let report = load(spec, &Stop::new(), |_| {}).expect("it can begin");
    assert!(began.elapsed() < 2 * SOON, "it hung: {report:?}");
    assert_eq!(report.counts.unbalanced(), None, "{report:?}");
    report
}

/// Makes a check in which something must happen within a time, with `short` for that time. A busy machine may let it
/// pass before who is to do it had its turn; so where the check fails, it is made again with times so much longer that
/// this explains nothing.
pub fn in_time(short: Duration, check: impl Fn(Duration)) {
    for times in [1, 4] {
        let short = short * times;
        if catch_unwind(AssertUnwindSafe(|| check(short))).is_ok() {
            return;
        }
        eprintln!("it failed with a time of {short:?}: again with a longer one");
    }
    check(short * 64);
}

/// That everything went well, with so many messages on each connection.
pub fn assert_clean(report: &LoadReport, connections: u64, sends: u64) {
    let counts = &report.counts;
    assert_eq!((report.invalid(), &report.failure), (None, &None), "{report:?}");
    assert_eq!((counts.attempted, counts.connected), (connections, connections));
    assert_eq!(counts.finished, connections, "{counts:?}");
    assert_eq!(counts.messages_over, connections * sends);
    assert_eq!(counts.bytes_sent, counts.bytes_received);
    let latency = report.latency_ns.as_ref().expect("there were messages");
    assert_eq!(latency.n, connections * sends);
    assert_eq!(report.ended_by, EndedBy::Connections);
    assert!(report.errors.is_empty() && !report.data_errors);
}
