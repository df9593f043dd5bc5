//! An authoritative DNS server on weir: zones are read into answers that are ready to be sent, and any design of weir
//! sends them.
//!
//! [`zone`] reads a zone file, and says what becomes of a name in it (RFC 1034, 4.3.2). [`answers`] makes a message of each
//! answer beforehand, and finds the one for a query. [`query`] reads queries. [`serve`] has the handlers, of datagrams and
//! of connections; [`metrics`] tells what they counted.

#![forbid(unsafe_code)]

pub mod answers;
pub mod metrics;
pub mod name;
pub mod query;
pub mod serve;
pub mod zone;

/// Types, as they are written in messages (RFC 1035, 3.2.2, and those that followed).
pub mod types {
    /// An address of IPv4.
    pub const A: u16 = 1;
    /// A name server.
    pub const NS: u16 = 2;
    /// Another name for this one.
    pub const CNAME: u16 = 5;
    /// Where a zone begins.
    pub const SOA: u16 = 6;
    /// A name for an address.
    pub const PTR: u16 = 12;
    /// A mail server.
    pub const MX: u16 = 15;
    /// An address of IPv6.
    pub const AAAA: u16 = 28;
    /// A server of a service.
    pub const SRV: u16 = 33;
    /// Other names for all names below this one.
    pub const DNAME: u16 = 39;
    /// No record: what a message says of EDNS (RFC 6891).
    pub const OPT: u16 = 41;
    /// The key of a zone below, which the zone above has.
    pub const DS: u16 = 43;
    /// A signature.
    pub const RRSIG: u16 = 46;
    /// What is not there.
    pub const NSEC: u16 = 47;
    /// What is not there, by hashes.
    pub const NSEC3: u16 = 50;
    /// An incremental transfer, in questions.
    pub const IXFR: u16 = 251;
    /// A transfer of the zone, in questions.
    pub const AXFR: u16 = 252;
    /// Any type, in questions.
    pub const ANY: u16 = 255;
}
