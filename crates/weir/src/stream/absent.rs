//! No TCP on this system yet: types without values.

use super::{Accepted, Mode, StreamOptions};
use crate::{Error, Unavailable, contract::absent};
use socket2::SockRef;
use std::{io, net::SocketAddr, time::Duration};

absent! {
    each {}
    "TCP", "it is not on this OS yet", "none":
    Listener {
        pub fn availability() -> Result<(), Unavailable>;
        pub fn bind(_: SocketAddr, _: StreamOptions) -> Result<Self, Error>;
        pub fn socket(&self) -> SockRef<'_>;
        pub fn granted(&self) -> Vec<(&'static str, String)>;
        pub fn accept(&self, _: Mode) -> io::Result<Option<Accepted>>;
        pub fn end_accepting(&self);
    }
    Stream {
        pub fn socket(&self) -> SockRef<'_>;
        pub fn receive(&self, _: &mut [u8], _: Mode) -> io::Result<Option<usize>>;
        pub fn send(&self, _: &[u8], _: Mode) -> io::Result<Option<usize>>;
        pub fn end_receiving(&self);
        pub fn end(&self);
        pub fn set_timeouts(&self, _: Option<Duration>, _: Option<Duration>) -> io::Result<()>;
        pub fn waiting(&self) -> io::Result<usize>;
        pub fn received_in_all(&self) -> io::Result<u64>;
    }
}

pub const WANT_OF_RESOURCES: &[i32] = &[];
pub const OF_ONE_CONNECTION: &[i32] = &[];
