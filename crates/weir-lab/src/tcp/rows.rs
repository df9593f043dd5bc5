//! The rows of the comparison, from the library's own table: a design that is added there becomes a row
//! here by itself.

use weir::tcp::{AnyDesign, designs};

use weir_load::quantity::{parse_count, parse_size, parse_time};

use crate::experiment::plan::{self, Role, Row};

/// The design whose row runs under two names, in the order of preference: where the others are near it
/// the noise matters most.
const AGAIN: [&str; 2] = ["ring", "epoll"];

/// Every design once, those included that cannot run here; with as many threads as the server has cores
/// where it takes a number of them.
pub fn all(cores: usize) -> Vec<Row> {
    designs().iter().map(|design| of_design(design, cores)).collect()
}

fn of_design(design: &AnyDesign, cores: usize) -> Row {
    let about = design.about();
    let known = design.known_options();
    let own: Option<usize> = known
        .iter()
        .find(|option| option.name == "threads")
        .and_then(|option| option.default.parse().ok());
    // 0 stands for as many as the cores that it may run on, which are the server's.
    let spec = match own {
        Some(own) if own > cores.max(1) => format!("{} --threads {}", about.name, cores.max(1)),
        _ => about.name.to_owned(),
    };
    let mut row = Row::parse(&spec).unwrap_or_else(|error| panic!("{error}"));
    find_availability(&mut row);
    row
}

/// The rows of the given texts.
///
/// # Errors
/// What is wrong with the first text that is wrong, and what there is.
pub fn of_texts(texts: &[String]) -> Result<Vec<Row>, String> {
    plan::rows_of_texts(texts, |row| {
        check_limits(row)?;
        AnyDesign::parse(&text_of_design(row)).map_err(|error| error.to_string())?;
        find_availability(row);
        Ok(())
    })
}

/// How the value of an option of the server's is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Written {
    Count,
    Size,
    Time,
    Flag,
}

/// What a row may say that is the server's, not its design's: limits that every design has, and the size of receives.
const OF_SERVER: [(&str, Written); 11] = [
    ("active", Written::Count),
    ("buffer", Written::Size),
    ("close-when-full", Written::Flag),
    ("connections-max", Written::Count),
    ("max-rate", Written::Count),
    ("max-receives", Written::Count),
    ("output-bytes", Written::Size),
    ("per-address", Written::Count),
    ("read-timeout", Written::Time),
    ("silent", Written::Time),
    ("stalled", Written::Time),
];

fn is_of_server(name: &str) -> bool {
    OF_SERVER.iter().any(|(of, _)| *of == name)
}

/// The text of a row's design alone, with its options.
pub fn text_of_design(row: &Row) -> String {
    let mut design = row.clone();
    design.options.retain(|(name, _)| !is_of_server(name));
    design.spec()
}

/// What a row says of the server.
pub fn of_server(row: &Row) -> Vec<(&str, Option<&str>)> {
    let of = row.options.iter().filter(|(name, _)| is_of_server(name));
    of.map(|(name, value)| (name.as_str(), value.as_deref())).collect()
}

/// Whether the values of a row's limits can be read.
fn check_limits(row: &Row) -> Result<(), String> {
    for (name, value) in of_server(row) {
        let (_, written) = OF_SERVER.iter().find(|(of, _)| *of == name).expect("it is one of them");
        let read = |value: &str| match written {
            Written::Count => parse_count(value).map(|count| count > 0),
            Written::Size => parse_size(value).map(|size| size > 0),
            Written::Time => parse_time(value).map(|time| !time.is_zero()),
            Written::Flag => Err("it takes no value".into()),
        };
        let wrong =
            |problem: &str| Err(format!("--{name} of the design {:?}: {problem}", row.spec()));
        match (value.map(read), written) {
            (None, Written::Flag) | (Some(Ok(true)), _) => {}
            (None, _) => return wrong("it needs a value"),
            (Some(Ok(false)), _) => return wrong("0 is not allowed; leave it out for no limit"),
            (Some(Err(problem)), _) => return wrong(&problem),
        }
    }
    Ok(())
}

/// A peer as it is written.
const PEER_EXAMPLE: &str = "tokio=peers/bin/peer-tcp-tokio {ip} {port} current {buffer}";

/// The rows of peers, `NAME=COMMAND` each.
///
/// # Errors
/// What is wrong with the first text that is wrong.
pub fn of_peers(peers: &[String], taken: &[Row]) -> Result<Vec<Row>, String> {
    let names: Vec<&str> = designs().iter().map(|design| design.about().name).collect();
    let rows = plan::rows_of_peers(peers, taken, &names, PEER_EXAMPLE)?;
    for row in &rows {
        if row.peer.as_ref().is_some_and(|peer| !peer.command.mentions("{port}")) {
            return Err(format!(
                "the command of the peer {:?} does not say where {{port}} goes; write it as \
                 \"{}=program --listen {{ip}}:{{port}}\"",
                row.design, row.design
            ));
        }
    }
    Ok(rows)
}

