//! quinn's own tests of endpoints (quinn 0.11.9, `quinn/src/tests.rs` and `quinn/tests/many_connections.rs`, MIT OR
//! Apache-2.0, copyright the quinn developers), on sockets of weir's. Changed: endpoints are made on those sockets; no time is asserted; what was waited for by
//! sleeping is awaited; numbers are smaller where the test is the same with fewer.

use crate::{Factory, bytes, endpoint_at, loopback, on_each};
use quinn::{
    ConnectionError, ConnectionId, ConnectionIdGenerator, EndpointConfig, RecvStream, SendStream,
    TransportConfig, VarInt,
};
use std::{sync::Arc, time::Duration};
use tokio::sync::{Notify, oneshot};
use weir_quinn::Settings;

on_each! {
    handshake_timeout
    close_endpoint
    local_addr
    read_after_close
    export_keying_material
    ip_blocking
    zero_rtt
    echo_v6
    echo_v4
    echo_dualstack
    stress_receive_window
    stress_stream_receive_window
    stress_both_windows
    rebind_recv
    stream_id_flow_control
    two_datagram_readers
    multiple_conns_with_zero_length_cids
    stream_stopped
    stream_stopped_when_dropped
    many_connections
}

async fn handshake_timeout(settings: Settings) {
    let mut transport = TransportConfig::default();
    let idle = Duration::from_millis(500).try_into().unwrap();
    transport.max_idle_timeout(Some(idle)).initial_rtt(Duration::from_millis(10));
    let (client, _) = endpoint_at("127.0.0.1:0", &settings, EndpointConfig::default(), None);
    let nobody = "127.0.0.1:1".parse().unwrap();
    let connecting =
        client.connect_with(Factory::with(transport).client(), nobody, "localhost").unwrap();
    match connecting.await {
        Err(ConnectionError::TimedOut) => {}
        other => panic!("{other:?}"),
    }
}

async fn close_endpoint(settings: Settings) {
    let (mut endpoint, _) = endpoint_at("127.0.0.1:0", &settings, EndpointConfig::default(), None);
    endpoint.set_default_client_config(Factory::new().client());
    let connect = || endpoint.connect("127.0.0.1:1234".parse().unwrap(), "localhost").unwrap();
    let one = connect();
    tokio::spawn(async move {
        let _ = one.await;
    });
    let another = connect();
    endpoint.close(0u32.into(), &[]);
    match another.await {
        Err(ConnectionError::LocallyClosed) => {}
        other => panic!("{other:?}"),
    }
}

async fn local_addr(settings: Settings) {
    let (endpoint, _) = endpoint_at("[::1]:0", &settings, EndpointConfig::default(), None);
    let address = loopback(&endpoint);
    assert!(address.ip().is_loopback() && address.port() > 0, "{address}");
    // The port is ours.
    assert!(std::net::UdpSocket::bind(address).is_err());
}

async fn read_after_close(settings: Settings) {
    let endpoint = Factory::new().endpoint(&settings);
    const MESSAGE: &[u8] = b"goodbye!";
    let (acknowledged, is_acknowledged) = oneshot::channel();
    let server = endpoint.clone();
    tokio::spawn(async move {
        let connection = server.accept().await.unwrap().await.unwrap();
        let mut stream = connection.open_uni().await.unwrap();
        stream.write_all(MESSAGE).await.unwrap();
        stream.finish().unwrap();
        let _ = stream.stopped().await;
        acknowledged.send(()).unwrap();
    });
    let connection = endpoint.connect(loopback(&endpoint), "localhost").unwrap().await.unwrap();
    is_acknowledged.await.unwrap();
    let mut stream = connection.accept_uni().await.unwrap();
    assert_eq!(stream.read_to_end(usize::MAX).await.unwrap(), MESSAGE);
}

async fn export_keying_material(settings: Settings) {
    let endpoint = Factory::new().endpoint(&settings);
    let (out, incoming) = tokio::join!(
        async { endpoint.connect(loopback(&endpoint), "localhost").unwrap().await.unwrap() },
        async { endpoint.accept().await.unwrap().await.unwrap() },
    );
    let export = |connection: &quinn::Connection| {
        let mut bytes = [0u8; 64];
        connection.export_keying_material(&mut bytes, b"asdf", b"qwer").unwrap();
        bytes
    };
    assert_eq!(export(&out), export(&incoming));
}

