//! What a comparison concludes: which design to use, by how much, how sure that is, why, what it costs, and where
//! it would change.
//!
//! It stands first on the screen and in the report. Its claims stand in the document as pairs of rows with a
//! verdict, so that a later run can be held against them.

use serde::{Deserialize, Serialize};

use crate::experiment::cell::{Better, Metric};
use crate::experiment::ranking::{Lead, Place, Ranking};
use crate::experiment::results::{Results, Study};
use crate::experiment::verdict::Limit;
use crate::report::Reported;
use crate::report::missed;
use crate::report::number::{percent, si};
use crate::report::sentences::{EXPLAINS, causes, is_worse, times, together, why_open};
use crate::report::words::{capital_first, list, lower_first, number_of, shortened};
use crate::stats::Estimate;
use crate::stats::compare::Difference;

/// Most loads besides the first of which the conclusion says who leads.
const MOST_OTHER_LOADS: usize = 3;

/// Most designs besides the winner that a sentence names which are tied with it; the table has them all.
const MOST_TIED_NAMED: usize = 2;

/// What a study counts, and what the first screen shows of it.
pub struct Unit<S: 'static> {
    /// Its name in a heading: UDP.
    pub title: &'static str,
    /// One of what is counted: datagram.
    pub one: &'static str,
    /// CPU time for one of them, in ns.
    pub cpu: &'static Metric<S>,
    /// Median and 99th percentile of the latency.
    pub latency: [&'static Metric<S>; 2],
    /// Figures that explain a difference, with what each counts.
    pub causes: &'static [(&'static Metric<S>, &'static str)],
    /// Figures that are shown while it runs.
    pub live: &'static [&'static Metric<S>],
    /// What measures more: the end of "other loads may rank designs differently; …".
    pub wider: &'static str,
}

/// What a comparison concludes.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Conclusion {
    /// What to use here, in a sentence.
    pub headline: String,
    /// By how much else, how sure, why, what it costs, where it would change: a sentence each, the most
    /// important first.
    pub sentences: Vec<String>,
    /// What was found of pairs of rows.
    pub claims: Vec<Claim>,
}

/// That one row is better than another, or as good.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Claim {
    /// In words.
    pub text: String,
    /// Where its evidence stands in the report.
    pub evidence: String,
    /// The load under which that is so, as it is named in tables.
    pub load: String,
    /// The metric, by its name in the document.
    pub metric: String,
    /// The better row, or one of two that are alike.
    pub first: String,
    /// The other.
    pub second: String,
    /// Whether they differ.
    pub verdict: Verdict,
    /// The first's figure to the second's: the median over pairs of runs, and the ends of its interval, which holds
    /// together with those of all pairs of its ranking at 95 % confidence.
    pub ratio: f64,
    /// The lower end.
    pub low: Option<f64>,
    /// The upper end.
    pub high: Option<f64>,
}

/// What was found of a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The first is better.
    Real,
    /// They are alike within the noise.
    Tie,
}

/// The rankings of the groups under each load.
type Rankings<K> = [Vec<(<K as Study>::Group, Ranking)>];

/// What these results conclude, of which these are all rankings. Without a load that compares rows there is no
/// conclusion but why.
pub fn conclusion<K: Reported>(results: &Results<K>, rankings: &Rankings<K>) -> Conclusion {
    let Some(load) = main_load(results) else {
        return Conclusion { headline: nothing(results), ..Conclusion::default() };
    };
    let mut all = Conclusion::default();
    let busy = results.busy_share();
    for index in 0..rankings[load].len() {
        let found = Found::among(results, load, &rankings[load], index, busy);
        let ranking = found.ranking;
        all.claims.extend(found.claims());
        if index == 0 {
            all.headline = found.verdict();
            all.sentences.extend(found.open());
            all.sentences.extend(found.bounded());
            all.sentences.extend(found.why());
            all.sentences.extend(found.cheaper());
            all.sentences.extend(found.sure());
        } else if ranking.winner().is_some() {
            all.sentences.push(found.verdict());
        }
    }
    let (said, claims) = other_loads(results, load, rankings, busy);
    all.sentences.extend(said);
    all.claims.extend(claims);
    all.sentences.extend(K::turning_points(results));
    if let Some((headline, sentences)) = K::conclusion(results) {
        (all.headline, all.sentences) = (headline, sentences);
    }
    if let Some(ended) = ended(results) {
        all.headline = format!("{ended}: {}", lower_first(&all.headline));
    }
    all.sentences.splice(0..0, missed::sentences(results));
    all
}

