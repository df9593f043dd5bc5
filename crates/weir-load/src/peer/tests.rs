use super::*;
use crate::{
    proof::{OfRun, Secret, Shown},
    stamp::{Stamp, fill},
};
use proptest::prelude::*;
use serde_json::Value;
use std::{
    io::{self, BufReader, Read, Write},
    sync::LazyLock,
};

static SECRET: LazyLock<Secret> = LazyLock::new(Secret::random);

/// Answers in the order in which they were given.
fn answers(output: &[u8]) -> Vec<Value> {
    let lines = output.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_slice(line).expect("a document")).collect()
}

fn datagram(run: u32, sequence: u64) -> [u8; 64] {
    let mut bytes = [0; 64];
    fill(&mut bytes);
    let (proof, due_ns) = (SECRET.value(run, 0, sequence), crate::clock::now_ns());
    Stamp { run, flow: 0, sequence, proof, due_ns }.write(&mut bytes);
    bytes
}

const SERVE: &str = r#"{"ask":"serve","address":"127.0.0.1:0","size_bytes":1024}"#;
const BEGIN: &str = r#"{"ask":"begin","run":7,"warm_up_run":8,"size_bytes":64,"flows":1,"verify_every":1,"latency_every":1}"#;

/// Gives one ask after the other, and calls back before each.
struct Asks<F>(Vec<String>, F);

impl<F: FnMut(usize)> Read for Asks<F> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.0.is_empty() {
            return Ok(0);
        }
        (self.1)(self.0.len());
        let line = self.0.remove(0) + "\n";
        buffer[..line.len()].copy_from_slice(line.as_bytes());
        Ok(line.len())
    }
}

#[test]
fn a_run_is_accounted_for_apart_from_its_warm_up() {
    let (asks, asked) = std::sync::mpsc::channel::<()>();
    let lines = [
        SERVE,
        BEGIN,
        r#"{"ask":"start"}"#,
        r#"{"ask":"count"}"#,
        r#"{"ask":"end","sent_per_flow":[3]}"#,
        r#"{"ask":"end","sent_per_flow":[3]}"#,
    ];
    let sink: std::cell::RefCell<Option<Sink>> = None.into();
    let input = Asks(lines.map(String::from).to_vec(), |left| {
        let mut sink = sink.borrow_mut();
        let Some(sink) = sink.as_mut() else { return };
        match left {
            4 => sink.datagram(&datagram(8, 0)), // of the warm-up
            3 => {
                let both = [datagram(7, 0), datagram(7, 1)].concat();
                sink.segments(&both, 64);
                sink.entered_kernel();
                sink.datagram(b"a stranger");
            }
            _ => {}
        }
        let _ = asks.send(());
    });
    let mut output = Vec::new();
    // A buffer as long as a line, so that no ask is read before its time.
    let reader = BufReader::with_capacity(4096, input);
    let (mut talk, serve) = Talk::open(reader, &mut output).unwrap();
    assert_eq!((serve.size_bytes, serve.receive_offload), (1024, false));
    *sink.borrow_mut() = Some(talk.sink(&serve));
    let address = "127.0.0.1:9".parse().unwrap();
    let settings = [(setting::LIBRARY.to_owned(), "none".to_owned())].into();
    talk.ready(Ready { address, settings }).unwrap();
    talk.answer().unwrap();
    drop(talk);
    assert_eq!(asked.try_iter().count(), 5);

    let said = answers(&output);
    assert_eq!(said[0]["ready"]["address"], "127.0.0.1:9");
    assert_eq!((&said[1]["ok"], &said[2]["ok"]), (&true.into(), &true.into()));
    assert_eq!((&said[3]["received"], &said[3]["handled"]), (&2.into(), &4.into()));
    let account = &said[4];
    assert_eq!((&account["received"], &account["lost"]), (&2.into(), &1.into()));
    assert_eq!((&account["warm_up"], &account["strangers"]), (&1.into(), &1.into()));
    let histogram = account["latency_histogram"].as_array().unwrap();
    assert_eq!(histogram.iter().map(|bucket| bucket[1].as_u64().unwrap()).sum::<u64>(), 2);
    let shown: Shown = serde_json::from_value(account["proof"].clone()).unwrap();
    let checked = shown.check(&SECRET, 7);
    assert!(checked.right == 2 && checked.wrong == 0 && checked.fits(2), "{checked:?}");
    assert_eq!(account["counters"]["datagrams"], 3, "since the start, strangers included");
    assert_eq!(account["counters"]["kernel_entries"], 1);
    assert!(said[5]["error"]["message"].as_str().unwrap().contains("no run"), "{}", said[5]);
}

