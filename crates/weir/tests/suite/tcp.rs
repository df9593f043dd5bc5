//! What tests of single TCP designs share: a client that sends and reads back, and a stop that must be whole.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    time::Duration,
};
use weir::tcp::{Final, Output, Running};

/// Far longer than anything here takes.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The handler of an echo server.
pub fn echo(_: &mut [u8], output: &mut Output<'_>) {
    output.echo().unwrap();
}

pub fn connect(address: SocketAddr) -> TcpStream {
    let client = TcpStream::connect(address).unwrap();
    client.set_nodelay(true).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client
}

/// Sends bytes and reads them back.
pub fn exchange(client: &mut TcpStream, bytes: &[u8]) {
    client.write_all(bytes).unwrap();
    let mut back = vec![0; bytes.len()];
    client.read_exact(&mut back).unwrap();
    assert_eq!(back, bytes);
}

/// Sends a message on all of them at a time, and reads it back from each.
pub fn exchange_at_once(clients: &mut [TcpStream], bytes: &[u8]) {
    clients.iter_mut().for_each(|client| client.write_all(bytes).unwrap());
    let mut back = vec![0; bytes.len()];
    for client in clients {
        client.read_exact(&mut back).unwrap();
        assert_eq!(back, bytes);
    }
}

pub fn stop(running: Running) -> Final {
    let report = running.stop();
    assert!(report.failure.is_none(), "{:?}", report.failure);
    assert_eq!(report.open, 0);
    let total = report.total();
    assert_eq!(total.accepted, total.closed());
    report
}
