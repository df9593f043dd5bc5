//! The completion port on io_uring against a bare loop of the same kind, and against the shape of
//! the original, under the same flood on the same machine.
//!
//! ```text
//! cargo run --release -p weir-io --example port_bench            # 9 rounds
//! cargo run --release -p weir-io --example port_bench -- 3 best  # 3 rounds; names with "best"
//! ```
//!
//! Rounds are interleaved, each begins with another contender, and ratios are taken within the
//! round, since the machine changes speed between rounds. Printed are medians: datagrams/s, CPU ns
//! per datagram of the receiving threads, and the ratio of the rates to the bare loop's.

#[cfg(target_os = "linux")]
#[path = "../benches/designs/linux/flood.rs"]
#[allow(dead_code)]
mod flood;
#[cfg(target_os = "linux")]
#[path = "port_bench/linux.rs"]
mod linux;

fn main() {
    #[cfg(target_os = "linux")]
    linux::main();
    #[cfg(not(target_os = "linux"))]
    println!("skipped: the bare loop is written for Linux");
}
