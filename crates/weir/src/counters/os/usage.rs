//! How the figures of the operating system are put together: structs of optional
//! figures that can be subtracted, added and listed.
//!
//! Every figure is of one kind, and the kind says what a difference and a sum are:
//! a `count` grows for ever, a `count32` too but in 32 bits of the kernel, a `level` is
//! what it is at that moment.

/// Counts that grow, in 64 bits.
pub(super) mod count {
    /// What was counted in between. A count that fell (a thread that ended, a namespace
    /// left) gives zero, not a huge figure.
    pub fn since(later: Option<u64>, earlier: Option<u64>) -> Option<u64> {
        Some(later?.saturating_sub(earlier?))
    }

    /// Both together; where one is missing, the other alone.
    pub fn plus(a: Option<u64>, b: Option<u64>) -> Option<u64> {
        match (a, b) {
            (Some(a), Some(b)) => Some(a.saturating_add(b)),
            (one, other) => one.or(other),
        }
    }
}

/// Counts that the kernel keeps in 32 bits: at 2 million a second they start again from
/// zero every 36 minutes, and a difference must see through that once.
pub(super) mod count32 {
    pub use super::count::plus;

    /// What was counted in between, if that was less than 2^32.
    pub fn since(later: Option<u64>, earlier: Option<u64>) -> Option<u64> {
        Some(u64::from((later? as u32).wrapping_sub(earlier? as u32)))
    }
}

/// What is so at one moment: bytes in use, a core.
pub(super) mod level {
    /// The later one.
    pub fn since(later: Option<u64>, _earlier: Option<u64>) -> Option<u64> {
        later
    }

    /// What both agree on: levels of two things are not added.
    pub fn plus(a: Option<u64>, b: Option<u64>) -> Option<u64> {
        if a == b { a } else { None }
    }
}

/// Declares a struct of optional figures, each with its kind before its name.
macro_rules! usage {
    ($(#[$doc:meta])* $struct:ident { $($(#[$figure_doc:meta])* $kind:ident $figure:ident,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct $struct {
            $($(#[$figure_doc])* pub $figure: Option<u64>,)*
        }

        impl $struct {
            /// What was counted since `earlier`; what is a level stays as it is now.
            /// A figure that either side lacks is `None`.
            pub fn since(&self, earlier: &Self) -> Self {
                Self { $($figure: usage::$kind::since(self.$figure, earlier.$figure),)* }
            }

            /// The counts of both together. A level that differs becomes `None`.
            pub fn plus(&self, other: &Self) -> Self {
                Self { $($figure: usage::$kind::plus(self.$figure, other.$figure),)* }
            }

            /// Every figure by its name, in declaration order.
            pub fn named(&self) -> Vec<(&'static str, Option<u64>)> {
                vec![$((stringify!($figure), self.$figure),)*]
            }
        }
    };
}
pub(super) use usage;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_figure_is_never_taken_for_zero() {
        assert_eq!(count::since(Some(5), None), None);
        assert_eq!(count::since(None, Some(5)), None);
        assert_eq!(count32::since(Some(5), None), None);
        assert_eq!(count::plus(None, None), None);
        assert_eq!(count::plus(Some(5), None), Some(5));
    }

    #[test]
    fn a_count_of_32_bits_goes_on_past_its_end() {
        let before_end = u64::from(u32::MAX) - 1;
        assert_eq!(count32::since(Some(3), Some(before_end)), Some(5));
        assert_eq!(count::since(Some(3), Some(before_end)), Some(0));
    }

    #[test]
    fn levels_are_neither_subtracted_nor_added() {
        assert_eq!(level::since(Some(3), Some(10)), Some(3));
        assert_eq!(level::plus(Some(3), Some(10)), None);
        assert_eq!(level::plus(Some(3), Some(3)), Some(3));
    }
}