/// The load that decides, and that the first screen shows: the first that compares rows and has figures.
pub fn main_load<K: Reported>(results: &Results<K>) -> Option<usize> {
    let has_figures = |load: &usize| {
        let mut cells = results.cells[*load].iter();
        K::has_table(&results.loads[*load])
            && results.compares(*load)
            && cells.any(|cell| !cell.samples.is_empty())
    };
    (0..results.loads.len()).find(has_figures)
}

/// How far a comparison came that did not come to its end: in the load that was measured last.
fn ended<K: Reported>(results: &Results<K>) -> Option<String> {
    let begun = |load: &usize| results.schedules[*load].is_some();
    let load = (0..results.loads.len()).rev().find(begun).filter(|_| results.interrupted)?;
    let rounds = results.schedules[load]?.rounds as usize;
    let cells = &results.cells[load];
    let runs = results.passed().into_iter().filter(|row| {
        let is_left_out = cells[*row].skipped.is_some() && cells[*row].samples.is_empty();
        results.takes_part(load, *row) && !is_left_out
    });
    let made: usize =
        cells.iter().map(|cell| cell.standing().count() + cell.failed_runs as usize).sum();
    let of_load = match results.loads.len() {
        1 => String::new(),
        _ => format!(" of {}", results.loads[load]),
    };
    let what = if results.error.is_none() { "Interrupted" } else { "Ended by an error" };
    let all = number_of(rounds * runs.count(), "run");
    Some(format!("{what} after {made} of {all}{of_load}"))
}

/// Why there is no figure.
fn nothing<K: Reported>(results: &Results<K>) -> String {
    let reason = results.error.clone().or_else(|| {
        let loads = 0..results.loads.len();
        loads
            .flat_map(|load| (0..results.rows.len()).map(move |row| (load, row)))
            .find_map(|(load, row)| results.unranked(load, row))
    });
    match (results.interrupted, reason) {
        (true, _) => "Interrupted before anything was measured: no answer.".into(),
        (_, Some(reason)) => format!("No answer: nothing could be measured: {reason}."),
        (_, None) => "No answer: nothing was measured.".into(),
    }
}

/// A group of rows under one load, and how it is ranked.
struct Found<'a, K: Reported> {
    results: &'a Results<K>,
    load: usize,
    /// The group, where there are several; else all rows are meant.
    group: Option<K::Group>,
    ranking: &'a Ranking,
    /// The rows that are ranked here, where others are ranked apart.
    among: &'static str,
    /// The share of the cores that other programs had, if that was too much.
    busy: Option<f64>,
}

impl<'a, K: Reported> Found<'a, K> {
    /// One of the groups under a load.
    fn among(
        results: &'a Results<K>,
        load: usize,
        groups: &'a [(K::Group, Ranking)],
        index: usize,
        busy: Option<f64>,
    ) -> Self {
        let (group, ranking) = &groups[index];
        let group = (groups.len() > 1).then_some(*group);
        let among = group.map_or("", |group| K::beside(group).trim_start_matches(", "));
        Self { results, load, group, ranking, among, busy }
    }

    fn name(&self, row: usize) -> String {
        short_name(self.results, row)
    }

    fn names(&self, places: &[&Place]) -> Vec<String> {
        shortened(places.iter().map(|place| self.name(place.row)).collect())
    }

    /// The figure of a row by which it is ranked, with its unit.
    fn figure(&self, place: &Place) -> String {
        let metric = self.results.ranked_by(self.load);
        match metric.better {
            Better::Higher => {
                let rate = if metric.unit.ends_with("/s") { "/s" } else { "" };
                format!("{} {}s{rate}", si(place.median), K::one(&self.results.loads[self.load]))
            }
            Better::Lower => {
                let of = if metric.name.ends_with(".p99") { "99th percentile" } else { "median" };
                format!("a {of} latency of {} µs", (metric.text)(place.median))
            }
        }
    }

