//! Devices of Linux: what a path leads to, found out without opening it; and reads and writes that return when
//! they are over.
//!
//! Origin: open(2) with O_PATH (Linux 2.6.39), proc_pid_fd(5); read(2), pread(2), write(2); poll(2).

mod aio;
mod file_systems;
mod nothing;
mod port;
mod ring;
mod sources;
mod target;
#[cfg(test)]
mod tests;
mod under_way;

pub(super) use aio::AioQueue;
pub(super) use nothing::Controls;
pub(super) use port::DevicePort;
pub(super) use ring::RingQueue;
pub(super) use target::{NAMES, is_of_this_process};

use super::{
    io::{Issues, Outcome},
    kind::{Direction, Kind},
};
use crate::{
    Error, Unavailable, counters::Counters, readiness::wake_event::WakeEvent, wake::Waker,
};
use nix::{
    NixPath,
    errno::Errno,
    fcntl::{self, FcntlArg, OFlag, fcntl},
    sys::{
        eventfd::{EfdFlags, EventFd},
        stat::Mode,
        statfs::fstatfs,
    },
};
use sources::Sources;
use std::{
    ffi::CString,
    fs::File,
    io,
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
        unix::{ffi::OsStrExt, fs::FileTypeExt, fs::MetadataExt},
    },
    path::Path,
    sync::Arc,
    time::Duration,
};
use target::{Found, WRITABLE, judge, judge_for_writing};

/// What the system answers that has not enough of something: memory, descriptors, threads.
pub const SHORTAGES: &[i32] = &[libc::ENOMEM, libc::EMFILE, libc::ENFILE, libc::EAGAIN];

/// An open device. Flags of a descriptor that belongs to others, too, are put back when it goes.
#[derive(Debug)]
pub struct Descriptor {
    fd: OwnedFd,
    /// Its flags as they were.
    flags: OFlag,
    /// What each I/O does.
    direction: Direction,
    /// Whether reads name their place.
    positional: bool,
    /// Whether a read may wait for somebody.
    may_wait: bool,
    /// Whether it is weir's own device that does nothing.
    nothing: bool,
    /// How long a read of a timer takes; there is one for each I/O (see [`Sources`]).
    delay: Option<Duration>,
}

impl Descriptor {
    /// Always here.
    #[expect(clippy::unnecessary_wraps, reason = "elsewhere there are no devices")]
    pub fn availability() -> Result<(), Unavailable> {
        Ok(())
    }

    /// Opens what a path leads to if it may be, for reading or for writing: says what it is, and how many bytes a
    /// regular file has. `named`: the caller named this very path.
    pub fn open(
        path: &Path,
        direction: Direction,
        named: bool,
    ) -> Result<(Self, Kind, u64), Error> {
        let refused = |reason| Error::Refused { path: path.to_owned(), reason };
        let (descriptor, found, kind) = Self::judged(path, direction, |found| {
            let kind = match direction {
                Direction::Read => judge(found, named),
                Direction::Write => judge_for_writing(found),
            };
            kind.map_err(refused)
        })?;
        Ok((descriptor, kind, found.bytes()))
    }

    /// Looks at what a path leads to, lets `judge` decide, and opens exactly that, for reading or for writing.
    fn judged(
        path: &Path,
        direction: Direction,
        judge: impl FnOnce(&Found) -> Result<Kind, Error>,
    ) -> Result<(Self, Found, Kind), Error> {
        if let Some(number) = descriptor_named(path) {
            let fd = duplicate(number)
                .map_err(|e| Error::io(format!("taking {} over", path.display()), e))?;
            let (found, kind) = look(&fd, path, judge)?;
            let descriptor = Self::new(fd, kind, direction, path)?;
            let reason = match (direction, descriptor.flags & OFlag::O_ACCMODE) {
                (Direction::Read, OFlag::O_WRONLY) => {
                    "it is open for writing only; open it for reading"
                }
                (Direction::Write, OFlag::O_RDONLY) => {
                    "it is open for reading only; open it for writing"
                }
                _ => return Ok((descriptor, found, kind)),
            };
            return Err(Error::Refused { path: path.to_owned(), reason: reason.to_owned() });
        }
        let text = CString::new(path.as_os_str().as_bytes()).map_err(|_| Error::Refused {
            path: path.to_owned(),
            reason: "a path holds no zero byte".into(),
        })?;
        // It is not opened: nothing acts, and nothing need be readable.
        let place = open(&*text, OFlag::O_PATH).map_err(|e| match direction {
            // Whoever made it would be refused then.
            Direction::Write if e.kind() == io::ErrorKind::NotFound => Error::Refused {
                path: path.to_owned(),
                reason: format!("there is nothing of that name; {WRITABLE}"),
            },
            _ => cannot_open(path, e),
        })?;
        let (found, kind) = look(&place, path, judge)?;
        // By this name it is opened itself, and not what has taken its name meanwhile. O_NONBLOCK:
        // some devices that may be named would wait in this call.
        let itself = format!("/proc/self/fd/{}", place.as_raw_fd());
        let access = match direction {
            Direction::Read => OFlag::O_RDONLY,
            Direction::Write => OFlag::O_WRONLY,
        };
        let flags = access | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
        let fd = open(itself.as_str(), flags).map_err(|e| cannot_open(path, e))?;
        Ok((Self::new(fd, kind, direction, path)?, found, kind))
    }

