//! Designs on operations that are started and whose completions come later, to whichever thread takes them.

mod flow;
mod frame;
mod hand;
mod overlapped_events;
mod places;
#[expect(clippy::module_inception, reason = "it has the name of its mechanism, as the room has")]
mod port;
mod port_ordered;
mod shares;

pub use frame::Idle;
pub use overlapped_events::OverlappedEvents;
pub use port::Port;
pub use port_ordered::PortOrdered;
