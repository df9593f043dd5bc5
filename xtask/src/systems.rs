//! The book's page on what runs where: its tables are made from the designs' tables, from what weir for Windows says of
//! itself, and from what Wine does not do.
//!
//! What runs on Windows is a claim of the page. CI asks `weir.exe` whether it is true, and takes from the page which
//! designs the conformance suites must run there: so the page says neither more nor less than the program does.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
};

use anyhow::{Context as _, bail};
use clap::Args;
use serde_json::Value;
use weir::{
    device::{self, Wants},
    rio, tcp,
    udp::{self, About, Contract},
};

#[path = "../../crates/weir/src/wine.rs"]
mod wine;

/// The page.
const PAGE: &str = "systems.md";
/// What has a summary of it, beside the book.
const README: &str = "README.md";
/// The library's front page, which has a table of the designs of each kind.
const FRONT_PAGE: &str = "crates/weir/README.md";

/// Check, or write, the tables of the book's page on what runs where.
#[derive(Args)]
pub struct Systems {
    /// Compare with what this program says of itself: words that start weir for Windows.
    #[arg(long, num_args = 1.., allow_hyphen_values = true, value_name = "WORDS")]
    windows: Option<Vec<String>>,
    /// Write the tables anew instead of checking them.
    #[arg(long)]
    write: bool,
    /// Print what the conformance suites must run on Windows, as WEIR_REQUIRE has it, and do nothing else.
    #[arg(long, conflicts_with_all = ["windows", "write"])]
    required: bool,
    /// Print in the same way what they must run on Linux where io_uring is forbidden.
    #[arg(long, conflicts_with_all = ["windows", "write", "required"])]
    without_io_uring: bool,
}

