//! What a connection gets first, which any server may send.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weir_load::tcp::refusal::{Heard, LONGEST, read};

fuzz_target!(|bytes: &[u8]| {
    for bytes in [bytes, &[weir::tcp::REFUSAL.as_bytes(), bytes].concat()] {
        match read(bytes, true) {
            Heard::Perhaps => panic!("nothing follows an end"),
            Heard::Refusal(text) => {
                assert!(text.len() <= 6 * LONGEST && !text.chars().any(char::is_control));
            }
            Heard::Other => {}
        }
        // What is clear with a part of it stays so with the rest.
        let mut settled = None;
        for end in 0..=bytes.len() {
            let heard = read(&bytes[..end], false);
            match &settled {
                Some(settled) => assert_eq!(*settled, heard),
                None if heard != Heard::Perhaps => settled = Some(heard),
                None => {}
            }
        }
    }
});
