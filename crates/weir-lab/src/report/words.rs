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

/// The same, its first letter a small one.
pub(crate) fn lower_first(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_lowercase().chain(chars).collect()).unwrap_or_default()
}

/// The same, its first letter a capital.
pub(crate) fn capital_first(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn lists_read_as_people_write_them() {
        assert_eq!(list(&strings(&["a"])), "a");
        assert_eq!(list(&strings(&["a", "b", "c"])), "a, b and c");
        let many = shortened(strings(&["a", "b", "c", "d", "e", "f"]));
        assert_eq!(list(&many), "a, b, c, d and 2 more");
    }

    #[test]
    fn one_is_not_several() {
        assert_eq!([0, 1, 2].map(|n| number_of(n, "run")), ["0 runs", "1 run", "2 runs"]);
    }
}
