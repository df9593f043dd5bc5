//! What connections send: bytes of the pattern, or a file.
//!
//! Where nothing comes back there is nothing to compare, and what is sent is the same each time, as by other
//! clients that only send: making it anew would take time from sending.
//!
//! A file is one message, over and over. It is sent by sendfile(2) or TransmitFile, which hands the pages that the system
//! has of it to the socket, so that no byte is copied before the receiver takes it; or, to compare,
//! it is read and sent. MSG_ZEROCOPY is not used: it spares the same copy for memory of the program's own,
//! but on loopback, the only way that a load goes, the kernel copies such bytes all the same.
//!
//! What comes back is compared with what the file holds there then. A file that is changed meanwhile
//! spoils that: so a difference is a fault of the server only where the file is as it was.

use super::{
    LoadError,
    moves::{Moves, Sending},
    pattern::Pattern,
    system::{self, Socket},
};
use serde::{Deserialize, Serialize};
use std::{
    fmt,
    fs::{File, Metadata},
    io,
    path::{Path, PathBuf},
    time::SystemTime,
};

/// Bytes handed over by one call at most: the system takes as many as the socket has room for.
const SENDFILE_BYTES: u64 = 1 << 20;
/// Bytes of the file that are read at a time to be compared.
const COMPARED_BYTES: usize = 64 * 1024;

/// The bytes of a message, at least and at most. Where they differ each message has a length of its
/// own, which follows from the connection and the message's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// The shortest; at least 1.
    pub least: u32,
    /// The longest.
    pub most: u32,
}

impl Sizes {
    /// Messages of one length.
    pub fn of(bytes: u32) -> Self {
        Self { least: bytes, most: bytes }
    }

    #[inline]
    pub(super) fn of_message(self, pattern: Pattern, number: u64) -> u64 {
        let Self { least, most } = self;
        if least == most {
            return u64::from(least);
        }
        // The pattern's far end, which no stream reaches, gives the lengths.
        let at = (1u64 << 63) | number.wrapping_mul(4);
        let random = u32::from_le_bytes(std::array::from_fn(|i| pattern.byte(at + i as u64)));
        let lengths = u64::from(most - least) + 1;
        u64::from(least) + ((u64::from(random) * lengths) >> 32)
    }
}

/// What makes bytes that came wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wrong {
    /// The connection's number.
    pub connection: u32,
    /// Where in its stream.
    pub offset: u64,
    /// The byte that belongs there; none where nothing does, since no more was sent.
    pub expected: Option<u8>,
    /// The byte that came.
    pub found: u8,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { connection, offset, found, .. } = self;
        match self.expected {
            Some(byte) => write!(
                f,
                "connection {connection}: byte {offset} came back as {found:#04x}, but was sent as {byte:#04x}"
            ),
            None => write!(
                f,
                "connection {connection}: byte {offset} ({found:#04x}) came back, but was never sent"
            ),
        }
    }
}

/// How a file is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FileBy {
    /// By sendfile(2), or TransmitFile: nothing is copied here.
    #[default]
    Sendfile,
    /// It is read and sent.
    Copy,
}

/// A file that is sent, as it was when the load began.
#[derive(Debug)]
pub(super) struct SentFile {
    path: PathBuf,
    file: File,
    bytes: u64,
    modified: Option<SystemTime>,
    by: FileBy,
}

