//! Answers, made when zones are read: the records of each as they go into a message, so that answering is to find them, to copy
//! them, and to write a header.
//!
//! Names in them are shortened by pointers (RFC 1035, 4.1.4) into the question and into each other. An answer is made for a name of
//! the zone; where it is given to one below that, as for a wildcard, a referral or a name that is not there, all it points at lies further back
//! by the difference of their lengths. So it remembers where its pointers are.

use crate::{
    name::{LONGEST, Name, suffixes},
    query::{Edns, HEADER_BYTES, Message, Query, ROOM, Rcode, name_len, read},
    types,
    zone::{Error, Found, Node, Set, Zone, names_in, server_in},
};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The longest message.
pub const LONGEST_MESSAGE: usize = 65_535;

/// What a client takes that says nothing of it (RFC 1035, 4.2.1).
pub const SHORTEST_LIMIT: u16 = 512;

/// The longest datagram, unless told otherwise: it needs no fragments (RFC 9715).
pub const DEFAULT_LIMIT: u16 = 1232;

/// Names that a chain of other names leads to, at most.
const LONGEST_CHAIN: usize = 16;

/// The bytes of a record of EDNS without data.
const EDNS_BYTES: usize = 11;

/// A pointer has 14 bits. What is put into an answer for a longer name is not pointed at beyond that.
const MOST_POINTED_AT: usize = 0x3fff - LONGEST;

/// No type, as that of an answer where a name has not the one asked for.
const OTHER: u16 = 0;

/// What becomes of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It is answered so.
    Answered {
        /// With this code.
        rcode: Rcode,
        /// And without what did not fit: the client asks again by TCP.
        truncated: bool,
    },
    /// It is not answered.
    Dropped,
}

/// How an answer leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// By UDP, in so many bytes at most.
    Udp(u16),
    /// By TCP.
    Tcp,
}

/// The zones that are served.
#[derive(Debug, Default)]
pub struct Answers {
    table: Table,
    /// How many labels the apex of a zone has, each number once, the greatest first.
    apexes: Vec<usize>,
    made: Vec<Made>,
    /// The records of all.
    records: Vec<u8>,
    /// Where in its records each has pointers.
    pointers: Vec<u16>,
}

/// An answer.
#[derive(Debug, Clone, Copy)]
struct Made {
    rcode: Rcode,
    authoritative: bool,
    /// Records in the answer, the authority, and the additional section.
    counts: [u16; 3],
    /// Where its records begin, and how many bytes they are.
    start: u32,
    len: u16,
    /// The bytes that are sent in any case: without what is only of help.
    needed: u16,
    /// The length of the name that it was made for.
    made_for: u8,
    /// Where its pointers begin, and how many they are.
    pointers: (u32, u16),
}

/// What a name has, as it is put together.
#[derive(Debug, Clone, Default)]
struct Having {
    /// Where the zone is cut here: names below are referred, too.
    is_cut: bool,
    /// Answers by type, the one for all others first.
    by_type: Vec<(u16, u32)>,
    /// Of a zone's first name: what names are told that are not there.
    absent: Option<u32>,
    /// The names that its wildcard makes.
    wildcard: Option<Name>,
}

/// Types of a name that are found without a look elsewhere: most names have no more.
const FIRST: usize = 4;

/// What a name has, in a line of the cache.
#[derive(Debug)]
#[repr(align(64))]
struct Entry {
    /// Where the name is, and how long it is.
    name: (u32, u8),
    is_cut: bool,
    /// The answers for its first types; what is not used has the answer for others.
    types: [u16; FIRST],
    made: [u32; FIRST],
    /// The answer for all other types.
    other: u32,
    /// Where further types are, and how many.
    more: (u32, u16),
    absent: Option<u32>,
    wildcard: Option<u32>,
}

/// Names and what they have: by a hash, in a table of which at most half is full.
#[derive(Debug, Default)]
struct Table {
    /// A part of the hash, and the number of the entry from 1; 0 for none.
    slots: Vec<(u32, u32)>,
    entries: Vec<Entry>,
    names: Vec<u8>,
    /// Types that entries have no room for.
    more: Vec<(u16, u32)>,
}

impl Table {
    fn new(all: BTreeMap<Name, Having>) -> Self {
        let room = (2 * all.len().max(1)).next_power_of_two();
        let mut table = Self { slots: vec![(0, 0); room], ..Self::default() };
        let wildcards: Vec<_> = all.values().map(|having| having.wildcard.clone()).collect();
        for (number, (name, having)) in (1..).zip(all) {
            let wire = name.wire();
            let other = having.by_type[0].1;
            let (mut types, mut made) = ([OTHER; FIRST], [other; FIRST]);
            let own = &having.by_type[1..];
            for (place, (of, its)) in own.iter().take(FIRST).enumerate() {
                (types[place], made[place]) = (*of, *its);
            }
            let more = own.get(FIRST..).unwrap_or_default();
            table.entries.push(Entry {
                name: (table.names.len() as u32, wire.len() as u8),
                is_cut: having.is_cut,
                types,
                made,
                other,
                more: (table.more.len() as u32, more.len() as u16),
                absent: having.absent,
                wildcard: None,
            });
            table.more.extend(more);
            table.names.extend(wire);
            let hash = hash(wire);
            let mut at = hash as usize & (room - 1);
            while table.slots[at].1 != 0 {
                at = (at + 1) & (room - 1);
            }
            table.slots[at] = ((hash >> 32) as u32, number);
        }
        for (place, wildcard) in wildcards.into_iter().enumerate() {
            let found = wildcard.and_then(|name| table.find(name.wire()));
            table.entries[place].wildcard = found;
        }
        table
    }

