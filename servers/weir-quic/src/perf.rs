//! The perf protocol of quinn (its package `perf`): the first eight bytes of a stream say how many bytes are wanted, as a big-endian
//! number; what follows to the end of the stream is read and forgotten; then the bytes come, on the same stream, or, where that
//! goes one way, on one of the server's.

use bytes::Bytes;
use quinn::{RecvStream, SendStream};

/// Bytes of the number at the beginning.
pub const HEADER_BYTES: usize = 8;

/// What is sent again and again.
static ZEROES: [u8; 1 << 20] = [0; 1 << 20];

/// Chunks that are taken from a stream at a time.
const CHUNKS: usize = 32;

/// Reads how many bytes are wanted.
pub async fn read_wanted(stream: &mut RecvStream) -> anyhow::Result<u64> {
    let mut header = [0; HEADER_BYTES];
    stream.read_exact(&mut header).await?;
    Ok(u64::from_be_bytes(header))
}

/// Reads some bytes of a stream, and forgets them; gives how many. `None` at its end.
pub async fn drain_some(stream: &mut RecvStream) -> anyhow::Result<Option<u64>> {
    let mut chunks = [const { Bytes::new() }; CHUNKS];
    let count = stream.read_chunks(&mut chunks).await?;
    Ok(count.map(|count| chunks[..count].iter().map(|chunk| chunk.len() as u64).sum()))
}

/// Sends so many bytes, and says so of each piece that was taken. Flow control decides how fast; nothing is copied before that.
pub async fn send(
    stream: &mut SendStream,
    mut bytes: u64,
    mut taken: impl FnMut(u64),
) -> anyhow::Result<()> {
    while bytes > 0 {
        let piece = ZEROES.len().min(usize::try_from(bytes).unwrap_or(usize::MAX));
        stream.write_chunk(Bytes::from_static(&ZEROES[..piece])).await?;
        bytes -= piece as u64;
        taken(piece as u64);
    }
    Ok(())
}
