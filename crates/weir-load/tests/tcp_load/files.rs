//! Files as messages.

use crate::support::*;
use std::{
    fs::File,
    io::{self, Read as _, Write as _},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::SeqCst},
        mpsc,
    },
};
use weir_load::{
    Stop,
    tcp::{Engine, FileBy, LoadError, LoadSpec, Sizes, load},
};

each_engine!(
    a_file_is_sent_and_what_comes_back_is_compared_with_it,
    a_byte_of_a_file_that_was_changed_on_the_way_is_found,
    a_file_that_is_truncated_while_it_is_sent_fails_the_load,
    a_file_goes_to_a_sink_too,
    a_half_close_reaches_the_server_while_answers_are_due,
);

/// A file that is removed with it.
struct Temporary(PathBuf);

impl Temporary {
    fn of(bytes: &[u8]) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let (process, number) = (std::process::id(), NUMBER.fetch_add(1, SeqCst));
        let path = std::env::temp_dir().join(format!("weir-load-test-{process}-{number}"));
        std::fs::write(&path, bytes).unwrap();
        Self(path)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn some_bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8 ^ (at / 4096) as u8).collect()
}

fn a_file_is_sent_and_what_comes_back_is_compared_with_it(engine: Engine) {
    let server = Server::echo();
    for (len, sends, outstanding, by, half_close) in [
        (1, 3, 1, FileBy::Sendfile, false),
        (100, 2, 2, FileBy::Copy, true),
        (3_000_000, 1, 1, FileBy::Sendfile, true),
        (1_500_001, 3, 2, FileBy::Sendfile, false),
        (1_500_001, 2, 2, FileBy::Copy, false),
    ] {
        let file = Temporary::of(&some_bytes(len));
        let spec = LoadSpec {
            connections: 4,
            threads: 2,
            file: Some(file.0.clone()),
            file_by: by,
            sends: Some(sends),
            outstanding,
            half_close,
            ..server.spec(engine)
        };
        let report = run(&spec);
        assert_clean(&report, 4, sends);
        assert_eq!(report.counts.bytes_received, 4 * sends * len as u64);
        assert_eq!((report.message_bytes_min, report.message_bytes_max), (len as u64, len as u64));
    }
}

fn a_byte_of_a_file_that_was_changed_on_the_way_is_found(engine: Engine) {
    const PLACE: u64 = 1_234_567;
    let server = Server::start(|stream, _| {
        echo(stream, |offset, bytes| {
            if let Some(at) = PLACE.checked_sub(offset)
                && let Some(byte) = bytes.get_mut(at as usize)
            {
                *byte ^= 0x10;
            }
        })
    });
    let bytes = some_bytes(1_000_000);
    let file = Temporary::of(&bytes);
    let spec = LoadSpec { file: Some(file.0.clone()), sends: Some(2), ..server.spec(engine) };
    let report = run(&spec);
    let wrong = report.wrong_bytes.expect("it is found");
    assert_eq!(wrong.offset, PLACE, "in the second copy of the file");
    let expected = bytes[PLACE as usize % bytes.len()];
    assert_eq!((wrong.expected, wrong.found), (Some(expected), expected ^ 0x10));
    assert_eq!((report.counts.wrong, report.failure.is_some()), (1, false), "{report:?}");
}

/// What is cut off while it is sent is no fault of the server.
fn a_file_that_is_truncated_while_it_is_sent_fails_the_load(engine: Engine) {
    for by in [FileBy::Sendfile, FileBy::Copy] {
        let file = Temporary::of(&some_bytes(64 << 20));
        let path = file.0.clone();
        let server = Server::start(move |stream, _| {
            echo(stream, |offset, _| {
                if offset == 0 {
                    let file = File::options().write(true).open(&path).unwrap();
                    file.set_len(1000).unwrap();
                }
            })
        });
        let file = Some(file.0.clone());
        let report = run(&LoadSpec { file, file_by: by, sends: Some(1), ..server.spec(engine) });
        let counts = &report.counts;
        let failure = report.failure.as_deref();
        let failure = failure.unwrap_or_else(|| panic!("{by:?} did not fail: {counts:?}"));
        assert!(failure.contains("67108864 bytes, and has 1000 now"), "{failure}");
        assert_eq!((report.counts.broken, report.counts.wrong), (1, 0), "{report:?}");
        assert_eq!(report.invalid(), None, "{report:?}");
    }
}

#[test]
fn what_is_no_file_is_refused_before_anything_is_sent() {
    let server = Server::echo();
    let empty = Temporary::of(b"");
    for (path, said) in [
        // What the system says of it.
        (Path::new("/no/such/file"), "os error"),
        (&std::env::temp_dir(), "directory"),
        (&empty.0, "empty"),
    ] {
        let file = Some(path.to_owned());
        let spec = LoadSpec { file, ..server.spec(Engine::Readiness) };
        let error = load(&spec, &Stop::new(), |_| panic!("nothing begins")).unwrap_err();
        assert!(matches!(error, LoadError::File { .. }), "{error:?}");
        assert!(error.to_string().contains(said), "{error}");
    }
}

fn a_file_goes_to_a_sink_too(engine: Engine) {
    let received = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&received);
    let server = Server::start(move |mut stream, _| {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            match stream.read(&mut buffer)? {
                0 => return Ok(()),
                count => seen.fetch_add(count as u64, SeqCst),
            };
        }
    });
    let file = Temporary::of(&some_bytes(700_000));
    let spec = LoadSpec {
        connections: 3,
        file: Some(file.0.clone()),
        sends: Some(2),
        one_way: true,
        ..server.spec(engine)
    };
    let report = run(&spec);
    assert_eq!((report.invalid(), report.counts.finished), (None, 3), "{report:?}");
    assert_eq!(report.counts.messages_over, 6);
    drop(server);
    assert_eq!(received.load(SeqCst), 6 * 700_000);
}

/// Those servers say nothing before they have seen the end of what is sent.
fn a_half_close_reaches_the_server_while_answers_are_due(engine: Engine) {
    fn server(answered: fn(usize) -> usize) -> Server {
        Server::start(move |mut stream, _| {
            let mut all = Vec::new();
            stream.read_to_end(&mut all)?;
            stream.write_all(&all[..answered(all.len())])
        })
    }
    let spec = |server: &Server| LoadSpec {
        connections: 5,
        sizes: Sizes { least: 1, most: 900 },
        sends: Some(6),
        outstanding: 6,
        half_close: true,
        ..server.spec(engine)
    };
    let whole = server(|bytes| bytes);
    assert_clean(&run(&spec(&whole)), 5, 6);
    let short = server(|bytes| bytes - 1);
    let report = run(&spec(&short));
    assert_eq!((report.counts.truncated, report.counts.finished), (5, 0), "{report:?}");
    assert!(report.data_errors && report.invalid().is_some());
    // One that never answers is given up like any other.
    let (over, until_over) = mpsc::channel::<()>();
    let until_over = Mutex::new(until_over);
    let silent = Server::start(move |mut stream, _| {
        stream.read_to_end(&mut Vec::new())?;
        // It ends when nobody can say so any more.
        until_over.lock().unwrap().recv().map_err(io::Error::other)
    });
    // Dropped before the server, also where the test fails: the server waits for its threads.
    let over = over;
    let report = run(&LoadSpec { answer_timeout: INSTANT / 2, ..spec(&silent) });
    drop(over);
    assert_eq!(report.counts.unanswered, 5, "{report:?}");
}
