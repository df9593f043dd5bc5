//! Specifications that must not become floods.

use std::time::Duration;

use super::*;
use crate::{
    pacing::Load,
    stamp::{DATAGRAM_BYTES_MAX, FLOWS_MAX},
};

fn loopback() -> FloodSpec {
    FloodSpec { ports: vec![5201], ..FloodSpec::new([127, 0, 0, 1].into()) }
}

fn refused(change: impl FnOnce(&mut FloodSpec)) -> String {
    let mut spec = loopback();
    change(&mut spec);
    spec.check().expect_err("it must be refused").to_string()
}

#[test]
fn without_consent_only_loopback() {
    loopback().check().expect("loopback needs none");
    FloodSpec { target: "::1".parse().expect("an address"), ..loopback() }
        .check()
        .expect("loopback needs none");
    for elsewhere in ["192.0.2.1", "10.0.0.1", "2001:db8::1", "::ffff:192.0.2.1"] {
        let target = elsewhere.parse().expect("an address");
        let spec = FloodSpec { target, ..loopback() };
        assert!(matches!(spec.check(), Err(FloodError::NoConsent { .. })), "{elsewhere}");
        assert!(spec.check().expect_err("refused").to_string().contains("--control"));
        let control = Some("192.0.2.1:5200".parse().expect("an address"));
        FloodSpec { control, ..spec }.check().expect("the server will be asked");
    }
    for nobody in ["0.0.0.0", "::", "224.0.0.1", "ff02::1"] {
        let control = Some("192.0.2.1:5200".parse().expect("an address"));
        let target = nobody.parse().expect("an address");
        assert!(FloodSpec { target, control, ..loopback() }.check().is_err(), "{nobody}");
    }
}

#[test]
fn absurd_values_are_refused_with_what_is_right() {
    assert!(refused(|s| s.ports.clear()).contains("--port"));
    assert!(refused(|s| s.ports = vec![0]).contains("port 0"));
    assert!(refused(|s| s.ports = vec![1, 2]).contains("--parallel"));
    assert!(refused(|s| s.size_bytes = DATAGRAM_BYTES_MAX + 1).contains("65507"));
    assert!(refused(|s| s.generators = 0).contains("--generators"));
    assert!(refused(|s| s.generators = 1_000_000_000).contains("--generators"));
    assert!(refused(|s| s.flows = 0).contains("--parallel"));
    assert!(refused(|s| s.flows = FLOWS_MAX + 1).contains("--parallel"));
    assert!(refused(|s| s.flows = usize::MAX).contains("--parallel"));
    assert!(refused(|s| s.duration = Duration::ZERO).contains("--time"));
    assert!(refused(|s| s.duration = Duration::MAX).contains("--time"));
    assert!(refused(|s| s.warm_up = Duration::MAX).contains("warm-up"));
    assert!(refused(|s| s.datagrams = Some(0)).contains("--blockcount"));
    assert!(refused(|s| s.interval = Some(Duration::from_millis(9))).contains("--interval"));
    assert!(refused(|s| s.quantum = Some(0)).contains("--quantum"));
    for rate in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e12] {
        let load = Load::Paced { datagrams_per_s: rate };
        assert!(refused(|s| s.load = load).contains("rate"), "{rate}");
    }
}

#[test]
fn settings_are_known_without_sending() {
    let spec = FloodSpec {
        engine: Some("send".into()),
        load: Load::Paced { datagrams_per_s: 50_000.0 },
        ..loopback()
    };
    let settings = settings(&spec).expect("send works everywhere");
    let of = |name| settings.iter().find(|(n, _)| *n == name).map(|(_, value)| value.as_str());
    assert_eq!(of("engine"), Some("send"));
    assert!(of("quantum").expect("it is computed").starts_with("1 datagram every 20.0 µs"));
    let error = super::settings(&FloodSpec { quantum: Some(2), ..spec.clone() });
    assert!(error.expect_err("send carries one").to_string().contains("--quantum"));
    let error = super::settings(&FloodSpec { engine: Some("pigeon".into()), ..spec });
    assert!(error.expect_err("no such engine").to_string().contains("sendmmsg"));
}
