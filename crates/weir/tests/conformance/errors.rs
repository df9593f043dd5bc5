//! Errors that peers report: nobody has the port that an answer went to, say. They are told to the
//! handler where that was asked for; and asked for or not they end no server and cost no datagram.

use super::support::*;
use std::{
    io::ErrorKind,
    net::{Ipv6Addr, SocketAddr, UdpSocket},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Instant,
};
use weir::{
    socket::{Icmp, PeerError, peer_errors_can_be_heard},
    udp::{Datagram, Handler, Replies, Running, Server},
};

pub const CHECKS: &[Check] = &[
    ("errors_are_heard", errors_are_heard),
    ("errors_cost_no_datagram", errors_cost_no_datagram),
    ("errors_not_asked_for", errors_not_asked_for),
];

/// What is sent by those who are gone when they are answered.
const LAST_WORDS: &[u8] = b"gone";

#[derive(Default)]
struct State {
    /// Those who sent last words are gone.
    gone: bool,
    answered: usize,
    heard: Vec<(PeerError, u32)>,
    /// Those who left, and keep their ports.
    left: Vec<UdpSocket>,
}

/// What handlers and check know of each other.
#[derive(Default)]
struct Scene {
    state: Mutex<State>,
    changed: Condvar,
}

impl Scene {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    fn wait_until(&self, what: &str, mut done: impl FnMut(&State) -> bool) {
        let by = Instant::now() + PATIENCE;
        let mut state = self.lock();
        while !done(&state) {
            let left = by.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "{what} did not happen");
            state =
                self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Echoes, and last words only when their sender is gone.
struct Hears(Arc<Scene>);

impl Handler for Hears {
    fn on_datagram(&mut self, datagram: Datagram<'_>, replies: &mut Replies<'_>) {
        if datagram.bytes == LAST_WORDS {
            self.0.wait_until("the end of a sender", |state| state.gone);
        }
        replies.echo().unwrap();
        self.0.change(|state| state.answered += 1);
    }

    fn on_error(&mut self, error: PeerError, socket: u32) {
        self.0.change(|state| state.heard.push((error, socket)));
    }
}

/// Sends so many last words from each of so many sockets, and leaves. Answers where they were.
///
/// On Linux they leave by connecting to themselves: what anybody else sends there meets nobody, and the port is not
/// free. Another check's server would get it else, and with it the answers.
fn leave(scene: &Scene, to: SocketAddr, sockets: usize, words: usize) -> Vec<SocketAddr> {
    scene.change(|state| state.gone = false);
    let gone = leavers(sockets, to);
    for socket in &gone {
        for _ in 0..words {
            socket.send_to(LAST_WORDS, to).unwrap();
        }
    }
    let were: Vec<_> = gone.iter().map(|socket| socket.local_addr().unwrap()).collect();
    if cfg!(target_os = "linux") {
        gone.iter().zip(&were).for_each(|(socket, itself)| socket.connect(itself).unwrap());
        scene.change(|state| state.left.extend(gone));
    } else {
        drop(gone);
    }
    scene.change(|state| state.gone = true);
    were
}

/// Sends so many datagrams and receives each again, once.
fn is_served(to: SocketAddr, count: usize) {
    let sender = &senders(1, to)[0];
    for number in 0..count {
        sender.send_to(&pattern(number, 40), to).unwrap();
    }
    let mut came = Vec::new();
    while came.len() < count {
        let mut buffer = [0; 64];
        let (len, from) = receive(sender, &mut buffer).unwrap();
        assert_eq!(from, to);
        // The system may have given it the port of one that left, to whom answers are under way.
        if &buffer[..len] != LAST_WORDS {
            came.push(buffer[..len].to_vec());
        }
    }
    came.sort();
    let mut sent: Vec<_> = (0..count).map(|number| pattern(number, 40)).collect();
    sent.sort();
    assert_eq!(came, sent);
}

fn start(subject: &Subject, hears: bool) -> Result<(Running<Boxed>, Arc<Scene>), Skipped> {
    if hears {
        peer_errors_can_be_heard().map_err(|why| Skipped(why.to_string()))?;
    }
    let scene = Arc::new(Scene::default());
    let of_handlers = Arc::clone(&scene);
    let six = SocketAddr::from((Ipv6Addr::LOCALHOST, 0));
    let server = Server::bind(any_port()).and_bind(six).limits(echo_limits()).peer_errors(hears);
    let server = subject.start(&server, move |_| Hears(Arc::clone(&of_handlers))).unwrap();
    Ok((server, scene))
}

/// An answer to nobody is told with where it went, by which socket, and by whom.
fn errors_are_heard(subject: &Subject) -> Result<(), Skipped> {
    let (server, scene) = start(subject, true)?;
    for (socket, &to) in (0..).zip(server.local_addresses()) {
        // Several, as another program may take the port of one meanwhile.
        let were = leave(&scene, to, 4, 1);
        let meant =
            |(error, at): &&(PeerError, u32)| *at == socket && were.contains(&error.destination);
        scene.wait_until("an error", |state| state.heard.iter().any(|heard| meant(&heard)));
        let (error, _) = *scene.lock().heard.iter().find(meant).expect("just seen");
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        let (kind, code) = if to.is_ipv6() { (1, 4) } else { (3, 3) };
        assert_eq!(error.icmp, Some(Icmp { v6: to.is_ipv6(), kind, code }));
        let offender = Some(error.destination.ip());
        assert_eq!((error.offender, error.path_mtu_bytes), (offender, None));
        is_served(to, 20);
    }
    let report = server.stop();
    assert_whole(&report);
    let heard = scene.lock().heard.len() as u64;
    assert_eq!((report.total().peer_errors, report.total().send_errors), (heard, 0));
    Ok(())
}

/// Many errors, in the midst of datagrams that are answered: each of those is.
fn errors_cost_no_datagram(subject: &Subject) -> Result<(), Skipped> {
    const WORDS: usize = 25;
    let (server, scene) = start(subject, true)?;
    let mut answered = 0;
    for &to in &server.local_addresses().to_vec() {
        let were = leave(&scene, to, 4, WORDS);
        is_served(to, WINDOW);
        answered += were.len() * WORDS + WINDOW;
        scene.wait_until("an answer to each", |state| state.answered == answered);
        scene.wait_until("an error", |state| {
            state.heard.iter().any(|(error, _)| were.contains(&error.destination))
        });
        is_served(to, WINDOW);
        answered += WINDOW;
    }
    let report = server.stop();
    assert_whole(&report);
    assert_eq!(report.total().datagrams, answered as u64);
    assert_eq!(report.total().send_errors, 0);
    Ok(())
}

/// A server that did not ask hears nothing and is served all the same.
fn errors_not_asked_for(subject: &Subject) -> Result<(), Skipped> {
    let (server, scene) = start(subject, false)?;
    for &to in &server.local_addresses().to_vec() {
        leave(&scene, to, 2, 10);
        is_served(to, WINDOW);
    }
    let report = server.stop();
    assert_whole(&report);
    assert!(scene.lock().heard.is_empty() && report.total().peer_errors == 0);
    assert_eq!(report.total().send_errors, 0);
    Ok(())
}
