//! Questions of the tests, and what the field's parser finds in answers.

#![allow(dead_code, reason = "not each test needs all of it")]

use domain::{
    base::{
        ParsedName, ToName as _,
        message::RecordSection,
        rdata::{ComposeRecordData as _, RecordData as _},
    },
    rdata::AllRecordData,
};
use weir_dns::{name::Name, types, zone::Zone};

/// Owner, type, TTL, and data with its names written out in lower case.
pub type Record = (Name, u16, u32, Vec<u8>);

/// The records of a section without that of EDNS, in an order of its own.
pub fn records(section: RecordSection<'_, [u8]>) -> Vec<Record> {
    let mut records: Vec<_> = section
        .map(|record| {
            let record = record.unwrap().into_any_record::<AllRecordData<_, ParsedName<_>>>();
            let record = record.unwrap();
            let mut data = Vec::new();
            record.data().compose_canonical_rdata(&mut data).unwrap();
            let owner = Name::new(record.owner().to_vec().as_slice());
            (owner, record.data().rtype().to_int(), record.ttl().as_secs(), data)
        })
        .filter(|(_, of, ..)| *of != types::OPT)
        .collect();
    records.sort();
    records
}

/// A question of class IN, with EDNS and a wish for signatures if there is a size.
pub fn question(id: u16, name: &Name, of: u16, edns: Option<u16>) -> Vec<u8> {
    let mut message = id.to_be_bytes().to_vec();
    message.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, u8::from(edns.is_some())]);
    message.extend(name.wire());
    message.extend(of.to_be_bytes());
    message.extend([0, 1]);
    if let Some(size) = edns {
        let [s0, s1] = size.to_be_bytes();
        message.extend([0, 0, 41, s0, s1, 0, 0, 0x80, 0, 0, 0]);
    }
    message
}

/// Names that are in the zone of the tests, that wildcards make, that are not there, and that belong elsewhere.
pub fn names(zone: &Zone) -> Vec<Name> {
    let more = "x.wild x.y.wild x.in.wild x.deep.wild a.wc b.c c nothing x.nothing host.sub a.b.host.sub x.other x.www \
                a.wcaway x.a.b.c";
    let more = more.split_whitespace().map(|name| format!("{name}.example.com"));
    let elsewhere = ["com", ".", "example.net", "notexample.com"].map(String::from);
    let parsed = more.chain(elsewhere).map(|name| Name::parse(&name).unwrap());
    zone.nodes().map(|(name, _)| name.clone()).chain(parsed).collect()
}
