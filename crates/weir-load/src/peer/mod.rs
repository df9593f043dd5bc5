//! How a receiver that is not weir's takes part in a comparison.
//!
//! Such a *peer* is any program, in any language, that receives datagrams. Whoever measures starts
//! it, and the two talk over its standard input and output: one JSON document a line, an answer
//! to each ask, never two asks at a time.
//!
//! ```text
//! weir                                        peer
//!   {"ask":"serve","address":"127.0.0.1:0",
//!    "size_bytes":1024, ...}            ->    binds
//!                                       <-    {"ready":{"address":"127.0.0.1:4711","settings":{...}}}
//!   {"ask":"begin","run":7, ...}        ->    counts the run's datagrams from now on
//!                                       <-    {"ok":true}
//!   {"ask":"start"}                     ->    the warm-up is over, and has arrived
//!                                       <-    {"ok":true}
//!   {"ask":"count"}                     ->    every 20 ms
//!                                       <-    {"received":123,"handled":456}
//!   {"ask":"end","sent_per_flow":[99]}  ->
//!                                       <-    {"received":123,"strangers":0, ...}
//!   end of the input                    ->    ends
//! ```
//!
//! Instead of any answer it may say why it cannot: `{"error":"..."}`, or
//! `{"error":{"message":"...","unavailable":true}}` if it never can on this machine.
//!
//! What it must do: tell in `settings` what it was asked for and obtained (below), count in
//! `received` the datagrams of the run alone since "start", and in `handled` all since it began. The
//! datagrams carry the stamp of [`crate::stamp`], with the run's id, or `warm_up_run` before
//! "start". It may account for them as the audit does ([`crate::audit`]), and only then is its row
//! compared like with like: that is part of what weir's own servers do.
//!
//! It must keep its sockets open until its input ends, not only until "end": once it has answered that, it is
//! looked how many datagrams were dropped at each socket on its port, and what was lost at one that is gone
//! nobody knows, so the run is invalid.
//!
//! And it must show that it read what it counts, with `"proof":{"mask":15,"datagrams":[[0,17,288],...]}` in its
//! account: flow, sequence number and proof of each datagram of the run of whose proof the bits of the mask are
//! zero, at most 4096 of them ([`crate::proof`] says how the mask is found). Without, or with datagrams too
//! short for a stamp, its count is a claim, and its row has no rank. A wrong one makes the run invalid. Its
//! counts are also held against one another, the generator's and the kernel's. Its own latencies are not used.
//!
//! Where "serve" has `"reply_bytes":64`, it sends that much of the beginning of each datagram back to its source, from
//! the socket that it came in on, and says `"reply-bytes":"64"` in its settings. The generator verifies each answer, so
//! nothing more has to be shown then.
//!
//! Where "serve" has `"runs_together":3`, there are three generators with a run each, as in a comparison over hosts, and a
//! program that can tell them apart says `"runs-together":"3"` in its settings. "begin" comes three times, the second and third
//! time with `"beside":true`. Then all is as with one: one "start" for all, `received` counts the datagrams of all of them, and
//! in `sent_per_flow` and in the proof flows are numbered on: those of the second run follow those of the first.
//!
//! Settings, as texts: "receive-offload" must be "true" if it was asked for, "work" must repeat
//! the work asked for, or the row is left out as one that cannot do this. Well known besides:
//! "receive-buffer-bytes" (SO_RCVBUF as obtained), and "library", name and version of what
//! receives, which the table shows.
//!
//! A program in Rust takes the whole talk from [`Talk`].

mod message;
mod talk;

pub use message::{Ask, Begin, Count, Done, Ready, ReadyLine, Serve, setting};
pub use talk::{Sink, Talk, TalkError, Tallies, Tally};

#[cfg(test)]
mod tests;
