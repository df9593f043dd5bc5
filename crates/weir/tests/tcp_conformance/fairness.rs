//! One busy peer does not starve the others. That they are answered is checked here, how soon is
//! measured elsewhere.

use super::{
    client::{Client, clients, read},
    support::*,
};
use std::{
    io::Write,
    net::SocketAddr,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
    time::Instant,
};

pub const CHECKS: &[Check] = &[("one_floods_among_many", one_floods_among_many)];

/// Sends as fast as it can, and reads as fast, until it is told to end; counts what comes back.
fn flood(to: SocketAddr, over: &AtomicBool, back: &AtomicU64) {
    let client = Client::connect(to, 0);
    let stream = &client.stream;
    let by = Instant::now() + PATIENCE;
    thread::scope(|scope| {
        scope.spawn(|| {
            let bytes = vec![0; 64 * 1024];
            while !over.load(Relaxed) && Instant::now() < by {
                (&*stream).write_all(&bytes).expect("flooding");
            }
            client.end_sending();
        });
        let mut bytes = vec![0; 64 * 1024];
        loop {
            match read(stream, &mut bytes).expect("the flood's return") {
                0 => break,
                count => back.fetch_add(count as u64, Relaxed),
            };
        }
    });
}

fn one_floods_among_many(subject: &Subject) -> Result<(), Skipped> {
    let (server, log) = subject.echo(&server());
    let to = server.local_addresses()[0];
    let mut slow = clients(200, to);
    let (over, back) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| flood(to, &over, &back));
        // It ends also where a check below panics.
        let _end = End(&over);
        until("the flood", || back.load(Relaxed) > 1 << 20);
        for _ in 0..3 {
            let before = back.load(Relaxed);
            for client in &mut slow {
                client.ping();
            }
            // And the one that floods is not shut out by them.
            until("more of the flood", || back.load(Relaxed) > before);
        }
    });
    drop(slow);
    assert_eq!(stop(server, &log).closed_finished, 201);
    Ok(())
}

/// Ends the flood when dropped.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}