/// Adds the row that runs under two names.
pub fn add_again(rows: &mut Vec<Row>) {
    plan::add_again_of(rows, &AGAIN);
}

fn find_availability(row: &mut Row) {
    match AnyDesign::parse(&text_of_design(row)) {
        Ok(mut design) => {
            design.resolve();
            row.runs_on = Some(design.provider().into());
            row.unavailable =
                design.availability().err().map(|unavailable| unavailable.to_string());
        }
        Err(error) => row.unavailable = Some(error.to_string()),
    }
}

/// A row as it is shown. A peer of TCP is always measured from outside, so nothing more is said of it.
pub fn title(row: &Row) -> String {
    let again = if matches!(row.role, Role::Again(_)) { " (again)" } else { "" };
    match &row.peer {
        Some(_) => format!("{} (peer){again}", row.design),
        None => format!("{}{again}", row.spec()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hosts::permit::{Peers, may_start};

    #[test]
    fn every_design_of_the_table_is_a_row_and_every_row_is_understood() {
        for cores in [1, 2, 64] {
            let rows = all(cores);
            let names: Vec<&str> = rows.iter().map(|row| row.design.as_str()).collect();
            let wanted: Vec<&str> = designs().iter().map(|design| design.about().name).collect();
            assert_eq!(names, wanted);
            for row in &rows {
                AnyDesign::parse(&row.spec()).unwrap_or_else(|error| panic!("{row}: {error}"));
            }
        }
    }

    #[test]
    fn designs_are_given_as_many_threads_as_the_server_has_cores() {
        let epoll = all(1).into_iter().find(|row| row.design == "epoll").unwrap();
        assert!(epoll.threads().is_none_or(|threads| threads == 1), "{epoll}");
        let select = all(1).into_iter().find(|row| row.design == "select").unwrap();
        assert_eq!(select.spec(), "select");
    }

    #[test]
    fn an_agent_starts_servers_with_every_limit() {
        for (name, written) in OF_SERVER {
            let words = ["serve", "tcp"].map(String::from);
            let option =
                [Some(format!("--{name}")), (written != Written::Flag).then(|| "1".into())];
            let words: Vec<_> = words.into_iter().chain(option.into_iter().flatten()).collect();
            assert_eq!(
                may_start(&words, true, "192.0.2.1".parse().unwrap(), &Peers::default()),
                Ok(())
            );
        }
    }

    fn strings(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn texts_are_read_with_their_options_and_wrong_ones_are_explained() {
        let rows = of_texts(&strings(&["epoll --trigger edge", "poll"])).unwrap();
        assert_eq!(title(&rows[0]), "epoll --trigger edge");
        for (texts, said) in [
            (&["nonsense"][..], "there is no"),
            (&["poll", "poll"], "twice"),
            (&["epoll --trigger sideways"], "sideways"),
            (&["epoll --active"], "needs a value"),
            (&["epoll --per-address many"], "--per-address"),
            (&["epoll --silent 0"], "leave it out"),
            (&["epoll --close-when-full 3"], "takes no value"),
        ] {
            let error = of_texts(&strings(texts)).unwrap_err();
            assert!(error.contains(said) || error.contains("nonsense"), "{texts:?}: {error}");
        }
    }

    #[test]
    fn limits_of_the_server_are_told_from_options_of_its_design() {
        let texts = ["port --idle zero-byte --active 100 --drain 4 --close-when-full"];
        let rows = of_texts(&strings(&texts)).unwrap();
        assert_eq!(text_of_design(&rows[0]), "port --idle zero-byte --drain 4");
        assert_eq!(of_server(&rows[0]), [("active", Some("100")), ("close-when-full", None)]);
        assert_eq!(title(&rows[0]), texts[0]);
        for design in designs() {
            let known = design.known_options();
            let both: Vec<_> = known.iter().filter(|option| is_of_server(&option.name)).collect();
            assert!(both.is_empty(), "{}: {both:?}", design.about().name);
        }
    }

    #[test]
    fn peers_are_told_where_to_listen() {
        let rows = of_peers(&strings(&["go=server {ip} {port}"]), &[]).unwrap();
        assert_eq!((rows.len(), title(&rows[0]).as_str()), (1, "go (peer)"));
        for (peer, said) in [
            ("go=server", "{port}"),
            ("epoll=server {port}", "name of a design"),
            ("go", "{ip} {port}"),
        ] {
            let error = of_peers(&strings(&[peer]), &[]).unwrap_err();
            assert!(error.contains(said), "{peer}: {error}");
        }
    }

    #[test]
    fn a_design_and_no_peer_runs_again() {
        let mut rows = of_peers(&strings(&["go=server {port}"]), &[]).unwrap();
        rows.extend(of_texts(&strings(&["poll", "epoll"])).unwrap());
        add_again(&mut rows);
        let last = rows.last().unwrap();
        let second = rows.iter().position(|row| row.design == "epoll").unwrap();
        if rows[second].unavailable.is_none() {
            assert_eq!((last.design.as_str(), last.role), ("epoll", Role::Again(second)));
            assert_eq!(title(last), "epoll (again)");
        }
    }
}
