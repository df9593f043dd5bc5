//! `nothing.h` in Rust, and an open `/dev/nothing`.

use std::{
    fs::File,
    io,
    os::{fd::AsRawFd as _, fd::RawFd, unix::fs::OpenOptionsExt as _},
};

/// The device.
pub const PATH: &str = "/dev/nothing";

/// The longest delay.
pub const MOST_DELAY_NS: u64 = 1_000_000_000;
/// Most I/Os that are pending on one open file.
pub const MOST_PENDING: u32 = 65_536;

/// `_IOC` of Linux on x86 and most others: direction, size of the argument, magic, number.
const fn ioctl(direction: u32, number: u32, size: usize) -> u32 {
    const MAGIC: u32 = 0xDE;
    direction << 30 | (size as u32) << 16 | MAGIC << 8 | number
}

/// The I/O that moves nothing; also the operation of `IORING_OP_URING_CMD`.
pub const DO: u32 = ioctl(0, 0, 0);
/// What is set.
pub const GET: u32 = ioctl(2, 1, size_of::<Settings>());
/// Sets.
pub const SET: u32 = ioctl(1, 2, size_of::<Settings>());
/// What happened.
pub const COUNT: u32 = ioctl(2, 3, size_of::<Counts>());
/// Ends what is pending.
pub const CANCEL: u32 = ioctl(0, 4, 0);

/// Where an I/O is completed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Completion {
    Inline,
    Timer,
    Work,
    OtherCpu,
}

/// How many I/Os are under way at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Dispatch {
    Parallel,
    Sequential,
}

/// `struct nothing_settings`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Settings {
    pub completion: u32,
    pub dispatch: u32,
    pub bytes: u32,
    pub reserved: u32,
    pub delay_ns: u64,
}

/// `struct nothing_counts`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Counts {
    pub inlined: u64,
    pub pended: u64,
    pub completed: u64,
    pub cancelled: u64,
    pub pending: u64,
    pub nonblocking: u64,
    pub worker: u64,
    pub strayed: u64,
}

/// Completion and dispatch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mode(pub Completion, pub Dispatch);

/// Every mode.
pub const MODES: [Mode; 8] = [
    Mode(Completion::Inline, Dispatch::Parallel),
    Mode(Completion::Inline, Dispatch::Sequential),
    Mode(Completion::Timer, Dispatch::Parallel),
    Mode(Completion::Timer, Dispatch::Sequential),
    Mode(Completion::Work, Dispatch::Parallel),
    Mode(Completion::Work, Dispatch::Sequential),
    Mode(Completion::OtherCpu, Dispatch::Parallel),
    Mode(Completion::OtherCpu, Dispatch::Sequential),
];

/// The modes in which an I/O is pending.
pub fn pending_modes() -> impl Iterator<Item = Mode> {
    MODES.into_iter().filter(|mode| mode.pends())
}

impl Mode {
    /// Whether an I/O is pending in it.
    pub fn pends(self) -> bool {
        self.0 != Completion::Inline
    }

    /// The settings of it.
    pub fn with(self, bytes: u32, delay_ns: u64) -> Settings {
        Settings {
            completion: self.0 as u32,
            dispatch: self.1 as u32,
            bytes,
            reserved: 0,
            delay_ns,
        }
    }
}

/// An open file of the device.
#[derive(Debug)]
pub struct Nothing(File);

impl Nothing {
    /// Opens it as any program would.
    pub fn open() -> io::Result<Self> {
        Self::open_with(0)
    }

    /// Opens it with more flags of open(2).
    pub fn open_with(flags: i32) -> io::Result<Self> {
        File::options().read(true).custom_flags(flags).open(PATH).map(Self)
    }

    /// Opens it and sets it.
    pub fn set_up(settings: Settings) -> io::Result<Self> {
        let nothing = Self::open()?;
        nothing.set(settings)?;
        Ok(nothing)
    }

    /// Another descriptor of the same open file (dup).
    pub fn another(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }

    /// For the standard input of another process.
    pub fn into_stdio(self) -> std::process::Stdio {
        self.0.into()
    }

    pub fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    pub fn get(&self) -> io::Result<Settings> {
        let mut settings = Settings::default();
        self.ioctl(GET, &raw mut settings as usize)?;
        Ok(settings)
    }

    pub fn set(&self, settings: Settings) -> io::Result<()> {
        self.ioctl(SET, &raw const settings as usize).map(drop)
    }

    pub fn count(&self) -> io::Result<Counts> {
        let mut counts = Counts::default();
        self.ioctl(COUNT, &raw mut counts as usize)?;
        Ok(counts)
    }

    /// Ends what is pending, and says how many there were.
    pub fn cancel(&self) -> io::Result<u32> {
        self.ioctl(CANCEL, 0)
    }

    /// The I/O that moves nothing.
    pub fn do_nothing(&self) -> io::Result<u32> {
        self.ioctl(DO, 0)
    }

    /// read(2), not repeated after a signal.
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        // SAFETY: the buffer is ours for the length of the call.
        answer(unsafe { libc::read(self.fd(), buffer.as_mut_ptr().cast(), buffer.len()) })
    }

    /// preadv2(2) with flags as RWF_NOWAIT.
    pub fn read_with(&self, buffer: &mut [u8], flags: i32) -> io::Result<usize> {
        let part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        // SAFETY: `part` names the buffer, and both are ours for the length of the call.
        answer(unsafe { libc::preadv2(self.fd(), &raw const part, 1, 0, flags) })
    }

    /// ioctl(2) with any number and argument; the kernel checks addresses.
    pub fn ioctl(&self, number: u32, argument: usize) -> io::Result<u32> {
        // SAFETY: the driver writes at most the structure that `number` names, to where the
        // argument points; callers pass one of that type, or an address that is not mapped.
        let result = unsafe { libc::ioctl(self.fd(), libc::Ioctl::from(number), argument) };
        answer(result as isize).map(|value| value as u32)
    }
}

/// What a call returned, or what errno says.
pub fn answer(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}
