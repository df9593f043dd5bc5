//! A socket of AF_XDP: its memory, its rings, and the calls that the kernel may want.
//!
//! Origin: Documentation/networking/af_xdp.rst, linux/if_xdp.h.

use super::ring::{Consumer, Producer, Shape};
use crate::{
    deadline::LastLook,
    memory::{Layout, Region, RegionOptions},
    socket::native::set_option,
};
use nix::{
    errno::Errno,
    sys::mman::{MapFlags, ProtFlags, mmap, munmap},
};
use socket2::SockRef;
use std::{
    io,
    mem::{size_of, zeroed},
    num::NonZeroUsize,
    os::fd::{AsRawFd, OwnedFd, RawFd},
    ptr::NonNull,
    sync::Arc,
    time::{Duration, Instant},
};

/// Memory that frames lie in (UMEM): it must stay as long as the socket.
#[derive(Debug, Clone, Copy)]
pub struct Memory {
    pub base: NonNull<u8>,
    pub bytes: usize,
    /// 2048 or 4096.
    pub chunk_bytes: usize,
    /// Room before a frame, in addition to the kernel's own [`KERNEL_HEADROOM`].
    pub headroom: usize,
}

/// Room that the kernel leaves before every frame (XDP_PACKET_HEADROOM).
pub const KERNEL_HEADROOM: usize = 256;

/// A frame in the memory: where it begins, and its length.
pub type Frame = libc::xdp_desc;

/// A socket, bound or not.
#[derive(Debug)]
pub struct Socket(OwnedFd);

/// The rings of a socket.
pub struct Rings {
    pub fill: Producer<u64>,
    pub receive: Consumer<Frame>,
    pub transmit: Producer<Frame>,
    pub completion: Consumer<u64>,
}

/// What the kernel counts for a socket.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Frames for which no slice was posted.
    pub no_buffer: u64,
    /// Frames for which the receive ring had no room.
    pub overflows: u64,
    /// Frames that fit no slice.
    pub too_long: u64,
}

/// How long the kernel may take to give a device or its queue up that the last owner has closed: it
/// does so behind his back.
pub const RELEASE: Duration = Duration::from_secs(2);

