//! The figures that Holgate published in 2011 and 2012, beside ours.
//!
//! One receiving machine and one generator on a 10 GbE cable, Windows, fixed-size datagrams.
//! Only ratios can be compared with another machine's: each published figure is divided by
//! the published figure of the traditional design (8 threads on a completion port) of the
//! same series.

use crate::experiment::ranking::{Place, Ranking};
use crate::report::columns::ratio;
use crate::stats::compare::Difference;
use crate::udp::results::Results;
use crate::udp::rows::threads_of;

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
    /// How many threads waited for datagrams, if published.
    pub threads: Option<u32>,
    /// Which of our designs do the same.
    pub ours: Ours,
}

/// What stands beside a published figure.
#[derive(Debug, Clone, PartialEq)]
pub struct Beside {
    /// Our row; `None` where none that does the same was ranked.
    pub row: Option<usize>,
    /// Its figure to that of our traditional row; `None` for that row itself, and where `why_not` says why.
    pub ratio: Option<Difference>,
    /// Why no ratio can stand beside the published one, if so.
    pub why_not: Option<String>,
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
    threads: Option<u32>,
    ours: Ours,
) -> Published {
    Published { test, received_per_s, link_percent, traditional_per_s, threads, ours }
}

/// Threads of the original wherever it had several: the hybrid had as many, of which two did the work.
const THREADS: Option<u32> = Some(8);

/// What the author himself says of the last figure and its ratio.
pub const CAUTION: &str = "* the last figure is that of a link used to 75 %, divided by the traditional design's at 50 \
                           % (which did no better with more): its author himself cautions that this ratio mixes loads.";

/// Every published figure. The headline is the last: 970 / 350 = 2.77 ([`CAUTION`]).
pub const PUBLISHED: &[Published] = &[
    figure("IOCP, 8 threads", 384_000.0, Some(33.0), 384_000.0, THREADS, Ours::Traditional),
    figure(
        "IOCP + GQCSEx, 8 threads",
        360_000.0,
        Some(31.0),
        384_000.0,
        THREADS,
        Ours::Design("port-batch"),
    ),
    figure(
        "RIO IOCP, 8 threads",
        492_000.0,
        Some(43.0),
        384_000.0,
        THREADS,
        Ours::Design("rio-port"),
    ),
    figure(
        "RIO hybrid, 8 threads",
        501_000.0,
        None,
        384_000.0,
        THREADS,
        Ours::Design("rio-hybrid"),
    ),
    figure("50 % link: IOCP", 350_000.0, Some(50.0), 350_000.0, None, Ours::Traditional),
    figure(
        "50 % link: simple RIO",
        450_000.0,
        Some(50.0),
        350_000.0,
        None,
        Ours::Design("rio-event"),
    ),
    figure("50 % link: best RIO", 920_000.0, Some(50.0), 350_000.0, None, Ours::AnyRegistered),
    figure("75 % link: best RIO *", 970_000.0, Some(75.0), 350_000.0, None, Ours::AnyRegistered),
];

impl Published {
    /// How many times the traditional design it was.
    pub fn ratio(&self) -> f64 {
        self.received_per_s / self.traditional_per_s
    }

