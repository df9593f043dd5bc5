//! What goes wrong: peers that vanish, sockets that end in the middle, and more than there is room for.

use crate::{Factory, all_slices_are_back, bytes, endpoints::echo_stream, loopback, on_each};
use quinn::{Connection, ConnectionError, Endpoint, TransportConfig};
use std::{io::IoSliceMut, sync::Arc, time::Duration};
use weir_quinn::Settings;

on_each! {
    a_peer_that_vanishes_takes_nothing_with_it
    a_socket_that_ends_in_the_middle_gives_every_slice_back
    a_runtime_that_ends_in_the_middle_gives_every_slice_back
    two_slices_of_a_kind_are_enough
    very_many_streams
    garbage_is_survived
}

/// Echoes all streams of all connections.
fn serve(server: Endpoint) {
    tokio::spawn(async move {
        while let Some(incoming) = server.accept().await {
            tokio::spawn(async move {
                let Ok(connection) = incoming.await else { return };
                while let Ok(stream) = connection.accept_bi().await {
                    tokio::spawn(async move {
                        let (mut send, mut receive) = stream;
                        while let Ok(Some(chunk)) = receive.read_chunk(usize::MAX, true).await {
                            if send.write_chunk(chunk.bytes).await.is_err() {
                                return;
                            }
                        }
                        let _ = send.finish();
                    });
                }
            });
        }
    });
}

async fn echoes(connection: &Connection, message: &[u8]) {
    let (mut send, mut receive) = connection.open_bi().await.unwrap();
    let sending = async {
        send.write_all(message).await.unwrap();
        send.finish().unwrap();
    };
    let (_, echoed) = tokio::join!(sending, receive.read_to_end(usize::MAX));
    assert!(echoed.unwrap() == message, "{} bytes came back otherwise", message.len());
}

async fn a_peer_that_vanishes_takes_nothing_with_it(settings: Settings) {
    let factory = Factory::new();
    let (server, stats) = factory.endpoint_at("127.0.0.1:0", &settings);
    let address = loopback(&server);
    // Of both sides' times the shorter one counts: this connection alone may not be silent for long.
    let mut brief = TransportConfig::default();
    brief.max_idle_timeout(Some(Duration::from_millis(500).try_into().unwrap()));
    let (client, mut config) = (factory.endpoint(&settings), factory.client());
    config.transport_config(Arc::new(brief));
    // A handshake for which the machine had no core in that time is over, on both sides: then once more.
    let accepting = tokio::spawn({
        let server = server.clone();
        async move {
            loop {
                if let Ok(connection) = server.accept().await.unwrap().await {
                    return connection;
                }
            }
        }
    });
    let connection = loop {
        match client.connect_with(config.clone(), address, "localhost").unwrap().await {
            Ok(connection) => break connection,
            Err(end) => assert!(matches!(end, ConnectionError::TimedOut), "{end:?}"),
        }
    };
    let accepted = accepting.await.unwrap();
    // Nothing is read there, and then nothing is sent: it goes without a word.
    let writing = tokio::spawn({
        let accepted = accepted.clone();
        async move {
            // Its time may be over by now.
            let Ok(mut stream) = accepted.open_uni().await else { return };
            let message = bytes(1 << 20, 7);
            while stream.write_all(&message).await.is_ok() {}
        }
    });
    let runtime: Arc<dyn quinn::Runtime> = Arc::new(quinn::TokioRuntime);
    let elsewhere =
        weir_quinn::WeirSocket::bind("127.0.0.1:0".parse().unwrap(), &settings, &runtime).unwrap();
    // A socket that nobody knows of, and that knows nobody.
    client.rebind_abstract(Arc::new(Mute(elsewhere))).unwrap();
    assert!(matches!(accepted.closed().await, ConnectionError::TimedOut));
    writing.await.unwrap();
    drop((connection, client, accepted));
    // Others are served as before.
    serve(server.clone());
    let other = factory.endpoint(&settings);
    let connection = other.connect(address, "localhost").unwrap().await.unwrap();
    echoes(&connection, &bytes(100_000, 1)).await;
    connection.close(0u32.into(), b"");
    other.wait_idle().await;
    server.close(0u32.into(), b"");
    server.wait_idle().await;
    drop(server);
    all_slices_are_back(&stats).await;
}

/// A socket by which nothing leaves.
#[derive(Debug)]
struct Mute(weir_quinn::WeirSocket);

impl quinn::AsyncUdpSocket for Mute {
    fn create_io_poller(self: Arc<Self>) -> std::pin::Pin<Box<dyn quinn::UdpPoller>> {
        Box::pin(Always)
    }

    fn try_send(&self, _: &quinn::udp::Transmit<'_>) -> std::io::Result<()> {
        Ok(())
    }

    fn poll_recv(
        &self,
        cx: &mut std::task::Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        metas: &mut [quinn::udp::RecvMeta],
    ) -> std::task::Poll<std::io::Result<usize>> {
        self.0.poll_recv(cx, buffers, metas)
    }

