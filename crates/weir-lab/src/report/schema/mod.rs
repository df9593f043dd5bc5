//! The schema of the documents, for programs that read them. Tests derive it from the types and hold this file against
//! that, and what is written against the schema: a document must have no field that it does not name.

#[cfg(test)]
pub(crate) mod described;
#[cfg(test)]
pub(crate) mod parts;
#[cfg(test)]
mod tests;

/// The schema of every document that `weir compare` writes.
pub const RESULT: &str = include_str!("result.schema.json");
