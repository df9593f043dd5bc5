//! Settings: defaults that work, and values out of range that are refused in clear words.

use super::support::*;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use weir::{
    Error,
    udp::{AnyDesign, Datagram, Replies, Server},
};

pub const CHECKS: &[Check] =
    &[("defaults", defaults), ("changes_while_it_runs", changes_while_it_runs)];

/// Of what is asked of a server, and bound, before its design starts.
pub const CHECKS_OF_THE_SERVER: &[Check] = &[
    ("values_out_of_range", values_out_of_range),
    ("address_in_use", address_in_use),
    ("started_twice", started_twice),
    ("both_families_on_one_port", both_families_on_one_port),
    ("address_not_local", address_not_local),
    ("datagrams_too_long", datagrams_too_long),
];

/// With as many receives outstanding as the design has by default.
fn defaults(subject: &Subject) -> Result<(), Skipped> {
    let sink = |_| |_: Datagram<'_>, _: &mut Replies<'_>| ();
    let server =
        subject.start_design(subject.untouched(), &Server::bind(any_port()), sink).unwrap();
    let to = server.local_addresses()[0];
    let sender = &senders(1, to)[0];
    for number in 0..20 {
        sender.send_to(&pattern(number, 1024), to).unwrap();
    }
    let total = || server.counters().iter().map(|counters| counters.datagrams).sum::<u64>();
    until("the arrival of 20 datagrams", || total() == 20);
    let effective = server.effective();
    let mut names: Vec<_> = effective.iter().map(|(name, _)| name).collect();
    names.sort();
    assert!(names.windows(2).all(|two| two[0] != two[1]), "a name is told twice: {effective:?}");
    let mut expected = subject.at_defaults();
    expected.resolve();
    for (name, value) in expected.values() {
        assert!(effective.contains(&(name.clone(), value.clone())), "{name} = {value} is not told");
    }
    let told: Vec<_> = effective.iter().filter(|(name, _)| name == "provider").collect();
    assert!(
        matches!(told[..], [(_, name)] if name == subject.at_defaults().provider()),
        "{told:?}"
    );
    let report = server.stop();
    assert_whole(&report);
    assert!(report.slices.made > 0);
    assert_eq!(report.total().datagrams, 20);
    Ok(())
}

fn refused(result: Result<impl Sized, Error>, words: &[&str]) {
    let Err(error) = result else { panic!("was accepted, with {words:?}") };
    let text = error.to_string();
    assert!(words.iter().all(|word| text.contains(word)), "{text:?} lacks one of {words:?}");
}

fn values_out_of_range(subject: &Subject) -> Result<(), Skipped> {
    let with = |name: &str, value: &str| -> Result<AnyDesign, Error> {
        let mut design = subject.at_defaults();
        design.set(name, value)?;
        design.check()?;
        Ok(design)
    };
    for option in subject.at_defaults().known_options() {
        let name = option.name.as_str();
        for garbage in ["", "many", "-1", "1e9", "99999999999999999999"] {
            refused(with(name, garbage), &[name, &option.accepts]);
        }
        // "least to most", with a unit perhaps.
        let Some((least, most)) = option.accepts.split_once(" to ") else { continue };
        let most = most.split_whitespace().next().expect("a number");
        let (least, most): (u64, u64) = (least.parse().unwrap(), most.parse().unwrap());
        refused(with(name, &(most + 1).to_string()), &[name, &option.accepts]);
        if least > 0 {
            refused(with(name, &(least - 1).to_string()), &[name, &option.accepts]);
        }
    }
    let names: Vec<_> = subject.at_defaults().known_options().into_iter().map(|o| o.name).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    refused(with("no-such-option", "1"), &names);
    // Options that contradict each other, and a server that is started all the same.
    if subject.has("threshold") && subject.has("dequeue-max") {
        let mut design = subject.at_defaults();
        design.set("dequeue-max", "10").unwrap();
        design.set("threshold", "11").unwrap();
        refused(design.check(), &["threshold", "dequeue"]);
        let sink = |_| |_: Datagram<'_>, _: &mut Replies<'_>| ();
        let result = subject.start_design(design, &Server::bind(any_port()), sink);
        refused(result, &["threshold", "dequeue"]);
    }
    Ok(())
}

fn address_in_use(subject: &Subject) -> Result<(), Skipped> {
    let holder = UdpSocket::bind(any_port()).unwrap();
    let address = holder.local_addr().unwrap();
    let (text, port) = (address.to_string(), address.port().to_string());
    let result = subject.try_log(&Server::bind(address), Answer::Nothing);
    refused(result, &[&text, "choose another port", &port]);
    // Nothing is left behind: the first of two addresses is free again.
    let (free, result) = loop {
        let free = senders(1, address)[0].local_addr().unwrap();
        let result = subject.try_log(&Server::bind(free).and_bind(address), Answer::Nothing);
        // Another check may have taken the first meanwhile.
        let is_it = |error: &Error| error.to_string().contains(&free.to_string());
        if !result.as_ref().is_err_and(is_it) {
            break (free, result);
        }
    };
    refused(result, &[&text]);
    assert_left(free);
    Ok(())
}

