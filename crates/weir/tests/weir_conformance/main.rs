//! All three conformance suites as one program: for a machine to which a single file is easier to bring than three,
//! such as one with Windows (`xtask/windows-kit`).
//!
//! It runs the suites one after the other, each in a process of its own, since each counts and confines what its process
//! has, and passes them its arguments: a part of a name runs the tests of all suites that contain it, and `--list` names
//! them. It fails where one of them does. `WEIR_CONFORMANCE=udp` (or `tcp`, `device`) runs that one alone.

#[path = "../device_conformance/main.rs"]
mod device;
#[path = "../tcp_conformance/main.rs"]
mod tcp;
#[path = "../conformance/main.rs"]
mod udp;

use std::{
    env,
    process::{Command, exit},
};

/// Names the suite that a process is there for.
const SUITE: &str = "WEIR_CONFORMANCE";

const SUITES: [(&str, fn()); 3] =
    [("udp", udp::main), ("tcp", tcp::main), ("device", device::main)];

fn main() {
    if let Some(asked) = env::var_os(SUITE) {
        match SUITES.iter().find(|(name, _)| asked == *name) {
            Some((_, run)) => return run(),
            None => {
                let names = SUITES.map(|(name, _)| name).join(", ");
                eprintln!("{SUITE} is {}; there are {names}", asked.to_string_lossy());
                exit(2);
            }
        }
    }
    let own = env::current_exe().expect("this program has a path");
    let fails = |(name, _): &(&str, fn())| {
        println!("{name}:");
        let ended = Command::new(&own).args(env::args_os().skip(1)).env(SUITE, name).status();
        let ended = ended.unwrap_or_else(|e| panic!("this program cannot be started again: {e}"));
        if !ended.success() {
            println!("{name}: failed ({ended})");
        }
        !ended.success()
    };
    // All of them, whatever the first ones come to.
    let failed = SUITES.iter().filter(|suite| fails(suite)).count();
    exit(if failed == 0 { 0 } else { 101 });
}