async fn ip_blocking(settings: Settings) {
    let factory = Factory::new();
    let (blocked, allowed) = (factory.endpoint(&settings), factory.endpoint(&settings));
    let server = factory.endpoint(&settings);
    let (address, blocked_address) = (loopback(&server), loopback(&blocked));
    let serving = tokio::spawn(async move {
        loop {
            let incoming = server.accept().await.unwrap();
            if incoming.remote_address() == blocked_address {
                incoming.refuse();
            } else if incoming.remote_address_validated() {
                incoming.await.unwrap();
            } else {
                incoming.retry().unwrap();
            }
        }
    });
    tokio::join!(
        async {
            let error = blocked.connect(address, "localhost").unwrap().await.unwrap_err();
            assert!(matches!(error, ConnectionError::ConnectionClosed(_)), "{error:?}");
        },
        async {
            allowed.connect(address, "localhost").unwrap().await.unwrap();
        }
    );
    serving.abort();
}

async fn zero_rtt(settings: Settings) {
    let endpoint = Factory::new().endpoint(&settings);
    const ZERO: &[u8] = b"zero";
    const ONE: &[u8] = b"one";
    let server = endpoint.clone();
    tokio::spawn(async move {
        for _ in 0..2 {
            let connecting = server.accept().await.unwrap().accept().unwrap();
            let (connection, established) =
                connecting.into_0rtt().unwrap_or_else(|_| unreachable!());
            let accepting = connection.clone();
            tokio::spawn(async move {
                while let Ok(mut stream) = accepting.accept_uni().await {
                    assert_eq!(stream.read_to_end(usize::MAX).await.unwrap(), ZERO);
                }
            });
            let send = async |message: &[u8]| {
                let mut stream = connection.open_uni().await.unwrap();
                stream.write_all(message).await.unwrap();
                let _ = stream.finish(); // the peer may close before it acknowledges
            };
            send(ZERO).await;
            established.await;
            send(ONE).await;
        }
    });
    let connect = || endpoint.connect(loopback(&endpoint), "localhost").unwrap();
    let connection = connect().into_0rtt().err().expect("there are no keys yet").await.unwrap();
    let receive = async |connection: &quinn::Connection| {
        connection.accept_uni().await.unwrap().read_to_end(usize::MAX).await.unwrap()
    };
    assert_eq!(receive(&connection).await, ZERO);
    // A message of 1-RTT: the handshake is complete, and the ticket has come.
    assert_eq!(receive(&connection).await, ONE);
    drop(connection);

    let (connection, accepted) =
        connect().into_0rtt().unwrap_or_else(|_| panic!("the keys are missing"));
    let sending = connection.clone();
    tokio::spawn(async move {
        let mut stream = sending.open_uni().await.unwrap();
        stream.write_all(ZERO).await.unwrap();
        stream.finish().unwrap();
    });
    assert_eq!(receive(&connection).await, ZERO);
    assert!(accepted.await);
    drop(connection);
    endpoint.wait_idle().await;
}

async fn echo_v6(settings: Settings) {
    echo(&settings, "[::]:0", "[::1]:0", 1, 10 * 1024, [None; 2]).await;
}

async fn echo_v4(settings: Settings) {
    echo(&settings, "0.0.0.0:0", "127.0.0.1:0", 1, 10 * 1024, [None; 2]).await;
}

async fn echo_dualstack(settings: Settings) {
    // A socket of IPv6 reaches IPv4 where the system says so by itself.
    if cfg!(target_os = "linux") {
        echo(&settings, "[::]:0", "127.0.0.1:0", 1, 10 * 1024, [None; 2]).await;
    }
}

async fn stress_receive_window(settings: Settings) {
    let windows = [Some(37), Some(100 << 20)];
    echo(&settings, "0.0.0.0:0", "127.0.0.1:0", 4, 5 * 1024 + 11, windows).await;
}

async fn stress_stream_receive_window(settings: Settings) {
    let windows = [Some(100 << 20), Some(37)];
    echo(&settings, "0.0.0.0:0", "127.0.0.1:0", 2, 5 * 1024 + 11, windows).await;
}

async fn stress_both_windows(settings: Settings) {
    echo(&settings, "0.0.0.0:0", "127.0.0.1:0", 4, 5 * 1024 + 11, [Some(37); 2]).await;
}