    fn of(&self, verdict: fn(&Place) -> bool) -> Vec<&Place> {
        self.ranking.places.iter().skip(1).filter(|place| verdict(place)).collect()
    }

    /// Which design to use, in a sentence.
    fn verdict(&self) -> String {
        match self.among {
            "" => self.decide(),
            among => format!("Among {among}, {}", lower_first(&self.decide())),
        }
    }

    fn decide(&self) -> String {
        let ranking = self.ranking;
        if ranking.is_too_noisy() {
            let busy = self
                .busy
                .map(|share| format!(" Other programs used {} of the CPU.", percent(share)));
            return format!(
                "No answer: the machine was too noisy: the same design, run under two names, gave results more \
                 than 100 % apart.{} `weir doctor` says what may disturb it.",
                busy.unwrap_or_default()
            );
        }
        let (Some(winner), Some(lead)) = (ranking.winner(), ranking.lead()) else {
            let reason = self.reason_for_most().map(|reason| format!(": {reason}"));
            return format!("No answer: no design could be ranked{}.", reason.unwrap_or_default());
        };
        let (name, figure) = (self.name(winner.row), self.figure(winner));
        let tied = self.of(Place::ties_with_winner);
        let unclear = self.of(Place::is_unclear);
        let behind = self.of(|place| matches!(place.winner_to_it, Some(Difference::Real(_))));
        let next = behind.first().and_then(|place| {
            let ratio = place.winner_to_it?.ratio()?;
            Some(format!("{} {}", self.ahead(&ratio), self.name(place.row)))
        });
        // A few rows that nothing can be said of yet do not take away what is known of the others.
        let is_known = !behind.is_empty() && unclear.len() < behind.len() + tied.len();
        let unranked = self.unranked();
        if lead == Lead::Only {
            return match (unranked, self.results.interrupted) {
                (0, _) => format!("Only {name} was compared: {figure}."),
                (_, false) => format!("Only {name} could be ranked: {figure}."),
                (_, true) => format!("No answer: only {name} was measured until then: {figure}."),
            };
        }
        if is_known {
            let next = next.map(|next| format!(", {next}")).unwrap_or_default();
            let others = match tied.len() {
                0 => String::new(),
                1..=MOST_TIED_NAMED => {
                    format!(" {} cannot be told apart from it.", list(&self.names(&tied)))
                }
                others => format!(" {others} other designs cannot be told apart from it."),
            };
            let open = match self.names(&unclear).as_slice() {
                [] => String::new(),
                [one] => format!(" {one} has too few rounds to be compared."),
                _ => format!(" {} designs have too few rounds to be compared.", unclear.len()),
            };
            return format!("Use {name}: {figure}{next}.{others}{open}");
        }
        if unclear.is_empty() {
            let floor = ranking
                .noise_floor
                .map_or_else(|| "unknown".into(), |floor| format!("of {}", percent(floor)));
            let count = tied.len() + 1;
            return format!(
                "No difference was found between {count} designs (noise floor {floor}); {name} has the best median, {figure}."
            );
        }
        let others = match self.names(&unclear).as_slice() {
            [other] => other.clone(),
            _ => format!("{} others", unclear.len()),
        };
        // Those without a rank may well have better figures: they are named in the table, and count for nothing.
        let of = match unranked > ranking.places.len() {
            true => format!(
                "of the {} designs that could be ranked ({unranked} could not), ",
                ranking.places.len()
            ),
            false => String::new(),
        };
        format!(
            "Undecided: {of}{name} has the best median ({figure}), but {others} cannot be ruled out."
        )
    }

    /// How many designs take part under this load, in this group where there are several, and have no rank. A second name
    /// is no design.
    fn unranked(&self) -> usize {
        let is_one = |row: &usize| {
            self.results.takes_part(self.load, *row)
                && self.results.first_of(*row).is_none()
                && self.group.is_none_or(|group| self.results.group_of(*row) == group)
        };
        let designs = (0..self.results.rows.len()).filter(is_one);
        designs.filter(|row| self.results.unranked(self.load, *row).is_some()).count()
    }

