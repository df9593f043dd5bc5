//! A datagram, which anyone may send.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weir_load::{
    proof::VALUE_BITS,
    stamp::{SEQUENCE_BITS, STAMP_BYTES, Stamp, body_is_intact},
};

fuzz_target!(|datagram: &[u8]| {
    let _ = body_is_intact(datagram);
    if let Ok(stamp) = Stamp::read(datagram) {
        let mut again = [0; STAMP_BYTES];
        stamp.write(&mut again);
        assert_eq!(again, datagram[..STAMP_BYTES]);
    }
    // A stamp of these numbers over these bytes is found again.
    let Some((numbers, body)) = datagram.split_first_chunk::<22>() else { return };
    let number = |at: usize| u64::from_le_bytes(numbers[at..at + 8].try_into().unwrap());
    let stamp = Stamp {
        run: number(0) as u32,
        flow: u16::from_le_bytes([numbers[20], numbers[21]]),
        sequence: number(4) & ((1 << SEQUENCE_BITS) - 1),
        proof: number(4) as u32 & ((1 << VALUE_BITS) - 1),
        due_ns: number(12),
    };
    if body.len() >= STAMP_BYTES {
        let mut body = body.to_vec();
        stamp.write(&mut body);
        assert_eq!(Stamp::read(&body), Ok(stamp));
    }
});
