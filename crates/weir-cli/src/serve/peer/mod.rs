//! `weir serve peer`: a program of another library in the place of a server of weir's.
//!
//! It starts the program, tells it where to receive, stands for it on the control channel, and
//! reports in the words in which `weir serve udp` reports: the same windows, counts and places of
//! loss. So a generator, and whoever compares, sees no difference. What the program and weir say
//! to each other is described in [`weir_load::peer`].

mod port;
mod program;
mod watch;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use clap::Args;
use weir_lab::child::CommandLine;
use weir_lab::{udp::plan::Work, wire};
use weir_load::control::ControlServer;
use weir_load::peer::{Serve, setting};
use weir_load::quantity::parse_size;

use self::program::Program;
use self::watch::PeerWatch;
use super::event::Event;
use super::{FETCHED_EVERY, LOOK_EVERY, READ_EVERY, REPORT_FETCHED_WITHIN, stop_on_request, text};
use super::{Most, Permission};
use crate::cores::{Cores, keep_to};
use crate::exit::{self, Failure};
use crate::shown::TellArgs;

/// Options of `weir serve peer`.
#[derive(Debug, Args)]
#[command(after_help = super::EXIT_CODES)]
pub struct ServePeer {
    /// The program with its arguments, as a shell reads them. With {port} (and {ip}) in it, it is a
    /// program that knows nothing of weir: what it received is derived from the kernel's counts.
    #[arg(long, value_parser = CommandLine::parse)]
    command: CommandLine,

    /// Address and port for the program to receive on; port 0 takes any free one.
    #[arg(long, default_value = "127.0.0.1:0")]
    bind: Vec<SocketAddr>,

    /// Address and port of the control channel, or a port of 127.0.0.1, over which generators request consent.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0", value_parser = super::parse_address)]
    control: SocketAddr,

    /// Cores to run on: 0 or 2,3 or 4-7.
    #[arg(long)]
    cpu: Option<Cores>,

    /// Longest datagram received whole, in bytes (k = 1024).
    #[arg(long, default_value_t = weir::udp::DEFAULT_PAYLOAD_BYTES, value_parser = parse_size)]
    size: usize,

    /// Work per datagram: this many steps plus one of a pseudo-random generator.
    #[arg(long, default_value_t)]
    work: Work,

    /// Receive buffer to request, in bytes (k = 1024) [default: the system's].
    #[arg(long, value_parser = parse_size)]
    rcvbuf: Option<usize>,

    /// Receive several datagrams of one sender and one size as one (UDP_GRO).
    #[arg(long)]
    receive_offload: bool,

    /// Send each answer by itself, even if the program could send several as one.
    #[arg(long)]
    no_send_offload: bool,

    /// What a design may be asked for, and a peer cannot: it says so instead of a figure.
    #[arg(long, hide = true)]
    busy_poll: Option<String>,

    /// As `weir serve udp`: what generators may send, where other machines can reach it.
    #[arg(long, value_parser = super::parse_most_datagrams)]
    max_pps: Option<Most>,

    /// As `weir serve udp`, where other machines can reach it.
    #[arg(long, value_parser = super::parse_most_bits)]
    max_bitrate: Option<Most>,

    /// As `weir serve udp`, where other machines can reach it.
    #[arg(long, value_parser = super::parse_limit)]
    max_time: Option<Duration>,

    /// So many generators flood it together, which are taken for one.
    #[arg(long, hide = true, value_name = "GENERATORS", value_parser = super::parse_together)]
    runs_together: Option<u16>,

    /// Send every datagram back to its source.
    #[arg(long)]
    echo: bool,

    /// Answer with this many bytes of the beginning of a datagram, instead of all of it (k = 1024).
    #[arg(long, requires = "echo", value_parser = parse_size)]
    reply_size: Option<usize>,

    /// As `weir serve udp`; a peer has no such limit.
    #[arg(long, hide = true, requires = "echo")]
    replies_per_s: Option<String>,

    /// Verify every byte of every datagram instead of samples.
    #[arg(long)]
    verify_all: bool,

    /// End after the first run of a generator.
    #[arg(short = '1', long)]
    once: bool,

    /// End when the standard input ends.
    #[arg(long)]
    end_with_input: bool,

    /// Accept generators of another build.
    #[arg(long)]
    any_build: bool,

    /// Documents on standard output, everything else on standard error.
    #[arg(short = 'J', long)]
    pub json: bool,
}

/// How long the program may take to end after its input ended.
const END_WITHIN: Duration = Duration::from_secs(2);

