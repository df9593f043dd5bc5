//! What a comparison is given besides its options.

use std::sync::Arc;

use weir_lab::child::Interrupt;

use super::hosts::AtRoot;
use super::stream::Stream;

/// What a comparison is given besides its options.
#[derive(Clone)]
pub struct Context {
    /// The command as typed.
    pub command: Vec<String>,
    /// Raised by Ctrl-C.
    pub interrupt: Interrupt,
    /// Where what happens is written, if that was asked for.
    pub stream: Option<Stream>,
    /// Whether the whole terminal shows what happens.
    pub live: bool,
    /// The other ranks, of a comparison over hosts.
    pub root: Option<Arc<AtRoot>>,
}

impl Context {
    /// The other ranks, and what is raised when they are to end.
    pub fn ranks(&self) -> (Option<&AtRoot>, &Interrupt) {
        (self.root.as_deref(), &self.interrupt)
    }
}
