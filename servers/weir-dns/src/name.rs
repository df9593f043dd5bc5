//! Names as messages have them: labels, each behind its length, and the empty one of the root at the end (RFC 1035, 3.1).

use domain::base::name::Name as Parsed;
use std::{fmt, str::FromStr as _};

/// The longest name, in bytes.
pub const LONGEST: usize = 255;

/// A name in lower case.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Box<[u8]>);

impl Name {
    /// Of the bytes of a whole name.
    pub fn new(wire: &[u8]) -> Self {
        Self(wire.to_ascii_lowercase().into())
    }

    /// Reads `example.com`, with or without the dot at its end.
    ///
    /// # Errors
    /// Why it is none.
    pub fn parse(text: &str) -> Result<Self, String> {
        let name = Parsed::<Vec<u8>>::from_str(text).map_err(|e| format!("{text:?}: {e}"))?;
        Ok(Self::new(name.as_slice()))
    }

    /// Its bytes.
    pub fn wire(&self) -> &[u8] {
        &self.0
    }

    /// How many labels it has, without the root's.
    pub fn labels(&self) -> usize {
        suffixes(&self.0).count() - 1
    }

    /// Whether it is this one, or below it.
    pub fn is_within(&self, above: &Self) -> bool {
        suffixes(&self.0).any(|suffix| *suffix == *above.0)
    }

    /// The wildcard below it; `None` where that would be too long.
    pub fn wildcard(&self) -> Option<Self> {
        let name = [b"\x01*", &*self.0].concat();
        (name.len() <= LONGEST).then(|| Self(name.into()))
    }

    /// Whether its first label is `*`.
    pub fn is_wildcard(&self) -> bool {
        self.0.starts_with(b"\x01*")
    }
}

/// The name, the one above it, and so on up to the root.
pub fn suffixes(wire: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::successors(Some(wire), |name| above(name))
}

/// The name above one; the root has none.
fn above(wire: &[u8]) -> Option<&[u8]> {
    let label = usize::from(*wire.first()?);
    wire.get(1 + label..).filter(|above| !above.is_empty())
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Parsed::from_octets(&*self.0) {
            Ok(name) => write!(f, "{}", name.fmt_with_dot()),
            Err(_) => write!(f, "{:?}", self.0),
        }
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_apart() {
        let name = Name::parse("WWW.Example.com").unwrap();
        assert_eq!(name.wire(), b"\x03www\x07example\x03com\0");
        assert_eq!(suffixes(name.wire()).map(<[u8]>::len).collect::<Vec<_>>(), [17, 13, 5, 1]);
        assert_eq!((name.labels(), name.to_string().as_str()), (3, "www.example.com."));
        let root = Name::parse(".").unwrap();
        assert_eq!((root.labels(), root.to_string().as_str()), (0, "."));
        for (above, within) in
            [("com", true), ("www.example.com", true), (".", true), ("ww.example.com", false)]
        {
            assert_eq!(name.is_within(&Name::parse(above).unwrap()), within, "{above}");
        }
        let star = name.wildcard().unwrap();
        assert!(star.is_wildcard() && star.is_within(&name) && !name.is_wildcard());
        assert!(Name::parse(&"a.".repeat(127)).unwrap().wildcard().is_none());
        assert!(Name::parse("a..b").is_err());
    }
}
