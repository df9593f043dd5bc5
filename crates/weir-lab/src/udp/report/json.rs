//! What the document says of a comparison of UDP alone.

use serde_json::{Value, json};
use weir::socket::ReceiveBuffer;
use weir_load::engine::has_offload;
use weir_load::pacing::Arrivals;

use crate::experiment::plan::Role;
use crate::report::document::{difference, estimate, with};
use crate::udp::crossing::{Axis, Sweep, over_options, over_threads, over_work};
use crate::udp::curve::{Highest, highest, points};
use crate::udp::offload::{Gain, of_load as gains_of};
use crate::udp::plan::line_rate::wire_bytes;
use crate::udp::plan::{Goal, LinkShare, Load, Rate, ReplyOffload, Shown};
use crate::udp::report::published::PUBLISHED;
use crate::udp::report::{is_beside_published, link};
use crate::udp::results::Results;
use crate::udp::sample::Cell;
use crate::udp::sample::RECEIVE_BUFFER;

/// What a load has besides.
pub(super) fn of_load(results: &Results, index: usize) -> Value {
    let load = &results.loads[index];
    json!({
        "shown": match load.shown {
            Shown::Table => "table",
            Shown::Step => "step of a sweep",
        },
        "receiving_threads_on_frames": link::saving(results, index).map(|saving| json!({
            "frames": results.rows[saving.frames].spec(),
            "sockets": results.rows[saving.sockets].spec(),
            "frames_cpu_ns_per_datagram": saving.cpu_ns[0],
            "sockets_cpu_ns_per_datagram": saving.cpu_ns[1],
            "ratio": saving.ratio.map(|ratio| estimate(Some(ratio))),
        })),
        "published": match is_beside_published(load) {
            true => published(results, index),
            false => Value::Null,
        },
    })
}

/// The first group stands in the load itself, and rows with receive offload beside it apart.
pub(super) fn groups(results: &Results, load: usize, groups: Vec<Value>) -> Value {
    let mut groups = groups.into_iter();
    let main = groups.next().unwrap_or_else(|| json!({}));
    let offloaded =
        groups.next().map(|group| with(group, json!({ "gains": gains(results, load) })));
    with(main, json!({ "receive_offload": offloaded }))
}

/// What a row under a load has besides.
pub(super) fn of_row(results: &Results, load: usize, index: usize) -> Value {
    let row = &results.rows[index];
    let cell = &results.cells[load][index];
    json!({
        "peer": row.peer.as_ref().map(|peer| json!({
            "command": peer.command.to_string(),
            "derived": peer.is_derived(),
            "head": peer.head.to_string(),
            "claimed": results.claimed(load, index),
        })),
        "load": as_obtained(&results.load_of(load, index), cell),
        "ledger": cell.ledger().map(|ledger| {
            json!({
                "unexplained": ledger.unexplained(),
                "lost_place_unknown": ledger.lost_place_unknown(),
                "counts": ledger,
            })
        }),
        "replies": cell.replies().map(|replies| {
            json!({ "unexplained": replies.unexplained(), "counts": replies })
        }),
    })
}

/// The load with what was obtained: send offload may have been refused, and a receive buffer
/// that nobody asked for has the system's size.
fn as_obtained(load: &Load, cell: &Cell) -> Value {
    let sample = cell.samples.last();
    let engine = sample.and_then(|sample| sample.engine.as_deref());
    let obtained: Option<u64> =
        sample.and_then(|sample| sample.settings.get(RECEIVE_BUFFER)?.parse().ok());
    let load = Load {
        // An engine that hands over several datagrams with one call to the network stack, or goes past it.
        send_offload: engine.map_or(load.send_offload, |engine| {
            has_offload(engine) || engine == crate::udp::link::ENGINE
        }),
        ..*load
    };
    let value = load_value(&load);
    match obtained {
        Some(bytes) => with(value, json!({ "rcvbuf_bytes": bytes })),
        None => value,
    }
}

pub(super) fn load_value(load: &Load) -> Value {
    // What documents of earlier versions do not have is left out where it is as it was then.
    let mut more = json!({});
    if load.rcvbuf == ReceiveBuffer::Outstanding {
        more["rcvbuf"] = json!(load.rcvbuf.to_string());
    }
    if load.arrivals != Arrivals::Even && load.is_paced() {
        more["arrivals"] = json!(load.arrivals.name());
    }
    if let Some((datagrams, held)) = load.burst() {
        more["burst"] = json!({ "datagrams": datagrams, "held": held.to_string() });
    }
    if let Rate::OfLink(LinkShare { share, bits_per_s }) = load.rate {
        more["link"] = json!({
            "share": share,
            "bits_per_s": bits_per_s,
            "wire_bytes": wire_bytes(load.size_bytes),
        });
    }
    let asked = json!({
        "kind": match (load.burst(), load.is_paced(), load.replies) {
            (Some(_), _, _) => "burst",
            (None, true, _) => "paced",
            (None, false, None) => "saturation",
            (None, false, Some(_)) => "closed_loop",
        },
        "offered_per_s": load.offered_per_s(),
        "share_of_maximum": match load.rate {
            Rate::OfMaximum(share) => Some(share),
            _ => None,
        },
        "share_of_partial_drop_rate": match load.rate {
            Rate::OfPartialDrop(share) => Some(share),
            _ => None,
        },
        "search": match load.rate {
            Rate::Search { goal, step } => json!({ "goal": goal_word(goal), "step": step }),
            _ => Value::Null,
        },
        "size_bytes": load.size_bytes,
        "replies": load.replies.map(|replies| json!({
            "outstanding": (!load.is_paced()).then_some(replies.outstanding),
            "size_bytes": replies.size_bytes.unwrap_or(load.size_bytes),
            "offload": match replies.offload {
                ReplyOffload::On => "on",
                ReplyOffload::WithReceive => "with_receive",
                ReplyOffload::Off => "off",
            },
        })),
        "work": load.work.steps,
        "work_shared": load.work.shared,
        "ports": load.ports,
        "flows": load.flows,
        "generators": load.generators,
        "receive_offload": load.receive_offload,
        "send_offload": load.send_offload,
        "rcvbuf_bytes": match load.rcvbuf {
            ReceiveBuffer::Bytes(bytes) => Some(bytes),
            _ => None,
        },
        "busy_poll_us": load.busy_poll_us,
    });
    with(asked, more)
}

