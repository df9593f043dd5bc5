//! A datagram as it comes, by whose header a server tells to which process it goes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use quinn_proto::ConnectionIdGenerator as _;
use weir_quinn::ConnectionIds;

fuzz_target!(|datagram: &[u8]| {
    let mut ids: ConnectionIds = "0706050403020100f0e0d0c0b0a09080".parse().expect("it is a key");
    if ids.are_of(datagram) {
        assert!(datagram.windows(ids.cid_len()).skip(1).any(|id| ids.made(id)));
    }
    // One that goes there, whatever else it says; by a long header, if it is long enough for one.
    let (mut datagram, id) = (datagram.to_vec(), ids.generate_cid());
    let Some(first) = datagram.first() else { return };
    let at = if first & 0x80 == 0 { 1 } else { 6 };
    if let Some(place) = datagram.get_mut(at..at + id.len()) {
        place.copy_from_slice(&id);
        if at == 6 {
            datagram[5] = id.len() as u8;
        }
        assert!(ids.are_of(&datagram));
    }
});
