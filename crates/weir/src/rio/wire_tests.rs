//! A pair of veth devices between two network namespaces, for tests of what sees the frames or packets of a device. The
//! namespaces belong to threads of the test and go with them, and the devices go with the namespaces, however the test
//! ends.

use super::{
    Needs, Provider, Threading,
    provider_tests::{PATIENCE, Rig},
};
use crate::{Error, Unavailable, required::cannot_run, socket::Endpoint};
use std::{
    fs::File,
    io,
    net::{SocketAddr, UdpSocket},
    os::fd::AsRawFd as _,
    process::Command,
    thread,
};

pub const OURS_V4: &str = "10.77.0.1";
pub const THEIRS_V4: &str = "10.77.0.2";
pub const OURS_V6: &str = "fd77::1";
pub const THEIRS_V6: &str = "fd77::2";

/// The device of the server, and that of its clients.
pub const OURS: &str = "weir0";
pub const THEIRS: &str = "weir1";

/// Enters a network namespace of the thread's own.
fn unshare() -> io::Result<()> {
    // SAFETY: takes no pointers; it changes the calling thread alone.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// `ip`, in the namespace of the calling thread.
pub fn ip(arguments: &str) -> io::Result<()> {
    let output = Command::new("ip").args(arguments.split_whitespace()).output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(io::Error::other(format!("ip {arguments}: {said}")))
}

/// The other end of the wire: a namespace that sockets can be opened in.
pub struct Wire {
    theirs: File,
}

impl Wire {
    /// A wire from the namespace of the calling thread, which it makes.
    pub fn new(queues: u32) -> io::Result<Self> {
        unshare()?;
        let at_our_end = File::open("/proc/thread-self/ns/net")?;
        let theirs = thread::spawn(|| -> io::Result<File> {
            unshare()?;
            File::open("/proc/thread-self/ns/net")
        });
        let theirs = theirs.join().expect("it does not panic")?;
        let wire = Self { theirs };
        let of = format!("numrxqueues {queues} numtxqueues {queues}");
        ip(&format!("link add {OURS} {of} type veth peer name {THEIRS} {of}"))?;
        // A device is moved into the namespace of a thread, named by its number.
        wire.inside(move || {
            // SAFETY: takes no pointers.
            let thread = unsafe { libc::gettid() };
            let moved = thread::spawn(move || {
                enter(&at_our_end)?;
                ip(&format!("link set {THEIRS} netns {thread}"))
            });
            moved.join().expect("it does not panic")?;
            set_up(THEIRS, THEIRS_V4, THEIRS_V6)
        })?;
        set_up(OURS, OURS_V4, OURS_V6)?;
        Ok(wire)
    }

    /// Calls `f` at the other end.
    pub fn inside<R: Send>(&self, f: impl FnOnce() -> R + Send) -> R {
        let at_other_end = || {
            enter(&self.theirs).expect("a namespace that was entered before");
            f()
        };
        thread::scope(|scope| scope.spawn(at_other_end).join())
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// The Ethernet address of the device at the other end.
    pub fn their_mac(&self) -> [u8; 6] {
        let shown = self.inside(|| Command::new("ip").args(["link", "show", THEIRS]).output());
        let shown = String::from_utf8(shown.expect("ip runs").stdout).expect("text");
        let mut words = shown.split_whitespace().skip_while(|word| *word != "link/ether").skip(1);
        let mac: Vec<u8> = words
            .next()
            .expect("an address")
            .split(':')
            .map(|byte| u8::from_str_radix(byte, 16).expect("a byte"))
            .collect();
        mac.try_into().expect("six bytes")
    }

    /// A socket at the other end, of the family of `to`.
    pub fn client(&self, to: SocketAddr) -> UdpSocket {
        let address = if to.is_ipv4() { THEIRS_V4 } else { THEIRS_V6 };
        let address = SocketAddr::new(address.parse().unwrap(), 0);
        let socket = self.inside(|| UdpSocket::bind(address)).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    }
}

/// Enters a namespace.
pub fn enter(namespace: &File) -> io::Result<()> {
    // SAFETY: takes no pointers; it changes the calling thread alone.
    if unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn set_up(device: &str, v4: &str, v6: &str) -> io::Result<()> {
    ip("link set lo up")?;
    ip(&format!("address add {v4}/24 dev {device}"))?;
    ip(&format!("address add {v6}/64 dev {device} nodad"))?;
    ip(&format!("link set {device} up"))
}

/// A free port of an address.
pub fn ours(ip: &str) -> SocketAddr {
    SocketAddr::new(ip.parse().unwrap(), 0)
}

/// Runs a test at our end of a wire of so many queues, on a thread of its own, or says why it cannot.
pub fn on_a_wire(
    name: &'static str,
    queues: u32,
    can_run: impl FnOnce() -> Result<(), Unavailable> + Send + 'static,
    test: impl FnOnce(&Wire) + Send + 'static,
) {
    let run = move || {
        if cannot_run(name, can_run()) {
            return;
        }
        let wire = Wire::new(queues).map_err(|e| {
            Unavailable::new("a pair of veth devices", e.to_string())
                .advise("it needs root, and `ip` of iproute2")
        });
        match wire {
            Ok(wire) => test(&wire),
            Err(unavailable) => {
                cannot_run::<()>(name, Err(unavailable));
            }
        }
    };
    thread::spawn(run).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

/// Queues at our end of a wire, with all receives posted.
pub fn posted<T: Threading, P: Provider<T>>(
    provider: &P,
    needs: Needs,
    at: &[Endpoint],
) -> Rig<T, P> {
    try_posted(provider, needs, at).unwrap_or_else(|e| panic!("{e}"))
}

/// The same, where it may fail.
pub fn try_posted<T: Threading, P: Provider<T>>(
    provider: &P,
    needs: Needs,
    at: &[Endpoint],
) -> Result<Rig<T, P>, Error> {
    let mut rig = Rig::open(provider, needs, 0, at)?;
    let receives = needs.receives as usize;
    assert_eq!(rig.post_shared(receives), receives);
    Ok(rig)
}
