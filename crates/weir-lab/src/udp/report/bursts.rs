//! The tables of bursts: what each row takes, and what it had to take it with.

use serde_json::{Value, json};

use crate::report::conclusion::short_name;
use crate::report::layout::{figures, paragraph, table_of_width};
use crate::report::number::{UNKNOWN, or_unknown, percent_of_100, si};
use crate::report::words::{list, shortened};
use crate::udp::bursts::{self, Bursts};
use crate::udp::plan::Held;
use crate::udp::results::Results;
use crate::udp::sample::{LOCKED, REGISTERED, SOCKET_BUFFER, TAKEN};

/// The server's setting that says what its receive buffers have room for.
const ROOM: &str = "receive-buffer";

/// One table for each thing that the server does meanwhile; empty if there was no burst.
pub(super) fn tables(results: &Results, width: usize) -> String {
    let all = bursts::all(results);
    let mut text: String = all.iter().map(|of| table(results, of, width)).collect();
    if all.is_empty() {
        return text;
    }
    paragraph(
        &mut text,
        "all: everything that was sent, in every round. registered, locked: memory that the server may receive \
         into, and the part of it that was there and locked before anything came. socket's buffer: of each socket, \
         as the system reports it.",
        width,
    );
    if let Some(words) = not_held(results, &all) {
        paragraph(&mut text, &words, width);
    }
    for (room, rows) in rooms(results) {
        paragraph(&mut text, &format!("Receive buffer, {room}: {}.", list(&rows)), width);
    }
    text
}

/// The rows that could not take part where servers were held.
fn not_held(results: &Results, all: &[Bursts]) -> Option<String> {
    let peers = results.rows.iter().filter(|row| row.peer.is_some()).map(ToString::to_string);
    let peers: Vec<String> = peers.collect();
    let any_held = all.iter().any(|of| of.held != Held::No);
    (any_held && !peers.is_empty()).then(|| {
        format!(
            "No figures where a server is held: {}. Only weir's own servers can be.",
            list(&peers)
        )
    })
}

fn table(results: &Results, bursts: &Bursts, width: usize) -> String {
    let largest = bursts.loads.len() - 1;
    let mut table = table_of_width(width);
    let sizes = bursts.datagrams(results);
    let heading = sizes.iter().map(|datagrams| format!("{} at once", si(*datagrams as f64)));
    let memory = ["registered", "locked", "socket's buffer"].map(String::from);
    table.set_header(std::iter::once(String::new()).chain(heading).chain(memory));
    for &row in &bursts.rows {
        let taken = (0..bursts.loads.len()).map(|at| match bursts.taken(results, at, row) {
            None => UNKNOWN.into(),
            Some(taken) if taken.all => "all".into(),
            Some(taken) => percent_of_100(taken.percent),
        });
        let memory = [&REGISTERED, &LOCKED, &SOCKET_BUFFER].map(|metric| {
            or_unknown(results.median(bursts.loads[largest], row, metric), metric.text)
        });
        let name = std::iter::once(results.rows[row].to_string());
        table.add_row(name.chain(taken).chain(memory));
    }
    let conditions = results.loads[bursts.loads[0]].conditions();
    let title = format!("share of a burst that is taken by {}, {conditions}", bursts.held.said());
    format!("\n{title}\n\n{}\n\n", figures(table, &[]))
}

/// What each receive buffer has room for, and the rows of which that is so.
fn rooms(results: &Results) -> Vec<(String, Vec<String>)> {
    let mut rooms: Vec<(String, Vec<String>)> = vec![];
    for (row, of) in results.rows.iter().enumerate() {
        let samples = || results.cells.iter().flat_map(|cells| &cells[row].samples);
        let Some(room) = samples().find_map(|sample| sample.settings.get(ROOM)) else { continue };
        let name = of.to_string();
        match rooms.iter_mut().find(|(known, _)| known == room) {
            Some((_, rows)) if rows.contains(&name) => {}
            Some((_, rows)) => rows.push(name),
            None => rooms.push((room.clone(), vec![name])),
        }
    }
    rooms
}

/// What was taken of the largest burst under each thing that the server did meanwhile.
struct Largest {
    held: Held,
    datagrams: u64,
    /// The rows that took all of it in every round.
    all: Vec<usize>,
    /// The others, those first that took most, and how many percent.
    parts: Vec<(usize, f64)>,
}

fn largest(results: &Results) -> impl Iterator<Item = Largest> {
    bursts::all(results).into_iter().map(|of| {
        let last = of.loads.len() - 1;
        let (mut all, mut parts) = (vec![], vec![]);
        for &row in &of.rows {
            match of.taken(results, last, row) {
                Some(taken) if taken.all => all.push(row),
                Some(taken) => parts.push((row, taken.percent)),
                None => {}
            }
        }
        Largest { held: of.held, datagrams: of.datagrams(results)[last], all, parts }
    })
}