impl Systems {
    /// Does what is asked.
    ///
    /// # Errors
    /// If the page cannot be read or written, or weir for Windows says nothing.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let path = repository().join("book/src").join(PAGE);
        let text = fs::read_to_string(&path).with_context(|| format!("reading {PAGE}"))?;
        let texts = Texts::read(text)?;
        let claimed = claims(&texts.page);
        if self.required {
            println!("{}", required(&claimed).join(","));
            return Ok(ExitCode::SUCCESS);
        }
        if self.without_io_uring {
            println!("{}", required(&without_io_uring()).join(","));
            return Ok(ExitCode::SUCCESS);
        }
        let runs = match &self.windows {
            Some(words) => asked(words)?,
            None => claimed.clone(),
        };
        if self.write {
            let Texts { page, readme, front_page } = texts.with_tables(&runs)?;
            let files = [(path, page), (file(README), readme), (file(FRONT_PAGE), front_page)];
            for (path, text) in files {
                fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
            }
            return Ok(ExitCode::SUCCESS);
        }
        let mut problems = texts.problems()?;
        let wrong = claimed.difference(&runs).map(|name| (name, "does not run on Windows"));
        let missing = runs.difference(&claimed).map(|name| (name, "runs on Windows"));
        problems.extend(wrong.chain(missing).map(|(name, what)| {
            format!("{PAGE}: {name} {what}; write the tables anew: cargo run -p xtask -- systems --write --windows ...")
        }));
        for problem in &problems {
            eprintln!("{problem}");
        }
        println!("systems: {} designs and providers run on Windows", runs.len());
        Ok(if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// What is wrong with the page as it stands, whatever runs on Windows. Pages are those of the book, by path.
pub fn problems(pages: &BTreeMap<String, String>) -> anyhow::Result<Vec<String>> {
    let text = pages.get(PAGE).with_context(|| format!("the book has no page {PAGE}"))?;
    let unmeasured = rows().iter().filter_map(|row| row.unmeasured(pages)).collect::<Vec<_>>();
    let tables = Texts::read(text.clone())?.problems()?;
    Ok(tables.into_iter().chain(unmeasured).chain(of_gaps(&sources()?)).collect())
}

/// What `wine.rs` says of its gaps and is not so: that a test asks for one, or that none does.
fn of_gaps(sources: &[String]) -> Vec<String> {
    let is_asked = |gap: &wine::Gap| {
        let calls =
            ["is_left_out()", "leaves_out()"].map(|ask| format!("wine::{}.{ask}", gap.constant));
        sources.iter().any(|text| calls.iter().any(|call| text.contains(call)))
    };
    let wrong = wine::GAPS.iter().filter_map(|gap| match (gap.is_asked, is_asked(gap)) {
        (true, false) => Some(format!(
            "wine.rs: no test asks for {}: have one ask, or say that it is asserted nowhere",
            gap.constant
        )),
        (false, true) => Some(format!(
            "wine.rs: {} is asserted nowhere, and a test asks for it all the same",
            gap.constant
        )),
        _ => None,
    });
    wrong.collect()
}

/// The sources that may ask for a gap: all of Rust in the crates.
fn sources() -> anyhow::Result<Vec<String>> {
    let files = crate::layers::sources_below("")?;
    files
        .into_iter()
        .map(|(path, name)| fs::read_to_string(path).with_context(|| format!("reading {name}")))
        .collect()
}

/// What has tables that are made from the designs' tables.
#[derive(PartialEq, Eq)]
struct Texts {
    page: String,
    readme: String,
    front_page: String,
}

impl Texts {
    /// With this page, as they stand.
    fn read(page: String) -> anyhow::Result<Self> {
        let front_page = file(FRONT_PAGE);
        let front_page = fs::read_to_string(&front_page)
            .with_context(|| format!("reading {}", front_page.display()))?;
        Ok(Self { page, readme: readme()?, front_page })
    }

    /// As they should be where these run on Windows.
    fn with_tables(&self, runs: &BTreeSet<String>) -> anyhow::Result<Self> {
        Ok(Self {
            page: filled(&self.page, runs)?,
            readme: summarized(&self.readme, runs)?,
            front_page: listed(&self.front_page, runs)?,
        })
    }

    /// Those whose tables are not as they should be where what the page says runs on Windows.
    fn problems(&self) -> anyhow::Result<Vec<String>> {
        let right = self.with_tables(&claims(&self.page))?;
        let are_right = [
            (PAGE, right.page == self.page),
            (README, right.readme == self.readme),
            (FRONT_PAGE, right.front_page == self.front_page),
        ];
        let wrong = are_right.into_iter().filter(|(_, is_right)| !is_right).map(|(name, _)| {
            format!(
                "{name}: its tables are not what the designs' tables make them: \
                 cargo run -p xtask -- systems --write"
            )
        });
        Ok(wrong.collect())
    }
}

/// A file of the repository.
fn file(path: &str) -> PathBuf {
    repository().join(path)
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

pub fn readme() -> anyhow::Result<String> {
    fs::read_to_string(file(README)).with_context(|| format!("reading {README}"))
}

/// An interface of a system, and what it limits.
type Interface = (&'static str, &'static str);

/// A line of a table.
struct Row {
    /// The table, and what the name begins with where the suites are told what to run.
    kind: Kind,
    name: &'static str,
    /// How it works, in one sentence.
    summary: &'static str,
    linux: Option<Interface>,
    windows: Option<Interface>,
    /// How far it was verified on Linux.
    verified: &'static str,
    /// How far it was verified on Windows, where it runs there.
    under_wine: &'static str,
    /// What is said of it otherwise.
    elsewhere: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Udp,
    Tcp,
    Device,
    Provider,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Udp, Self::Tcp, Self::Device, Self::Provider];

    /// The name of its table in the page.
    fn table(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Tcp => "tcp",
            Self::Device => "devices",
            Self::Provider => "providers",
        }
    }

    /// The name of its list in the document of `weir designs`.
    fn list(self) -> &'static str {
        match self {
            Self::Udp => "designs",
            Self::Tcp => "tcp_designs",
            Self::Device => "device_designs",
            Self::Provider => "providers",
        }
    }

    /// A name as it is unique: as the suites are told it, if they are.
    fn unique(self, name: &str) -> String {
        match self {
            Self::Udp => name.to_owned(),
            Self::Tcp => format!("tcp/{name}"),
            Self::Device => format!("device/{name}"),
            Self::Provider => format!("provider {name}"),
        }
    }
}