/// Several generators have a run each, and the account is of all of them.
#[test]
fn runs_that_are_open_together_have_one_account() {
    let other = Secret::random();
    let beside =
        BEGIN.replace("\"run\":7", "\"run\":17").replace("\"warm_up_run\":8", "\"warm_up_run\":18");
    let beside = beside.replace("}", ",\"beside\":true}");
    let lines = [
        SERVE,
        BEGIN,
        &beside,
        r#"{"ask":"start"}"#,
        r#"{"ask":"count"}"#,
        r#"{"ask":"end","sent_per_flow":[3,2]}"#,
    ];
    let sink: std::cell::RefCell<Option<Sink>> = None.into();
    let input = Asks(lines.map(String::from).to_vec(), |left| {
        if let (2, Some(sink)) = (left, sink.borrow_mut().as_mut()) {
            sink.datagram(&datagram(7, 0));
            for sequence in 0..2 {
                let mut bytes = [0; 64];
                fill(&mut bytes);
                let (proof, due_ns) = (other.value(17, 0, sequence), crate::clock::now_ns());
                Stamp { run: 17, flow: 0, sequence, proof, due_ns }.write(&mut bytes);
                sink.datagram(&bytes);
            }
        }
    });
    let mut output = Vec::new();
    let reader = BufReader::with_capacity(4096, input);
    let (mut talk, serve) = Talk::open(reader, &mut output).unwrap();
    *sink.borrow_mut() = Some(talk.sink(&serve));
    talk.answer().unwrap();
    drop(talk);
    let said = answers(&output);
    assert_eq!(said[3]["received"], 3);
    let account = &said[4];
    assert_eq!((&account["received"], &account["lost"]), (&3.into(), &2.into()));
    let shown: Shown = serde_json::from_value(account["proof"].clone()).unwrap();
    let runs = [(*SECRET, 7), (other, 17)].map(|(secret, run)| OfRun { secret, run, flows: 1 });
    let checked = shown.check_all(&runs);
    assert!(checked.right == 3 && checked.wrong == 0 && checked.fits(3), "{checked:?}");
}

#[test]
fn what_is_not_asked_like_that_is_refused() {
    let open = |text: &str| Talk::open(text.as_bytes(), io::sink()).map(|_| ());
    for (text, said) in [
        ("", "the input ended"),
        ("{}\n", "ask"),
        ("rubbish\n", "not understood"),
        (r#"{"ask":"count"}"#, "before \"serve\""),
    ] {
        let error = open(text).unwrap_err().to_string();
        assert!(error.contains(said), "{text:?}: {error}");
    }
    let again = format!("{SERVE}\n{SERVE}\n");
    let (mut talk, _) = Talk::open(again.as_bytes(), io::sink()).unwrap();
    assert!(talk.answer().unwrap_err().to_string().contains("a second time"));
}

#[test]
fn whoever_does_not_listen_is_noticed() {
    struct Gone;
    impl Write for Gone {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let asks = format!("{SERVE}\n{}\n", r#"{"ask":"count"}"#);
    let (mut talk, _) = Talk::open(asks.as_bytes(), Gone).unwrap();
    assert!(matches!(talk.answer(), Err(TalkError::Io(_))));
}

proptest! {
    #[test]
    fn any_bytes_are_heard_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Talk::open(&bytes[..], io::sink());
        let after = [SERVE.as_bytes(), b"\n", &bytes].concat();
        let (mut talk, _) = Talk::open(&after[..], io::sink()).unwrap();
        let _ = talk.answer();
    }
}
