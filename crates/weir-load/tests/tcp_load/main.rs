//! Loads of connections on servers of the standard library, right ones and wrong ones.

#[macro_use]
mod support;

mod cheats;
mod conduct;
mod faults;
mod files;
mod paces;
mod whole;
#[path = "../../../weir/src/wine.rs"]
mod wine;
