//! The kernel's memory for a ring of known size. Alone in its process, since other rings of the same
//! process would be seen, too.
#![cfg(target_os = "linux")]

#[path = "../src/required.rs"]
mod required;

use io_uring::IoUring;
use required::cannot_run;
use std::io;
use weir::counters::os::KernelMemory;

#[test]
fn a_ring_is_seen_to_the_byte_and_gone_with_it() {
    let before = KernelMemory::now();
    assert!(before.page_table_bytes > Some(0) && before.ring_bytes == Some(0), "{before:?}");
    assert!(before.slab_bytes > Some(1 << 20) && before.stack_bytes > Some(0), "{before:?}");
    let ring: io::Result<IoUring> = IoUring::builder().setup_cqsize(16_384).build(64);
    if cannot_run("uring", ring.as_ref().map_err(|e| format!("io_uring_setup: {e}"))) {
        return;
    }
    let grown = KernelMemory::now().ring_bytes;
    // 16 bytes for each completion, 64 for each submission, and less than two pages of heads.
    let least = 16 * 16_384 + 64 * 64;
    assert!(grown >= Some(least) && grown <= Some(least + 8192), "{grown:?}");
    drop(ring);
    assert_eq!(KernelMemory::now().ring_bytes, Some(0));
}
