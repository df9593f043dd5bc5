//! Loads of connections on servers of the standard library, right ones and wrong ones.

mod cheats;
mod conduct;
mod faults;
mod files;
mod paces;
mod support;
mod whole;
#[path = "../../../weir/src/wine.rs"]
mod wine;
