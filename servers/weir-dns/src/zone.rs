//! A zone: what its file says, and what becomes of a name in it.

use crate::{
    name::{Name, suffixes},
    types,
};
use domain::{
    base::{
        ToName as _,
        iana::Class,
        rdata::{ComposeRecordData as _, RecordData as _},
    },
    zonefile::inplace::{Entry, Zonefile},
};
use std::{collections::BTreeMap, fs, path::Path};

/// The largest zone file, in bytes.
pub const LARGEST_FILE: u64 = 1 << 30;

/// Why zones cannot be served, and what to do.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Error(pub String);

/// Records of one name and type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Set {
    /// Seconds for which they may be kept.
    pub ttl: u32,
    /// The data of each, with names written out.
    pub data: Vec<Vec<u8>>,
}

/// What a name has, by type. Nothing, where there are only names below it.
pub type Node = BTreeMap<u16, Set>;

/// A zone.
#[derive(Debug, Clone)]
pub struct Zone {
    apex: Name,
    nodes: BTreeMap<Name, Node>,
}

/// What becomes of a name.
#[derive(Debug, Clone, Copy)]
pub enum Found<'a> {
    /// It is there.
    Exact(&'a Node),
    /// It is made by this wildcard.
    Wildcard(&'a Name, &'a Node),
    /// Others have it: it is at this name, where the zone is cut, or below.
    Cut(&'a Name, &'a Node),
    /// It is not there.
    Absent,
    /// It does not belong to this zone.
    Outside,
}

impl Zone {
    /// Reads a zone from its file. Names without a dot at their end are below `origin`, until the file says otherwise
    /// ($ORIGIN).
    ///
    /// # Errors
    /// Why it cannot be served, and what to do.
    pub fn read(path: &Path, origin: Option<&Name>) -> Result<Self, Error> {
        let failed = |e| Error(format!("cannot read the zone file {}: {e}", path.display()));
        let bytes = fs::metadata(path).map_err(failed)?.len();
        if bytes > LARGEST_FILE {
            let name = path.display();
            let problem =
                format!("the zone file {name} has {bytes} bytes; allowed: {LARGEST_FILE}");
            return Err(Error(problem));
        }
        Self::parse(&fs::read(path).map_err(failed)?, path, origin)
    }

    /// The same of what a file says; `path` is for messages.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn parse(text: &[u8], path: &Path, origin: Option<&Name>) -> Result<Self, Error> {
        let wrong = |problem: String| Error(format!("the zone file {}: {problem}", path.display()));
        let mut file = Zonefile::from(text);
        file.extend_from_slice(b"\n"); // what its last line may lack
        file.set_default_class(Class::IN);
        if let Some(origin) = origin {
            let name = domain::base::Name::from_octets(origin.wire().to_vec().into());
            file.set_origin(name.map_err(|e| wrong(format!("the origin {origin}: {e}")))?);
        }
        let (mut nodes, mut apex) = (BTreeMap::<Name, Node>::new(), None);
        while let Some(entry) = file.next_entry().map_err(|e| wrong(format!("wrong at {e}")))? {
            let record = match entry {
                Entry::Record(record) => record,
                Entry::Include { path: other, .. } => {
                    let problem = format!("$INCLUDE {other}: put its records into this file");
                    return Err(wrong(problem));
                }
            };
            let owner = Name::new(record.owner().to_vec().as_slice());
            let of = record.data().rtype();
            if record.class() != Class::IN {
                let problem = format!("{owner} {of}: class {} is not served", record.class());
                return Err(wrong(problem));
            }
            if [types::RRSIG, types::NSEC, types::NSEC3, types::DNAME].contains(&of.to_int()) {
                let problem = format!(
                    "{owner} {of}: signed zones and DNAME are not served; leave such records out"
                );
                return Err(wrong(problem));
            }
            if of.to_int() == types::SOA && apex.replace(owner.clone()).is_some() {
                return Err(wrong(format!(
                    "{owner} SOA: a zone has only one, and this is the second"
                )));
            }
            let mut data = Vec::new();
            match record.data().compose_rdata(&mut data) {
                Ok(()) => {}
            }
            let ttl = record.ttl().as_secs();
            let set = nodes.entry(owner).or_default().entry(of.to_int());
            let set = set.or_insert_with(|| Set { ttl, data: Vec::new() });
            // Records of a set have one (RFC 2181, 5.2).
            set.ttl = set.ttl.min(ttl);
            if !set.data.contains(&data) {
                set.data.push(data);
            }
        }
        let apex =
            apex.ok_or_else(|| wrong("there is no SOA record: a zone begins with one".into()))?;
        let mut zone = Self { apex, nodes };
        zone.check().map_err(wrong)?;
        zone.add_names_between();
        Ok(zone)
    }

    fn check(&self) -> Result<(), String> {
        if !self.nodes[&self.apex].contains_key(&types::NS) {
            return Err(format!("{} has no NS record: a zone needs at least one", self.apex));
        }
        for (name, node) in &self.nodes {
            if !name.is_within(&self.apex) {
                return Err(format!("{name} is not in the zone {}: leave it out", self.apex));
            }
            if let Some(cname) = node.get(&types::CNAME)
                && (node.len() > 1 || cname.data.len() > 1)
            {
                return Err(format!("{name} has a CNAME, so it can have no other record"));
            }
            if name.is_wildcard() && node.contains_key(&types::NS) {
                return Err(format!("{name} NS: a wildcard cannot be delegated"));
            }
        }
        Ok(())
    }

    /// Names that have nothing are there if there is one below them (RFC 8020).
    fn add_names_between(&mut self) {
        let above = |name: &Name| -> Vec<Name> {
            let above = suffixes(name.wire()).skip(1);
            above.take_while(|above| *above != self.apex.wire()).map(Name::new).collect()
        };
        let inner = self.nodes.keys().filter(|name| **name != self.apex);
        let between: Vec<_> = inner.flat_map(above).collect();
        for name in between {
            self.nodes.entry(name).or_default();
        }
    }

    /// Its first name.
    pub fn apex(&self) -> &Name {
        &self.apex
    }

    /// Its names.
    pub fn nodes(&self) -> impl Iterator<Item = (&Name, &Node)> {
        self.nodes.iter()
    }

    /// What this very name has, of whatever use.
    pub fn node(&self, name: &Name) -> Option<&Node> {
        self.nodes.get(name)
    }

    /// What becomes of a name.
    pub fn find(&self, name: &Name) -> Found<'_> {
        if !name.is_within(&self.apex) {
            return Found::Outside;
        }
        let mut down: Vec<_> = suffixes(name.wire()).map(Name::new).collect();
        down.retain(|at| at.labels() > self.apex.labels());
        let (mut last, mut node) = (&self.apex, &self.nodes[&self.apex]);
        for at in down.iter().rev() {
            let Some((its, next)) = self.nodes.get_key_value(at) else {
                let wildcard = last.wildcard();
                let wildcard = wildcard.and_then(|name| self.nodes.get_key_value(&name));
                return wildcard.map_or(Found::Absent, |(name, node)| Found::Wildcard(name, node));
            };
            if next.contains_key(&types::NS) {
                return Found::Cut(its, next);
            }
            (last, node) = (its, next);
        }
        Found::Exact(node)
    }
}