/// Has streams echoed one after the other, with these windows of a connection and of a stream.
async fn echo(
    settings: &Settings,
    client_at: &str,
    server_at: &str,
    streams: usize,
    stream_bytes: usize,
    windows: [Option<u32>; 2],
) {
    let mut transport = TransportConfig::default();
    let [window, stream_window] = windows;
    if let Some(window) = window {
        transport.receive_window(window.into());
    }
    if let Some(window) = stream_window {
        transport.stream_receive_window(window.into());
    }
    transport.max_concurrent_bidi_streams(1_u8.into()).max_concurrent_uni_streams(1_u8.into());
    let factory = Factory::with(transport);
    let (server, _) = factory.endpoint_at(server_at, settings);
    let (mut client, _) = endpoint_at(client_at, settings, EndpointConfig::default(), None);
    client.set_default_client_config(factory.client());
    let address = loopback(&server);
    let serving = tokio::spawn(async move {
        let incoming = server.accept().await.unwrap();
        assert!(incoming.local_ip().expect("it is told").is_loopback());
        let connection = incoming.await.unwrap();
        tokio::spawn(async move {
            while let Ok(stream) = connection.accept_bi().await {
                tokio::spawn(echo_stream(stream));
            }
        });
        server.wait_idle().await;
    });
    let connection = client.connect(address, "localhost").unwrap().await.unwrap();
    for number in 0..streams {
        let (mut send, mut receive) = connection.open_bi().await.unwrap();
        let message = bytes(stream_bytes, number as u64);
        let sending = async {
            send.write_all(&message).await.unwrap();
            send.finish().unwrap();
        };
        let (_, echoed) = tokio::join!(sending, receive.read_to_end(usize::MAX));
        assert!(echoed.unwrap() == message, "stream {number} came back otherwise");
    }
    connection.close(0u32.into(), b"done");
    client.wait_idle().await;
    serving.await.unwrap();
}

pub(crate) async fn echo_stream((mut send, mut receive): (SendStream, RecvStream)) {
    while let Some(chunk) = receive.read_chunk(usize::MAX, true).await.unwrap() {
        send.write_chunk(chunk.bytes).await.unwrap();
    }
    let _ = send.finish();
}