impl SentFile {
    pub(super) fn open(path: &Path, by: FileBy) -> Result<Self, LoadError> {
        let wrong = |problem: String| LoadError::File { path: path.to_owned(), problem };
        let cannot = |error: io::Error| wrong(format!("{error}"));
        // Opening what is no file, a pipe for instance, may wait for ever.
        check(&std::fs::metadata(path).map_err(cannot)?).map_err(wrong)?;
        let file = File::open(path).map_err(cannot)?;
        let metadata = file.metadata().map_err(cannot)?;
        check(&metadata).map_err(wrong)?;
        let (bytes, modified) = (metadata.len(), metadata.modified().ok());
        Ok(Self { path: path.to_owned(), file, bytes, modified, by })
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn describe(&self) -> String {
        let Self { path, bytes, by, .. } = self;
        let by = match by {
            FileBy::Sendfile => format!("by {}", system::SENDS_FILES_BY),
            FileBy::Copy => "read and sent".into(),
        };
        format!("{bytes}, the file {}, {by}", path.display())
    }

    /// Sends what lies at an offset of the stream, so many bytes at most; gives how many were asked for,
    /// and how many were taken.
    fn send(
        &self,
        socket: &Socket,
        offset: u64,
        unsent: u64,
        scratch: &mut [u8],
    ) -> Result<Sending, Amiss> {
        let at = offset % self.bytes;
        let left = unsent.min(self.bytes - at);
        let result = match self.by {
            FileBy::Sendfile => {
                let asked = left.min(SENDFILE_BYTES) as usize;
                (asked, socket.send_file(&self.file, at, asked))
            }
            FileBy::Copy => {
                let asked = left.min(scratch.len() as u64) as usize;
                let bytes = &mut scratch[..asked];
                self.read(bytes, at)?;
                (asked, socket.send(bytes))
            }
        };
        match result {
            (_, Ok(Some(0))) => Err(self.changed()),
            (asked, Ok(taken)) => Ok(Sending { asked, taken, under_way: false }),
            (_, Err(error)) => Err(Amiss::Socket(error)),
        }
    }

    /// Reads what lies at a place of the file.
    fn read(&self, mut bytes: &mut [u8], mut at: u64) -> Result<(), Amiss> {
        while !bytes.is_empty() {
            match system::read_at(&self.file, bytes, at) {
                Ok(0) => return Err(self.changed()),
                Ok(count) => {
                    bytes = &mut bytes[count..];
                    at += count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    return Err(Amiss::File(format!(
                        "cannot read {}: {error}",
                        self.path.display()
                    )));
                }
            }
        }
        Ok(())
    }

    /// Finds the first of `bytes` that is not what the file holds there: its place, and what belongs there.
    fn difference(
        &self,
        offset: u64,
        bytes: &[u8],
        compared: &mut [u8],
    ) -> Result<Option<(usize, u8)>, Amiss> {
        let mut done = 0;
        while done < bytes.len() {
            let at = (offset + done as u64) % self.bytes;
            let count = (bytes.len() - done)
                .min(compared.len())
                .min(usize::try_from(self.bytes - at).unwrap_or(usize::MAX));
            let (expected, found) = (&mut compared[..count], &bytes[done..done + count]);
            self.read(expected, at)?;
            if expected != found {
                if !self.is_as_it_was() {
                    return Err(self.changed());
                }
                let place = expected.iter().zip(found).position(|(one, other)| one != other);
                return Ok(place.map(|place| (done + place, expected[place])));
            }
            done += count;
        }
        Ok(None)
    }

    fn is_as_it_was(&self) -> bool {
        let now = self.file.metadata();
        now.is_ok_and(|now| now.len() == self.bytes && now.modified().ok() == self.modified)
    }

    fn changed(&self) -> Amiss {
        let now = self.file.metadata().map_or(0, |now| now.len());
        Amiss::File(format!(
            "{} was changed while it was sent: it had {} bytes, and has {now} now",
            self.path.display(),
            self.bytes
        ))
    }
}

fn check(metadata: &Metadata) -> Result<(), String> {
    if metadata.is_dir() {
        return Err("it is a directory; give a file".into());
    }
    if !metadata.is_file() {
        return Err("it is not a regular file, so it has no length".into());
    }
    if metadata.len() == 0 {
        return Err("it is empty: there is nothing to send".into());
    }
    Ok(())
}

/// The length in bytes of a file that can be sent.
///
/// # Errors
/// [`LoadError::File`] if it cannot be.
pub fn bytes_of_file(path: &Path) -> Result<u64, LoadError> {
    SentFile::open(path, FileBy::default()).map(|file| file.bytes)
}

/// What went wrong with bytes.
#[derive(Debug)]
pub(super) enum Amiss {
    /// They came back wrong.
    Wrong(Wrong),
    /// The file they are of is not as it was, or cannot be read.
    File(String),
    /// They cannot be sent.
    Socket(io::Error),
}

/// What connections of one thread send.
#[derive(Debug)]
pub(super) struct Content<'a> {
    sizes: Sizes,
    file: Option<(&'a SentFile, Box<[u8]>)>,
    /// What lies in the sender's memory is sent as it is.
    unchanged: bool,
}

impl<'a> Content<'a> {
    pub(super) fn new(sizes: Sizes, file: Option<&'a SentFile>) -> Self {
        let file = file.map(|file| (file, vec![0; COMPARED_BYTES].into()));
        Self { sizes, file, unchanged: false }
    }

    /// For a load of which nothing comes back.
    pub(super) fn one_way(self) -> Self {
        Self { unchanged: true, ..self }
    }

    /// The length in bytes of a connection's message.
    #[inline]
    pub(super) fn length(&self, pattern: Pattern, number: u64) -> u64 {
        match &self.file {
            None => self.sizes.of_message(pattern, number),
            Some((file, _)) => file.bytes,
        }
    }

