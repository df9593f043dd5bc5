//! What a design must do before it is timed: read a file of known content, every byte of it rightly, and
//! account for each I/O; and, where it is to write, have each write taken as a whole by a device that throws it
//! away.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use super::plan::DEVICE;
use serde::{Deserialize, Serialize};
use weir::Error;
use weir::device::{AnyDesign, Device, Direction, Handler, Reads, Wants};

/// Bytes of each I/O.
pub const LENGTH: usize = 4096;
/// Blocks of the file.
const BLOCKS: usize = 48;
/// I/Os: the file several times over.
const IOS: u64 = 480;
/// How long they may take.
const WITHIN: Duration = Duration::from_secs(10);
/// Bytes of a word of the content.
const WORD: usize = size_of::<u64>();

/// What was seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// I/Os that were made.
    pub ios: u64,
    /// Bytes of each.
    pub length_bytes: usize,
    /// Whether it reads nothing of the file, as some designs do on purpose; a design that is not for files
    /// (control calls) makes no I/O at all.
    pub reads_nothing: bool,
    /// What was wrong, if anything.
    pub wrong: Option<String>,
}

/// The word at a place of the file: all are different.
fn word(at: usize) -> [u8; WORD] {
    (at as u64 ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xd6e8_feb8_6659_fd93).to_le_bytes()
}

/// A file that is gone again when this is.
struct Content(PathBuf);

impl Content {
    fn make() -> Result<Self, Error> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Relaxed);
        let name = format!("weir-check-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let failed = |e| Error::io(format!("making the file {} of the check", path.display()), e);
        let mut file =
            fs::OpenOptions::new().write(true).create_new(true).open(&path).map_err(failed)?;
        let bytes: Vec<u8> = (0..BLOCKS * LENGTH).step_by(WORD).flat_map(word).collect();
        let written = file.write_all(&bytes);
        let content = Self(path.clone());
        written.map_err(failed)?;
        Ok(content)
    }
}

impl Drop for Content {
    fn drop(&mut self) {
        // Fails only if somebody was faster.
        let _ = fs::remove_file(&self.0);
    }
}

/// Compares what comes with what stands there.
struct Compares {
    blocks: [bool; BLOCKS],
    wrong: Option<String>,
}

impl Handler for Compares {
    fn on_read(&mut self, bytes: &[u8], at: u64) {
        let first = at as usize;
        let differs = bytes
            .chunks(WORD)
            .enumerate()
            .position(|(n, got)| got != &word(first + n * WORD)[..got.len()]);
        if let Some(n) = differs {
            self.wrong
                .get_or_insert_with(|| format!("the word at byte {} is wrong", first + n * WORD));
        }
        if !bytes.is_empty()
            && let Some(block) = self.blocks.get_mut(first / LENGTH)
        {
            *block = true;
        }
    }
}

/// Lets a design read such a file, and, in that direction, write.
///
/// # Errors
/// Whatever fails before the first I/O; [`Error::Unavailable`] where this machine has not what it takes.
pub fn check(design: AnyDesign, direction: Direction) -> Result<Seen, Error> {
    let written = match direction {
        Direction::Read => None,
        Direction::Write => check_writes(design.clone())?,
    };
    let seen = check_reads(design)?;
    Ok(Seen { wrong: seen.wrong.or(written), ..seen })
}

/// What is wrong with its writes, by what the device answers: nobody sees what it throws away.
fn check_writes(design: AnyDesign) -> Result<Option<String>, Error> {
    let device = Device::open_for_writing(DEVICE)?;
    let running = Reads::of(&device).length(LENGTH).ios(IOS).start(design, |_| ())?;
    let over = running.wait_for(WITHIN);
    let report = running.stop();
    let of = report.total();
    let bytes = IOS * LENGTH as u64;
    let right = (of.issued, of.completed, of.failed, of.bytes) == (IOS, IOS, 0, bytes);
    Ok(match report.failure {
        Some(failure) => Some(failure.to_string()),
        None if !over => Some(format!("{IOS} writes took more than {WITHIN:?}")),
        None => (!right).then(|| {
            format!(
                "of {IOS} writes of {LENGTH} bytes {} were issued, {} completed and {} failed, and {} bytes \
                 were written",
                of.issued, of.completed, of.failed, of.bytes
            )
        }),
    })
}

