//! Segmentation offload: many datagrams as one large send.
//!
//! Mechanism: the socket option UDP_SEGMENT (Linux 4.18) is set once to the size of a
//! datagram; from then on one `send` of n times that size goes through the kernel as one
//! packet and is cut into n datagrams as late as possible, by the device if it can. On
//! loopback the receiving socket's options decide where: without UDP_GRO it is cut on the
//! sender's core, just before the receiving socket.
//!
//! Cost: one walk through socket, route and filters for all of them. Fails: for empty
//! datagrams, for datagrams larger than the path's MTU (there is no fragmentation of
//! segments), and where the option is missing. All datagrams of a send are taken or
//! refused together.
//!
//! Several such sends joined by sendmmsg would save nothing: with 64 datagrams each the
//! system call is below 1 % of the work.

use std::{io, mem, os::fd::AsRawFd};

use weir::Unavailable;

use crate::{
    engine::{Batch, Datagrams, Engine, Lane, Opened, Sent},
    stamp::DATAGRAM_BYTES_MAX,
};

/// The most segments of one send that every kernel with the option takes
/// (UDP_MAX_SEGMENTS; newer ones take 128).
const SEGMENTS_MAX: usize = 64;

struct Gso {
    datagrams: Datagrams,
    capacity: u32,
}

pub(super) fn open(size_bytes: usize, lanes: &[Lane]) -> Opened {
    let unavailable =
        |reason: String| Unavailable::new("engine gso", reason).advise("use the engine sendmmsg");
    let Ok(segment) = u16::try_from(size_bytes) else {
        return Err(unavailable(format!("{size_bytes} bytes are more than a datagram can have")));
    };
    if segment == 0 {
        return Err(unavailable("empty datagrams cannot be cut from a larger one".into()));
    }
    for lane in lanes {
        let mtu = mtu_bytes(lane)
            .map_err(|e| unavailable(format!("asking for the MTU to {}: {e}", lane.target)))?;
        let headers = if lane.target.is_ipv4() { 28 } else { 48 };
        if size_bytes + headers > mtu {
            return Err(unavailable(format!(
                "datagrams of {size_bytes} bytes and their headers do not fit into the MTU of \
                 {mtu} bytes to {}",
                lane.target
            )));
        }
        set_option(lane, libc::SOL_UDP, libc::UDP_SEGMENT, i32::from(segment))
            .map_err(|e| unavailable(format!("the socket option UDP_SEGMENT: {e}")))?;
    }
    let capacity = (DATAGRAM_BYTES_MAX / size_bytes).clamp(1, SEGMENTS_MAX) as u32;
    Ok(Box::new(Gso { datagrams: Datagrams::new(size_bytes, capacity), capacity }))
}

impl Engine for Gso {
    fn capacity(&self) -> u32 {
        self.capacity
    }

    fn send(&mut self, lane: &Lane, batch: &Batch) -> Sent {
        self.datagrams.stamp(batch);
        loop {
            match lane.socket.send(self.datagrams.range(0..batch.datagrams)) {
                Ok(_) => return Sent { sent: batch.datagrams, ..Sent::default() },
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Sent::until(0, batch.datagrams, error),
            }
        }
    }

    fn settings(&self) -> Vec<(&'static str, String)> {
        vec![("datagrams per call", self.capacity.to_string())]
    }
}

pub(super) fn set_option(lane: &Lane, level: i32, option: i32, value: i32) -> io::Result<()> {
    // SAFETY: the descriptor is the lane's open socket, and the value is an int of the
    // length stated that outlives the call.
    let result = unsafe {
        libc::setsockopt(
            lane.socket.as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            mem::size_of_val(&value) as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The MTU of the way to the lane's target, as the kernel knows it now.
fn mtu_bytes(lane: &Lane) -> io::Result<usize> {
    let (level, option) = if lane.target.is_ipv4() {
        (libc::IPPROTO_IP, libc::IP_MTU)
    } else {
        (libc::IPPROTO_IPV6, libc::IPV6_MTU)
    };
    let mut mtu: i32 = 0;
    let mut length = mem::size_of_val(&mtu) as libc::socklen_t;
    // SAFETY: the descriptor is the lane's open socket; value and length outlive the call,
    // and the length is that of the value.
    let result = unsafe {
        libc::getsockopt(
            lane.socket.as_raw_fd(),
            level,
            option,
            (&raw mut mtu).cast(),
            &raw mut length,
        )
    };
    if result == 0 { Ok(mtu.max(0) as usize) } else { Err(io::Error::last_os_error()) }
}
