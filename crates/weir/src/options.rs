//! Options of a design: one declaration gives the typed struct, the names, the help and the
//! checks.
//!
//! ```
//! use weir::{options::Options, udp::RioHybrid};
//! let mut options = RioHybrid::default().threads(2);
//! options.set("threshold", "500").unwrap();
//! assert!(options.set("threads", "0").unwrap_err().to_string().contains("1 to 256"));
//! ```

use crate::Error;
use std::{fmt::Display, ops::RangeInclusive, str::FromStr, time::Duration};

/// What is known of an option before it has a value.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct OptionInfo {
    /// Its name, as on a command line: `dequeue-max`.
    pub name: String,
    /// What it does.
    pub help: &'static str,
    /// Its default value.
    pub default: String,
    /// The values it accepts.
    pub accepts: String,
}

/// A set of options with names.
pub trait Options: Default + Clone + Send + 'static {
    /// Every option, in the order of declaration.
    fn known() -> Vec<OptionInfo>;

    /// Sets an option by its name.
    ///
    /// # Errors
    /// [`Error::UnknownName`] and [`Error::Option`], with the names or values that are right.
    fn set(&mut self, name: &str, value: &str) -> Result<(), Error>;

    /// Checks every value against its limits.
    ///
    /// # Errors
    /// [`Error::Option`] for the first value that is out of its limits.
    fn check(&self) -> Result<(), Error>;

    /// Every option with its value.
    fn values(&self) -> Vec<(String, String)>;

    /// Sets options from words like `--threads 2 --threshold=500`.
    ///
    /// # Errors
    /// As [`set`](Self::set); also for a word that is no option and an option without value.
    fn set_all<'a>(&mut self, words: impl IntoIterator<Item = &'a str>) -> Result<(), Error> {
        set_all(words.into_iter(), |name, value| self.set(name, value))
    }
}

/// Splits words like `--threads 2 --threshold=500` into names and values for `set`.
pub(crate) fn set_all<'a>(
    mut words: impl Iterator<Item = &'a str>,
    mut set: impl FnMut(&str, &str) -> Result<(), Error>,
) -> Result<(), Error> {
    while let Some(word) = words.next() {
        let Some(option) = word.strip_prefix("--") else {
            let problem = "an option begins with two dashes, as in --threads 2";
            return Err(Error::option(word, problem));
        };
        match option.split_once('=') {
            Some((name, value)) => set(name, value)?,
            None => {
                let Some(value) = words.next() else {
                    // There may be no such option.
                    return Err(match set(option, "") {
                        Err(unknown @ Error::UnknownName { .. }) => unknown,
                        _ => Error::option(option, "its value is missing"),
                    });
                };
                set(option, value)?;
            }
        }
    }
    Ok(())
}

/// The limits of an option's values.
pub trait Limit<T> {
    /// What k, M and G stand for behind a whole number: 1000 and its powers, or 1024 for a size; `None` where
    /// the values are words.
    const K: Option<u64> = None;
    /// Whether a value lies within.
    fn allows(&self, value: &T) -> bool;
    /// The values allowed, in words.
    fn text(&self) -> String;
}

impl<T: PartialOrd + Display> Limit<T> for RangeInclusive<T> {
    const K: Option<u64> = Some(1000);

    fn allows(&self, value: &T) -> bool {
        self.contains(value)
    }

    fn text(&self) -> String {
        format!("{} to {}", self.start(), self.end())
    }
}

/// A limit for an option that is a number of bytes.
pub struct Bytes<T>(pub RangeInclusive<T>);

impl<T: PartialOrd + Display> Limit<T> for Bytes<T> {
    const K: Option<u64> = Some(1024);

    fn allows(&self, value: &T) -> bool {
        self.0.contains(value)
    }

    fn text(&self) -> String {
        format!("{} to {} bytes (k = 1024)", self.0.start(), self.0.end())
    }
}

/// A limit in microseconds for an option that is a time.
pub struct Microseconds(pub RangeInclusive<u64>);