const MEASURED: &str = "measured";
/// For what needs a device that stands in an emulated machine only, whose speed says nothing.
const EMULATED: &str = "conformance in an emulated machine";
/// For what needs a network device, which the conformance suites make.
const ON_A_LINK: &str = "measured on a virtual link";
/// For variants of such, which change how frames come and not what a design does with them.
const CHECKED_ON_A_LINK: &str = "conformance on a virtual link";
const UNDER_WINE: &str = "conformance under Wine";
/// For a design whose default of several receives for each connection is left out under the older Wine.
const UNDER_WINE_BY_ONE: &str = "conformance under Wine; under 8.0 with `--receives 1` only";
const NOT_YET: &str = "not yet";
/// For what is written, and needs what Wine does not have.
const NEVER_RUN: &str = "written, never run: Wine lacks it";
/// For what is tested on something that stands in for what Wine does not have.
const ON_A_STAND_IN: &str =
    "written; its calls run against a stand-in under Wine; never run on Windows";
const NO_INTERFACE: &str = "there is no such interface";

/// Every row, from the tables of the library.
fn rows() -> Vec<Row> {
    let udp = udp::designs().into_iter().map(|of| match of.about().name {
        "rio-sharded" => {
            let [linux, _] = of_udp(of.about().contract);
            let windows =
                Some(("see the providers", "a socket for each core, by SIO_CPU_AFFINITY"));
            let row = Row::of(Kind::Udp, of.about(), [linux, windows], MEASURED);
            Row { elsewhere: NEVER_RUN, ..row }
        }
        _ => Row::of(Kind::Udp, of.about(), of_udp(of.about().contract), MEASURED),
    });
    let tcp = tcp::designs().into_iter().map(|of| {
        let row = Row::of(Kind::Tcp, of.about(), of_tcp(of.about()), MEASURED);
        let has_several = of.known_options().iter().any(|option| option.name == "receives");
        Row { under_wine: if has_several { UNDER_WINE_BY_ONE } else { UNDER_WINE }, ..row }
    });
    let device = device::designs().into_iter().map(|of| {
        let verified = if of.wants() == Wants::Calls { EMULATED } else { MEASURED };
        Row::of(Kind::Device, of.about(), of_device(of.about(), of.wants()), verified)
    });
    let provider = rio::Choice::ALL.iter().map(|choice| {
        let rio::AboutProvider { name, summary, .. } = choice.about();
        let verified = match (choice.reaches_loopback(), name.contains('-')) {
            (true, _) if name == "winsock" => NO_INTERFACE,
            (true, _) => MEASURED,
            (false, false) => ON_A_LINK,
            (false, true) => CHECKED_ON_A_LINK,
        };
        let [linux, windows] = of_provider(name);
        let elsewhere = if name == "winsock" { ON_A_STAND_IN } else { NOT_YET };
        let under_wine = UNDER_WINE;
        let kind = Kind::Provider;
        Row { kind, name, summary, linux, windows, verified, under_wine, elsewhere }
    });
    udp.chain(tcp).chain(device).chain(provider).collect()
}

/// What the UDP designs on a contract stand on, on Linux and on Windows.
fn of_udp(contract: Contract) -> [Option<Interface>; 2] {
    match contract {
        Contract::Socket => [
            Some(("recvmsg, recvmmsg", "")),
            Some(("WSARecvFrom, overlapped with an event", "no call for a batch")),
        ],
        Contract::Epoll => [Some(("epoll, recvmsg, recvmmsg", "")), None],
        Contract::Port => [
            Some(("io_uring", "one wakes all waiters; weir keeps the concurrency limit")),
            Some(("I/O completion port", "")),
        ],
        Contract::Rio => [Some(("see the providers", "")), Some(("see the providers", ""))],
        _ => unexpected(contract),
    }
}

