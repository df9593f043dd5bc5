//! One suite over every device design: what a design must do before it may be timed.
//!
//! The rows come from the library's own table, so a new design is covered without a change here; some
//! stand there a second time with other options. A row that cannot run on this machine is reported as
//! ignored, with the reason. Set WEIR_REQUIRE to a list of names such as `device/ring`, separated by
//! commas, or to `all`, to make that a failure; what needs weir's own nothing device (`drivers/nothing`) is
//! required only where that is. Where that device is, every design is checked with it, too: checks that begin
//! with `nothing_`.
//!
//! A test's name is `check::design`; a part of it as an argument runs those that contain it:
//! `cargo test --test device_conformance -- ring`.
//!
//! Checks run one at a time, since each is followed by a count of the descriptors of the process: what
//! a check leaves open fails it.

#[cfg(target_os = "linux")]
#[path = "../suite/alone.rs"]
mod alone;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
#[path = "../suite/mod.rs"]
mod suite;

/// Runs the suite.
pub fn main() {
    #[cfg(target_os = "linux")]
    linux::main();
    #[cfg(not(target_os = "linux"))]
    println!("skipped: {}", weir::device::availability().expect_err("written for Linux only"));
}
