//! A link between two ends: what one sends comes at the other, and the machine's own devices are left alone.

use std::net::UdpSocket;

use super::super::*;

/// On a thread of its own, which the link takes to its end.
pub fn on_a_link(test: impl FnOnce(&Site) + Send + 'static) {
    let run = move || match Link::make() {
        Ok(link) => test(&Site::Link(link)),
        Err(unavailable) => {
            let required = std::env::var("WEIR_REQUIRE").unwrap_or_default();
            assert!(required != "all", "required by WEIR_REQUIRE, but {unavailable}");
            eprintln!("not run: {unavailable}");
        }
    };
    std::thread::spawn(run).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

fn devices() -> String {
    std::fs::read_to_string("/proc/thread-self/net/dev").unwrap()
}

#[test]
fn its_driver_says_how_fast_it_is() {
    // The fixed speed of veth.
    on_a_link(|_| assert_eq!(bits_per_s().unwrap(), Some(10_000_000_000)));
}

/// Many addresses, the first and the last of each kind among them, and no search of the link for any.
#[test]
fn clients_have_addresses_of_their_own() {
    on_a_link(|site| {
        let link = site.link().unwrap();
        link.give_clients_addresses().unwrap();
        let server = site.at_server(|| UdpSocket::bind((site.server(), 0))).unwrap();
        server.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
        let last = |network: [u8; 2]| Ipv4Addr::new(network[0], network[1], 255, 254);
        for from in [CLIENTS, last([198, 18]), OTHER_CLIENTS, last([198, 19])] {
            let client = UdpSocket::bind((from, 0)).unwrap();
            client.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
            client.send_to(b"hello", server.local_addr().unwrap()).unwrap();
            let (_, at) = server.recv_from(&mut [0; 9]).unwrap();
            assert_eq!(at, client.local_addr().unwrap());
            server.send_to(b"hello, too", at).unwrap();
            assert_eq!(client.recv(&mut [0; 99]).unwrap(), 10);
        }
        let neighbours =
            link.server.inside(|| std::fs::read_to_string("/proc/thread-self/net/arp"));
        let neighbours = neighbours.unwrap();
        assert!(!neighbours.contains("198.19."), "{neighbours}");
    });
}

#[test]
fn what_one_end_sends_comes_at_the_other_and_nowhere_else() {
    let before = devices();
    on_a_link(|site| {
        for server in [Some(site.server()), site.server_v6()].into_iter().flatten() {
            let sink = site.at_server(|| UdpSocket::bind((server, 0))).unwrap();
            sink.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
            assert!(UdpSocket::bind((server, 0)).is_err(), "it is the other end's address");
            let any: IpAddr = if server.is_ipv4() {
                Ipv4Addr::UNSPECIFIED.into()
            } else {
                Ipv6Addr::UNSPECIFIED.into()
            };
            let socket = UdpSocket::bind((any, 0)).unwrap();
            socket.send_to(b"hello", sink.local_addr().unwrap()).unwrap();
            let (size, from) = sink.recv_from(&mut [0; 9]).unwrap();
            assert_eq!(size, 5);
            let own: [IpAddr; 2] = [native::GENERATOR_V4.into(), native::GENERATOR_V6.into()];
            assert!(own.contains(&from.ip()), "{from}");
        }
    });
    let names = |text: &str| -> Vec<String> {
        let names = text.lines().filter_map(|line| line.split_once(':'));
        names.map(|(name, _)| name.trim().to_owned()).collect()
    };
    assert_eq!(names(&devices()), names(&before), "the machine's own devices are untouched");
}
