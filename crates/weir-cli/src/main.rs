//! The `weir` command: parse, resolve, call.

fn main() {}
