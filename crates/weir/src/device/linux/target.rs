//! What may be opened on Linux, and what devices are called there.
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

use crate::device::kind::{Kind, Names};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Where it is, unless somebody has moved it.
pub const NOTHING: &str = "/dev/nothing";

/// What devices are called here.
pub const NAMES: Names = Names {
    null: "/dev/null",
    zeroes: Some("/dev/zero"),
    nothing: Some(NOTHING),
    semaphore: "eventfd:",
    event: "eventfd",
    readable: "/dev/null, /dev/zero, /dev/full, /dev/random and /dev/urandom, by their device numbers; weir's own \
               /dev/nothing; regular files of ordinary file systems (ext4, xfs, btrfs, tmpfs, overlayfs, nfs and the \
               like), also as a descriptor of this process (- or /dev/fd/N); eventfd:, an eventfd of weir's own that \
               never runs out; and timer:DELAY, as timer:10us, 0 to 1s: a device on which every read takes that long, \
               by a timer that is set for each I/O (a system call, counted). Other character devices, and files of \
               other file systems (/proc, /sys, fuse), only if also named with --device, because opening or reading \
               some has side effects. Pipes, sockets and terminals never, since data read from them is lost to its \
               intended reader; nor block devices and other paths to storage.",
    writable: "/dev/null and /dev/zero",
};

/// What a path leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Found {
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

impl Found {
    /// Bytes of a regular file; 0 of anything else.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Found::File(bytes) | Found::Elsewhere(bytes, _) => *bytes,
            _ => 0,
        }
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

/// What may be written to, for whoever is refused.
pub(super) const WRITABLE: &str = "weir writes only to what discards it: /dev/null (1:3) and /dev/zero (1:5), by their \
    numbers, and no flag allows anything else";

/// Whether what was found may be read. `named`: the caller named this very path.
pub(super) fn judge(found: &Found, named: bool) -> Result<Kind, String> {
    let never = |what: &str| Err(format!("it is {what}, which no flag allows; {READABLE}"));
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
            never(&format!("another path to storage (its driver is {driver})"))
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
    Err(format!("it is {what}; {WRITABLE}"))
}

/// Most links that are followed, as by the kernel.
const MOST_LINKS: usize = 40;

/// Whether a path leads to what this process has open: `-`, /dev/stdin, /dev/fd/3, /proc/self/fd/3, or a link to one
/// of those.
pub fn is_of_this_process(path: &Path) -> bool {
    if path.as_os_str() == "-" {
        return true;
    }
    let own = PathBuf::from(format!("/proc/{}", std::process::id()));
    let mut path = path.to_owned();
    for _ in 0..MOST_LINKS {
        let Some(folder) = path.parent().and_then(|folder| {
            fs::canonicalize(if folder.as_os_str().is_empty() { Path::new(".") } else { folder })
                .ok()
        }) else {
            return false;
        };
        if folder == Path::new("/dev/fd") || (folder.starts_with(&own) && folder.ends_with("fd")) {
            return true;
        }
        let Ok(target) = fs::read_link(&path) else { return false };
        path = folder.join(target);
    }
    false
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
