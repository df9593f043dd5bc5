//! The check of the book: what mdbook would leave out or leave broken without a word, and what
//! readers could no longer find in the program.
//!
//! Every link within the book leads to a page, and to a heading of it; every page is in the
//! summary; every design has a chapter, which lists its options with the defaults they have; every published figure that
//! reports print is in the chapter of its study; and where designs are counted in words, the number is right.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    process::ExitCode,
};

use anyhow::Context as _;
use weir::{device, options::OptionInfo, tcp, udp};
use weir_lab::{tcp::classic, udp::report::published};

use crate::systems;

/// The page that lists the others.
const SUMMARY: &str = "SUMMARY.md";
/// The chapters of the studies whose figures reports print.
const STUDY_OF_UDP: &str = "originals/udp.md";
const STUDY_OF_TCP: &str = "originals/tcp.md";
/// How the name of a page ends.
const PAGE: &str = ".md";
/// How the names of files end that pages lead to, besides pages: images, schemas, and costs of the model.
const FILES: [&str; 4] = [".png", ".svg", ".json", ".toml"];

/// The README, beside the pages.
const README: &str = "README.md";

/// Where designs of UDP, TCP and devices are counted in words: the page, and what stands before and behind the number.
const COUNTED: &[(&str, Kind, &str, &str)] = &[
    (README, Kind::Udp, "**UDP**, ", " designs"),
    (README, Kind::Tcp, "**TCP**, ", " designs"),
    (README, Kind::Device, "**Devices**, ", " designs"),
    ("introduction.md", Kind::Udp, "a short chapter for each of\n  the ", ": steps"),
    ("introduction.md", Kind::Tcp, "a short chapter for each of the ", "."),
    ("introduction.md", Kind::Device, "a device that does nothing, in ", " designs"),
    ("designs.md", Kind::Udp, "weir has ", " ways for a UDP server"),
    ("tcp.md", Kind::Tcp, "weir has ", " ways for a TCP server"),
];

/// Numbers of designs as they are written.
const IN_WORDS: [&str; 21] = [
    "no",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
    "twenty",
];

#[derive(Debug, Clone, Copy)]
enum Kind {
    Udp,
    Tcp,
    Device,
}

impl Kind {
    /// How many designs there are, in words.
    fn count(self) -> &'static str {
        let count = match self {
            Self::Udp => udp::designs().len(),
            Self::Tcp => tcp::designs().len(),
            Self::Device => device::designs().len(),
        };
        IN_WORDS[count]
    }
}

/// Pages by their path below the book's sources, with `/` between folders; also other files that they lead to, without a text.
type Pages = BTreeMap<String, String>;

/// The chapter that a design must have.
struct Chapter {
    name: &'static str,
    page: String,
    options: Vec<OptionInfo>,
}

impl Chapter {
    fn udp(design: &udp::AnyDesign) -> Self {
        Self::of("designs", design.about().name, design.known_options())
    }

    fn tcp(design: &tcp::AnyDesign) -> Self {
        Self::of("tcp", design.about().name, design.known_options())
    }

    fn of(folder: &str, name: &'static str, options: Vec<OptionInfo>) -> Self {
        Self { name, page: format!("{folder}/{name}.md"), options }
    }
}

fn chapters() -> Vec<Chapter> {
    let tcp = tcp::designs();
    udp::designs().iter().map(Chapter::udp).chain(tcp.iter().map(Chapter::tcp)).collect()
}

/// Reads the book, prints what is wrong with it, and says failure if anything is.
pub fn check() -> anyhow::Result<ExitCode> {
    let mut pages = Pages::new();
    read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../book/src"), "", &mut pages)?;
    let chapters = chapters();
    let mut problems = problems(&pages, &chapters);
    problems.extend(unpublished(&pages, STUDY_OF_UDP, &figures_of_udp()));
    problems.extend(unpublished(&pages, STUDY_OF_TCP, &figures_of_tcp()));
    problems.extend(systems::problems(&pages)?);
    pages.insert(README.into(), systems::readme()?);
    problems.extend(miscounted(&pages));
    pages.remove(README);
    for problem in &problems {
        eprintln!("{problem}");
    }
    if !problems.is_empty() {
        eprintln!("book: {} problems; mend book/src", problems.len());
        return Ok(ExitCode::FAILURE);
    }
    let count = pages.keys().filter(|page| page.ends_with(PAGE)).count();
    println!("book: {count} pages, a chapter for each of {} designs", chapters.len());
    Ok(ExitCode::SUCCESS)
}