fn check_reads(design: AnyDesign) -> Result<Seen, Error> {
    let wants = design.wants();
    if wants == Wants::Calls {
        // A file knows no such call.
        return Ok(Seen { ios: 0, length_bytes: LENGTH, reads_nothing: true, wrong: None });
    }
    let content = Content::make()?;
    let device = Device::open(&content.0, &[])?;
    let reads = Reads::of(&device).length(LENGTH).ios(IOS);
    let handler = |_| Compares { blocks: [false; BLOCKS], wrong: None };
    let running = reads.start(design, handler)?;
    let over = running.wait_for(WITHIN);
    let report = running.stop();
    let of = report.total();
    let failure = report.failure.map(|failure| failure.to_string());
    let handlers = || report.threads.iter().map(|thread| &thread.handler);
    let mut wrong = handlers().find_map(|handler| handler.wrong.clone()).or(failure);
    let mut say = |text: String| {
        wrong.get_or_insert(text);
    };
    if !over {
        say(format!("{IOS} I/Os took more than {WITHIN:?}"));
    }
    if (of.issued, of.completed, of.failed) != (IOS, IOS, 0) {
        say(format!(
            "of {IOS} I/Os {} were issued, {} completed and {} failed",
            of.issued, of.completed, of.failed
        ));
    }
    let reads_nothing = wants == Wants::Nothing;
    if reads_nothing {
        if of.bytes != 0 {
            say(format!("it requests nothing, and got {} bytes", of.bytes));
        }
    } else {
        if of.bytes != IOS * LENGTH as u64 {
            say(format!("{IOS} I/Os of {LENGTH} bytes returned {} bytes", of.bytes));
        }
        let unread = (0..BLOCKS).find(|block| !handlers().any(|handler| handler.blocks[*block]));
        if let Some(block) = unread {
            say(format!("block {block} of {BLOCKS} was never read"));
        }
    }
    Ok(Seen { ios: IOS, length_bytes: LENGTH, reads_nothing, wrong })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_design_that_can_run_here_passes() {
        let mut nothing = vec![];
        for design in weir::device::designs() {
            if design.availability().is_err() {
                continue;
            }
            let name = design.about().name;
            if design.can(Direction::Write).is_ok() {
                let seen = check(design.clone(), Direction::Write).expect(name);
                assert_eq!(seen.wrong, None, "{name}");
            }
            let seen = check(design, Direction::Read).expect(name);
            assert_eq!(seen.wrong, None, "{name}");
            if seen.reads_nothing {
                nothing.push(name);
            } else {
                assert_eq!(seen.ios, IOS, "{name}");
            }
        }
        let ask_for_nothing = ["sync-empty", "no-op", "control", "uring-cmd"];
        assert!(nothing.iter().all(|name| ask_for_nothing.contains(name)), "{nothing:?}");
        let here = weir::device::availability().is_ok();
        assert_eq!(nothing.contains(&"sync-empty"), here, "{nothing:?}");
    }

    #[test]
    fn a_wrong_byte_is_found() {
        let mut handler = Compares { blocks: [false; BLOCKS], wrong: None };
        let block: Vec<u8> = (LENGTH..2 * LENGTH).step_by(WORD).flat_map(word).collect();
        handler.on_read(&block, LENGTH as u64);
        assert_eq!((handler.blocks[1], handler.wrong.clone()), (true, None));
        handler.on_read(&block, 0);
        assert_eq!(handler.wrong.take().unwrap(), "the word at byte 0 is wrong");
        let mut changed = block;
        changed[803] ^= 1;
        handler.on_read(&changed, LENGTH as u64);
        assert_eq!(handler.wrong.unwrap(), "the word at byte 4896 is wrong");
    }
}
