//! The rows of a comparison on a link of its own: those of every comparison, and the designs of
//! registered I/O on the frames of the link.

use weir::rio::Choice;

use super::rows::{self, Breadth, find_availability};
use crate::experiment::plan::{Role, Row};

/// The design that tries every form of polling.
const POLLS: &str = "rio-polled";

/// Every row that the library can offer, those included that cannot run here.
pub fn all(breadth: Breadth) -> Vec<Row> {
    let mut rows = rows::all(breadth);
    let first = Choice::Xdp.to_string();
    let mut on_frames: Vec<Row> = vec![];
    for row in rows.iter().filter(|row| row.role == Role::Plain && row.provider.is_some()) {
        let on = |provider: &String| Row { provider: Some(provider.clone()), ..row.clone() };
        let answering = |choice: &&Choice| !choice.reaches_loopback() && choice.answers();
        let all = Choice::ALL.iter().filter(answering);
        let several = breadth == Breadth::Variants && row.design == POLLS;
        let providers: Vec<String> = match several {
            true => all.map(ToString::to_string).collect(),
            false => vec![first.clone()],
        };
        for row in providers.iter().map(on) {
            if !on_frames.iter().any(|known| known.spec() == row.spec()) {
                on_frames.push(row);
            }
        }
    }
    on_frames.iter_mut().for_each(find_availability);
    rows.extend(on_frames);
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_design_of_registered_io_is_on_frames_too_and_once() {
        let narrow = all(Breadth::Designs { cores: 1 });
        let on = |rows: &[Row], design: &str| -> Vec<String> {
            let of = rows.iter().filter(|row| row.design == design && row.role == Role::Plain);
            of.filter_map(|row| row.provider.clone()).collect()
        };
        let auto = Choice::Auto.resolve().to_string();
        for design in ["rio-polled", "rio-event", "rio-hybrid", "rio-sharded"] {
            assert_eq!(on(&narrow, design), [auto.clone(), "xdp".into()], "{design}");
        }
        assert!(on(&narrow, "blocking").is_empty());
        let wide = all(Breadth::Variants);
        let polled = on(&wide, POLLS);
        for provider in ["batch", "xdp", "xdp-busy-polled", "xdp-copied", "xdp-generic"] {
            assert_eq!(polled.iter().filter(|name| *name == provider).count(), 1, "{polled:?}");
        }
        let mut specs: Vec<String> = wide.iter().map(Row::spec).collect();
        let count = specs.len();
        specs.sort();
        specs.dedup();
        assert_eq!(specs.len(), count, "no row twice");
    }
}
