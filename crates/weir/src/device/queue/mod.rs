//! Designs on a queue of I/Os, of one thread: what all do stands in [`engine`], and each is a row of what it asks of its
//! queue.

mod engine;
mod libaio;
mod no_op;
mod ring;
mod ring_polled;
mod ring_registered;
mod uring_cmd;

pub use libaio::Libaio;
pub use no_op::NoOp;
pub use ring::Ring;
pub use ring_polled::RingPolled;
pub use ring_registered::RingRegistered;
pub use uring_cmd::UringCmd;

/// A design on a ring, whose type has `sizes` and `shape`: what it is, and what it asks a device for.
macro_rules! on_a_ring {
    ($Design:ident, $name:literal, $summary:literal, $origin:literal, $wants:expr) => {
        impl $crate::device::Design for $Design {
            const ABOUT: $crate::device::About = $crate::device::About {
                name: $name,
                summary: $summary,
                origin: $origin,
                contract: $crate::device::Contract::Queue,
            };

            fn provider(&self) -> &'static str {
                "uring"
            }

            fn wants(&self) -> $crate::device::Wants {
                $wants
            }

            fn start<H: $crate::device::Handler>(
                self,
                job: $crate::device::Job<H>,
            ) -> Result<$crate::device::Running<H>, $crate::Error> {
                super::engine::start(job, self.sizes(), |descriptor, region| {
                    let what = concat!("design ", $name);
                    $crate::device::native::RingQueue::open(
                        what,
                        descriptor,
                        self.shape(self.depth),
                        region,
                    )
                })
            }

            fn availability(&self) -> Result<(), $crate::Unavailable> {
                $crate::device::native::RingQueue::availability(
                    concat!("design ", $name),
                    self.shape(1),
                )
            }
        }
    };
}
use on_a_ring;
