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
        /// When pages are allocated: all at the start, and locked where that is permitted, or each when it is first
        /// touched.
        commit: Commit = Commit::Touched, Commit::NAMES;
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

named! {
    /// When the pages of memory are allocated.
    pub enum Commit {
        /// All at the start, and they stay: a burst then meets no page fault. Locked where the limit on locked memory
        /// permits (RLIMIT_MEMLOCK); as [`Commit::Touched`] where that would take more than an eighth of the memory that the
        /// machine, and the process's control group, have left. What came of it is in [`Obtained::commit`].
        Locked = "locked",
        /// Each when it is first touched: a server that is hardly used takes little.
        Touched = "touched",
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
#[non_exhaustive]
pub struct Obtained {
    /// Bytes of address space.
    pub bytes: usize,
    /// Size of a page: the huge page size only where huge pages were reserved.
    pub page_bytes: usize,
    /// Huge pages were not reserved, but the kernel was advised to use them.
    pub huge_pages_advised: bool,
    /// The NUMA node the memory was bound to, or `None` for the system's own choice.
    pub numa_node: Option<u32>,
    /// What came of [`Commit`].
    pub commit: Committed,
}

/// What came of [`Commit`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Committed {
    /// Pages come as they are touched.
    Touched,
    /// All are there, and none leaves.
    Locked,
    /// All are there, but the system may take them away again: so many bytes may be locked, if that is known.
    Unlocked {
        /// The limit.
        limit_bytes: Option<u64>,
    },
    /// Pages come as they are touched, though all were asked for at the start: there is too little memory for that.
    TooLittle {
        /// What was left, if that is known.
        left_bytes: Option<u64>,
    },
}

impl Committed {
    /// Whether all pages were there from the start.
    pub fn at_start(self) -> bool {
        matches!(self, Self::Locked | Self::Unlocked { .. })
    }

    /// What came of several: what is true of the one that obtained least.
    pub(crate) fn of_all(all: impl IntoIterator<Item = Self>) -> Option<Self> {
        all.into_iter().min_by_key(|commit| match commit {
            Self::Touched => 0,
            Self::TooLittle { .. } => 1,
            Self::Unlocked { .. } => 2,
            Self::Locked => 3,
        })
    }
}

impl fmt::Display for Committed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Touched => f.write_str("as it is touched"),
            Self::Locked => f.write_str("committed at the start and locked"),
            Self::Unlocked { limit_bytes: None } => {
                f.write_str("committed at the start; not locked: this system does not lock it")
            }
            Self::TooLittle { left_bytes: None } => f.write_str(
                "as it is touched: the system has too little for all of it at the start",
            ),
            Self::TooLittle { left_bytes: Some(left) } => write!(
                f,
                "as it is touched: {left} bytes are left, of which an eighth at most is committed at the start (ask for fewer \
                 outstanding receives, or give the program more memory)"
            ),
            Self::Unlocked { limit_bytes: Some(limit) } => write!(
                f,
                "committed at the start; not locked: {limit} bytes may be locked (raise `ulimit -l`, or give the \
                 program CAP_IPC_LOCK)"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_obtained_what_the_least_of_them_did() {
        let little = Committed::TooLittle { left_bytes: Some(5) };
        let unlocked = Committed::Unlocked { limit_bytes: None };
        assert_eq!(Committed::of_all([Committed::Locked, little, unlocked]), Some(little));
        assert_eq!(Committed::of_all([Committed::Locked, unlocked]), Some(unlocked));
        assert_eq!(Committed::of_all([]), None);
        assert!(unlocked.at_start() && !little.at_start());
        assert!(little.to_string().contains("5 bytes are left"));
    }
}
