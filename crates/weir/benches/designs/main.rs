//! Each design through the library against the same system calls in a bare loop, under the
//! same flood on the same machine.
//!
//! ```text
//! cargo bench -p weir --bench designs            # 15 rounds of every pair
//! cargo bench -p weir --bench designs -- epoll   # the pairs whose name contains "epoll"
//! ```
//!
//! Rounds are interleaved: in each, library and bare loop run one after the other, in an order
//! that alternates, and their ratio is taken within the round, since the machine changes speed
//! between rounds. Printed are medians: datagrams/s, CPU ns per datagram of the receiving
//! thread, the ratio of the rates, and its quartiles.

#[cfg(target_os = "linux")]
mod linux;

fn main() {
    #[cfg(target_os = "linux")]
    linux::main();
    #[cfg(not(target_os = "linux"))]
    println!("skipped: the bare loops are written for Linux");
}
