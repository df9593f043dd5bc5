//! What limited a flood of datagrams.

use crate::experiment::verdict::{Limit, USED_UP, Verdict, others_had};

/// A share of the datagrams sent that may be lost before the server counts as overwhelmed.
pub const NO_LOSS: f64 = 0.001;

/// A share of the datagrams sent at saturation up to which a server only lost what came in bursts,
/// if the generator could send no more.
pub const LITTLE_LOSS: f64 = 0.05;

/// Share of its windows in which a paced generator must keep its pace: the rule by which `weir flood` says that it did not.
pub use weir_load::pacing::windows::WITHIN_MIN as PACE_KEPT;

/// A share of the datagrams offered that the system may refuse before memory counts as the
/// limit.
const REFUSED: f64 = 0.01;

/// What is known of a run when its verdict is given. Unknown values are `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Evidence {
    /// True if the generator kept to a rate.
    pub paced: bool,
    /// True if all was sent at once.
    pub burst: bool,
    /// Datagrams the generator wanted to send.
    pub offered: u64,
    /// Datagrams the system refused.
    pub refused: u64,
    /// Datagrams the generator skipped because their time had passed.
    pub late_skipped: u64,
    /// Share of the generator's windows in which it kept its pace.
    pub pace_kept: Option<f64>,
    /// Datagrams sent.
    pub sent: u64,
    /// Datagrams that reached the handler.
    pub received: u64,
    /// Datagrams dropped at the queue of a CPU, before any socket, if that can be seen.
    pub dropped_cpu_queue: Option<u64>,
    /// Whether datagrams were lost at a place that the system does not show.
    pub place_unknown: bool,
    /// Share of its cores' time that the server used.
    pub server_cpu: Option<f64>,
    /// The same, of no more cores than it has threads at work: others are no use to it.
    pub server_cpu_of_threads: Option<f64>,
    /// Share of its core's time that the generator used.
    pub generator_cpu: Option<f64>,
    /// Rate sent as a share of what the generator sends into a sink that drops.
    pub of_calibrated_maximum: Option<f64>,
    /// Share (0 to 1) of all cores that other programs had meanwhile.
    pub load_of_others: Option<f64>,
    /// What is known of the answers, where any were expected.
    pub answers: Option<OfAnswers>,
}

/// What is known of the answers of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OfAnswers {
    /// Requests that were answered, as a share (0 to 1) of those sent.
    pub share: f64,
    /// Share of its time that the generator had nothing to send and nothing to take. It spins meanwhile, so its CPU
    /// time says nothing.
    pub generator_waiting: Option<f64>,
    /// Requests that did not reach the server.
    pub requests_lost: u64,
    /// Requests that were not answered.
    pub missing: u64,
    /// Answers that were dropped at the generator's own sockets.
    pub dropped_at_generator: u64,
}

/// Share of its time that a generator must have waited for a server to be the only limit.
const WAITED: f64 = 0.05;

