//! An authoritative DNS server on weir: zones are read into answers that are ready to be sent, and any design of weir
//! sends them.
//!
//! [`zone`] reads a zone file, and says what becomes of a name in it (RFC 1034, 4.3.2). [`answers`] makes a message of each
//! answer beforehand, and finds the one for a query. [`query`] reads queries. [`serve`] has the handlers, of datagrams and
//! of connections.

#![forbid(unsafe_code)]

pub mod answers;
pub mod name;
pub mod query;
pub mod serve;
pub mod zone;

#[cfg(test)]
extern crate self as weir_dns;
#[cfg(test)]
#[path = "../tests/common/messages.rs"]
mod messages;

/// Types, as they are written in messages (RFC 1035, 3.2.2, and those that followed).
#[expect(missing_docs, reason = "they have the names of IANA's registry")]
pub mod types {
    pub const A: u16 = 1;
    pub const NS: u16 = 2;
    pub const CNAME: u16 = 5;
    pub const SOA: u16 = 6;
    pub const PTR: u16 = 12;
    pub const MX: u16 = 15;
    pub const AAAA: u16 = 28;
    pub const SRV: u16 = 33;
    pub const DNAME: u16 = 39;
    pub const OPT: u16 = 41;
    pub const DS: u16 = 43;
    pub const RRSIG: u16 = 46;
    pub const NSEC: u16 = 47;
    pub const NSEC3: u16 = 50;
    pub const IXFR: u16 = 251;
    pub const AXFR: u16 = 252;
    pub const ANY: u16 = 255;
}
