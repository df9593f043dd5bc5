//! What an experiment runs, under which loads, how often and in which order.
//!
//! Rounds are blocks: in each, every row runs once, in a random order that the seed gives
//! again. A machine that slows down for a while then slows all rows of a block, and pairs
//! of one block still tell the truth.

pub mod budget;
pub mod peer;
pub mod row;

pub use budget::{Depth, Schedule, Settings};
pub use peer::Peer;
pub use row::{Role, Row, RowError};

use crate::stats::random::Random;

/// The rows of the given texts; `known` says whether the library knows what a row asks for, and finds out whether it
/// can run here.
///
/// # Errors
/// What is wrong with the first text that is wrong, and what there is.
pub fn rows_of_texts(
    texts: &[String],
    known: impl Fn(&mut Row) -> Result<(), String>,
) -> Result<Vec<Row>, String> {
    let mut rows: Vec<Row> = vec![];
    for text in texts {
        let mut row = Row::parse(text).map_err(|error| error.to_string())?;
        known(&mut row)?;
        if rows.iter().any(|other| other.spec() == row.spec()) {
            return Err(format!(
                "the design {text:?} is given twice; once is enough, as the experiment itself runs one \
                 design under two names"
            ));
        }
        rows.push(row);
    }
    Ok(rows)
}

/// The rows of peers, `NAME=COMMAND` each, of which none is named like a row that is there or like one
/// of these designs. `example` is a right one.
///
/// # Errors
/// What is wrong with the first text that is wrong.
pub fn rows_of_peers(
    peers: &[String],
    taken: &[Row],
    designs: &[&str],
    example: &str,
) -> Result<Vec<Row>, String> {
    let mut rows: Vec<Row> = vec![];
    for text in peers {
        let row = Row::of_peer(text, example)?;
        let name = &row.design;
        if designs.contains(&name.as_str()) {
            return Err(format!("{name:?} is the name of a design; give the peer another one"));
        }
        if taken.iter().chain(&rows).any(|other| other.design == *name) {
            return Err(format!(
                "two rows would be named {name:?}; give the peers different names"
            ));
        }
        rows.push(row);
    }
    Ok(rows)
}

/// Adds the first of these designs that can run under a second name, or else any row that can.
pub fn add_again_of(rows: &mut Vec<Row>, designs: &[&str]) {
    let runs = |row: &Row| row.unavailable.is_none() && row.peer.is_none();
    let of = |name: &&str| rows.iter().position(|row| row.design == **name && runs(row));
    let preferred = designs.iter().find_map(of);
    add_again(rows, preferred);
}

/// Adds one row under a second name, so that the noise can be seen; where there are rows with
/// receive offload beside the others, one of those as well. Returns the place of the first, or
/// `None` if no row can run.
///
/// `preferred` is the index of the row to take; the first row that can run is taken if it
/// is `None` or cannot run.
pub fn add_again(rows: &mut Vec<Row>, preferred: Option<usize>) -> Option<usize> {
    let runs = |row: &Row| row.unavailable.is_none() && !row.only_swept;
    let of_group = |offloaded: bool, wanted: &dyn Fn(&Row) -> bool| {
        rows.iter().position(|row| row.receive_offload == offloaded && runs(row) && wanted(row))
    };
    let of = preferred
        .filter(|index| rows.get(*index).is_some_and(runs))
        .or_else(|| of_group(false, &|_| true));
    let pair = |row: &Row| of.is_some_and(|of| row.spec() == rows[of].spec());
    let offloaded = of_group(true, &pair).or_else(|| of_group(true, &|_| true));
    let mut first = None;
    for of in [of, offloaded].into_iter().flatten() {
        rows.push(rows[of].clone().with_role(Role::Again(of)));
        first.get_or_insert(rows.len() - 1);
    }
    first
}

/// The order of one block: every index of `rows` once.
pub fn block_order(rows: &[usize], random: &mut Random) -> Vec<usize> {
    let mut order = rows.to_vec();
    random.shuffle(&mut order);
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_holds_every_row_once_and_the_seed_gives_it_again() {
        let rows: Vec<usize> = (0..17).collect();
        let mut order = block_order(&rows, &mut Random::seeded(4));
        assert_eq!(order, block_order(&rows, &mut Random::seeded(4)));
        assert_ne!(order, block_order(&rows, &mut Random::seeded(5)));
        order.sort_unstable();
        assert_eq!(order, rows);
    }

    #[test]
    fn one_row_that_can_run_runs_again() {
        let mut rows = vec![Row::parse("epoll").unwrap(), Row::parse("port").unwrap()];
        rows[0].unavailable = Some("no epoll here".into());
        assert_eq!(add_again(&mut rows, Some(0)), Some(2));
        assert_eq!((rows[2].design.as_str(), rows[2].role), ("port", Role::Again(1)));

        let mut none = vec![Row { unavailable: Some("no".into()), ..rows[0].clone() }];
        assert_eq!(add_again(&mut none, None), None);
        assert_eq!(none.len(), 1);
    }

    #[test]
    fn a_row_of_each_group_runs_again() {
        let plain: Vec<Row> = ["epoll", "port"].map(|text| Row::parse(text).unwrap()).to_vec();
        let mut rows = plain.clone();
        rows.extend(plain.into_iter().map(|row| Row { receive_offload: true, ..row }));
        assert_eq!(add_again(&mut rows, Some(1)), Some(4));
        assert_eq!((rows[4].role, rows[4].receive_offload), (Role::Again(1), false));
        assert_eq!((rows[5].role, rows[5].receive_offload), (Role::Again(3), true));
    }
}