impl Limit<MicrosecondsValue> for Microseconds {
    fn allows(&self, value: &MicrosecondsValue) -> bool {
        self.0.contains(&value.0)
    }

    fn text(&self) -> String {
        format!("{} to {} microseconds", self.0.start(), self.0.end())
    }
}

/// A time in microseconds, as an option's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MicrosecondsValue(pub u64);

impl MicrosecondsValue {
    /// As a duration.
    pub fn duration(self) -> Duration {
        Duration::from_micros(self.0)
    }
}

impl FromStr for MicrosecondsValue {
    type Err = std::num::ParseIntError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.strip_suffix("us").unwrap_or(text).parse().map(Self)
    }
}

impl Display for MicrosecondsValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// No limit beyond what the type can hold.
pub struct Named(pub &'static [&'static str]);

impl<T> Limit<T> for Named {
    fn allows(&self, _value: &T) -> bool {
        true
    }

    fn text(&self) -> String {
        self.0.join(", ")
    }
}

/// Declares an enum by the names that its values have, as they are read and shown.
macro_rules! named {
    ($(#[$meta:meta])* pub enum $Name:ident { $($(#[$of_value:meta])* $Value:ident = $name:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $Name {
            $($(#[$of_value])* $Value,)+
        }

        impl $Name {
            /// The names accepted.
            pub const NAMES: $crate::options::Named = $crate::options::Named(&[$($name),+]);
        }

        impl std::fmt::Display for $Name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(match self { $($Name::$Value => $name,)+ })
            }
        }

        impl std::str::FromStr for $Name {
            type Err = ();
            fn from_str(name: &str) -> Result<Self, ()> {
                match name {
                    $($name => Ok($Name::$Value),)+
                    _ => Err(()),
                }
            }
        }
    };
}
pub(crate) use named;

#[doc(hidden)]
pub fn parse<T: FromStr, L: Limit<T>>(name: &str, value: &str, limit: &L) -> Result<T, Error> {
    let allowed = || format!("{value:?} is not allowed; allowed: {}", limit.text());
    let wrong = || Error::option(name, allowed());
    let in_full = L::K.and_then(|k| written_in_full(value, k));
    let value = in_full.as_deref().unwrap_or(value).parse().map_err(|_| wrong())?;
    if limit.allows(&value) { Ok(value) } else { Err(wrong()) }
}

/// `4k` as 4000 or 4096; `None` for what is no whole number with a unit behind it.
fn written_in_full(value: &str, k: u64) -> Option<String> {
    let unit = value.chars().last()?;
    let power = match unit.to_ascii_lowercase() {
        'k' => 1,
        'm' => 2,
        'g' => 3,
        _ => return None,
    };
    let number: u64 = value.strip_suffix(unit)?.parse().ok()?;
    Some(number.checked_mul(k.pow(power))?.to_string())
}

#[doc(hidden)]
pub fn check<T: Display>(name: &str, value: &T, limit: &impl Limit<T>) -> Result<(), Error> {
    if limit.allows(value) {
        return Ok(());
    }
    let problem = format!("{value} is not allowed; allowed: {}", limit.text());
    Err(Error::option(name, problem))
}

