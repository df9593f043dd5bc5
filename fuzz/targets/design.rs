//! A design with its options, as given on the command line.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weir::udp::AnyDesign;

fuzz_target!(|text: &str| {
    let Ok(design) = AnyDesign::parse(text) else { return };
    design.check().expect("what was parsed was checked");
    // Its own words describe it.
    let mut words = design.about().name.to_owned();
    for (name, value) in design.values() {
        words.push_str(&format!(" --{name}={value}"));
    }
    assert_eq!(AnyDesign::parse(&words).expect(&words), design);
});
