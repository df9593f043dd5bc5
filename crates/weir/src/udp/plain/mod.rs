//! Designs that call a socket and wait in the call, or for readiness. What all do stands in [`engine`].

mod blocking;
mod blocking_batch;
mod engine;
mod epoll;
mod epoll_batch;

pub use blocking::Blocking;
pub use blocking_batch::BlockingBatch;
pub use epoll::Epoll;
pub use epoll_batch::EpollBatch;
