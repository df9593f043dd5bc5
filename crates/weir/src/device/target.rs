//! A device: what may be opened, how it is named, and what was opened.
//!
//! Opening can act: a tape rewinds, a watchdog starts to count and restarts the machine. And what holds
//! somebody's data is no place for an experiment, even one that only reads. So the path is first looked
//! at without opening it, rules decide, and then exactly what was looked at is opened, for reading only, or,
//! where that was asked for, for writing only. The rules are the provider's, since it knows what there is:
//!
//! - read is what is known to be harmless, and what weir makes itself;
//! - only where the caller names that very path: what may act, but may also be harmless;
//! - never, and there is no flag for it: what belongs to others, who would lose what is read, and whatever leads to
//!   somebody's storage;
//! - written to is only what throws away all that is written, whoever names anything else.
//!
//! What that means here, and how devices are written, is in [`NAMES`].

use super::{
    kind::{Direction, Kind, Names},
    native,
};
use crate::{Error, Unavailable};
use std::{
    fmt,
    io::PipeWriter,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// Those of this system.
pub const NAMES: Names = native::NAMES;

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Null => "null device",
            Kind::Zero => "device of zeroes",
            Kind::File => "regular file",
            Kind::Pipe => "pipe",
            Kind::Event => NAMES.event,
            Kind::Timer => "timer",
            Kind::Nothing => "nothing device",
            Kind::Character => "character device",
        })
    }
}

/// A device that was opened, for reading only or for writing only. It is closed when the last run of it is
/// over and this value has gone.
#[derive(Debug, Clone)]
pub struct Device {
    pub(super) descriptor: Arc<native::Descriptor>,
    path: PathBuf,
    kind: Kind,
    direction: Direction,
    bytes: u64,
}

impl Device {
    /// Opens what a path leads to, if it is known to be harmless: the null device and its like, a regular file of
    /// an ordinary file system, weir's own nothing device; `-` is the standard input. `named`: what may be opened
    /// although that, or reading it, may act. What others were meant to read is never read, whoever names it.
    /// [`NAMES`] says what that is here.
    ///
    /// # Errors
    /// [`Error::Refused`] for what must not be opened, [`Error::Io`] with the system's answer,
    /// [`Error::Unavailable`] where devices cannot be read at all.
    pub fn open(path: impl AsRef<Path>, named: &[PathBuf]) -> Result<Self, Error> {
        let path = path.as_ref();
        let named = named.iter().any(|name| name == path);
        Self::open_for(path, Direction::Read, named)
    }

    /// Opens what a path leads to, to be written to: only what throws away all that is written may be.
    ///
    /// # Errors
    /// As [`Device::open`]. What is refused was not opened.
    pub fn open_for_writing(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::open_for(path.as_ref(), Direction::Write, false)
    }

    fn open_for(path: &Path, direction: Direction, named: bool) -> Result<Self, Error> {
        let (descriptor, kind, bytes) = native::Descriptor::open(path, direction, named)?;
        let (descriptor, path) = (Arc::new(descriptor), path.to_owned());
        Ok(Self { descriptor, path, kind, direction, bytes })
    }

    /// Whether a path leads to what this process has open, which is something else for each other process.
    pub fn is_of_this_process(path: &Path) -> bool {
        native::is_of_this_process(path)
    }

    /// A count of events that never runs out within a run: each read brings 8 bytes and takes one of 2^64 - 2.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Unavailable`].
    pub fn semaphore() -> Result<Self, Error> {
        let descriptor = Arc::new(native::Descriptor::semaphore()?);
        let (path, kind, direction) = (NAMES.semaphore.into(), Kind::Event, Direction::Read);
        Ok(Self { descriptor, path, kind, direction, bytes: 0 })
    }

    /// A pipe, and who writes into it: reads wait until something is written. Once the writer has gone, and
    /// what it wrote is read, nothing comes any more, and a run fails with that reason.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Unavailable`].
    pub fn pipe() -> Result<(Self, PipeWriter), Error> {
        let (descriptor, writer) = native::Descriptor::pipe()?;
        let (path, kind, direction) = ("pipe".into(), Kind::Pipe, Direction::Read);
        Ok((Self { descriptor: Arc::new(descriptor), path, kind, direction, bytes: 0 }, writer))
    }

    /// A device of which every read takes so long, up to [`MOST_DELAY`], and brings 8 bytes: a timer for
    /// each I/O under way, set when the I/O is issued. No read is over before its delay; how much later
    /// is for the system to say, and a delay of 0 stands for the shortest there is, 1 ns.
    ///
    /// Setting a timer is a system call, the same one in every design, and counted as such
    /// ([`Running::calls`](super::Running::calls)): what differs among designs is how they wait.
    ///
    /// # Errors
    /// [`Error::Option`] for a longer delay, [`Error::Io`], [`Error::Unavailable`].
    pub fn timer(delay: Duration) -> Result<Self, Error> {
        if delay > MOST_DELAY {
            let problem = format!("{} is not allowed; allowed: 0 to 1s", spelled(delay));
            return Err(Error::option("delay", problem));
        }
        let descriptor = Arc::new(native::Descriptor::timer(delay)?);
        let path = format!("timer:{}", spelled(delay)).into();
        Ok(Self { descriptor, path, kind: Kind::Timer, direction: Direction::Read, bytes: 0 })
    }

    /// What it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Says why, where a read that asks for nothing is an error. `what` names who makes such reads.
    pub(super) fn takes_empty_reads(&self, what: &'static str) -> Result<(), Unavailable> {
        let Some(record) = self.kind.record() else { return Ok(()) };
        let reason = format!(
            "a read of the {} must ask for {record} bytes, and it asks for none",
            self.kind
        );
        Err(Unavailable::new(what, reason).advise("use the design sync, or another device"))
    }

    /// Says why, where a control call that does nothing is not known. `design` makes such calls.
    pub(super) fn takes_control_calls(&self, design: &str) -> Result<(), Error> {
        if self.kind == Kind::Nothing {
            return Ok(());
        }
        let (path, kind) = (self.path.display(), self.kind);
        let problem = format!(
            "{design} makes control calls of weir's own nothing device, and {path} is another ({kind}), of \
             which no call is known to do nothing; name {}",
            NAMES.nothing.unwrap_or("that device")
        );
        Err(Error::option("design", problem))
    }

    /// What it is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Whether it was opened to be read or to be written to.
    pub fn direction(&self) -> Direction {
        self.direction
    }

    /// Bytes of a regular file when it was opened; 0 of anything else.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// The longest delay of a timer. A thread that waits in a read of it is not cancelled.
pub const MOST_DELAY: Duration = Duration::from_secs(1);

/// A time in the largest unit in which it is a whole number.
fn spelled(time: Duration) -> String {
    let ns = time.as_nanos();
    let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")];
    let unit = units.iter().find(|(unit, _)| ns.is_multiple_of(*unit));
    match unit {
        Some((unit, name)) => format!("{}{name}", ns / unit),
        None => format!("{ns}ns"),
    }
}
