//! Random numbers that can be had again, and seeds that differ.

pub use weir_load::random::Random;

/// A seed that differs from run to run: the time and the process, mixed.
pub fn fresh_seed() -> u64 {
    let since_epoch =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Random::seeded(since_epoch.as_nanos() as u64 ^ (u64::from(std::process::id()) << 32)).next_u64()
}
