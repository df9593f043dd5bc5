//! The system call bpf(2), as far as it is needed: programs that see the frames of a device (XDP), the
//! maps they use, the link that attaches one to a device, and running one over frames made up; and programs
//! at a raw tracepoint of the kernel.
//!
//! Programs are assembled here, instruction by instruction, so that neither a C compiler nor a file of
//! types of the kernel (BTF) is needed.
//!
//! A link, unlike a program that is set on a device, belongs to the process: when its descriptor is
//! closed, for whatever reason, the kernel detaches the program.
//!
//! All of it needs CAP_BPF and CAP_NET_ADMIN (before Linux 5.8 CAP_SYS_ADMIN) when it is made; nothing
//! of it once it is there (Linux 5.19).
//!
//! | file | what |
//! | --- | --- |
//! | `assembler` | instructions, and jumps to labels |
//! | `maps` | what programs and this process share: sockets, counts, memory |
//!
//! Origin: bpf(2), `union bpf_attr` of linux/bpf.h; links, Linux 5.9; live frames, Linux 5.18.

mod assembler;
mod maps;

pub use assembler::{Assembler, Instruction, code};
pub use maps::{Counts, SharedMemory, SocketMap, Threads};

use std::{
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
};

/// Commands of bpf(2).
const PROGRAM_LOAD: libc::c_long = 5;
const PROGRAM_TEST_RUN: libc::c_long = 10;
const RAW_TRACEPOINT_OPEN: libc::c_long = 17;
const LINK_CREATE: libc::c_long = 28;

/// BPF_F_TEST_XDP_LIVE_FRAMES: what the program says of a frame is done with it.
const LIVE_FRAMES: u32 = 1 << 1;

/// BPF_PROG_TYPE_XDP.
const XDP: u32 = 6;
/// BPF_PROG_TYPE_RAW_TRACEPOINT.
const RAW_TRACEPOINT: u32 = 17;
/// BPF_XDP, where a link attaches.
const AT_DEVICE: u32 = 37;

/// Where in the path of a frame the program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In the driver (XDP_FLAGS_DRV_MODE).
    Native,
    /// In the kernel, after it made a buffer of its own for the frame (XDP_FLAGS_SKB_MODE).
    Generic,
}

/// Calls bpf(2) with attributes that are 64-bit words.
///
/// # Safety
/// The words are what the command takes, and what they point at lives through the call.
unsafe fn call(command: libc::c_long, attributes: &mut [u64]) -> io::Result<i32> {
    // SAFETY: the attributes outlive the call, with the size given; the caller vouches for the rest.
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, command, attributes.as_mut_ptr(), size_of_val(attributes))
    };
    if result >= 0 { Ok(result as i32) } else { Err(io::Error::last_os_error()) }
}

