//! What the generators need of the operating system besides sockets, one file per system.
//!
//! Every file supplies the same functions:
//!
//! - `monotonic_ns`: the machine's monotonic clock, the same for all processes;
//! - `thread_cpu_ns`: CPU time of the current thread, or `None`;
//! - `ask_for_precise_sleeps`: lets the current thread's sleeps end on time;
//! - `open_own_executable`: the file this process was started from;
//! - `host_id`: something that differs between machines and boots, or `None`;
//! - `clock_id`: the same of the clock that `monotonic_ns` reads;
//! - `give_way`: leaves cores to any other program that wants them, from now on, with all threads that are started;
//! - `give_memory_back`: returns memory that was freed to the system, as far as it keeps any;
//! - `limit_waits`, `send`: a send on a socket that waits for room for a limited time, if at all;
//! - `read_within`: a read of a connection that waits for a limited time;
//! - `READ_SLICE`: the longest that a read may wait in one go, where shutting a connection
//!   down does not end a read of it on another thread; `None` where it does;
//! - `others_can_read`: whether other users may read a file, as far as that is known;
//! - `NO_BUFFERS`: the error code for "no buffer space".
//!
//! Not guaranteed: that sleeping is precise, and that a clock step is finer than 1 µs.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(windows)]
mod windows;

#[cfg(target_os = "linux")]
pub(crate) use linux::*;
#[cfg(windows)]
pub(crate) use windows::*;