    /// Why it is undecided, if it is.
    fn open(&self) -> Option<String> {
        let is_open = !self.of(Place::is_unclear).is_empty();
        is_open.then(|| capital_first(&why_open(self.results, self.load, self.ranking)) + ".")
    }

    /// That the best could have done more, if so: then what is tied with it may differ from it all the same.
    fn bounded(&self) -> Option<String> {
        let winner = self.ranking.winner()?;
        let verdict = self.results.cells[self.load][winner.row].verdict()?;
        let counts = self.results.ranked_by(self.load).better == Better::Higher;
        let what = match verdict.limited_by {
            Limit::Others => "Other programs had the cores",
            _ => "The server was not the limit",
        };
        (counts && verdict.lower_bound).then(|| {
            format!("{what}: figures marked ≥ are lower bounds, and may hide differences.")
        })
    }

    /// "1.32 times (1.25 to 1.40) that of".
    fn ahead(&self, ratio: &Estimate) -> String {
        format!("{} that of", times(ratio))
    }

    /// What explains the winner's lead: the figures that speak for it, against the next one that is really behind. Where
    /// none does, the lead is over one further behind that it is explained for.
    fn why(&self) -> Option<String> {
        let winner = self.ranking.winner()?;
        let explains = |its, others, better| is_worse(others, its, better);
        let behind = self.of(|place| matches!(place.winner_to_it, Some(Difference::Real(_))));
        behind.into_iter().find_map(|other| {
            let rows = (winner.row, other.row);
            let said = causes(self.results, self.load, rows, K::UNIT.causes, explains);
            let what = || format!("Why, compared with {}: {}.", self.name(other.row), list(&said));
            (!said.is_empty()).then(what)
        })
    }

    /// The ranked row that takes the least CPU time, where that is not the winner.
    fn cheaper(&self) -> Option<String> {
        let winner = self.ranking.winner()?;
        let cpu = |row: usize| self.results.median(self.load, row, K::UNIT.cpu);
        let own = cpu(winner.row)?;
        let places = self.ranking.places.iter().filter(|place| place.row != winner.row);
        let (place, least) = places
            .filter_map(|place| Some((place, cpu(place.row)?)))
            .min_by(|(_, a), (_, b)| a.total_cmp(b))?;
        let one = K::one(&self.results.loads[self.load]);
        (least * EXPLAINS <= own).then(|| {
            format!(
                "{} uses {own:.0} ns of CPU time per {one}; {} uses the least, {least:.0} ns, at {}.",
                self.name(winner.row),
                self.name(place.row),
                self.figure(place)
            )
        })
    }

    /// How sure the ranking is.
    fn sure(&self) -> Option<String> {
        self.ranking.lead().filter(|_| self.of(Place::is_unclear).is_empty())?;
        let floor = self.ranking.noise_floor.filter(|_| self.ranking.comparisons > 0)?;
        Some(format!(
            "Based on {}, at 95 % confidence{}; differences below the noise floor of {} count as ties.",
            self.rounds(),
            together(self.ranking.comparisons),
            percent(floor)
        ))
    }

    /// The rounds in which rows are compared with the winner: where it is fewer than were made, of how many.
    fn rounds(&self) -> String {
        let made = self.results.rounds_complete(self.load);
        let pairs = |place: &Place| Some(place.winner_to_it?.ratio()?.samples);
        let least = self.ranking.places.iter().filter_map(pairs).min();
        match least.filter(|least| *least < made) {
            Some(least) => format!(
                "{}, of which {least} or more count for each comparison with {}",
                number_of(made, "round"),
                self.ranking.winner().map_or_else(String::new, |winner| self.name(winner.row))
            ),
            None => number_of(made, "round"),
        }
    }