/// Where the names are in data that is of a type: those that may be shortened (RFC 3597, section 4), and whether the first of
/// them names a server whose addresses help (RFC 1035, 3.3).
pub fn names_in(of: u16) -> (usize, usize) {
    match of {
        types::NS | types::CNAME | types::PTR => (0, 1),
        types::SOA => (0, 2),
        types::MX => (2, 1),
        _ => (0, 0),
    }
}

/// The server that the data names, where its addresses are to be told, too.
pub fn server_in(of: u16, data: &[u8]) -> Option<Name> {
    let at = match of {
        types::NS => 0,
        types::MX => 2,
        types::SRV => 6,
        _ => return None,
    };
    data.get(at..).map(Name::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(text: &str) -> Result<Zone, Error> {
        let origin = Name::parse("example.com").unwrap();
        Zone::parse(text.as_bytes(), Path::new("test.zone"), Some(&origin))
    }

    const HEAD: &str = "$TTL 300\n@ SOA ns hostmaster 1 2 3 4 5\n@ NS ns\nns A 192.0.2.1\n";

    #[test]
    fn names_are_found() {
        let text =
            "a.b.c TXT x\n*.w A 192.0.2.2\nin.w A 192.0.2.3\nsub NS ns.sub\nns.sub A 192.0.2.4";
        let zone = zone(&format!("{HEAD}{text}")).unwrap();
        let find = |name: &str| zone.find(&Name::parse(name).unwrap());
        assert!(matches!(find("EXAMPLE.com"), Found::Exact(node) if node.len() == 2));
        assert!(matches!(find("b.c.example.com"), Found::Exact(node) if node.is_empty()));
        assert!(matches!(find("x.b.c.example.com"), Found::Absent));
        assert!(matches!(find("x.y.w.example.com"), Found::Wildcard(..)));
        assert!(matches!(find("x.in.w.example.com"), Found::Absent), "in.w is closer");
        for cut in ["sub.example.com", "ns.sub.example.com", "x.y.sub.example.com"] {
            assert!(matches!(find(cut), Found::Cut(..)), "{cut}");
        }
        assert!(matches!(find("com"), Found::Outside));
        assert!(matches!(find("badexample.com"), Found::Outside));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, word) in [
            ("a A 192.0.2.1", "no SOA"),
            ("@ SOA ns h 1 2 3 4 5", "no NS"),
            ("$INCLUDE other.zone\n", "this file"),
            ("a A 192.0.2.300", "1:"),
        ] {
            let error = zone(text).unwrap_err().to_string();
            assert!(error.contains(word) && error.contains("test.zone"), "{error}");
        }
        for (text, word) in [
            ("@ SOA ns h 1 2 3 4 5", "a zone has only one"),
            ("a.other. A 192.0.2.1", "not in the zone"),
            ("a CNAME b\na A 192.0.2.1", "no other record"),
            ("a CNAME b\na CNAME c", "no other record"),
            ("*.a NS ns", "cannot be delegated"),
            ("a DNAME b", "not served"),
            ("a CH TXT x", "class"),
        ] {
            let error = zone(&format!("{HEAD}{text}")).unwrap_err().to_string();
            assert!(error.contains(word), "{text}: {error}");
        }
    }

    #[test]
    fn records_of_a_set_are_one_set() {
        let zone =
            zone(&format!("{HEAD}a 60 A 192.0.2.1\na 30 A 192.0.2.2\na A 192.0.2.1")).unwrap();
        let node = zone.node(&Name::parse("a.example.com").unwrap()).unwrap();
        let data = vec![vec![192, 0, 2, 1], vec![192, 0, 2, 2]];
        assert_eq!(node[&types::A], Set { ttl: 30, data });
    }
}
