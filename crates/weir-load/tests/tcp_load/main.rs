//! Loads of connections on servers of the standard library, right ones and wrong ones.
#![cfg(target_os = "linux")]

mod cheats;
mod faults;
mod files;
mod paces;
mod support;
mod whole;
