//! The rows of the comparison, from the library's own tables: a design or a provider that is
//! added there becomes a row here by itself.

use weir::rio::Choice;
use weir::udp::{AnyDesign, Port, Spec, designs};

use crate::experiment::plan::row::THREADS;
use crate::experiment::plan::{self, Peer, Role, Row};
use crate::udp::plan::SweptOption;

/// The design whose row runs under two names: the one that is expected to win, for there the
/// noise matters most.
const AGAIN: &str = "rio-hybrid";

/// A peer as it is written.
const PEER_EXAMPLE: &str = "tokio=peers/target/release/peer-tokio";

/// How many rows a design gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Breadth {
    /// One: on the first provider that can run here, with as many threads as the server has
    /// cores, but no more than the design's own default.
    Designs {
        /// Cores of the server.
        cores: usize,
    },
    /// One for each provider, and for one thread and the design's own default.
    Variants,
}

/// Every row that the library can offer, those included that cannot run here; the traditional
/// one first.
///
/// Providers of one mechanism that differ only in how they poll (`uring`, `uring-interrupt`) are
/// all tried with the design that does nothing but poll, and those that are a way of handing queues
/// over with the one that hands over most; the others take the first of them.
pub fn all(breadth: Breadth) -> Vec<Row> {
    let mut rows: Vec<Row> = designs().iter().flat_map(|design| rows_of(design, breadth)).collect();
    rows.insert(0, traditional());
    rows.iter_mut().for_each(find_availability);
    rows
}

/// The rows of the given texts.
///
/// # Errors
/// What is wrong with the first text that is wrong, and what there is.
pub fn of_texts(texts: &[String]) -> Result<Vec<Row>, String> {
    plan::rows_of_texts(texts, |row| {
        let spec = Spec::parse(&row.spec()).map_err(|error| error.to_string())?;
        if spec == Spec::from(AnyDesign::from(Port::original())) {
            row.role = Role::Traditional;
        }
        find_availability(row);
        Ok(())
    })
}

/// The rows of peers: `NAME=COMMAND` each, and `NAME=HEAD` for those of them that want a head.
///
/// # Errors
/// What is wrong with the first text that is wrong.
pub fn of_peers(peers: &[String], heads: &[String], taken: &[Row]) -> Result<Vec<Row>, String> {
    let names: Vec<&str> = designs().iter().map(|of| of.about().name).collect();
    let mut rows = plan::rows_of_peers(peers, taken, &names, PEER_EXAMPLE)?;
    for text in heads {
        let (name, head) = text.split_once('=').ok_or_else(|| {
            format!("cannot read the head {text:?}: write it as NAME=HEX, with the peer's name")
        })?;
        let head = head.parse()?;
        let named = rows.iter_mut().find(|row| row.design == name.trim());
        match named.and_then(|row| row.peer.as_mut()) {
            Some(peer) if peer.is_derived() => peer.head = head,
            Some(_) => {
                return Err(format!(
                    "{name} talks with weir and must see the stamps, which a head would write over"
                ));
            }
            None => return Err(format!("there is no peer {name:?} for the head {text:?}")),
        }
    }
    Ok(rows)
}

/// Puts each row whose design takes a number of threads, and that does not ask for one by itself,
/// on each of these numbers. `asked` tells whether a row asks for one.
///
/// In a sweep the rows stay as they are, and state their number; the others come after them, for the
/// sweep only.
pub fn on_threads(
    rows: &mut Vec<Row>,
    numbers: &[u32],
    in_sweep: bool,
    asked: impl Fn(&Row) -> bool,
) {
    let mut all: Vec<Row> = vec![];
    let mut more: Vec<Row> = vec![];
    for row in rows.drain(..) {
        let own = default_threads(&row).filter(|_| row.role == Role::Plain && !asked(&row));
        match (own, in_sweep) {
            (None, _) => all.push(row),
            (Some(_), false) => all.extend(numbers.iter().map(|threads| row.on_threads(*threads))),
            (Some(own), true) => {
                let own = row.threads().unwrap_or(own);
                // 0 stands for as many as there are cores, which is no number to sweep over.
                all.push(if own == 0 { row.clone() } else { row.on_threads(own) });
                let others = numbers.iter().filter(|threads| **threads != own);
                let others = others.map(|threads| row.on_threads(*threads));
                more.extend(others.map(|row| Row { only_swept: true, ..row }));
            }
        }
    }
    // A row may come by itself and by its number: the first of them stays.
    let mut known = std::collections::HashSet::new();
    all.append(&mut more);
    all.retain(|row| known.insert((row.spec(), row.receive_offload)));
    all.iter_mut().for_each(find_availability);
    *rows = all;
}

