//! What may be opened, and what was.
//!
//! Opening can act: a tape rewinds, a watchdog starts to count and restarts the machine. And what holds
//! somebody's data is no place for an experiment, even one that only reads. So the path is first looked
//! at without opening it, the rules below decide, and then exactly what was looked at is opened, for
//! reading only, or, where that was asked for, for writing only:
//!
//! - always: what is in a list of what is known to be harmless. `/dev/null`, `/dev/zero`, `/dev/full`,
//!   `/dev/random` and `/dev/urandom`, known by their numbers, whose reads compute what they bring and take nothing away
//!   from anybody; regular files of file systems that hold what was stored, and only that, known by the type of
//!   the file system; and weir's own nothing device, known by what the kernel says of it, and once it is open by
//!   its answers. Beside these, what weir makes itself: eventfds, timers, pipes;
//! - only where the caller names that very path: any other character device, and files of any other file system.
//!   Opening or reading some of them acts (`/proc`, `/sys`, what a program behind fuse makes up), or brings
//!   what it brings only once;
//! - never, and there is no flag for it: pipes, sockets, terminals, eventfds and the like of others, since what is
//!   read of them is lost to whom it was meant for; block devices, and character devices that are another way to
//!   storage (flash, generic access to disks); directories;
//! - for writing: `/dev/null` and `/dev/zero`, which throw away what is written, known by their numbers;
//!   nothing else, whoever names it.

use super::native;
use crate::{Error, Unavailable};
use std::{
    fmt,
    io::PipeWriter,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// What a path leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Found {
    /// The device that swallows and gives nothing.
    Null,
    /// The device that gives zeroes.
    Zero,
    /// Another device whose reads are known to act on nothing: full, random, urandom.
    Harmless,
    /// A regular file of so many bytes, in a file system that holds what was stored.
    File(u64),
    /// A file of so many bytes in any other file system, which is called so.
    Elsewhere(u64, String),
    /// weir's own device that does nothing (`drivers/nothing`).
    Nothing,
    /// A directory.
    Directory,
    /// A block device.
    Block,
    /// A character device of this driver, if that is known.
    Character(Option<String>),
    /// A pipe, with a name or without.
    Pipe,
    /// An eventfd.
    Event,
    /// A socket.
    Socket,
    /// Something else that can be opened, by its name.
    Other(String),
}

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
    /// `/dev/null`: every read brings nothing.
    Null,
    /// `/dev/zero`: every read brings zeroes.
    Zero,
    /// A regular file: blocks of it are read in turn.
    File,
    /// A pipe of weir's own: a read waits until something was written, and brings nothing once nobody can write.
    Pipe,
    /// An eventfd: a read brings 8 bytes, and waits while there is nothing to tell.
    Event,
    /// Timers, one for each I/O under way: a read takes as long as it is told to, and brings 8 bytes.
    Timer,
    /// weir's own device that does nothing (`drivers/nothing`): a read takes as long, and brings as much, as
    /// it was told to.
    Nothing,
    /// A character device that is known to be harmless, or that the caller named.
    Character,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Null => "null device",
            Kind::Zero => "device of zeroes",
            Kind::File => "regular file",
            Kind::Pipe => "pipe",
            Kind::Event => "eventfd",
            Kind::Timer => "timer",
            Kind::Nothing => "nothing device",
            Kind::Character => "character device",
        })
    }
}

/// Drivers of character devices behind which storage lies: flash, disks by their own commands, and what
/// was bound to a block device.
const STORAGE: [&str; 8] =
    ["mtd", "ubi", "raw", "scsi_generic", "bsg", "nvme", "nvme-generic", "scsi_changer"];

/// Drivers of terminals: what is read is what somebody types for another program.
const TERMINAL: &str = "tty";

/// What may be read, for whoever is refused.
const READABLE: &str = "weir reads /dev/null, /dev/zero, /dev/full, /dev/random, /dev/urandom, its own \
    /dev/nothing, eventfd: and timer:10us, and regular files of ordinary file systems";

