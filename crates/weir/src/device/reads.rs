//! What is asked of a run.

use super::{Device, sampling};
use crate::{Error, memory::RegionOptions};

/// Bytes asked for by each I/O, if nothing else is said.
pub const DEFAULT_LENGTH: usize = 4096;
/// Most bytes that one I/O may ask for.
pub const MOST_LENGTH: usize = 1 << 24;

/// Reads of a device, or writes to one that was opened for that: how much at a time, how many, and what is done
/// about errors.
#[derive(Debug, Clone)]
#[must_use = "nothing is read before it is started"]
pub struct Reads {
    pub(super) device: Device,
    pub(super) length: usize,
    pub(super) ios: Option<u64>,
    pub(super) sample_every: u32,
    pub(super) errors_max: u64,
    pub(super) region: RegionOptions,
}

impl Reads {
    /// I/Os of this device in its direction: [`DEFAULT_LENGTH`] bytes at a time, until stopped or until one fails; no
    /// latency is taken.
    pub fn of(device: &Device) -> Self {
        Self {
            device: device.clone(),
            length: DEFAULT_LENGTH,
            ios: None,
            sample_every: 0,
            errors_max: 0,
            region: RegionOptions::default(),
        }
    }

    /// Asks for so many bytes at a time, up to [`MOST_LENGTH`].
    pub fn length(mut self, bytes: usize) -> Self {
        self.length = bytes;
        self
    }

    /// Ends after so many I/Os, over all threads. Counting them down costs one atomic step each.
    pub fn ios(mut self, ios: u64) -> Self {
        self.ios = Some(ios);
        self
    }

    /// Takes the latency of one I/O in so many, at random; 0 for none.
    pub fn sample_every(mut self, every: u32) -> Self {
        self.sample_every = every;
        self
    }

    /// Goes on until more than so many I/Os have failed.
    pub fn errors_max(mut self, errors: u64) -> Self {
        self.errors_max = errors;
        self
    }

    /// What is asked of the memory.
    pub fn region(mut self, region: RegionOptions) -> Self {
        self.region = region;
        self
    }

    /// Says whether that can be asked of this device, whatever the design.
    ///
    /// # Errors
    /// [`Error::Option`] for the first value that cannot.
    pub fn check(&self) -> Result<(), Error> {
        let wrong = |name: &str, problem: String| Err(Error::option(name, problem));
        if self.length > MOST_LENGTH {
            let problem = format!("{} is not allowed; allowed: 0 to {MOST_LENGTH}", self.length);
            return wrong("length", problem);
        }
        if let Some(record) = self.device.kind().record()
            && self.length < record
        {
            let problem =
                format!("{}: the {} takes {record} or more", self.length, self.device.kind());
            return wrong("length", problem);
        }
        if self.ios == Some(0) {
            return wrong("ios", "0 is not allowed; allowed: 1 or more".into());
        }
        if self.sample_every > sampling::MOST {
            let most = sampling::MOST;
            let problem = format!("{} is not allowed; allowed: 0 to {most}", self.sample_every);
            return wrong("sample-every", problem);
        }
        Ok(())
    }
}
