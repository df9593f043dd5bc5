//! Numbers as people write them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weir_load::quantity::{
    parse_bit_rate, parse_count, parse_percent, parse_rate, parse_size, parse_time,
};

fuzz_target!(|text: &str| {
    if let Ok(count) = parse_count(text) {
        assert_eq!(parse_count(&count.to_string()), Ok(count));
    }
    if let Ok(size) = parse_size(text) {
        assert_eq!(parse_size(&size.to_string()), Ok(size));
    }
    for rate in [parse_rate(text), parse_bit_rate(text)].into_iter().flatten() {
        assert!(rate > 0.0 && rate.is_finite(), "{rate}");
    }
    if let Ok(share) = parse_percent(text) {
        assert!(share > 0.0 && share <= 1.0, "{share}");
    }
    if let Ok(time) = parse_time(text) {
        assert!(time.as_secs() <= 7 * 24 * 3600, "{time:?}");
    }
});