    /// Sends what lies at an offset of a stream of which so many bytes are still to be sent.
    #[inline]
    pub(super) fn send(
        &self,
        moves: &mut Moves,
        (socket, number): (&Socket, u32),
        pattern: Pattern,
        offset: u64,
        unsent: u64,
    ) -> Result<Sending, Amiss> {
        if let Some((file, _)) = &self.file {
            return file.send(socket, offset, unsent, moves.room());
        }
        let sending = moves.send(socket, number, unsent, |bytes| {
            if !self.unchanged {
                pattern.fill(offset, bytes);
            }
        });
        sending.map_err(Amiss::Socket)
    }

    /// Whether what was taken of a file was there.
    #[inline]
    pub(super) fn check_file(&self, socket: &Socket) -> Result<(), Amiss> {
        match &self.file {
            Some((file, _)) if socket.file_was_short().map_err(Amiss::Socket)? => {
                Err(file.changed())
            }
            _ => Ok(()),
        }
    }

    /// The first of `bytes` that does not belong at its offset of a stream: its place, and what does.
    #[inline]
    pub(super) fn difference(
        &mut self,
        pattern: Pattern,
        offset: u64,
        bytes: &[u8],
    ) -> Result<Option<(usize, u8)>, Amiss> {
        match &mut self.file {
            None => Ok(pattern
                .difference(offset, bytes)
                .map(|at| (at, pattern.byte(offset + at as u64)))),
            Some((file, compared)) => file.difference(offset, bytes, compared),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A file that is removed with it.
    struct Temporary(PathBuf);

    impl Temporary {
        fn of(bytes: &[u8]) -> Self {
            use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
            static NUMBER: AtomicU32 = AtomicU32::new(0);
            let (process, number) = (std::process::id(), NUMBER.fetch_add(1, Relaxed));
            let path = std::env::temp_dir().join(format!("weir-content-{process}-{number}"));
            std::fs::write(&path, bytes).unwrap();
            Self(path)
        }
    }

    impl Drop for Temporary {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    fn bytes_of(len: usize) -> Vec<u8> {
        (0..len).map(|at| (at * 7 + at / 251) as u8).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn what_is_as_in_the_file_is_right_and_each_change_is_found(
            len in 1usize..150_000, offset in 0u64..1 << 40, count in 1usize..200_000,
            at: prop::sample::Index, change in 1u8..,
        ) {
            let whole = bytes_of(len);
            let temporary = Temporary::of(&whole);
            let file = SentFile::open(&temporary.0, FileBy::Copy).unwrap();
            let mut content = Content::new(Sizes::of(1), Some(&file));
            let pattern = Pattern::new(1, 2);
            let mut came: Vec<u8> =
                (0..count).map(|i| whole[((offset + i as u64) % len as u64) as usize]).collect();
            let right = content.difference(pattern, offset, &came);
            prop_assert!(matches!(right, Ok(None)), "{right:?}");
            let at = at.index(count);
            let expected = came[at];
            came[at] ^= change;
            let found = content.difference(pattern, offset, &came);
            prop_assert!(matches!(found, Ok(Some(place)) if place == (at, expected)), "{found:?}");
            prop_assert_eq!(content.length(pattern, 9), len as u64);
        }
    }

    #[test]
    fn a_file_that_was_changed_accuses_nobody() {
        let temporary = Temporary::of(&bytes_of(1000));
        let file = SentFile::open(&temporary.0, FileBy::Sendfile).unwrap();
        let mut content = Content::new(Sizes::of(1), Some(&file));
        std::fs::write(&temporary.0, vec![9; 500]).unwrap();
        for offset in [0, 400, 600] {
            let found = content.difference(Pattern::new(1, 2), offset, &bytes_of(200));
            let Err(Amiss::File(text)) = found else { panic!("{found:?}") };
            assert!(text.contains("had 1000 bytes, and has 500 now"), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_sent_is_told() {
        let directory = std::env::temp_dir();
        let empty = Temporary::of(b"");
        for (path, said) in [
            // What the system says of it.
            (Path::new("/no/such/file"), "os error"),
            (&directory, "directory"),
            (&empty.0, "empty"),
        ] {
            let error = bytes_of_file(path).unwrap_err().to_string();
            assert!(error.contains(said) && error.contains(&*path.to_string_lossy()), "{error}");
        }
        if cfg!(target_os = "linux") {
            let error = bytes_of_file(Path::new("/dev/null")).unwrap_err().to_string();
            assert!(error.contains("regular"), "{error}");
        }
        assert_eq!(bytes_of_file(&Temporary::of(&[1; 77]).0).unwrap(), 77);
    }
}
