//! Each design through the library against the same system calls in a bare loop, under the
//! same flood on the same machine.
//!
//! ```text
//! cargo bench -p weir-io --bench designs                     # 15 rounds of every pair
//! cargo bench -p weir-io --bench designs -- --quick          # 3 rounds, in less than 2 minutes
//! cargo bench -p weir-io --bench designs -- --design epoll   # the pairs of that design
//! cargo bench -p weir-io --bench designs -- rio              # those whose name contains "rio"
//! cargo bench -p weir-io --bench designs -- --by-name        # designs started by their names
//! ```
//!
//! Designs are started by their types, so that the compiler can inline the handler; with `--by-name` by their
//! names, as the `weir` command does it, where the handler is called through a pointer.
//!
//! Rounds are interleaved: in each, library and bare loop run one after the other, in an order
//! that alternates, and their ratio is taken within the round, since the machine changes speed
//! between rounds. Printed are medians: datagrams/s, CPU ns per datagram of the receiving
//! threads, the ratio of the rates, and its quartiles. What a design should reach is a ratio of
//! 0.97, `port-batch` one of 0.95.
//!
//! Left out are the forms of which the bare loop would be the design itself, since the hand-over is
//! what they are: `rio-reader`, `rio-hybrid-reader`, and all designs on several threads. Those on
//! io_uring have the window of buffers that the bare loop has (`--outstanding 1024`). Sockets have the system's receive
//! buffer on both sides, and not one for as many datagrams as are outstanding.
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
