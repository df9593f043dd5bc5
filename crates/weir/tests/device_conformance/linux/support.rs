//! What the checks share: devices with known behaviour, and who notes what was read.

use super::super::suite;
pub use super::super::suite::{ON_PURPOSE, PATIENCE, Skipped, until};
use std::{
    fs::File,
    io::{self, Write},
    os::fd::AsRawFd,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};
use weir::{
    Error,
    device::{AnyDesign, Device, Final, Handler, Reads, Wants},
};

/// A check with its name.
pub type Check = suite::Check<AnyDesign>;

/// Notes what is read.
#[derive(Debug, Default)]
pub struct Notes {
    /// What each read brought, and where it was.
    pub reads: Vec<(u64, Vec<u8>)>,
    /// How many bytes each write wrote.
    pub written: Vec<usize>,
    /// Latencies.
    pub samples: Vec<u64>,
}

impl Handler for Notes {
    fn on_read(&mut self, bytes: &[u8], at: u64) {
        self.reads.push((at, bytes.to_vec()));
    }

    fn on_write(&mut self, bytes: usize) {
        self.written.push(bytes);
    }

    fn on_sample(&mut self, ns: u64) {
        self.samples.push(ns);
    }
}

/// What came of a run, checked for what holds of every run.
pub struct Ran {
    pub report: Final<Notes>,
}

impl Ran {
    pub fn reads(&self) -> impl Iterator<Item = &(u64, Vec<u8>)> {
        self.report.threads.iter().flat_map(|thread| &thread.handler.reads)
    }

    pub fn failure(&self) -> String {
        self.report.failure.as_ref().expect("it failed").to_string()
    }
}

/// What holds of every run that is over.
pub fn settled(report: Final<Notes>) -> Ran {
    let total = report.total();
    assert_eq!(total.issued, total.completed + total.failed, "{total:?}");
    assert!(total.cancelled <= total.failed, "{total:?}");
    let (made, returned) = report.buffers;
    assert_eq!(made, returned, "every buffer is back");
    let notes = || report.threads.iter().map(|thread| &thread.handler);
    let told: usize = notes().map(|notes| notes.reads.len() + notes.written.len()).sum();
    assert_eq!(told as u64, total.completed, "each completed I/O was told once");
    let read: usize = notes().flat_map(|notes| &notes.reads).map(|read| read.1.len()).sum();
    let bytes = read + notes().flat_map(|notes| &notes.written).sum::<usize>();
    assert_eq!(bytes as u64, total.bytes);
    assert_eq!(report.errors.all(), total.errors(), "each error is known by what it says");
    Ran { report }
}

/// Runs to the end that the reads themselves bring.
pub fn run(design: &AnyDesign, reads: Reads) -> Result<Ran, Skipped> {
    let running = start(design, reads, |_| Notes::default())?;
    assert!(running.wait_for(PATIENCE), "it ends by itself");
    assert!(!running.is_running());
    Ok(settled(running.stop()))
}

/// Starts it, unless the design refuses such a device, saying why.
pub fn start<H: Handler>(
    design: &AnyDesign,
    reads: Reads,
    handlers: impl FnMut(usize) -> H + Send + 'static,
) -> Result<weir::device::Running<H>, Skipped> {
    match reads.start(design.clone(), handlers) {
        Ok(running) => Ok(running),
        Err(Error::Unavailable(reason)) => {
            assert_eq!(design.about().name, "libaio", "{reason}");
            Err(Skipped(reason.to_string()))
        }
        Err(other) => panic!("{design:?}: {other}"),
    }
}

/// Whether the design asks its device for bytes at all.
pub fn asks(design: &AnyDesign) -> Result<(), Skipped> {
    match design.wants() {
        Wants::Content => Ok(()),
        _ => Err(Skipped("it asks for nothing".into())),
    }
}

/// A directory of its own, which goes with it.
pub struct Place(PathBuf);

impl Place {
    pub fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("weir-device-{}-{number}", std::process::id());
        let place = std::env::temp_dir().join(name);
        std::fs::create_dir(&place).expect("a directory for the test");
        Self(place)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// A file of so many bytes of [`pattern`].
    pub fn file(&self, bytes: usize) -> PathBuf {
        let path = self.path("file");
        let content: Vec<u8> = (0..bytes as u64).map(pattern).collect();
        File::create(&path).and_then(|mut file| file.write_all(&content)).expect("a file");
        path
    }

    /// A named pipe.
    pub fn fifo(&self) -> PathBuf {
        let path = self.path("fifo");
        let text = std::ffi::CString::new(path.to_str().expect("text")).expect("no zero in it");
        // SAFETY: the path is a string that ends with a zero.
        let made = unsafe { libc::mkfifo(text.as_ptr(), 0o600) };
        assert_eq!(made, 0, "{}", io::Error::last_os_error());
        path
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The byte at this place of a file: blocks differ from one another, whatever their length.
pub fn pattern(at: u64) -> u8 {
    (at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8
}

/// A device that answers at once, and that the design can ask.
pub fn at_once(design: &AnyDesign) -> Device {
    match design.wants() {
        Wants::Calls => open(super::nothing::PATH),
        _ => open("/dev/null"),
    }
}

pub fn open(path: impl AsRef<Path>) -> Device {
    Device::open(path, &[]).expect("it may be opened")
}

/// A device that is a descriptor of this process.
pub fn device_of(fd: &impl AsRawFd) -> Device {
    open(format!("/dev/fd/{}", fd.as_raw_fd()))
}