impl Largest {
    /// In a sentence, where rows are called as `name` and `shorten` says.
    fn sentence(
        &self,
        name: impl Fn(usize) -> String,
        shorten: impl Fn(Vec<String>) -> Vec<String>,
    ) -> Option<String> {
        let parts = self.parts.iter();
        let parts = parts.map(|(row, of)| format!("{} {}", name(*row), percent_of_100(*of)));
        let list = |names: Vec<String>| list(&shorten(names));
        let (all, parts) = (self.all.iter().copied().map(&name).collect(), parts.collect());
        let what = format!("Of {} at once, {}", self.datagrams, self.held.said());
        Some(match (self.all.is_empty(), self.parts.is_empty()) {
            (true, true) => return None,
            (false, true) => format!("{what} took all with every design."),
            (true, false) => format!("{what} took all with no design: {}.", list(parts)),
            (false, false) => format!("{what} took all with {}; with {}.", list(all), list(parts)),
        })
    }
}

/// What takes a burst, in words: under each thing that the server does, the largest burst.
pub(super) fn answers(results: &Results) -> Vec<String> {
    largest(results)
        .filter_map(|of| of.sentence(|row| results.rows[row].to_string(), |all| all))
        .collect()
}

/// The answer, where bursts were measured: what a server takes that was held until all was sent, which is what there was
/// room for; then what else was measured.
pub(super) fn conclusion(results: &Results) -> Option<(String, Vec<String>)> {
    let mut all: Vec<Largest> = largest(results).collect();
    all.sort_by_key(|of| of.held != Held::UntilSent);
    let mut said =
        all.iter().filter_map(|of| of.sentence(|row| short_name(results, row), shortened));
    let headline = said.next()?;
    Some((headline, said.collect()))
}

/// The same in the document.
pub(super) fn values(results: &Results) -> Value {
    let of = |bursts: &Bursts| {
        let largest = bursts.loads.len() - 1;
        let rows = bursts.rows.iter().map(|&row| {
            let at = |metric| results.median(bursts.loads[largest], row, metric);
            let each = |of: &dyn Fn(usize) -> Option<f64>| {
                (0..bursts.loads.len()).map(of).collect::<Vec<_>>()
            };
            json!({
                "spec": results.rows[row].spec(),
                "name": results.rows[row].to_string(),
                "provider": results.rows[row].shown_provider(),
                "taken": each(&|place| results.median(bursts.loads[place], row, &TAKEN)),
                "taken_percent":
                    each(&|place| bursts.taken(results, place, row).map(|taken| taken.percent)),
                "registered_bytes": at(&REGISTERED),
                "locked_bytes": at(&LOCKED),
                "receive_buffer_bytes": at(&SOCKET_BUFFER),
            })
        });
        json!({
            "held": bursts.held.to_string(),
            "load": super::json::load_value(&results.loads[bursts.loads[largest]]),
            "datagrams": bursts.datagrams(results),
            "rows": rows.collect::<Vec<_>>(),
        })
    };
    bursts::all(results).iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::plan::Row;
    use crate::udp::plan::{Load, Rate};
    use crate::udp::report::fixture;

    #[test]
    fn a_row_that_cannot_be_held_says_so() {
        let mut results = fixture::results();
        let of = |held| Load::saturation(64).at(Rate::Burst { datagrams: 70, held });
        results.loads = vec![of(Held::UntilSent)];
        results.cells.truncate(1);
        assert!(!tables(&results, 100).contains("No figures"));
        results.rows[1] = Row::parse_peer("talks=x").unwrap();
        let said = tables(&results, 100);
        assert!(said.contains("where a server is held: talks"), "{said}");
        results.loads = vec![of(Held::No)];
        assert!(!tables(&results, 100).contains("No figures"));
    }

    #[test]
    fn the_answer_is_what_a_held_server_had_room_for() {
        let mut results = fixture::results();
        assert_eq!(conclusion(&results), None);
        let of = |held| Load::saturation(64).at(Rate::Burst { datagrams: 70, held });
        results.loads = vec![of(Held::No), of(Held::UntilSent)];
        let cells = results.cells[0].clone();
        results.cells = vec![cells.clone(), cells];
        let (headline, others) = conclusion(&results).unwrap();
        assert!(
            headline.starts_with("Of 70 at once, a server held until all is sent took all"),
            "{headline}"
        );
        assert!(others[0].starts_with("Of 70 at once, an idle server took all"), "{others:?}");
        assert_eq!(others.len(), 1);
        // Who could have taken all and who did are named in both.
        let named =
            |said: &str| results.rows.iter().filter(|row| said.contains(&row.design)).count();
        assert!(named(&headline) > 1, "{headline}");
    }
}
