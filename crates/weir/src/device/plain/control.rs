//! `control`: one thread asks the driver by a control call that does nothing, again and again.
//!
//! A control call (ioctl, DeviceIoControl) skips most of what lies between a read and a driver: no buffer is
//! described, no access checked, no place kept. In the original a fast one was nearly twice as fast as a
//! read. It costs one entry for each call. It fails as `sync` does where a call takes time: the thread
//! sleeps until it is over.
//!
//! What a control call does is the driver's affair, and none is known to do nothing on a device that
//! everybody has. So this design runs on weir's own nothing device only (`drivers/nothing`).
//!
//! Origin: ioctl(2); the fast control path of the original (OSR), which skips the I/O manager.

use super::engine::run;
use crate::{
    Error, Unavailable,
    device::{About, Contract, Design, Handler, Job, Running, Wants, native::Controls},
    options::options,
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

    fn wants(&self) -> Wants {
        Wants::Calls
    }

    fn start<H: Handler>(self, mut job: Job<H>) -> Result<Running<H>, Error> {
        let controls = job.device.descriptor.controls();
        job.spawn(move |worker| run(worker, &controls, &mut []))?;
        job.run()
    }

    fn availability(&self) -> Result<(), Unavailable> {
        Controls::availability("design control")
    }
}