/// Declares a struct of settings that can grow: `#[non_exhaustive]`, with a method for each field that sets it, of the
/// field's name, as those of servers have.
macro_rules! settings {
    (
        $(#[$meta:meta])*
        pub struct $Name:ident { $($(#[$of_field:meta])* pub $field:ident: $Type:ty,)* }
    ) => {
        $(#[$meta])*
        #[non_exhaustive]
        pub struct $Name {
            $($(#[$of_field])* pub $field: $Type,)*
        }

        $crate::options::setters! { [const] $Name $($field: $Type,)* }
    };
}
pub(crate) use settings;

/// The methods of [`settings`], and of [`options`].
macro_rules! setters {
    ($constant:tt $Name:ident $($field:ident: $Type:ty,)*) => {
        /// Each sets the field of its name.
        impl $Name {
            $($crate::options::setters! { @ $constant $field: $Type })*
        }
    };
    (@ [$($constant:ident)?] $field:ident: $Type:ty) => {
        #[doc = concat!("Sets `", stringify!($field), "`.")]
        #[must_use]
        pub $($constant)? fn $field(mut self, $field: $Type) -> Self {
            self.$field = $field;
            self
        }
    };
}
pub(crate) use setters;

/// Declares a struct of options: for each a doc comment, a name, a type, a default and a
/// limit. `relations` names a function that checks options against each other.
macro_rules! options {
    (
        $(#[$meta:meta])*
        pub struct $Name:ident $(with $relations:path)? {
            $($(#[doc = $help:literal])+ $field:ident: $Type:ty = $default:expr, $limit:expr;)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq)]
        #[non_exhaustive]
        pub struct $Name {
            $($(#[doc = $help])+ pub $field: $Type,)*
        }

        $crate::options::setters! { [] $Name $($field: $Type,)* }

        impl Default for $Name {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }

        impl $crate::options::Options for $Name {
            fn known() -> Vec<$crate::options::OptionInfo> {
                vec![$($crate::options::OptionInfo {
                    name: stringify!($field).replace('_', "-"),
                    help: concat!($($help),+).trim(),
                    default: { let value: $Type = $default; value.to_string() },
                    accepts: $crate::options::Limit::<$Type>::text(&$limit),
                },)*]
            }

            fn set(&mut self, name: &str, value: &str) -> Result<(), $crate::Error> {
                let field = name.replace('-', "_");
                let _ = (&field, value); // a design may have no options
                $(if field == stringify!($field) {
                    self.$field = $crate::options::parse::<$Type, _>(name, value, &$limit)?;
                    return Ok(());
                })*
                let known = Self::known().into_iter().map(|option| option.name);
                Err($crate::Error::unknown_name("option", name, known))
            }

            fn check(&self) -> Result<(), $crate::Error> {
                $($crate::options::check::<$Type>(
                    &stringify!($field).replace('_', "-"), &self.$field, &$limit)?;)*
                $($relations(self)?;)?
                Ok(())
            }

            fn values(&self) -> Vec<(String, String)> {
                vec![$((stringify!($field).replace('_', "-"), self.$field.to_string()),)*]
            }
        }
    };
}
pub(crate) use options;

#[cfg(test)]
mod tests {
    use super::Options as _;
    use crate::{memory::RegionOptions, tcp};

    #[test]
    fn what_an_option_is_for_is_one_line_however_many_its_comment_has() {
        let known = RegionOptions::known();
        let commit = known.iter().find(|option| option.name == "commit").unwrap();
        assert!(commit.help.ends_with("when it is first touched."), "{:?}", commit.help);
        assert!(known.iter().all(|option| !option.help.contains(['\n', '\r'])));
    }

    #[test]
    fn numbers_may_have_a_unit_and_sizes_have_powers_of_1024() {
        let valued = |text: &str| tcp::AnyDesign::parse(text).map(|design| design.values());
        let of = |text: &str, name: &str| {
            let values = valued(text).unwrap();
            values.into_iter().find(|(known, _)| known == name).unwrap().1
        };
        assert_eq!(of("ring --zero-copy 1k", "zero-copy"), "1024");
        assert_eq!(of("ring --zero-copy=16M", "zero-copy"), "16777216");
        assert_eq!(of("ring-hybrid --zero-copy 4K", "zero-copy"), "4096");
        assert_eq!(of("ring --slices 2k", "slices"), "2000");
        assert_eq!(of("ring --slices 512", "slices"), "512");
        for wrong in ["17M", "1x", "k", "1.5k", "-1k", "99999999999999999999G"] {
            let error = valued(&format!("ring --zero-copy {wrong}")).unwrap_err().to_string();
            assert!(error.contains("0 to 16777216 bytes"), "{error}");
        }
    }
}
