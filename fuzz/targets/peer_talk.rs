//! What a peer is asked, between datagrams that may be anything: it answers each ask or ends.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weir_load::peer::Talk;

const SERVE: &[u8] = b"{\"ask\":\"serve\",\"address\":\"127.0.0.1:0\",\"size_bytes\":64}\n";

fuzz_target!(|asks: &[u8]| {
    let _ = Talk::open(asks, std::io::sink());
    let all = [SERVE, asks].concat();
    let mut answers = Vec::new();
    let (mut talk, serve) = Talk::open(&all[..], &mut answers).expect("it is asked to serve");
    let mut sink = talk.sink(&serve);
    sink.segments(asks, 32);
    let _ = talk.answer();
    sink.datagram(asks);
    drop(talk);
    for answer in answers.split(|byte| *byte == b'\n').filter(|answer| !answer.is_empty()) {
        serde_json::from_slice::<serde_json::Value>(answer).expect("an answer is a document");
    }
});
