//! What can be chosen of a provider.

/// How much of what is posted a provider gives to the kernel at a time. A provider whose kernel
/// takes any number without harm ignores it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Most receives that are armed on one socket; the others wait in a list.
    pub armed: u32,
    /// A take that finds completions ready enters the kernel only when so many operations wait
    /// to be submitted. With 1 every operation is submitted by an entry of its own.
    pub submit_after: u32,
}

impl Shape {
    /// What serves best where many receives armed on one socket wake each other: the default. With 16
    /// armed it takes as much as with 64 (with 4 some 7 % less), and below saturation, where every
    /// datagram wakes them all, it costs half and answers three times as fast.
    pub const BEST: Self = Self { armed: 16, submit_after: 16 };

    /// As a program for Windows does it: so many receives armed as are posted, and a call for
    /// each that is posted again.
    pub const fn original(armed: u32) -> Self {
        Self { armed, submit_after: 1 }
    }
}

impl Default for Shape {
    fn default() -> Self {
        Self::BEST
    }
}
