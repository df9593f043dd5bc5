//! Lists and counts in words.

/// Most names that are listed; further ones are counted.
const MOST_NAMED: usize = 4;

/// The first few names, and how many more there are.
pub(crate) fn shortened(mut names: Vec<String>) -> Vec<String> {
    let more = names.len().saturating_sub(MOST_NAMED);
    if more > 0 {
        names.truncate(MOST_NAMED);
        names.push(format!("{more} more"));
    }
    names
}

/// "1 run", "2 runs"; more than one is another word with an s.
pub(crate) fn number_of(count: usize, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        _ => format!("{count} {what}s"),
    }
}

/// "a", "a and b", "a, b and c".
pub(crate) fn list(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}