/// What the TCP designs on a contract stand on.
fn of_tcp(about: About) -> [Option<Interface>; 2] {
    match about.contract {
        Contract::Socket => [
            Some(("recv, send", "threads: two for each connection")),
            Some((
                "WSARecv, overlapped with an event; accept and send, with WSAEventSelect",
                "threads: two for each connection",
            )),
        ],
        Contract::Select => [
            Some((
                "select",
                "none: the call takes sets of any size, FD_SETSIZE is the C library's",
            )),
            Some((
                "select",
                "none: arrays of any size, FD_SETSIZE is the header's; each is searched",
            )),
        ],
        Contract::Poll => [Some(("poll", "")), Some(("WSAPoll", ""))],
        Contract::Epoll => [Some(("epoll", "")), None],
        Contract::Signals => [
            Some((
                "F_SETSIG, sigtimedwait",
                "RLIMIT_SIGPENDING messages; what is beyond is looked for",
            )),
            Some((
                "WSAAsyncSelect",
                "10,000 messages in a queue: at most 3,333 sockets for a window",
            )),
        ],
        Contract::Events => [
            Some(("epoll", "65,536 handles a group, 64 by default")),
            Some(("WSAEventSelect", "64 handles a thread, one of them its waker")),
        ],
        Contract::Overlapped => [
            Some((
                "io_uring, an eventfd for each operation",
                "4,096 events a group, 64 by default",
            )),
            Some(("overlapped WSARecv and WSASend, an event for each", "64 events a thread")),
        ],
        Contract::Port => [
            Some(("io_uring", "one wakes all waiters; weir keeps the concurrency limit")),
            Some(("I/O completion port, AcceptEx", "")),
        ],
        Contract::Rio => [
            Some(("io_uring", "RLIMIT_NOFILE connections a ring; further rings are made")),
            // A receive there has its slice from the beginning.
            (about.name == "rio-tcp").then_some(("registered I/O", "")),
        ],
        contract => unexpected(contract),
    }
}

/// What a design for devices stands on.
fn of_device(about: About, wants: Wants) -> [Option<Interface>; 2] {
    match (about.contract, wants) {
        (Contract::Read, Wants::Calls) => [Some(("ioctl", "")), None],
        (Contract::Read, _) => [Some(("read, write", "")), Some(("ReadFile, WriteFile", ""))],
        (Contract::Port, _) => [
            Some(("io_uring", "")),
            Some(("overlapped ReadFile and WriteFile, I/O completion port", "")),
        ],
        (Contract::Queue, _) if about.name == "libaio" => {
            [Some(("io_submit, io_getevents", "")), None]
        }
        (Contract::Queue, _) => [Some(("io_uring", "")), None],
        (contract, _) => unexpected(contract),
    }
}

/// What a provider of registered I/O stands on. A new one is told here.
fn of_provider(name: &str) -> [Option<Interface>; 2] {
    match name.split('-').next().unwrap_or(name) {
        "uring" => [
            Some(("io_uring, multishot recvmsg", "32,768 buffers in a ring, the rest on a stack")),
            None,
        ],
        "packet" => {
            [Some(("AF_PACKET, TPACKET_V3", "copies; receives only; not for comparisons")), None]
        }
        "xdp" => [Some(("AF_XDP", "one queue of one device; not loopback")), None],
        "winsock" => [None, Some(("registered I/O (RIO)", "a notification by event or by port"))],
        "batch" => [
            Some(("recvmmsg, sendmmsg", "")),
            Some(("WSARecvFrom, overlapped with an event", "no call for a batch")),
        ],
        other => panic!("xtask/src/systems.rs does not say what the provider {other} stands on"),
    }
}

fn unexpected(contract: Contract) -> ! {
    panic!("xtask/src/systems.rs does not say what {contract:?} stands on for this kind of server")
}

impl Row {
    fn of(
        kind: Kind,
        about: About,
        [linux, windows]: [Option<Interface>; 2],
        verified: &'static str,
    ) -> Self {
        let (under_wine, elsewhere) = (UNDER_WINE, NOT_YET);
        let About { name, summary, .. } = about;
        Self { kind, name, summary, linux, windows, verified, under_wine, elsewhere }
    }

    fn unique(&self) -> String {
        self.kind.unique(self.name)
    }

    /// Its line, where this runs on Windows.
    fn line(&self, runs: &BTreeSet<String>) -> anyhow::Result<String> {
        let name = self.name;
        let first = match self.kind {
            Kind::Udp => format!("[`{name}`](designs/{name}.md)"),
            Kind::Tcp => format!("[`{name}`](tcp/{name}.md)"),
            Kind::Device | Kind::Provider => format!("`{name}`"),
        };
        let on_windows = match (self.windows, runs.contains(&self.unique())) {
            (Some(_), true) => self.under_wine,
            (Some(_), false) => self.elsewhere,
            (None, false) => NO_INTERFACE,
            (None, true) => bail!("xtask/src/systems.rs does not say what {name} stands on there"),
        };
        let cells = |of: Option<Interface>| match of {
            Some((api, "")) => api.to_owned(),
            Some((api, limit)) => format!("{api}; *{limit}*"),
            None => "-".to_owned(),
        };
        let (linux, windows) = (cells(self.linux), cells(self.windows));
        Ok(format!("| {first} | {linux} | {} | {windows} | {on_windows} |\n", self.verified))
    }

