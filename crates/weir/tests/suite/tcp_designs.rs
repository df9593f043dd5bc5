//! What tests of several TCP designs share: a server of one by its name, and what a connection does.

use crate::{required, tcp::echo};
use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, TcpStream},
    thread,
};
use weir::tcp::{AnyDesign, Running, Server};

/// Whether a design can run here; one that cannot says why not.
pub fn can_run(design: &str) -> bool {
    let design = AnyDesign::parse(design).unwrap();
    !required::cannot_run(&format!("tcp/{}", design.about().name), design.availability())
}

pub fn start(design: &str) -> Running {
    let server = Server::bind("127.0.0.1:0".parse().unwrap());
    server.start(AnyDesign::parse(design).unwrap(), |_| echo).unwrap()
}

/// Ends a connection in order, and sees the other side do so.
pub fn end(mut client: TcpStream) {
    client.shutdown(Shutdown::Write).unwrap();
    let mut more = Vec::new();
    client.read_to_end(&mut more).unwrap();
    assert_eq!(more, []);
}

/// Sends so much on a connection that it must be read meanwhile, reads it back, and ends.
pub fn exchange_much(mut client: TcpStream, bytes: Vec<u8>) {
    let mut reader = client.try_clone().unwrap();
    let expected = bytes.clone();
    let reading = thread::spawn(move || {
        let mut back = vec![0; expected.len()];
        reader.read_exact(&mut back).unwrap();
        assert!(back == expected);
    });
    client.write_all(&bytes).unwrap();
    reading.join().unwrap();
    end(client);
}