    /// An eventfd of which each read takes one of 2^64 - 2.
    pub fn semaphore() -> Result<Self, Error> {
        let flags = EfdFlags::EFD_SEMAPHORE | EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC;
        let event = EventFd::from_flags(flags);
        let event = event.map_err(|e| Error::io("making an eventfd", e.into()))?;
        event.write(u64::MAX - 1).map_err(|e| Error::io("filling an eventfd", e.into()))?;
        Self::new(event.into(), Kind::Event, Direction::Read, Path::new("eventfd:"))
    }

    /// A pipe, and who writes into it.
    pub fn pipe() -> Result<(Self, io::PipeWriter), Error> {
        let (reader, writer) = io::pipe().map_err(|e| Error::io("making a pipe", e))?;
        Ok((Self::new(reader.into(), Kind::Pipe, Direction::Read, Path::new("pipe"))?, writer))
    }

    /// A timer of which each read takes so long, proved by one that takes next to no time.
    pub fn timer(delay: Duration) -> Result<Self, Error> {
        let failed = |what: &str, e| Error::io(format!("{what} a timer"), e);
        let timer = sources::timer().map_err(|e| failed("making", e.into()))?;
        let at_once = sources::once(Duration::ZERO);
        sources::set(&timer, at_once).map_err(|e| failed("setting", e.into()))?;
        let mut expired = [0; 8];
        let mut file = File::from(OwnedFd::from(timer));
        io::Read::read_exact(&mut file, &mut expired).map_err(|e| failed("reading", e))?;
        let path = Path::new("timer:");
        let mut timer = Self::new(file.into(), Kind::Timer, Direction::Read, path)?;
        timer.delay = Some(delay);
        Ok(timer)
    }

    fn new(fd: OwnedFd, kind: Kind, direction: Direction, path: &Path) -> Result<Self, Error> {
        let flags = fcntl(&fd, FcntlArg::F_GETFL).map_err(|e| cannot_open(path, e.into()))?;
        let flags = OFlag::from_bits_retain(flags);
        let positional = kind == Kind::File;
        let may_wait = matches!(kind, Kind::Pipe | Kind::Event | Kind::Character);
        let (nothing, delay) = (kind == Kind::Nothing, None);
        let descriptor = Self { fd, flags, direction, positional, may_wait, nothing, delay };
        if nothing {
            nothing::settings(descriptor.raw()).map_err(|answer| Error::Refused {
                path: path.to_owned(),
                reason: format!(
                    "it has the name of weir's own nothing device, but does not answer as that does ({answer}); unload \
                     that driver, or load one of this version"
                ),
            })?;
            // Its reads that take their time refuse who will not wait, and are over by themselves.
            descriptor.set_waits(true).map_err(|e| cannot_open(path, e))?;
        }
        Ok(descriptor)
    }

    /// Its control calls, if it is the nothing device.
    pub fn controls(self: &Arc<Self>) -> Controls {
        Controls::of(self)
    }

    /// What is to be known of it beside every figure: name and value.
    pub fn stated(&self) -> Vec<(&'static str, String)> {
        if self.nothing {
            return nothing::settings(self.raw()).map_or_else(|_| Vec::new(), |set| set.stated());
        }
        let Some(delay) = self.delay else { return Vec::new() };
        let setting = "timerfd_settime(2): a kernel entry for each I/O";
        vec![
            ("delay-ns", delay.as_nanos().to_string()),
            ("setting-it", setting.into()),
            ("on-a-ring", sources::on_a_ring(&self.fd).into()),
        ]
    }

    /// Whether a read waits in its call for what is not there yet, or says so.
    fn set_waits(&self, waits: bool) -> io::Result<()> {
        if !self.may_wait && !self.nothing {
            return Ok(()); // no read of it ever waits
        }
        let flags = match waits || self.nothing {
            true => self.flags - OFlag::O_NONBLOCK,
            false => self.flags | OFlag::O_NONBLOCK,
        };
        fcntl(&self.fd, FcntlArg::F_SETFL(flags))?;
        Ok(())
    }

    /// Cancels all that is under way, on a device that can do so itself.
    fn cancel_all(&self) {
        if self.nothing {
            nothing::cancel_all(self.raw());
        }
    }

