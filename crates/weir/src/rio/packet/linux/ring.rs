//! A packet socket and its ring: blocks of packets in memory that the kernel shares with us.
//!
//! A block is the kernel's or ours, as its status says. We take ours in turn, and give each back when all of its packets
//! were looked at.
//!
//! Origin: packet(7), linux/if_packet.h.

use super::block::STATUS;
use libc::sock_filter;
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use std::{
    io, mem,
    num::NonZeroUsize,
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd},
    ptr::NonNull,
    sync::atomic::{AtomicU32, Ordering},
};

/// Bytes of a block: several packets of the longest kind, and a multiple of any page.
pub const BLOCK_BYTES: usize = 256 << 10;

/// The fewest and the most blocks of a ring: a gigabyte.
pub const BLOCKS: std::ops::RangeInclusive<usize> = 4..=4096;

/// How old a block with packets is, at most, when the kernel hands it over although it is not full.
pub const HANDED_OVER_AFTER_MS: u32 = 10;

/// What failed, and how.
pub type Failed = (&'static str, io::Error);

/// A packet socket.
pub struct PacketSocket(OwnedFd);

impl PacketSocket {
    /// One that receives nothing yet.
    ///
    /// # Errors
    /// EPERM without CAP_NET_RAW.
    pub fn new() -> Result<Self, Failed> {
        // SAFETY: takes no pointers.
        let fd = unsafe {
            libc::socket(
                libc::AF_PACKET,
                libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK,
                0,
            )
        };
        if fd < 0 {
            return Err(("making a packet socket", io::Error::last_os_error()));
        }
        // SAFETY: a new descriptor, which nobody else owns.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Makes its ring of so many blocks.
    ///
    /// # Errors
    /// ENOMEM where there is no memory for it.
    pub fn ring(&self, blocks: usize) -> Result<Ring, Failed> {
        let request = libc::tpacket_req3 {
            tp_block_size: BLOCK_BYTES as u32,
            tp_block_nr: blocks as u32,
            // Packets lie one behind the other; this is the room that the kernel reckons with.
            tp_frame_size: BLOCK_BYTES as u32,
            tp_frame_nr: blocks as u32,
            tp_retire_blk_tov: HANDED_OVER_AFTER_MS,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        let (version, on) = (libc::tpacket_versions::TPACKET_V3 as libc::c_int, 1 as libc::c_int);
        // SAFETY: these options take a number, and such a request.
        unsafe {
            self.set(libc::SOL_PACKET, libc::PACKET_VERSION, &version)
                .map_err(|e| ("PACKET_VERSION", e))?;
            self.set(libc::SOL_PACKET, libc::PACKET_VNET_HDR, &on)
                .map_err(|e| ("PACKET_VNET_HDR", e))?;
            self.set(libc::SOL_PACKET, libc::PACKET_RX_RING, &request)
                .map_err(|e| ("PACKET_RX_RING", e))?;
        }
        let bytes = NonZeroUsize::new(blocks * BLOCK_BYTES).expect("there are blocks");
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping, which nothing else knows.
        let base = unsafe { mmap(None, bytes, access, MapFlags::MAP_SHARED, &self.0, 0) };
        let base = base.map_err(|e| ("mapping the ring", e.into()))?.cast();
        Ok(Ring { base, blocks })
    }

    /// Has it receive by a device, of any protocol.
    ///
    /// # Errors
    /// What the kernel answered.
    pub fn bind(&self, device: u32) -> Result<(), Failed> {
        // SAFETY: all zeroes is a valid address.
        let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        address.sll_ifindex = device as i32;
        let bytes = size_of_val(&address) as libc::socklen_t;
        // SAFETY: the address outlives the call, with the size given.
        let result = unsafe { libc::bind(self.fd(), (&raw const address).cast(), bytes) };
        match result {
            0 => Ok(()),
            _ => Err(("binding a packet socket to the device", io::Error::last_os_error())),
        }
    }

    /// Packets that found no room since it was last asked.
    pub fn dropped(&self) -> io::Result<u64> {
        // SAFETY: all zeroes is a valid answer.
        let mut answer: libc::tpacket_stats_v3 = unsafe { mem::zeroed() };
        let mut bytes = size_of_val(&answer) as libc::socklen_t;
        // SAFETY: the answer outlives the call, with the size given.
        let result = unsafe {
            libc::getsockopt(
                self.fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut answer).cast(),
                &raw mut bytes,
            )
        };
        if result == 0 { Ok(answer.tp_drops.into()) } else { Err(io::Error::last_os_error()) }
    }

    pub fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// # Safety
    /// The option takes a value of this type.
    unsafe fn set<V>(&self, level: libc::c_int, name: libc::c_int, value: &V) -> io::Result<()> {
        // SAFETY: the caller vouches for it.
        unsafe { set(self.fd(), level, name, value) }
    }
}

/// # Safety
/// The option takes a value of this type, and what that points at lives through the call.
unsafe fn set<V>(fd: RawFd, level: libc::c_int, name: libc::c_int, value: &V) -> io::Result<()> {
    let bytes = size_of::<V>() as libc::socklen_t;
    // SAFETY: the value lives through the call; the caller vouches for its type.
    let result = unsafe { libc::setsockopt(fd, level, name, (&raw const *value).cast(), bytes) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Attaches a filter to any socket.
///
/// # Errors
/// What the kernel answered.
pub fn attach(socket: RawFd, program: &mut [sock_filter]) -> Result<(), Failed> {
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: this option takes such a program, whose instructions live through the call; the kernel checks and copies
    // them.
    let attached = unsafe { set(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program) };
    attached.map_err(|e| ("attaching a filter to the socket (SO_ATTACH_FILTER)", e))
}

/// The ring of a packet socket.
pub struct Ring {
    base: NonNull<u8>,
    blocks: usize,
}

// SAFETY: memory that belongs to nothing of the thread that mapped it.
unsafe impl Send for Ring {}

impl Ring {
    pub fn blocks(&self) -> usize {
        self.blocks
    }

    fn place(&self, block: usize) -> NonNull<u8> {
        assert!(block < self.blocks, "there is no such block");
        // SAFETY: within the mapping.
        unsafe { self.base.add(block * BLOCK_BYTES) }
    }

    fn status(&self, block: usize) -> &AtomicU32 {
        // SAFETY: within the block, aligned, mapped as long as this is, and written by nobody but by atomic stores, since
        // the kernel's are such.
        unsafe { self.place(block).add(STATUS).cast::<AtomicU32>().as_ref() }
    }

    /// A block, if it is ours.
    pub fn block(&self, block: usize) -> Option<&[u8]> {
        if self.status(block).load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
            return None;
        }
        // SAFETY: mapped as long as this is. While it is ours the kernel writes nothing of it, and we give it back with
        // `&mut self` alone.
        Some(unsafe { std::slice::from_raw_parts(self.place(block).as_ptr(), BLOCK_BYTES) })
    }

    /// Gives a block back to the kernel.
    pub fn give_back(&mut self, block: usize) {
        self.status(block).store(libc::TP_STATUS_KERNEL, Ordering::Release);
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: our own mapping, of which nothing is borrowed.
        let unmapped = unsafe { munmap(self.base.cast(), self.blocks * BLOCK_BYTES) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}
