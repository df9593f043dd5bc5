//! What a server of weir says to a connection that it does not serve.

use weir::tcp::REFUSAL;

/// The longest reason that is listened to, in bytes.
pub const LONGEST: usize = 512;

/// Bytes of a whole refusal that are listened to.
pub const REFUSAL_BYTES_MAX: usize = REFUSAL.len() + LONGEST;

/// What the first bytes of a connection are, where they are not an echo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    /// No refusal.
    Other,
    /// The beginning of what may be one: more is to be heard.
    Perhaps,
    /// A refusal, and its reason.
    Refusal(String),
}

/// Reads what a connection got first. It ended there if `ended`. What is no printable character in
/// the reason is shown as such: it comes from the other side, and goes to a terminal.
pub fn read(bytes: &[u8], ended: bool) -> Heard {
    let prefix = REFUSAL.as_bytes();
    let Some(reason) = bytes.strip_prefix(prefix) else {
        return match !ended && prefix.starts_with(bytes) {
            true => Heard::Perhaps,
            false => Heard::Other,
        };
    };
    let line = reason.iter().position(|byte| *byte == b'\n');
    if line.is_none() && !ended && reason.len() < LONGEST {
        return Heard::Perhaps;
    }
    let reason = &reason[..line.unwrap_or(reason.len()).min(LONGEST)];
    let text = String::from_utf8_lossy(reason);
    let shown = text.trim().chars().flat_map(|c| match c.is_control() {
        true => c.escape_default().collect::<Vec<_>>(),
        false => vec![c],
    });
    Heard::Refusal(shown.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_refusal_has_a_reason() {
        let refusal = |text: &str| Heard::Refusal(text.into());
        assert_eq!(read(b"weir: refused: there are 5\n", false), refusal("there are 5"));
        assert_eq!(read(b"weir: refused: there are 5\nmore", false), refusal("there are 5"));
        assert_eq!(read(b"weir: refused: there ar", false), Heard::Perhaps);
        assert_eq!(read(b"weir: refused: there ar", true), refusal("there ar"));
        assert_eq!(read(b"weir: refused: \x1b[2J\n", false), refusal("\\u{1b}[2J"));
    }

    #[test]
    fn it_may_come_in_pieces() {
        let whole = b"weir: refused: full\n";
        for cut in 0..whole.len() {
            assert_eq!(read(&whole[..cut], false), Heard::Perhaps, "{cut}");
        }
        assert_eq!(read(&whole[..10], true), Heard::Other, "it ended in the middle");
        assert_eq!(read(b"weird", false), Heard::Other);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(
            prefixed: bool, bytes in prop::collection::vec(any::<u8>(), 0..700), ended: bool,
        ) {
            let prefix = if prefixed { REFUSAL.as_bytes() } else { b"" };
            let bytes = [prefix, &bytes].concat();
            if let Heard::Refusal(text) = read(&bytes, ended) {
                prop_assert!(!text.chars().any(char::is_control));
                // A byte that is no character takes three as a sign of that, a control character six.
                prop_assert!(text.len() <= 6 * LONGEST);
            }
            prop_assert!(!ended || read(&bytes, ended) != Heard::Perhaps);
        }

        #[test]
        fn what_begins_like_one_is_bounded(len in 0usize..2000) {
            let bytes = [REFUSAL.as_bytes(), &vec![b'x'; len]].concat();
            prop_assert_eq!(read(&bytes, false) == Heard::Perhaps, len < LONGEST);
        }
    }
}
