//! What `weir load tcp` prints: text, or one JSON document.

use std::time::Duration;

use serde_json::{Map, Value, json};
use weir_lab::report::number::{UNKNOWN, bytes, microseconds, or_unknown, si};
use weir_load::{
    latency::Summary,
    tcp::{Causes, EndedBy, Event, LoadReport, Progress},
};

use super::code_of_error;
use crate::{
    exit::text_of_error,
    interval::has_line,
    shown::{self, Ending, Finding},
};

type Shown = shown::Shown<LoadReport>;

/// Causes that a person is shown of each kind.
const CAUSES_SHOWN: usize = 5;

/// Shows what happened.
pub(super) fn event(shown: &mut Shown, tells_phases: bool, every: Duration, event: Event<'_>) {
    // Whoever started this may wait for it.
    let phase = |phase: Value| {
        if tells_phases {
            crate::print(&format!("{phase}\n"));
        }
    };
    match event {
        Event::Ready(settings) => shown.settings(settings),
        Event::Settled => phase(json!({ "phase": "settled" })),
        Event::Began => phase(json!({ "phase": "began" })),
        Event::Ended(at_ns) => phase(json!({ "phase": "ended", "at_ns": at_ns })),
        Event::Interval(progress) => interval(shown, &progress, every),
    }
}

/// Whether anything has come back of what was sent.
#[derive(Debug, Default)]
pub(super) struct Silence {
    sent_from_ns: Option<u64>,
    is_over: bool,
}

/// How long nothing comes back before that is told.
const SILENT_NS: u64 = 900_000_000;

impl Silence {
    /// Takes an interval, and says once what to do if nothing has come back.
    pub fn heed(&mut self, progress: &Progress) {
        if self.hints_at(progress) {
            say!(
                "nothing has come back so far; does the server echo (weir serve tcp --echo)? With a sink, use --one-way"
            );
        }
    }

    /// Whether it is told after this interval.
    pub fn hints_at(&mut self, progress: &Progress) -> bool {
        if self.is_over || progress.bytes_received > 0 {
            self.is_over = true;
            return false;
        }
        if progress.bytes_sent > 0 && self.sent_from_ns.is_none() {
            self.sent_from_ns = Some(progress.from_ns);
        }
        self.is_over =
            self.sent_from_ns.is_some_and(|from_ns| progress.to_ns >= from_ns + SILENT_NS);
        self.is_over
    }
}

fn interval(shown: &mut Shown, progress: &Progress, every: Duration) {
    let (from_s, to_s) = (progress.from_ns as f64 / 1e9, progress.to_ns as f64 / 1e9);
    let per_s = |count: u64| count as f64 / (to_s - from_s);
    let head = "\n  from    to s  attempted  connected     open  messages/s Mbit/s sent  received";
    let line = format!(
        "{from_s:>6.1} {to_s:>7.1} {:>10} {:>10} {:>8} {:>11.0} {:>11.1} {:>9.1}",
        progress.attempted,
        progress.connected,
        progress.open,
        per_s(progress.messages),
        per_s(progress.bytes_sent) * 8.0 / 1e6,
        per_s(progress.bytes_received) * 8.0 / 1e6,
    );
    let has_line = has_line(progress.from_ns, progress.to_ns, every);
    shown.interval(head, has_line.then_some(line.as_str()), *progress);
}

impl Finding for LoadReport {
    const COMMAND: &'static str = "weir load tcp";

    const SETTINGS: &[&str] =
        &["target", "connections", "message bytes", "loop", "engine", "duration", "ranks"];

    type Interval = Progress;

    fn ending(&self) -> Ending {
        match (self.invalid(), &self.failure) {
            (Some(reason), _) => Ending::Invalid(reason),
            (None, Some(reason)) => Ending::Failed(reason.clone()),
            (None, None) => Ending::Ok,
        }
    }

    fn asked_to_end(&self) -> Option<String> {
        let seconds = self.elapsed_ns as f64 / 1e9;
        (self.ended_by == EndedBy::Asked).then(|| match self.window {
            None => format!("after {seconds:.1} s, before anything was measured"),
            Some(_) => format!("after {seconds:.1} s"),
        })
    }

    fn error(error: &anyhow::Error) -> (String, u8) {
        (text_of_error(error), code_of_error(error))
    }