/// Gives the verdict where answers are expected.
///
/// At a pace it is that of any paced load. In a closed loop nothing need be lost for a limit to be met: whoever hardly
/// waits for the other is the limit. The generator's waiting is counted; the server's is what is left of its CPU time.
fn judge_answers(e: &Evidence, answers: &OfAnswers) -> Verdict {
    let percent = |share: f64| format!("{:.0} %", share * 100.0);
    let verdict = |limited_by, lower_bound, reason| Verdict { limited_by, lower_bound, reason };
    let server = e.server_cpu.filter(|cpu| *cpu >= USED_UP);
    let server_busy =
        server.map_or(String::new(), |cpu| format!(", server's cores {} busy", percent(cpu)));
    let others = others_had(e.load_of_others);
    if 1.0 - answers.share > NO_LOSS {
        let reason = format!(
            "{:.1} % not answered ({} requests lost, {} answers)",
            (1.0 - answers.share) * 100.0,
            answers.requests_lost,
            answers.missing.saturating_sub(answers.requests_lost)
        );
        // The server gave those: it was the generator that did not take them.
        if answers.dropped_at_generator > answers.missing / 2 {
            let reason = format!("{reason}, most of them dropped at the generator's sockets");
            return verdict(Limit::Generator, true, reason);
        }
        return match (server, others) {
            (None, Some(others)) => {
                verdict(Limit::Others, true, format!("{reason}, while {others}"))
            }
            _ => verdict(Limit::Server, false, reason + &server_busy),
        };
    }
    if e.paced {
        return judge_pace(e)
            .unwrap_or_else(|| verdict(Limit::Load, true, "every request was answered".into()));
    }
    let Some(waiting) = answers.generator_waiting else {
        return verdict(Limit::Unknown, true, "how long the generator waited is not known".into());
    };
    let waits = waiting >= WAITED;
    let generator = match waits {
        true => format!("the generator waited for {} of its time", percent(waiting)),
        false => format!("the generator waited for no more than {} of its time", percent(waiting)),
    };
    match (server, waits, others) {
        (Some(_), true, _) => verdict(Limit::Server, false, generator + &server_busy),
        (Some(_), false, _) => verdict(Limit::Both, true, generator + &server_busy),
        (None, false, _) => verdict(Limit::Generator, true, generator),
        (None, true, Some(others)) => {
            verdict(Limit::Others, true, format!("{generator}, while {others}"))
        }
        (None, true, None) => {
            let reason = format!(
                "{generator}, and the server's cores were not used up: more requests under way \
                 (--outstanding, -P) would bring more"
            );
            verdict(Limit::Load, true, reason)
        }
    }
}

/// The verdict on a generator that did not keep its pace; `None` if it did.
fn judge_pace(e: &Evidence) -> Option<Verdict> {
    let percent = |share: f64| format!("{:.0} %", share * 100.0);
    let late = match e.offered + e.late_skipped {
        0 => 0.0,
        all => e.late_skipped as f64 / all as f64,
    };
    let uneven = e.pace_kept.filter(|kept| *kept < PACE_KEPT);
    let reason = match uneven {
        _ if late > REFUSED => format!("the generator skipped {} as too late", percent(late)),
        Some(kept) => format!("the generator kept its pace in {} of its windows", percent(kept)),
        None => return None,
    };
    let used_up = e.generator_cpu.is_some_and(|cpu| cpu >= USED_UP);
    Some(match others_had(e.load_of_others).filter(|_| !used_up) {
        Some(others) => Verdict {
            limited_by: Limit::Others,
            lower_bound: true,
            reason: format!("{reason}, while {others}"),
        },
        None => Verdict { limited_by: Limit::Generator, lower_bound: true, reason },
    })
}

