//! Whether what comes for a receive ends a wait.

/// What becomes of receives that are started, and of those that were not armed before. One that is armed stays so: what
/// comes for it wakes the thread that armed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Arming {
    /// Each is armed.
    #[default]
    Each,
    /// Messages gather now and then, and the next one is to end a wait. Where arming each costs more than asking which of
    /// them have something, none is armed, but something that tells of any.
    Any,
    /// Messages gather: none is armed.
    None,
}
