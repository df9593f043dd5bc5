//! Where one design overtakes another, in the model.

use super::{Copies, Design, Row};
use crate::report::number::{factor, si};
use crate::report::words::list;
use serde::{Deserialize, Serialize};

/// A design is called ahead of another if it receives so much more.
pub const AHEAD: f64 = 1.05;

/// What is asked of the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Question {
    /// From which load on `rio-hybrid` receives more than both `port` and `port-batch`.
    HybridOverPort,
    /// From which load on `rio-sharded` receives more than every other design.
    ShardingOverAll,
}

impl Question {
    const ALL: [Self; 2] = [Self::HybridOverPort, Self::ShardingOverAll];

    /// Who is to be ahead.
    fn design(self) -> Design {
        match self {
            Self::HybridOverPort => Design::RioHybrid,
            Self::ShardingOverAll => Design::RioSharded,
        }
    }

    fn is_against(self, design: &str) -> bool {
        match self {
            Self::HybridOverPort => {
                [Design::Port, Design::PortBatch].iter().any(|of| of.name() == design)
            }
            Self::ShardingOverAll => design != Design::RioSharded.name(),
        }
    }
}

/// Where a design overtakes others, on so many cores with so much shared work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Crossing {
    /// What is asked.
    pub question: Question,
    /// Who copies.
    pub copies: String,
    /// Cores.
    pub cores: usize,
    /// Work of each datagram on shared state.
    pub shared_work_ns: f64,
    /// The lowest load from which on, at every higher one, it is ahead; null if it is not even at the highest.
    pub from_per_s: Option<f64>,
    /// The lowest load.
    pub lowest_per_s: f64,
    /// The highest load.
    pub highest_per_s: f64,
    /// How many times as many datagrams as the best of the others it receives at that load.
    pub ratio_at_highest: f64,
}

/// The crossings in rows; none where the designs asked about are not among them.
pub fn crossings(rows: &[Row]) -> Vec<Crossing> {
    let mut all = vec![];
    for question in Question::ALL {
        for group in groups(rows) {
            all.extend(crossing(question, &group));
        }
    }
    all
}

/// Rows alike but for load and design.
fn groups(rows: &[Row]) -> Vec<Vec<&Row>> {
    let mut groups: Vec<Vec<&Row>> = vec![];
    for row in rows {
        let alike = |group: &&mut Vec<&Row>| {
            let first = group[0];
            (&first.copies, first.cores, first.shared_work_ns)
                == (&row.copies, row.cores, row.shared_work_ns)
        };
        match groups.iter_mut().find(alike) {
            Some(group) => group.push(row),
            None => groups.push(vec![row]),
        }
    }
    groups
}

fn crossing(question: Question, group: &[&Row]) -> Option<Crossing> {
    let first = group.first()?;
    let mut loads: Vec<f64> = group.iter().map(|row| row.offered_per_s).collect();
    loads.sort_by(f64::total_cmp);
    loads.dedup();
    let ratio = |load: f64| {
        let at = || group.iter().filter(move |row| row.offered_per_s == load);
        let own = at().find(|row| row.design == question.design().name())?.received_per_s;
        let others = at().filter(|row| question.is_against(&row.design));
        let best = others.map(|row| row.received_per_s).reduce(f64::max)?;
        Some(own / best.max(1.0))
    };
    let ratios: Vec<(f64, f64)> =
        loads.iter().filter_map(|&load| Some((load, ratio(load)?))).collect();
    let &(lowest_per_s, _) = ratios.first()?;
    let &(highest_per_s, ratio_at_highest) = ratios.last()?;
    let ahead = ratios.iter().rev().take_while(|(_, ratio)| *ratio >= AHEAD).last();
    Some(Crossing {
        question,
        copies: first.copies.clone(),
        cores: first.cores,
        shared_work_ns: first.shared_work_ns,
        from_per_s: ahead.map(|(load, _)| *load),
        lowest_per_s,
        highest_per_s,
        ratio_at_highest,
    })
}

/// What the crossings say, the most important first: a sentence for each question, copies and work.
pub fn answers(crossings: &[Crossing]) -> Vec<String> {
    let mut said: Vec<(Question, String, f64)> = vec![];
    let mut sentences = vec![];
    for crossing in crossings {
        let key = (crossing.question, crossing.copies.clone(), crossing.shared_work_ns);
        if said.contains(&key) {
            continue;
        }
        let alike: Vec<&Crossing> = crossings
            .iter()
            .filter(|of| (of.question, &of.copies, of.shared_work_ns) == (key.0, &key.1, key.2))
            .collect();
        sentences.push(answer(&alike));
        said.push(key);
    }
    sentences
}