    /// Says so if it is called measured and no table of the book has a figure of it. That each chapter of a design has
    /// figures is checked with the chapters.
    fn unmeasured(&self, pages: &BTreeMap<String, String>) -> Option<String> {
        let name = self.name;
        let in_chapters = matches!(self.kind, Kind::Udp | Kind::Tcp);
        let is_claimed = matches!(self.verified, MEASURED | ON_A_LINK) && !in_chapters;
        let mut lines = pages.values().flat_map(|page| page.lines());
        let found = lines.any(|line| has_figure(line, name));
        (is_claimed && !found)
            .then(|| format!("{PAGE} calls {name} measured, and the book has no figure of it"))
    }
}

/// Whether a line of a page is a row of a table with a figure of this.
fn has_figure(line: &str, name: &str) -> bool {
    let mut cells = line.trim().trim_matches('|').split('|').map(str::trim);
    let is_figure = |cell: &str| cell.starts_with(|c: char| c.is_ascii_digit() || c == '≥');
    let spans = cells.next().unwrap_or_default().split('`').skip(1).step_by(2);
    let is_named = spans.map(|span| span.split(' ').next()).any(|first| first == Some(name));
    line.starts_with('|') && is_named && cells.any(is_figure)
}

/// The page with its tables as they should be where these run on Windows.
fn filled(text: &str, runs: &BTreeSet<String>) -> anyhow::Result<String> {
    let mut page = text.to_owned();
    for kind in Kind::ALL {
        let first = if kind == Kind::Provider { "provider" } else { "design" };
        let mut table = format!(
            "| {first} | on Linux; *limit* | verified | on Windows; *limit* | verified |\n| --- | --- | --- | --- | --- |\n"
        );
        for row in rows().iter().filter(|row| row.kind == kind) {
            table += &row.line(runs)?;
        }
        page = replaced(&page, kind.table(), &table)?;
    }
    let mut table = String::from("| what | why | its tests |\n| --- | --- | --- |\n");
    for wine::Gap { name, reason, is_asked, .. } in wine::GAPS {
        let tests = if *is_asked { "left out" } else { "nothing is asserted" };
        let _ = writeln!(table, "| {name} | {reason} | {tests} |");
    }
    replaced(&page, "wine", &table)
}

/// The README with its summary as it should be.
fn summarized(text: &str, runs: &BTreeSet<String>) -> anyhow::Result<String> {
    let mut table = String::from("| | Linux | Windows, tested under Wine |\n| --- | --- | --- |\n");
    for (what, kind) in [("UDP", Kind::Udp), ("TCP", Kind::Tcp), ("devices", Kind::Device)] {
        let rows = Vec::from_iter(rows().into_iter().filter(|row| row.kind == kind));
        let there: Vec<String> = rows
            .iter()
            .filter(|row| runs.contains(&row.unique()))
            .map(|row| format!("`{}`", row.name))
            .collect();
        let on_windows = match there.len() {
            0 => "none yet".to_owned(),
            count => format!("{count}: {}", there.join(", ")),
        };
        let _ = writeln!(table, "| {what} | all {} designs | {on_windows} |", rows.len());
    }
    replaced(text, "summary", &table)
}

/// The library's front page with its tables as they should be.
fn listed(text: &str, runs: &BTreeSet<String>) -> anyhow::Result<String> {
    let mut kinds = Kind::ALL.into_iter().filter(|kind| *kind != Kind::Provider);
    kinds.try_fold(text.to_owned(), |text, kind| {
        let mut table =
            String::from("| design | how it does its I/O | Windows |\n| --- | --- | --- |\n");
        for row in rows().iter().filter(|row| row.kind == kind) {
            let on_windows = if runs.contains(&row.unique()) { "yes" } else { "" };
            let _ = writeln!(table, "| `{}` | {} | {on_windows} |", row.name, row.summary);
        }
        replaced(&text, kind.table(), &table)
    })
}

