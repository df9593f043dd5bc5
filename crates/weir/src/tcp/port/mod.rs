//! Designs on operations that are started and whose completions come later, to whichever thread takes them: what all do
//! stands in [`engine`].

mod accepts;
mod engine;
mod overlapped_events;
mod pool;
#[expect(clippy::module_inception, reason = "it has the name of its mechanism, as the folder has")]
mod port;
mod port_ordered;
mod receive_order;
mod sends;
mod slots;

pub use engine::Idle;
pub use overlapped_events::OverlappedEvents;
pub use port::Port;
pub use port_ordered::PortOrdered;
