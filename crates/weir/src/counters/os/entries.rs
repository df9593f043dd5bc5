//! Entries into the kernel, counted by the kernel: every system call of this process, whoever makes it, also those
//! that no counter of a program's own sees, as locks and condition variables make them when they wait (futex).
//!
//! A program of BPF at the raw tracepoint `sys_enter` adds one for each call of this process, but for the threads that
//! are left out. While it is there every system call of the machine takes a longer way (some 100 ns), so what is
//! timed is not counted like this, and what is counted is not timed.
//!
//! Origin: bpf(2), BPF_PROG_TYPE_RAW_TRACEPOINT, Linux 4.17; bpf_get_ns_current_pid_tgid, Linux 5.7.

use super::ThreadId;
use crate::{
    Unavailable,
    bpf::{Assembler, Counts, Instruction, RawTracepoint, Threads, code},
};
use std::{io, os::unix::fs::MetadataExt};

/// Threads that may be left out.
const MOST_LEFT_OUT: u32 = 64;

/// Calls by which it proves that it counts.
const PROOF: u64 = 16;

/// Counts entries into the kernel from when it is made until it is dropped.
#[derive(Debug)]
pub struct KernelEntries {
    counts: Counts<1>,
    left_out: Threads,
    _attached: RawTracepoint,
}

impl KernelEntries {
    /// Begins to count, and proves that by some calls.
    ///
    /// # Errors
    /// Why that cannot be counted here.
    pub fn begin() -> Result<Self, Unavailable> {
        let unavailable = |what: &str, error: io::Error| {
            Unavailable::new("counting entries into the kernel", format!("{what}: {error}"))
                .advise("it needs root, or CAP_BPF and CAP_PERFMON, and Linux 5.7 or later")
        };
        let counts = Counts::new().map_err(|e| unavailable("a map of counts", e))?;
        let left_out =
            Threads::new(MOST_LEFT_OUT).map_err(|e| unavailable("a map of threads", e))?;
        let namespace = std::fs::metadata("/proc/self/ns/pid")
            .map_err(|e| unavailable("reading /proc/self/ns/pid", e))?;
        let program = program(counts.fd(), left_out.fd(), (namespace.dev(), namespace.ino()));
        let attached = RawTracepoint::attach("sys_enter", &program)
            .map_err(|e| unavailable("a program at sys_enter", e))?;
        let entries = Self { counts, left_out, _attached: attached };
        let before = entries.read().map_err(|e| unavailable("reading", e))?;
        for _ in 0..PROOF {
            // SAFETY: takes nothing.
            unsafe { libc::syscall(libc::SYS_getppid) };
        }
        let counted = entries.read().map_err(|e| unavailable("reading", e))? - before;
        if counted < PROOF {
            let few = io::Error::other(format!("{counted} of {PROOF} calls were seen"));
            return Err(unavailable("trying it", few));
        }
        Ok(entries)
    }

    /// Leaves the calling thread out from now on: one that looks on and does not serve.
    ///
    /// # Errors
    /// What the kernel answered.
    pub fn leave_me_out(&self) -> io::Result<()> {
        // SAFETY: takes nothing.
        self.left_out.add(unsafe { libc::gettid() } as u32)
    }

    /// Leaves all threads of the process out, from now on, that run now and are none of these.
    ///
    /// # Errors
    /// What the kernel answered.
    pub fn leave_out_all_but(&self, these: &[ThreadId]) -> io::Result<()> {
        for entry in std::fs::read_dir("/proc/self/task")? {
            let Some(thread) = entry?.file_name().to_str().and_then(|name| name.parse().ok())
            else {
                continue;
            };
            if !these.iter().any(|one| one.number() == u64::from(thread)) {
                self.left_out.add(thread)?;
            }
        }
        Ok(())
    }

    /// Calls of this process since it began, those of threads that are left out aside.
    ///
    /// # Errors
    /// What the kernel answered.
    pub fn read(&self) -> io::Result<u64> {
        self.counts.read().map(|[count]| count)
    }
}

/// Where the program goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Label {
    Done,
}

