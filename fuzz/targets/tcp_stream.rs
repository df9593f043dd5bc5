//! What a load of TCP gets back: in any pieces, and changed, lost or doubled anywhere, held against a copy.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|script: &[u8]| weir_load::tcp::model::run(script));
