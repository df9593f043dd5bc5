//! Bytes that a program under test wants to see at the beginning of each datagram.

use std::{fmt, str::FromStr};

/// The most bytes of a head.
pub const HEAD_BYTES_MAX: usize = 32;

/// Written over the beginning of each datagram, after its stamp: for a receiver that insists on a
/// header of its own and looks at no stamp. To the generator such a datagram costs what any other
/// does. Whoever audits stamps takes it for a stranger's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Head {
    bytes: [u8; HEAD_BYTES_MAX],
    length: u8,
}

impl Head {
    /// Its bytes; empty if there is none.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    /// Writes it over the beginning of a datagram, as far as that goes.
    #[inline]
    pub(super) fn write(&self, datagram: &mut [u8]) {
        let length = datagram.len().min(self.bytes().len());
        datagram[..length].copy_from_slice(&self.bytes[..length]);
    }

    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }
}

/// Hexadecimal digits, two for a byte.
impl FromStr for Head {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is not a head: write hexadecimal digits, two for each of at most \
                 {HEAD_BYTES_MAX} bytes"
            )
        };
        let is_digits = text.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !is_digits || !text.len().is_multiple_of(2) || text.len() > 2 * HEAD_BYTES_MAX {
            return Err(wrong());
        }
        let mut head = Self { length: (text.len() / 2) as u8, ..Self::default() };
        for (place, byte) in head.bytes.iter_mut().take(text.len() / 2).enumerate() {
            let digits = &text[2 * place..2 * place + 2];
            *byte = u8::from_str_radix(digits, 16).map_err(|_| wrong())?;
        }
        Ok(head)
    }
}

/// As it is read.
impl fmt::Display for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_as_it_is_shown() {
        let head: Head = "0001feFF".parse().unwrap();
        assert_eq!(head.bytes(), [0, 1, 0xfe, 0xff]);
        assert_eq!(head.to_string(), "0001feff");
        assert!("".parse::<Head>().unwrap().is_empty());
        for wrong in ["0", "0x", "g0", "+1", &"00".repeat(HEAD_BYTES_MAX + 1), "€€"] {
            assert!(wrong.parse::<Head>().is_err(), "{wrong:?}");
        }
    }
}