/// Runs `weir serve peer`. Gives the exit code.
pub fn serve(args: &ServePeer) -> Result<u8, Failure> {
    let address = address(args)?;
    if let Some(cores) = &args.cpu {
        // Before the program is started: it inherits this.
        keep_to("serve peer", cores)?;
    }
    let settings = Permission {
        control: Some(args.control),
        key_file: None,
        any_build: args.any_build,
        datagrams: args.max_pps,
        bits: args.max_bitrate,
        longest: args.max_time,
        together: args.runs_together,
    };
    let settings = settings.on_control()?;
    let (sender, events) = channel();
    let asked = Serve {
        address,
        size_bytes: args.size,
        receive_offload: args.receive_offload,
        receive_buffer_bytes: args.rcvbuf,
        work_steps: (!args.work.is_none()).then_some(args.work.steps),
        reply_bytes: args.echo.then(|| args.reply_size.unwrap_or(args.size)),
        send_offload: !args.no_send_offload,
        runs_together: args.runs_together.filter(|runs| *runs > 1).map(usize::from),
    };
    // This thread stays until the end, and the program goes with it.
    let (program, ready) = Program::start(&args.command, &asked)?;
    let watch = Arc::new(PeerWatch::new(program, ready, &asked, args.verify_all, sender.clone())?);
    let control = ControlServer::bind(args.control, settings, Arc::clone(&watch) as _)
        .map_err(Failure::failed)?;
    stop_on_request(args.end_with_input, &sender)?;
    announce(args, &watch, &control)?;
    watch_until_end(args, &watch, &events);
    let deadline = Instant::now() + REPORT_FETCHED_WITHIN;
    // The generator hangs up once it has its report; there is no event for that.
    while args.once && control.peers() > 0 && !watch.has_failed() && Instant::now() < deadline {
        std::thread::sleep(FETCHED_EVERY);
    }
    drop(control);
    conclude(args, &watch)
}

/// Where the program is to receive.
fn address(args: &ServePeer) -> Result<SocketAddr, Failure> {
    let unavailable = |message: &str| Failure { message: message.into(), code: exit::UNAVAILABLE };
    let [address] = args.bind[..] else {
        return Err(unavailable("a peer receives on one address"));
    };
    if args.work.shared {
        return Err(unavailable("a peer has no state that all its threads share"));
    }
    if args.busy_poll.is_some() {
        return Err(unavailable("busy polling is not available for peers"));
    }
    if address.ip().is_unspecified() {
        return Err(unavailable(&format!(
            "a peer receives on one address, and {} stands for all of this machine: give --bind one, such as {}:0",
            address.ip(),
            Ipv4Addr::LOCALHOST
        )));
    }
    Ok(address)
}

fn announce(args: &ServePeer, watch: &PeerWatch, control: &ControlServer) -> Result<(), Failure> {
    let ready = wire::Ready {
        addresses: vec![watch.address()],
        unix: vec![],
        control: Some(control.local_address()),
        settings: watch.settings().clone(),
    };
    if args.json {
        return super::print_document(&wire::ReadyLine::new(ready));
    }
    crate::print(&text::settings(&ready.settings));
    crate::print(&format!("receives on: {}\n", watch.address()));
    crate::print(&format!("control channel: {}\n", control.local_address()));
    Ok(())
}

/// Takes readings until something ends it.
fn watch_until_end(args: &ServePeer, watch: &PeerWatch, events: &Receiver<Event>) {
    let mut next_read = Instant::now();
    loop {
        let pause = if watch.has_active_run() { READ_EVERY } else { LOOK_EVERY };
        next_read = next_read.min(Instant::now() + pause);
        match events.recv_timeout(next_read.saturating_duration_since(Instant::now())) {
            Ok(Event::Stop) | Err(RecvTimeoutError::Disconnected) => return,
            Ok(Event::RunEnded) if args.once => return,
            Ok(Event::RunBegan | Event::RunEnded | Event::Came | Event::Asked(_))
            | Err(RecvTimeoutError::Timeout) => {}
            Ok(Event::Note(note) | Event::Line(note)) => say!("{note}"),
        }
        if Instant::now() >= next_read {
            watch.read();
            next_read = Instant::now() + pause;
        }
        if watch.has_failed() {
            return;
        }
    }
}

/// Ends the program and prints its report.
fn conclude(args: &ServePeer, watch: &PeerWatch) -> Result<u8, Failure> {
    let (report, failure) = watch.end(END_WITHIN);
    if let Some(message) = failure {
        return Err(Failure::failed(message));
    }
    let end = super::End::of(watch.has_wrong_runs(), watch.was_stopped_in_a_run());
    if args.json {
        super::print_ended(&report, end, TellArgs::default())?;
    } else {
        crate::print_report(&text::report(&report, args.work))?;
    }
    Ok(end.code("peer"))
}

/// What a program that was asked for something must say that it obtained.
fn must_say(asked: &Serve) -> Vec<(&'static str, String)> {
    let offload = asked.receive_offload.then(|| (setting::RECEIVE_OFFLOAD, "true".to_owned()));
    let work = asked.work_steps.map(|steps| (setting::WORK, steps.to_string()));
    let reply = asked.reply_bytes.map(|bytes| (setting::REPLY_BYTES, bytes.to_string()));
    let together = asked.runs_together.map(|runs| (setting::RUNS_TOGETHER, runs.to_string()));
    offload.into_iter().chain(work).chain(reply).chain(together).collect()
}
