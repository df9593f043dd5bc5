//! A line of the control channel: whoever connects may send anything.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weir_load::control::{CHANGES_MAX, Change, LINE_BYTES_MAX, Message, parse_line};

fuzz_target!(|line: &[u8]| {
    let Ok(message) = parse_line(line) else { return };
    if let Message::Ask(ask) = &message
        && ask.check().is_ok()
    {
        assert!(ask.flows > 0 && ask.duration_ms > 0);
        assert!(ask.datagrams_per_s.is_none_or(|rate| rate.is_finite() && rate > 0.0));
    }
    if let Message::Set { changes } = &message
        && Change::check(changes).is_ok()
    {
        assert!(changes.len() <= CHANGES_MAX);
    }
    // What was understood can be said. Not compared whole: the last bit of a rate may differ.
    let again = serde_json::to_vec(&message).expect("a message can be written");
    if again.len() < LINE_BYTES_MAX {
        assert_eq!(parse_line(&again).expect("a line of our own").name(), message.name());
    }
});
