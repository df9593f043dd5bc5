//! What a host does while a run is made there: how busy others keep it, and what its device drops of what is sent.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use weir::counters::os::DeviceUsage;
use weir::machine::LoadMeter;

use super::own::Own;

/// What one host did, or several. What is not known is `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    /// Share (0 to 1) of all cores that others had, of the host where it was most.
    pub others: Option<f64>,
    /// Packets that the devices of generators were to send and dropped, where all tell.
    pub send_dropped: Option<u64>,
}

impl Reading {
    /// That of no host.
    pub(super) const NOTHING: Self = Self { others: None, send_dropped: Some(0) };

    /// With what other hosts did.
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            others: self.others.into_iter().chain(other.others).reduce(f64::max),
            send_dropped: self.send_dropped.zip(other.send_dropped).map(|(a, b)| a + b),
        }
    }
}

/// Measures from its beginning.
pub struct Meter {
    own: IpAddr,
    load: LoadMeter,
    device: Option<DeviceUsage>,
}

impl Meter {
    /// Begins, at the host that has this address.
    pub fn begin(own: IpAddr) -> Self {
        Self { own, load: LoadMeter::start(), device: DeviceUsage::having(&[own]) }
    }

    /// What was done since, as far as this rank tells of it. The host's own children had so much CPU time, in ns.
    pub(super) fn read(&mut self, own: &Own, cpu_ns: u64) -> Reading {
        let others = self.load.read(cpu_ns).others.filter(|_| own.tells_of_host);
        let send_dropped = match own.tells_of_device {
            true => DeviceUsage::having(&[self.own])
                .zip(self.device)
                .and_then(|(now, then)| now.since(&then).send_dropped),
            // Another rank says it.
            false => Some(0),
        };
        Reading { others, send_dropped }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_hosts_the_busiest_counts_and_what_one_does_not_tell_is_not_known() {
        let of = |others, send_dropped| Reading { others, send_dropped };
        assert_eq!(of(Some(0.2), Some(3)).and(of(None, Some(4))), of(Some(0.2), Some(7)));
        assert_eq!(of(Some(0.2), Some(3)).and(of(Some(0.5), None)), of(Some(0.5), None));
    }
}