/// # Safety
/// As for `call`, and the command answers a descriptor.
unsafe fn call_for_descriptor(
    command: libc::c_long,
    attributes: &mut [u64],
) -> io::Result<OwnedFd> {
    // SAFETY: the caller vouches for it.
    let fd = unsafe { call(command, attributes) }?;
    // SAFETY: a new descriptor, which nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Two 32-bit attributes in the order of memory.
fn pair(first: u32, second: u32) -> u64 {
    let ([a, b, c, d], [e, f, g, h]) = (first.to_ne_bytes(), second.to_ne_bytes());
    u64::from_ne_bytes([a, b, c, d, e, f, g, h])
}

/// A program that the kernel has checked and taken.
#[derive(Debug)]
pub struct Program(OwnedFd);

impl Program {
    /// Has the kernel check a program, and take it.
    ///
    /// # Errors
    /// What the kernel answered, with what its checker wrote, if anything.
    pub fn load(instructions: &[Instruction]) -> io::Result<Self> {
        Self::load_as(XDP, AT_DEVICE, *b"weir_xdp", instructions)
    }

    fn load_as(
        kind: u32,
        attached_as: u32,
        name: [u8; 8],
        instructions: &[Instruction],
    ) -> io::Result<Self> {
        const LICENCE: &[u8] = b"Dual MIT/GPL\0";
        let load = |log: &mut [u8]| {
            let level = u32::from(!log.is_empty());
            let log_at = if log.is_empty() { 0 } else { log.as_mut_ptr() as u64 };
            // prog_type, insn_cnt; insns; license; log_level, log_size; log_buf; kern_version,
            // prog_flags; name (16 bytes); device; expected_attach_type.
            let mut attributes = [
                pair(kind, instructions.len() as u32),
                instructions.as_ptr() as u64,
                LICENCE.as_ptr() as u64,
                pair(level, log.len() as u32),
                log_at,
                0,
                u64::from_ne_bytes(name),
                0,
                pair(0, attached_as),
            ];
            // SAFETY: as PROG_LOAD takes them; instructions, licence and log outlive the call.
            unsafe { call_for_descriptor(PROGRAM_LOAD, &mut attributes) }
        };
        load(&mut []).map(Self).map_err(|error| {
            let mut log = vec![0; 1 << 16];
            let Err(again) = load(&mut log) else { return error };
            let text = String::from_utf8_lossy(&log);
            match text.trim_end_matches('\0').lines().last() {
                Some(why) => io::Error::new(again.kind(), format!("{again} ({why})")),
                None => again,
            }
        })
    }

    /// Runs it over a frame as if that had arrived on queue 0 of no device, and returns its answer
    /// (XDP_PASS is 2, XDP_REDIRECT is 4). Nothing is done with the frame.
    ///
    /// # Errors
    /// What the kernel answered.
    pub fn run(&self, frame: &[u8]) -> io::Result<u32> {
        // prog_fd, retval; data_size_in, data_size_out; data_in; data_out; repeat, duration.
        let mut attributes = [
            pair(self.0.as_raw_fd() as u32, 0),
            pair(frame.len() as u32, 0),
            frame.as_ptr() as u64,
            0,
            pair(1, 0),
        ];
        // SAFETY: as PROG_TEST_RUN takes them; the frame outlives the call.
        unsafe { call(PROGRAM_TEST_RUN, &mut attributes) }?;
        let [.., a, b, c, d] = attributes[0].to_ne_bytes();
        Ok(u32::from_ne_bytes([a, b, c, d]))
    }

    /// Runs it over a frame that is this one each time, so often, as if it had arrived by the
    /// loopback device of the calling thread's network: and does with it what the program says, so
    /// that one that redirects to a device sends. The frames go in runs of `together` (at most 256)
    /// during which nothing else interrupts this core; the calling thread's CPU time is charged.
    ///
    /// What became of a frame after the program is not told.
    ///
    /// # Errors
    /// What the kernel answered: EINVAL before Linux 5.18, or where the frame is longer than a page
    /// holds with what is kept beside it. With EINTR, too, a part of the frames has gone.
    pub fn send(&self, frame: &[u8], times: u32, together: u32) -> io::Result<()> {
        // prog_fd, retval; data_size_in, data_size_out; data_in; data_out; repeat, duration;
        // ctx_size_in, ctx_size_out; ctx_in; ctx_out; flags, cpu; batch_size.
        let mut attributes = [
            pair(self.0.as_raw_fd() as u32, 0),
            pair(frame.len() as u32, 0),
            frame.as_ptr() as u64,
            0,
            pair(times, 0),
            0,
            0,
            0,
            pair(LIVE_FRAMES, 0),
            pair(together, 0),
        ];
        // SAFETY: as PROG_TEST_RUN takes them; the frame outlives the call.
        unsafe { call(PROGRAM_TEST_RUN, &mut attributes) }.map(drop)
    }

    /// Attaches it to a device, by its number, for as long as the link is kept.
    ///
    /// # Errors
    /// What the kernel answered: EBUSY where another program is attached.
    pub fn attach(&self, device: u32, place: Place) -> io::Result<Link> {
        let flags = match place {
            Place::Native => 1 << 2,
            Place::Generic => 1 << 1,
        };
        // prog_fd, target_ifindex; attach_type, flags.
        let mut attributes = [pair(self.0.as_raw_fd() as u32, device), pair(AT_DEVICE, flags)];
        // SAFETY: as LINK_CREATE takes them; they point at nothing.
        unsafe { call_for_descriptor(LINK_CREATE, &mut attributes) }.map(Link)
    }
}

/// A program at a raw tracepoint, for as long as this is kept.
#[derive(Debug)]
#[expect(dead_code, reason = "it is kept, and closed in the end")]
pub struct RawTracepoint(OwnedFd);

impl RawTracepoint {
    /// Has the kernel run a program at this place.
    ///
    /// # Errors
    /// What the kernel answered, with what its checker wrote, if anything.
    pub fn attach(place: &str, instructions: &[Instruction]) -> io::Result<Self> {
        let program = Program::load_as(RAW_TRACEPOINT, 0, *b"weir_raw", instructions)?;
        let name = std::ffi::CString::new(place)?;
        // name; prog_fd.
        let mut attributes = [name.as_ptr() as u64, pair(program.0.as_raw_fd() as u32, 0)];
        // SAFETY: as RAW_TRACEPOINT_OPEN takes them; the name outlives the call.
        unsafe { call_for_descriptor(RAW_TRACEPOINT_OPEN, &mut attributes) }.map(Self)
    }
}

/// What keeps a program attached to a device.
#[derive(Debug)]
#[expect(dead_code, reason = "it is kept, and closed in the end")]
pub struct Link(OwnedFd);
