//! Programs of Redis' own as clients.

mod common;

use common::{testing::required::cannot_run, usual};
use std::{
    io::Write,
    process::{Command, Stdio},
};

/// What a program prints, with these lines to read.
fn output(program: &str, arguments: &[&str], port: u16, input: &str) -> Option<String> {
    let child = Command::new(program)
        .args(["-h", "127.0.0.1", "-p", &port.to_string()])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut child) = child else {
        let why = format!("there is no {program} here: install Debian's redis-tools");
        cannot_run("redis", Err::<(), _>(why));
        return None;
    };
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{program}: {}", output.status);
    Some(String::from_utf8(output.stdout).unwrap())
}

#[test]
fn redis_cli_talks_to_it_in_both_versions_of_the_protocol() {
    let served = usual();
    let port = served.address().port();
    let lines = "SET greeting \"hello world\"\nGET greeting\nINCR n\nMGET greeting x\nTTL n\nCONFIG GET maxclients\nBOGUS\n";
    let Some(two) = output("redis-cli", &["-2"], port, lines) else { return };
    let expected = "OK\nhello world\n1\nhello world\n\n-1\nmaxclients\n10000\n";
    assert_eq!(
        two.replace("\n\n", "\n"),
        expected.replace("\n\n", "\n").to_owned()
            + "ERR unknown command 'BOGUS', with args beginning with: \n"
    );
    let three = output("redis-cli", &["-3"], port, lines).unwrap();
    assert!(three.starts_with("OK\nhello world\n2\n"), "{three}");
    let info = output("redis-cli", &["INFO"], port, "").unwrap();
    assert!(info.contains("keyspace_hits:"), "{info}");
    served.end();
}

#[test]
fn redis_benchmark_runs_on_it() {
    let served = usual();
    let port = served.address().port();
    let arguments =
        ["-t", "ping,set,get,incr,mset", "-n", "2000", "-c", "20", "-P", "8", "-r", "100", "--csv"];
    let Some(table) = output("redis-benchmark", &arguments, port, "") else { return };
    for test in ["PING_INLINE", "PING_MBULK", "SET", "GET", "INCR", "MSET (10 keys)"] {
        assert!(table.contains(&format!("\"{test}\",")), "{test} is missing: {table}");
    }
    // Each was carried out: 2000 of each of six, at least.
    let commands = served.cache.shared().commands.load(std::sync::atomic::Ordering::Relaxed);
    assert!(commands >= 12_000, "{commands}");
    served.end();
}