    /// What of ours stands beside it: the best of the ranked rows that do the same, of those with as many
    /// threads if there are such. Its ratio to our traditional row does only where both had as many threads
    /// as there, and where the report itself gives a verdict.
    pub fn measured(&self, results: &Results, ranking: &Ranking) -> Beside {
        let traditional = results.measure();
        let places = ranking.places.iter().filter(|place| {
            let row = &results.rows[place.row];
            if row.peer.is_some() {
                return false;
            }
            match self.ours {
                Ours::Traditional => Some(place.row) == traditional,
                Ours::Design(name) => row.design == name && Some(place.row) != traditional,
                Ours::AnyRegistered => row.design.starts_with("rio-"),
            }
        });
        let places: Vec<&Place> = places.collect();
        let threads = |place: &Place| threads_of(&results.rows[place.row]);
        let as_many = |place: &&&Place| self.threads.is_none_or(|n| threads(place) == Some(n));
        let Some(place) = places.iter().find(as_many).or(places.first()) else {
            return Beside { row: None, ratio: None, why_not: Some("not measured".into()) };
        };
        let without =
            |why_not: String| Beside { row: Some(place.row), ratio: None, why_not: Some(why_not) };
        if ranking.is_too_noisy() {
            return without("too noisy to compare".into());
        }
        let here = threads(place);
        if let (Some(there), Some(here)) = (self.threads, here)
            && there != here
        {
            let noun = if here == 1 { "thread" } else { "threads" };
            return without(format!("{here} {noun} here, {there} there"));
        }
        match (self.ours, place.to_traditional) {
            (Ours::Traditional, _) => Beside { row: Some(place.row), ratio: None, why_not: None },
            (_, None) => without("the traditional design has no rank here".into()),
            (_, Some(Difference::TooFew(_))) => without("open".into()),
            (_, Some(difference)) => {
                Beside { row: Some(place.row), ratio: Some(difference), why_not: None }
            }
        }
    }
}

impl Beside {
    /// The ratio as the table shows it.
    pub fn text(&self) -> String {
        match (&self.ratio, &self.why_not) {
            (Some(difference), _) => ratio(difference, |ratio| ratio),
            (None, None) => "1.00".into(),
            (None, Some(_)) => "-".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::plan::Row;
    use crate::udp::report::fixture;

    #[test]
    fn the_headline_is_970_to_350() {
        assert!((PUBLISHED.last().unwrap().ratio() - 2.771).abs() < 0.001);
        assert!((PUBLISHED[3].ratio() - 1.305).abs() < 0.001);
    }

    const HYBRID: usize = 3;

    fn beside(results: &Results, figure: usize) -> Beside {
        PUBLISHED[figure].measured(results, &results.main_ranking(0))
    }

    #[test]
    fn eight_threads_do_not_stand_beside_one() {
        let mut results = fixture::results();
        let hybrid = beside(&results, HYBRID);
        assert_eq!(hybrid.text(), "-");
        assert_eq!(hybrid.why_not.as_deref(), Some("1 thread here, 8 there"));
        // The best stays the one with a single thread; the one with eight is the like of theirs.
        let eight = "rio-hybrid --provider uring --threads 8";
        results.rows[2] = Row::parse(eight).unwrap();
        let hybrid = beside(&results, HYBRID);
        assert_eq!((hybrid.row, hybrid.text().as_str()), (Some(2), "2.65"));
        results.rows[2] = Row::parse("rio-hybrid --provider uring").unwrap();
        assert_eq!(beside(&results, HYBRID).text(), "2.65", "eight is what it has by itself");
    }

    #[test]
    fn what_the_report_does_not_compare_has_no_ratio_here_either() {
        let best = PUBLISHED.len() - 1;
        assert_eq!(beside(&fixture::results(), best).text(), "2.66");
        let mut few = fixture::results();
        few.cells[0].iter_mut().for_each(|cell| cell.samples.truncate(3));
        let open = beside(&few, best);
        assert_eq!((open.text().as_str(), open.why_not.as_deref()), ("-", Some("open")));
        let mut noisy = fixture::results();
        for sample in &mut noisy.cells[0][4].samples {
            sample.received_per_s = sample.received_per_s.map(|rate| rate / 3.0);
        }
        for figure in [0, HYBRID, best] {
            let beside = beside(&noisy, figure);
            assert_eq!(beside.text(), "-");
            assert_eq!(beside.why_not.as_deref(), Some("too noisy to compare"));
        }
        let not_measured = beside(&noisy, 1);
        assert_eq!((not_measured.row, not_measured.text().as_str()), (None, "-"));
    }
}
