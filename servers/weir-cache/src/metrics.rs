//! Metrics of the cache.

use crate::{Shared, store::Counts};
use std::sync::atomic::Ordering::Relaxed;
use weir_program::metrics::Page;

/// Writes all of them.
pub fn write(page: &mut Page, shared: &Shared) {
    let Counts { keys, expiring, bytes, hits, misses, expired, evicted } = shared.store.counts();
    let most_bytes = shared.settings.memory_bytes;
    for (name, help, value) in [
        ("clients", "Clients that are connected.", shared.clients.load(Relaxed) as usize),
        ("keys", "Keys in the cache.", keys),
        ("expiring_keys", "Keys that expire.", expiring),
        ("memory_bytes", "Bytes of keys and values, by estimate.", bytes),
        ("memory_bytes_max", "Bytes that keys and values may take.", most_bytes),
        ("channels", "Channels with subscribers.", shared.channels.count()),
    ] {
        page.gauge(&format!("weir_cache_{name}"), help, value);
    }
    let too_slow = shared.channels.too_slow.load(Relaxed);
    for (name, help, count) in [
        ("commands", "Commands carried out.", shared.commands.load(Relaxed)),
        ("hits", "Reads that found their key.", hits),
        ("misses", "Reads that did not.", misses),
        ("expired", "Keys that have expired.", expired),
        ("evicted", "Keys that were evicted.", evicted),
        ("slow_subscribers", "Subscribers closed because they read too slowly.", too_slow),
    ] {
        page.counter(&format!("weir_cache_{name}_total"), help, count);
    }
}