    fn raw(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// What an operation says for its place where it does not name one.
    fn offset(&self, at: u64) -> u64 {
        match self.may_wait {
            true => u64::MAX, // "the current one": what waits has no places
            false => at,
        }
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        if self.may_wait || self.nothing {
            // It fails for no descriptor that is open.
            let _ = fcntl(&self.fd, FcntlArg::F_SETFL(self.flags));
        }
    }
}

/// The descriptor of this process that a path names.
fn descriptor_named(path: &Path) -> Option<RawFd> {
    let text = path.to_str()?;
    if matches!(text, "-" | "/dev/stdin") {
        return Some(0);
    }
    let number = text.strip_prefix("/dev/fd/").or_else(|| text.strip_prefix("/proc/self/fd/"))?;
    number.parse().ok()
}

fn duplicate(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: takes plain numbers; a descriptor that is not open is an error.
    let fd = Errno::result(unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0) })?;
    // SAFETY: a new descriptor, which nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn open<P: ?Sized + NixPath>(path: &P, flags: OFlag) -> io::Result<OwnedFd> {
    Ok(fcntl::open(path, flags | OFlag::O_CLOEXEC, Mode::empty())?)
}

fn cannot_open(path: &Path, source: io::Error) -> Error {
    let what = match source.raw_os_error() {
        Some(libc::ENOENT) => "there is nothing of that name; check the path",
        Some(libc::EACCES | libc::EPERM) => "run as a user who may read it, or write to it",
        Some(libc::ENXIO | libc::ENODEV) => "no driver serves it",
        Some(libc::EBUSY) => "another program has it for itself",
        Some(libc::EMFILE | libc::ENFILE) => "raise the limit of descriptors (`ulimit -n`)",
        _ => return Error::io(format!("opening {}", path.display()), source),
    };
    Error::io(format!("opening {} ({what})", path.display()), source)
}

fn look(
    fd: &OwnedFd,
    path: &Path,
    judge: impl FnOnce(&Found) -> Result<Kind, Error>,
) -> Result<(Found, Kind), Error> {
    let found = find(fd).map_err(|e| cannot_open(path, e))?;
    let kind = judge(&found)?;
    Ok((found, kind))
}

/// What a descriptor is, be it open or only a place.
fn find(fd: &OwnedFd) -> io::Result<Found> {
    let file = File::from(fd.try_clone()?);
    let meta = file.metadata()?;
    let kind = meta.file_type();
    Ok(if kind.is_file() {
        match not_ordinary(fd)? {
            Some(system) => Found::Elsewhere(meta.len(), system),
            None => Found::File(meta.len()),
        }
    } else if kind.is_dir() {
        Found::Directory
    } else if kind.is_block_device() {
        Found::Block
    } else if kind.is_char_device() {
        character(libc::major(meta.rdev()), libc::minor(meta.rdev()))
    } else if kind.is_fifo() {
        Found::Pipe
    } else if kind.is_socket() {
        Found::Socket
    } else {
        anonymous(fd)
    })
}

/// The name of the file system that a descriptor leads into, unless its files are only files.
fn not_ordinary(fd: &OwnedFd) -> io::Result<Option<String>> {
    // Its type depends on the processor; the numbers have 32 bits.
    Ok(file_systems::not_ordinary(fstatfs(fd)?.filesystem_type().0 as u32))
}

/// Numbers of linux/Documentation/admin-guide/devices.txt.
fn character(major: u32, minor: u32) -> Found {
    const MEMORY: u32 = 1;
    match (major, minor) {
        (MEMORY, 3) => Found::Null,
        (MEMORY, 5) => Found::Zero,
        (MEMORY, 7) => Found::Harmless,
        (MEMORY, 8) if !random_runs_out() => Found::Harmless,
        (MEMORY, 9) => Found::Harmless,
        _ if nothing::is_number(major, minor) => Found::Nothing,
        _ => Found::Character(driver(major, minor)),
    }
}

/// Whether reading /dev/random takes from a pool what others wait for. Linux 5.6 did away with that pool, and
/// with the setting that says when who waits for it is woken.
fn random_runs_out() -> bool {
    Path::new("/proc/sys/kernel/random/read_wakeup_threshold").exists()
}

/// Who serves a character device: its class as sysfs names it, or, without one, by its number.
fn driver(major: u32, minor: u32) -> Option<String> {
    let class = std::fs::read_link(format!("/sys/dev/char/{major}:{minor}/subsystem"));
    let name = class.ok().and_then(|path| Some(path.file_name()?.to_str()?.to_owned()));
    name.or_else(|| {
        let known = match major {
            // Terminals of pairs (devpts) are in no class.
            4 | 5 | 136..=143 => "tty",
            9 => "scsi_tape",
            10 => "misc",
            21 => "scsi_generic",
            90 => "mtd",
            162 => "raw",
            _ => return None,
        };
        Some(known.to_owned())
    })
}

