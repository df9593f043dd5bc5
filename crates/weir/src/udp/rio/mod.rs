//! Designs on registered I/O. What all do stands in [`engine`].

mod engine;
mod return_queue;
mod rio_event;
mod rio_event_polled;
mod rio_hybrid;
mod rio_hybrid_reader;
mod rio_polled;
mod rio_port;
mod rio_reader;
mod rio_sharded;

pub use rio_event::RioEvent;
pub use rio_event_polled::RioEventPolled;
pub use rio_hybrid::RioHybrid;
pub use rio_hybrid_reader::RioHybridReader;
pub use rio_polled::RioPolled;
pub use rio_port::RioPort;
pub use rio_reader::RioReader;
pub use rio_sharded::{RioSharded, Steering};

/// A design on registered I/O, whose type has `start_on`: what it is, and whether it hands its queue from thread to
/// thread.
macro_rules! rio_design {
    (
        $Design:ident, $name:literal, $summary:literal, $origin:literal,
        hands_over: $hands_over:expr $(, parks_threads: $parks_threads:expr)?
    ) => {
        impl $crate::udp::Design for $Design {
            const ABOUT: $crate::udp::About = $crate::udp::About {
                name: $name,
                summary: $summary,
                origin: $origin,
                contract: $crate::udp::Contract::Rio,
            };

            fn start<H: $crate::udp::Handler>(
                self,
                job: $crate::udp::Job<H>,
            ) -> Result<$crate::udp::Running<H>, $crate::Error> {
                $crate::rio::with_provider!(self.provider, |provider| self.start_on(job, provider))
            }

            fn resolve(&mut self) {
                self.provider = self.provider.resolve();
            }

            fn provider(&self) -> &'static str {
                self.provider.about().name
            }

            fn hands_over(&self) -> bool {
                let hands_over: fn(&Self) -> bool = $hands_over;
                hands_over(self)
            }

            $(fn parks_threads(&self) -> bool {
                let parks_threads: fn(&Self) -> bool = $parks_threads;
                parks_threads(self)
            })?

            fn availability(&self) -> Result<(), $crate::Unavailable> {
                self.provider.availability_for($crate::udp::Design::hands_over(self))
            }
        }
    };
}
use rio_design;
