//! The suite, on the one system that devices can be read on.

mod checks;
mod opening;
mod support;

use crate::{
    alone,
    suite::{Row, required},
};
use std::time::Duration;
use weir::device::AnyDesign;

/// How long a check may take before it counts as one that never ends.
const LONGEST: Duration = Duration::from_secs(60);

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
    "ring-polled --depth 4 --batch 4 --polls 1",
    "ring-polled --registered false",
    "libaio --depth 5 --batch 2 --complete-min 5",
];

pub fn main() {
    let mut suite = alone::suite(LONGEST);
    let names = weir::device::designs().into_iter().map(|design| design.about().name.to_owned());
    for name in names.chain(VARIANTS.iter().map(|&text| text.to_owned())) {
        let design = AnyDesign::parse(&name).expect("the table and the list name what there is");
        let its = design.about().name;
        let row = Row {
            name,
            unavailable: design.availability().err().map(|reason| reason.to_string()),
            // The device of that one is not written yet: no machine has it.
            required: its != "control"
                && required(|name| name.strip_prefix("device/") == Some(its)),
            subject: design,
        };
        suite.add(row, checks::CHECKS);
    }
    suite.run(opening::trials());
}