    /// The number of a name's entry.
    #[inline]
    fn find(&self, name: &[u8]) -> Option<u32> {
        let mask = self.slots.len().checked_sub(1)?;
        let hash = hash(name);
        let mut at = hash as usize & mask;
        loop {
            let (part, number) = self.slots[at];
            let place = number.checked_sub(1)?;
            if part == (hash >> 32) as u32 {
                let (start, len) = self.entries[place as usize].name;
                if self.names[start as usize..][..len.into()] == *name {
                    return Some(place);
                }
            }
            at = (at + 1) & mask;
        }
    }

    /// The answer for a type.
    #[inline]
    fn answer(&self, entry: &Entry, of: u16) -> u32 {
        for (its, made) in entry.types.iter().zip(entry.made) {
            if *its == of {
                return made;
            }
        }
        let (start, count) = entry.more;
        let more = &self.more[start as usize..][..count.into()];
        more.iter().find(|(its, _)| *its == of).map_or(entry.other, |(_, made)| *made)
    }
}

/// Of a name in lower case. Who asks cannot make long searches: he has no part in what the table holds.
#[inline]
fn hash(name: &[u8]) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |hash: u64, word: u64| (hash ^ word).wrapping_mul(ODD).rotate_left(29);
    let (words, rest) = name.as_chunks::<8>();
    let hash =
        words.iter().fold(name.len() as u64, |hash, word| mix(hash, u64::from_le_bytes(*word)));
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let hash = mix(hash, u64::from_le_bytes(last));
    hash ^ (hash >> 32)
}

impl Answers {
    /// Makes the answers of these zones.
    ///
    /// # Errors
    /// If two are the same, or one lies within another that does not refer to it; or if what is to be
    /// answered makes no message.
    pub fn new(mut zones: Vec<Zone>) -> Result<Self, Error> {
        let mut answers = Self::default();
        let mut entries = BTreeMap::<Name, Having>::new();
        zones.sort_by(|one, next| {
            (one.apex().labels(), one.apex()).cmp(&(next.apex().labels(), next.apex()))
        });
        if let Some(two) = zones.windows(2).find(|two| two[0].apex() == two[1].apex()) {
            return Err(Error(format!("the zone {} is given twice", two[0].apex())));
        }
        for (number, zone) in zones.iter().enumerate() {
            let apex = zone.apex();
            answers.apexes.insert(0, apex.labels());
            let around = zones[..number].iter().rev().find(|around| apex.is_within(around.apex()));
            let of_parent = around.map(|parent| match parent.find(apex) {
                Found::Cut(cut, node) if cut == apex => answers.make(parent, apex, node, types::DS),
                _ => Err(Error(format!(
                    "the zone {apex} lies within {parent}, which has no NS records for it: add them, or leave out one \
                     of the zones",
                    parent = parent.apex()
                ))),
            });
            let of_parent = of_parent.transpose()?;
            for (name, node) in zone.nodes() {
                let (is_cut, node) = match zone.find(name) {
                    Found::Exact(_) => (false, node),
                    Found::Cut(cut, node) if cut == name => (true, node),
                    // Below a cut: of use as an address at most.
                    _ => continue,
                };
                let mut entry = answers.entry(zone, name, node, is_cut)?;
                if name == apex {
                    entry.absent = Some(answers.keep(apex, Sections::absent(zone))?);
                    if let Some(of_parent) = of_parent {
                        entry.by_type.retain(|(of, _)| *of != types::DS);
                        entry.by_type.push((types::DS, of_parent));
                    }
                }
                entry.wildcard = name.wildcard().filter(|wildcard| zone.node(wildcard).is_some());
                entries.insert(name.clone(), entry);
            }
        }
        answers.apexes.dedup();
        answers.table = Table::new(entries);
        Ok(answers)
    }

    /// How many names have answers.
    pub fn names(&self) -> usize {
        self.table.entries.len()
    }

