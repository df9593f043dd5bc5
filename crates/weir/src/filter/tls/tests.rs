//! The filter against rustls' own client, in memory: all that does not need a network.

use super::*;
use crate::tcp::{Connection, Limits, Server, Worker};
use proptest::prelude::*;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use std::sync::Mutex;

const CERTIFICATE: &[u8] = include_bytes!("../../../tests/tls/certificate.pem");
const AUTHORITY: &[u8] = include_bytes!("../../../tests/tls/authority.pem");
const KEY: &[u8] = include_bytes!("../../../tests/tls/key.pem");

const CLIENT_CERTIFICATE: &[u8] = include_bytes!("../../../tests/tls/client-certificate.pem");
const CLIENT_AUTHORITY: &[u8] = include_bytes!("../../../tests/tls/client-authority.pem");
const CLIENT_KEY: &[u8] = include_bytes!("../../../tests/tls/client-key.pem");

fn client() -> ClientConnection {
    client_that(&[], false)
}

/// One that names these protocols, and says who it is.
fn client_that(protocols: &[&str], says_who: bool) -> ClientConnection {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(AUTHORITY) {
        roots.add(certificate.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match says_who {
        true => {
            let chain = certificates("certificate", CLIENT_CERTIFICATE).unwrap();
            let key = PrivateKeyDer::from_pem_slice(CLIENT_KEY).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        }
        false => builder.with_no_client_auth(),
    };
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    let mut client =
        ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap();
    client.set_buffer_limit(None);
    client
}

/// What the handler behind was told.
#[derive(Debug, Default)]
struct Reported {
    connected: u32,
    received: usize,
    sent: usize,
    ended: u32,
    reason: Option<String>,
    session: Option<Session>,
}

/// What the handler saw of the session.
#[derive(Debug, PartialEq, Eq)]
struct Session {
    name: Option<String>,
    protocol: Option<Vec<u8>>,
    client: Option<Vec<u8>>,
}

struct Echoes(Arc<Mutex<Reported>>);

impl Handler for Echoes {
    fn on_connect(&mut self, _: SocketAddr, output: &mut Output<'_>) {
        let mut told = self.0.lock().unwrap();
        told.connected += 1;
        told.session = output.tls().map(|tls| Session {
            name: tls.server_name().map(String::from),
            protocol: tls.alpn_protocol().map(<[u8]>::to_vec),
            client: tls.peer_certificates().map(|chain| chain[0].to_vec()),
        });
    }

    fn on_receive(&mut self, bytes: &mut [u8], output: &mut Output<'_>) {
        self.0.lock().unwrap().received += bytes.len();
        output.echo().unwrap();
    }

    fn on_sent(&mut self, bytes: usize, _: &mut Output<'_>) {
        self.0.lock().unwrap().sent += bytes;
    }

    fn on_end(&mut self, output: &mut Output<'_>) {
        self.0.lock().unwrap().ended += 1;
        output.finish();
    }

    fn on_close(&mut self, reason: &Reason) {
        self.0.lock().unwrap().reason = Some(reason.to_string());
    }
}

/// A connection behind TLS, and a client, with what is on the wire between them.
struct World {
    worker: Worker<Secured<Echoes>>,
    connection: Connection<Secured<Echoes>>,
    client: ClientConnection,
    there: VecDeque<u8>,
    told: Arc<Mutex<Reported>>,
    back: Vec<u8>,
    most: usize,
    /// Why the client went no further.
    refused: Option<String>,
}

impl World {
    fn new(output_bytes: usize) -> Self {
        Self::of(Tls::from_pem(CERTIFICATE, KEY).unwrap(), client(), output_bytes)
    }

    fn of(tls: Tls, client: ClientConnection, output_bytes: usize) -> Self {
        let told = Arc::<Mutex<Reported>>::default();
        let of_handler = Arc::clone(&told);
        let peer = "192.0.2.7:4321".parse().unwrap();
        let limits =
            Limits { output_bytes, silent: None, idle: None, stalled: None, ..Limits::default() };
        let handlers = tls.handlers(move |_| Echoes(Arc::clone(&of_handler)));
        let mut worker = Server::bind(peer).limits(limits).job(handlers).unwrap().worker();
        let connection = Connection::open(&mut worker, peer);
        let (there, back) = (VecDeque::new(), Vec::new());
        Self { worker, connection, client, there, told, back, most: 0, refused: None }
    }

    /// Moves at most so many bytes each way. Says whether anything moved.
    fn step(&mut self, count: usize) -> bool {
        let mut moved = false;
        while self.client.wants_write() {
            let mut bytes = Vec::new();
            self.client.write_tls(&mut bytes).unwrap();
            self.there.extend(bytes);
        }
        let wants = self.connection.wants(&self.worker.limits);
        if wants.receive && !self.there.is_empty() {
            let count = count.min(self.there.len());
            let mut bytes: Vec<u8> = self.there.drain(..count).collect();
            assert_eq!(self.connection.received(&mut self.worker, &mut bytes), 0);
            moved = true;
        }
        self.most = self.most.max(self.connection.unsent().len());
        let wants = self.connection.wants(&self.worker.limits);
        if wants.send {
            let unsent = self.connection.unsent();
            let bytes = unsent[..count.min(unsent.len())].to_vec();
            self.connection.sent(&mut self.worker, bytes.len());
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                self.client.read_tls(&mut rest).unwrap();
                if let Err(e) = self.client.process_new_packets() {
                    self.refused = Some(e.to_string());
                    return false;
                }
                let mut plain = [0; 4096];
                while let Ok(count) = self.client.reader().read(&mut plain) {
                    if count == 0 {
                        break;
                    }
                    self.back.extend_from_slice(&plain[..count]);
                }
            }
            moved = true;
        }
        moved
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn what_is_said_comes_back_however_it_is_cut(
        output_bytes in prop_oneof![Just(1usize), 1..100usize, 1000..100_000usize],
        pieces in prop::collection::vec(1..20_000usize, 1..5),
        cuts in prop::collection::vec(prop_oneof![1..10usize, 1..5000usize, Just(100_000)], 1..20),
    ) {
        let mut world = World::new(output_bytes);
        let mut said = Vec::new();
        for (number, piece) in pieces.into_iter().enumerate() {
            let bytes: Vec<u8> = (0..piece).map(|at| (at * 7 + number) as u8).collect();
            world.client.writer().write_all(&bytes).unwrap();
            said.extend(bytes);
        }
        let mut cuts = cuts.into_iter().cycle();
        while world.client.is_handshaking() {
            prop_assert!(world.step(cuts.next().unwrap()), "the handshake stands still");
        }
        world.client.send_close_notify();
        // The least that may wait, one byte at a time, takes long.
        while world.step(cuts.next().unwrap()) {}
        prop_assert!(world.back == said, "{} of {} bytes", world.back.len(), said.len());
        prop_assert!(world.most <= output_bytes, "{} bytes waited", world.most);
        let state = world.client.process_new_packets().unwrap();
        prop_assert!(state.peer_has_closed(), "the server's close_notify is missing");
        prop_assert!(world.connection.wants(&world.worker.limits).end_sending);
        world.connection.fin_sent(&world.worker);
        world.connection.ended(&mut world.worker);
        prop_assert!(matches!(world.connection.close(&mut world.worker), Reason::Finished));
        let told = world.told.lock().unwrap();
        prop_assert_eq!((told.connected, told.received, told.sent, told.ended), (1, said.len(), said.len(), 1));
        prop_assert!(told.reason.is_some());
    }
}

#[test]
fn an_end_without_close_notify_is_told() {
    let mut world = World::new(100_000);
    world.client.writer().write_all(b"hello").unwrap();
    while world.step(10_000) {}
    assert_eq!(world.back, b"hello");
    world.connection.ended(&mut world.worker);
    // It is answered with close_notify all the same.
    while world.step(10_000) {}
    assert!(world.client.process_new_packets().unwrap().peer_has_closed());
    assert!(world.connection.wants(&world.worker.limits).end_sending);
    world.connection.fin_sent(&world.worker);
    let reason = world.connection.close(&mut world.worker);
    assert!(matches!(&reason, Reason::Declined(why) if why.contains("close_notify")), "{reason}");
    let told = world.told.lock().unwrap();
    assert_eq!((told.ended, told.reason.is_some()), (0, true));
}

#[test]
fn what_is_no_tls_is_answered_with_an_alert() {
    let mut world = World::new(100_000);
    let mut request = *b"GET / HTTP/1.0\r\n\r\n";
    assert_eq!(world.connection.received(&mut world.worker, &mut request), 0);
    let alert = world.connection.unsent().to_vec();
    // A record of the type alert, fatal (RFC 8446, 6).
    assert!(matches!(alert[..], [21, 3, _, 0, 2, 2, _]), "{alert:?}");
    world.connection.sent(&mut world.worker, alert.len());
    assert!(world.connection.wants(&world.worker.limits).end_sending);
    world.connection.fin_sent(&world.worker);
    world.connection.ended(&mut world.worker);
    let reason = world.connection.close(&mut world.worker);
    assert!(matches!(&reason, Reason::Declined(why) if why.starts_with("TLS: ")), "{reason}");
    // The handler behind never heard of it.
    let told = world.told.lock().unwrap();
    assert!(told.connected == 0 && told.reason.is_none(), "{told:?}");
}

#[test]
fn a_stop_says_close_notify() {
    let mut world = World::new(100_000);
    world.client.writer().write_all(b"hello").unwrap();
    while world.step(10_000) {}
    world.connection.finish_after(&mut world.worker, 0);
    while world.step(10_000) {}
    assert!(world.client.process_new_packets().unwrap().peer_has_closed());
    assert!(world.connection.wants(&world.worker.limits).end_sending);
}

#[test]
fn a_handshake_has_its_time() {
    let mut world = World::new(100_000);
    let due = world.connection.alarm();
    let late = Instant::now() + HANDSHAKE + 3 * crate::timer::TICK;
    world.worker.now = Some(late);
    world.worker.clock.expired(late, &mut Vec::new());
    assert!(due <= world.worker.clock.moment());
    world.connection.timed(&mut world.worker);
    let reason = world.connection.close(&mut world.worker);
    assert!(matches!(&reason, Reason::Filter(why) if why.contains("handshake")), "{reason}");
}

#[test]
fn a_handler_sees_the_name_the_protocol_and_the_client() {
    let tls = || {
        let tls = Tls::from_pem_for_clients_of(CLIENT_AUTHORITY, CERTIFICATE, KEY).unwrap();
        tls.alpn(["first", "second"]).unwrap()
    };
    let mut world = World::of(tls(), client_that(&["second", "other"], true), 100_000);
    while world.step(10_000) {}
    let expected = Session {
        name: Some("localhost".into()),
        protocol: Some(b"second".to_vec()),
        client: Some(certificates("", CLIENT_CERTIFICATE).unwrap()[0].to_vec()),
    };
    assert_eq!(world.told.lock().unwrap().session, Some(expected));
    assert_eq!(world.client.alpn_protocol(), Some(&b"second"[..]));
    // One that names no protocol speaks none of them; of a server that asks nobody, nobody says who he is.
    let mut world = World::of(
        Tls::from_pem(CERTIFICATE, KEY).unwrap().alpn(["first"]).unwrap(),
        client_that(&[], true),
        100_000,
    );
    while world.step(10_000) {}
    let expected = Session { name: Some("localhost".into()), protocol: None, client: None };
    assert_eq!(world.told.lock().unwrap().session, Some(expected));
    // Who does not say who he is, and who speaks something else, are refused in the handshake.
    for client in [client_that(&["first"], false), client_that(&["other"], true)] {
        let mut world = World::of(tls(), client, 100_000);
        while world.step(10_000) {}
        let why = world.refused.as_deref().unwrap_or_default();
        assert!(why.contains("alert"), "{why}");
        assert_eq!(world.told.lock().unwrap().connected, 0);
    }
}

#[test]
fn a_protocol_has_a_name_of_1_to_255_bytes() {
    for name in [vec![], vec![b'x'; 256]] {
        let error = Tls::from_pem(CERTIFICATE, KEY).unwrap().alpn([name]).unwrap_err().to_string();
        assert!(error.contains("1 to 255"), "{error}");
    }
    let error = Tls::from_pem_for_clients_of(KEY, CERTIFICATE, KEY).unwrap_err().to_string();
    assert!(error.contains("client-ca"), "{error}");
}

#[test]
fn wrong_certificates_are_named() {
    for (chain, key, problem) in [
        (&b""[..], KEY, "there is no certificate"),
        (CERTIFICATE, &b"nonsense"[..], "it cannot be read"),
        (KEY, CERTIFICATE, "there is no certificate"),
    ] {
        let error = Tls::from_pem(chain, key).unwrap_err().to_string();
        assert!(error.contains(problem), "{error}");
    }
}
