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
    Error,
    design::design,
    device::{Handler, Job, Running, Wants, native::Controls},
};

design! {
    #[derive(Copy, Eq)]
    device::Control "control", Read;
    summary: "one thread makes a control call that does nothing, in a loop";
    origin: "ioctl(2); the fast control path of the original";
    options {}
    provider: |_| Controls::PROVIDER;
    availability: |_| Controls::availability("design control");
    wants: |_| Wants::Calls;
}

impl Control {
    fn begin<H: Handler>(self, mut job: Job<H>) -> Result<Running<H>, Error> {
        let controls = job.device.descriptor.controls();
        job.spawn(move |worker| run(worker, &controls, &mut []))?;
        job.run()
    }
}
