//! The suite, on the one system that devices can be read on.

mod checks;
mod nothing;
mod opening;
mod support;

use super::{
    alone,
    suite::{Row, required},
};
use libtest_mimic::{Completion, Trial};
use std::time::Duration;
use weir::device::AnyDesign;

/// How long a check may take before it counts as one that never ends.
const LONGEST: Duration = Duration::from_secs(300);

/// Rows beside those of the table.
const VARIANTS: &[&str] = &[
    "threads --threads 3",
    "overlapped-pool --depth 3 --threads 1",
    "overlapped-pool --depth 64 --threads 3 --dequeue-max 1",
    "port --depth 5 --threads 3 --concurrency 1",
    "port --depth 1 --threads 2",
    "ring --depth 1 --batch 1",
    "ring --depth 64 --batch 7 --complete-min 64",
    "ring-registered --depth 3 --batch 8 --complete-min 2",
    // With the alarm's two and the one held back, as many as the queue has entries.
    "ring-polled --depth 5 --batch 5 --polls 1",
    "ring-polled --registered false",
    "libaio --depth 5 --batch 2 --complete-min 5",
    "uring-cmd --depth 5 --batch 2 --complete-min 3",
];

pub fn main() {
    let mut suite = alone::suite(LONGEST);
    let names = weir::device::designs().into_iter().map(|design| design.about().name.to_owned());
    let nothing = nothing::missing();
    let with_nothing = if nothing.is_none() { nothing::CHECKS } else { &[] };
    // "All" is what a machine has without drivers of weir's own.
    let own = |name: &str| nothing.is_some() && matches!(name, "control" | "uring-cmd");
    for name in names.chain(VARIANTS.iter().map(|&text| text.to_owned())) {
        let design = AnyDesign::parse(&name).expect("the table and the list name what there is");
        let its = design.about().name;
        let row = Row {
            name,
            unavailable: design.availability().err().map(|reason| reason.to_string()),
            required: required(|name| name.strip_prefix("device/") == Some(its)) && !own(its),
            subject: design,
        };
        suite.add(row, checks::CHECKS.iter().chain(with_nothing));
    }
    let mut besides = opening::trials();
    if let Some(why) = nothing {
        let ignored = move || Ok(Completion::ignored_with(why));
        besides.push(Trial::ignorable_test("available::the nothing device", ignored));
    }
    suite.run(besides);
}