    fn local_addr(&self) -> std::io::Result<std::net::SocketAddr> {
        self.0.local_addr()
    }
}

#[derive(Debug)]
struct Always;

impl quinn::UdpPoller for Always {
    fn poll_writable(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::task::Poll::Ready(Ok(()))
    }
}

async fn a_socket_that_ends_in_the_middle_gives_every_slice_back(settings: Settings) {
    let factory = Factory::new();
    let (server, server_stats) = factory.endpoint_at("127.0.0.1:0", &settings);
    let (client, client_stats) = factory.endpoint_at("127.0.0.1:0", &settings);
    serve(server.clone());
    let connection = client.connect(loopback(&server), "localhost").unwrap().await.unwrap();
    let (mut send, mut receive) = connection.open_bi().await.unwrap();
    let writing = tokio::spawn(async move {
        let message = bytes(1 << 20, 3);
        while send.write_all(&message).await.is_ok() {}
    });
    receive.read_exact(&mut vec![0; 1 << 20]).await.unwrap();
    // Both directions are full now.
    server.close(1u32.into(), b"enough");
    let end = connection.closed().await;
    // What says so may be lost where the machine is busy; then what is sent is answered by a reset.
    let told = matches!(end, ConnectionError::ApplicationClosed(_) | ConnectionError::Reset);
    assert!(told, "{end:?}");
    writing.await.unwrap();
    drop((connection, receive));
    server.wait_idle().await;
    client.wait_idle().await;
    drop((server, client));
    all_slices_are_back(&server_stats).await;
    all_slices_are_back(&client_stats).await;
    assert!(server_stats.counters().bytes > 1 << 20);
}

async fn a_runtime_that_ends_in_the_middle_gives_every_slice_back(settings: Settings) {
    // Its own, on a thread that may wait.
    let thread = std::thread::spawn(move || {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.unwrap();
        let stats = runtime.block_on(async {
            let factory = Factory::new();
            let (endpoint, stats) = factory.endpoint_at("127.0.0.1:0", &settings);
            serve(endpoint.clone());
            let connection =
                endpoint.connect(loopback(&endpoint), "localhost").unwrap().await.unwrap();
            let (mut send, mut receive) = connection.open_bi().await.unwrap();
            tokio::spawn(async move {
                let message = bytes(1 << 20, 3);
                while send.write_all(&message).await.is_ok() {}
            });
            receive.read_exact(&mut vec![0; 1 << 20]).await.unwrap();
            stats
        });
        drop(runtime);
        stats.slices()
    });
    let (made, pooled) =
        tokio::task::spawn_blocking(|| thread.join().expect("nothing panics")).await.unwrap();
    assert_eq!(pooled, made);
}

async fn two_slices_of_a_kind_are_enough(settings: Settings) {
    let settings = settings.receives(2).sends_outstanding(2);
    let factory = Factory::new();
    let (server, client) = (factory.endpoint(&settings), factory.endpoint(&settings));
    serve(server.clone());
    let connection = client.connect(loopback(&server), "localhost").unwrap().await.unwrap();
    let message = bytes(1 << 20, 9);
    tokio::join!(
        echoes(&connection, &message),
        echoes(&connection, &message),
        echoes(&connection, &message)
    );
}

async fn very_many_streams(settings: Settings) {
    const STREAMS: usize = 2000;
    let mut transport = TransportConfig::default();
    transport.max_concurrent_bidi_streams((STREAMS as u32).into());
    let factory = Factory::with(transport);
    let (server, client) = (factory.endpoint(&settings), factory.endpoint(&settings));
    let serving = server.clone();
    tokio::spawn(async move {
        let connection = serving.accept().await.unwrap().await.unwrap();
        // All are open at once before the first is answered.
        let mut streams = Vec::new();
        for _ in 0..STREAMS {
            streams.push(connection.accept_bi().await.unwrap());
        }
        for stream in streams {
            tokio::spawn(echo_stream(stream));
        }
        connection.closed().await;
    });
    let connection = client.connect(loopback(&server), "localhost").unwrap().await.unwrap();
    let mut tasks = Vec::new();
    for number in 0..STREAMS {
        let connection = connection.clone();
        tasks.push(tokio::spawn(async move {
            echoes(&connection, &bytes(300 + number % 700, number as u64)).await;
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
}

async fn garbage_is_survived(settings: Settings) {
    let factory = Factory::new();
    let (server, stats) = factory.endpoint_at("127.0.0.1:0", &settings);
    serve(server.clone());
    let client = factory.endpoint(&settings);
    let connection = client.connect(loopback(&server), "localhost").unwrap().await.unwrap();
    let before = stats.counters().datagrams;
    let noise = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let lengths = [0, 1, 20, 21, 1200, 1472, 9000, 65_507];
    for (number, length) in lengths.into_iter().enumerate() {
        noise.send_to(&bytes(length, number as u64), loopback(&server)).await.unwrap();
    }
    while stats.counters().datagrams < before + lengths.len() as u64 {
        tokio::task::yield_now().await;
    }
    echoes(&connection, &bytes(10_000, 1)).await;
}
