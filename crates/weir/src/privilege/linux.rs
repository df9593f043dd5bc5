//! Capabilities.
//!
//! Origin: capabilities(7), capget(2); linux/capability.h.

use std::io;

/// Numbers of linux/capability.h.
const CAPABILITIES: [u32; 6] = [12, 13, 14, 21, 38, 39];

/// What is given up: sockets that see frames, programs on devices, busy polling, memory locked beyond
/// the limit.
pub const NAMES: &[&str] =
    &["CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_IPC_LOCK", "CAP_SYS_ADMIN", "CAP_PERFMON", "CAP_BPF"];

/// `struct __user_cap_header_struct`.
#[repr(C)]
struct Header {
    version: u32,
    thread: i32,
}

/// `struct __user_cap_data_struct`: 32 capabilities.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Sets {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// _LINUX_CAPABILITY_VERSION_3: 64 capabilities, in two parts.
const VERSION: u32 = 0x2008_0522;

pub fn give_up() -> io::Result<()> {
    let mut header = Header { version: VERSION, thread: 0 }; // the calling one
    let mut sets = [Sets::default(); 2];
    // SAFETY: header and both parts outlive the call, which fills the parts in.
    let result = unsafe { libc::syscall(libc::SYS_capget, &raw mut header, sets.as_mut_ptr()) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    for capability in CAPABILITIES {
        // That a program started by us gets it again takes a capability to prevent, which we may lack.
        // SAFETY: takes plain numbers.
        unsafe { libc::prctl(libc::PR_CAPBSET_DROP, libc::c_ulong::from(capability)) };
        let part = &mut sets[capability as usize / 32];
        let others = !(1u32 << (capability % 32));
        part.effective &= others;
        part.permitted &= others;
        part.inheritable &= others;
    }
    // SAFETY: as above; the parts are read.
    let result = unsafe { libc::syscall(libc::SYS_capset, &raw mut header, sets.as_ptr()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A set of the calling thread.
    fn set(name: &str) -> u64 {
        let text = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        u64::from_str_radix(line.split_whitespace().nth(1).unwrap(), 16).unwrap()
    }

    #[test]
    fn what_was_given_up_is_gone_here_and_nowhere_else() {
        let before = set("CapEff:");
        let all: u64 = CAPABILITIES.iter().map(|capability| 1 << capability).sum();
        std::thread::spawn(move || {
            give_up().unwrap();
            for name in ["CapEff:", "CapPrm:", "CapInh:", "CapAmb:"] {
                assert_eq!(set(name) & all, 0, "{name}");
            }
            assert_eq!(set("CapEff:"), before & !all, "the others are kept");
            std::thread::spawn(move || assert_eq!(set("CapEff:") & all, 0)).join().unwrap();
            give_up().unwrap(); // again: there is nothing left to give up
        })
        .join()
        .unwrap();
        assert_eq!(set("CapEff:"), before);
        assert_eq!(NAMES.len(), CAPABILITIES.len());
    }
}
