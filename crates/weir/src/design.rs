//! What the designs of every kind of server have in common: what is said of each, and the table that
//! names, help and comparisons follow from.

/// What only types of this crate implement: traits that stand on it can get further functions without breaking anybody.
pub trait Sealed {}

/// What a design is, in a few lines.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct About {
    /// Its name.
    pub name: &'static str,
    /// How it works, in one sentence.
    pub summary: &'static str,
    /// Where it comes from.
    pub origin: &'static str,
    /// The contract it stands on.
    pub contract: Contract,
}

/// What a design stands on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Contract {
    /// Plain sockets ([`crate::socket`], [`crate::stream`]).
    Socket,
    /// Readiness by select ([`crate::readiness`]).
    Select,
    /// Readiness by poll ([`crate::readiness`]).
    Poll,
    /// Readiness by epoll ([`crate::readiness`]).
    Epoll,
    /// Readiness as messages in a queue ([`crate::readiness`]).
    Signals,
    /// Readiness as events in groups ([`crate::readiness`]).
    Events,
    /// Operations with an event each ([`crate::port::streams`]).
    Overlapped,
    /// A completion port ([`crate::port`]).
    Port,
    /// Registered I/O ([`crate::rio`]), on any of its providers.
    Rio,
    /// Reads of a device, or writes, that return when they are over ([`crate::device`]).
    Read,
    /// A queue of I/Os, of one thread ([`crate::device`]).
    Queue,
}

