//! Entries into the kernel where nothing is known to count them.

use super::ThreadId;
use crate::Unavailable;
use std::{convert::Infallible, io};

/// There is none.
#[derive(Debug)]
pub struct KernelEntries(Infallible);

impl KernelEntries {
    /// Says why they cannot be counted.
    ///
    /// # Errors
    /// Always.
    pub fn begin() -> Result<Self, Unavailable> {
        let why = "it is written for Linux only, so far";
        Err(Unavailable::new("counting entries into the kernel", why))
    }

    /// Never called.
    ///
    /// # Errors
    /// None.
    pub fn leave_me_out(&self) -> io::Result<()> {
        match self.0 {}
    }

    /// Never called.
    ///
    /// # Errors
    /// None.
    pub fn leave_out_all_but(&self, _: &[ThreadId]) -> io::Result<()> {
        match self.0 {}
    }

    /// Never called.
    ///
    /// # Errors
    /// None.
    pub fn read(&self) -> io::Result<u64> {
        match self.0 {}
    }
}
