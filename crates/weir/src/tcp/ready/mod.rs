//! Designs that are told which connections are ready, and then call: what they do then stands in [`engine`], and how
//! they are told is what each of them is about. [`gatherer`] lets messages gather before they are told. [`groups`] deals
//! connections out to threads that wait for 64 at most.

mod async_select;
mod connections;
mod engine;
mod epoll;
mod event_select;
mod gatherer;
pub(super) mod groups;
mod poll;
mod select;
mod select_indexed;

pub use async_select::AsyncSelect;
pub use epoll::Epoll;
pub use event_select::EventSelect;
pub use poll::Poll;
pub use select::Select;
pub use select_indexed::SelectIndexed;
