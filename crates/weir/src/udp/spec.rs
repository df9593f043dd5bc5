//! What a text asks for: a design with its options, and its memory.

use super::AnyDesign;
use crate::{
    Error,
    memory::{Commit, NumaNode, PageKind, RegionOptions},
    options::{Options as _, set_all},
};

/// A design, and what is asked of its memory.
#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    /// The design with its options.
    pub design: AnyDesign,
    /// What is asked of the memory.
    pub region: RegionOptions,
}

impl From<AnyDesign> for Spec {
    fn from(design: AnyDesign) -> Self {
        Self { design, region: Spec::REGION }
    }
}

impl Spec {
    /// What is asked of the memory of a UDP server where nothing is said: all of it is there from the start, so that a
    /// burst meets no page fault.
    pub const REGION: RegionOptions =
        RegionOptions { pages: PageKind::Auto, numa_node: NumaNode::Auto, commit: Commit::Locked };

    /// Reads a text like `rio-event --outstanding 5000 --pages huge --numa-node 0`: as
    /// [`AnyDesign::parse`], with the options of the memory among those of the design.
    ///
    /// # Errors
    /// As [`AnyDesign::parse`].
    pub fn parse(text: &str) -> Result<Self, Error> {
        let (mut design, words) = AnyDesign::named_in(text)?;
        let mut region = Self::REGION;
        set_all(words, |name, value| match region.set(name, value) {
            Err(Error::UnknownName { .. }) => design.set(name, value),
            result => result,
        })?;
        design.check()?;
        Ok(Self { design, region })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_memory_stand_among_those_of_the_design() {
        let spec = Spec::parse("rio-event --pages huge --outstanding=7 --numa-node 1").unwrap();
        assert_eq!(spec.design, AnyDesign::parse("rio-event --outstanding 7").unwrap());
        let region =
            RegionOptions { pages: PageKind::Huge, numa_node: NumaNode::Node(1), ..Spec::REGION };
        assert_eq!(spec.region, region);
        assert_eq!(Spec::parse("blocking").unwrap().region, Spec::REGION);
        let touched = Spec::parse("blocking --commit touched").unwrap().region;
        assert_eq!(touched.commit, Commit::Touched);
    }

    #[test]
    fn wrong_ones_are_explained() {
        for (text, word) in [
            ("blocking --pages giant", "auto, normal, huge"),
            ("blocking --numa-node first", "the number of a node"),
            ("blocking --nonsense 1", "threads"),
            ("blocking --threads 0", "1 to 256"),
            ("nonsense --pages huge", "blocking"),
        ] {
            let error = Spec::parse(text).unwrap_err().to_string();
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