/// Time between two looks whether it has; there is no event to wait for.
pub const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// What failed: the call, for a message.
pub type Failed = (&'static str, io::Error);

impl Socket {
    /// A socket with rings of these sizes (powers of two): for receiving, and for sending.
    ///
    /// # Errors
    /// The call that failed, and its answer.
    pub fn new(memory: &Memory, receives: u32, sends: u32) -> Result<(Self, Rings), Failed> {
        let socket = socket2::Socket::new(libc::AF_XDP.into(), socket2::Type::RAW, None)
            .map_err(|e| ("socket(AF_XDP)", e))?;
        let socket = Self(socket.into());
        // SAFETY: all zeroes is a valid registration.
        let mut registration: libc::xdp_umem_reg = unsafe { zeroed() };
        registration.addr = memory.base.as_ptr() as u64;
        registration.len = memory.bytes as u64;
        registration.chunk_size = memory.chunk_bytes as u32;
        registration.headroom = memory.headroom as u32;
        socket
            .set(libc::SOL_XDP, libc::XDP_UMEM_REG, &registration)
            .map_err(|e| ("XDP_UMEM_REG", e))?;
        for (option, entries) in [
            (libc::XDP_UMEM_FILL_RING, receives),
            (libc::XDP_RX_RING, receives),
            (libc::XDP_UMEM_COMPLETION_RING, sends),
            (libc::XDP_TX_RING, sends),
        ] {
            socket.set(libc::SOL_XDP, option, &entries).map_err(|e| ("sizing the rings", e))?;
        }
        let offsets: libc::xdp_mmap_offsets =
            // SAFETY: all zeroes are valid offsets.
            unsafe { socket.get(libc::XDP_MMAP_OFFSETS) }.map_err(|e| ("XDP_MMAP_OFFSETS", e))?;
        let rings = socket.map_rings(&offsets, receives, sends);
        Ok((socket, rings.map_err(|e| ("mapping the rings", e))?))
    }

    fn map_rings(
        &self,
        offsets: &libc::xdp_mmap_offsets,
        receives: u32,
        sends: u32,
    ) -> io::Result<Rings> {
        let at_fill = libc::XDP_UMEM_PGOFF_FILL_RING as libc::off_t;
        let at_completion = libc::XDP_UMEM_PGOFF_COMPLETION_RING as libc::off_t;
        // SAFETY: each ring is mapped as the kernel said, with its type of entries and the size it
        // was given; we are the only one on our side of it.
        unsafe {
            Ok(Rings {
                fill: Producer::new(self.map(&offsets.fr, at_fill, receives)?),
                receive: Consumer::new(self.map(&offsets.rx, libc::XDP_PGOFF_RX_RING, receives)?),
                transmit: Producer::new(self.map(&offsets.tx, libc::XDP_PGOFF_TX_RING, sends)?),
                completion: Consumer::new(self.map(&offsets.cr, at_completion, sends)?),
            })
        }
    }

    fn map<E>(
        &self,
        offsets: &libc::xdp_ring_offset,
        at: libc::off_t,
        size: u32,
    ) -> io::Result<Shape<E>> {
        let bytes = offsets.desc as usize + size as usize * size_of::<E>();
        let length = NonZeroUsize::new(bytes).ok_or(Errno::EINVAL)?;
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let flags = MapFlags::MAP_SHARED | MapFlags::MAP_POPULATE;
        // SAFETY: a mapping at an address of the kernel's choice touches nothing of ours.
        let base = unsafe { mmap(None, length, access, flags, &self.0, at) }?.cast::<u8>();
        let memory = Box::new(Mapping { base, bytes });
        // SAFETY: the offsets are the kernel's for this mapping, whose length covers them all.
        let at = |offset: u64| unsafe { base.add(offset as usize) };
        Ok(Shape {
            producer: at(offsets.producer).cast(),
            consumer: at(offsets.consumer).cast(),
            flags: at(offsets.flags).cast(),
            entries: at(offsets.desc).cast(),
            size,
            memory,
        })
    }

    /// Binds it to a queue of a device: without copying where the driver can and `may_share`.
    /// Waits a moment for an earlier owner's end.
    ///
    /// # Errors
    /// What the kernel answered.
    pub fn bind(&self, device: u32, queue: u32, may_share: bool) -> io::Result<()> {
        let copy = if may_share { 0 } else { libc::XDP_COPY };
        let mut look = LastLook::by(Instant::now() + RELEASE);
        loop {
            match self.bind_once(device, queue, copy) {
                Err(e) if e.raw_os_error() == Some(libc::EBUSY) && look.wait(false).is_some() => {
                    std::thread::sleep(LOOK_AGAIN);
                }
                result => return result,
            }
        }
    }

    fn bind_once(&self, device: u32, queue: u32, flags: u16) -> io::Result<()> {
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: flags | libc::XDP_USE_NEED_WAKEUP,
            sxdp_ifindex: device,
            sxdp_queue_id: queue,
            sxdp_shared_umem_fd: 0,
        };
        // SAFETY: the address outlives the call, with the size given.
        let result = unsafe {
            libc::bind(self.fd(), (&raw const address).cast(), size_of_val(&address) as u32)
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Asks that the device be served by whoever calls for it rather than by its interrupts: so long
    /// a call at most, so many frames at a time.
    ///
    /// # Errors
    /// What the kernel answered.
    pub fn prefer_busy_polling(&self, for_us: i32, frames: i32) -> io::Result<()> {
        self.set(libc::SOL_SOCKET, libc::SO_PREFER_BUSY_POLL, &1i32)?;
        self.set(libc::SOL_SOCKET, libc::SO_BUSY_POLL, &for_us)?;
        self.set(libc::SOL_SOCKET, libc::SO_BUSY_POLL_BUDGET, &frames)
    }

    /// Whether the device uses the memory itself.
    pub fn is_zero_copy(&self) -> io::Result<bool> {
        // SAFETY: all zeroes are valid options.
        let options: libc::xdp_options = unsafe { self.get(libc::XDP_OPTIONS) }?;
        Ok(options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0)
    }

    /// What the kernel has counted so far.
    pub fn statistics(&self) -> io::Result<Statistics> {
        // SAFETY: all zeroes are valid statistics.
        let counts: libc::xdp_statistics = unsafe { self.get(libc::XDP_STATISTICS) }?;
        let no_buffer = counts.rx_fill_ring_empty_descs;
        // Where the kernel copies, it counts a frame without a buffer as dropped, too.
        let too_long = counts.rx_dropped.saturating_sub(no_buffer);
        Ok(Statistics { no_buffer, overflows: counts.rx_ring_full, too_long })
    }

    /// Has the kernel look at the transmit ring.
    pub fn kick(&self) -> io::Result<()> {
        // SAFETY: sends nothing from nowhere to nobody.
        let result = unsafe {
            libc::sendto(self.fd(), std::ptr::null(), 0, libc::MSG_DONTWAIT, std::ptr::null(), 0)
        };
        if result >= 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Has the driver look at the fill ring, and, with busy polling, serve the queue.
    pub fn rouse(&self) {
        let (null, none) = (std::ptr::null_mut(), std::ptr::null_mut());
        // Whether there was anything does not matter.
        // SAFETY: receives nothing to nowhere.
        unsafe {
            libc::recvfrom(self.fd(), null, 0, libc::MSG_DONTWAIT, std::ptr::null_mut(), none)
        };
    }

    pub fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    fn set<V>(&self, level: libc::c_int, option: libc::c_int, value: &V) -> io::Result<()> {
        // SAFETY: these options take a value of the type that they are given, which points at memory of the region at
        // most.
        unsafe { set_option(&SockRef::from(&self.0), level, option, value) }
    }

    /// # Safety
    /// All zeroes is a valid value, and so is whatever this option fills in.
    unsafe fn get<V>(&self, option: libc::c_int) -> io::Result<V> {
        // SAFETY: the caller vouches for it.
        let mut value: V = unsafe { zeroed() };
        let mut length = size_of::<V>() as libc::socklen_t;
        // SAFETY: value and length outlive the call, and the length is the value's.
        let result = unsafe {
            libc::getsockopt(self.fd(), libc::SOL_XDP, option, (&raw mut value).cast(), &mut length)
        };
        if result == 0 { Ok(value) } else { Err(io::Error::last_os_error()) }
    }
}

/// A socket that is to be bound to a queue of a device once another has given it up. Made beforehand,
/// since making it takes privilege.
pub struct Probe {
    socket: Socket,
    _kept: Arc<Region>,
}

impl Probe {
    /// # Errors
    /// The call that failed, and its answer.
    pub fn new() -> Result<Self, Failed> {
        const BYTES: usize = 4096;
        let layout = Layout::packed(0, BYTES, BYTES);
        let region = Region::new(layout, 1, RegionOptions::default())
            .map_err(|e| ("a page of memory", io::Error::other(e)))?;
        let (base, bytes) = region.extent();
        let memory = Memory { base, bytes, chunk_bytes: BYTES, headroom: 0 };
        let (socket, _) = Socket::new(&memory, 1, 1)?;
        Ok(Self { socket, _kept: region })
    }

    /// Waits until the kernel has given up a queue of a device whose socket was closed: only then has
    /// a device that used the memory itself let go of it. Somebody else can bind to the queue then.
    pub fn await_release(self, device: u32, queue: u32, by: Instant) -> bool {
        let mut look = LastLook::by(by);
        loop {
            match self.socket.bind_once(device, queue, libc::XDP_COPY) {
                Ok(()) => return true,
                // The device is gone, and with it whatever it did.
                Err(e) if e.raw_os_error() == Some(libc::ENODEV) => return true,
                Err(_) if look.wait(false).is_some() => std::thread::sleep(LOOK_AGAIN),
                Err(_) => return false,
            }
        }
    }
}

/// A mapping of the kernel's memory.
struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: it is unmapped once, by whoever drops it.
unsafe impl Send for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped with this length; the ring that used it goes with it.
        let _ = unsafe { munmap(self.base.cast(), self.bytes) };
    }
}
