//! Each design of TCP through the library against the same system calls in a bare loop, under the same
//! client on the same machine.
//!
//! ```text
//! cargo bench -p weir-io --bench tcp                     # 15 rounds of every pair, some 6 minutes
//! cargo bench -p weir-io --bench tcp -- --quick          # 3 rounds
//! cargo bench -p weir-io --bench tcp -- --design epoll   # the pairs of that design
//! cargo bench -p weir-io --bench tcp -- port             # those whose name contains "port"
//! cargo bench -p weir-io --bench tcp -- --by-name        # designs started by their names
//! ```
//!
//! Designs are started by their types, so that the compiler can inline the handler; with `--by-name` by their
//! names, as the `weir` command does it, where the handler is called through a pointer.
//!
//! Both sides echo on one core, for one client on another: a bare loop too, with 64 connections, which
//! sends on each as many bytes as came back on it; so with one message under way it is ping-pong, with
//! several a pipeline. Before they are timed, both must have echoed a stream byte for byte, to the end
//! of a half-close. Rounds are interleaved: in each, library and bare loop run one after the other, in
//! an order that alternates, and their ratios are taken within the round, since the machine changes speed
//! between rounds. Printed are medians: messages/s, CPU ns per message of the server's threads, and the
//! ratios of both with their quartiles, each so that 1 is as good as bare. Where the client is the slower
//! side the ratio of the rates says little, that of the CPU times all the same. What a design should reach
//! is 0.97.
//!
//! `cargo test` runs each side of each pair once, for a moment, and says nothing of speed.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
#[path = "../timing/mod.rs"]
mod timing;

fn main() {
    #[cfg(target_os = "linux")]
    linux::main();
    #[cfg(not(target_os = "linux"))]
    println!("skipped: the bare loops are written for Linux");
}
