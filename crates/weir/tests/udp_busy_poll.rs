//! Busy polling where there is something to poll: a pair of veth devices with NAPI between two network
//! namespaces, which belong to threads of the test and go with them. It needs root, and `ip` of
//! iproute2.
#![cfg(target_os = "linux")]

#[path = "suite/receive.rs"]
mod receive;
#[path = "../src/required.rs"]
mod required;

use receive::receive;
use required::cannot_run;
use std::{
    fs::{self, File},
    io,
    net::{SocketAddr, UdpSocket},
    os::fd::AsRawFd,
    process::Command,
    thread,
    time::Duration,
};
use weir::{
    limits::Limits,
    udp::{AnyDesign, Datagram, Replies, Server},
};

/// Far longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

const OURS: &str = "10.78.0.1";
const THEIRS: &str = "10.78.0.2";

/// Answers of an error number.
fn checked(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Enters a network namespace of the thread's own.
fn unshare() -> io::Result<()> {
    // SAFETY: takes no pointers; it changes the calling thread alone.
    checked(unsafe { libc::unshare(libc::CLONE_NEWNET) })
}

fn enter(namespace: &File) -> io::Result<()> {
    // SAFETY: takes no pointers; it changes the calling thread alone.
    checked(unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) })
}

/// `ip`, in the namespace of the calling thread.
fn ip(arguments: &str) -> io::Result<()> {
    let output = Command::new("ip").args(arguments.split_whitespace()).output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(io::Error::other(format!("ip {arguments}: {said}")))
}

/// `ethtool -K DEVICE gro on`: a veth device has NAPI then.
const GRO_ON: Feature = Feature { command: 0x2c, value: 1 };

/// `ethtool -K DEVICE tso off` for the device at the other end: only then does what it sends go by the
/// NAPI of this one (veth_skb_is_eligible_for_gro of the kernel's sources).
const TSO_OFF: Feature = Feature { command: 0x1f, value: 0 };

/// An ethtool_value of linux/ethtool.h.
#[repr(C)]
#[derive(Clone, Copy)]
struct Feature {
    command: u32,
    value: u32,
}

fn set(device: &str, mut feature: Feature) -> io::Result<()> {
    // SAFETY: all zeroes is a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(device.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = (&raw mut feature).cast();
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    // SAFETY: this call takes an ifreq that points at such a value; both live through it.
    checked(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL, &raw mut request) })
}

/// A socket at the other end of a wire to the namespace of the calling thread, which it makes.
fn other_end() -> io::Result<UdpSocket> {
    unshare()?;
    let ours = File::open("/proc/thread-self/ns/net")?;
    ip("link set lo up")?;
    ip("link add weir0 type veth peer name weir1")?;
    let theirs = thread::spawn(move || -> io::Result<UdpSocket> {
        unshare()?;
        // SAFETY: takes no pointers.
        let number = unsafe { libc::gettid() };
        let moved = thread::spawn(move || {
            enter(&ours)?;
            ip(&format!("link set weir1 netns {number}"))
        });
        moved.join().expect("it does not panic")?;
        ip(&format!("address add {THEIRS}/24 dev weir1"))?;
        set("weir1", TSO_OFF)?;
        ip("link set weir1 up")?;
        UdpSocket::bind((THEIRS, 0))
    });
    ip(&format!("address add {OURS}/24 dev weir0"))?;
    set("weir0", GRO_ON)?;
    ip("link set weir0 up")?;
    let socket = theirs.join().expect("it does not panic")?;
    socket.set_read_timeout(Some(PATIENCE))?;
    Ok(socket)
}

/// Packets that busy polling took from devices, in the namespace of the calling thread.
fn packets_polled() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/net/netstat").expect("every Linux has it");
    let mut lines = text.lines().filter(|line| line.starts_with("TcpExt:"));
    let (names, values) = (lines.next().expect("names"), lines.next().expect("values"));
    let mut both = names.split_whitespace().zip(values.split_whitespace());
    let (_, value) = both.find(|(name, _)| *name == "BusyPollRxPackets").expect("since 3.11");
    value.parse().expect("a number")
}

