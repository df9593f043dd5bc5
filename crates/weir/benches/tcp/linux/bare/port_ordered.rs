//! The completion port with several receives posted for each connection. Several in the kernel would be filled
//! in any order, so one of them is there at a time, as on the provider of the design: the next goes to the kernel
//! when one was taken, before what it brought is sent. A receive that is posted and not there costs no call, so this
//! loop has none.

use super::{
    Run,
    port::{Port, Taken},
};
use std::io;

pub fn port_ordered(run: &Run) -> io::Result<()> {
    let mut port = Port::open(run)?;
    while let Some(taken) = port.take()? {
        match taken {
            Taken::Accepted(fd) => port.receive(fd)?,
            Taken::Received(fd, id, 0) => port.close(fd, id),
            Taken::Received(fd, id, count) => {
                port.receive(fd)?;
                port.send(fd, id, count)?;
            }
            Taken::Sent => {}
        }
    }
    Ok(())
}
