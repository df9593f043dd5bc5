//! How a run begins: what is asked is checked, and the design is given a job.

use super::{
    Design, Handler, Job, Reads, Running, Startable, Wants, can, handler::MakeHandler, native,
};
use crate::{Error, Unavailable};

impl Reads {
    /// Starts reading or writing, with a design by its type or by its name ([`Startable`]). `make_handler`
    /// gives each thread its handler.
    ///
    /// # Errors
    /// Whatever fails before the first I/O, with its cause and what to do; [`Error::Unavailable`] where memory,
    /// descriptors or threads are short.
    pub fn start<H: Handler>(
        self,
        design: impl Startable,
        make_handler: impl FnMut(usize) -> H + Send + 'static,
    ) -> Result<Running<H>, Error> {
        design.start_as(&self, Box::new(make_handler))
    }

    pub(super) fn start_design<D: Design, H: Handler>(
        &self,
        mut design: D,
        make_handler: MakeHandler<H>,
    ) -> Result<Running<H>, Error> {
        self.check()?;
        design.check()?;
        let (what, wants) = (D::ABOUT.name, design.wants());
        can(what, wants, self.device.direction())?;
        design.resolve();
        if wants == Wants::Calls {
            self.device.takes_control_calls(what)?;
        }
        let job = Job::new(self.clone(), wants, make_handler);
        job.common.shared.state_design(what, None, design.parks_threads(), design.values());
        design.start(job).map_err(|error| short_of(what, error))
    }
}

/// Where the system has not enough of something for a start, the design cannot run here: that says nothing of
/// the design itself.
fn short_of(design: &str, error: Error) -> Error {
    let short = match &error {
        Error::Memory { .. } => true,
        Error::Io { source, .. } => {
            source.raw_os_error().is_some_and(|errno| native::SHORTAGES.contains(&errno))
        }
        _ => false,
    };
    match short {
        true => Unavailable::new(format!("design {design}"), error.to_string()).into(),
        false => error,
    }
}
