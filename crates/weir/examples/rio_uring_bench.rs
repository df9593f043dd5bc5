//! The provider `uring` of registered I/O against a bare loop of the same kind and against plain
//! batched receives, under the same flood on the same machine.
//!
//! ```text
//! cargo run --release -p weir-io --example rio_uring_bench               # 9 rounds
//! cargo run --release -p weir-io --example rio_uring_bench -- 3 waiting  # 3 rounds; names with "waiting"
//! ```
//!
//! Rounds are interleaved, each begins with another contender, and ratios are taken within the
//! round, since the machine changes speed between rounds. Printed are medians: datagrams/s, CPU ns
//! per datagram of the receiving thread, datagrams per dequeue, entries into the kernel per 1000
//! datagrams, and the ratio of the rates to the bare loop's.

#[cfg(target_os = "linux")]
#[path = "../benches/designs/linux/bare/mod.rs"]
#[allow(dead_code)]
mod bare;
#[cfg(target_os = "linux")]
#[path = "../benches/designs/linux/flood.rs"]
mod flood;
#[cfg(target_os = "linux")]
#[path = "rio_uring_bench/linux.rs"]
mod linux;
#[cfg(target_os = "linux")]
#[path = "../benches/timing/threads.rs"]
mod threads;

fn main() {
    #[cfg(target_os = "linux")]
    linux::main();
    #[cfg(not(target_os = "linux"))]
    println!("skipped: the bare loop is written for Linux");
}