    /// Appends the answer to a message. `answer` grows by [`LONGEST_MESSAGE`] at most, and nothing else is allocated.
    #[inline]
    pub fn answer(&self, message: &[u8], transport: Transport, answer: &mut Vec<u8>) -> Outcome {
        let mut room = ROOM;
        let query = match read(message, &mut room) {
            Message::Query(query) => query,
            Message::Bad(rcode) => {
                let header = Header { rcode, authoritative: false, truncated: false };
                header.write(message, 0, [0; 3], answer);
                return Outcome::Answered { rcode, truncated: false };
            }
            Message::None => return Outcome::Dropped,
        };
        let limit = match transport {
            Transport::Tcp => LONGEST_MESSAGE,
            Transport::Udp(most) => {
                let takes = query.edns.map_or(SHORTEST_LIMIT, |edns| edns.size.max(SHORTEST_LIMIT));
                usize::from(takes.min(most.max(SHORTEST_LIMIT)))
            }
        };
        let size = match transport {
            Transport::Udp(most) => most,
            Transport::Tcp => DEFAULT_LIMIT,
        };
        match self.look_up(&query) {
            Ok(made) => self.write(message, &query, made, limit, size, answer),
            Err(rcode) => {
                let header = Header { rcode, authoritative: false, truncated: false };
                header.write(message, 1, [0, 0, u16::from(query.edns.is_some())], answer);
                answer.extend_from_slice(&message[HEADER_BYTES..query.question_end()]);
                write_edns(query.edns, rcode, size, answer);
                Outcome::Answered { rcode, truncated: false }
            }
        }
    }

    /// The answer that was made for a query.
    #[inline]
    fn look_up(&self, query: &Query<'_>) -> Result<&Made, Rcode> {
        if query.edns.is_some_and(|edns| edns.version != 0) {
            return Err(Rcode::BadVers);
        }
        if query.class != 1 || [types::AXFR, types::IXFR].contains(&query.of) {
            return Err(Rcode::Refused);
        }
        let answer = match self.table.find(query.name) {
            Some(place) => self.table.answer(&self.table.entries[place as usize], query.of),
            None => self.look_up_above(query).ok_or(Rcode::Refused)?,
        };
        Ok(&self.made[answer as usize])
    }

    /// The answer for a name that has no entry: a referral, a wildcard's, or that it is not there. `None` where it belongs to no
    /// zone.
    fn look_up_above(&self, query: &Query<'_>) -> Option<u32> {
        // Where the name above begins that has so many labels.
        let mut starts = [0u8; LONGEST / 2 + 1];
        let mut labels = 0;
        let mut at = 0;
        let name = query.name;
        while name[at] != 0 {
            starts[labels] = at as u8;
            labels += 1;
            at += 1 + usize::from(name[at]);
        }
        starts[labels] = at as u8;
        let above = |of: usize| &name[starts[labels - of].into()..];
        let entry = |number: u32| &self.table.entries[number as usize];
        let (apex, depth) =
            self.apexes.iter().filter(|depth| **depth < labels).find_map(|depth| {
                let found = entry(self.table.find(above(*depth))?);
                found.absent.map(|_| (found, *depth))
            })?;
        let mut closest = apex;
        for depth in depth + 1..labels {
            match self.table.find(above(depth)) {
                None => break,
                Some(found) => closest = entry(found),
            }
            if closest.is_cut {
                return Some(closest.other);
            }
        }
        match closest.wildcard {
            Some(wildcard) => Some(self.table.answer(entry(wildcard), query.of)),
            None => apex.absent,
        }
    }

    #[inline]
    fn write(
        &self,
        message: &[u8],
        query: &Query<'_>,
        made: &Made,
        limit: usize,
        size: u16,
        answer: &mut Vec<u8>,
    ) -> Outcome {
        let room = limit - query.question_end() - query.edns.map_or(0, |_| EDNS_BYTES);
        let mut counts = made.counts;
        let (len, truncated) = if usize::from(made.len) <= room {
            (made.len, false)
        } else if usize::from(made.needed) <= room {
            counts[2] = 0;
            (made.needed, false)
        } else {
            counts = [0; 3];
            (0, true)
        };
        counts[2] += u16::from(query.edns.is_some());
        let Made { rcode, authoritative, .. } = *made;
        let start = answer.len();
        Header { rcode, authoritative, truncated }.write(message, 1, counts, answer);
        answer.extend_from_slice(&message[HEADER_BYTES..query.question_end()]);
        let records = answer.len();
        answer.extend_from_slice(&self.records[made.start as usize..][..len.into()]);
        let further = query.name.len() - usize::from(made.made_for);
        if further > 0 {
            let (first, count) = made.pointers;
            for at in &self.pointers[first as usize..][..count.into()] {
                if *at < len {
                    let at = records + usize::from(*at);
                    let pointer = u16::from_be_bytes([answer[at], answer[at + 1]]) + further as u16;
                    answer[at..at + 2].copy_from_slice(&pointer.to_be_bytes());
                }
            }
        }
        write_edns(query.edns, rcode, size, answer);
        debug_assert!(answer.len() - start <= limit);
        Outcome::Answered { rcode, truncated }
    }

