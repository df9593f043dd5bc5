//! The completion port: one-shot receives with a buffer each on one ring.

use super::{PAYLOAD_BYTES, Run};
use io_uring::{IoUring, opcode, types};
use std::{io, mem, os::fd::AsRawFd};
use weir::port::Shape;

/// A header, and all that it points at.
#[repr(C, align(64))]
struct Receive {
    message: libc::msghdr,
    vector: libc::iovec,
    name: libc::sockaddr_in6,
    payload: [u8; PAYLOAD_BYTES],
}

/// Takes one completion at a time.
pub fn port(run: &Run) -> io::Result<()> {
    serve(run, 1)
}

/// Takes all that there are.
pub fn port_batch(run: &Run) -> io::Result<()> {
    serve(run, usize::MAX)
}

/// A ring with the flags of a shared one and the socket in its table of files, and the port's best
/// shape: 64 receives armed, and those taken submitted again once 16 wait or nothing is there, by
/// the entry that waits.
fn serve(run: &Run, per_take: usize) -> io::Result<()> {
    // As many as the library arms under load.
    const ARMED: usize = 64;
    const SUBMIT_AFTER: usize = Shape::BEST.submit_after as usize;
    let mut ring: IoUring = IoUring::builder()
        .setup_coop_taskrun()
        .setup_submit_all()
        .setup_no_sqarray()
        .setup_cqsize(256)
        .build(2 * ARMED as u32)?;
    ring.submitter().register_files(&[run.socket.as_raw_fd()])?;
    // SAFETY: all zeroes is a valid value of every field.
    let mut receives: Box<[Receive]> = (0..ARMED).map(|_| unsafe { mem::zeroed() }).collect();
    let base = receives.as_mut_ptr();
    let mut free: Vec<usize> = (0..ARMED).collect();
    let mut bytes = 0;
    while !run.stopping() {
        let pending = {
            let mut queue = ring.submission();
            for number in free.drain(..) {
                // SAFETY: the number is below their count, and the kernel is done with this one.
                let receive = unsafe { &mut *base.add(number) };
                receive.vector = libc::iovec {
                    iov_base: receive.payload.as_mut_ptr().cast(),
                    iov_len: PAYLOAD_BYTES,
                };
                receive.message.msg_name = (&raw mut receive.name).cast();
                receive.message.msg_namelen = size_of::<libc::sockaddr_in6>() as u32;
                receive.message.msg_iov = &raw mut receive.vector;
                receive.message.msg_iovlen = 1;
                let entry = opcode::RecvMsg::new(types::Fixed(0), &raw mut receive.message).build();
                // SAFETY: the header lives until the ring is drained.
                unsafe { queue.push(&entry.user_data(number as u64)) }.expect("as many as fit");
            }
            queue.len()
        };
        let ready = !ring.completion().is_empty();
        if pending >= SUBMIT_AFTER || !ready {
            ring.submit_and_wait(usize::from(!ready))?;
        }
        let mut received = 0;
        for completion in ring.completion().take(per_take) {
            bytes += completion.result().max(0) as usize;
            received += 1;
            free.push(completion.user_data() as usize);
        }
        run.count.add(received);
    }
    std::hint::black_box(bytes);
    // The kernel may write until the ring is gone, which it tells nobody: so this memory stays.
    mem::forget(receives);
    Ok(())
}