/// The table of designs of a kind of server: from it follow `AnyDesign`, `designs`, all that is
/// asked of a design by its name, and how one is started. The module has a `Design`, a `Handler`, `Boxed`
/// and `MakeHandler` of its own; named first are what is started, what the start gives for handlers of
/// the type `H` and for boxed ones, and what makes the one of the other, then what is asked of designs of this kind
/// only.
macro_rules! designs {
    (
        $Server:ty => $Running:ty, $RunningBoxed:ty, $unboxed:expr;
        { $($(#[$meta:meta])* $also:ident: $Also:ty;)* }
        $($folder:ident::$Design:ident,)*
    ) => {
        $(pub use $folder::$Design;)*

        /// What can be started: a [`Design`] by its type, which the compiler builds with the handler inlined, and builds
        /// no other; or one by its name ([`AnyDesign`]). Those are all built once, within weir, and call handlers of
        /// any type through a pointer. No other types are.
        pub trait Startable: $crate::design::Sealed {
            #[doc(hidden)]
            fn start_as<H: Handler>(
                self,
                server: &$Server,
                make_handler: MakeHandler<H>,
            ) -> Result<$Running, $crate::Error>;
        }

        impl<D: Design> Startable for D {
            fn start_as<H: Handler>(
                self,
                server: &$Server,
                make_handler: MakeHandler<H>,
            ) -> Result<$Running, $crate::Error> {
                server.start_design(self, make_handler)
            }
        }

        impl $crate::design::Sealed for AnyDesign {}

        impl Startable for AnyDesign {
            fn start_as<H: Handler>(
                self,
                server: &$Server,
                make_handler: MakeHandler<H>,
            ) -> Result<$Running, $crate::Error> {
                Ok($unboxed(self.start_boxed(server, Boxed::made_by(make_handler))?))
            }
        }

        /// Any design, with its options: what a name is turned into.
        #[derive(Debug, Clone, PartialEq)]
        #[non_exhaustive]
        pub enum AnyDesign {
            $(#[doc = concat!("See [`", stringify!($Design), "`].")] $Design($Design),)*
        }

        /// Every design with its defaults, in the order of the table.
        pub fn designs() -> Vec<AnyDesign> {
            vec![$(AnyDesign::$Design($Design::default()),)*]
        }

        impl AnyDesign {
            /// What it is.
            pub fn about(&self) -> About {
                match self { $(Self::$Design(_) => $Design::ABOUT,)* }
            }

            /// Its options.
            pub fn known_options(&self) -> Vec<$crate::options::OptionInfo> {
                match self { $(Self::$Design(_) => $Design::known(),)* }
            }

            /// Sets an option by its name.
            ///
            /// # Errors
            /// [`Error::UnknownName`] and [`Error::Option`].
            pub fn set(&mut self, name: &str, value: &str) -> Result<(), $crate::Error> {
                match self { $(Self::$Design(design) => design.set(name, value),)* }
            }

            /// Its options with their values.
            pub fn values(&self) -> Vec<(String, String)> {
                match self { $(Self::$Design(design) => design.values(),)* }
            }

            /// Checks its options.
            ///
            /// # Errors
            /// [`Error::Option`] for the first that is out of its limits.
            pub fn check(&self) -> Result<(), $crate::Error> {
                match self { $(Self::$Design(design) => design.check(),)* }
            }

            /// Replaces what is left to weir's choice (a provider `auto`) by what it stands for
            /// here.
            pub fn resolve(&mut self) {
                match self { $(Self::$Design(design) => design.resolve(),)* }
            }

            /// The name of the provider that it runs on here: for a design that runs on
            /// several, the one that is chosen.
            pub fn provider(&self) -> &'static str {
                match self { $(Self::$Design(design) => design.provider(),)* }
            }

            $crate::design::also! { each: [$($Design)*] $($(#[$meta])* $also: $Also;)* }

            /// Whether it can run here, by trying.
            ///
            /// # Errors
            /// Why it cannot.
            pub fn availability(&self) -> Result<(), $crate::Unavailable> {
                match self { $(Self::$Design(design) => design.availability(),)* }
            }

            /// Names no type of handler, so that it is built here and not by who starts a design.
            fn start_boxed(
                self,
                server: &$Server,
                make_handler: MakeHandler<Boxed>,
            ) -> Result<$RunningBoxed, $crate::Error> {
                match self { $(Self::$Design(design) => server.start_design(design, make_handler),)* }
            }
        }

        impl AnyDesign {
            /// A design from its name and options, as in `rio-hybrid --threads 2`.
            ///
            /// # Errors
            /// [`Error::UnknownName`] with the names there are; [`Error::Option`].
            pub fn parse(text: &str) -> Result<Self, $crate::Error> {
                let (mut design, words) = Self::named_in(text)?;
                $crate::options::set_all(words, |name, value| design.set(name, value))?;
                design.check()?;
                Ok(design)
            }

            /// The design that a text begins with, with its defaults, and the other words.
            fn named_in(text: &str) -> Result<(Self, std::str::SplitWhitespace<'_>), $crate::Error> {
                let mut words = text.split_whitespace();
                let name = words.next().unwrap_or_default();
                let design = designs().into_iter().find(|design| design.about().name == name);
                let names = || designs().into_iter().map(|design| design.about().name);
                let design = design
                    .ok_or_else(|| $crate::Error::unknown_name("design", name, names()))?;
                Ok((design, words))
            }
        }

        $(impl From<$Design> for AnyDesign {
            fn from(design: $Design) -> Self {
                Self::$Design(design)
            }
        })*
    };
}
pub(crate) use designs;

macro_rules! also {
    (each: $designs:tt $($(#[$meta:meta])* $also:ident: $Also:ty;)*) => {
        $($crate::design::also! { $designs $(#[$meta])* $also: $Also })*
    };
    ([$($Design:ident)*] $(#[$meta:meta])* $also:ident: $Also:ty) => {
        $(#[$meta])*
        pub fn $also(&self) -> $Also {
            match self { $(Self::$Design(design) => design.$also(),)* }
        }
    };
}
pub(crate) use also;

/// Where each thread has a handler, which comes back at the end: `Boxed`, a handler of any type, and how the
/// threads' handlers are made and taken out again. The module has a `Handler` of its own.
macro_rules! boxed {
    () => {
        /// Makes the handler of each thread from its number.
        pub(super) type MakeHandler<H> = Box<dyn FnMut(usize) -> H + Send>;

        /// The handler of a thread that has ended.
        pub(super) type Left = Box<dyn Any + Send>;

        /// A handler of any type.
        pub(super) struct Boxed(Box<dyn Erased>);

        /// A handler that can be given back as what it is.
        trait Erased: Handler + Any {}

        impl<H: Handler> Erased for H {}

        impl Boxed {
            /// Makes handlers as `make_handler` does, in boxes.
            pub(super) fn made_by<H: Handler>(
                mut make_handler: MakeHandler<H>,
            ) -> MakeHandler<Self> {
                Box::new(move |thread| Self(Box::new(make_handler(thread))))
            }
        }

        /// The handler that a thread has left, which was made as an `H`, boxed or not.
        pub(super) fn left<H: Handler>(handler: Left) -> H {
            let handler: Box<dyn Any> = match handler.downcast::<Boxed>() {
                Ok(boxed) => boxed.0,
                Err(handler) => handler,
            };
            *handler.downcast().expect("each thread has the handler that was made for it")
        }
    };
}
pub(crate) use boxed;

/// Declares a design: its name and what it stands on, what is said of it, its options (as [`options`](crate::options)
/// declares them), and what else is asked of it, each answered by a closure that takes it; a provider behind `on`
/// answers for `provider` and `availability`. `begin` of its type starts it, once its options are checked and nothing
/// is left to weir's choice.
macro_rules! design {
    (
        $(#[$meta:meta])*
        $kind:ident::$Design:ident $name:literal, $contract:ident $(on $Provider:ident)?;
        summary: $summary:literal;
        origin: $origin:literal;
        options $(with $relations:ident)? { $($options:tt)* }
        $($asked:ident: $answer:expr;)*
    ) => {
        $crate::options::options! {
            #[doc = concat!("Options of the design `", $name, "`.")]
            $(#[$meta])*
            pub struct $Design $(with $relations)? { $($options)* }
        }

        impl $crate::design::Sealed for $Design {}

        impl $crate::$kind::Design for $Design {
            const ABOUT: $crate::design::About = $crate::design::About {
                name: $name,
                summary: $summary,
                origin: $origin,
                contract: $crate::design::Contract::$contract,
            };

            $($crate::design::design! { @ provider |_| $Provider::PROVIDER }
            $crate::design::design! { @ availability |_| $Provider::availability() })?
            $($crate::design::design! { @ $asked $answer })*
            $crate::design::design! { @ start $kind }
        }
    };
    (@ provider $answer:expr) => { $crate::design::design! { @ provider: &'static str, $answer } };
    (@ availability $answer:expr) => {
        $crate::design::design! { @ availability: Result<(), $crate::Unavailable>, $answer }
    };
    (@ parks_threads $answer:expr) => { $crate::design::design! { @ parks_threads: bool, $answer } };
    (@ hands_over $answer:expr) => { $crate::design::design! { @ hands_over: bool, $answer } };
    (@ sockets_per_address $answer:expr) => {
        $crate::design::design! { @ sockets_per_address: u32, $answer }
    };
    (@ active_set $answer:expr) => {
        $crate::design::design! { @ active_set: $crate::tcp::ActiveSet, $answer }
    };
    (@ idle_holds $answer:expr) => {
        $crate::design::design! { @ idle_holds: $crate::tcp::IdleHolds, $answer }
    };
    (@ wants $answer:expr) => { $crate::design::design! { @ wants: $crate::device::Wants, $answer } };
    (@ $asked:ident: $Answer:ty, $answer:expr) => {
        fn $asked(&self) -> $Answer {
            let answer: fn(&Self) -> $Answer = $answer;
            answer(self)
        }
    };
    (@ resolve $answer:expr) => {
        fn resolve(&mut self) {
            let answer: fn(&mut Self) = $answer;
            answer(self);
        }
    };
    (@ start tcp) => {
        fn start<H: $crate::tcp::Handler>(
            mut self,
            job: $crate::tcp::Job<H>,
        ) -> Result<$crate::tcp::Running, $crate::Error> {
            $crate::options::Options::check(&self)?;
            $crate::tcp::Design::availability(&self)?;
            $crate::tcp::Design::resolve(&mut self);
            self.begin(job)
        }
    };
    (@ start $kind:ident) => {
        fn start<H: $crate::$kind::Handler>(
            mut self,
            job: $crate::$kind::Job<H>,
        ) -> Result<$crate::$kind::Running<H>, $crate::Error> {
            $crate::options::Options::check(&self)?;
            $crate::$kind::Design::resolve(&mut self);
            self.begin(job)
        }
    };
}
pub(crate) use design;

/// As many as this process has cores, where 0 leaves it to weir's choice.
pub(crate) fn or_cores(count: &mut u32) {
    if *count == 0 {
        // Of which Windows counts also those that this process may not use.
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
        *count = cores.min(crate::affinity::allowed_cores().len()).clamp(1, 256) as u32;
    }
}
