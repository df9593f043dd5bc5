//! The figures that Holgate published in 2011 and 2012, beside ours.
//!
//! One receiving machine and one generator on a 10 GbE cable, Windows, fixed-size datagrams.
//! Only ratios can be compared with another machine's: each published figure is divided by
//! the published figure of the traditional design (8 threads on a completion port) of the
//! same series.

use crate::ranking::Ranking;
use crate::results::Results;
use crate::stats::Estimate;

/// A published figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Published {
    /// What was measured.
    pub test: &'static str,
    /// Datagrams per second.
    pub received_per_s: f64,
    /// Percent of the link that was used, if published.
    pub link_percent: Option<f64>,
    /// Datagrams per second of the traditional design of the same series.
    pub traditional_per_s: f64,
    /// Which of our designs do the same.
    pub ours: Ours,
}

/// Which of our rows stand beside a published figure: the best of them does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ours {
    /// The row marked as traditional.
    Traditional,
    /// The design of that name.
    Design(&'static str),
    /// Any design on registered I/O, which their names tell.
    AnyRegistered,
}

const fn figure(
    test: &'static str,
    received_per_s: f64,
    link_percent: Option<f64>,
    traditional_per_s: f64,
    ours: Ours,
) -> Published {
    Published { test, received_per_s, link_percent, traditional_per_s, ours }
}

/// Every published figure. The headline is the last: 970 / 350 = 2.77.
pub const PUBLISHED: &[Published] = &[
    figure("IOCP, 8 threads", 384_000.0, Some(33.0), 384_000.0, Ours::Traditional),
    figure(
        "IOCP + GQCSEx, 8 threads",
        360_000.0,
        Some(31.0),
        384_000.0,
        Ours::Design("port-batch"),
    ),
    figure("RIO IOCP, 8 threads", 492_000.0, Some(43.0), 384_000.0, Ours::Design("rio-port")),
    figure("RIO hybrid", 501_000.0, None, 384_000.0, Ours::Design("rio-hybrid")),
    figure("50 % link: IOCP", 350_000.0, Some(50.0), 350_000.0, Ours::Traditional),
    figure("50 % link: simple RIO", 450_000.0, Some(50.0), 350_000.0, Ours::Design("rio-event")),
    figure("50 % link: best RIO", 920_000.0, Some(50.0), 350_000.0, Ours::AnyRegistered),
    figure("75 % link: best RIO", 970_000.0, Some(75.0), 350_000.0, Ours::AnyRegistered),
];

impl Published {
    /// How many times the traditional design it was.
    pub fn ratio(&self) -> f64 {
        self.received_per_s / self.traditional_per_s
    }

    /// The best of our ranked rows that does the same, and its ratio to our traditional
    /// row: 1 for that row itself, `None` where it was not measured or not compared.
    pub fn measured(
        &self,
        results: &Results,
        ranking: &Ranking,
    ) -> Option<(usize, Option<Estimate>)> {
        let traditional = results.traditional();
        let place = ranking.places.iter().find(|place| {
            let row = &results.rows[place.row];
            if row.peer.is_some() {
                return false;
            }
            match self.ours {
                Ours::Traditional => Some(place.row) == traditional,
                Ours::Design(name) => row.design == name && Some(place.row) != traditional,
                Ours::AnyRegistered => row.design.starts_with("rio-"),
            }
        })?;
        let ratio = match self.ours {
            Ours::Traditional => Some(Estimate { median: 1.0, interval: None, samples: 0 }),
            _ => place.to_traditional.and_then(|difference| difference.ratio()),
        };
        Some((place.row, ratio))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_headline_is_970_to_350() {
        assert!((PUBLISHED.last().unwrap().ratio() - 2.771).abs() < 0.001);
        assert!((PUBLISHED[3].ratio() - 1.305).abs() < 0.001);
    }
}