/// Adds to each row whose design has one of these options the same at the sweep's other values, for the sweep alone.
/// `asked` tells whether a row sets it by itself, and then stays as it is.
pub fn on_options(rows: &mut Vec<Row>, swept: &'static SweptOption, asked: impl Fn(&Row) -> bool) {
    let mut more: Vec<Row> = vec![];
    for row in rows.iter().filter(|row| row.role == Role::Plain && !row.only_swept) {
        let Some((name, own)) = value_of(row, swept) else { continue };
        if asked(row) && row.option(name).is_some() {
            continue;
        }
        for value in swept.values.iter().filter(|value| **value != own) {
            let mut other = row.with_option(name, *value);
            // A threshold that no dequeue reaches is refused: it stays at its share of one.
            if name == DEQUEUE_MAX && default_of(row, THRESHOLD).is_some() {
                other = other.with_option(THRESHOLD, (2 * value / 3).max(1));
            }
            let can = Spec::parse(&other.spec()).is_ok();
            more.extend(can.then_some(Row {
                only_swept: true,
                swept_option: Some(swept.name),
                ..other
            }));
        }
    }
    more.iter_mut().for_each(find_availability);
    rows.append(&mut more);
}

/// The option of a row that a sweep varies, and its value: what the row asks for, or its design's default; `None` if the
/// design has no such option.
pub fn value_of(row: &Row, swept: &SweptOption) -> Option<(&'static str, u32)> {
    swept.options.iter().find_map(|name| {
        let own = row.option(name).map(str::to_owned).or_else(|| default_of(row, name))?;
        Some((*name, own.parse().ok()?))
    })
}

/// The options that a dequeue's size and the hybrid's threshold depend on each other by.
pub const DEQUEUE_MAX: &str = "dequeue-max";
/// See [`DEQUEUE_MAX`].
pub const THRESHOLD: &str = "threshold";

/// The default of an option of a row's design; `None` if that has none of this name.
fn default_of(row: &Row, name: &str) -> Option<String> {
    let designs = designs();
    let design = designs.iter().find(|design| design.about().name == row.design)?;
    let options = design.known_options();
    options.into_iter().find(|option| option.name == name).map(|option| option.default)
}

/// How many threads a row waits on for datagrams: what it asks for, or what its design has by itself;
/// `None` if that takes no number.
pub fn threads_of(row: &Row) -> Option<u32> {
    row.threads().or_else(|| default_threads(row))
}

/// The number of threads of its design if nothing is said; `None` if that takes no number.
fn default_threads(row: &Row) -> Option<u32> {
    default_of(row, THREADS)?.parse().ok()
}

/// Adds each ordinary row with receive offload. The shape of the originals has none: it is the measure
/// as it is. Nor have frames, which never come to where the kernel joins datagrams, and programs that
/// know nothing of weir, which cannot be told to ask for it.
pub fn with_offload(rows: &mut Vec<Row>) {
    let on_frames = |row: &Row| row.shown_provider().is_some_and(|name| name.starts_with("xdp"));
    let derived = |row: &Row| row.peer.as_ref().is_some_and(Peer::is_derived);
    let ordinary = rows
        .iter()
        .filter(|row| row.role == Role::Plain && !row.only_swept)
        .filter(|row| !on_frames(row) && !derived(row));
    let pairs: Vec<Row> =
        ordinary.map(|row| Row { receive_offload: true, ..row.clone() }).collect();
    rows.extend(pairs);
}

