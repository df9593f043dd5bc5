//! Who is told what the I/Os brought, or took.

use std::any::Any;

/// Told by one thread of a run what its I/Os brought, or took. Made for each thread; comes back with its state
/// in [`Final`](super::Final).
pub trait Handler: Send + 'static {
    /// What one I/O brought: the bytes, none of them if there were none. `at` is their place in a
    /// regular file, and 0 elsewhere.
    fn on_read(&mut self, bytes: &[u8], at: u64) {
        let _ = (bytes, at);
    }

    /// How many bytes one I/O wrote.
    fn on_write(&mut self, bytes: usize) {
        let _ = bytes;
    }

    /// How long one I/O of the sample took, in ns: from when it was issued until its completion was in
    /// the program's hands.
    fn on_sample(&mut self, ns: u64) {
        let _ = ns;
    }
}

crate::design::boxed!();

impl Handler for Boxed {
    #[inline]
    fn on_read(&mut self, bytes: &[u8], at: u64) {
        self.0.on_read(bytes, at);
    }

    #[inline]
    fn on_write(&mut self, bytes: usize) {
        self.0.on_write(bytes);
    }

    fn on_sample(&mut self, ns: u64) {
        self.0.on_sample(ns);
    }
}

/// Is told nothing.
impl Handler for () {}
