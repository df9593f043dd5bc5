//! What can be chosen of a provider.

/// How much of what is posted a provider gives to the kernel at a time. A provider whose kernel
/// takes any number without harm ignores it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Most receives that are armed on one socket, while the others wait in a list; 0 for as many as come
    /// at once, within bounds of the provider's.
    pub armed: u32,
    /// A take that finds completions ready enters the kernel only when so many operations wait
    /// to be submitted. With 1 every operation is submitted by an entry of its own.
    pub submit_after: u32,
    /// An operation that is done when the call that starts it returns has no packet of its own: whoever started it
    /// takes it next, and so no other thread. Where no call starts a single operation there is nothing to skip.
    pub skip_ready: bool,
    /// Of streams: the socket of a connection that ended in order becomes that of an accept to come, where the system
    /// has sockets before it has connections.
    pub reuse_sockets: bool,
}

impl Shape {
    /// What serves best where many receives armed on one socket wake each other: the default. 64 armed
    /// take a tenth more at saturation than 16; below it every datagram wakes them all, and they cost
    /// twice as much and answer a third as fast. So as many are armed as come at once.
    pub const BEST: Self =
        Self { armed: 0, submit_after: 16, skip_ready: false, reuse_sockets: false };

    /// As a program for Windows does it: so many receives armed as are posted, and a call for
    /// each that is posted again.
    pub const fn original(armed: u32) -> Self {
        Self { armed, submit_after: 1, ..Self::BEST }
    }
}

impl Default for Shape {
    fn default() -> Self {
        Self::BEST
    }
}
