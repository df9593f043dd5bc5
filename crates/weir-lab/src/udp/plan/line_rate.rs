//! A load as a share of a link: how many datagrams a second an Ethernet link can carry.
//!
//! A frame takes more of the link than its payload: see [`wire_bytes`]. So the same share of a link is many small
//! datagrams or few large ones.

use std::fmt;

use weir_load::pacing::{self, rate};

/// A share of a link of a known speed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LinkShare {
    /// Of what the link carries, above 0 and at most 1.
    pub share: f64,
    /// The speed of the link in bits per second.
    pub bits_per_s: u64,
}

impl LinkShare {
    /// Datagrams with so many bytes of payload that make this share of the link, per second.
    pub fn per_second(self, payload_bytes: u32) -> u64 {
        let bits_per_s = self.bits_per_s as f64;
        let load = pacing::Load::from_link(self.share, bits_per_s, payload_bytes as usize, false);
        load.datagrams_per_s().map_or(1, |rate| (rate.round() as u64).max(1))
    }
}

/// What a link needs for one datagram, over IPv4 as comparisons send them, in bytes' worth of its time.
pub fn wire_bytes(payload_bytes: u32) -> u64 {
    rate::wire_bytes(payload_bytes as usize, false) as u64
}

/// The speed of a link in bits per second, as people write it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Speed(pub u64);

impl fmt::Display for Speed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(1_000_000_000, "Gbit/s"), (1_000_000, "Mbit/s"), (1000, "kbit/s")];
        match units.into_iter().find(|(unit, _)| self.0 >= *unit) {
            // Such as 2.5: no more decimals than it has.
            Some((unit, name)) => write!(f, "{} {name}", self.0 as f64 / unit as f64),
            None => write!(f, "{} bit/s", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_rate_is_what_the_textbooks_say() {
        let whole = |bits_per_s| LinkShare { share: 1.0, bits_per_s };
        // The shortest frames on 10 Gbit/s and on 1 Gbit/s: 14.88 and 1.488 million a second.
        assert_eq!(whole(10_000_000_000).per_second(18), 14_880_952);
        assert_eq!(whole(1_000_000_000).per_second(18), 1_488_095);
        // The longest on 1 Gbit/s.
        assert_eq!(whole(1_000_000_000).per_second(1472), 81_274);
        let half = LinkShare { share: 0.5, bits_per_s: 10_000_000_000 };
        assert_eq!(half.per_second(1024), 573_394);
        let little = LinkShare { share: 0.01, bits_per_s: 1000 };
        assert_eq!(little.per_second(65_507), 1, "never none");
    }

    #[test]
    fn speeds_are_written_in_their_unit() {
        let of = |bits: u64| Speed(bits).to_string();
        assert_eq!(of(10_000_000_000), "10 Gbit/s");
        assert_eq!(of(2_500_000_000), "2.5 Gbit/s");
        assert_eq!(of(100_000_000), "100 Mbit/s");
        assert_eq!((of(64_000), of(7)), ("64 kbit/s".into(), "7 bit/s".into()));
    }
}