/// Gives the verdict.
///
/// Loss decides first, because it needs no threshold of CPU time and holds for designs that
/// poll: a server that lost datagrams was offered more than it took, unless it lost few of them
/// and the generator was at its end as well, or other programs had the cores that the server did not
/// use. Then what stopped the sender: memory, or the
/// generator itself. The server's CPU time comes last and proves nothing alone: one that polls is
/// always busy. Without loss every figure is a lower bound.
pub fn judge(evidence: &Evidence) -> Verdict {
    let e = evidence;
    let share = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
    let percent = |share: f64| format!("{:.0} %", share * 100.0);
    let lost = share(e.sent.saturating_sub(e.received), e.sent);
    let used_up = |value: Option<f64>| value.filter(|value| *value >= USED_UP);
    let verdict = |limited_by, lower_bound, reason| Verdict { limited_by, lower_bound, reason };

    if e.sent == 0 {
        return verdict(Limit::Unknown, true, "nothing was sent".into());
    }
    if e.burst {
        let missing = e.sent.saturating_sub(e.received);
        return match missing {
            0 => verdict(Limit::Load, false, "all of the burst was taken".into()),
            _ => {
                let reason = format!("{missing} of {} found no room", e.sent);
                verdict(Limit::Memory, false, reason)
            }
        };
    }
    if let Some(answers) = &e.answers {
        return judge_answers(e, answers);
    }
    let refused = share(e.refused, e.offered);
    let at_queue = e.dropped_cpu_queue.unwrap_or(0);
    if lost > NO_LOSS && at_queue > (e.sent.saturating_sub(e.received)) / 2 {
        // The server never had those: its figure is what the queue before it let through.
        let reason = format!(
            "{:.1} % lost, most of it at the queue of a CPU, before any socket",
            lost * 100.0
        );
        return verdict(Limit::Memory, true, reason);
    }
    if lost > NO_LOSS
        && lost <= LITTLE_LOSS
        && !e.paced
        && let Some(cpu) = used_up(e.generator_cpu)
    {
        // What the sender does for a datagram on loopback depends on who receives it: a design
        // that takes 99 % of what comes may do so because little came.
        let lost = lost * 100.0;
        let reason =
            format!("{lost:.1} % lost, while the generator's core was {} busy", percent(cpu));
        return verdict(Limit::Both, true, reason);
    }
    if lost > NO_LOSS {
        let mut reason = format!("{:.1} % lost", lost * 100.0);
        if e.place_unknown {
            reason += ", place unknown";
        }
        let others = others_had(e.load_of_others);
        let others = others.filter(|_| used_up(e.server_cpu_of_threads).is_none());
        return match (used_up(e.server_cpu), others) {
            (Some(cpu), _) => {
                reason += &format!(", server's cores {} busy", percent(cpu));
                verdict(Limit::Server, false, reason)
            }
            (None, Some(others)) => {
                verdict(Limit::Others, true, format!("{reason}, while {others}"))
            }
            (None, None) => verdict(Limit::Server, false, reason),
        };
    }
    if refused > REFUSED {
        let reason = format!("the system refused {} of what was offered", percent(refused));
        return verdict(Limit::Memory, true, reason);
    }
    if e.paced {
        return judge_pace(e).unwrap_or_else(|| {
            verdict(Limit::Load, true, "everything offered was received".into())
        });
    }
    if let Some(of_maximum) = used_up(e.of_calibrated_maximum) {
        let reason =
            format!("the generator sent {} of its calibrated maximum", percent(of_maximum));
        return verdict(Limit::Generator, true, reason);
    }
    if let Some(cpu) = used_up(e.generator_cpu) {
        return verdict(Limit::Generator, true, format!("generator's core {} busy", percent(cpu)));
    }
    if let Some(cpu) = used_up(e.server_cpu) {
        let reason = format!(
            "server's cores {} busy, as those of a busy-polling server always are, and almost nothing was \
             lost",
            percent(cpu)
        );
        return verdict(Limit::Server, true, reason);
    }
    match others_had(e.load_of_others) {
        Some(others) => verdict(Limit::Others, true, format!("nothing was lost, and {others}")),
        None => verdict(Limit::Unknown, true, "nothing was lost and neither side was busy".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn saturated() -> Evidence {
        Evidence {
            offered: 1_000_000,
            sent: 1_000_000,
            received: 1_000_000,
            server_cpu: Some(0.5),
            generator_cpu: Some(0.99),
            of_calibrated_maximum: Some(0.8),
            ..Evidence::default()
        }
    }

    fn limit(evidence: &Evidence) -> (Limit, bool) {
        let verdict = judge(evidence);
        assert!(!verdict.reason.is_empty());
        (verdict.limited_by, verdict.lower_bound)
    }

    #[test]
    fn a_server_that_loses_was_overwhelmed_whatever_its_cpu_time() {
        let lossy = Evidence { received: 900_000, ..saturated() };
        assert_eq!(limit(&lossy), (Limit::Server, false));
        assert_eq!(judge(&lossy).reason, "10.0 % lost");
        let polling = Evidence { server_cpu: Some(1.0), ..lossy };
        assert_eq!(judge(&polling).reason, "10.0 % lost, server's cores 100 % busy");
        let unseen = Evidence { place_unknown: true, ..polling };
        assert_eq!(limit(&unseen), (Limit::Server, false));
        assert_eq!(judge(&unseen).reason, "10.0 % lost, place unknown, server's cores 100 % busy");
    }

    #[test]
    fn a_burst_is_limited_by_what_has_room_for_it() {
        let all = Evidence { burst: true, ..saturated() };
        assert_eq!(limit(&all), (Limit::Load, false));
        let lossy = Evidence { received: 999_999, ..all };
        assert_eq!(limit(&lossy), (Limit::Memory, false));
        assert_eq!(judge(&lossy).reason, "1 of 1000000 found no room");
    }

    #[test]
    fn what_the_queue_of_a_cpu_dropped_is_not_the_servers_fault() {
        let lossy = Evidence { received: 900_000, dropped_cpu_queue: Some(90_000), ..saturated() };
        assert_eq!(limit(&lossy), (Limit::Memory, true));
        assert!(judge(&lossy).reason.contains("queue of a CPU"));
        let socket = Evidence { dropped_cpu_queue: Some(10_000), ..lossy };
        assert_eq!(limit(&socket), (Limit::Server, false));
    }

    #[test]
    fn who_had_the_cores_is_the_limit_and_not_the_server() {
        let busy = Evidence { load_of_others: Some(0.45), generator_cpu: Some(0.6), ..saturated() };
        let lossy = Evidence { received: 900_000, ..busy };
        assert_eq!(limit(&lossy), (Limit::Others, true));
        let said = "10.0 % lost, while other programs had 45 % of all cores";
        assert_eq!(judge(&lossy).reason, said);
        assert_eq!(limit(&busy), (Limit::Others, true));
        // It had its cores to itself, whatever others did.
        let own = Evidence { server_cpu: Some(0.99), ..lossy };
        assert_eq!(limit(&own), (Limit::Server, false));
        // One thread of it had, and has no use for the others.
        let thread = Evidence { server_cpu_of_threads: Some(0.99), ..lossy };
        assert_eq!(limit(&thread), (Limit::Server, false));
        // A little is no reason.
        let little = Evidence { load_of_others: Some(0.05), ..lossy };
        assert_eq!(limit(&little), (Limit::Server, false));
        let late = Evidence { paced: true, late_skipped: 50_000, ..busy };
        assert_eq!(limit(&late), (Limit::Others, true));
        let spinning = Evidence { generator_cpu: Some(1.0), ..late };
        assert_eq!(limit(&spinning), (Limit::Generator, true));
    }

    #[test]
    fn a_server_that_polls_and_loses_nothing_is_not_the_limit() {
        let polling = Evidence { server_cpu: Some(1.0), ..saturated() };
        assert_eq!(limit(&polling), (Limit::Generator, true));
    }

    #[test]
    fn cpu_time_of_a_server_that_loses_nothing_proves_nothing() {
        // It may poll: 100 % busy, and still the generator just below its own end is the limit.
        for generator_cpu in [0.6, 0.94] {
            let generator_cpu = Some(generator_cpu);
            let busy = Evidence { server_cpu: Some(1.0), generator_cpu, ..saturated() };
            assert_eq!(limit(&busy), (Limit::Server, true));
            assert!(judge(&busy).reason.contains("busy-polling"), "{}", judge(&busy).reason);
            let at_maximum = Evidence { of_calibrated_maximum: Some(0.97), ..busy };
            assert_eq!(limit(&at_maximum), (Limit::Generator, true));
            assert_eq!(limit(&Evidence { received: 900_000, ..busy }), (Limit::Server, false));
        }
    }

    #[test]
    fn a_generator_at_its_maximum_makes_a_lower_bound() {
        assert_eq!(limit(&saturated()), (Limit::Generator, true));
        let at_maximum =
            Evidence { generator_cpu: None, of_calibrated_maximum: Some(0.98), ..saturated() };
        assert_eq!(limit(&at_maximum), (Limit::Generator, true));
    }

    #[test]
    fn in_a_closed_loop_whoever_never_waits_is_the_limit() {
        let of = |server_cpu, waiting, share| {
            let answers = OfAnswers {
                share,
                generator_waiting: Some(waiting),
                requests_lost: 0,
                missing: ((1.0 - share) * 1e6) as u64,
                dropped_at_generator: 0,
            };
            // It spins while it waits.
            let generator_cpu = Some(1.0);
            Evidence {
                server_cpu: Some(server_cpu),
                generator_cpu,
                answers: Some(answers),
                ..saturated()
            }
        };
        assert_eq!(limit(&of(1.0, 0.4, 1.0)), (Limit::Server, false));
        assert_eq!(limit(&of(1.0, 0.01, 1.0)), (Limit::Both, true));
        assert_eq!(limit(&of(0.5, 0.01, 1.0)), (Limit::Generator, true));
        assert_eq!(limit(&of(0.5, 0.4, 1.0)), (Limit::Load, true));
        assert_eq!(limit(&of(0.5, 0.4, 0.9)), (Limit::Server, false));
        let dropped = |count| {
            let of = of(1.0, 0.4, 0.9);
            let answers = of.answers.map(|of| OfAnswers { dropped_at_generator: count, ..of });
            judge(&Evidence { answers, ..of })
        };
        assert_eq!(dropped(40_000).limited_by, Limit::Server);
        let of_generator = dropped(90_000);
        assert_eq!((of_generator.limited_by, of_generator.lower_bound), (Limit::Generator, true));
        assert!(of_generator.reason.contains("generator's sockets"), "{of_generator:?}");
        let others = Evidence { load_of_others: Some(0.9), ..of(0.5, 0.4, 1.0) };
        assert_eq!(limit(&others), (Limit::Others, true));
        let paced = Evidence { paced: true, ..of(0.5, 0.9, 1.0) };
        assert_eq!(limit(&paced), (Limit::Load, true));
        assert_eq!(limit(&Evidence { late_skipped: 50_000, ..paced }), (Limit::Generator, true));
    }

    #[test]
    fn memory_stops_the_sender() {
        let refused = Evidence { offered: 1_100_000, refused: 100_000, ..saturated() };
        assert_eq!(limit(&refused), (Limit::Memory, true));
    }

    #[test]
    fn a_paced_load_that_was_taken_limits_nothing() {
        let paced = Evidence { paced: true, generator_cpu: Some(1.0), ..saturated() };
        assert_eq!(limit(&paced), (Limit::Load, true));
        assert_eq!(limit(&Evidence { late_skipped: 50_000, ..paced }), (Limit::Generator, true));
        let uneven = Evidence { pace_kept: Some(0.9), ..paced };
        assert_eq!(limit(&uneven), (Limit::Generator, true));
        assert_eq!(limit(&Evidence { pace_kept: Some(0.995), ..paced }), (Limit::Load, true));
        assert_eq!(limit(&Evidence { received: 500_000, ..paced }), (Limit::Server, false));
    }

    #[test]
    fn what_cannot_be_seen_is_not_guessed() {
        let idle =
            Evidence { generator_cpu: Some(0.3), of_calibrated_maximum: None, ..saturated() };
        assert_eq!(limit(&idle), (Limit::Unknown, true));
        assert_eq!(limit(&Evidence::default()), (Limit::Unknown, true));
    }

    #[test]
    fn a_server_that_takes_nearly_all_of_a_busy_generator_is_not_the_only_limit() {
        let few = Evidence { received: 980_000, ..saturated() };
        let verdict = judge(&few);
        assert_eq!((verdict.limited_by, verdict.lower_bound), (Limit::Both, true));
        assert!(verdict.reason.contains("2.0 % lost"), "{}", verdict.reason);
        for server in [
            Evidence { received: 940_000, ..few },        // it lost many
            Evidence { generator_cpu: Some(0.8), ..few }, // the generator had time left
            Evidence { paced: true, pace_kept: Some(1.0), ..few },
        ] {
            assert_eq!(judge(&server).limited_by, Limit::Server, "{server:?}");
        }
    }
}
