//! User CPU time of a server's thread for each datagram and each message that it echoes, by design.
//!
//! ```text
//! cargo bench -p weir-io --bench cpu             # every design, with one thread
//! cargo bench -p weir-io --bench cpu -- =epoll   # the one of that name, of either kind (without `=`: with that in its name)
//! ```
//!
//! It is for comparing builds of the library, such as with and without the features `tracing` and `metrics`: cargo gives
//! each set of features a program of its own (`target/release/deps/cpu-*`), and `xtask/compare-cpu` runs two of them in turns.
//! What a thread spends in user mode is the library and the handler alone, and steadier than any time on the wall: it says nothing
//! of the kernel, which is most of a datagram's cost. The server is on one core and the client on another, as far as there are
//! two.
//!
//! `cargo test` lets each design echo a few, and says nothing of speed.

#[path = "../tests/suite/receive.rs"]
mod receive;

use receive::receive;
use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream, UdpSocket},
    time::Duration,
};
use weir::{
    affinity::{allowed_cores, pin_current_thread},
    counters::os::ThreadUsage,
    limits::Limits,
    tcp, udp,
};

/// Bytes of a datagram, and of a message.
const BYTES: usize = 64;

/// Datagrams that are under way together.
const WINDOW: usize = 32;

/// Far longer than an echo takes.
const PATIENCE: Duration = Duration::from_secs(60);

fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// Runs on the first core that this process may use, or the last.
fn on_core(cores: &[usize], last: bool) {
    if let Some(core) = if last { cores.last() } else { cores.first() } {
        let _ = pin_current_thread(*core);
    }
}

/// What threads did in user mode, for each of so many.
fn print(kind: &str, name: &str, usage: impl Iterator<Item = ThreadUsage>, count: usize) {
    let user = usage.map(|usage| usage.cpu_user_ns()).sum::<Option<u64>>();
    let each = user.map_or("?".into(), |ns| format!("{:.1}", ns as f64 / count as f64));
    println!("{kind} {name:<18}{each:>10}");
}

fn datagrams(design: udp::AnyDesign, windows: usize, cores: &[usize]) -> udp::Final<impl Sized> {
    on_core(cores, false);
    let server =
        udp::Server::bind(loopback()).limits(Limits::echo(1_000_000_000).refuse_loops(false));
    let handler = |_: udp::Datagram<'_>, replies: &mut udp::Replies<'_>| _ = replies.echo();
    let running = server.start(design, move |_| handler).unwrap_or_else(|e| panic!("{e}"));
    on_core(cores, true);
    let client = UdpSocket::bind(loopback()).expect("a socket");
    client.set_read_timeout(Some(PATIENCE)).expect("a time");
    client.connect(running.local_addresses()[0]).expect("an address");
    let mut bytes = [7; BYTES];
    for _ in 0..windows {
        for _ in 0..WINDOW {
            client.send(&bytes).expect("it is sent");
        }
        for _ in 0..WINDOW {
            assert_eq!(receive(&client, &mut bytes).expect("an echo").0, BYTES);
        }
    }
    running.stop()
}

fn messages(design: tcp::AnyDesign, count: usize, cores: &[usize]) -> tcp::Final {
    on_core(cores, false);
    let server = tcp::Server::bind(loopback());
    let handler = |_: &mut [u8], output: &mut tcp::Output<'_>| _ = output.echo();
    let running = server.start(design, move |_| handler).unwrap_or_else(|e| panic!("{e}"));
    on_core(cores, true);
    let mut client = TcpStream::connect(running.local_addresses()[0]).expect("it listens");
    client.set_nodelay(true).expect("an option");
    client.set_read_timeout(Some(PATIENCE)).expect("a time");
    let mut bytes = [7; BYTES];
    for _ in 0..count {
        client.write_all(&bytes).expect("it is sent");
        client.read_exact(&mut bytes).expect("an echo");
    }
    drop(client);
    running.stop()
}

/// Has every design of a kind that is wanted and can run here do `$run`, with those of the options that it has, and
/// prints what each of so many took.
macro_rules! measure {
    ($kind:ident, $wanted:expr, $options:expr, $run:expr, $count:expr) => {
        for mut design in $kind::designs() {
            let (kind, name) = (stringify!($kind), design.about().name);
            if !$wanted(name) {
                continue;
            }
            if let Err(why) = design.availability() {
                println!("{kind} {name:<18}cannot run here: {why}");
                continue;
            }
            for (option, value) in $options {
                if design.known_options().iter().any(|known| known.name == option) {
                    design.set(option, value).expect("every design runs with that");
                }
            }
            let report = $run(design);
            assert!(report.failure.is_none(), "{name}: {:?}", report.failure);
            print(kind, name, report.threads.iter().map(|thread| thread.usage), $count);
        }
    };
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let measures = arguments.iter().any(|argument| argument == "--bench");
    let (windows, count) = if measures { (10_000, 150_000) } else { (2, 5) };
    let word = arguments.iter().find(|argument| !argument.starts_with('-'));
    let wanted = |name: &str| match word {
        Some(word) => {
            word.strip_prefix('=').map_or(name.contains(word.as_str()), |own| own == name)
        }
        None => true,
    };
    let cores = allowed_cores();
    println!("in user mode, ns for each datagram (udp) or message (tcp)");
    let one = [("threads", "1")];
    // By default they take up to 256 MiB.
    let few = (!measures).then_some(("outstanding", "256"));
    let of_windows = |design| datagrams(design, windows, &cores);
    measure!(udp, wanted, one.into_iter().chain(few), of_windows, windows * WINDOW);
    measure!(tcp, wanted, one, |design| messages(design, count, &cores), count);
}
