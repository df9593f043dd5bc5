//! Tests of AF_XDP: they need a device, so each runs once more in a process with a network namespace of its
//! own, in which there are pairs of them.

use crate::{
    required::cannot_run,
    whole_provider::{Misuse, on_xdp},
};
use std::{env, net::SocketAddr, process::Command};

/// Says to the process that it is the one in the namespace.
const INSIDE: &str = "WEIR_MISUSE_INSIDE";

/// Our ends of the pairs.
const AT: [&str; 2] = ["10.77.0.1", "10.78.0.1"];

/// Makes the pairs, then runs what follows.
const SCRIPT: &str = "set -e
ip link set lo up
for n in 7 8; do
    ip link add weir$n type veth peer name peer$n
    ip address add 10.7$n.0.1/24 dev weir$n
    ip link set weir$n up
    ip link set peer$n up
done
exec \"$0\" \"$@\"";

/// Tries it on AF_XDP; `test` is the name of the test that calls this.
pub fn on_device(test: &str, misuse: &impl Misuse) {
    if env::var_os(INSIDE).is_some() {
        return on_xdp(misuse, AT.map(|at| SocketAddr::new(at.parse().unwrap(), 0)));
    }
    let alone = Command::new("unshare").args(["--net", "ip", "link", "show"]).output();
    let may = match alone {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Err(e) => Err(e.to_string()),
    };
    let why = "AF_XDP needs a device, and so a network namespace of its own";
    if cannot_run("xdp", may.map_err(|said| format!("{why}: {said}"))) {
        return;
    }
    let itself = env::current_exe().unwrap();
    let run = Command::new("unshare")
        .args(["--net", "sh", "-c", SCRIPT])
        .arg(itself)
        .args(["--exact", test, "--nocapture", "--test-threads", "1"])
        .env(INSIDE, "yes")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stderr) + String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "in the namespace: {}\n{said}", run.status);
    assert!(said.contains("1 passed"), "no test is named {test}:\n{said}");
    eprintln!("{said}");
}