/// A text with another table between the marks of this name.
fn replaced(text: &str, name: &str, table: &str) -> anyhow::Result<String> {
    let mark = format!("<!-- systems: {name} -->\n");
    let (before, rest) = text
        .split_once(&mark)
        .with_context(|| format!("there is no line {:?}", mark.trim_end()))?;
    const END: &str = "<!-- systems: end -->";
    let (_, after) =
        rest.split_once(END).with_context(|| format!("behind {name} is no line {END:?}"))?;
    Ok(format!("{before}{mark}\n{table}\n{END}{after}"))
}

/// What a page says that it runs on Windows, by unique names.
fn claims(text: &str) -> BTreeSet<String> {
    let runs = |kind: Kind| {
        let table = text.split(&format!("<!-- systems: {} -->", kind.table())).nth(1).unwrap_or("");
        let table = table.split("<!-- systems:").next().unwrap_or("").to_owned();
        let lines: Vec<String> = table.lines().map(str::to_owned).collect();
        lines.into_iter().filter_map(move |line| {
            let verified = line.strip_suffix(" |")?.rsplit("| ").next()?;
            verified.starts_with(UNDER_WINE).then_some(())?;
            Some(kind.unique(line.split('`').nth(1)?))
        })
    };
    Kind::ALL.into_iter().flat_map(runs).collect()
}

/// What weir for Windows says that it can run.
fn asked(words: &[String]) -> anyhow::Result<BTreeSet<String>> {
    let (program, words) = words.split_first().context("no program is named")?;
    let made = Command::new(program)
        .args(words)
        .args(["designs", "--json"])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("starting {program}"))?;
    let document: Value = serde_json::from_slice(&made.stdout)
        .with_context(|| format!("reading what {program} printed ({})", made.status))?;
    let of = |kind: Kind| {
        let list = document[kind.list()].as_array().cloned().unwrap_or_default();
        list.into_iter()
            .filter(|entry| entry["status"] == "ok")
            .filter_map(move |entry| Some(kind.unique(entry["name"].as_str()?)))
    };
    Ok(Kind::ALL.into_iter().flat_map(of).collect())
}

/// What runs on Linux by anything else than io_uring, by unique names; but for what needs a device of its own.
fn without_io_uring() -> BTreeSet<String> {
    let runs = |row: &Row| {
        let api = row.linux.map_or("io_uring", |(api, _)| api);
        !api.contains("io_uring") && row.verified == MEASURED
    };
    rows().iter().filter(|row| runs(row)).map(Row::unique).collect()
}

