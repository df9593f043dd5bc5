//! What the measured server does with a datagram: it audits it, works on it, and echoes it
//! if that was asked for.

use std::hint::black_box;

use weir::udp::{Datagram, Handler, Replies};
use weir_load::{audit::Auditor, clock::now_ns};

/// The handler of one thread.
pub struct Measured {
    auditor: Auditor,
    work: u32,
    random: u32,
    echo: bool,
}

impl Measured {
    /// With an auditor of its own. `work` and one steps of the generator are made for each
    /// datagram, as the originals' "workload" did.
    pub fn new(auditor: Auditor, work: u32, echo: bool) -> Self {
        Self { auditor, work, random: 1, echo }
    }
}

impl Handler for Measured {
    #[inline]
    fn on_datagram(&mut self, datagram: Datagram<'_>, replies: &mut Replies<'_>) {
        self.auditor.record(datagram.bytes, now_ns);
        for _ in 0..=self.work {
            self.random = step(self.random);
        }
        black_box(self.random);
        if self.echo {
            // A refusal is counted by the server and shown in its report.
            let _ = replies.echo();
        }
    }
}

/// One step of a linear congruential generator (the constants of Numerical Recipes).
#[inline]
fn step(random: u32) -> u32 {
    random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223)
}
