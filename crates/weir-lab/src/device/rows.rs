//! The rows of the comparison, from the library's own table: a design that is added there becomes a row
//! here by itself.

use weir::device::{AnyDesign, Direction, designs};

use crate::experiment::plan::{self, Depth, Role, Row};

/// The design to which the others' ratios are taken: the plainest.
pub const MEASURE: &str = "sync";

/// Designs that are there with further settings: those that are fastest with one of them.
const VARIED: [&str; 2] = ["ring", "ring-registered"];
/// Their settings: nothing outstanding but one, batches as long as the queue, and a long queue.
const VARIANTS: [&str; 3] = ["--depth 1", "--depth 128 --batch 128", "--depth 1024 --batch 256"];
/// The option of which a sweep takes every value.
const DEPTH: &str = "depth";
/// Its values.
const DEPTHS: [u32; 6] = [1, 4, 16, 64, 256, 1024];

/// Every design once with its own settings, those included that cannot run here; rings with further
/// settings, or, in a sweep, each design that takes a depth with all of them.
pub fn all(depth: Depth) -> Vec<Row> {
    let mut rows = vec![];
    for design in designs() {
        let name = design.about().name;
        let mut texts = vec![name.to_owned()];
        match depth {
            Depth::Full if design.known_options().iter().any(|option| option.name == DEPTH) => {
                texts = DEPTHS.iter().map(|depth| format!("{name} --{DEPTH} {depth}")).collect();
            }
            Depth::Standard if VARIED.contains(&name) => {
                texts.extend(VARIANTS.iter().map(|variant| format!("{name} {variant}")));
            }
            _ => {}
        }
        rows.extend(texts.iter().map(|text| {
            let mut row = Row::parse(text).unwrap_or_else(|error| panic!("{error}"));
            find_availability(&mut row);
            row
        }));
    }
    rows
}

/// The rows of the given texts.
///
/// # Errors
/// What is wrong with the first text that is wrong, and what there is.
pub fn of_texts(texts: &[String]) -> Result<Vec<Row>, String> {
    plan::rows_of_texts(texts, |row| {
        AnyDesign::parse(&row.spec()).map_err(|error| error.to_string())?;
        find_availability(row);
        Ok(())
    })
}

/// Adds the row that runs under two names: the measure, if it is there.
pub fn add_again(rows: &mut Vec<Row>) {
    plan::add_again_of(rows, &[MEASURE]);
}

/// Says of the rows that could run which have no I/Os in this direction.
pub fn heed(rows: &mut [Row], direction: Direction) {
    for row in rows.iter_mut().filter(|row| row.unavailable.is_none() && row.peer.is_none()) {
        if let Ok(design) = AnyDesign::parse(&row.spec()) {
            row.unavailable = design.can(direction).err().map(|reason| reason.to_string());
        }
    }
}

fn find_availability(row: &mut Row) {
    match AnyDesign::parse(&row.spec()) {
        Ok(mut design) => {
            design.resolve();
            row.runs_on = Some(design.provider().into());
            row.unavailable =
                design.availability().err().map(|unavailable| unavailable.to_string());
        }
        Err(error) => row.unavailable = Some(error.to_string()),
    }
}

/// The design that does what fio's ring does.
pub const AS_FIO: &str = "ring-registered";
/// With fio's settings (see [`super::fio`]).
const AS_FIO_SETTINGS: [(&str, &str); 2] = [(DEPTH, "128"), ("batch", "128")];

/// Whether a row is weir's own with what fio's ring has: as many outstanding, and batches as long.
pub fn is_as_fio(row: &Row) -> bool {
    let values = || AnyDesign::parse(&row.spec()).map(|design| design.values()).unwrap_or_default();
    row.peer.is_none() && row.design == AS_FIO && {
        let values = values();
        AS_FIO_SETTINGS
            .iter()
            .all(|(name, value)| values.iter().any(|(at, is)| at == name && is == value))
    }
}

/// Adds the row to which fio's ring is compared, where there are others of its design only.
pub fn add_as_fio(rows: &mut Vec<Row>) {
    let of_design = |row: &Row| row.peer.is_none() && row.design == AS_FIO;
    if let Some(last) = rows.iter().rposition(of_design)
        && !rows.iter().any(is_as_fio)
    {
        let settings = AS_FIO_SETTINGS.map(|(name, value)| format!(" --{name} {value}")).concat();
        let mut row =
            Row::parse(&format!("{AS_FIO}{settings}")).unwrap_or_else(|error| panic!("{error}"));
        find_availability(&mut row);
        rows.insert(last + 1, row);
    }
}