fn answer(alike: &[&Crossing]) -> String {
    let Crossing { question, copies, shared_work_ns, highest_per_s, lowest_per_s, .. } = alike[0];
    let (design, others) = match question {
        Question::HybridOverPort => ("rio-hybrid", "port and port-batch"),
        Question::ShardingOverAll => ("rio-sharded", "every other design"),
    };
    let copying = match copies.as_str() {
        name if name == Copies::Thread.name() => "the thread that dequeues copies",
        _ => "the network stack copies",
    };
    let work = match *shared_work_ns {
        0.0 => "without shared work".to_owned(),
        ns => format!("with {ns:.0} ns of shared work"),
    };
    let has_one_load = lowest_per_s == highest_per_s;
    let highest = si(*highest_per_s);
    let ratio = |crossing: &Crossing| {
        let times = factor(crossing.ratio_at_highest);
        format!("{times} times as many at {highest}/s")
    };
    let cores = |number: usize| format!("{number} core{}", if number == 1 { "" } else { "s" });
    let ahead = |crossing: &&&Crossing| {
        let from = crossing.from_per_s?;
        let from = match from {
            _ if has_one_load => String::new(),
            from if from == *lowest_per_s => "at every load, ".into(),
            from if from == *highest_per_s => String::new(),
            from => format!("from {}/s on, ", si(from)),
        };
        Some(format!("on {} ({from}{})", cores(crossing.cores), ratio(crossing)))
    };
    let ahead: Vec<String> = alike.iter().filter_map(|of| ahead(&of)).collect();
    let behind = alike.iter().filter(|crossing| crossing.from_per_s.is_none());
    let behind: Vec<String> =
        behind.map(|of| format!("on {} ({})", cores(of.cores), ratio(of))).collect();
    let at = if has_one_load { format!("at {highest}/s") } else { "at the highest load".into() };
    let mut said = vec![];
    if !ahead.is_empty() {
        said.push(format!("{design} receives more than {others} {}", list(&ahead)));
    }
    if !behind.is_empty() {
        let subject = if ahead.is_empty() { design } else { "it" };
        said.push(format!("{subject} does not receive more than {others} {at} {}", list(&behind)));
    }
    format!("Where {copying}, {work}: {}.", said.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::{Course, costs::ROUND, simulate};

    fn rows(received: &[(Design, [f64; 3])]) -> Vec<Row> {
        let one = simulate(&Course { datagrams: 1000, ..Course::default() }, &ROUND);
        let rows = received.iter().flat_map(|(design, received)| {
            let row = |(load, received): (f64, f64)| Row {
                design: design.name().into(),
                offered_per_s: load,
                received_per_s: received,
                ..one.clone()
            };
            [1e5, 1e6, 1e7].into_iter().zip(*received).map(row).collect::<Vec<_>>()
        });
        rows.collect()
    }

    #[test]
    fn a_crossing_is_the_load_from_which_on_a_design_stays_ahead() {
        let rows = rows(&[
            (Design::RioHybrid, [1e5, 9e5, 3e6]),
            (Design::Port, [1e5, 2e5, 2e5]),
            (Design::PortBatch, [0.9e5, 8e5, 2e6]),
            (Design::RioSharded, [1.2e5, 9e5, 3.1e6]),
        ]);
        let crossings = crossings(&rows);
        let [hybrid, sharded] = &crossings[..] else { panic!("{crossings:?}") };
        assert_eq!((hybrid.from_per_s, hybrid.ratio_at_highest), (Some(1e6), 1.5));
        // Ahead at first, alike later: at the highest load it is not 5 % more.
        assert_eq!(sharded.from_per_s, None);
        let sentences = answers(&crossings);
        assert_eq!(
            sentences,
            [
                "Where the thread that dequeues copies, without shared work: rio-hybrid receives more than port and \
                 port-batch on 1 core (from 1 M/s on, 1.50 times as many at 10 M/s).",
                "Where the thread that dequeues copies, without shared work: rio-sharded does not receive more than every \
                 other design at the highest load on 1 core (1.03 times as many at 10 M/s).",
            ]
        );
    }

    #[test]
    fn of_one_load_it_is_not_said_from_which_on() {
        let all = rows(&[
            (Design::RioHybrid, [1e5, 9e5, 3e6]),
            (Design::Port, [1e5, 2e5, 2e5]),
            (Design::RioSharded, [1e5, 9e5, 3e6]),
        ]);
        let one: Vec<Row> = all.iter().filter(|row| row.offered_per_s == 1e6).cloned().collect();
        let more = one.iter().map(|row| Row { cores: 2, received_per_s: 1e6, ..row.clone() });
        let both: Vec<Row> = one.iter().cloned().chain(more).collect();
        let start = "Where the thread that dequeues copies, without shared work: ";
        let sentences = answers(&crossings(&both));
        assert_eq!(
            sentences[0],
            format!(
                "{start}rio-hybrid receives more than port and port-batch on 1 core (4.50 times as many at 1 M/s); it does \
                 not receive more than port and port-batch at 1 M/s on 2 cores (1.00 times as many at 1 M/s)."
            )
        );
        // Ahead at the lowest load already.
        let ahead = answers(&crossings(&rows(&[
            (Design::RioHybrid, [2e5, 4e5, 8e5]),
            (Design::Port, [1e5, 2e5, 2e5]),
        ])));
        assert_eq!(
            ahead,
            [format!(
                "{start}rio-hybrid receives more than port and port-batch on 1 core (at every load, 4.00 times as many at \
                 10 M/s)."
            )]
        );
    }

    #[test]
    fn nothing_is_said_of_designs_that_are_not_there() {
        assert!(crossings(&rows(&[(Design::RioHybrid, [1e5, 1e6, 1e7])])).is_empty());
        assert!(crossings(&[]).is_empty());
    }
}
