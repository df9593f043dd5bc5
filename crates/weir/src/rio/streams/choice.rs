//! The table of the providers of streams, and which of them runs here.

use super::{Receiving, StreamProvider as _};
use crate::Unavailable;

/// The providers, each with what makes it, best first. `$` stands for itself in the macro that this declares.
macro_rules! providers {
    ($dollar:tt $($Choice:ident: $provider:expr;)*) => {
        /// A provider of registered I/O for streams.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Choice {
            $($Choice,)*
        }

        impl Choice {
            const ALL: &[Choice] = &[$(Choice::$Choice),*];
        }

        /// Calls `$body` with the provider that `$choice` is, as `$provider`.
        macro_rules! with_stream_provider {
            ($dollar choice:expr, |$dollar provider:ident| $dollar body:expr) => {
                match $dollar choice {
                    $($crate::rio::streams::Choice::$Choice => {
                        let $dollar provider = $provider;
                        $dollar body
                    })*
                }
            };
        }
        pub(crate) use with_stream_provider;
    };
}

providers! { $
    Uring: crate::rio::uring::streams::UringStreams::default();
}

impl Choice {
    /// The first that can run here and receives so. The last is not tried: where none can, it says why.
    pub(crate) fn that_receives(receiving: Receiving) -> Choice {
        let (&last, others) = Self::ALL.split_last().expect("there is one");
        let can_run = |choice: &Choice| choice.availability(receiving).is_ok();
        others.iter().copied().find(can_run).unwrap_or(last)
    }

    /// Its name.
    pub(crate) fn name(self) -> &'static str {
        with_stream_provider!(self, |provider| provider.name())
    }

    /// Whether it can run here and receives so, by trying.
    ///
    /// # Errors
    /// Why it cannot.
    pub(crate) fn availability(self, receiving: Receiving) -> Result<(), Unavailable> {
        with_stream_provider!(self, |provider| provider.availability(receiving))
    }
}