/// The index of the row that should run under two names.
pub fn preferred_again(rows: &[Row]) -> Option<usize> {
    rows.iter().position(|row| row.design == AGAIN && row.unavailable.is_none())
}

/// The traditional design: a completion port in the shape of the originals. Its row states the
/// options in which that shape differs from the design's own, and its threads.
fn traditional() -> Row {
    let (original, own) = (AnyDesign::from(Port::original()), AnyDesign::from(Port::default()));
    let own = own.values();
    let differs = |option: &(String, String)| option.0 == THREADS || !own.contains(option);
    let options = original.values().into_iter().filter(differs);
    Row {
        design: original.about().name.into(),
        provider: None,
        runs_on: None,
        options: options.map(|(name, value)| (name, Some(value))).collect(),
        role: Role::Traditional,
        receive_offload: false,
        only_swept: false,
        swept_option: None,
        peer: None,
        unavailable: None,
    }
}

fn rows_of(design: &AnyDesign, breadth: Breadth) -> Vec<Row> {
    let name = design.about().name;
    let options = design.known_options();
    let default_of = |name: &str| {
        options.iter().find(|option| option.name == name).map(|option| option.default.as_str())
    };
    let providers: Vec<Option<String>> = match (default_of("provider"), breadth) {
        (None, _) => vec![None],
        (_, Breadth::Designs { .. }) => vec![Some(Choice::Auto.resolve().to_string())],
        (_, Breadth::Variants) => providers_for(name).into_iter().map(Some).collect(),
    };
    let several = default_of(THREADS).and_then(|text| text.parse().ok()).filter(|&n| n > 1);
    let threads: Vec<Option<usize>> = match (several, breadth) {
        (None, _) => vec![None],
        (Some(own), Breadth::Designs { cores }) => vec![Some(cores.clamp(1, own))],
        (Some(own), Breadth::Variants) => vec![Some(1), Some(own)],
    };
    let mut rows = vec![];
    for provider in &providers {
        for threads in &threads {
            let threads = threads.map(|n| (THREADS.to_owned(), Some(n.to_string())));
            rows.push(Row {
                design: name.into(),
                provider: provider.clone(),
                runs_on: None,
                options: threads.into_iter().collect(),
                role: Role::Plain,
                receive_offload: false,
                only_swept: false,
                swept_option: None,
                peer: None,
                unavailable: None,
            });
        }
    }
    rows
}

fn providers_for(design: &str) -> Vec<String> {
    let polls = design == "rio-polled";
    // Both ends of a comparison are on loopback.
    let all = Choice::ALL.iter().filter(|choice| choice.reaches_loopback());
    all.map(ToString::to_string).filter(|name| polls || !name.contains('-')).collect()
}

