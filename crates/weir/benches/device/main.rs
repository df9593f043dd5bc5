//! Designs that read a device against a bare loop of read(2), and against one another, on /dev/null.
//!
//! ```text
//! cargo bench -p weir-io --bench device                 # 15 rounds
//! cargo bench -p weir-io --bench device -- --quick      # 3 rounds, some 15 s
//! cargo bench -p weir-io --bench device -- --by-name    # designs started by their names
//! cargo bench -p weir-io --bench device -- --zero       # on /dev/zero, where each read fills its memory
//! ```
//!
//! Designs are started by their types, so that the compiler can inline the handler; with `--by-name` by their
//! names, as the `weir` command does it, where the handler is called through a pointer.
//!
//! Rounds are interleaved: in each, every row runs once, in an order that turns from round to round, and
//! ratios are taken within the round, since the machine changes speed between rounds. Printed are medians
//! and quartiles, also of CPU time, which a busy machine disturbs less. What must be reached on a quiet machine:
//! sync 0.98 of the bare loop; ring-registered 1.1
//! of sync, at the best of three depths; no-op, 128 deep, 0.95 of a bare loop of no-ops, and 2.5 of sync;
//! ring-registered, 128 deep, 0.95 of a bare loop of the same reads.
//!
//! `cargo test` runs each row once, for a moment, and says nothing of speed.

#[cfg(target_os = "linux")]
mod linux;

fn main() {
    #[cfg(target_os = "linux")]
    linux::main();
    #[cfg(not(target_os = "linux"))]
    println!("skipped: devices are read on Linux only");
}
