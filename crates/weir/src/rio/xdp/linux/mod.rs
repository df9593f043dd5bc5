//! The provider itself.

mod packet;
mod ring;
