//! What a device is, what each I/O does with it, and what devices are called.

use std::fmt;

/// What each I/O does with a device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Direction {
    /// It reads.
    #[default]
    Read,
    /// It writes zeroes.
    Write,
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Direction::Read => "reads",
            Direction::Write => "writes",
        })
    }
}

/// What was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The device that swallows and gives nothing: every read brings nothing.
    Null,
    /// The device of zeroes: every read brings those.
    Zero,
    /// A regular file: blocks of it are read in turn.
    File,
    /// A pipe of weir's own: a read waits until something was written, and brings nothing once nobody can write.
    Pipe,
    /// A count of events: a read brings 8 bytes, and waits while there is nothing to tell.
    Event,
    /// Timers, one for each I/O under way: a read takes as long as it is told to, and brings 8 bytes.
    Timer,
    /// weir's own device that does nothing (`drivers/nothing`): a read takes as long, and brings as much, as
    /// it was told to.
    Nothing,
    /// A character device that is known to be harmless, or that the caller named.
    Character,
}

impl Kind {
    /// Bytes that a read brings however many more are asked for, and which must be asked for.
    pub(super) fn record(self) -> Option<usize> {
        matches!(self, Kind::Event | Kind::Timer).then_some(8)
    }

    /// Whether a read that brings nothing says that nothing will come any more.
    pub(super) fn ends(self) -> bool {
        self == Kind::Pipe
    }
}

/// What devices are called, and which of them may be opened, in the words of the system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Names {
    /// The [`Kind::Null`].
    pub null: &'static str,
    /// The [`Kind::Zero`], where there is one.
    pub zeroes: Option<&'static str>,
    /// weir's own [`Kind::Nothing`], where it can be had.
    pub nothing: Option<&'static str>,
    /// What stands for a [`Device::semaphore`](super::Device::semaphore), which has no path.
    pub semaphore: &'static str,
    /// What a [`Kind::Event`] is.
    pub event: &'static str,
    /// What may be read, and what never: the end of a sentence, and more of them.
    pub readable: &'static str,
    /// What may be written to: a part of a sentence.
    pub writable: &'static str,
}