fn read(folder: &Path, prefix: &str, pages: &mut Pages) -> anyhow::Result<()> {
    let entries =
        fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    for entry in entries {
        let entry = entry?;
        let path = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            read(&entry.path(), &format!("{path}/"), pages)?;
        } else if path.ends_with(PAGE) {
            let text = fs::read_to_string(entry.path())
                .with_context(|| format!("cannot read the page {path}"))?;
            pages.insert(path, text);
        } else if FILES.iter().any(|ending| path.ends_with(ending)) {
            pages.insert(path, String::new());
        }
    }
    Ok(())
}

fn problems(pages: &Pages, chapters: &[Chapter]) -> Vec<String> {
    let broken = pages.iter().flat_map(|(page, text)| {
        links(text).filter_map(move |(line, target)| {
            let problem = what_is_broken(pages, page, target)?;
            Some(format!("{page}:{line}: {problem}"))
        })
    });
    let of_designs = chapters.iter().flat_map(|chapter| of_design(pages, chapter));
    broken.chain(unlisted(pages)).chain(of_designs).collect()
}

/// What is wrong with a link. Those that leave the book are not followed.
fn what_is_broken(pages: &Pages, page: &str, target: &str) -> Option<String> {
    if target.contains("://") {
        return None;
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let leads_to = if path.is_empty() { page.to_owned() } else { resolve(page, path) };
    let Some(text) = pages.get(&leads_to) else {
        return Some(format!("({target}) leads to no page of the book"));
    };
    let found = anchor.is_empty() || headings(text).any(|heading| anchor_of(heading) == anchor);
    (!found).then(|| format!("({target}): {leads_to} has no such heading"))
}

/// The path that a link of a page leads to.
fn resolve(page: &str, path: &str) -> String {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// The pages that mdbook would leave out.
fn unlisted(pages: &Pages) -> Vec<String> {
    let Some(summary) = pages.get(SUMMARY) else { return vec![format!("{SUMMARY} is missing")] };
    let listed: BTreeSet<&str> = links(summary).map(|(_, target)| target).collect();
    let is_unlisted = |page: &&String| {
        *page != SUMMARY && page.ends_with(PAGE) && !listed.contains(page.as_str())
    };
    pages.keys().filter(is_unlisted).map(|page| format!("{page} is not in {SUMMARY}")).collect()
}

/// What is wrong with the chapter of a design.
fn of_design(pages: &Pages, chapter: &Chapter) -> Vec<String> {
    let Chapter { name, page, options } = chapter;
    let Some(text) = pages.get(page) else {
        return vec![format!("the design {name} has no chapter: write {page}")];
    };
    let mut found = vec![];
    for (what, is_there) in [
        (format!("# {name}"), text.starts_with(&format!("# {name}\n"))),
        (
            format!("<!-- figures: {name} -->"),
            text.contains(&format!("<!-- figures: {name} -->\n")),
        ),
    ] {
        if !is_there {
            found.push(format!("{page}: the line {what:?} is missing"));
        }
    }
    // "| `--threads` | 150,000 | what it does |"
    let rows: Vec<String> = prose(text)
        .filter(|(_, line)| line.starts_with("| `--"))
        .map(|(_, line)| line.replace(',', ""))
        .collect();
    for option in options {
        let begins = format!("| `--{}` | {} |", option.name, option.default);
        if !rows.iter().any(|row| row.starts_with(&begins)) {
            found.push(format!("{page}: no row of a table begins {begins:?}"));
        }
    }
    for row in rows {
        let option = row.trim_start_matches("| `--").split('`').next().unwrap_or_default();
        if options.iter().all(|known| known.name != option) {
            found.push(format!("{page}: the design has no option --{option}"));
        }
    }
    found
}

/// What reports print of the study of UDP servers, in datagrams per second.
fn figures_of_udp() -> Vec<u64> {
    published::PUBLISHED.iter().map(|figure| figure.received_per_s as u64).collect()
}

/// What reports print of the study of TCP servers: connections attempted and made, and bytes per
/// second.
fn figures_of_tcp() -> Vec<u64> {
    let of_row = |row: &classic::Published| {
        let connections = row.connections.into_iter();
        let connections = connections.flat_map(|(attempted, made)| [attempted, made]);
        connections.map(u64::from).chain([row.received_per_s as u64]).collect::<Vec<_>>()
    };
    classic::PUBLISHED.iter().flat_map(of_row).collect()
}

/// The figures that no table of a study's chapter has.
fn unpublished(pages: &Pages, page: &str, figures: &[u64]) -> Vec<String> {
    let Some(text) = pages.get(page) else { return vec![format!("{page} is missing")] };
    let rows = prose(text).filter(|(_, line)| line.starts_with('|'));
    let numbers: BTreeSet<u64> = rows.flat_map(|(_, line)| numbers(line)).collect();
    let missing = figures.iter().filter(|figure| !numbers.contains(figure));
    missing.map(|figure| format!("{page}: no table has the published figure {figure}")).collect()
}

/// Where another number of designs is written than there are.
fn miscounted(pages: &Pages) -> Vec<String> {
    let wrong = COUNTED.iter().filter_map(|(page, kind, before, behind)| {
        let text = pages.get(*page).map_or("", String::as_str);
        let right = format!("{before}{}{behind}", kind.count());
        (!text.contains(&right)).then(|| format!("{page} does not say {right:?}"))
    });
    wrong.collect()
}

/// The whole numbers of a line, written with or without a comma between thousands.
fn numbers(line: &str) -> impl Iterator<Item = u64> {
    line.split(|letter: char| !letter.is_ascii_digit() && letter != ',')
        .filter_map(|number| number.replace(',', "").parse().ok())
}

/// The lines of a page that are no code, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    text.lines().zip(1..).filter_map(move |(line, number)| {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
            return None;
        }
        (!in_code).then_some((number, line))
    })
}

