//! What each column and each metric means: a sentence each, for whoever asks.

use crate::device::results::Devices;
use crate::experiment::results::Study as _;
use crate::report::Told;
use crate::report::columns::Column;
use crate::tcp::results::Tcp;
use crate::udp::results::Udp;

/// What a column or a metric means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Meaning {
    /// The comparison that has it: udp, tcp or iops; empty where all have it.
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
            && (plain(&self.heading).contains(&asked) || plain(self.name).contains(&asked))
    }
}

/// All of them: what all comparisons have, then the metrics of each.
pub fn meanings() -> Vec<Meaning> {
    let own = [of_study::<Udp>(), of_study::<Tcp>(), of_study::<Devices>()];
    common().into_iter().chain(own.into_iter().flatten()).collect()
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
    let metric = &Udp::METRICS[0];
    vec![
        of(
            "# rank",
            "place among the rows that are compared with each other; rows that are tied share it"
                .into(),
        ),
        of("±", Column::<Udp>::spread(metric).about),
        of("× best", Column::<Udp>::to_best().about),
    ]
}

fn of_study<K: Told>() -> Vec<Meaning> {
    let limits = Meaning {
        kind: K::KIND,
        heading: "limited by".into(),
        name: "limited_by",
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
        assert!(asked("no such column").is_empty() && asked("").is_empty());
    }

    #[test]
    fn every_metric_says_what_it_means() {
        for meaning in meanings() {
            assert!(meaning.about.len() > 10, "{meaning:?}");
        }
    }
}
