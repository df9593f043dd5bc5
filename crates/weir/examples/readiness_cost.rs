//! What a wait for readiness costs by the number of connections that are open: µs from the call until
//! the ones that are ready are known, for each mechanism, where one is ready and where 64 are.
//!
//! Both ends of each connection are here and everything runs on one thread: nothing sleeps, no message
//! travels while a wait is timed. What waiting for something to happen costs is not in it.
//!
//! ```text
//! cargo run --release -p weir-io --example readiness_cost
//! ```

#[cfg(target_os = "linux")]
#[path = "readiness_cost/linux.rs"]
mod native;

#[cfg(target_os = "linux")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    native::main()
}

#[cfg(not(target_os = "linux"))]
fn main() {
    println!("there are no streams on this OS yet");
}