/// How many I/Os a row keeps outstanding, where it takes such a number.
pub fn depth_of(row: &Row) -> Option<u32> {
    if row.peer.is_some() {
        return None;
    }
    let design = AnyDesign::parse(&row.spec()).ok()?;
    let (_, depth) = design.values().into_iter().find(|(name, _)| name == DEPTH)?;
    depth.parse().ok()
}

/// A row as it is shown.
pub fn title(row: &Row) -> String {
    let again = if matches!(row.role, Role::Again(_)) { " (again)" } else { "" };
    format!("{}{again}", row.spec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_design_of_the_table_is_a_row_and_every_row_is_understood() {
        for depth in [Depth::Quick, Depth::Standard, Depth::Full] {
            let rows = all(depth);
            for design in designs() {
                let name = design.about().name;
                assert!(rows.iter().any(|row| row.design == name), "{name} in {depth:?}");
            }
            for row in &rows {
                AnyDesign::parse(&row.spec()).unwrap_or_else(|error| panic!("{row}: {error}"));
            }
        }
    }

    #[test]
    fn rings_have_several_settings_and_a_sweep_every_depth() {
        let of = |depth: Depth, design: &str| -> Vec<Option<u32>> {
            let rows = all(depth);
            rows.iter().filter(|row| row.design == design).map(depth_of).collect()
        };
        assert_eq!(of(Depth::Quick, "ring"), [Some(128)]);
        assert_eq!(of(Depth::Standard, "ring"), [128, 1, 128, 1024].map(Some));
        assert_eq!(of(Depth::Full, "no-op"), DEPTHS.map(Some));
        assert_eq!((of(Depth::Full, "sync"), of(Depth::Full, "libaio").len()), (vec![None], 6));
    }

    #[test]
    fn what_fios_ring_is_compared_with_is_among_the_rows_once() {
        for depth in [Depth::Quick, Depth::Standard, Depth::Full] {
            let mut rows = all(depth);
            add_as_fio(&mut rows);
            assert_eq!(rows.iter().filter(|row| is_as_fio(row)).count(), 1, "{depth:?}");
        }
        let mut rows = of_texts(&["sync".to_owned()]).unwrap();
        add_as_fio(&mut rows);
        assert_eq!(rows.len(), 1, "where its design is not wanted, neither is this");
        let deep = Row::parse("ring-registered --depth 128 --batch 32").unwrap();
        assert!(!is_as_fio(&deep));
    }

    #[test]
    fn texts_are_read_with_their_options_and_wrong_ones_are_explained() {
        let texts =
            |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let rows = of_texts(&texts(&["ring --depth 7", "sync"])).unwrap();
        assert_eq!(title(&rows[0]), "ring --depth 7");
        for (words, said) in [
            (&["nonsense"][..], "nonsense"),
            (&["sync", "sync"], "twice"),
            (&["ring --depth 0"], "1 to"),
            (&["sync --depth 2"], "depth"),
        ] {
            let error = of_texts(&texts(words)).unwrap_err();
            assert!(error.contains(said), "{words:?}: {error}");
        }
    }

    #[test]
    fn what_moves_nothing_has_no_writes() {
        let texts = ["sync", "sync-empty", "ring", "no-op", "control"].map(str::to_owned);
        let mut rows = of_texts(&texts).unwrap();
        rows.iter_mut().for_each(|row| row.unavailable = None);
        heed(&mut rows, Direction::Read);
        assert!(rows.iter().all(|row| row.unavailable.is_none()));
        heed(&mut rows, Direction::Write);
        let cannot: Vec<&str> = rows
            .iter()
            .filter(|row| row.unavailable.as_ref().is_some_and(|why| why.contains("no writes")))
            .map(|row| row.design.as_str())
            .collect();
        assert_eq!(cannot, ["sync-empty", "no-op", "control"]);
    }

    #[test]
    fn the_measure_runs_again() {
        let mut rows = of_texts(&["no-op".to_owned(), "sync".to_owned()]).unwrap();
        rows.iter_mut().for_each(|row| row.unavailable = None);
        add_again(&mut rows);
        assert_eq!((rows.len(), title(&rows[2]).as_str()), (3, "sync (again)"));
    }
}
