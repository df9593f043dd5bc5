//! Segmentation offload: many datagrams as one large send.
//!
//! Mechanism: the socket option UDP_SEND_MSG_SIZE (Windows 10, version 2004) is set once to the size of a datagram;
//! from then on one `send` of n times that size goes through the system as one packet and is cut into n datagrams as
//! late as possible, by the device if it can (USO).
//!
//! Cost: one walk through socket, route and filters for all of them. Fails: for empty datagrams, and where the option
//! is missing or is taken and not heeded: so it is proved once by two datagrams on loopback. Datagrams larger than the
//! path's MTU are cut into fragments. All datagrams of a send are taken or refused together.

use std::{
    io, mem,
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    os::windows::io::AsRawSocket,
    sync::OnceLock,
    time::Duration,
};

use weir::Unavailable;
use windows_sys::Win32::Networking::WinSock::{
    IPPROTO_UDP, SOCKET, UDP_SEND_MSG_SIZE, WSAGetLastError, setsockopt,
};

use crate::{
    engine::{Batch, Blocking, Datagrams, Engine, Lane, Opened, Sent},
    stamp::DATAGRAM_BYTES_MAX,
};

/// The most datagrams of one send. Windows states no limit; 512 is what others have found to be taken (quinn-udp).
const SEGMENTS_MAX: usize = 512;

/// How long each datagram of the proof may take, which is there at once on a machine that gives the thread a core.
const PROOF_TIMEOUT: Duration = Duration::from_secs(10);

struct Uso {
    datagrams: Datagrams,
    capacity: u32,
}

pub(super) fn open(size_bytes: usize, lanes: &[Lane]) -> Opened {
    let unavailable =
        |reason: String| Unavailable::new("engine uso", reason).advise("use the engine send");
    if size_bytes == 0 {
        return Err(unavailable("empty datagrams cannot be cut from a larger one".into()));
    }
    if size_bytes > DATAGRAM_BYTES_MAX {
        return Err(unavailable(format!("{size_bytes} bytes are more than a datagram can have")));
    }
    static PROVED: OnceLock<Result<(), String>> = OnceLock::new();
    PROVED.get_or_init(prove).clone().map_err(unavailable)?;
    for lane in lanes {
        set_segment(lane, size_bytes as u32)
            .map_err(|e| unavailable(format!("the socket option UDP_SEND_MSG_SIZE: {e}")))?;
    }
    let capacity = (DATAGRAM_BYTES_MAX / size_bytes).clamp(1, SEGMENTS_MAX) as u32;
    Ok(Box::new(Uso { datagrams: Datagrams::new(size_bytes, capacity), capacity }))
}

/// Whether one send arrives as the two datagrams that it was to be cut into.
fn prove() -> Result<(), String> {
    const SEGMENT: usize = 40;
    let failed = |what: &'static str| move |e: io::Error| format!("{what}: {e}");
    let on_loopback = failed("a receiver on loopback");
    let sink = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(on_loopback)?;
    sink.set_read_timeout(Some(PROOF_TIMEOUT)).map_err(on_loopback)?;
    let at: SocketAddr = sink.local_addr().map_err(on_loopback)?;
    let lane = Lane::connect(at, 0, Blocking::Yes).map_err(failed("a sender on loopback"))?;
    set_segment(&lane, SEGMENT as u32).map_err(failed("the socket option UDP_SEND_MSG_SIZE"))?;
    lane.send(&[7; 2 * SEGMENT]).map_err(failed("one send of two datagrams"))?;
    let mut buffer = [0; 4 * SEGMENT];
    for which in ["the first", "the second"] {
        let received = sink.recv(&mut buffer);
        let bytes = received
            .map_err(|e| format!("{which} of two datagrams sent as one did not arrive: {e}"))?;
        if bytes != SEGMENT {
            return Err(format!(
                "one send of two datagrams of {SEGMENT} bytes arrived as one of {bytes}: the socket option \
                 UDP_SEND_MSG_SIZE was taken and is not heeded"
            ));
        }
    }
    Ok(())
}

impl Engine for Uso {
    fn capacity(&self) -> u32 {
        self.capacity
    }

    fn send(&mut self, lane: &Lane, batch: &Batch) -> Sent {
        self.datagrams.stamp(batch);
        match lane.send(self.datagrams.range(0..batch.datagrams)) {
            Ok(_) => Sent { sent: batch.datagrams, ..Sent::default() },
            Err(error) => Sent::until(0, batch.datagrams, error),
        }
    }

    fn settings(&self) -> Vec<(&'static str, String)> {
        vec![("datagrams per call", self.capacity.to_string())]
    }
}

/// Has what is sent be cut into datagrams of so many bytes.
fn set_segment(lane: &Lane, bytes: u32) -> io::Result<()> {
    let socket = lane.socket.as_raw_socket() as SOCKET;
    let length = mem::size_of_val(&bytes) as i32;
    // SAFETY: the socket is the lane's, which is open, and the value is 32 bits, as stated, that outlive the call.
    let result = unsafe {
        setsockopt(socket, IPPROTO_UDP, UDP_SEND_MSG_SIZE, (&raw const bytes).cast(), length)
    };
    if result == 0 {
        return Ok(());
    }
    // SAFETY: reads a variable of this thread.
    Err(io::Error::from_raw_os_error(unsafe { WSAGetLastError() }))
}