/// Whether what was found may be read. `named`: the caller named this very path.
pub(super) fn judge(found: &Found, named: bool) -> Result<Kind, String> {
    let never = |what: &str| Err(format!("it is {what}; there is no flag for it; {READABLE}"));
    let unless_named = |what: &str| {
        Err(format!(
            "it is {what}; if this one is harmless, also name it with --device; {READABLE}"
        ))
    };
    let of_others = |what: &str| {
        never(&format!("{what}, and data read from it is lost to its intended reader"))
    };
    match found {
        Found::Null => Ok(Kind::Null),
        Found::Zero => Ok(Kind::Zero),
        Found::Harmless => Ok(Kind::Character),
        Found::File(_) => Ok(Kind::File),
        Found::Nothing => Ok(Kind::Nothing),
        Found::Elsewhere(..) if named => Ok(Kind::File),
        Found::Elsewhere(_, system) => unless_named(&format!(
            "a file of a file system that is not known to hold only stored data ({system}), and reading \
             some of these has side effects, or consumes data meant for others"
        )),
        Found::Directory => never("a directory"),
        Found::Block => never("a block device, which may hold somebody's data"),
        Found::Character(Some(driver)) if driver == TERMINAL => of_others("a terminal"),
        Found::Character(Some(driver)) if STORAGE.contains(&driver.as_str()) => {
            never(&format!("another way to storage (its driver is {driver})"))
        }
        Found::Character(_) if named => Ok(Kind::Character),
        Found::Character(driver) => unless_named(&format!(
            "a character device{}, and opening some of them has side effects (a tape rewinds, a watchdog \
             begins to count)",
            driver.as_ref().map_or(String::new(), |driver| format!(" of the driver {driver}"))
        )),
        Found::Pipe => of_others("a pipe"),
        Found::Event => of_others("an eventfd"),
        Found::Socket => of_others("a socket"),
        Found::Other(name) => never(name),
    }
}

