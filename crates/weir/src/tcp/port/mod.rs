//! Designs on operations that are started and whose completions come later, to whichever thread takes them: what all do
//! stands in [`engine`], and what their threads share in [`shared`].

mod engine;
mod overlapped_events;
#[expect(clippy::module_inception, reason = "it has the name of its mechanism, as the room has")]
mod port;
mod port_ordered;
mod shared;

pub use engine::Idle;
pub use overlapped_events::OverlappedEvents;
pub use port::Port;
pub use port_ordered::PortOrdered;

/// A design whose threads share one port: what it is, how its connections receive, and what one holds that waits.
macro_rules! port_design {
    (
        $Design:ident, $name:literal, $summary:literal, $origin:literal,
        $receiving:expr, $idle_holds:expr
    ) => {
        impl $crate::tcp::Design for $Design {
            const ABOUT: $crate::tcp::About = $crate::tcp::About {
                name: $name,
                summary: $summary,
                origin: $origin,
                contract: $crate::tcp::Contract::Port,
            };

            fn resolve(&mut self) {
                if self.threads == 0 {
                    self.threads = $crate::tcp::cores();
                }
            }

            fn start<H: $crate::tcp::Handler>(
                mut self,
                job: $crate::tcp::Job<H>,
            ) -> Result<$crate::tcp::Running, $crate::Error> {
                use $crate::{options::Options as _, port::streams::Native};
                self.check()?;
                self.availability()?;
                self.resolve();
                let receiving: fn(&Self) -> super::engine::Receiving = $receiving;
                let numbers = super::engine::Numbers {
                    threads: self.threads,
                    concurrency: self.concurrency,
                    take: self.take,
                    accepts: (self.accepts, self.accepts_most, self.accept_burst),
                    sends: self.sends,
                    stuck: self.stuck,
                    receiving: receiving(&self),
                };
                let shape = Shape { submit_after: self.submit_after, ..Shape::BEST };
                super::engine::start(job, &Native { shape }, numbers)
            }

            /// The threads share one order.
            fn active_set(&self) -> $crate::tcp::ActiveSet {
                $crate::tcp::ActiveSet::InOrder
            }

            fn idle_holds(&self) -> $crate::tcp::IdleHolds {
                let idle_holds: fn(&Self) -> $crate::tcp::IdleHolds = $idle_holds;
                idle_holds(self)
            }

            fn parks_threads(&self) -> bool {
                self.threads != 1
            }

            fn provider(&self) -> &'static str {
                use $crate::port::streams::{Native, Provider as _};
                Native::NAME
            }

            fn availability(&self) -> Result<(), $crate::Unavailable> {
                use $crate::port::streams::{Native, Provider as _};
                Native::default().availability()
            }
        }
    };
}
use port_design;
