//! The table of what receive offload brings under a load.

use crate::report::columns::ratio;
use crate::report::layout::{figures, table_of_width};
use crate::report::number::{microseconds, or_unknown, si};
use crate::udp::offload::{Gain, of_load};
use crate::udp::results::Results;

/// The table; `None` where no design was ranked both with and without.
pub(super) fn table(results: &Results, load: usize, width: usize) -> Option<String> {
    let gains = of_load(results, load).filter(|gains| !gains.designs.is_empty())?;
    let metric = results.ranked_by(load);
    let text = |value| match results.loads[load].is_paced() {
        true => format!("{} µs", microseconds(value)),
        false => si(value),
    };
    let figure = |row: usize| {
        let estimate = results.cells[load][row].estimate(metric, results.seed);
        or_unknown(estimate.map(|estimate| estimate.median), text)
    };
    let mut table = table_of_width(width);
    table.set_header(["receive offload", "with", "without", "ratio", "of"]);
    let mut add = |what: &str, gain: &Gain| {
        let name = |row: usize| results.rows[row].to_string();
        let of = match what {
            "" => name(gain.plain),
            _ => format!("{} / {}", name(gain.offloaded), name(gain.plain)),
        };
        let what = if what.is_empty() { "each design" } else { what };
        table.add_row([
            what.to_owned(),
            figure(gain.offloaded),
            figure(gain.plain),
            ratio(&gain.ratio, |ratio| ratio),
            of,
        ]);
    };
    gains.designs.iter().for_each(|gain| add("", gain));
    if let Some(best) = &gains.best {
        add("best with / best without", best);
    }
    if let Some(traditional) = &gains.to_traditional {
        add("best with / original", traditional);
    }
    Some(format!("\n{}\n", figures(table, &[4])))
}