/// Registers: what a helper answers, and its arguments; the frame.
const R0: u8 = 0;
const R1: u8 = 1;
const R2: u8 = 2;
const R3: u8 = 3;
const R4: u8 = 4;
const FRAME: u8 = 10;

/// Helpers of the kernel.
const MAP_LOOKUP: i32 = 1;
const GET_NS_CURRENT_PID_TGID: i32 = 120;

/// In the frame: thread and process as this namespace counts them, `struct bpf_pidns_info`; a key.
const THREAD: i16 = -8;
const PROCESS: i16 = -4;
const KEY: i16 = -16;

fn program(counts: i32, left_out: i32, (device, inode): (u64, u64)) -> Vec<Instruction> {
    let mut program = Assembler::new();
    program.load_number(R1, device);
    program.load_number(R2, inode);
    program.push(code::MOVE_REGISTER, R3, FRAME, 0, 0);
    program.push(code::ADD, R3, 0, 0, THREAD.into());
    program.push(code::MOVE, R4, 0, 0, 8);
    program.push(code::CALL, 0, 0, 0, GET_NS_CURRENT_PID_TGID);
    program.jump(code::JUMP_IF_NOT_EQUAL, R0, 0, 0, Label::Done); // of another namespace
    program.push(code::LOAD_U32, R1, FRAME, PROCESS, 0);
    let process = std::process::id() as i32;
    program.jump(code::JUMP_IF_NOT_EQUAL_U32, R1, 0, process, Label::Done);
    program.load_map(R1, left_out);
    program.push(code::MOVE_REGISTER, R2, FRAME, 0, 0);
    program.push(code::ADD, R2, 0, 0, THREAD.into());
    program.push(code::CALL, 0, 0, 0, MAP_LOOKUP);
    program.jump(code::JUMP_IF_NOT_EQUAL, R0, 0, 0, Label::Done);
    program.push(code::STORE_U32_VALUE, FRAME, 0, KEY, 0);
    program.load_map(R1, counts);
    program.push(code::MOVE_REGISTER, R2, FRAME, 0, 0);
    program.push(code::ADD, R2, 0, 0, KEY.into());
    program.push(code::CALL, 0, 0, 0, MAP_LOOKUP);
    program.jump(code::JUMP_IF_EQUAL, R0, 0, 0, Label::Done);
    program.push(code::LOAD_U64, R1, R0, 0, 0);
    program.push(code::ADD, R1, 0, 0, 1);
    program.push(code::STORE_U64, R0, R1, 0, 0);
    program.label(Label::Done);
    program.push(code::MOVE, R0, 0, 0, 0);
    program.push(code::EXIT, 0, 0, 0, 0);
    program.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::required::cannot_run;
    use std::sync::{Arc, Condvar, Mutex, mpsc};

    /// `None` where it is not permitted.
    fn begun() -> Option<KernelEntries> {
        match KernelEntries::begin() {
            Ok(entries) => Some(entries),
            Err(why) => {
                cannot_run("kernel-entries", Err::<(), _>(why));
                None
            }
        }
    }

    /// Other tests of this process make calls, too: so what is counted of one thread is a lower bound, and what
    /// is not counted of it is seen in a process of its own (`tests/kernel_entries.rs`).
    #[test]
    fn waits_for_other_threads_are_counted() {
        const TURNS: u64 = 200;
        let Some(entries) = begun() else { return };
        let before = entries.read().unwrap();
        let turn = Arc::new((Mutex::new(0u64), Condvar::new()));
        let (other, (done, is_done)) = (Arc::clone(&turn), mpsc::channel());
        // Each waits for the other, so every turn is a wait or a wake in the kernel.
        let play = move |turn: &(Mutex<u64>, Condvar), mine: u64| {
            let (count, changed) = turn;
            for _ in 0..TURNS {
                let count = count.lock().unwrap();
                let mut count = changed.wait_while(count, |count| *count % 2 != mine).unwrap();
                *count += 1;
                changed.notify_one();
            }
        };
        std::thread::spawn(move || {
            play(&other, 1);
            done.send(()).unwrap();
        });
        play(&turn, 0);
        is_done.recv().unwrap();
        let counted = entries.read().unwrap() - before;
        assert!(counted >= TURNS, "{counted} calls for {TURNS} turns of two threads");
    }
}
