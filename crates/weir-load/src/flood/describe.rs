//! The effective settings of a flood, in words.

use super::{FloodSpec, generator::Obtained};
use crate::pacing::{Arrivals, Load, POISSON_LATE_INTERVALS};

/// By name, in the order in which they are shown.
pub(super) fn describe(
    spec: &FloodSpec,
    ports: &[u16],
    obtained: &Obtained,
    quantum: u32,
) -> Vec<(&'static str, String)> {
    let list = |numbers: &[String]| numbers.join(", ");
    let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
    let cores: Vec<String> = spec.cores.iter().map(usize::to_string).collect();
    let mut lines = vec![
        ("target", spec.target.to_string()),
        ("ports", if ports.is_empty() { "as the server names them".into() } else { list(&ports) }),
        ("run id", spec.run.to_string()),
        ("datagram size", format!("{} bytes of payload", spec.size_bytes)),
        (
            "head",
            match spec.head.is_empty() {
                true => "none".into(),
                false => format!("{}, in place of the stamp's first bytes", spec.head),
            },
        ),
        (
            "flows",
            match spec.generators {
                1 => spec.flows.to_string(),
                generators => format!("{} for each of {generators} generators", spec.flows),
            },
        ),
        ("cores", if cores.is_empty() { "any".into() } else { list(&cores) }),
        ("engine", obtained.engine.to_owned()),
    ];
    lines.extend(obtained.settings.iter().map(|(name, value)| (*name, value.clone())));
    lines.extend(obtained.passed_over.iter().map(|why| ("not used", why.to_string())));
    lines.push(("send buffer", format!("{} bytes", obtained.send_buffer_bytes)));
    lines.push(match spec.load {
        Load::Saturation => ("load", "saturation".into()),
        Load::Paced { datagrams_per_s } => (
            "load",
            format!(
                "{datagrams_per_s:.0} datagrams/s, {:.0} bit/s of payload{}",
                datagrams_per_s * spec.size_bytes as f64 * 8.0,
                match spec.arrivals {
                    Arrivals::Even => "",
                    Arrivals::Poisson => ", at the times of a Poisson process",
                }
            ),
        ),
    });
    lines.extend(spec.reply_bytes().zip(spec.replies).map(|(bytes, replies)| {
        let when = match spec.load {
            Load::Saturation => {
                format!("at most {} requests of each flow under way", replies.outstanding)
            }
            Load::Paced { .. } => "each request at its time".into(),
        };
        ("answers", format!("{bytes} bytes, verified; {when}"))
    }));
    lines.push(match spec.load.datagrams_per_s() {
        None => ("quantum", format!("{} a call", datagrams(quantum))),
        Some(rate) => (
            "quantum",
            {
                let interval_us = f64::from(quantum) * 1e6 * spec.generators as f64 / rate;
                match spec.arrivals {
                    Arrivals::Even => format!(
                        "{} every {interval_us:.1} µs; those that are later than that are skipped",
                        datagrams(quantum)
                    ),
                    Arrivals::Poisson => format!(
                        "{} every {interval_us:.1} µs on average; those that are {:.1} µs late are skipped",
                        datagrams(quantum),
                        POISSON_LATE_INTERVALS * interval_us
                    ),
                }
            },
        ),
    });
    lines.push(("duration", format!("at most {:?}", spec.duration)));
    if let Some(datagrams) = spec.datagrams {
        lines.push(("datagrams", datagrams.to_string()));
    }
    if !spec.warm_up.is_zero() {
        lines.push(("warm-up", format!("{:?}", spec.warm_up)));
    }
    let control = spec.control.map_or("none: loopback only".into(), |at| at.to_string());
    lines.push(("control", control));
    lines
}

/// "1 datagram", "64 datagrams".
fn datagrams(count: u32) -> String {
    match count {
        1 => "1 datagram".into(),
        _ => format!("{count} datagrams"),
    }
}
