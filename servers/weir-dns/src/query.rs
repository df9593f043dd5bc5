//! Queries, as they come in: the question, and what EDNS says beside it.

use crate::{name::LONGEST, types};

/// Bytes of a header.
pub const HEADER_BYTES: usize = 12;

/// Records that a query may have beside its question: one of EDNS, a signature, and what may yet come.
const MOST_RECORDS: u16 = 4;

/// What a query is to be told, beside an answer (RFC 1035, 4.1.1; RFC 6895).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Rcode {
    /// All is well.
    #[default]
    NoError = 0,
    /// The query is not written as it should be.
    FormErr = 1,
    /// The name is not there.
    NxDomain = 3,
    /// That is not done here.
    NotImp = 4,
    /// That is not answered here.
    Refused = 5,
    /// The version of EDNS is not known here.
    BadVers = 16,
}

/// All that there are, in the order of their numbers.
pub const RCODES: [(Rcode, &str); 6] = [
    (Rcode::NoError, "NOERROR"),
    (Rcode::FormErr, "FORMERR"),
    (Rcode::NxDomain, "NXDOMAIN"),
    (Rcode::NotImp, "NOTIMP"),
    (Rcode::Refused, "REFUSED"),
    (Rcode::BadVers, "BADVERS"),
];

/// What EDNS says of a client (RFC 6891).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Edns {
    /// The longest datagram that it takes.
    pub size: u16,
    /// The version that it speaks.
    pub version: u8,
    /// Whether it asks for signatures.
    pub signed: bool,
}

/// A query that can be answered.
#[derive(Debug, Clone, Copy)]
pub struct Query<'n> {
    /// The name asked for, in lower case.
    pub name: &'n [u8],
    /// The type asked for.
    pub of: u16,
    /// The class asked for.
    pub class: u16,
    /// What EDNS says, if anything.
    pub edns: Option<Edns>,
}

/// What a message is.
#[derive(Debug, Clone, Copy)]
pub enum Message<'n> {
    /// A query.
    Query(Query<'n>),
    /// One that is refused without its question.
    Bad(Rcode),
    /// Nothing that is ever answered: an answer, which would make a loop, or no message at all.
    None,
}

/// Room for a name.
pub type Room = [u8; LONGEST];

/// The same, empty.
pub const ROOM: Room = [0; LONGEST];

impl Query<'_> {
    /// The end of its question in the message.
    #[inline]
    pub fn question_end(&self) -> usize {
        HEADER_BYTES + self.name.len() + 4
    }
}

fn number(message: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(message.get(at..at + 2)?.try_into().ok()?))
}

/// Reads a message, and its name into `room`.
#[inline]
pub fn read<'n>(message: &[u8], room: &'n mut Room) -> Message<'n> {
    const ANSWER: u8 = 0x80;
    const OPCODE: u8 = 0x78;
    let Some(header) = message.first_chunk::<HEADER_BYTES>() else { return Message::None };
    if header[2] & ANSWER != 0 {
        return Message::None;
    }
    if header[2] & OPCODE != 0 {
        return Message::Bad(Rcode::NotImp);
    }
    // One question, no answer, no authority.
    let records = u16::from_be_bytes([header[10], header[11]]);
    if header[4..10] != [0, 1, 0, 0, 0, 0] || records > MOST_RECORDS {
        return Message::Bad(Rcode::FormErr);
    }
    match read_question(message, records, room) {
        Some(query) => Message::Query(query),
        None => Message::Bad(Rcode::FormErr),
    }
}

#[inline]
fn read_question<'n>(message: &[u8], records: u16, room: &'n mut Room) -> Option<Query<'n>> {
    let name_len = name_len(message, HEADER_BYTES, false)?;
    let name_end = HEADER_BYTES + name_len;
    let (of, class) = (number(message, name_end)?, number(message, name_end + 2)?);
    let name = &mut room[..name_len];
    name.copy_from_slice(&message[HEADER_BYTES..name_end]);
    name.make_ascii_lowercase(); // a label's length is 63 at most: no letter
    let edns = read_edns(message, name_end + 4, records)?;
    Some(Query { name, of, class, edns })
}

/// The length of the name that begins there, which may end with a pointer, unless it is of a question, where there is nothing
/// to point at.
#[inline]
pub(crate) fn name_len(message: &[u8], start: usize, may_point: bool) -> Option<usize> {
    let mut at = start;
    let end = loop {
        match *message.get(at)? {
            0 => break at + 1,
            label @ 1..=63 => at += 1 + usize::from(label),
            192.. if may_point => break at + 2,
            _ => return None,
        }
    };
    Some(end - start).filter(|len| *len <= LONGEST)
}

