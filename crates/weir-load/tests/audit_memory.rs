//! What datagrams make a receiver allocate is bounded, and the system gets it back. Alone in its
//! process: another test's memory would be in the figures.

#![cfg(all(target_os = "linux", target_env = "gnu"))]

use std::{fs, thread};

use weir_load::{
    audit::{Audit, AuditSettings, BITMAP_BYTES_IN_ALL},
    stamp::Stamp,
};

/// Memory of this process in bytes.
fn resident_bytes() -> usize {
    let status = fs::read_to_string("/proc/self/status").expect("there is a /proc");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it has a line");
    let kib = line.trim().trim_end_matches(" kB");
    kib.parse::<usize>().expect("a number") * 1024
}

#[test]
fn what_datagrams_made_grow_shrinks_when_the_run_ends() {
    const RUNS: u32 = 6;
    const MIB: usize = 1 << 20;
    let audit = Audit::new();
    let before = resident_bytes();
    for run in 0..RUNS {
        audit.begin(AuditSettings::new(run, 32, 4, false)).expect("nothing else is open");
    }
    // Each datagram names numbers far from all others, as no generator does. Two threads, since the
    // allocator gives each memory of its own.
    let attacked = |threads: u64| {
        let mut auditor = audit.auditor();
        let mut datagram = [0; 32];
        for number in 0..40_000u64 {
            for run in 0..RUNS {
                let sequence = number << 20;
                Stamp { run, flow: (number % 4) as u16, sequence, proof: 0, due_ns: threads }
                    .write(&mut datagram);
                auditor.record(&datagram, || 0);
            }
        }
        auditor
    };
    let mut here = attacked(0);
    let mut there = thread::scope(|scope| scope.spawn(|| attacked(1)).join().expect("no panic"));
    assert_eq!(audit.bitmap_bytes(), BITMAP_BYTES_IN_ALL, "the bound is reached");
    let attacked = resident_bytes();
    assert!(attacked > before + 100 * MIB, "{before} bytes, then {attacked}");
    assert!(attacked < before + BITMAP_BYTES_IN_ALL + 64 * MIB, "{before} bytes, then {attacked}");
    for run in 0..RUNS {
        audit.end(run, None).expect("it is open");
    }
    let after = resident_bytes();
    assert!(after < before + 32 * MIB, "{before} bytes, {attacked} attacked, {after} at the end");
    for auditor in [&mut here, &mut there] {
        auditor.record(b"", || 0);
    }
    assert_eq!(audit.bitmap_bytes(), 0);
}
