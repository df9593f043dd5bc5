//! What was consented to, held against what arrives.

use std::time::Duration;

use crate::lease::LEASE_NS;

/// What is tolerated beyond a rate all the time: clocks differ, and a quantum is whole.
const TOLERANCE: f64 = 1.05;

/// What may come at once: so long a time's worth. A server without a core takes afterwards what lay in its sockets
/// meanwhile, and a generator goes on for as long as its lease holds,
const BURST: Duration = Duration::from_nanos(LEASE_NS + 1_000_000_000);

/// and so many datagrams: several generators' quanta.
const BURST_DATAGRAMS: f64 = 1024.0;

/// What has arrived of a run and its warm-up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Arrived {
    /// Datagrams.
    pub datagrams: u64,
    /// Bytes of payload.
    pub bytes: u64,
}

/// The rates that were consented to, and how much of them was used: a bucket for datagrams and
/// one for bytes.
#[derive(Debug)]
pub(super) struct Consented {
    datagrams: Option<Bucket>,
    bytes: Option<Bucket>,
}

impl Consented {
    /// From now on. No rate, no limit.
    pub(super) fn new(
        datagrams_per_s: Option<f64>,
        size_bytes: usize,
        bits_per_s: Option<f64>,
        now_ns: u64,
    ) -> Self {
        // An empty datagram has its cost, too.
        let size = size_bytes.max(1) as f64;
        let by_rate = datagrams_per_s.map(|rate| rate * size);
        let bytes_per_s =
            by_rate.into_iter().chain(bits_per_s.map(|bits| bits / 8.0)).reduce(f64::min);
        Self {
            datagrams: datagrams_per_s.map(|rate| Bucket::new(rate, BURST_DATAGRAMS, now_ns)),
            bytes: bytes_per_s.map(|rate| Bucket::new(rate, BURST_DATAGRAMS * size, now_ns)),
        }
    }

    /// Takes what has arrived by now; says what was exceeded, if anything was.
    pub(super) fn exceeded(&mut self, arrived: Arrived, now_ns: u64) -> Option<String> {
        let of = |bucket: &mut Option<Bucket>, count, what| {
            let bucket = bucket.as_mut()?;
            bucket.overflows(count, now_ns).then(|| {
                format!(
                    "more {what} arrived than was consented to: {:.0} a second, {:.0} at once",
                    bucket.per_s, bucket.deep
                )
            })
        };
        let datagrams = of(&mut self.datagrams, arrived.datagrams, "datagrams");
        datagrams.or_else(|| of(&mut self.bytes, arrived.bytes, "bytes of payload"))
    }
}

#[derive(Debug)]
struct Bucket {
    per_s: f64,
    deep: f64,
    level: f64,
    count: u64,
    at_ns: u64,
}

impl Bucket {
    fn new(per_s: f64, least: f64, at_ns: u64) -> Self {
        let deep = per_s * BURST.as_secs_f64() + least;
        Self { per_s, deep, level: 0.0, count: 0, at_ns }
    }

    fn overflows(&mut self, count: u64, now_ns: u64) -> bool {
        let passed_s = now_ns.saturating_sub(self.at_ns) as f64 / 1e9;
        let drained = (self.level - passed_s * self.per_s * TOLERANCE).max(0.0);
        self.level = drained + count.saturating_sub(self.count) as f64;
        (self.count, self.at_ns) = (count, now_ns);
        self.level > self.deep
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    /// Whether a rate is exceeded at any of the looks: (time in ms, datagrams by then).
    fn exceeds(rate: f64, looks: &[(u64, u64)]) -> bool {
        let mut consented = Consented::new(Some(rate), 100, None, 0);
        looks.iter().any(|(ms, datagrams)| {
            let arrived = Arrived { datagrams: *datagrams, bytes: datagrams * 100 };
            consented.exceeded(arrived, ms * 1_000_000).is_some()
        })
    }

    #[test]
    fn what_was_consented_to_may_come_in_bursts_and_late() {
        let steady: Vec<_> = (0..1000).map(|look| (look * 100, look * 10_000)).collect();
        assert!(!exceeds(100_000.0, &steady));
        // Nothing is taken for as long as a lease holds, and then all of it.
        let lease_ms = LEASE_NS / 1_000_000;
        let stalled = [(0, 0), (100, 10_000), (200, 20_000)]
            .into_iter()
            .chain((0..100).map(|look| (200 + lease_ms + look * 100, 220_000 + look * 10_000)));
        assert!(!exceeds(100_000.0, &stalled.collect::<Vec<_>>()));
        assert!(!exceeds(1.0, &[(0, 1000)]), "a quantum of each of many");
    }

    #[test]
    fn twice_as_much_is_found_within_four_seconds() {
        let double: Vec<_> = (0..40).map(|look| (look * 100, look * 20_000)).collect();
        assert!(exceeds(100_000.0, &double));
        assert!(exceeds(1.0, &[(0, 0), (100, 2000)]));
        let idle_first = [(0, 0), (60_000, 0), (60_100, 6_000_000)];
        assert!(exceeds(100_000.0, &idle_first), "silence earns no more than a burst");
    }

    #[test]
    fn bytes_are_limited_by_rate_and_size_and_by_bits() {
        let one = |consented: &mut Consented, bytes| {
            consented.exceeded(Arrived { datagrams: 1, bytes }, S)
        };
        let mut small = Consented::new(Some(10.0), 100, None, 0);
        assert!(one(&mut small, 60_000).is_none());
        assert!(
            one(&mut small, 60_000 + 65_507 * 10).expect("larger than asked").contains("bytes")
        );
        let mut bits = Consented::new(None, 100, Some(8e6), 0);
        assert!(one(&mut bits, 1_000_000).is_none());
        assert!(one(&mut bits, 4_000_000).is_some());
        let mut any = Consented::new(None, 100, None, 0);
        assert!(one(&mut any, u64::MAX).is_none());
    }
}
