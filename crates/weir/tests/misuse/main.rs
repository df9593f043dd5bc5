//! What safe code can do wrong with the public contracts, on every provider that runs here: slices of other
//! regions, requests asked for time and again, queues that are used after their end, names that are out of
//! date. None of it may touch memory that is not its own, panic, or lose a slice: in the end each is in its
//! pool, or was leaked to a kernel that may still use it, and counted.
//!
//! AddressSanitizer runs these too (`.ci/run`): what is freed while somebody uses it shows there at once.
#![forbid(unsafe_code)]

mod datagrams;
mod namespace;
mod ports;
mod random;
#[cfg(target_os = "linux")] // what it is about has no provider elsewhere; so below
mod random_streams;
#[path = "../../src/required.rs"]
mod required;
mod stream_ports;
#[cfg(target_os = "linux")]
mod streams;
mod whole_provider;

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};
use weir::memory::{Layout, Region, RegionOptions, Slice};

/// Far longer than anything here takes: who waits so long has failed.
const PATIENCE: Duration = Duration::from_secs(60);

fn loopback() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

fn region(layout: Layout, slices: u32) -> Arc<Region> {
    Region::new(layout, slices, RegionOptions::default()).unwrap()
}

/// When a stop is to be over.
fn soon() -> Instant {
    Instant::now() + PATIENCE
}

/// Every slice is in the pool: nobody holds one, and none was lost.
#[track_caller]
fn assert_whole(region: &Arc<Region>) {
    let (in_pool, leaked) = (region.in_pool(), region.leaked());
    assert_eq!((in_pool, leaked), (region.count(), 0), "in the pool and leaked, of all");
    assert_eq!(Arc::strong_count(region), 1, "somebody still holds the region");
}

/// Every slice is in the pool, or counted as leaked.
#[track_caller]
fn assert_accounted(region: &Arc<Region>) {
    let (in_pool, leaked) = (region.in_pool(), region.leaked());
    assert_eq!(in_pool + leaked, region.count(), "{in_pool} in the pool, {leaked} leaked");
}

/// The slice is whole and nobody else's: writing to it is seen in it alone.
fn use_memory(slice: &mut Slice) {
    let value = (slice.index() as u8).wrapping_mul(31).wrapping_add(7);
    slice.payload_mut().fill(value);
    assert!(slice.payload().iter().all(|&byte| byte == value));
}