/// What the suites must run, as WEIR_REQUIRE names it: designs on registered I/O with each provider.
fn required(runs: &BTreeSet<String>) -> Vec<String> {
    let takes_provider: BTreeSet<&str> = udp::designs()
        .iter()
        .filter(|design| design.about().contract == Contract::Rio)
        .map(|design| design.about().name)
        .collect();
    let is_provider = |name: &&String| name.starts_with("provider ");
    let providers: Vec<&str> =
        runs.iter().filter(is_provider).filter_map(|name| name.strip_prefix("provider ")).collect();
    let of = |name: &String| match takes_provider.contains(name.as_str()) {
        true => providers.iter().map(|provider| format!("{name}/{provider}")).collect(),
        false => vec![name.clone()],
    };
    runs.iter().filter(|name| !is_provider(name)).flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE_OF_TESTS: &str = "# Page\n<!-- systems: udp -->\n<!-- systems: end -->\nbetween\n\
        <!-- systems: tcp -->\n<!-- systems: end -->\n<!-- systems: devices -->\n<!-- systems: end -->\n\
        <!-- systems: providers -->\n<!-- systems: end -->\n<!-- systems: wine -->\n<!-- systems: end -->\nafter\n";

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn what_is_written_is_what_is_claimed_and_writing_again_changes_nothing() {
        let runs = set(&[
            "blocking",
            "rio-event",
            "tcp/select",
            "tcp/port-ordered",
            "device/sync",
            "provider batch",
        ]);
        let page = filled(PAGE_OF_TESTS, &runs).unwrap();
        assert_eq!(claims(&page), runs);
        assert_eq!(filled(&page, &runs).unwrap(), page);
        assert!(page.starts_with("# Page\n") && page.ends_with("after\n"), "{page}");
        assert!(page.contains("\nbetween\n"), "{page}");
        assert!(page.contains("| [`port`](designs/port.md) |"), "{page}");
        // Each design once for each kind of server, whatever it is.
        let designs = udp::designs().len() + tcp::designs().len() + device::designs().len();
        let lines = page.lines().filter(|line| line.starts_with("| [`") || line.starts_with("| `"));
        assert_eq!(lines.count(), designs + rio::Choice::ALL.len());
    }

    #[test]
    fn the_front_page_has_each_design_once_and_says_which_run_on_windows() {
        let page = listed(PAGE_OF_TESTS, &set(&["blocking", "tcp/poll"])).unwrap();
        let designs = udp::designs().len() + tcp::designs().len() + device::designs().len();
        assert_eq!(page.lines().filter(|line| line.starts_with("| `")).count(), designs);
        let there: Vec<_> = page.lines().filter(|line| line.ends_with(" | yes |")).collect();
        assert!(
            matches!(there[..], [udp, tcp] if udp.starts_with("| `blocking` | each")
            && tcp.starts_with("| `poll` | ")),
            "{there:?}"
        );
        assert_eq!(listed(&page, &set(&["blocking", "tcp/poll"])).unwrap(), page);
    }

    #[test]
    fn of_each_gap_a_test_asks_or_nothing_is_asserted() {
        assert_eq!(of_gaps(&sources().unwrap()), Vec::<String>::new());
    }

    #[test]
    fn a_gap_that_is_not_as_it_says_is_found() {
        let every = |is_asked: bool| {
            let those = wine::GAPS.iter().filter(move |gap| gap.is_asked == is_asked);
            those.map(|gap| format!("if wine::{}.is_left_out() {{}}", gap.constant))
        };
        let all: Vec<String> = every(true).collect();
        assert_eq!(of_gaps(&all), Vec::<String>::new());
        assert_eq!(of_gaps(&all[1..]).len(), 1);
        assert_eq!(
            of_gaps(&every(false).chain(all).collect::<Vec<_>>()).len(),
            every(false).count()
        );
    }

    #[test]
    fn what_must_run_is_told_as_the_suites_know_it() {
        let runs =
            set(&["blocking", "rio-event", "tcp/select", "provider batch", "provider winsock"]);
        let told = required(&runs);
        assert_eq!(told, ["blocking", "rio-event/batch", "rio-event/winsock", "tcp/select"]);
    }

    #[test]
    fn without_io_uring_all_must_run_that_stands_on_something_else() {
        let told = required(&without_io_uring());
        for runs in ["epoll", "rio-event/batch", "tcp/epoll", "tcp/blocking", "device/libaio"] {
            assert!(told.iter().any(|name| name == runs), "{runs} is not in {told:?}");
        }
        for not in
            ["port", "tcp/port", "tcp/ring", "rio-event/uring", "rio-event/xdp", "device/control"]
        {
            assert!(told.iter().all(|name| name != not), "{not} is in {told:?}");
        }
    }

    #[test]
    fn a_figure_is_a_row_of_a_table_with_the_name_and_a_number() {
        for (line, is_one) in [
            ("| `rio-polled`, `uring-sqpoll` | 0.13 M | 0.13 |", true),
            ("| *reads nothing:* `uring-sqpoll --depth 1` | ≥14.2 M |", true),
            ("| `uring-sqpoll` | a kernel thread polls | a core |", false),
            ("| `uring` | 2.14 M |", false),
            ("`uring-sqpoll` has 2 M | 3", false),
        ] {
            assert_eq!(has_figure(line, "uring-sqpoll"), is_one, "{line}");
        }
    }

    #[test]
    fn a_design_that_stands_on_nothing_there_cannot_be_claimed() {
        let error = filled(PAGE_OF_TESTS, &set(&["epoll"])).unwrap_err().to_string();
        assert!(error.contains("epoll"), "{error}");
        let without_marks = filled("# Page", &set(&[])).unwrap_err().to_string();
        assert!(without_marks.contains("systems: udp"), "{without_marks}");
    }

    #[test]
    fn the_summary_counts_what_runs_there() {
        const README: &str = "<!-- systems: summary -->\n<!-- systems: end -->\n";
        let text = summarized(README, &set(&["blocking", "port", "tcp/select"])).unwrap();
        assert!(text.contains(" designs | 2: `blocking`, `port` |\n"), "{text}");
        assert!(text.contains(" designs | 1: `select` |\n"), "{text}");
        assert!(text.contains("| devices | all 12 designs | none yet |\n"), "{text}");
    }
}