    /// Makes all answers of a name.
    fn entry(
        &mut self,
        zone: &Zone,
        name: &Name,
        node: &Node,
        is_cut: bool,
    ) -> Result<Having, Error> {
        let mut asked: BTreeSet<u16> = BTreeSet::from([OTHER]);
        if is_cut {
            asked.insert(types::DS);
        } else {
            asked.extend(node.keys().chain(node.keys().next().map(|_| &types::ANY)));
            asked.extend(types_behind(zone, node));
        }
        let made = asked.into_iter().map(|of| Ok((of, self.make(zone, name, node, of)?)));
        Ok(Having { is_cut, by_type: made.collect::<Result<_, _>>()?, ..Having::default() })
    }

    fn make(&mut self, zone: &Zone, name: &Name, node: &Node, of: u16) -> Result<u32, Error> {
        let sections = Sections::of(zone, name, node, of);
        self.keep(name, sections)
    }

    /// Makes the records of an answer for this name.
    fn keep(&mut self, name: &Name, sections: Sections<'_>) -> Result<u32, Error> {
        let authoritative = sections.authoritative();
        let Sections { rcode, answer, authority, additional, refers } = sections;
        let mut writer = Writer::new(name);
        let mut counts = [0; 3];
        let mut needed = 0;
        let sections = [answer, authority, additional];
        for (count, (section, records)) in counts.iter_mut().zip(sections.iter().enumerate()) {
            for record in records {
                *count += writer.set(record);
            }
            if section < 2 || refers {
                needed = writer.records.len();
            }
        }
        let longest = LONGEST_MESSAGE - HEADER_BYTES - LONGEST - 4 - EDNS_BYTES;
        if writer.records.len() > longest {
            return Err(Error(format!(
                "the records of {name} make {} bytes; a message has room for {longest}: leave some out",
                writer.records.len()
            )));
        }
        let made = Made {
            rcode,
            authoritative,
            counts,
            start: self.records.len() as u32,
            len: writer.records.len() as u16,
            needed: needed as u16,
            made_for: name.wire().len() as u8,
            pointers: (self.pointers.len() as u32, writer.pointers.len() as u16),
        };
        self.records.append(&mut writer.records);
        self.pointers.append(&mut writer.pointers);
        if u32::try_from(self.records.len()).is_err() {
            return Err(Error(
                "the answers of the zones make more than 4 GiB: serve fewer names".into(),
            ));
        }
        self.made.push(made);
        Ok(self.made.len() as u32 - 1)
    }
}

/// The first twelve bytes of an answer.
struct Header {
    rcode: Rcode,
    authoritative: bool,
    truncated: bool,
}

impl Header {
    #[inline]
    fn write(&self, message: &[u8], questions: u16, counts: [u16; 3], answer: &mut Vec<u8>) {
        // An answer; what was asked to be done, whether recursion is wished for, and data unchecked, is said back (RFC 1035,
        // 4.1.1; RFC 4035, 3.1.6).
        let flags = [
            0x80 | u8::from(self.authoritative) << 2
                | u8::from(self.truncated) << 1
                | message[2] & 0x79,
            message[3] & 0x10 | self.rcode as u8 & 0xf,
        ];
        let [[a0, a1], [n0, n1], [r0, r1]] = counts.map(u16::to_be_bytes);
        let q = questions as u8;
        answer.extend_from_slice(&[
            message[0], message[1], flags[0], flags[1], 0, q, a0, a1, n0, n1, r0, r1,
        ]);
    }
}

#[inline]
fn write_edns(asked: Option<Edns>, rcode: Rcode, size: u16, answer: &mut Vec<u8>) {
    let Some(edns) = asked else { return };
    let [s0, s1] = size.to_be_bytes();
    let signed = u8::from(edns.signed) << 7;
    answer.extend_from_slice(&[0, 0, 41, s0, s1, rcode as u8 >> 4, 0, signed, 0, 0, 0]);
}

/// Records of one name and type, in an answer.
#[derive(Debug)]
struct Rr<'a> {
    /// `None` for the name asked for.
    owner: Option<Name>,
    of: u16,
    set: &'a Set,
    ttl: u32,
}

impl<'a> Rr<'a> {
    fn new(owner: Option<Name>, of: u16, set: &'a Set) -> Self {
        Self { owner, of, set, ttl: set.ttl }
    }
}

/// What an answer says.
#[derive(Debug, Default)]
struct Sections<'a> {
    rcode: Rcode,
    answer: Vec<Rr<'a>>,
    authority: Vec<Rr<'a>>,
    additional: Vec<Rr<'a>>,
    /// Others have it: nobody can go on without the additional section, the addresses of a referral (RFC 9471).
    refers: bool,
}