/// Whether what was found may be written to: only what throws away all that is written.
pub(super) fn judge_for_writing(found: &Found) -> Result<Kind, String> {
    let what = match found {
        Found::Null => return Ok(Kind::Null),
        Found::Zero => return Ok(Kind::Zero),
        Found::File(_) => "a regular file",
        Found::Harmless => "a character device that does not discard what is written",
        Found::Elsewhere(..) => {
            "a file of a file system that is not known to hold only stored data, where a write may have \
             side effects"
        }
        Found::Nothing => "weir's own nothing device, which has no writes",
        Found::Directory => "a directory",
        Found::Block => "a block device",
        Found::Character(_) => "a character device that does something with what is written",
        Found::Pipe => "a pipe, which somebody reads",
        Found::Event => "an eventfd",
        Found::Socket => "a socket",
        Found::Other(name) => name,
    };
    Err(format!(
        "it is {what}; weir writes only to what discards it: /dev/null (1:3) and /dev/zero (1:5), by \
         their numbers, and there is no flag for anything else"
    ))
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
    /// an ordinary file system, weir's own nothing device. `-` is the standard input; `/dev/fd/3` the
    /// descriptor 3 of this process, which stays open. `named`: other character devices, and files of other file
    /// systems, that may be opened although that, or reading them, may act. Pipes, sockets and terminals are
    /// never read, whoever names them: what is read of them is taken away from others.
    ///
    /// # Errors
    /// [`Error::Refused`] for what must not be opened, [`Error::Io`] with the system's answer,
    /// [`Error::Unavailable`] where devices cannot be read at all.
    pub fn open(path: impl AsRef<Path>, named: &[PathBuf]) -> Result<Self, Error> {
        let path = path.as_ref();
        let consent = named.iter().any(|name| name == path);
        Self::judged(path, Direction::Read, |found| judge(found, consent))
    }

    /// Opens what a path leads to, to be written to. Only the devices that throw away all that is written may
    /// be, `/dev/null` and `/dev/zero`, whatever they are called here.
    ///
    /// # Errors
    /// As [`Device::open`]. What is refused was not opened.
    pub fn open_for_writing(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::judged(path.as_ref(), Direction::Write, judge_for_writing)
    }

    fn judged(
        path: &Path,
        direction: Direction,
        judge: impl FnOnce(&Found) -> Result<Kind, String>,
    ) -> Result<Self, Error> {
        let (descriptor, found, kind) = native::Descriptor::open(path, direction, |found| {
            let refused = |reason| Error::Refused { path: path.to_owned(), reason };
            judge(found).map_err(refused)
        })?;
        let bytes = match found {
            Found::File(bytes) | Found::Elsewhere(bytes, _) => bytes,
            _ => 0,
        };
        let (descriptor, path) = (Arc::new(descriptor), path.to_owned());
        Ok(Self { descriptor, path, kind, direction, bytes })
    }

    /// An eventfd that never runs out within a run: each read brings 8 bytes and takes one of 2^64 - 2.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Unavailable`].
    pub fn semaphore() -> Result<Self, Error> {
        let descriptor = Arc::new(native::Descriptor::semaphore()?);
        let (path, kind, direction) = ("eventfd:".into(), Kind::Event, Direction::Read);
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
            return Err(Error::Option { name: "delay".into(), problem });
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
        Err(Unavailable::new(what, reason).advise("take the design sync, or another device"))
    }

    /// Says why, where a control call that does nothing is not known. `design` makes such calls.
    pub(super) fn takes_control_calls(&self, design: &str) -> Result<(), Error> {
        if self.kind == Kind::Nothing {
            return Ok(());
        }
        let (path, kind) = (self.path.display(), self.kind);
        let problem = format!(
            "{design} makes control calls of weir's own nothing device, and {path} is another ({kind}), of \
             which no call is known to do nothing; name /dev/nothing"
        );
        Err(Error::Option { name: "design".into(), problem })
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

/// The longest delay of a timer. A thread that waits in a read of it is not called back.
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

impl Kind {
    /// Bytes that a read brings however many more are asked for, and which must be asked for.
    pub(super) fn record(self) -> Option<usize> {
        matches!(self, Kind::Event | Kind::Timer).then_some(8)
    }

    /// Whether a read may wait for somebody, for ever.
    pub(super) fn may_wait(self) -> bool {
        matches!(self, Kind::Pipe | Kind::Event | Kind::Character)
    }

    /// Whether a read that brings nothing says that nothing will come any more.
    pub(super) fn ends(self) -> bool {
        self == Kind::Pipe
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn found() -> impl Strategy<Value = Found> {
        let driver = prop_oneof![
            Just(None),
            prop::sample::select(&STORAGE[..]).prop_map(|name| Some(name.to_owned())),
            Just(Some(TERMINAL.to_owned())),
            "[a-z-]{1,12}".prop_map(Some),
        ];
        prop_oneof![
            Just(Found::Null),
            Just(Found::Zero),
            Just(Found::Harmless),
            any::<u64>().prop_map(Found::File),
            (any::<u64>(), "[a-z]{1,8}").prop_map(|(bytes, name)| Found::Elsewhere(bytes, name)),
            Just(Found::Directory),
            Just(Found::Block),
            driver.prop_map(Found::Character),
            Just(Found::Pipe),
            Just(Found::Event),
            Just(Found::Nothing),
            Just(Found::Socket),
            "[a-z]{1,12}".prop_map(Found::Other),
        ]
    }

    proptest! {
        /// Whatever is found: without being named only what is in the list is opened; naming opens other
        /// character devices and files and nothing else, never what leads to storage or what is read by
        /// others; and a refusal says what may be read.
        #[test]
        fn only_what_is_known_to_be_harmless_is_opened_unless_it_is_named(found in found()) {
            let (unnamed, named) = (judge(&found, false), judge(&found, true));
            let listed = matches!(
                found,
                Found::Null | Found::Zero | Found::Harmless | Found::File(_) | Found::Nothing
            );
            let nameable = match &found {
                Found::Elsewhere(..) | Found::Character(None) => true,
                Found::Character(Some(driver)) => {
                    driver != TERMINAL && !STORAGE.contains(&driver.as_str())
                }
                _ => false,
            };
            prop_assert_eq!(unnamed.is_ok(), listed);
            prop_assert_eq!(named.is_ok(), listed || nameable);
            prop_assert!(!matches!(named, Ok(Kind::Pipe | Kind::Event)), "those are weir's own");
            for refusal in [unnamed, named].into_iter().filter_map(Result::err) {
                prop_assert!(refusal.starts_with("it is ") && refusal.contains("weir reads /dev/null"));
                prop_assert_eq!(refusal.contains("--device"), nameable);
                prop_assert_eq!(refusal.contains("no flag"), !nameable);
            }
        }

        #[test]
        fn nothing_is_written_to_but_what_throws_it_away(found in found()) {
            match judge_for_writing(&found) {
                Ok(kind) => {
                    prop_assert!(matches!(found, Found::Null | Found::Zero));
                    prop_assert_eq!(Ok(kind), judge(&found, false));
                }
                Err(refusal) => {
                    prop_assert!(!matches!(found, Found::Null | Found::Zero));
                    prop_assert!(refusal.starts_with("it is ") && refusal.contains("no flag"));
                }
            }
        }
    }

    #[test]
    fn a_refusal_says_what_it_is() {
        let said = |found: Found| judge(&found, false).expect_err("refused");
        assert!(said(Found::Block).contains("block device"));
        assert!(said(Found::Character(Some("mtd".into()))).contains("driver is mtd"));
        assert!(said(Found::Character(Some("watchdog".into()))).contains("watchdog, and opening"));
        assert!(said(Found::Character(Some("tty".into()))).contains("a terminal, and data read"));
        assert!(said(Found::Directory).contains("directory"));
        assert!(said(Found::Pipe).contains("a pipe, and data read from it is lost"));
        assert!(said(Found::Elsewhere(0, "nsfs".into())).contains("(nsfs)"));
    }
}