/// The targets of the links of a page, with the numbers of their lines.
fn links(text: &str) -> impl Iterator<Item = (usize, &str)> {
    prose(text).flat_map(|(number, line)| {
        let ends = line.split("](").skip(1);
        ends.filter_map(move |rest| Some((number, rest.split_once(')')?.0)))
    })
}

fn headings(text: &str) -> impl Iterator<Item = &str> {
    let marks = |line: &str| line.bytes().take_while(|byte| *byte == b'#').count();
    prose(text).filter_map(move |(_, line)| {
        let (level, rest) = (marks(line), line.trim_start_matches('#'));
        (level > 0 && rest.starts_with(' ')).then_some(rest)
    })
}

/// The name by which mdbook makes a heading known: its letters and digits in lower case, and a
/// hyphen for each space.
fn anchor_of(heading: &str) -> String {
    let part = |letter: char| match letter {
        letter if letter.is_alphanumeric() || letter == '_' || letter == '-' => {
            Some(letter.to_ascii_lowercase())
        }
        letter if letter.is_whitespace() => Some('-'),
        _ => None,
    };
    heading.trim().chars().filter_map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(texts: &[(&str, &str)]) -> Pages {
        texts.iter().map(|(page, text)| ((*page).to_owned(), (*text).to_owned())).collect()
    }

    /// The chapter that the check asks for.
    fn text(chapter: &Chapter) -> String {
        let name = chapter.name;
        let mut text = format!("# {name}\n\n");
        for option in &chapter.options {
            text += &format!("| `--{}` | {} | what it does |\n", option.name, option.default);
        }
        text + &format!("<!-- figures: {name} -->\n")
    }

    #[test]
    fn the_book_is_whole() {
        assert_eq!(check().unwrap(), ExitCode::SUCCESS);
    }

    #[test]
    fn links_lead_to_pages_and_their_headings() {
        let pages = pages(&[
            (SUMMARY, "[a](a.md) [b](folder/b.md)"),
            (
                "a.md",
                "# One, `two` & 3\n[b](folder/b.md#it-is) [far](https://example.org/x.md) ![c](images/c.png)",
            ),
            ("images/c.png", ""),
            ("folder/b.md", "## It is\n[up](../a.md#one-two--3) [here](#it-is)"),
        ]);
        assert_eq!(problems(&pages, &[]), Vec::<String>::new());
    }

    #[test]
    fn what_leads_nowhere_is_told_with_its_line() {
        let texts = [
            (SUMMARY, "[a](a.md)"),
            (
                "a.md",
                "# A\n\n```text\n# Not a heading, [nor](a-link.md)\n```\n[b](b.md) and\n[c](a.md#not-a-heading) [d](../a.md)\n",
            ),
            ("c.md", ""),
        ];
        let found = problems(&pages(&texts), &[]);
        assert_eq!(
            found,
            [
                "a.md:6: (b.md) leads to no page of the book",
                "a.md:7: (a.md#not-a-heading): a.md has no such heading",
                "a.md:7: (../a.md) leads to no page of the book",
                "c.md is not in SUMMARY.md",
            ]
        );
        assert_eq!(problems(&Pages::new(), &[]), ["SUMMARY.md is missing"]);
    }

    #[test]
    fn a_published_figure_that_the_chapter_of_its_study_lacks_is_named() {
        let pages = pages(&[(
            "udp.md",
            "384,000 is not in a table\n| IOCP | 360,000 | 31 % |\n| 7000/1008 |",
        )]);
        assert_eq!(unpublished(&pages, "udp.md", &[360_000, 7000, 1008]), Vec::<String>::new());
        assert_eq!(
            unpublished(&pages, "udp.md", &[384_000, 360, 31]),
            ["384000", "360"]
                .map(|figure| format!("udp.md: no table has the published figure {figure}"))
        );
        assert_eq!(unpublished(&pages, "tcp.md", &[]), ["tcp.md is missing"]);
    }

    #[test]
    fn a_number_of_designs_that_is_wrong_is_named() {
        let right: Pages =
            COUNTED.iter().fold(Pages::new(), |mut pages, (page, kind, before, behind)| {
                *pages.entry((*page).into()).or_default() +=
                    &format!("{before}{}{behind}\n", kind.count());
                pages
            });
        assert_eq!(miscounted(&right), Vec::<String>::new());
        let count = format!("weir has {} ways", Kind::Udp.count());
        let mut wrong = right;
        let text = wrong.get_mut("designs.md").expect("it is counted there");
        *text = text.replace(&count, "weir has many ways");
        let told = miscounted(&wrong);
        assert!(told.len() == 1 && told[0].contains(&count), "{told:?}");
    }

    #[test]
    fn a_design_needs_a_chapter_with_its_own_options() {
        let chapter = Chapter::udp(&udp::AnyDesign::parse("rio-polled").unwrap());
        let of = |text: &str| of_design(&pages(&[("designs/rio-polled.md", text)]), &chapter);
        let whole = text(&chapter).replace("150000", "150,000");
        assert_eq!(of(&whole), Vec::<String>::new());
        for (wrong, told) in [
            (whole.replace("# rio-polled", "# Polling"), "\"# rio-polled\" is missing"),
            (whole.replace("figures: rio-polled", "figures:"), "figures: rio-polled"),
            (whole.replace("150,000", "5000"), "`--outstanding` | 150000 |"),
            (whole.replace("dequeue-max", "dequeue-most"), "no option --dequeue-most"),
        ] {
            let found = of(&wrong);
            assert!(found.iter().any(|problem| problem.contains(told)), "{told}: {found:?}");
        }
        let missing = of_design(&Pages::new(), &chapter);
        assert!(missing[0].contains("designs/rio-polled.md"), "{missing:?}");
    }
}
