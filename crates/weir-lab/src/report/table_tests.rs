use super::*;
use crate::report::fixture;

/// Compares with a file under `golden/`, or writes it where `WEIR_BLESS` is set.
fn golden(name: &str, text: &str) {
    let path = format!("{}/src/report/golden/{name}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("WEIR_BLESS").is_some() {
        std::fs::write(&path, text).expect("the golden file can be written");
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default().replace("\r\n", "\n");
    assert!(
        text == expected,
        "the report differs from {path}; if it should, run the test with WEIR_BLESS=1\n{text}"
    );
}

#[test]
fn a_wide_terminal_has_one_table_a_load() {
    golden("wide.txt", &report(&fixture::results(), 200));
}

#[test]
fn a_narrow_terminal_has_it_in_parts() {
    let text = report(&fixture::results(), 90);
    golden("narrow.txt", &text);
    let widest = text.lines().map(chars).max().unwrap_or(0);
    assert!(widest <= 90, "{widest} characters");
}

#[test]
fn no_figure_at_all_is_still_a_report() {
    let mut results = fixture::results();
    results.cells.iter_mut().flatten().for_each(|cell| *cell = Default::default());
    results.interrupted = true;
    results.error = Some("the generator cannot be started".into());
    let text = report(&results, 120);
    assert!(text.contains("No design delivered a figure"), "{text}");
    assert!(text.contains("warning: ended before its plan was through"), "{text}");
    assert!(text.contains("error: the generator cannot be started"), "{text}");
}

#[test]
fn paragraphs_break_between_words() {
    let mut text = String::new();
    paragraph(&mut text, "one two three", 8);
    assert_eq!(text, "one two\nthree\n");
}
