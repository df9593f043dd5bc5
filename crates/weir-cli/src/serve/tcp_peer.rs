//! `weir serve tcp-peer`: any program that echoes TCP in the place of a design.
//!
//! It starts the program without a shell, waits until it accepts a connection, and reports what the
//! operating system counted of its process in the words in which `weir serve tcp` reports. So whoever
//! compares sees no difference, but that the program tells nothing of its calls.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use clap::Args;
use weir::counters::os::Sampler;
use weir::process::{Tree, TreeUsage};
use weir_lab::child::{Child, CommandLine, Interrupt};
use weir_lab::report::number::{UNKNOWN, bytes, or_unknown};
use weir_lab::tcp::processes::BUFFER;
use weir_lab::tcp::wire::{KernelHeld, MARK, STANDING, ServerReport, Standing, Window};
use weir_lab::wire;
use weir_load::clock::now_ns;
use weir_load::control::ControlServer;
use weir_load::quantity::parse_size;

use super::account::both;
use super::event::Event;
use super::tcp::{Consents, open_control};
use super::{LOOK_EVERY, stop_on_request};
use crate::cores::{Cores, keep_to};
use crate::exit::{self, Failure};
use crate::shown::TellArgs;

/// Options of `weir serve tcp-peer`.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 success; 1 it failed; 2 wrong usage; 5 it cannot run here.")]
pub struct ServeTcpPeer {
    /// The program with its arguments, as a shell reads them; {ip} and {port} in it are replaced by the
    /// address to listen on. Its figures are those of its process and of all that it starts.
    #[arg(long, value_parser = CommandLine::parse)]
    command: CommandLine,

    /// Address and port for the program to listen on; port 0 takes any free one.
    #[arg(long, default_value = "127.0.0.1:0")]
    bind: SocketAddr,

    /// What {buffer} in the command is replaced by: the bytes that the program is to receive at a time (k = 1024).
    #[arg(long, value_parser = parse_size)]
    buffer: Option<usize>,

    /// Address and port of the control channel, or a port of 127.0.0.1, over which loads from other machines ask for
    /// permission, as for weir serve tcp.
    #[arg(long, value_name = "ADDRESS", value_parser = super::parse_address)]
    control: Option<SocketAddr>,

    /// Cores to run on: 0 or 2,3 or 4-7.
    #[arg(long)]
    cpu: Option<Cores>,

    /// End when the standard input ends.
    #[arg(long)]
    end_with_input: bool,

    /// Documents on standard output, everything else on standard error.
    #[arg(short = 'J', long)]
    pub json: bool,
}

/// How the program is called in messages.
const PEER: &str = "the peer";
/// How long it may take to accept a connection.
const READY_WITHIN: Duration = Duration::from_secs(10);
/// How often is looked whether it does. There is no event for that.
const LOOK_WHETHER_READY_EVERY: Duration = Duration::from_millis(5);

/// Runs it until something ends it; gives the exit code.
pub fn serve(args: &ServeTcpPeer) -> Result<u8, Failure> {
    if !args.command.mentions("{port}") {
        return Err(Failure::usage(format!(
            "the command {} does not say where {{port}} goes: the program must listen on that port",
            args.command
        )));
    }
    let own_cores = weir::affinity::allowed_cores();
    if let Some(cores) = &args.cpu {
        // Before the program is started: it inherits this, and the limit on descriptors.
        keep_to("serve tcp-peer", cores)?;
    }
    weir_load::tcp::descriptors();
    let address = free(args.bind)?;
    let command = args.command.clone().with("{ip}", address.ip()).with("{port}", address.port());
    let command = match args.buffer {
        Some(bytes) => command.with(BUFFER, bytes),
        None => command,
    };
    let mut sampler = Sampler::new();
    let before = KernelHeld::now(&mut sampler);
    // This thread stays until the end, and the program goes with it.
    let mut child =
        Child::spawn_foreign(PEER, &command, false, &Interrupt::new()).map_err(Failure::failed)?;
    // Who looks on does not wait for a core that the program keeps busy. Where binding is forbidden nothing was bound.
    let _ = weir::affinity::pin_where_permitted(&own_cores);
    until_it_accepts(&mut child, address)?;
    let (sender, events) = channel();
    stop_on_request(args.end_with_input, &sender)?;
    // As long as it is there loads may be made.
    let control = args.control.map(|at| open_control(at, None, Consents::of_peer())).transpose()?;
    let at_control = control.as_ref().map(ControlServer::local_address);
    let ready = wire::Ready {
        addresses: vec![address],
        unix: vec![],
        control: at_control,
        settings: BTreeMap::new(),
    };
    match args.json {
        true => super::print_document(&wire::ReadyLine::new(ready))?,
        false => {
            crate::print(&format!("listens on: {address}\n"));
            if let Some(at) = at_control {
                crate::print(&format!("control channel: {at}\n"));
            }
        }
    }
    let mut watched =
        Watched { child, sampler, before, standing: None, marks: vec![], most_threads: None };
    watched.until_end(&events)?;
    drop(control);
    let report = watched.report(command.to_string());
    match args.json {
        true => super::print_concluded(&report, None, TellArgs::default())?,
        false => crate::print_report(&said(&report))?,
    }
    Ok(exit::OK)
}

