//! What the conformance suites share: rows, checks, and how they become tests.

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

/// A check of what a row is about, with its name.
pub type Check<S> = (&'static str, fn(&S) -> Result<(), Skipped>);

/// Why a check does not apply to a row.
#[derive(Debug)]
pub struct Skipped(pub String);

/// How long anything may take that has only to happen.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Text of the panics that a check provokes.
pub const ON_PURPOSE: &str = "on purpose";

/// What every check is made on.
#[derive(Clone)]
pub struct Row<S> {
    /// Its name, behind that of a check.
    pub name: String,
    /// Why it cannot run here, if it cannot.
    pub unavailable: Option<String>,
    /// Whether that is a failure: see [`required`].
    pub required: bool,
    /// What the checks are given.
    pub subject: S,
}

/// A check that is ready to run.
pub type Ready = Box<dyn FnOnce() -> Result<(), Skipped> + Send>;

/// How a check with this name is run.
type Way = dyn Fn(&str, Ready) -> Result<(), Skipped> + Send + Sync;

/// Tests of a kind, as they are collected.
pub struct Suite {
    arguments: Arguments,
    way: Arc<Way>,
    missing: Vec<Trial>,
    placed: Vec<Placed>,
}

/// A check of a row.
struct Placed {
    check: &'static str,
    row: String,
    trial: Trial,
}

impl Suite {
    pub fn new(
        arguments: Arguments,
        way: impl Fn(&str, Ready) -> Result<(), Skipped> + Send + Sync + 'static,
    ) -> Self {
        silence_panics_on_purpose();
        Self { arguments, way: Arc::new(way), missing: Vec::new(), placed: Vec::new() }
    }

    /// Adds the checks of a row, or, where it cannot run, one test that says why.
    pub fn add<'a, S: Send + Sync + 'static>(
        &mut self,
        row: Row<S>,
        checks: impl IntoIterator<Item = &'a Check<S>>,
    ) {
        if let Some(reason) = row.unavailable {
            self.missing.push(missing(&row.name, row.required, reason));
            return;
        }
        let subject = Arc::new(row.subject);
        for &(check_name, check) in checks {
            let name = format!("{check_name}::{}", row.name);
            let (its, way, subject) = (name.clone(), Arc::clone(&self.way), Arc::clone(&subject));
            let trial = Trial::ignorable_test(name, move || {
                Ok(match way(&its, Box::new(move || check(&subject))) {
                    Ok(()) => Completion::Completed,
                    Err(skipped) => Completion::ignored_with(skipped.0),
                })
            });
            self.placed.push(Placed { check: check_name, row: row.name.clone(), trial });
        }
    }

    /// Runs it with these tests besides, and ends the process.
    pub fn run(self, besides: Vec<Trial>) -> ! {
        let placed = if is_each_once() { each_once(self.placed) } else { self.placed };
        let placed = placed.into_iter().map(|placed| placed.trial);
        let trials = self.missing.into_iter().chain(placed).chain(besides).collect();
        libtest_mimic::run(&self.arguments, trials).exit()
    }
}

/// If it is set, each check is made on one row and each row has one check at least, and with smaller numbers (see
/// [`depth`]): for a machine on which the whole takes too long.
const EACH_ONCE: &str = "WEIR_EACH_ONCE";

fn is_each_once() -> bool {
    std::env::var_os(EACH_ONCE).is_some()
}

/// How many bytes, connections or operations a check has, of the usual number: an eighth where each is made once. It is
/// for numbers that only make a check more thorough, not for those that what it checks depends on.
#[allow(dead_code, reason = "not every suite has such numbers")]
pub fn depth(usual: u32) -> u32 {
    if is_each_once() { usual.div_ceil(8) } else { usual }
}

/// Leaves of each check the one row whose turn it is, and a check to each row that would have none.
fn each_once(placed: Vec<Placed>) -> Vec<Placed> {
    let mut kept = vec![false; placed.len()];
    let of_each = |name: &dyn Fn(&Placed) -> String| {
        let mut groups: Vec<(String, Vec<usize>)> = Vec::new();
        for (at, placed) in placed.iter().enumerate() {
            let name = name(placed);
            match groups.iter_mut().find(|(known, _)| *known == name) {
                Some((_, group)) => group.push(at),
                None => groups.push((name, vec![at])),
            }
        }
        groups.into_iter().map(|(_, group)| group)
    };
    for (turn, rows) in of_each(&|placed| placed.check.to_owned()).enumerate() {
        kept[rows[turn % rows.len()]] = true;
    }
    for (turn, checks) in of_each(&|placed| placed.row.clone()).enumerate() {
        if !checks.iter().any(|at| kept[*at]) {
            kept[checks[turn % checks.len()]] = true;
        }
    }
    placed.into_iter().zip(kept).filter_map(|(placed, kept)| kept.then_some(placed)).collect()
}

fn missing(name: &str, required: bool, reason: String) -> Trial {
    Trial::ignorable_test(format!("available::{name}"), move || {
        if required {
            return Err(Failed::from(format!("required by WEIR_REQUIRE, but {reason}")));
        }
        Ok(Completion::ignored_with(reason))
    })
}

/// Whether WEIR_REQUIRE has `all` or one of the names that are meant.
pub fn required(is_meant: impl Fn(&str) -> bool) -> bool {
    let required = std::env::var("WEIR_REQUIRE").unwrap_or_default();
    required.split(',').map(str::trim).any(|name| name == "all" || is_meant(name))
}

/// Waits for something that nobody announces.
#[track_caller]
pub fn until(what: &str, mut done: impl FnMut() -> bool) {
    let by = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < by, "{what} did not happen");
        // Whoever is to do it may need this core.
        thread::sleep(Duration::from_millis(1));
    }
}

/// Keeps the panics that checks provoke out of the output.
fn silence_panics_on_purpose() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let payload = info.payload();
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
        if !text.is_some_and(|text| text.contains(ON_PURPOSE)) {
            usual(info);
        }
    }));
}
