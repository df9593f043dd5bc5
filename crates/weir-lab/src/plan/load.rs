//! What the generator does to a server: the load.

use super::Work;
use std::fmt;

/// How many datagrams are offered.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Rate {
    /// As many as the generator can send.
    Saturation,
    /// Evenly paced, so many a second.
    PerSecond(u64),
    /// Evenly paced at a share (0 to 1) of what this row received at saturation.
    OfMaximum(f64),
}

/// One load. Rows are compared only under the same one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Load {
    /// How many datagrams are offered.
    pub rate: Rate,
    /// Payload of a datagram in bytes.
    pub size_bytes: u32,
    /// What the handler does with each.
    pub work: Work,
    /// How many ports the server listens on.
    pub ports: u16,
    /// How many flows (source ports) the generator sends from.
    pub flows: u16,
    /// Whether the server asks the kernel to hand it several datagrams as one.
    pub receive_offload: bool,
    /// Whether the generator hands the kernel several datagrams as one.
    pub send_offload: bool,
    /// Receive buffer asked for each of the server's sockets in bytes; `None` leaves the
    /// system's default.
    pub rcvbuf_bytes: Option<u64>,
    /// For how long the server's sockets poll their device's queue before they wait, in microseconds;
    /// `None` leaves it off.
    pub busy_poll_us: Option<u64>,
}

impl Load {
    /// Saturation with datagrams of that size: one port, one flow, no work, send offload.
    pub fn saturation(size_bytes: u32) -> Self {
        Self {
            rate: Rate::Saturation,
            size_bytes,
            work: Work::default(),
            ports: 1,
            flows: 1,
            receive_offload: false,
            send_offload: true,
            rcvbuf_bytes: None,
            busy_poll_us: None,
        }
    }

    /// The same load at another rate.
    pub fn at(self, rate: Rate) -> Self {
        Self { rate, ..self }
    }

    /// True unless the generator sends as fast as it can.
    pub fn is_paced(&self) -> bool {
        self.rate != Rate::Saturation
    }

    /// Datagrams per second to ask of the generator; `None` means as many as it can.
    /// `maximum` is what the row received at saturation; a share of an unknown maximum
    /// cannot be asked for.
    pub fn per_second(&self, maximum: Option<f64>) -> Result<Option<u64>, UnknownMaximum> {
        match self.rate {
            Rate::Saturation => Ok(None),
            Rate::PerSecond(rate) => Ok(Some(rate)),
            Rate::OfMaximum(share) => {
                maximum.map(|m| Some((m * share).round().max(1.0) as u64)).ok_or(UnknownMaximum)
            }
        }
    }
}

/// A share of a row's maximum was asked for, but the row has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("its maximum is not known, because none of its runs at saturation succeeded")]
pub struct UnknownMaximum;

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rate {
            Rate::Saturation => write!(f, "saturation")?,
            Rate::PerSecond(rate) => write!(f, "paced at {rate}/s")?,
            Rate::OfMaximum(share) => {
                write!(f, "paced at {:.0} % of each row's maximum", share * 100.0)?;
            }
        }
        write!(f, ", {} B", self.size_bytes)?;
        if !self.work.is_none() {
            write!(f, ", work {}", self.work)?;
        }
        if self.receive_offload {
            write!(f, ", receive offload")?;
        }
        if let Some(us) = self.busy_poll_us {
            write!(f, ", busy polling {us} µs")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_asked_of_the_generator() {
        let load = Load::saturation(64);
        assert_eq!(load.per_second(None), Ok(None));
        assert_eq!(load.at(Rate::PerSecond(50_000)).per_second(None), Ok(Some(50_000)));
        assert_eq!(load.at(Rate::OfMaximum(0.75)).per_second(Some(1e6)), Ok(Some(750_000)));
        assert_eq!(load.at(Rate::OfMaximum(0.75)).per_second(None), Err(UnknownMaximum));
        assert_eq!(load.at(Rate::OfMaximum(0.1)).per_second(Some(0.0)), Ok(Some(1)));
    }

    #[test]
    fn a_load_says_what_it_is() {
        assert_eq!(Load::saturation(64).to_string(), "saturation, 64 B");
        let work = Work { steps: 500, shared: false };
        let load = Load { work, receive_offload: true, ..Load::saturation(1024) };
        assert_eq!(
            load.at(Rate::OfMaximum(0.75)).to_string(),
            "paced at 75 % of each row's maximum, 1024 B, work 500, receive offload"
        );
        let polled = Load { busy_poll_us: Some(50), ..Load::saturation(64) };
        assert_eq!(polled.to_string(), "saturation, 64 B, busy polling 50 µs");
    }
}
