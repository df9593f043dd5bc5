//! Where the rows of a comparison over hosts ran, in a few words: on how many generators and which hosts, over which links.

use serde::Deserialize as _;
use serde_json::Value;

use crate::hosts::{Host, Hosts};
use crate::report::words::{list, number_of, shortened};

/// What a row says of that in its document.
pub(crate) struct Places {
    /// How many generators (or what they are called otherwise) on which hosts, and the server's.
    pub sides: String,
    /// The links that they went over; where these are not all alike, with the hosts of each.
    pub links: String,
}

impl Places {
    /// Those of a run.
    pub fn of(hosts: &Hosts, other: &str) -> Self {
        Self { sides: sides(hosts, other), links: links(hosts) }
    }

    /// Those of a row in a document of this kind; none where all was on one machine.
    pub fn of_row(row: &Value, other: &str) -> Option<Self> {
        Hosts::deserialize(&row["hosts"]).ok().map(|hosts| Self::of(&hosts, other))
    }

    /// Those of all these rows as a sentence, where all have the same.
    pub fn of_all<'a>(rows: impl Iterator<Item = &'a Value>, other: &str) -> Option<String> {
        let mut said = rows.filter_map(|row| Self::of_row(row, other)).map(|of| of.sentence());
        let first = said.next()?;
        said.all(|other| other == first).then_some(first)
    }

    /// Both as a sentence.
    pub fn sentence(&self) -> String {
        format!("Each row: {}; {}.", self.sides, self.links)
    }
}

fn sides(hosts: &Hosts, other: &str) -> String {
    let mut named: Vec<(&str, usize)> = vec![];
    for Host { name, .. } in &hosts.generators {
        match named.iter_mut().find(|(known, _)| known == name) {
            Some((_, count)) => *count += 1,
            None => named.push((name, 1)),
        }
    }
    let named = named.into_iter().map(|(name, count)| match count {
        1 => name.to_owned(),
        count => format!("{name} ({count})"),
    });
    let on = list(&shortened(named.collect()));
    let count = number_of(hosts.generators.len(), other);
    format!("{count} on {on}, server on {}", hosts.server.name)
}

fn links(hosts: &Hosts) -> String {
    let mut links: Vec<(String, Vec<String>)> = vec![];
    for Host { name, link, .. } in std::iter::once(&hosts.server).chain(&hosts.generators) {
        let link = link.in_brief();
        match links.iter_mut().find(|(known, _)| *known == link) {
            Some((_, hosts)) if hosts.contains(name) => {}
            Some((_, hosts)) => hosts.push(name.clone()),
            None => links.push((link, vec![name.clone()])),
        }
    }
    if let [(link, _)] = &links[..] {
        return link.clone();
    }
    let of = |(link, hosts): (String, Vec<String>)| format!("{link} ({})", list(&shortened(hosts)));
    links.into_iter().map(of).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::hosts::Link;
    use crate::report::document::document;
    use crate::report::export::{csv, markdown};
    use crate::report::html::page;
    use crate::report::layout::chars;
    use crate::report::screen::{DETAILS, LINES, screen};
    use crate::report::table::report;
    use crate::udp::report::fixture::results;

    /// A server and three generators, two of them on one host; the link of the last is another one.
    pub(crate) fn four_ranks() -> Hosts {
        let host = |rank: usize, name: &str, device: &str, gbit: u64| Host {
            rank,
            name: name.into(),
            link: Link {
                device: device.into(),
                address: format!("10.0.0.{rank}").parse().ok(),
                bits_per_s: Some(gbit * 1_000_000_000),
                mtu_bytes: Some(1500),
                driver: Some("mlx5_core".into()),
            },
            ..Host::default()
        };
        Hosts {
            server: host(1, "b", "eth0", 10),
            generators: vec![
                host(0, "a", "eth0", 10),
                host(2, "a", "eth0", 10),
                host(3, "c", "eth1", 25),
            ],
            address: None,
        }
    }

    #[test]
    fn where_a_row_ran_is_said_in_a_few_words() {
        let hosts = four_ranks();
        let of = Places::of(&hosts, "generator");
        assert_eq!(of.sides, "3 generators on a (2) and c, server on b");
        assert_eq!(of.links, "eth0, 10 Gbit/s, MTU 1500 (b and a); eth1, 25 Gbit/s, MTU 1500 (c)");
        let one = Places::of(&hosts.of_generators(1), "client");
        assert_eq!(
            one.sentence(),
            "Each row: 1 client on a, server on b; eth0, 10 Gbit/s, MTU 1500."
        );
    }

    #[test]
    fn where_rows_ran_stands_in_every_report_of_a_comparison_over_hosts() {
        let mut results = results();
        results.own.hosts = Some(four_ranks());
        let said = Places::of(&four_ranks(), "generator");
        let sentence = said.sentence();
        let on_one_line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let document = document(&results);
        for width in [80, 100, 200] {
            let details = report(&results, width);
            assert!(on_one_line(&details).contains(&sentence), "{details}");
            let first = screen(&document, width, LINES, DETAILS);
            assert!(on_one_line(&first).contains(&sentence), "{first}");
            assert!(first.lines().count() <= LINES, "{first}");
            for line in first.lines().chain(details.lines().filter(|line| line.contains("Each"))) {
                assert!(chars(line) <= width, "{line}");
            }
        }
        let csv = csv(&document);
        let mut lines = csv::Reader::from_reader(csv.as_bytes());
        let mut records = lines.records().map(Result::unwrap);
        let last =
            |record: csv::StringRecord| record.iter().skip(13).eq([&said.sides, &said.links]);
        assert!(records.all(last), "{csv}");
        assert!(markdown(&document).contains(&said.sides));
        let page = page(&document);
        let body = page.split("id=\"raw-data\"").next().unwrap();
        let loads = document["loads"].as_array().unwrap().len();
        assert!(
            body.matches(&said.links).count()
                >= loads + document["results"].as_array().unwrap().len()
        );
    }
}
