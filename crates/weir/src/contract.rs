//! A contract is declared once: where this system has no provider of it, a type without values implements it. So
//! designs are compiled everywhere, and one that cannot run is a row with a reason.

/// Declares the trait of a contract. `for` names the types of `absent` that implement it where Linux's are not.
macro_rules! contract {
    (
        for $($Absent:ident),+;
        $(#[$meta:meta])*
        $visibility:vis trait $Contract:ident $(: $bound:tt $(+ $bounds:tt)*)? { $($functions:tt)* }
    ) => {
        $(#[$meta])*
        $visibility trait $Contract $(: $bound $(+ $bounds)*)? { $($functions)* }

        #[cfg(not(target_os = "linux"))]
        $crate::contract::contract! { @ $Contract for $($Absent),+; { $($functions)* } }
    };
    (@ $Contract:ident for $($Absent:ident),+; $functions:tt) => {
        $(impl $Contract for $crate::absent::$Absent {
            $crate::contract::never! $functions
        })+
    };
}
pub(crate) use contract;

/// Types without values, what they are called and why there are none. All have the functions of `each`.
#[cfg(not(target_os = "linux"))]
macro_rules! absent {
    (
        each $functions:tt
        $($what:literal, $why:literal, $provider:literal: $($Type:ident { $($own:tt)* })*)*
    ) => {$($(
        #[derive(Debug)]
        pub struct $Type(std::convert::Infallible);

        #[allow(dead_code, reason = "not each is asked for all of them")]
        impl $Type {
            pub const PROVIDER: &'static str = $provider;

            fn why() -> $crate::Unavailable {
                $crate::Unavailable::new($what, $why)
            }

            pub(crate) fn never(&self) -> ! {
                match self.0 {}
            }

            $crate::contract::never! $functions
            $crate::contract::never! { $($own)* }
        }
    )*)*};
}
#[cfg(not(target_os = "linux"))]
pub(crate) use absent;

/// Functions of a type without values, from their declarations: what is called on a value is never reached, and
/// what would make one says why there is none.
#[cfg(not(target_os = "linux"))]
macro_rules! never {
    () => {};
    // What a contract does by itself.
    ($(#[$meta:meta])* fn $name:ident($($of:tt)*) -> $R:ty { $($body:tt)* } $($rest:tt)*) => {
        $crate::contract::never! { $($rest)* }
    };
    (
        $(#[$meta:meta])* $v:vis fn $name:ident $(<$G:ident>)? ($($of:tt)*) $(-> $R:ty)?;
        $($rest:tt)*
    ) => {
        $crate::contract::never! { @ [$v fn $name $(<$G>)?] ($($of)*) [$(-> $R)?] }
        $crate::contract::never! { $($rest)* }
    };
    (@ [$($head:tt)*] (&mut $own:ident $(, $p:tt: $T:ty)* $(,)?) [$($R:tt)*]) => {
        $($head)* (&mut $own $(, _: $T)*) $($R)* { $own.never() }
    };
    (@ [$($head:tt)*] (&$own:ident $(, $p:tt: $T:ty)*) [$($R:tt)*]) => {
        $($head)* (&$own $(, _: $T)*) $($R)* { $own.never() }
    };
    (@ [$($head:tt)*] ($own:ident $(, $p:tt: $T:ty)*) [$($R:tt)*]) => {
        $($head)* ($own $(, _: $T)*) $($R)* { $own.never() }
    };
    (@ [$($head:tt)*] ($($p:tt: $T:ty),*) [$($R:tt)*]) => {
        $($head)* ($(_: $T),*) $($R)* { Err(Self::why().into()) }
    };
}
#[cfg(not(target_os = "linux"))]
pub(crate) use never;