/// The effective setting of this name.
fn told(effective: &[(String, String)], name: &str) -> String {
    effective
        .iter()
        .find(|(told, _)| told == name)
        .map(|(_, value)| value.clone())
        .unwrap_or_default()
}

/// Whether nothing runs on this machine but what asks, and perhaps one more. The kernel polls no longer once another
/// thread wants the core.
fn is_quiet() -> bool {
    let text = fs::read_to_string("/proc/stat").expect("every Linux has it");
    let running = text.lines().find_map(|line| line.strip_prefix("procs_running "));
    running.expect("since 2.5").trim().parse::<u32>().expect("a number") <= 2
}

/// Exchanges on a quiet machine after which something must have been polled.
const CHANCES: u32 = 20_000;

/// By how many the exchanges on a busy machine outnumber those on a quiet one when it is given up.
const TOO_BUSY: u32 = 500;

/// Exchanges datagrams one by one until the server has taken some by polling: which core is first at the device is
/// chance, and on a busy machine polling has none.
fn polls(design: &str, client: &UdpSocket) {
    let design = AnyDesign::parse(design).unwrap();
    let name = design.about().name;
    if cannot_run(name, design.availability()) {
        return;
    }
    let before = packets_polled();
    let limits = Limits::default().replies_outstanding(64);
    let at = SocketAddr::new(OURS.parse().unwrap(), 0);
    let echo = |_| |_: Datagram<'_>, replies: &mut Replies<'_>| replies.echo().unwrap();
    let server = Server::bind(at).limits(limits).busy_poll(Duration::from_millis(5));
    let server = server.start(design, echo).unwrap();
    let to = server.local_addresses()[0];
    let (mut quiet, mut busy) = (0_u32, 0_u32);
    // No two are alike: a server that echoes takes what comes again and again for a loop.
    let exchange = |number: u32| {
        let (sent, mut back) = (number.to_be_bytes(), [0; 8]);
        client.send_to(&sent, to).unwrap();
        let (length, _) =
            receive(client, &mut back).unwrap_or_else(|e| panic!("{name}: no reply: {e}"));
        assert_eq!(back[..length], sent, "{name}");
    };
    while packets_polled() == before {
        *(if is_quiet() { &mut quiet } else { &mut busy }) += 1;
        assert!(quiet < CHANCES, "{name} polled nothing: {:?}", server.effective());
        if busy > quiet + TOO_BUSY {
            eprintln!("{name}: whether it polls was not seen, the machine is too busy");
            break;
        }
        exchange(quiet + busy);
    }
    exchange(0);
    let id = server.sockets()[0].napi_id.expect("a datagram came by a queue with one");
    let effective = server.effective();
    assert_eq!(told(&effective, "busy-poll-queues"), id.to_string());
    assert_eq!(told(&effective, "busy-poll-us"), "5000");
    let report = server.stop();
    assert!(report.failure.is_none(), "{:?}", report.failure);
    assert_eq!(report.sockets[0].napi_id, Some(id));
    eprintln!(
        "{name}: {}; polled {}",
        told(&effective, "busy-poll-wait"),
        packets_polled() - before
    );
}

#[test]
fn datagrams_are_polled_from_a_device_that_has_a_queue_to_poll() {
    let run = || {
        let client = match other_end() {
            Ok(client) => client,
            Err(e) => {
                let why = format!("for want of two devices (it needs root, and ip): {e}");
                assert!(cannot_run("busy-poll", Err::<(), _>(why)));
                return;
            }
        };
        for design in [
            "blocking",
            "blocking-batch",
            "epoll",
            "epoll-batch",
            "port --threads 1 --outstanding 64",
            "rio-event --provider uring --outstanding 64",
            "rio-event --provider uring-interrupt --outstanding 64",
            "rio-polled --provider batch --outstanding 64",
            "rio-hybrid --provider uring --threads 2 --outstanding 64",
        ] {
            polls(design, &client);
        }
    };
    thread::spawn(run).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}
