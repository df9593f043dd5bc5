//! What each column and each metric means: a sentence each, for whoever asks.

use crate::report::Reported;
use crate::report::columns::{ABOUT_SPREAD, ABOUT_TO_BEST, MARKS};
use crate::studies::studies;

/// What a column or a metric means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Meaning {
    /// The kind of comparison that has it; empty where all have it.
    pub kind: &'static str,
    /// Its heading in tables.
    pub heading: String,
    /// Its name in the document; empty for what is no metric.
    pub name: &'static str,
    /// Its unit in the document.
    pub unit: &'static str,
    /// A sentence.
    pub about: String,
}

impl Meaning {
    /// Whether it is meant by these words: a heading, a name of the document, or a part of either.
    pub fn is_meant_by(&self, words: &str) -> bool {
        let plain = |text: &str| text.to_lowercase().replace([' ', '-', '_', '.'], "");
        let asked = plain(words);
        !asked.is_empty()
            && (plain(&self.heading).contains(&asked)
                || plain(self.name).contains(&asked)
                || self.tells_of(words))
    }

    /// Whether it is what limits rows, and tells what this word in its column means.
    fn tells_of(&self, word: &str) -> bool {
        let mut parts = self.about.split(['.', ';', '(', ')']).map(str::trim_start);
        self.name == LIMITED_BY
            && parts.any(|part| {
                part.split_once(": ").is_some_and(|(told, _)| told.eq_ignore_ascii_case(word))
            })
    }
}

/// The name in the document of what limited a row.
const LIMITED_BY: &str = "limited_by";

/// All of them: what all comparisons have, then the metrics of each.
pub fn meanings() -> Vec<Meaning> {
    macro_rules! own {
        ($study:ty) => {
            of_study::<$study>()
        };
    }
    common().into_iter().chain(studies!(own).into_iter().flatten()).collect()
}

/// The columns that all comparisons have.
fn common() -> Vec<Meaning> {
    let of = |heading: &str, about: String| Meaning {
        kind: "",
        heading: heading.into(),
        name: "",
        unit: "",
        about,
    };
    let marks = MARKS.iter().map(|(word, about)| of(word, (*about).into()));
    let common = vec![
        of(
            "# rank",
            "place among the rows that are compared with each other; rows that are tied share it"
                .into(),
        ),
        of("±", ABOUT_SPREAD.into()),
        of("× best (x best)", ABOUT_TO_BEST.into()),
        of("p50/p99 µs", "median and 99th percentile of the latency, in µs: each is the median over the rounds of each run's own percentile, in tables, reports and files alike. The table that decides, on the screen and in the report, has it under its own load: at saturation that is the latency of a full receive buffer; if no row has one under that load, it is taken from another load. The table of --details for UDP at saturation has it from the first paced load instead, and - if none was measured. The distribution of all runs together is latency_of_all_runs_ns (TCP: round_trip_of_all_runs_ns) of the document".into()),
        of("limit", "what kept a row from doing more: see limited by, for each kind".into()),
        of("× trad. (x trad)", "ratio to the traditional design, which is a completion port in the shape of the original study; from pairs of runs of one round".into()),
        of("provider", "the interface of the operating system that a design runs on: uring (io_uring), sockets, epoll, xdp (AF_XDP) and others; weir designs lists them".into()),
        of("drops dev/cpu/sock", "percent of what was sent that was dropped at the network device, at the queue of a CPU, and at the server's sockets; ? where the system does not tell, ~ where a count of the whole machine stands in".into()),
        of("~ tie", "a tie: the two differ by no more than the noise. Where drops are told, a count of the \
                     whole machine stands in".into()),
        of("? undecided", "too few comparable rounds, or too much noise, to tell; where drops are told, the system does not \
                           tell them".into()),
        of("noise floor", "how far one design, run under two names, appears to differ from itself; smaller differences count as ties".into()),
        of("core to core", "the time to transfer a cache line between the cores of server and generator; where it changes, the machine is in effect another one, and only runs at the same latency are compared".into()),
        of("sleeping and busy-polling designs", "sleeping designs wait in the kernel while there is nothing to do; busy-polling designs keep a core busy even then; they are ranked separately".into()),
        of("(original)", "the traditional design: a completion port with as many threads and receives as in the original study".into()),
        of("(again)", "a row under a second name, which shows the noise".into()),
        of("claim", "a result that a later run can be held against (weir reproduce): one row is better than another by \
                     some ratio, or cannot be told apart from it".into()),
        of("after/before", "weir diff: the ratio of a row's figure in the second result to that in the first, in brackets with \
                            its 95 % interval".into()),
        of("relative to all", "weir diff: a row's change relative to the change that all rows of its load have in common".into()),
        of("≥ lower bound", "something other than the server was the limit, so the server may do more".into()),
        of("disturbed", "a run that something other than the design spoilt, such as other programs on its cores: it is \
                         repeated once, and both are kept".into()),
    ];
    common.into_iter().chain(marks).collect()
}

fn of_study<K: Reported>() -> Vec<Meaning> {
    let limits = Meaning {
        kind: K::KIND,
        heading: "limited by".into(),
        name: LIMITED_BY,
        unit: "",
        about: K::LIMITS.into(),
    };
    let metrics = K::METRICS.iter().map(|metric| Meaning {
        kind: K::KIND,
        heading: metric.heading.trim_end().replace('\n', " "),
        name: metric.name,
        unit: metric.unit,
        about: metric.about.trim().to_owned(),
    });
    metrics.chain([limits]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(words: &str) -> Vec<Meaning> {
        meanings().into_iter().filter(|meaning| meaning.is_meant_by(words)).collect()
    }

    #[test]
    fn a_column_is_found_by_its_heading_and_by_its_name_in_the_document() {
        for words in ["CPU ns/dgram", "cpu_ns_per_datagram", "Cpu Ns Per Datagram"] {
            let found = asked(words);
            assert!(
                found.iter().any(|one| one.name == "cpu_ns_per_datagram"),
                "{words}: {found:?}"
            );
        }
        assert!(asked("× best")[0].about.contains("tie"));
        assert_eq!(asked("limited by").len(), 3);
        for (word, says) in [
            ("~", "a tie"),
            ("?", "too few comparable rounds"),
            ("both", "both: the generator"),
            ("INVALID", "INVALID: its data"),
            ("unknown", "unknown: none of these"),
            ("after/before", "second result"),
        ] {
            let found = asked(word);
            assert!(found.iter().any(|one| one.about.contains(says)), "{word}: {found:?}");
        }
        assert_eq!(asked("INVALID").len(), 2);
        assert!(asked("no such column").is_empty() && asked("").is_empty());
    }

    #[test]
    fn every_metric_says_what_it_means() {
        for meaning in meanings() {
            assert!(meaning.about.len() > 10, "{meaning:?}");
        }
    }
}
