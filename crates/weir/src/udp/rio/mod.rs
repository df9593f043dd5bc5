//! Designs on registered I/O. What all do stands in [`engine`].

mod engine;
mod gathered;
mod return_queue;
mod rio_event;
mod rio_event_polled;
mod rio_hybrid;
mod rio_hybrid_reader;
mod rio_polled;
mod rio_port;
mod rio_reader;
mod rio_sharded;
mod spin;

pub use return_queue::reader;
pub use rio_event::RioEvent;
pub use rio_event_polled::RioEventPolled;
pub use rio_hybrid::{RioHybrid, Turning, after};
pub use rio_hybrid_reader::RioHybridReader;
pub use rio_polled::RioPolled;
pub use rio_port::RioPort;
pub use rio_reader::RioReader;
pub use rio_sharded::{RioSharded, Steering, receives_of_shard};

/// A design on registered I/O, whose type has `start_on`: it runs on the provider that its options name.
macro_rules! rio_design {
    (
        $Design:ident $name:literal;
        summary: $summary:literal;
        origin: $origin:literal;
        $($rest:tt)*
    ) => {
        $crate::design::design! {
            udp::$Design $name, Rio;
            summary: $summary;
            origin: $origin;
            $($rest)*
            provider: |design| design.provider.about().name;
            availability: |design| {
                design.provider.availability_for($crate::udp::Design::hands_over(design))
            };
            resolve: |design| design.provider = design.provider.resolve();
        }

        impl $Design {
            fn begin<H: $crate::udp::Handler>(
                self,
                job: $crate::udp::Job<H>,
            ) -> Result<$crate::udp::Running<H>, $crate::Error> {
                $crate::rio::with_provider!(self.provider, |provider| self.start_on(job, provider))
            }
        }
    };
}
use rio_design;