    /// Why most rows have no rank.
    fn reason_for_most(&self) -> Option<String> {
        let mut reasons: Vec<(String, usize)> = vec![];
        for row in 0..self.results.rows.len() {
            let Some(reason) = self.results.unranked(self.load, row) else { continue };
            match reasons.iter_mut().find(|(known, _)| *known == reason) {
                Some((_, count)) => *count += 1,
                None => reasons.push((reason, 1)),
            }
        }
        reasons.into_iter().max_by_key(|(_, count)| *count).map(|(reason, _)| reason)
    }

    /// What was found of each pair with the winner, and of the winner and the row that is the measure.
    fn claims(&self) -> Vec<Claim> {
        let Some(winner) = self.ranking.winner() else { return vec![] };
        let mut claims: Vec<Claim> = self.ranking.places[1..]
            .iter()
            .filter_map(|place| self.claim(winner.row, place.row, place.winner_to_it?))
            .collect();
        let measure = self.results.measure().filter(|row| self.ranking.place(*row).is_none());
        let against = measure.zip(winner.to_traditional);
        claims.extend(against.and_then(|(row, to_it)| self.claim(winner.row, row, to_it)));
        claims
    }

    fn claim(&self, first: usize, second: usize, difference: Difference) -> Option<Claim> {
        let (verdict, ratio) = match difference {
            Difference::Real(ratio) => (Verdict::Real, ratio),
            Difference::Tie(ratio) => (Verdict::Tie, ratio),
            Difference::TooFew(_) => return None,
        };
        let load = self.results.loads[self.load].to_string();
        let (a, b) = (self.name(first), self.name(second));
        let text = match verdict {
            Verdict::Real => format!("{load}: {a} has {} {b}", self.ahead(&ratio)),
            Verdict::Tie => format!("{load}: {a} and {b} cannot be told apart"),
        };
        Some(Claim {
            text,
            evidence: format!("#{}-load-{}", K::KIND, self.load),
            load,
            metric: self.results.ranked_by(self.load).name.into(),
            first: self.results.rows[first].name_in_claims(),
            second: self.results.rows[second].name_in_claims(),
            verdict,
            ratio: ratio.median,
            low: ratio.interval.map(|interval| interval.low),
            high: ratio.interval.map(|interval| interval.high),
        })
    }
}

/// Who leads under the other loads that have a table.
fn other_loads<K: Reported>(
    results: &Results<K>,
    main: usize,
    rankings: &Rankings<K>,
    busy: Option<f64>,
) -> (Vec<String>, Vec<Claim>) {
    let (mut said, mut claims) = (vec![], vec![]);
    let others = (0..results.loads.len()).filter(|load| {
        *load != main && K::has_table(&results.loads[*load]) && results.compares(*load)
    });
    for load in others {
        if rankings[load].is_empty() {
            continue;
        }
        let found = Found::among(results, load, &rankings[load], 0, busy);
        claims.extend(found.claims());
        if found.ranking.winner().is_some() {
            said.push(format!("Under {}: {}", results.loads[load], lower_first(&found.decide())));
        }
    }
    if said.len() > MOST_OTHER_LOADS {
        let more = said.len() - MOST_OTHER_LOADS;
        said.truncate(MOST_OTHER_LOADS);
        said.push(format!("{} more in the report.", number_of(more, "load")));
    }
    let has_winner = rankings[main].iter().any(|(_, ranking)| ranking.winner().is_some());
    let is_missed = |load: usize| load != main && missed::reason(results, load).is_some();
    let missed = (0..results.loads.len()).any(is_missed);
    if has_winner && claims.is_empty() && said.is_empty() && !missed {
        said.push(format!(
            "This applies to {}; other loads may rank designs differently: {}.",
            results.loads[main],
            K::UNIT.wider
        ));
    }
    (said, claims)
}

/// A row by its name, with its provider where another row has that name.
pub(crate) fn short_name<K: Reported>(results: &Results<K>, row: usize) -> String {
    let name = K::name(&results.rows[row]);
    let first = results.first_of(row).unwrap_or(row);
    let same = |other: usize| {
        let others = results.first_of(other).unwrap_or(other);
        others != first && K::name(&results.rows[other]) == name
    };
    match (0..results.rows.len()).any(same) {
        true => K::title(&results.rows[row]),
        false => name,
    }
}