impl<'a> Sections<'a> {
    /// The answer to a question for this name, which is in the zone, or is the wildcard that makes the name asked for
    /// (RFC 1034, 4.3.2).
    fn of(zone: &'a Zone, name: &'a Name, node: &'a Node, of: u16) -> Self {
        let mut sections = Self::default();
        let is_cut = name != zone.apex() && node.contains_key(&types::NS);
        let mut next = None;
        let mut seen = BTreeSet::from([name.clone()]);
        loop {
            let found = match &next {
                None if is_cut => Found::Cut(name, node),
                None => Found::Exact(node),
                Some(next) => zone.find(next),
            };
            let node = match found {
                // The one type that is asked for above the cut (RFC 4035, 3.1.4.1).
                Found::Cut(_, node) if of == types::DS && next.is_none() => node,
                Found::Cut(cut, node) => {
                    sections.refer(zone, cut, node);
                    break;
                }
                Found::Exact(node) | Found::Wildcard(_, node) => node,
                Found::Absent => {
                    sections.rcode = Rcode::NxDomain;
                    sections.deny(zone);
                    break;
                }
                Found::Outside => break,
            };
            // Of any type: one of them is enough (RFC 8482, 4.1).
            let set = if of == types::ANY { node.iter().next() } else { node.get_key_value(&of) };
            if let Some((of, set)) = set {
                sections.answer.push(Rr::new(next, *of, set));
                break;
            }
            let Some(cname) = node.get(&types::CNAME) else {
                sections.deny(zone);
                break;
            };
            let target = target(cname);
            sections.answer.push(Rr::new(next, types::CNAME, cname));
            if sections.answer.len() == LONGEST_CHAIN || !seen.insert(target.clone()) {
                break;
            }
            next = Some(target);
        }
        sections.add_addresses(zone);
        sections
    }

    /// A chain of other names may lead to a referral.
    fn authoritative(&self) -> bool {
        !self.refers || !self.answer.is_empty()
    }

    /// Says that the name is not there.
    fn absent(zone: &'a Zone) -> Self {
        let mut sections = Self { rcode: Rcode::NxDomain, ..Self::default() };
        sections.deny(zone);
        sections
    }

    /// Says that there is no such thing.
    fn deny(&mut self, zone: &'a Zone) {
        let soa = soa_of(zone);
        let rr = Rr::new(Some(zone.apex().clone()), types::SOA, soa);
        // For how long that may be kept (RFC 2308, section 5).
        let minimum = soa.data[0].last_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
        self.authority.push(Rr { ttl: soa.ttl.min(minimum), ..rr });
    }

    /// Says who has it.
    fn refer(&mut self, zone: &'a Zone, cut: &Name, node: &'a Node) {
        self.refers = true;
        self.authority.push(Rr::new(Some(cut.clone()), types::NS, &node[&types::NS]));
        for server in servers(&self.authority) {
            // Whatever the zone knows of it, also below a cut.
            if let Some(node) = zone.node(&server) {
                self.add_addresses_of(server, node);
            }
        }
    }

    /// Adds the addresses of servers that the answer names.
    fn add_addresses(&mut self, zone: &'a Zone) {
        for server in servers(&self.answer) {
            if let Found::Exact(node) = zone.find(&server) {
                self.add_addresses_of(server, node);
            }
        }
    }

    fn add_addresses_of(&mut self, server: Name, node: &'a Node) {
        for of in [types::A, types::AAAA] {
            if let Some(set) = node.get(&of) {
                self.additional.push(Rr::new(Some(server.clone()), of, set));
            }
        }
    }
}

/// The servers that records name, each once.
fn servers(records: &[Rr<'_>]) -> BTreeSet<Name> {
    let of = |rr: &Rr<'_>| -> Vec<Name> {
        rr.set.data.iter().filter_map(|data| server_in(rr.of, data)).collect()
    };
    records.iter().flat_map(of).collect()
}

fn soa_of(zone: &Zone) -> &Set {
    let apex = zone.node(zone.apex()).expect("a zone has its first name");
    &apex[&types::SOA]
}

/// The name that a set of CNAME leads to.
fn target(cname: &Set) -> Name {
    Name::new(&cname.data[0])
}

/// The types of the name that others lead to from here.
fn types_behind(zone: &Zone, node: &Node) -> Vec<u16> {
    let mut node = node;
    for _ in 0..LONGEST_CHAIN {
        let Some(cname) = node.get(&types::CNAME) else { return node.keys().copied().collect() };
        match zone.find(&target(cname)) {
            Found::Exact(next) | Found::Wildcard(_, next) => node = next,
            _ => break,
        }
    }
    vec![]
}

/// Writes records into a message that has the question for a name.
struct Writer {
    records: Vec<u8>,
    /// Where they begin in the message.
    start: usize,
    /// Where in them pointers are.
    pointers: Vec<u16>,
    /// Where in the message names are, in lower case.
    known: HashMap<Vec<u8>, usize>,
}

impl Writer {
    fn new(name: &Name) -> Self {
        let len = name.wire().len();
        // The name that a wildcard makes has its own first labels.
        let suffixes = suffixes(name.wire()).skip(usize::from(name.is_wildcard()));
        let known = suffixes.map(|of| (of.to_vec(), HEADER_BYTES + len - of.len())).collect();
        Self { records: vec![], start: HEADER_BYTES + len + 4, pointers: vec![], known }
    }