/// Reads the records behind the question, which end with the message: `None` if they are not written as they should be, or
/// EDNS is there twice.
#[inline]
fn read_edns(message: &[u8], mut at: usize, records: u16) -> Option<Option<Edns>> {
    let mut edns = None;
    for _ in 0..records {
        let name_len = name_len(message, at, true)?;
        let (fixed, is_root) = (at + name_len, message[at] == 0);
        let data_len = number(message, fixed + 8)?;
        if number(message, fixed)? == types::OPT {
            let flags = number(message, fixed + 6)?;
            let said = Edns {
                size: number(message, fixed + 2)?,
                version: message[fixed + 5],
                signed: flags & 0x8000 != 0,
            };
            if !is_root || edns.replace(said).is_some() {
                return None;
            }
        }
        at = fixed + 10 + usize::from(data_len);
    }
    (at == message.len()).then_some(edns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{messages, name::Name};
    use domain::base as field;
    use proptest::prelude::*;

    fn question(name: &str) -> Vec<u8> {
        messages::question(0xda1e, &Name::parse(name).unwrap(), 1, None)
    }

    /// A record of EDNS: size, version, flags, and an option of this content if there is any.
    fn edns(size: u16, version: u8, flags: u16, content: &[u8]) -> Vec<u8> {
        let [[s0, s1], [f0, f1]] = [size, flags].map(u16::to_be_bytes);
        let len = content.len() as u8;
        let head = [0, 0, 41, s0, s1, 0, version, f0, f1];
        match len {
            0 => [&head[..], &[0, 0]].concat(),
            _ => [&head[..], &[0, 4 + len, 0, 10, 0, len], content].concat(),
        }
    }

    #[test]
    fn a_question_is_read() {
        let mut message = question("wWw.example.COM");
        message[HEADER_BYTES + 2] = b'W';
        let mut room = ROOM;
        let Message::Query(query) = read(&message, &mut room) else { panic!() };
        assert_eq!(query.name, b"\x03www\x07example\x03com\0");
        assert_eq!((query.of, query.class, query.edns), (1, 1, None));
        assert_eq!(query.question_end(), message.len());
        message[11] = 1;
        message.extend(edns(1400, 1, 0x8000, &[1, 2]));
        let mut room = ROOM;
        let Message::Query(query) = read(&message, &mut room) else { panic!() };
        assert_eq!(query.edns, Some(Edns { size: 1400, version: 1, signed: true }));
    }

    /// The code of what is refused; `Ok` is a query, and none what is not answered.
    fn refusal(message: &[u8]) -> Option<Result<(), Rcode>> {
        match read(message, &mut ROOM.clone()) {
            Message::Query(_) => Some(Ok(())),
            Message::Bad(rcode) => Some(Err(rcode)),
            Message::None => None,
        }
    }

    #[test]
    fn what_is_no_query_is_refused_or_not_answered() {
        let good = question("example.com");
        assert_eq!(refusal(&good), Some(Ok(())));
        assert_eq!(refusal(&good[..11]), None);
        let with = |at: usize, value: u8| {
            let mut message = good.clone();
            message[at] = value;
            refusal(&message)
        };
        assert_eq!(with(2, 0x80), None, "an answer");
        assert_eq!(with(2, 0x28), Some(Err(Rcode::NotImp)), "an update");
        let malformed = Some(Err(Rcode::FormErr));
        // No question, two, an answer, an authority, a record that is missing, a pointer, an odd label.
        for (at, value) in [(5, 0), (5, 2), (7, 1), (9, 1), (11, 1), (12, 0xc0), (12, 0x40)] {
            assert_eq!(with(at, value), malformed, "{at}: {value}");
        }
        for len in HEADER_BYTES..good.len() {
            assert_eq!(refusal(&good[..len]), malformed, "{len} bytes");
        }
        assert_eq!(refusal(&[&good[..], b"x"].concat()), malformed);
        let mut twice = [good.clone(), edns(1232, 0, 0, &[]), edns(1232, 0, 0, &[])].concat();
        twice[11] = 2;
        assert_eq!(refusal(&twice), malformed);
    }

    proptest! {
        /// What is read here is what the field's parser reads.
        #[test]
        fn reads_as_the_parser_of_the_field(
            mut bytes in prop::collection::vec(any::<u8>(), 0..80),
            labels in prop::collection::vec("[a-zA-Z0-9_*]{1,20}", 0..6),
            query in any::<bool>(),
            records in 0u8..3,
        ) {
            if query {
                let mut message = question(&format!("{}.", labels.join(".")));
                message[11] = records.min(1);
                if records > 0 {
                    message.extend(edns(u16::from(records) * 700, 0, 0, &bytes[..bytes.len().min(20)]));
                }
                bytes = message;
            }
            let mut room = ROOM;
            let Message::Query(ours) = read(&bytes, &mut room) else {
                prop_assert!(!query);
                return Ok(());
            };
            let message = field::Message::from_octets(&bytes).unwrap();
            let question = message.sole_question().unwrap();
            prop_assert_eq!(ours.of, question.qtype().to_int());
            prop_assert_eq!(ours.class, question.qclass().to_int());
            let name = field::name::ToName::to_vec(question.qname());
            prop_assert_eq!(ours.name, name.as_slice().to_ascii_lowercase());
            // The parser of the field also looks into the options, which are of no interest here.
            match message.opt() {
                Some(opt) => prop_assert_eq!(ours.edns.map(|edns| edns.size), Some(opt.udp_payload_size())),
                None => prop_assert!(!query || records == 0),
            }
        }
    }
}
