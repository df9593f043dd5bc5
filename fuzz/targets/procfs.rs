//! The texts of /proc, which every kernel writes a little differently.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &[u8]| weir::counters::os::parse_every_text(text));
