//! A row that is not weir's: a program of another library, and the command that starts it.

use weir_load::engine::Head;

use crate::child::CommandLine;

/// A program that receives in the place of a server of weir's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// What starts it. Unless it mentions `{port}`, the program talks with weir
    /// ([`weir_load::peer`]).
    pub command: CommandLine,
    /// What it wants to see at the beginning of each datagram, if anything.
    pub head: Head,
}

impl Peer {
    /// A peer's name, and what starts it, from `NAME=COMMAND`; `example` is a right one.
    ///
    /// # Errors
    /// If it is something else.
    pub fn parse(text: &str, example: &str) -> Result<(String, Self), String> {
        let (name, command) = text
            .split_once('=')
            .ok_or_else(|| format!("cannot read the peer {text:?}: write it as {example:?}"))?;
        let name = name.trim();
        if name.is_empty() || name.starts_with('-') {
            return Err(format!("the peer {text:?} has no name before its command"));
        }
        let peer = Self { command: CommandLine::parse(command)?, head: Head::default() };
        Ok((name.into(), peer))
    }

    /// Whether it knows nothing of weir, so that what it received is derived from the kernel's
    /// counts, and nothing shows that it reads it: its figures are a claim.
    pub fn is_derived(&self) -> bool {
        self.command.mentions("{port}")
    }
}

#[cfg(test)]
mod tests {
    use crate::experiment::plan::Row;
    use crate::udp::rows::of_peers;

    fn rows(peers: &[&str], heads: &[&str]) -> Result<Vec<Row>, String> {
        let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        of_peers(&texts(peers), &texts(heads), &[])
    }

    #[test]
    fn a_peer_is_named_and_its_command_read() {
        let row = Row::parse_peer("go net =peers/go/peer --form 'batch 64'").unwrap();
        assert_eq!((row.spec().as_str(), row.to_string().as_str()), ("go net", "go net (peer)"));
        let peer = row.peer.unwrap();
        assert_eq!(peer.command.to_string(), "peers/go/peer --form 'batch 64'");
        assert!(!peer.is_derived());
        let row = Row::parse_peer("sockperf=sockperf server -i {ip} -p {port}").unwrap();
        assert_eq!(row.title(), "sockperf (peer, claimed)");
    }

    #[test]
    fn a_head_is_for_a_program_that_sees_no_stamp() {
        let all = rows(&["a=x {port}", "b=y"], &["a=00ff"]).unwrap();
        assert_eq!(all[0].peer.as_ref().unwrap().head.to_string(), "00ff");
        assert!(all[1].peer.as_ref().unwrap().head.is_empty());
        for (head, said) in
            [("b=00", "must see the stamps"), ("c=00", "no peer"), ("a=0", "head"), ("a", "NAME")]
        {
            assert!(rows(&["a=x {port}", "b=y"], &[head]).unwrap_err().contains(said), "{head}");
        }
    }

    #[test]
    fn wrong_peers_are_explained() {
        for (peers, said) in [
            (&["tokio"][..], "write it as"),
            (&["=x"], "no name"),
            (&["a="], "names no program"),
            (&["a='x"], "no end"),
            (&["blocking=x"], "name of a design"),
            (&["a=x", "a=y"], "different names"),
        ] {
            let error = rows(peers, &[]).unwrap_err();
            assert!(error.contains(said), "{peers:?}: {error}");
        }
    }
}
