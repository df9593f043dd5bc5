//! One endpoint after another on one socket, as processes of a server would have it.

use crate::{Factory, all_slices_are_back, bytes, on_each};
use quinn::{Connection, Endpoint, EndpointConfig, Incoming, Runtime, TokioRuntime};
use std::{net::UdpSocket, sync::Arc};
use weir::inherited::Inherited;
use weir_quinn::{Settings, SharedSocket, Stats, WeirSocket};

on_each! {
    connections_go_on_where_they_are_and_new_ones_come_to_the_newest
    what_was_received_before_the_end_is_not_lost
}

/// One of several endpoints on one socket: what is sent to it, it sends back.
struct Server {
    factory: Factory,
    endpoint: Endpoint,
    shared: Arc<SharedSocket>,
    stats: Stats,
}

impl Server {
    fn new(socket: &UdpSocket, before: Vec<Inherited>, settings: &Settings) -> Self {
        let runtime: Arc<dyn Runtime> = Arc::new(TokioRuntime);
        let socket = socket.try_clone().unwrap();
        let socket = Arc::new(WeirSocket::from_std(socket, settings, &runtime).unwrap());
        let stats = socket.stats();
        let shared = Arc::new(SharedSocket::new(socket, before).unwrap());
        let (factory, mut config) = (Factory::new(), EndpointConfig::default());
        shared.configure(&mut config);
        let (server, socket) = (Some(factory.server()), Arc::clone(&shared));
        let endpoint = Endpoint::new_with_abstract_socket(config, server, socket, runtime).unwrap();
        tokio::spawn({
            let endpoint = endpoint.clone();
            async move {
                while let Some(incoming) = endpoint.accept().await {
                    tokio::spawn(echo(incoming));
                }
            }
        });
        Self { factory, endpoint, shared, stats }
    }

    /// One that takes this one's place.
    async fn replaced(&self, socket: &UdpSocket, settings: &Settings) -> Self {
        let next = Self::new(socket, self.shared.passed_on().unwrap(), settings);
        tokio::join!(next.shared.turn(), self.shared.end_receiving());
        next.shared.begin();
        next
    }

    /// A connection to this one and to no other: its certificate is checked.
    async fn connect(&self, client: &Endpoint) -> Connection {
        let (config, to) = (self.factory.client(), self.endpoint.local_addr().unwrap());
        client.connect_with(config, to, "localhost").unwrap().await.unwrap()
    }

    /// Waits for its last connection, and lets it go.
    async fn end(self) {
        self.endpoint.wait_idle().await;
        self.endpoint.close(0u32.into(), b"");
        let Self { endpoint, shared, stats, .. } = self;
        drop((endpoint, shared));
        all_slices_are_back(&stats).await;
    }
}

async fn echo(incoming: Incoming) {
    let Ok(connection) = incoming.await else { return };
    while let Ok((mut send, mut receive)) = connection.accept_bi().await {
        tokio::spawn(async move {
            let asked = receive.read_to_end(1 << 20).await.unwrap();
            send.write_all(&asked).await.unwrap();
            send.finish().unwrap();
        });
    }
}

async fn ask(connection: &Connection, seed: u64) {
    let (mut send, mut receive) = connection.open_bi().await.unwrap();
    let asked = bytes(100_000, seed);
    send.write_all(&asked).await.unwrap();
    send.finish().unwrap();
    assert!(receive.read_to_end(1 << 20).await.unwrap() == asked, "other bytes came back");
}

fn can_be_shared() -> bool {
    weir::socket::sockets_can_be_given().is_ok()
}

async fn connections_go_on_where_they_are_and_new_ones_come_to_the_newest(settings: Settings) {
    if !can_be_shared() {
        return;
    }
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    // All of its connections come from one address: the kernel joins datagrams of several.
    let client = Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
    let first = Server::new(&socket, vec![], &settings);
    let of_first = first.connect(&client).await;
    // Under way while the others begin.
    let (mut send, mut receive) = of_first.open_bi().await.unwrap();
    let asked = bytes(200_000, 1);
    send.write_all(&asked[..100_000]).await.unwrap();
    let second = first.replaced(&socket, &settings).await;
    let of_second = second.connect(&client).await;
    tokio::join!(ask(&of_first, 2), ask(&of_second, 3));
    let third = second.replaced(&socket, &settings).await;
    let of_third = third.connect(&client).await;
    tokio::join!(ask(&of_first, 4), ask(&of_second, 5), ask(&of_third, 6));
    send.write_all(&asked[100_000..]).await.unwrap();
    send.finish().unwrap();
    assert!(receive.read_to_end(1 << 20).await.unwrap() == asked, "other bytes came back");
    assert!(third.shared.forwarding().forwarded > 0 && first.shared.forwarding().taken > 0);
    assert_eq!(first.shared.forwarding().forwarded, 0);

    assert_eq!(third.shared.passed_on().unwrap().len(), 3);
    of_first.close(0u32.into(), b"done");
    first.end().await;
    while third.shared.passed_on().unwrap().len() > 2 {
        tokio::task::yield_now().await;
    }
    tokio::join!(ask(&of_second, 7), ask(&of_third, 8));
    for (server, connection) in [(second, of_second), (third, of_third)] {
        connection.close(0u32.into(), b"done");
        server.end().await;
    }
}

/// Those that ask for a connection once, and not again.
async fn what_was_received_before_the_end_is_not_lost(settings: Settings) {
    const MANY: u8 = 50;
    if !can_be_shared() {
        return;
    }
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let first = Server::new(&socket, vec![], &settings);
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.set_read_timeout(Some(crate::HANGS)).unwrap();
    client.connect(socket.local_addr().unwrap()).unwrap();
    // Of a version that nobody has, which is answered at once: by whom does not matter.
    let ask = |number: u8| {
        let head = [0xc0, 0x1a, 0x2a, 0x3a, 0x4a, 8, 1, 1, 1, 1, 1, 1, 1, 1, 1, number];
        let mut datagram = [0; 1200];
        datagram[..head.len()].copy_from_slice(&head);
        client.send(&datagram).unwrap();
    };
    (0..MANY / 2).for_each(ask);
    let next = Server::new(&socket, first.shared.passed_on().unwrap(), &settings);
    (MANY / 2..MANY).for_each(ask);
    tokio::join!(next.shared.turn(), first.shared.end_receiving());
    next.shared.begin();
    let answered = tokio::task::spawn_blocking(move || {
        let mut answer = [0; 1500];
        let mut answered: Vec<_> = (0..MANY)
            .map(|_| {
                client.recv(&mut answer).unwrap();
                answer[6] // the ID of who asked
            })
            .collect();
        answered.sort_unstable();
        answered
    });
    assert_eq!(answered.await.unwrap(), (0..MANY).collect::<Vec<_>>());
    first.end().await;
    next.end().await;
}
