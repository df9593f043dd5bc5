//! What generators report, and how the reports of several become one.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use weir_load::ranks::clocks::{Between, Offset};

use crate::child::ChildError;
use crate::{tcp, udp};

/// What generators do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// They flood a server of UDP.
    Udp,
    /// They load one of TCP.
    Tcp,
}

impl Kind {
    /// How one of them is called in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Udp => "the generator",
            Self::Tcp => "the client",
        }
    }
}

/// A generator, as far as what its report means depends on it.
#[derive(Debug, Clone)]
pub struct Generator {
    /// Its rank and its host, in words.
    pub place: String,
    /// Its rank.
    pub rank: usize,
    /// Its clock, as that of rank 0 sees it.
    pub clock: Offset,
    /// How much later than the first it was to begin, in ns.
    pub later_ns: u64,
    /// Its clock before and after the run, as that of the server sees it, where one-way latencies were taken.
    pub of_server: Option<Between>,
}

/// What one generator did, or several together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Reports {
    /// Of UDP.
    Udp(Box<udp::together::All>),
    /// Of TCP.
    Tcp(Box<tcp::together::All>),
}

impl Reports {
    /// What one says at its end, or before it was told to begin.
    ///
    /// # Errors
    /// If that is no report, or one of failure.
    pub fn of(
        kind: Kind,
        document: Value,
        has_begun: bool,
        of: &Generator,
    ) -> Result<Self, ChildError> {
        Ok(match kind {
            Kind::Udp => {
                let report = udp::together::report_of(document)?;
                if !has_begun {
                    return Err(ChildError::Garbage {
                        name: kind.name(),
                        what: "word that it is ready",
                        problem: "its report, before it was told to begin".into(),
                    });
                }
                let Generator { rank, clock, later_ns, of_server, .. } = *of;
                let part = udp::together::Part { rank, report, clock, later_ns, of_server };
                Self::Udp(Box::new(part.into()))
            }
            Kind::Tcp => {
                let loaded = tcp::loaded::Followed::read(document)?.with_messages()?;
                let invalid = loaded.invalid.map(|why| format!("at {}: {why}", of.place));
                let uncertainty_ns = of.clock.uncertainty_ns;
                Self::Tcp(Box::new(tcp::together::All {
                    report: loaded.report,
                    invalid,
                    uncertainty_ns,
                }))
            }
        })
    }

    /// With what others did.
    pub fn add(&mut self, others: Self) {
        match (self, others) {
            (Self::Udp(all), Self::Udp(others)) => all.add(*others),
            (Self::Tcp(all), Self::Tcp(others)) => all.add(*others),
            // Those of one order are of one kind.
            _ => {}
        }
    }

    /// CPU time of their processes in ns, as far as it is known.
    pub fn cpu_ns(&self) -> u64 {
        let known = match self {
            Self::Udp(all) => all.report.process_cpu_ns.or(all.report.cpu_ns),
            Self::Tcp(all) => all.report.process_cpu_ns,
        };
        known.unwrap_or(0)
    }
}
