//! A chain of connection filters, on a connection without I/O: any sequence of what can happen to it, held
//! against a model.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|script: &[u8]| weir::filter::model::run(script));
