//! `control`: one thread asks the driver by a control call that does nothing.
//!
//! A control call (ioctl, DeviceIoControl) skips most of what lies between a read and a driver: in the
//! original a fast one was nearly twice as fast as a read. But what a control call does is the driver's
//! affair, and none is known to do nothing on a device that everybody has. So this design runs on weir's
//! own nothing device only, and while that is not written it says so.
//!
//! Origin: ioctl(2); the fast control path of the original (OSR), which skips the I/O manager.

use super::{About, Contract, Design, Handler, Job, Running};
use crate::{
    Error, Unavailable,
    options::{Options as _, options},
};

options! {
    /// Options of the design `control`: it has none.
    #[derive(Copy, Eq)]
    pub struct Control {}
}

impl Design for Control {
    const ABOUT: About = About {
        name: "control",
        summary: "one thread makes a control call that does nothing, again and again",
        origin: "ioctl(2); the fast control path of the original",
        contract: Contract::Read,
    };

    fn provider(&self) -> &'static str {
        "ioctl"
    }

    fn start<H: Handler>(self, _job: Job<H>) -> Result<Running<H>, Error> {
        self.check()?;
        Err(unavailable().into())
    }

    fn availability(&self) -> Result<(), Unavailable> {
        Err(unavailable())
    }
}

fn unavailable() -> Unavailable {
    let reason = "only weir's own nothing device has a control call that is known to do nothing, and \
                  its driver is not there";
    Unavailable::new("design control", reason)
}