/// Each setting that may be changed is an option of the design, and changing it loses nothing.
fn changes_while_it_runs(subject: &Subject) -> Result<(), Skipped> {
    let (server, log) = subject.log(&Server::bind(any_port()));
    let to = server.local_addresses()[0];
    let senders = senders(2, to);
    let mut sent = Tally::new();
    let options = subject.at_defaults().known_options();
    for setting in server.settings() {
        assert!(options.iter().any(|option| option.name == setting.name), "{}", setting.name);
        // The least that it may be, and what it was.
        let least = setting.allowed.split(" to ").next().expect("the least").to_owned();
        let least = if setting.allowed.contains(" to ") { least } else { setting.value.clone() };
        for value in [&least, &setting.value] {
            let all = server.set(&[(setting.name, value)]).unwrap();
            let now = all.iter().find(|of| of.name == setting.name).expect("it is there still");
            assert_eq!(&now.value, value);
            add(&mut sent, send_all(&senders, to, (0..100).map(|n| n % 40), WINDOW, &log));
        }
    }
    stop(server, &log);
    assert_same(&log.seen(), &sent);
    Ok(())
}

/// Two servers of a kind on one address: where it can be shared each would get a part of what comes.
fn started_twice(subject: &Subject) -> Result<(), Skipped> {
    let (first, log) = subject.log(&Server::bind(any_port()));
    let address = first.local_addresses()[0];
    let again = subject.try_log(&Server::bind(address), Answer::Nothing);
    refused(again, &[&address.to_string(), "choose another port"]);
    // The first has all of the address, and serves on.
    let sent = send_all(&senders(4, address), address, (0..100).map(|n| n % 40), WINDOW, &log);
    stop(first, &log);
    assert_same(&log.seen(), &sent);
    // Nor can one server take an address twice.
    let free = senders(1, address)[0].local_addr().unwrap();
    let twice = subject.try_log(&Server::bind(free).and_bind(free), Answer::Nothing);
    refused(twice, &[&free.to_string(), "named twice"]);
    Ok(())
}

/// Every address of IPv4 and every one of IPv6, in either order: each datagram comes by its own socket.
fn both_families_on_one_port(subject: &Subject) -> Result<(), Skipped> {
    let (four, six) = (IpAddr::from([0; 4]), IpAddr::from([0u16; 8]));
    if UdpSocket::bind((six, 0)).is_err() {
        return Err(Skipped("there is no IPv6 here".into()));
    }
    for both in [[four, six], [six, four]] {
        let bind = |port| {
            let [first, second] = both.map(|ip| SocketAddr::from((ip, port)));
            subject.try_log(&Server::bind(first).and_bind(second), Answer::Nothing)
        };
        let free = || UdpSocket::bind((six, 0)).and_then(|socket| socket.local_addr());
        let (server, log) = super::free_port::on_a_free_port(free, bind);
        let port = server.local_addresses()[0].port();
        assert_eq!(server.local_addresses(), both.map(|ip| SocketAddr::from((ip, port))));
        let own: [(IpAddr, IpAddr); 2] =
            [(Ipv4Addr::LOCALHOST.into(), four), (Ipv6Addr::LOCALHOST.into(), six)];
        for (number, (to, _)) in own.iter().enumerate() {
            let to: SocketAddr = (*to, port).into();
            senders(1, to)[0].send_to(&[number as u8], to).unwrap();
        }
        log.wait_for(2);
        for seen in log.seen() {
            let (to, by) = own[seen.bytes[0] as usize];
            assert_eq!(seen.source.ip(), to, "the source as its own family writes it");
            assert_eq!(both[seen.socket as usize], by, "{seen:?}");
        }
        let _ = stop(server, &log);
    }
    Ok(())
}

fn address_not_local(subject: &Subject) -> Result<(), Skipped> {
    // From the block that is set aside for documentation: nobody has it.
    let elsewhere: SocketAddr = "192.0.2.1:0".parse().unwrap();
    if UdpSocket::bind(elsewhere).is_ok() {
        return Err(Skipped(format!("this system binds to {elsewhere}, which is not its own")));
    }
    let result = subject.try_log(&Server::bind(elsewhere), Answer::Nothing);
    refused(result, &["192.0.2.1", "this machine has no such address"]);
    Ok(())
}

fn datagrams_too_long(subject: &Subject) -> Result<(), Skipped> {
    for bytes in [0, 65_528, usize::MAX] {
        let result =
            subject.try_log(&Server::bind(any_port()).payload_bytes(bytes), Answer::Nothing);
        refused(result, &[&bytes.to_string(), "1 to 65527"]);
    }
    Ok(())
}