/// The address with a port that is free now; a program that finds it taken says so by its end.
fn free(mut address: SocketAddr) -> Result<SocketAddr, Failure> {
    if address.port() == 0 {
        let free = TcpListener::bind(address).and_then(|socket| socket.local_addr());
        address = free.map_err(|error| {
            Failure::failed(format!("there is no free port on {address}: {error}"))
        })?;
    }
    Ok(address)
}

fn until_it_accepts(child: &mut Child, address: SocketAddr) -> Result<(), Failure> {
    let deadline = Instant::now() + READY_WITHIN;
    while TcpStream::connect_timeout(&address, READY_WITHIN).is_err() {
        child
            .is_alive_after("first connection", LOOK_WHETHER_READY_EVERY)
            .map_err(Failure::failed)?;
        if Instant::now() >= deadline {
            return Err(Failure::failed(format!(
                "{PEER} was ended: it accepted no connection on {address} within {READY_WITHIN:?}"
            )));
        }
    }
    // Whatever answered, it is still there.
    child.is_alive_after("first connection", Duration::ZERO).map_err(Failure::failed)
}

/// A program that is watched.
struct Watched {
    child: Child,
    sampler: Sampler,
    before: KernelHeld,
    standing: Option<Standing>,
    /// The first mark and the last one.
    marks: Vec<(u64, TreeUsage)>,
    /// The most threads that were seen.
    most_threads: Option<u64>,
}

impl Watched {
    fn until_end(&mut self, events: &Receiver<Event>) -> Result<(), Failure> {
        loop {
            match events.recv_timeout(LOOK_EVERY) {
                Ok(Event::Stop) | Err(RecvTimeoutError::Disconnected) => {
                    return self
                        .child
                        .is_alive_after("end", Duration::ZERO)
                        .map_err(Failure::failed);
                }
                Ok(Event::Asked(word)) if word == STANDING => {
                    let usage = self.usage().usage;
                    let (kernel, all) =
                        KernelHeld::now(&mut self.sampler).grown_since(&self.before);
                    self.standing = Some(Standing {
                        open: None,
                        threads: usage.threads,
                        resident_bytes: usage.resident_bytes,
                        kernel_bytes: Some(all),
                        kernel,
                        ..Standing::default()
                    });
                }
                Ok(Event::Asked(word)) if word == MARK => {
                    // What it used by then was read no later than this.
                    let usage = self.usage();
                    let mark = (now_ns(), usage);
                    self.marks.truncate(1);
                    self.marks.push(mark);
                }
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => {
                    self.child.is_alive_after("end", Duration::ZERO).map_err(Failure::failed)?;
                }
            }
        }
    }

    fn usage(&mut self) -> TreeUsage {
        let usage = self.child.tree().map(Tree::usage).unwrap_or_default();
        self.most_threads = self.most_threads.max(usage.usage.threads);
        usage
    }

    fn report(&mut self, design: String) -> ServerReport {
        let usage = self.usage();
        let (unknown, mut switches_unknown) =
            (usage.unknown.clone(), usage.switches_unknown.clone());
        let usage = usage.usage;
        let window = match &self.marks[..] {
            [(from, then), (to, now)] => {
                let used = now.since(then);
                switches_unknown = used.switches_unknown;
                let used = used.usage;
                Some(Window {
                    elapsed_ns: to - from,
                    ended_ns: *to,
                    cpu_ns: used.cpu_ns,
                    context_switches: both(used.voluntary_switches, used.involuntary_switches),
                    voluntary_switches: used.voluntary_switches,
                    ..Window::default()
                })
            }
            _ => None,
        };
        ServerReport {
            design,
            most_threads: self.most_threads,
            cpu_ns: usage.cpu_ns,
            resident_bytes: usage.peak_resident_bytes,
            unknown,
            switches_unknown,
            window,
            standing: self.standing.clone(),
            ..ServerReport::default()
        }
    }
}

fn said(report: &ServerReport) -> String {
    let ms = or_unknown(report.cpu_ns.map(|ns| ns as f64 / 1e6), |ms| format!("{ms:.1}"));
    let memory = or_unknown(report.resident_bytes.map(|n| n as f64), bytes);
    let threads = report.most_threads.map_or_else(|| UNKNOWN.into(), |n| n.to_string());
    format!("CPU time: {ms} ms\nmemory: {memory}\nthreads: {threads}\n")
}
