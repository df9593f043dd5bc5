//! What other systems lack: a ring, as a type without values.

use super::{Ready, Socket, WakeEvent};
use std::io;
use weir::Unavailable;

/// There is none here.
pub(crate) enum Ring {}

impl Ring {
    pub(crate) fn probe() -> Result<(), Unavailable> {
        let why = Unavailable::new("engine uring", "this system has no io_uring");
        Err(why.advise("use the engine readiness"))
    }

    pub(crate) fn open(_: u64, _: usize, _: bool) -> Result<Self, Unavailable> {
        Self::probe().map(|()| unreachable!("there is none"))
    }

    pub(crate) fn begin(&mut self) -> io::Result<()> {
        match *self {}
    }

    pub(crate) fn wake_event(&self) -> WakeEvent {
        match *self {}
    }

    pub(crate) fn memory_of_sends(&mut self) -> &mut [u8] {
        match *self {}
    }

    pub(crate) fn begin_to_receive(&mut self, _: &Socket, _: u32) {
        match *self {}
    }

    pub(crate) fn await_room(&mut self, _: &Socket, _: u32) {
        match *self {}
    }

    pub(crate) fn await_end(&mut self, _: &Socket, _: u32) {
        match *self {}
    }

    pub(crate) fn forget(&mut self, _: u32) {
        match *self {}
    }

    pub(crate) fn wait(&mut self, _: u64) -> io::Result<usize> {
        match *self {}
    }

    pub(crate) fn ready(&mut self, _: usize) -> Ready {
        match *self {}
    }

    pub(crate) fn now_ns(&self) -> u64 {
        match *self {}
    }

    pub(crate) fn receive(&mut self, _: &Socket, _: u32) -> io::Result<Option<usize>> {
        match *self {}
    }

    pub(crate) fn received(&self, _: usize) -> &[u8] {
        match *self {}
    }

    pub(crate) fn send(&mut self, _: &Socket, _: u32, _: u64, _: impl FnOnce(&mut [u8])) -> usize {
        match *self {}
    }
}