    fn print(&self, shown: &Shown) {
        let counts = &self.counts;
        shown.say("");
        shown.tell("attempted", counts.attempted);
        shown.tell("connected", counts.connected);
        for (name, count) in [
            ("not attempted", self.not_attempted),
            ("refused", counts.refused),
            ("timed out", counts.timed_out),
            ("failed to connect", counts.connect_failed),
            ("unfinished", counts.unfinished),
            ("refused by server", counts.refused_by_server),
            ("reset", counts.reset),
            ("broken", counts.broken),
            ("ended by server", counts.ended_by_server),
            ("ended with a loss", counts.truncated),
            ("wrong bytes on", counts.wrong),
            ("gave no answer", counts.unanswered),
            ("cut off", counts.cut_off),
            ("left open", counts.left_open),
        ] {
            if count > 0 {
                shown.tell(name, count);
            }
        }
        causes(shown, "error", &self.errors);
        causes(shown, "the server said", &self.refusals);
        if let (Some(rate), Some(ns)) = (self.connects_per_s, self.connecting_ns) {
            let text = format!("{} connections/s, for {:.3} s", si(rate), ns as f64 / 1e9);
            shown.tell("connecting", text);
        }
        if let Some(connect) = &self.connect_ns {
            shown.tell("time to connect", latency(connect));
        }
        shown.tell("engine", &self.engine);
        if self.source_addresses > 1 {
            shown.tell("source addresses", self.source_addresses);
        }
        if let Some(holds) = &self.holds {
            let known = |bytes_of: Option<u64>| or_unknown(bytes_of.map(|n| n as f64), bytes);
            let sockets = holds.sockets.map_or(UNKNOWN.into(), |n| n.to_string());
            shown.tell("memory", known(holds.resident_bytes));
            let text = format!("{} in the buffers of {sockets} sockets", known(holds.socket_bytes));
            shown.tell("kernel", text);
        }
        shown.tell(
            "messages",
            format!("{} sent, {} completed", counts.messages_sent, counts.messages_over),
        );
        if self.messages_unanswered > 0 {
            shown.tell("unanswered", self.messages_unanswered);
        }
        if self.messages_due_unsent > 0 {
            shown.tell("due and not sent", self.messages_due_unsent);
        }
        shown.tell("elapsed", format!("{:.3} s: {}", self.elapsed_ns as f64 / 1e9, self.ended_by));
        if let Some(window) = &self.window {
            let seconds = window.elapsed_ns as f64 / 1e9;
            shown.tell("measured", format!("{seconds:.3} s, {} messages", window.messages));
            shown.tell("rate", format!("{:.0} messages/s", window.messages_per_s));
            shown.tell(
                "throughput",
                format!(
                    "{:.1} Mbit/s sent, {:.1} received, of payload",
                    window.bits_per_second_sent / 1e6,
                    window.bits_per_second_received / 1e6
                ),
            );
            if let Some(ns) = window.cpu_ns_per_message {
                shown.tell("CPU of the load", format!("{ns:.0} ns per message"));
            }
        }
        if let Some(summary) = &self.latency_ns {
            shown.tell("latency", latency(summary));
        }
        if let Some(summary) = &self.send_delay_ns {
            shown.tell("sent late by", latency(summary));
        }
        if let Some(ranks) = &self.ranks {
            let head = format!(
                "{:>11} {:>9} {:>12} {:>12}",
                "connections", "failed", "messages", "messages/s"
            );
            shown::ranks(shown, ranks, &head, |it| {
                format!(
                    "{:>11} {:>9} {:>12} {:>12.0}",
                    it.connected, it.failed, it.messages, it.messages_per_s
                )
            });
        }
    }

    fn interval(interval: &Progress) -> serde_json::Result<Value> {
        serde_json::to_value(interval)
    }

    fn fields(found: Option<&Self>) -> anyhow::Result<Map<String, Value>> {
        let mut fields = Map::new();
        fields.insert("report".into(), serde_json::to_value(found)?);
        Ok(fields)
    }
}

fn causes(shown: &Shown, name: &str, causes: &Causes) {
    for (cause, count) in causes.by_count().into_iter().take(CAUSES_SHOWN) {
        shown.tell(name, format!("{count}: {cause}"));
    }
}

fn latency(summary: &Summary) -> String {
    shown::latency(summary, |ns| microseconds(ns as f64))
}