/// A goal in the document.
pub(super) fn goal_word(goal: Goal) -> &'static str {
    match goal {
        Goal::NoDrop => "no_drop",
        Goal::PartialDrop => "partial_drop",
    }
}

fn published(results: &Results, load: usize) -> Value {
    if !results.is_like_published(load) {
        return Value::Array(vec![]);
    }
    let ranking = results.main_ranking(load);
    let figures = PUBLISHED.iter().map(|figure| {
        let measured = figure.measured(results, &ranking);
        json!({
            "test": figure.test,
            "received_per_s": figure.received_per_s,
            "link_percent": figure.link_percent,
            "ratio_to_traditional": figure.ratio(),
            "threads": figure.threads,
            "measured_row": measured.row.map(|row| results.rows[row].spec()),
            "measured_ratio_to_traditional":
                measured.ratio.and_then(|ratio| ratio.ratio()).map(|ratio| ratio.median),
            "not_compared": measured.why_not,
        })
    });
    Value::Array(figures.collect())
}

/// What receive offload brings under a load.
fn gains(results: &Results, load: usize) -> Value {
    let Some(gains) = gains_of(results, load) else { return Value::Null };
    let value = |gain: &Gain| {
        json!({
            "with": results.rows[gain.offloaded].spec(),
            "without": results.rows[gain.plain].spec(),
            "ratio": difference(gain.ratio),
        })
    };
    json!({
        "designs": gains.designs.iter().map(value).collect::<Vec<_>>(),
        "best_with_to_best_without": gains.best.as_ref().map(value),
        "best_with_to_traditional": gains.to_traditional.as_ref().map(value),
    })
}

/// Everything that was swept.
pub(super) fn sweeps(results: &Results) -> Value {
    let along = |sweeps: Vec<Sweep>| sweeps.iter().map(|s| along(results, s)).collect::<Vec<_>>();
    let swept = json!({
        "work": along(over_work(results)),
        "threads": along(over_threads(results)),
        "load": under_load(results),
    });
    match along(over_options(results)) {
        options if options.is_empty() => swept,
        options => with(swept, json!({ "options": options })),
    }
}

fn along(results: &Results, sweep: &Sweep) -> Value {
    let designs = 0..sweep.names.len();
    let stops = sweep.stops.iter().enumerate().map(|(index, stop)| {
        json!({
            "at": stop.at,
            "received_per_s": designs
                .clone()
                .map(|design| sweep.median(results, index, design))
                .collect::<Vec<_>>(),
        })
    });
    let crossings = sweep.crossings(results).into_iter().map(|crossing| {
        json!({
            "before": sweep.names[crossing.before],
            "after": sweep.names[crossing.after],
            "between": [crossing.between.0, crossing.between.1],
            "at": crossing.at,
            "verdict": if crossing.real { "real" } else { "within the noise" },
        })
    });
    json!({
        "axis": match sweep.axis {
            Axis::Work { .. } => "work",
            Axis::Threads { .. } => "threads",
            Axis::Option { of, .. } => of.name,
        },
        "work_shared": match sweep.axis {
            Axis::Work { shared } => Some(shared),
            Axis::Threads { .. } | Axis::Option { .. } => None,
        },
        "load": match sweep.axis {
            Axis::Work { .. } => Value::Null,
            Axis::Threads { load } | Axis::Option { load, .. } => load_value(&results.loads[load]),
        },
        "designs": sweep.names,
        "stops": stops.collect::<Vec<_>>(),
        "crossings": crossings.collect::<Vec<_>>(),
    })
}

/// Each row under rising load; null if that was not swept.
fn under_load(results: &Results) -> Value {
    let searched = |load: &&Load| matches!(load.rate, Rate::Search { .. });
    let Some(like) = results.loads.iter().find(searched) else { return Value::Null };
    let rows =
        results.rows.iter().enumerate().filter(|(_, row)| !matches!(row.role, Role::Again(_)));
    let of_row = |(index, row): (usize, &crate::experiment::plan::Row)| {
        let points = points(results, like, index, results.loads.len());
        let highest = [Goal::NoDrop, Goal::PartialDrop].map(|goal| {
            let (good, bad) = match highest(&points, goal) {
                Highest::Unknown => (None, None),
                Highest::AtLeast(good) => (Some(good), None),
                Highest::Between(good, bad) => (Some(good), Some(bad)),
                Highest::Below(bad) => (None, Some(bad)),
            };
            (goal_word(goal), json!({ "highest_good_per_s": good, "lowest_bad_per_s": bad }))
        });
        let curve = points.iter().map(
            |point| json!({ "sent_per_s": point.sent_per_s, "lost_percent": point.lost * 100.0 }),
        );
        let mut value = json!({
            "spec": row.spec(),
            "provider": row.shown_provider(),
            "receive_offload": row.receive_offload,
            "points": curve.collect::<Vec<_>>(),
        });
        for (name, rates) in highest {
            value[name] = rates;
        }
        value
    };
    let rows =
        rows.map(of_row).filter(|row| row["points"].as_array().is_some_and(|p| !p.is_empty()));
    json!({ "load": load_value(like), "rows": rows.collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests;
