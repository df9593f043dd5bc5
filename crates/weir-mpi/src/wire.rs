//! Frames between a rank and its link: what it is, about whom, and bytes.

use std::io::{self, Read, Write};

use serde::{Deserialize, Serialize};
use weir_load::ranks::MESSAGE_BYTES_MAX;

/// Who, if nobody in particular.
pub const NOBODY: u32 = u32::MAX;

/// The most bytes of a frame: what is gathered comes in one.
const FRAME_BYTES_MAX: usize = 16 * MESSAGE_BYTES_MAX;

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    // Of the rank.
    /// A message to `who`.
    Send,
    /// It waits for a message: look for it often.
    Expect,
    /// The bytes go to all, from `who`.
    Broadcast,
    /// The bytes go to rank 0.
    Gather,
    /// Counts (little endian, 8 bytes) to be added up at rank 0.
    Sum,
    /// All are waited for.
    Barrier,
    /// All are to end; who is silent for `within_ms` from now on is lost.
    AskToEnd,
    /// The rank is alive.
    Tick,
    /// The run is over, and all ranks are there: leave MPI in order.
    Leave,
    /// The run is over, and not all are there: end without them.
    Part,
    /// The process that mpirun started has gone.
    Unguarded,
    // Of the link.
    /// It has joined, and the bytes are [`Joined`].
    Ready,
    /// A message of `who`.
    Message,
    /// The collective call is over, and the bytes are what came of it.
    Done,
    /// The collective call was not over in time; `who` did not come, if that is known.
    Late,
    /// `who` is lost, and the bytes say why.
    Lost,
    /// Somebody asked all to end.
    AskedToEnd,
    /// MPI refused something, and the bytes say what.
    Failed,
}

impl Kind {
    const ALL: [Self; 18] = [
        Self::Send,
        Self::Expect,
        Self::Broadcast,
        Self::Gather,
        Self::Sum,
        Self::Barrier,
        Self::AskToEnd,
        Self::Tick,
        Self::Leave,
        Self::Part,
        Self::Unguarded,
        Self::Ready,
        Self::Message,
        Self::Done,
        Self::Late,
        Self::Lost,
        Self::AskedToEnd,
        Self::Failed,
    ];
}

/// A frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// What it is.
    pub kind: Kind,
    /// About whom.
    pub who: u32,
    /// How long it may take, in ms, where it may take only so long.
    pub within_ms: u32,
    /// See [`Kind`].
    pub bytes: Vec<u8>,
}

impl Frame {
    /// A frame without bytes.
    pub fn new(kind: Kind, who: u32) -> Self {
        Self { kind, who, within_ms: 0, bytes: Vec::new() }
    }

    /// The same with bytes.
    pub fn with(self, bytes: Vec<u8>) -> Self {
        Self { bytes, ..self }
    }
}

/// What a link says of itself when it has joined.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Joined {
    /// The rank.
    pub rank: usize,
    /// The names of the hosts of all ranks.
    pub hosts: Vec<String>,
    /// The MPI, in its own words.
    pub library: String,
}

/// Writes a frame.
///
/// # Errors
/// If the other end is gone.
pub fn write(to: &mut impl Write, frame: &Frame) -> io::Result<()> {
    let mut head = [0; 13];
    head[0] = frame.kind as u8;
    head[1..5].copy_from_slice(&frame.who.to_le_bytes());
    head[5..9].copy_from_slice(&frame.within_ms.to_le_bytes());
    let bytes =
        u32::try_from(frame.bytes.len()).ok().filter(|bytes| *bytes as usize <= FRAME_BYTES_MAX);
    let bytes = bytes.ok_or_else(|| wrong(format!("a frame of {} bytes", frame.bytes.len())))?;
    head[9..].copy_from_slice(&bytes.to_le_bytes());
    to.write_all(&head)?;
    to.write_all(&frame.bytes)?;
    to.flush()
}

/// Reads a frame; none at the end.
///
/// # Errors
/// If what comes is no frame.
pub fn read(from: &mut impl Read) -> io::Result<Option<Frame>> {
    let mut head = [0; 13];
    match from.read_exact(&mut head) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    }
    let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let known = Kind::ALL.get(usize::from(head[0]));
    let kind = *known.ok_or_else(|| wrong(format!("a frame of kind {}", head[0])))?;
    let bytes = word(9) as usize;
    if bytes > FRAME_BYTES_MAX {
        return Err(wrong(format!("a frame of {bytes} bytes")));
    }
    let mut frame = Frame { kind, who: word(1), within_ms: word(5), bytes: vec![0; bytes] };
    from.read_exact(&mut frame.bytes)?;
    Ok(Some(frame))
}

fn wrong(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let mut bytes = Vec::new();
        for (at, kind) in (0..).zip(Kind::ALL) {
            assert_eq!(kind as u32, at, "the table is in order");
            let frame = Frame { within_ms: 7, ..Frame::new(kind, at).with(vec![9; at as usize]) };
            write(&mut bytes, &frame).unwrap();
        }
        let mut rest = &bytes[..];
        for (at, kind) in (0..).zip(Kind::ALL) {
            let frame = read(&mut rest).unwrap().unwrap();
            assert_eq!(
                (frame.kind, frame.who, frame.within_ms, frame.bytes.len()),
                (kind, at, 7, at as usize)
            );
        }
        assert_eq!(read(&mut rest).unwrap(), None);
    }

    #[test]
    fn what_is_no_frame_is_refused() {
        assert!(read(&mut &[99; 13][..]).unwrap_err().to_string().contains("kind 99"));
        let mut huge = [0; 13];
        huge[9..].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(read(&mut &huge[..]).unwrap_err().to_string().contains("bytes"));
        let mut cut = Vec::new();
        write(&mut cut, &Frame::new(Kind::Send, 1).with(vec![1, 2, 3])).unwrap();
        cut.pop();
        assert!(read(&mut &cut[..]).is_err());
    }
}