async fn rebind_recv(settings: Settings) {
    let factory = Factory::new();
    let (server, client) = (factory.endpoint(&settings), factory.endpoint(&settings));
    const MESSAGE: &[u8; 5] = b"hello";
    let (address, write, connected) =
        (loopback(&server), Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (may_write, is_connected) = (Arc::clone(&write), Arc::clone(&connected));
    let serving = tokio::spawn(async move {
        let connection = server.accept().await.unwrap().await.unwrap();
        connected.notify_one();
        may_write.notified().await;
        let mut stream = connection.open_uni().await.unwrap();
        stream.write_all(MESSAGE).await.unwrap();
        stream.finish().unwrap();
        let _ = stream.stopped().await;
    });
    let connection = client.connect(address, "localhost").unwrap().await.unwrap();
    is_connected.notified().await;
    let runtime: Arc<dyn quinn::Runtime> = Arc::new(quinn::TokioRuntime);
    let elsewhere =
        weir_quinn::WeirSocket::bind("127.0.0.1:0".parse().unwrap(), &settings, &runtime).unwrap();
    client.rebind_abstract(Arc::new(elsewhere)).unwrap();
    write.notify_one();
    let mut stream = connection.accept_uni().await.unwrap();
    assert_eq!(stream.read_to_end(MESSAGE.len()).await.unwrap(), MESSAGE);
    serving.await.unwrap();
}

/// A client and a server that are connected, on one endpoint.
async fn connected(endpoint: &quinn::Endpoint) -> (quinn::Connection, quinn::Connection) {
    tokio::join!(
        async { endpoint.connect(loopback(endpoint), "localhost").unwrap().await.unwrap() },
        async { endpoint.accept().await.unwrap().await.unwrap() },
    )
}

async fn stream_id_flow_control(settings: Settings) {
    let mut transport = TransportConfig::default();
    transport.max_concurrent_uni_streams(1u32.into());
    let endpoint = Factory::with(transport).endpoint(&settings);
    let (client, server) = connected(&endpoint).await;
    // Each can be opened only when the one before was dropped.
    let open = async || drop(client.open_uni().await.unwrap());
    tokio::join!(open(), open(), open(), async {
        server.accept_uni().await.unwrap();
        server.accept_uni().await.unwrap();
    });
}

async fn two_datagram_readers(settings: Settings) {
    let endpoint = Factory::new().endpoint(&settings);
    let (client, server) = connected(&endpoint).await;
    let done = Notify::new();
    let read = async || {
        let datagram = client.read_datagram().await.unwrap();
        done.notify_waiters();
        datagram
    };
    let (a, b, ()) = tokio::join!(read(), read(), async {
        server.send_datagram(b"one"[..].into()).unwrap();
        done.notified().await;
        server.send_datagram_wait(b"two"[..].into()).await.unwrap();
    });
    assert!(*a == *b"one" || *b == *b"one");
    assert!(*a == *b"two" || *b == *b"two");
}

async fn multiple_conns_with_zero_length_cids(settings: Settings) {
    let mut factory = Factory::new();
    factory.config.cid_generator(|| Box::new(NoIds));
    let server = factory.endpoint(&settings);
    let address = loopback(&server);
    let client = async || {
        let client = factory.endpoint(&settings);
        client.connect(address, "localhost").unwrap().await.unwrap().closed().await
    };
    tokio::join!(client(), client(), async {
        let one = server.accept().await.unwrap().await.unwrap();
        let other = server.accept().await.unwrap().await.unwrap();
        // Both are alive at once.
        one.close(42u32.into(), &[]);
        other.close(42u32.into(), &[]);
    });
}

/// Connection IDs of no bytes.
struct NoIds;

impl ConnectionIdGenerator for NoIds {
    fn generate_cid(&mut self) -> ConnectionId {
        ConnectionId::new(&[])
    }

    fn cid_len(&self) -> usize {
        0
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

async fn stream_stopped(settings: Settings) {
    let factory = Factory::new();
    let (server, client) = (factory.endpoint(&settings), factory.endpoint(&settings));
    let address = loopback(&server);
    let client = async {
        let connection = client.connect(address, "localhost").unwrap().await.unwrap();
        let mut stream = connection.open_uni().await.unwrap();
        let (one, two, three) = (stream.stopped(), stream.stopped(), stream.stopped());
        stream.write_all(b"hi").await.unwrap();
        let one = tokio::spawn(one);
        let expected = Some(VarInt::from_u32(42));
        let (one, two) = tokio::join!(one, two);
        assert_eq!((one.unwrap(), two), (Ok(expected), Ok(expected)));
        drop(stream);
        assert_eq!(three.await, Ok(expected));
    };
    let server = async {
        let connection = server.accept().await.unwrap().await.unwrap();
        let mut stream = connection.accept_uni().await.unwrap();
        stream.read_exact(&mut [0u8; 2]).await.unwrap();
        stream.stop(42u32.into()).unwrap();
        connection
    };
    let ((), _connection) = tokio::join!(client, server);
}

async fn stream_stopped_when_dropped(settings: Settings) {
    let endpoint = Factory::new().endpoint(&settings);
    let (client, _server) = connected(&endpoint).await;
    let stream = client.open_uni().await.unwrap();
    let stopped = stream.stopped();
    tokio::pin!(stopped);
    // Polled once, so that its waker is known.
    tokio::select! {
        biased;
        _ = &mut stopped => {},
        _ = std::future::ready(()) => {}
    }
    drop(stream);
    assert_eq!(stopped.await, Ok(None));
}

async fn many_connections(settings: Settings) {
    const CONNECTIONS: usize = 20;
    const BYTES: usize = 256 << 10;
    let factory = Factory::new();
    let (server, client) = (factory.endpoint(&settings), factory.endpoint(&settings));
    let address = loopback(&server);
    let serving = tokio::spawn(async move {
        let mut tasks = Vec::new();
        for _ in 0..CONNECTIONS {
            let connection = server.accept().await.unwrap().await.unwrap();
            tasks.push(tokio::spawn(async move {
                let mut stream = connection.accept_uni().await.unwrap();
                let seed = stream.read_to_end(usize::MAX).await.unwrap();
                let number = u64::from_be_bytes(seed[..8].try_into().unwrap());
                assert!(seed[8..] == bytes(BYTES, number), "{number} came otherwise");
                connection.close(0u32.into(), &[]);
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
        server.wait_idle().await;
    });
    let mut tasks = Vec::new();
    for number in 0..CONNECTIONS as u64 {
        let connecting = client.connect(address, "localhost").unwrap();
        tasks.push(tokio::spawn(async move {
            let connection = connecting.await.unwrap();
            let mut stream = connection.open_uni().await.unwrap();
            let message = [&number.to_be_bytes()[..], &bytes(BYTES, number)].concat();
            stream.write_all(&message).await.unwrap();
            stream.finish().unwrap();
            connection.closed().await
        }));
    }
    for task in tasks {
        let end = task.await.unwrap();
        assert!(matches!(end, ConnectionError::ApplicationClosed(_)), "{end:?}");
    }
    client.wait_idle().await;
    serving.await.unwrap();
}
