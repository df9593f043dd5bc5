//! What the peers for TCP in Rust share: the words on their command line, and the listening socket.
//! How they accept, receive and send is theirs.

use std::{
    io,
    net::{IpAddr, SocketAddr, TcpListener},
    process::ExitCode,
    thread,
    time::Duration,
};

use socket2::{Domain, Socket, Type};

/// Bytes received at a time unless told otherwise, as in weir.
const BUFFER_BYTES: usize = 4096;
/// As many as may wait to be accepted, as in weir; the kernel makes it somaxconn where that is less.
pub const BACKLOG: i32 = 4096;
/// How long nothing is accepted after accepting failed, for want of descriptors for instance.
pub const PAUSE: Duration = Duration::from_millis(50);

/// What a peer is to do.
#[derive(Debug, Clone, Copy)]
pub struct Asked {
    /// Where to listen.
    pub address: SocketAddr,
    /// Which of its forms it is to have.
    pub form: &'static str,
    /// Bytes to receive at a time, at most.
    pub buffer_bytes: usize,
}

/// Reads `IP PORT [FORM [BUFFER_BYTES]]`, of which the form is one of `forms` and the first unless it
/// is said, and runs the peer.
pub fn run(forms: &[&'static str], serve: impl FnOnce(Asked) -> io::Result<()>) -> ExitCode {
    let words: Vec<String> = std::env::args().collect();
    match read(&words[1..], forms).map(serve) {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(error)) => {
            eprintln!("{}: {error}", words[0]);
            ExitCode::FAILURE
        }
        Err(problem) => {
            let forms = forms.join("|");
            eprintln!("{problem}\nusage: {} IP PORT [{forms} [BUFFER_BYTES]]", words[0]);
            ExitCode::from(2)
        }
    }
}

fn read(words: &[String], forms: &[&'static str]) -> Result<Asked, String> {
    let [ip, port, rest @ ..] = words else { return Err("IP and PORT are wanted".into()) };
    let ip: IpAddr = ip.parse().map_err(|_| format!("{ip:?} is no address"))?;
    let port: u16 = port.parse().map_err(|_| format!("{port:?} is no port"))?;
    let form = match rest.first() {
        None => forms[0],
        Some(word) => {
            *forms.iter().find(|form| *form == word).ok_or(format!("{word:?} is no form"))?
        }
    };
    let buffer_bytes = match rest.get(1) {
        None => BUFFER_BYTES,
        Some(word) => match word.parse() {
            Ok(bytes) if bytes > 0 => bytes,
            _ => return Err(format!("{word:?} is no number of bytes")),
        },
    };
    match rest.get(2) {
        None => Ok(Asked { address: SocketAddr::new(ip, port), form, buffer_bytes }),
        Some(word) => Err(format!("{word:?} is one word too many")),
    }
}

/// A listening socket that does not wait; with `shared` one of several on its address.
pub fn listen(address: SocketAddr, shared: bool) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    if shared {
        socket.set_reuse_port(true)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Runs `serve` on a thread for each core that this process may use, as libraries advise that keep a
/// connection on one thread; returns when the first of them fails.
pub fn on_each_core(serve: impl Fn() -> io::Result<()> + Clone + Send + 'static) -> io::Result<()> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    for _ in 1..cores {
        let serve = serve.clone();
        thread::spawn(move || {
            if let Err(error) = serve() {
                eprintln!("a thread has ended: {error}");
                std::process::exit(1);
            }
        });
    }
    serve()
}

/// Says that accepting failed.
pub fn complain(error: &io::Error) {
    eprintln!("cannot accept: {error}");
}
