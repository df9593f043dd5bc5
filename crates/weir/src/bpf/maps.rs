//! Maps: what programs and this process share.

use super::{call, call_for_descriptor, pair};
use nix::{
    errno::Errno,
    sys::mman::{MapFlags, ProtFlags, mmap, munmap},
};
use std::{
    fs, io,
    num::NonZeroUsize,
    os::fd::{AsRawFd, OwnedFd, RawFd},
    ptr::NonNull,
    sync::atomic::AtomicU64,
};

/// Commands of bpf(2).
const MAP_CREATE: libc::c_long = 0;
const MAP_LOOKUP: libc::c_long = 1;
const MAP_UPDATE: libc::c_long = 2;
const MAP_DELETE: libc::c_long = 3;

/// BPF_MAP_TYPE_XSKMAP.
const SOCKETS: u32 = 17;
/// BPF_MAP_TYPE_ARRAY.
const ARRAY: u32 = 2;
/// BPF_MAP_TYPE_PERCPU_ARRAY.
const ARRAY_FOR_EACH_CORE: u32 = 6;
/// BPF_MAP_TYPE_HASH.
const HASH: u32 = 1;
/// BPF_F_MMAPABLE.
const CAN_BE_MAPPED: u32 = 1 << 10;

/// Makes a map with room for so many values of so many bytes, whose keys have four.
fn make(kind: u32, value_bytes: u32, entries: u32, flags: u32) -> io::Result<OwnedFd> {
    // map_type, key_size; value_size, max_entries; map_flags.
    let mut attributes = [pair(kind, 4), pair(value_bytes, entries), pair(flags, 0)];
    // SAFETY: as MAP_CREATE takes them; they point at nothing.
    unsafe { call_for_descriptor(MAP_CREATE, &mut attributes) }
}

/// Puts a value of four bytes into a map of such.
fn put(map: &OwnedFd, key: u32, value: u32) -> io::Result<()> {
    let (key, value) = (&raw const key as u64, &raw const value as u64);
    // map_fd; key; value; no flags.
    let mut attributes = [pair(map.as_raw_fd() as u32, 0), key, value, 0];
    // SAFETY: key and value are four bytes each, as the map was made, and outlive the call.
    unsafe { call(MAP_UPDATE, &mut attributes) }.map(drop)
}

/// A map from the number of a queue to the socket that has it.
#[derive(Debug)]
pub struct SocketMap(OwnedFd);

impl SocketMap {
    /// A map with room for so many queues.
    ///
    /// # Errors
    /// What the kernel answered.
    pub fn new(queues: u32) -> io::Result<Self> {
        make(SOCKETS, 4, queues, 0).map(Self)
    }

    /// Its descriptor, for a program.
    pub fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Puts the socket of a queue in.
    ///
    /// # Errors
    /// What the kernel answered.
    pub fn set(&self, queue: u32, socket: RawFd) -> io::Result<()> {
        put(&self.0, queue, socket as u32)
    }

    /// Takes a queue's socket out. That there is none is as well.
    pub fn clear(&self, queue: u32) {
        let mut attributes = [pair(self.fd() as u32, 0), &raw const queue as u64, 0, 0];
        // SAFETY: the key is four bytes, as the map was made, and outlives the call.
        let _ = unsafe { call(MAP_DELETE, &mut attributes) };
    }
}

/// A set of threads, by their numbers.
#[derive(Debug)]
pub struct Threads(OwnedFd);

impl Threads {
    /// An empty set with room for so many.
    ///
    /// # Errors
    /// What the kernel answered.
    pub fn new(most: u32) -> io::Result<Self> {
        make(HASH, 4, most, 0).map(Self)
    }

    /// Its descriptor, for a program.
    pub fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Puts a thread in.
    ///
    /// # Errors
    /// What the kernel answered: E2BIG where there is no more room.
    pub fn add(&self, thread: u32) -> io::Result<()> {
        put(&self.0, thread, 1)
    }
}

/// Counts that a program keeps, for each core its own: the program looks entry 0 up and finds `N` words.
#[derive(Debug)]
pub struct Counts<const N: usize> {
    map: OwnedFd,
    cores: usize,
}

impl<const N: usize> Counts<N> {
    /// All zero.
    ///
    /// # Errors
    /// What the kernel answered, or if it cannot be found out how many cores there may be.
    pub fn new() -> io::Result<Self> {
        let cores = possible_cores()?;
        Ok(Self { map: make(ARRAY_FOR_EACH_CORE, N as u32 * 8, 1, 0)?, cores })
    }

    /// Its descriptor, for a program.
    pub fn fd(&self) -> RawFd {
        self.map.as_raw_fd()
    }

    /// The sums over all cores.
    ///
    /// # Errors
    /// What the kernel answered.
    pub fn read(&self) -> io::Result<[u64; N]> {
        let mut all = vec![[0u64; N]; self.cores];
        let key = 0u32;
        let mut attributes =
            [pair(self.fd() as u32, 0), &raw const key as u64, all.as_mut_ptr() as u64, 0];
        // SAFETY: the key is four bytes and there is a value for each core that may ever be, as
        // the kernel writes them; both outlive the call.
        unsafe { call(MAP_LOOKUP, &mut attributes) }?;
        Ok(std::array::from_fn(|n| all.iter().fold(0, |sum, of| u64::wrapping_add(sum, of[n]))))
    }
}

/// How many cores the kernel keeps values for: also those that are not there yet.
fn possible_cores() -> io::Result<usize> {
    let path = "/sys/devices/system/cpu/possible";
    let text = fs::read_to_string(path)?;
    let last = text.trim().rsplit([',', '-']).next().and_then(|number| number.parse().ok());
    last.map(|last: usize| last + 1).ok_or_else(|| {
        io::Error::other(format!("{path} says {text:?}, which is not a list of cores"))
    })
}

/// Memory that a program reads and writes, and this process too: an array of one value, mapped.
#[derive(Debug)]
pub struct SharedMemory {
    map: OwnedFd,
    words: NonNull<AtomicU64>,
    count: usize,
}

// SAFETY: the words are atomic, and stay until whoever owns this drops it.
unsafe impl Send for SharedMemory {}

impl SharedMemory {
    /// So many words of 64 bits, all zero.
    ///
    /// # Errors
    /// What the kernel answered (Linux 5.5).
    pub fn new(count: usize) -> io::Result<Self> {
        let bytes = count * size_of::<u64>();
        let map = make(ARRAY, bytes as u32, 1, CAN_BE_MAPPED)?;
        let length = NonZeroUsize::new(bytes).ok_or(Errno::EINVAL)?;
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a mapping at an address of the kernel's choice touches nothing of ours.
        let words = unsafe { mmap(None, length, access, MapFlags::MAP_SHARED, &map, 0) }?.cast();
        Ok(Self { map, words, count })
    }

    /// Its descriptor, for a program.
    pub fn fd(&self) -> RawFd {
        self.map.as_raw_fd()
    }

    /// The words. A program on another core sees a store after a later call into the kernel.
    #[inline]
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: mapped with this length, page-aligned, and kept as long as the borrow.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr(), self.count) }
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: mapped with this length; nothing borrows it any more.
        let _ = unsafe { munmap(self.words.cast(), self.count * size_of::<u64>()) };
    }
}