    /// Writes a set, and says how many records that is.
    fn set(&mut self, rr: &Rr<'_>) -> u16 {
        for data in &rr.set.data {
            match &rr.owner {
                // Where the question begins, however long it is.
                None => self.records.extend([0xc0, HEADER_BYTES as u8]),
                Some(owner) => self.name(owner.wire()),
            }
            self.records.extend(rr.of.to_be_bytes());
            self.records.extend([0, 1]);
            self.records.extend(rr.ttl.to_be_bytes());
            let length = self.records.len();
            self.records.extend([0; 2]);
            self.data(rr.of, data);
            let bytes = (self.records.len() - length - 2) as u16;
            self.records[length..length + 2].copy_from_slice(&bytes.to_be_bytes());
        }
        rr.set.data.len() as u16
    }

    fn data(&mut self, of: u16, data: &[u8]) {
        let (before, names) = names_in(of);
        self.records.extend(&data[..before]);
        let mut rest = &data[before..];
        for _ in 0..names {
            let len = name_len(rest, 0, false).expect("data that was read has whole names");
            self.name(&rest[..len]);
            rest = &rest[len..];
        }
        self.records.extend(rest);
    }

    /// Writes a name, as short as it can be.
    fn name(&mut self, name: &[u8]) {
        for suffix in suffixes(name) {
            let label = 1 + usize::from(suffix[0]);
            if label == 1 {
                break;
            }
            let lower = suffix.to_ascii_lowercase();
            if let Some(at) = self.known.get(&lower) {
                self.pointers.push(self.records.len() as u16);
                self.records.extend((0xc000 | *at as u16).to_be_bytes());
                return;
            }
            let at = self.start + self.records.len();
            if at <= MOST_POINTED_AT {
                self.known.insert(lower, at);
            }
            self.records.extend(&suffix[..label]);
        }
        self.records.push(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::{Record, names, question, records};
    use domain::base::Message as Parsed;
    use proptest::prelude::*;
    use std::path::Path;

    /// What an answer says: code, flags of the second and third byte, and the sections, each in an order of its own.
    #[derive(Debug, PartialEq)]
    struct Said {
        rcode: u8,
        authoritative: bool,
        truncated: bool,
        sections: [Vec<Record>; 3],
    }

    fn said(message: &[u8]) -> Said {
        let message = Parsed::from_slice(message).expect("a message");
        let sections = [message.answer(), message.authority(), message.additional()];
        let sections = sections.map(|section| records(section.expect("a section")));
        let header = message.header();
        assert!(header.qr());
        let (authoritative, truncated) = (header.aa(), header.tc());
        Said { rcode: header.rcode().to_int(), authoritative, truncated, sections }
    }

    /// The same from the zone itself, without what was made of it.
    fn expected(zone: &Zone, name: &Name, of: u16) -> Said {
        let sections = match zone.find(name) {
            Found::Outside => Sections { rcode: Rcode::Refused, ..Sections::default() },
            Found::Absent => Sections::absent(zone),
            Found::Cut(cut, node) => {
                let of = if cut == name { of } else { OTHER };
                Sections::of(zone, cut, node, of)
            }
            Found::Exact(node) => Sections::of(zone, name, node, of),
            Found::Wildcard(wildcard, node) => Sections::of(zone, wildcard, node, of),
        };
        let records = |of: &[Rr<'_>]| {
            let record = |rr: &Rr<'_>| -> Vec<Record> {
                let owner = rr.owner.clone().unwrap_or_else(|| name.clone());
                let record = |data: &Vec<u8>| (owner.clone(), rr.of, rr.ttl, data.clone());
                rr.set.data.iter().map(record).collect()
            };
            let mut records: Vec<_> = of.iter().flat_map(record).collect();
            records.sort();
            records
        };
        Said {
            rcode: sections.rcode as u8,
            authoritative: sections.authoritative() && sections.rcode != Rcode::Refused,
            truncated: false,
            sections: [&sections.answer, &sections.authority, &sections.additional]
                .map(|of| records(of)),
        }
    }

    fn zone() -> Zone {
        let text = include_bytes!("../tests/example.zone");
        Zone::parse(text, Path::new("example.zone"), None).unwrap()
    }

    fn ask(answers: &Answers, name: &Name, of: u16, edns: Option<u16>, by: Transport) -> Vec<u8> {
        let mut answer = Vec::new();
        let outcome = answers.answer(&question(0xda1e, name, of, edns), by, &mut answer);
        let Outcome::Answered { rcode, truncated } = outcome else { panic!("{outcome:?}") };
        assert_eq!(answer[3] & 0xf, rcode as u8 & 0xf);
        assert_eq!(answer[2] & 2 != 0, truncated);
        answer
    }

    const TYPES: [u16; 14] = [1, 2, 5, 6, 12, 15, 16, 28, 33, 43, 255, 257, 41, 65_535];

    #[test]
    fn what_was_made_says_what_the_zone_says() {
        let zone = zone();
        let answers = Answers::new(vec![zone.clone()]).unwrap();
        for name in names(&zone) {
            for of in TYPES {
                let answer = ask(&answers, &name, of, None, Transport::Tcp);
                assert_eq!(said(&answer), expected(&zone, &name, of), "{name} {of}");
                // Twice the same, with a record of EDNS behind it.
                let with = ask(&answers, &name, of, Some(1232), Transport::Tcp);
                assert_eq!(with.len(), answer.len() + EDNS_BYTES);
                assert_eq!(said(&with), said(&answer));
            }
        }
    }

    #[test]
    fn names_are_as_short_as_they_can_be() {
        let answers = Answers::new(vec![zone()]).unwrap();
        let length = |name: &str, of: u16| {
            let name = Name::parse(name).unwrap();
            let answer = ask(&answers, &name, of, None, Transport::Tcp);
            answer.len() - HEADER_BYTES - name.wire().len() - 4
        };
        // Two addresses, each with a pointer for its name.
        assert_eq!(length("www.example.com", types::A), 2 * (2 + 10 + 4));
        // A pointer, and the label "www" before one.
        assert_eq!(length("4.example.com", types::PTR), 2 + 10 + 4 + 2);
        // A name that is not there: of the SOA, its owner, "ns1", "hostmaster", and five numbers.
        assert_eq!(length("x.y.z.example.com", types::A), 2 + 10 + 6 + 13 + 20);
        assert_eq!(
            length("host.sub.example.com", types::A),
            2 * (2 + 10) + 5 + 6 + 2 * (2 + 10 + 4) + 2 * (2 + 10 + 16)
        );
    }

    #[test]
    fn what_does_not_fit_is_said_to_be_cut() {
        let answers = Answers::new(vec![zone()]).unwrap();
        let whole = |name: &str, of| {
            let name = Name::parse(name).unwrap();
            said(&ask(&answers, &name, of, None, Transport::Tcp))
        };
        let by_udp = |name: &str, of, edns, most| {
            let name = Name::parse(name).unwrap();
            let answer = ask(&answers, &name, of, edns, Transport::Udp(most));
            let takes = edns.unwrap_or(512).max(512).min(most.max(512));
            assert!(answer.len() <= takes.into(), "{} of {takes}", answer.len());
            said(&answer)
        };
        let (big, middle) = ("big.example.com", "middle.example.com");
        assert_eq!(whole(big, 16).sections[0].len(), 14);
        for (name, edns, most, is_cut) in [
            (big, None, 1232, true),
            (big, Some(1232), 1232, true),
            (big, Some(4096), 1232, true),
            (big, Some(4096), 4096, false),
            (middle, None, 1232, true),
            (middle, Some(100), 1232, true),
            (middle, Some(512), 4096, true),
            (middle, Some(1232), 1232, false),
        ] {
            let answer = by_udp(name, 16, edns, most);
            assert_eq!(answer.truncated, is_cut, "{name} {edns:?} {most}");
            match is_cut {
                true => assert!(answer.sections.iter().all(Vec::is_empty) && answer.authoritative),
                false => assert_eq!(answer, whole(name, 16)),
            }
        }
        // What is only of help is left out, and that is no cut.
        let all = whole("mx.example.com", types::MX);
        let short = by_udp("mx.example.com", types::MX, None, 1232);
        assert_eq!((all.sections[2].len(), short.sections[2].len()), (16, 0));
        assert!(!short.truncated && short.sections[0] == all.sections[0]);
    }

    #[test]
    fn what_is_not_done_here_is_refused() {
        let zone = zone();
        let answers = Answers::new(vec![zone.clone()]).unwrap();
        let refused = |message: &[u8]| {
            let mut answer = Vec::new();
            let outcome = answers.answer(message, Transport::Udp(1232), &mut answer);
            (outcome != Outcome::Dropped).then(|| (answer[3] & 0xf, answer.len()))
        };
        let apex = zone.apex();
        let good = question(0xda1e, apex, types::SOA, None);
        assert_eq!(refused(&question(0xda1e, apex, types::AXFR, None)), Some((5, good.len())));
        let mut chaos = good.clone();
        chaos[good.len() - 1] = 3;
        assert_eq!(refused(&chaos), Some((5, good.len())));
        let mut update = good.clone();
        update[2] = 0x28;
        assert_eq!(refused(&update), Some((4, HEADER_BYTES)));
        let mut answer = Vec::new();
        answers.answer(&update, Transport::Udp(1232), &mut answer);
        assert_eq!(answer[2], 0xa8, "an answer to an update");
        assert_eq!(refused(&good[..good.len() - 1]), Some((1, HEADER_BYTES)));
        let mut an_answer = good.clone();
        an_answer[2] |= 0x80;
        assert_eq!(refused(&an_answer), None);
        // A version of EDNS that nobody knows: its code is in two parts.
        let mut version = question(0xda1e, apex, types::SOA, Some(1232));
        let place = version.len() - 5;
        version[place] = 1;
        let mut answer = Vec::new();
        answers.answer(&version, Transport::Udp(1232), &mut answer);
        assert_eq!(Parsed::from_slice(&answer).unwrap().opt_rcode().to_int(), 16);
    }

    #[test]
    fn the_case_of_a_question_comes_back_and_makes_no_difference() {
        let answers = Answers::new(vec![zone()]).unwrap();
        let mut message = question(0xda1e, &Name::parse("www.example.com").unwrap(), 1, None);
        message[HEADER_BYTES..]
            .iter_mut()
            .take(16)
            .step_by(2)
            .for_each(|b| *b = b.to_ascii_uppercase());
        let mut answer = Vec::new();
        answers.answer(&message, Transport::Udp(1232), &mut answer);
        assert_eq!(answer[HEADER_BYTES..message.len()], message[HEADER_BYTES..]);
        assert_eq!(said(&answer).sections[0].len(), 2);
    }

    fn of_text(text: &str) -> Zone {
        Zone::parse(text.as_bytes(), Path::new("test.zone"), None).unwrap()
    }

    #[test]
    fn zones_within_zones_have_their_own_names() {
        let outer = zone();
        let inner = of_text(
            "sub.example.com. 60 SOA ns.sub.example.com. h.sub.example.com. 1 2 3 4 5\n\
            sub.example.com. 60 NS ns.sub.example.com.\nhost.sub.example.com. 60 A 192.0.2.77\n",
        );
        let root = of_text(
            ". 60 SOA a.root. h.root. 1 2 3 4 5\n. 60 NS a.root.\nexample.com. 60 NS ns1.example.com.\n",
        );
        let answers = Answers::new(vec![outer.clone(), inner.clone(), root.clone()]).unwrap();
        let ask = |name: &str, of| {
            said(&ask(&answers, &Name::parse(name).unwrap(), of, None, Transport::Tcp))
        };
        let expect = |zone: &Zone, name: &str, of| expected(zone, &Name::parse(name).unwrap(), of);
        for (zone, name, of) in [
            (&inner, "host.sub.example.com", 1),
            (&inner, "sub.example.com", types::NS),
            (&inner, "x.sub.example.com", 1),
            (&outer, "sub.example.com", types::DS),
            (&outer, "x.other.example.com", 1),
            (&outer, "www.example.com", 1),
            (&root, "nothing", 1),
            (&root, ".", types::NS),
            (&root, "x.net", 1),
        ] {
            assert_eq!(ask(name, of), expect(zone, name, of), "{name} {of}");
        }
        let twice = Answers::new(vec![outer.clone(), outer.clone()]).unwrap_err().to_string();
        assert!(twice.contains("twice"), "{twice}");
        let lost = of_text("www.example.com. 60 SOA a. b. 1 2 3 4 5\nwww.example.com. 60 NS a.\n");
        let lost = Answers::new(vec![outer, lost]).unwrap_err().to_string();
        assert!(lost.contains("no NS records for it"), "{lost}");
    }

    #[test]
    fn a_set_that_no_message_has_room_for_is_refused_at_the_start() {
        let head = "a. 60 SOA a. b. 1 2 3 4 5\na. 60 NS b.\n";
        let record = |i: usize| format!("a. 60 TXT \"{i:0200}\"\n");
        let fits: String = (0..300).map(record).collect();
        assert!(Answers::new(vec![of_text(&format!("{head}{fits}"))]).is_ok());
        let more: String = (0..320).map(record).collect();
        let error = Answers::new(vec![of_text(&format!("{head}{more}"))]).unwrap_err().to_string();
        assert!(error.contains("leave some out"), "{error}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        /// Whatever comes, what leaves is a message that the field's parser reads, not longer than it may be.
        #[test]
        fn whatever_comes_is_answered_or_dropped(
            bytes in prop::collection::vec(any::<u8>(), 0..120),
            changes in prop::collection::vec((0..60usize, any::<u8>()), 0..4),
            from_query in any::<bool>(),
            which in any::<prop::sample::Index>(),
            of in prop::sample::select(&TYPES[..]),
            edns in prop::option::of(any::<u16>()),
            most in 0..5000u16,
        ) {
            thread_local! {
                static SERVED: (Answers, Vec<Name>) = {
                    let zone = zone();
                    (Answers::new(vec![zone.clone()]).unwrap(), names(&zone))
                };
            }
            SERVED.with(|(answers, names)| {
                let mut message = bytes;
                if from_query {
                    message = question(0xda1e, which.get(names), of, edns);
                    for (at, byte) in changes {
                        if let Some(place) = message.get_mut(at) {
                            *place = byte;
                        }
                    }
                }
                for by in [Transport::Udp(most), Transport::Tcp] {
                    let mut answer = Vec::new();
                    if let Outcome::Answered { rcode, .. } = answers.answer(&message, by, &mut answer) {
                        assert_eq!(&answer[..2], &message[..2]);
                        let said = said(&answer);
                        assert_eq!(said.rcode, rcode as u8 & 0xf);
                        if let Transport::Udp(most) = by {
                            assert!(answer.len() <= most.max(512).into());
                        }
                    } else {
                        assert!(answer.is_empty());
                    }
                }
            });
        }
    }
}