/// Finds out on which provider a row runs here, and whether it can.
pub(super) fn find_availability(row: &mut Row) {
    match Spec::parse(&row.spec()) {
        Ok(Spec { design, .. }) => {
            row.runs_on = Some(design.provider().into());
            row.unavailable =
                design.availability().err().map(|unavailable| unavailable.to_string());
        }
        Err(error) => row.unavailable = Some(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::udp::plan::SWEPT_OPTIONS;

    const DESIGNS: Breadth = Breadth::Designs { cores: 2 };

    #[test]
    fn every_design_of_the_library_is_a_row_and_every_row_is_understood() {
        for breadth in [DESIGNS, Breadth::Variants] {
            let rows = all(breadth);
            for design in designs() {
                let name = design.about().name;
                assert!(rows.iter().any(|row| row.design == name), "{name} is in no row");
            }
            for row in &rows {
                AnyDesign::parse(&row.spec()).unwrap_or_else(|error| panic!("{row}: {error}"));
            }
            let mut specs: Vec<String> = rows.iter().map(Row::spec).collect();
            specs.sort();
            let all = specs.len();
            specs.dedup();
            assert_eq!(specs.len(), all, "no row twice: {specs:?}");
        }
    }

    #[test]
    fn a_design_is_one_row_or_all_its_variants() {
        let rows = |breadth, design: &str| -> Vec<String> {
            let of_it = |row: &Row| row.design == design && row.role == Role::Plain;
            all(breadth).iter().filter(|row| of_it(row)).map(Row::spec).collect()
        };
        let first = Choice::Auto.resolve();
        let one = format!("rio-hybrid --provider {first} --threads 2");
        assert_eq!(rows(DESIGNS, "rio-hybrid"), [one], "as many threads as cores");
        assert_eq!(rows(Breadth::Designs { cores: 99 }, "port"), ["port --threads 8"]);
        assert_eq!(rows(Breadth::Variants, "port"), ["port --threads 1", "port --threads 8"]);
        assert_eq!(rows(Breadth::Variants, "blocking"), ["blocking"]);
        let variants = rows(Breadth::Variants, "rio-hybrid");
        for variant in ["batch --threads 1", "batch --threads 8", "uring --threads 8"] {
            let wanted = format!("rio-hybrid --provider {variant}");
            assert!(variants.contains(&wanted), "{variants:?}");
        }
    }

    #[test]
    fn the_traditional_design_is_the_shape_of_the_originals() {
        let row = traditional();
        assert_eq!(row.spec(), "port --threads 8 --armed 5000 --submit-after 1");
        assert_eq!(AnyDesign::parse(&row.spec()).unwrap(), AnyDesign::from(Port::original()));
        let asked = of_texts(&["port --submit-after 1 --armed 5000".into()]).unwrap();
        assert_eq!(asked[0].role, Role::Traditional, "however it is written");
    }

    #[test]
    fn polling_designs_try_every_form_of_polling() {
        assert!(providers_for("rio-polled").contains(&"uring-sqpoll".to_owned()));
        assert!(!providers_for("rio-event").contains(&"uring-sqpoll".to_owned()));
        assert!(providers_for("rio-event").contains(&"batch".to_owned()));
    }

    #[test]
    fn every_row_names_the_provider_it_runs_on() {
        let shown = |text: &str| of_texts(&[text.into()]).unwrap()[0].to_string();
        assert_eq!(shown("blocking"), "blocking on sockets");
        assert_eq!(shown("rio-event --provider batch"), "rio-event on batch");
        for row in all(DESIGNS) {
            let provider = row.shown_provider().unwrap_or_else(|| panic!("{row} names none"));
            assert!(row.provider.as_deref().is_none_or(|asked| asked == provider), "{row}");
        }
    }

    #[test]
    fn memory_may_be_asked_for_row_by_row() {
        let texts = ["rio-event --provider batch", "rio-event --provider batch --pages huge"];
        let rows = of_texts(&texts.map(String::from)).unwrap();
        assert_eq!(rows[1].title(), "rio-event --pages huge");
        let original = "port --threads 8 --armed 5000 --submit-after 1 --pages huge";
        assert_eq!(of_texts(&[original.into()]).unwrap()[0].role, Role::Plain);
        assert!(of_texts(&["blocking --pages giant".into()]).unwrap_err().contains("normal"));
    }

    #[test]
    fn rows_are_put_on_numbers_of_threads() {
        let start = || of_texts(&["rio-port --provider batch".into(), "epoll".into()]).unwrap();
        let mut rows = start();
        on_threads(&mut rows, &[1, 8], false, |_| false);
        let specs: Vec<String> = rows.iter().map(Row::spec).collect();
        let of = |n| format!("rio-port --provider batch --threads {n}");
        assert!(specs.contains(&of(1)) && specs.contains(&of(8)), "{specs:?}");
        assert!(!specs.contains(&"rio-port --provider batch".to_owned()), "{specs:?}");

        let mut rows = all(Breadth::Designs { cores: 1 });
        let before = rows.len();
        on_threads(&mut rows, &[1, 2, 8], true, |_| false);
        assert!(rows[..before].iter().all(|row| !row.only_swept), "the ordinary rows stay");
        assert!(rows[before..].iter().all(|row| row.only_swept));
        let ports = |row: &&Row| row.design == "rio-port";
        let threads: Vec<Option<u32>> = rows.iter().filter(ports).map(Row::threads).collect();
        assert_eq!(threads, [Some(1), Some(2), Some(8)]);
        assert!(rows[0].is_like_on_other_threads(&rows[0].on_threads(3)));
        assert_eq!(rows[0].role, Role::Traditional, "it has its own shape");

        for in_sweep in [false, true] {
            let mut rows = all(Breadth::Variants);
            on_threads(&mut rows, &[2, 8, 2], in_sweep, |_| false);
            let mut specs: Vec<String> = rows.iter().map(Row::spec).collect();
            specs.sort();
            let count = specs.len();
            specs.dedup();
            assert_eq!(specs.len(), count, "no row twice: {specs:?}");
        }
    }

    #[test]
    fn an_option_is_swept_over_where_a_design_has_it() {
        let texts =
            ["rio-hybrid --provider batch --threads 1", "rio-port --provider batch", "epoll"];
        let swept = |name: &str, asked: bool| -> Vec<String> {
            let mut rows = of_texts(&texts.map(String::from)).unwrap();
            let of = SWEPT_OPTIONS.iter().find(|of| of.name == name).unwrap();
            on_options(&mut rows, of, |_| asked);
            assert!(rows[..3].iter().all(|row| !row.only_swept));
            assert!(
                rows[3..].iter().all(|row| row.only_swept && row.swept_option == Some(of.name))
            );
            let mine =
                rows.iter().all(|row| value_of(row, of).is_some() == (row.design != "epoll"));
            assert!(mine || name == "threshold");
            rows[3..].iter().map(Row::title).collect()
        };
        let hybrid = "rio-hybrid --threads 1";
        let wanted = [64, 1000, 10_000].map(|n| format!("{hybrid} --outstanding {n}"));
        assert_eq!(swept("outstanding", false)[..3], wanted);
        let wanted = ["1 --threshold 1", "16 --threshold 10", "128 --threshold 85"];
        let wanted = wanted.map(|of| format!("{hybrid} --dequeue-max {of}"));
        assert_eq!(swept("dequeue", false)[..3], wanted, "within a dequeue");
        let wanted = [16, 128, 1000].map(|n| format!("{hybrid} --threshold {n}"));
        assert_eq!(swept("threshold", false), wanted, "the others have none");
        assert_eq!(swept("threshold", true), wanted, "it does not set it by itself");
        assert!(swept("defer", false).contains(&"rio-port --posts-per-lock 16".to_owned()));
    }

    #[test]
    fn every_ordinary_row_has_a_pair_with_receive_offload() {
        let mut rows = all(DESIGNS);
        let ordinary = rows.iter().filter(|row| row.role == Role::Plain).count();
        with_offload(&mut rows);
        let offloaded: Vec<&Row> = rows.iter().filter(|row| row.receive_offload).collect();
        assert_eq!(offloaded.len(), ordinary);
        assert!(offloaded.iter().all(|row| row.role == Role::Plain));
        assert!(offloaded[0].title().ends_with("(offload)"), "{}", offloaded[0]);
        let peer = |text| Row::parse_peer(text).unwrap();
        let mut rows = of_texts(&["rio-event --provider xdp".into()]).unwrap();
        rows.extend([peer("talks=x"), peer("derived=x {port}")]);
        with_offload(&mut rows);
        let offloaded = rows.iter().filter(|row| row.receive_offload);
        let names: Vec<&str> = offloaded.map(|row| row.design.as_str()).collect();
        assert_eq!(names, ["talks"], "those that can");
    }

    #[test]
    fn wrong_texts_are_explained() {
        let texts =
            |list: &[&str]| of_texts(&list.iter().map(|t| (*t).to_owned()).collect::<Vec<_>>());
        assert_eq!(texts(&["blocking", "blocking --threads 2"]).unwrap().len(), 2);
        assert!(texts(&["nonsense"]).unwrap_err().contains("blocking"), "the names there are");
        assert!(texts(&["blocking --threads 0"]).unwrap_err().contains("1 to 256"));
        assert!(texts(&["blocking", "blocking"]).unwrap_err().contains("twice"));
    }
}
