//! A ring as in `ring`, on which each connection has a receive outstanding with a buffer of its own.

use super::{
    BUFFER_BYTES, Run,
    ring::FILES,
    rings::{Buffers, checked, of_one_thread, push},
};
use io_uring::{
    IoUring, opcode,
    types::{Fd, Fixed},
};
use std::{io, os::fd::AsRawFd};

/// What a completion is of: the lowest 32 bits say which connection, the next 24 which buffer.
const ACCEPT: u64 = 1 << 56;
const RECEIVE: u64 = 2 << 56;
const SEND: u64 = 3 << 56;
const CLOSE: u64 = 4 << 56;

/// For twice as many connections as the benchmark has.
const BUFFERS: u32 = 256;

pub fn rio_tcp(run: &Run) -> io::Result<()> {
    // Connections inherit it.
    socket2::SockRef::from(&run.listener).set_tcp_nodelay(true)?;
    let mut buffers = Buffers::new(BUFFERS);
    let mut ring = of_one_thread()?;
    ring.submitter().register_files_sparse(FILES)?;
    let accept = opcode::AcceptMulti::new(Fd(run.listener.as_raw_fd())).allocate_file_index(true);
    push(&mut ring, &[accept.build().user_data(ACCEPT)])?;
    let mut open = 0;
    let mut completed: Vec<(u64, i32)> = Vec::new();
    while !run.is_over(open) {
        ring.submit_and_wait(1)?;
        completed.extend(ring.completion().map(|entry| (entry.user_data(), entry.result())));
        for (token, result) in completed.drain(..) {
            let (place, id) = (token as u32, (token >> 32) as u32 & 0xff_ffff);
            match token & 0xff << 56 {
                ACCEPT => {
                    open += 1;
                    receive(&mut ring, &mut buffers, checked(result)?)?;
                }
                RECEIVE if result == 0 => {
                    open -= 1;
                    buffers.give(id);
                    let close = opcode::Close::new(Fixed(place)).build();
                    push(&mut ring, &[close.user_data(CLOSE)])?;
                }
                RECEIVE => {
                    let count = checked(result)?;
                    let bytes = buffers.send(id, count);
                    let send = opcode::Send::new(Fixed(place), bytes, count);
                    let send = send.flags(libc::MSG_NOSIGNAL).build();
                    let token = SEND | u64::from(id) << 32 | u64::from(place);
                    push(&mut ring, &[send.user_data(token)])?;
                    receive(&mut ring, &mut buffers, place)?;
                }
                SEND => buffers.sent(id, result)?,
                _ => {}
            }
        }
    }
    Ok(())
}

fn receive(ring: &mut IoUring, buffers: &mut Buffers, place: u32) -> io::Result<()> {
    let (id, into) = buffers.take();
    let receive = opcode::Recv::new(Fixed(place), into, BUFFER_BYTES as u32).build();
    push(ring, &[receive.user_data(RECEIVE | u64::from(id) << 32 | u64::from(place))])
}
