//! What the reports of all comparisons have in common, for a person and for a program.

pub(crate) mod document;
pub(crate) mod layout;
pub mod number;
pub(crate) mod words;
