//! What is asked of memory, and what is obtained.

use crate::options::{Named, named, options};
use std::{fmt, str::FromStr};

options! {
    /// What is asked of the memory of a region.
    #[derive(Copy, Eq)]
    pub struct RegionOptions {
        /// Pages of the memory: the system's choice, never huge, or huge where there are any.
        pages: PageKind = PageKind::Auto, PageKind::NAMES;
        /// NUMA node that the memory is placed on; refused where that cannot be.
        numa_node: NumaNode = NumaNode::Auto, Named(&["auto", "the number of a node"]);
    }
}

named! {
    /// Pages that memory is made of.
    pub enum PageKind {
        /// The system's choice: ordinary pages, which it may join to huge ones by itself.
        Auto = "auto",
        /// Ordinary pages, never joined.
        Normal = "normal",
        /// Reserved huge pages; where there are too few, ordinary ones that the system is advised to
        /// join.
        Huge = "huge",
    }
}

/// Where memory lies on a machine whose cores do not all reach all of it equally fast.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NumaNode {
    /// The system's choice: mostly the node of the thread that touches a page first.
    Auto,
    /// The node of this number.
    Node(u32),
}

impl fmt::Display for NumaNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NumaNode::Auto => f.write_str("auto"),
            NumaNode::Node(node) => node.fmt(f),
        }
    }
}

impl FromStr for NumaNode {
    type Err = std::num::ParseIntError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "auto" { Ok(NumaNode::Auto) } else { text.parse().map(NumaNode::Node) }
    }
}

/// What was obtained, to be stated beside every figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Obtained {
    /// Bytes of address space.
    pub bytes: usize,
    /// Size of a page: the huge page size only where huge pages were reserved.
    pub page_bytes: usize,
    /// Huge pages were not reserved, but the kernel was advised to use them.
    pub huge_pages_advised: bool,
    /// The NUMA node the memory was bound to, or `None` for the system's own choice.
    pub numa_node: Option<u32>,
}