/// What has no type of file: the kernel names it.
fn anonymous(fd: &OwnedFd) -> Found {
    let link = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()));
    let name = link.map_or("something without a name".into(), |link| link.display().to_string());
    match name.as_str() {
        "anon_inode:[eventfd]" => Found::Event,
        _ => Found::Other(name),
    }
}

/// I/Os that return when they are over, of one thread.
#[derive(Debug)]
pub struct Plain {
    descriptor: Arc<Descriptor>,
    source: Sources,
    /// Ends a wait.
    wake_event: Arc<WakeEvent>,
}

impl Plain {
    /// The name of what reads and writes with plain system calls.
    pub const PROVIDER: &'static str = "calls";

    pub fn new(descriptor: &Arc<Descriptor>) -> Result<Self, Error> {
        descriptor.set_waits(false).map_err(|e| Error::io("asking reads not to wait", e))?;
        let wake_event =
            WakeEvent::new().map_err(|e| Error::io("making an eventfd to end waits", e))?;
        let source = Sources::of(descriptor, 1)?;
        Ok(Self { descriptor: Arc::clone(descriptor), source, wake_event: Arc::new(wake_event) })
    }

    #[inline]
    fn once(&self, buffer: &mut [u8], at: u64, calls: &Counters) -> isize {
        calls.kernel_entries.one();
        let (fd, first, bytes) = (self.source.fd(0), buffer.as_mut_ptr(), buffer.len());
        if self.descriptor.positional {
            // SAFETY: the kernel writes at most `bytes` into the buffer, which outlives the call.
            unsafe { libc::pread(fd, first.cast(), bytes, at as libc::off_t) }
        } else if self.descriptor.direction == Direction::Write {
            // SAFETY: the kernel reads `bytes` of the buffer, which outlives the call.
            unsafe { libc::write(fd, first.cast(), bytes) }
        } else {
            // SAFETY: as above.
            unsafe { libc::read(fd, first.cast(), bytes) }
        }
    }

    /// The same I/O until it is over, after one that was not.
    #[cold]
    fn again(&self, buffer: &mut [u8], at: u64, calls: &Counters) -> Outcome {
        loop {
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EAGAIN) => match self.wait(calls) {
                    Ok(true) => {}
                    Ok(false) => return Outcome::Cancelled,
                    Err(e) => return Outcome::Failed(e),
                },
                Some(libc::EINTR) => {}
                Some(libc::ECANCELED) => return Outcome::Cancelled,
                _ => return Outcome::Failed(error),
            }
            let bytes = self.once(buffer, at, calls);
            if bytes >= 0 {
                return Outcome::Moved(bytes as usize);
            }
        }
    }

    /// Waits until something can be read (true) or the wake event was signalled.
    fn wait(&self, calls: &Counters) -> io::Result<bool> {
        let watch = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut watched = [watch(self.descriptor.raw()), watch(self.wake_event.fd())];
        loop {
            calls.kernel_entries.one();
            calls.waits.one();
            // SAFETY: the kernel writes into the two entries, which outlive the call.
            let ready = unsafe { libc::poll(watched.as_mut_ptr(), 2, -1) };
            if ready > 0 {
                // The wake event is never cleared: it ends this wait and all that follow.
                return Ok(watched[1].revents == 0);
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }
}

impl Issues for Plain {
    fn waker(&self) -> Waker {
        let (wake_event, descriptor) = (Arc::clone(&self.wake_event), Arc::clone(&self.descriptor));
        Waker::new(move || {
            wake_event.signal();
            descriptor.cancel_all();
        })
    }

    /// Reads once, or writes once.
    #[inline]
    fn issue(&self, buffer: &mut [u8], at: u64, calls: &Counters) -> Outcome {
        self.source.prepare(0, calls);
        let bytes = self.once(buffer, at, calls);
        if bytes >= 0 { Outcome::Moved(bytes as usize) } else { self.again(buffer, at, calls) }
    }
}

/// What the kernel's answer to an operation means.
#[inline]
fn outcome(result: i64) -> Outcome {
    if result >= 0 {
        return Outcome::Moved(result as usize);
    }
    match -result as i32 {
        // EINTR: a worker of the kernel was waiting in it.
        libc::ECANCELED | libc::EINTR => Outcome::Cancelled,
        errno => Outcome::Failed(io::Error::from_raw_os_error(errno)),
    }
}

/// Something to read where anybody may, for a proof: it brings nothing, at once.
fn null() -> io::Result<Arc<Descriptor>> {
    let fd = open("/dev/null", OFlag::O_RDONLY)?;
    Ok(Arc::new(Descriptor {
        fd,
        flags: OFlag::empty(),
        direction: Direction::Read,
        positional: false,
        may_wait: false,
        nothing: false,
        delay: None,
    }))
}
