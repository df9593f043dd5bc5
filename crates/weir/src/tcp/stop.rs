//! How a stop of the server becomes the end of a connection: by a number of bytes, for designs whose connections have a
//! stream each.

use super::{Connection, Handler, Reason, Worker};
use crate::stream::Stream;
use std::io;

/// Has a connection finish after so many bytes more, as far as the system told. Where it did not, some that it has
/// acknowledged would be lost unnoticed: so the connection is reset.
pub(super) fn finish_after<H: Handler>(
    worker: &mut Worker<H>,
    connection: &mut Connection<H>,
    stream: &Stream,
    bytes: io::Result<usize>,
) {
    match bytes {
        Ok(bytes) => connection.finish_after(worker, bytes),
        Err(e) => {
            stream.reset_when_closed();
            connection.fail(Reason::Failed(e));
        }
    }
}

/// The same by how much has come in all, of which so much was received.
pub(super) fn finish_at<H: Handler>(
    worker: &mut Worker<H>,
    connection: &mut Connection<H>,
    stream: &Stream,
    in_all: io::Result<u64>,
    received: u64,
) {
    let left = in_all.map(|in_all| in_all.saturating_sub(received));
    let left = left.map(|left| usize::try_from(left).unwrap_or(usize::MAX));
    finish_after(worker, connection, stream, left);
}
