//! The report of a result: written by the command, and opened from disk in a browser that has no network.

#![forbid(unsafe_code)]

#[cfg(unix)]
#[path = "report/browser.rs"]
mod browser;
mod common;

use std::path::{Path, PathBuf};

use common::{errors, output};

/// A recorded comparison of all kinds, made smaller: three designs of each, several loads, rows that are tied, undecided
/// and too noisy to be ranked.
const ALL: &str = include_str!("report/all.json");
/// A recorded comparison of memory.
#[cfg(unix)]
const MEMORY: &str = include_str!("report/memory.json");

/// A folder of this test's own.
fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("weir-report-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// The report of a document, in this folder.
#[cfg(unix)]
fn report_of(document: &str, folder: &Path) -> PathBuf {
    let file = folder.join("result.json");
    std::fs::write(&file, document).unwrap();
    let run = output(&["report", file.to_str().unwrap()]);
    assert_eq!(run.status.code(), Some(0), "{}", errors(&run));
    folder.join("report.html")
}

fn is_page(path: &Path) -> bool {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.starts_with("<!DOCTYPE html>") && text.ends_with("</html>")
}

#[test]
fn a_comparison_leaves_its_report_in_its_folder_and_where_it_is_asked_for() {
    if !common::can_compare("iops") {
        return;
    }
    let base = folder("kept");
    let asked = base.join("asked.html");
    let results = base.join("results");
    let run = output(&[
        "compare",
        "iops",
        "--design",
        "sync",
        "--rounds",
        "2",
        "--quick",
        "--report",
        asked.to_str().unwrap(),
        "--results",
        results.to_str().unwrap(),
    ]);
    common::assert_compared(&run);
    assert!(is_page(&asked));
    let text = String::from_utf8(run.stdout).unwrap();
    let kept = text.lines().last().unwrap().strip_prefix("results: ").unwrap();
    assert!(is_page(&Path::new(kept).join("report.html")), "{text}");
    // And it is made again from what was kept.
    let again = output(&["report", kept, "-o", "-"]);
    assert_eq!(again.status.code(), Some(0), "{}", errors(&again));
    let pictures = |page: &[u8]| String::from_utf8_lossy(page).matches("<svg role").count();
    let first = std::fs::read(Path::new(kept).join("report.html")).unwrap();
    assert!(pictures(&first) > 0);
    assert_eq!(pictures(&again.stdout), pictures(&first));
    // The report holds the result: it says the same as the document beside it.
    let page = Path::new(kept).join("report.html");
    let same = output(&["diff", kept, page.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&same.stdout);
    // On a busy machine the only row may have been given up.
    let judged = said.contains("1.00") && said.contains("too few rounds");
    let none = said.contains("no row in common");
    assert!(said.contains("The machines are alike") && (judged || none), "{said}{}", errors(&same));
    let itself = output(&["report", page.to_str().unwrap()]);
    assert_eq!(itself.status.code(), Some(2), "it does not replace what it is made from");
    assert!(errors(&itself).contains("-o"), "{}", errors(&itself));
    std::fs::remove_dir_all(base).unwrap();
}

#[test]
fn a_report_that_cannot_be_written_is_refused_before_anything_runs() {
    let run = output(&[
        "compare",
        "iops",
        "--design",
        "sync",
        "--no-save",
        "--report",
        "/nonexistent/x.html",
    ]);
    assert_eq!(run.status.code(), Some(1));
    assert!(
        errors(&run).contains("cannot write the report to /nonexistent/x.html"),
        "{}",
        errors(&run)
    );
}

#[test]
fn what_is_no_result_has_no_report() {
    let base = folder("refused");
    let file = base.join("x.json");
    for (text, why) in [("no json", "is not a JSON document"), ("{}", "schema_version")] {
        std::fs::write(&file, text).unwrap();
        let run = output(&["report", file.to_str().unwrap()]);
        assert_eq!(run.status.code(), Some(2));
        assert!(errors(&run).contains(why), "{}", errors(&run));
    }
    for name in ["2026-01-01T00-00-00Z-udp", "2026-01-02T00-00-00Z-udp"] {
        std::fs::create_dir_all(base.join("all").join(name)).unwrap();
        std::fs::write(base.join("all").join(name).join("result.json"), ALL).unwrap();
    }
    let of_all = output(&["report", base.join("all").to_str().unwrap()]);
    assert_eq!(of_all.status.code(), Some(2));
    for said in ["2026-01-02T00-00-00Z-udp, the newest", "`weir history --results "] {
        assert!(errors(&of_all).contains(said), "{}", errors(&of_all));
    }
    let missing = output(&["report", "/nonexistent/x.json"]);
    assert_eq!(missing.status.code(), Some(2));
    std::fs::write(&file, ALL).unwrap();
    let nowhere = output(&["report", file.to_str().unwrap(), "-o", "/nonexistent/x.html"]);
    assert_eq!(nowhere.status.code(), Some(1));
    assert!(!base.join("x.html").exists());
    std::fs::remove_dir_all(base).unwrap();
}

#[cfg(unix)]
mod in_a_browser {
    use serde_json::{Value, json};

    use super::browser::{Browser, name};
    use super::*;

    /// The pictures that the recorded comparison has figures for.
    const PLOTS: [&str; 15] = [
        "rate",
        "latency",
        "cpu",
        "batch",
        "threads",
        "rounds",
        "received",
        "lost",
        "latency-curve",
        "cpu-curve",
        "batch-curve",
        "threads-curve",
        "messages-curve",
        "memory-curve",
        "depth",
    ];
    /// Fewest pixels of another colour than the background in a picture: a row of text has more.
    const LEAST_DRAWN: usize = 300;
    /// Fewest that have a colour: a mark has more.
    const LEAST_COLOURED: usize = 20;

    /// A browser, or `None` where none is.
    fn browser(test: &str) -> Option<Browser> {
        match name() {
            Some(name) => Some(Browser::start(name, test)),
            None => {
                common::cannot_run("there is no chromium; apt-get install chromium");
                None
            }
        }
    }

    /// A picture on the page.
    struct Picture {
        /// Its anchor.
        anchor: String,
        /// Place and size.
        place: [f64; 4],
        /// Whether it has lines, each in a colour of its own; rows may all be grey.
        lines: bool,
    }

    /// The first of each kind.
    fn pictures(browser: &mut Browser) -> Vec<Picture> {
        let found = browser.value(
            "(seen => [...document.querySelectorAll('svg[data-plot]')]
                .filter(svg => !seen.has(svg.dataset.plot) && seen.add(svg.dataset.plot))
                .map(svg => {
                    const [at, figure] = [svg.getBoundingClientRect(), svg.closest('figure')];
                    return [
                        figure.id, at.left + scrollX, at.top + scrollY, at.width, at.height, !figure.classList.contains('rows'),
                    ];
                }))(new Set())",
        );
        let number = |value: &Value| value.as_f64().expect("a number");
        let of = |one: &Value| Picture {
            anchor: one[0].as_str().expect("an anchor").to_owned(),
            place: [number(&one[1]), number(&one[2]), number(&one[3]), number(&one[4])],
            lines: one[5] == true,
        };
        found.as_array().expect("a list").iter().map(of).collect()
    }

    /// That each picture is there, and that something is to be seen in it.
    fn assert_drawn(browser: &mut Browser, least: usize) {
        // As high as the page: a part of it is seen at once.
        browser.show_all();
        let all = pictures(browser);
        assert!(all.len() >= least, "{} pictures", all.len());
        for Picture { anchor, place, lines } in all {
            let [.., width, height] = place;
            assert!(width > 200.0 && height > 50.0, "{anchor}: {place:?}");
            let image = browser.image(place);
            assert_eq!(image.width, width.ceil() as usize, "{anchor}");
            assert!(image.height > 50, "{anchor}");
            assert!(image.drawn() > LEAST_DRAWN, "{anchor}: {} pixels are drawn", image.drawn());
            let coloured = image.coloured();
            assert!(
                !lines || coloured > LEAST_COLOURED,
                "{anchor}: {coloured} pixels have a colour"
            );
        }
    }

    /// That nothing was asked of any other place, and that nobody complained.
    fn assert_quiet(browser: &Browser, page: &Path) {
        for event in &browser.events {
            match event["method"].as_str().unwrap_or_default() {
                "Network.requestWillBeSent" => {
                    let url = event["params"]["request"]["url"].as_str().unwrap_or_default();
                    let own = format!("file://{}", page.display());
                    assert!(url == own || url == "data:,", "it asks for {url}");
                }
                "Runtime.consoleAPICalled" | "Runtime.exceptionThrown" | "Log.entryAdded" => {
                    panic!("{event:#}")
                }
                _ => {}
            }
        }
    }

    fn assert_no_overflow(browser: &mut Browser, width: u32) {
        let wide = browser.value("document.documentElement.scrollWidth").as_u64().unwrap();
        assert!(wide <= u64::from(width), "the page is {wide} pixels wide in a window of {width}");
    }

    #[test]
    fn it_opens_from_disk_in_every_width_and_theme() {
        let Some(mut browser) = browser("themes") else { return };
        let folder = folder("themes");
        let page = report_of(ALL, &folder);
        for width in [1280, 390] {
            for dark in [false, true] {
                browser.open(&page, width, dark);
                assert_no_overflow(&mut browser, width);
                let plots: Vec<Value> = PLOTS
                    .iter()
                    .map(|plot| {
                        browser.value(&format!("!!document.querySelector('[data-plot={plot}]')"))
                    })
                    .collect();
                assert_eq!(plots, vec![json!(true); PLOTS.len()], "{PLOTS:?}");
                assert_drawn(&mut browser, PLOTS.len());
                let top = browser.image([0.0, 0.0, f64::from(width), 300.0]).background();
                assert_eq!(top.iter().all(|part| *part < 60), dark, "the background is {top:?}");
                assert_quiet(&browser, &page);
                let drawn = browser.value(
                    "[performance.getEntriesByType('paint').map(paint => paint.startTime)[0] ?? 0,
                      Number(document.documentElement.dataset.drawn)]",
                );
                println!(
                    "{width} px, dark {dark}: first paint after {} ms, script ended after {} ms",
                    drawn[0], drawn[1]
                );
            }
        }
        std::fs::remove_dir_all(folder).unwrap();
    }

    /// The recorded comparison with so many more rows under each load, as large as a usual one or larger.
    fn with_more_rows(more: usize) -> String {
        let mut document: Value = serde_json::from_str(ALL).unwrap();
        for kind in ["udp", "tcp", "iops"] {
            let rows = document[kind]["results"].as_array_mut().unwrap();
            let recorded = std::mem::take(rows);
            for row in recorded {
                let is_plain = row["role"] == "plain" && row["reason"].is_null();
                for copy in 0..if is_plain { more } else { 0 } {
                    let mut row = row.clone();
                    row["spec"] = json!(format!("{} --copy {copy}", row["spec"].as_str().unwrap()));
                    rows.push(row);
                }
                rows.push(row);
            }
        }
        document.to_string()
    }

    /// Nothing is asserted of times: they are printed, and stand in the book.
    #[test]
    fn how_soon_the_first_picture_is_drawn_is_printed() {
        let Some(mut browser) = browser("first") else { return };
        let folder = folder("first");
        for (name, document) in [("small", ALL.to_owned()), ("usual", with_more_rows(5))] {
            let page = report_of(&document, &folder);
            let kilobytes = std::fs::metadata(&page).unwrap().len() / 1000;
            let mut times: Vec<f64> = (0..5).map(|_| browser.first_picture_ms(&page)).collect();
            times.sort_by(f64::total_cmp);
            println!(
                "{name} report of {kilobytes} kB: its first picture is drawn {:.0} ms after it was asked for \
                 ({:.0} to {:.0})",
                times[2], times[0], times[4]
            );
            // It is that picture, and something is to be seen in it.
            let first = pictures(&mut browser).remove(0);
            assert!(browser.image(first.place).drawn() > LEAST_DRAWN, "{}", first.anchor);
            assert!(times[0] > 0.0);
        }
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn it_reads_without_a_script() {
        let Some(mut browser) = browser("no-script") else { return };
        let folder = folder("no-script");
        let page = report_of(ALL, &folder);
        browser.allow_scripts(false);
        for width in [1280, 390] {
            browser.open(&page, width, false);
            assert_eq!(
                browser.value("document.documentElement.classList.contains('scripted')"),
                json!(false)
            );
            assert_no_overflow(&mut browser, width);
            assert_drawn(&mut browser, PLOTS.len());
            assert_quiet(&browser, &page);
            let shown = browser.value(
                "[...document.querySelectorAll('button, .script-only, .scales')]
                    .filter(one => one.getBoundingClientRect().width > 0).length",
            );
            assert_eq!(shown, json!(0), "what needs a script is not shown");
            let tables = browser.value("document.querySelectorAll('table.deciding').length");
            assert!(tables.as_u64().unwrap() >= 8, "{tables}");
        }
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn marks_stand_where_their_figures_are() {
        let Some(mut browser) = browser("marks") else { return };
        let folder = folder("marks");
        let page = report_of(ALL, &folder);
        browser.open(&page, 1280, false);
        let document: Value = serde_json::from_str(ALL).unwrap();
        // The medians of the first load, by the rows of its picture.
        let drawn = browser.value(
            "[...document.querySelectorAll('#udp-load-0-rate g.row')].map(row => {
                const mark = row.querySelector('.point');
                return [row.querySelector('.name').textContent, Number(mark.dataset.v), mark.getBoundingClientRect().left];
            })",
        );
        let rows = drawn.as_array().unwrap();
        let load = &document["udp"]["loads"][0]["name"];
        let medians: Vec<f64> = document["udp"]["results"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|row| row["load_name"] == *load)
            .filter_map(|row| row["metrics"]["received_per_s"]["median"].as_f64())
            .collect();
        assert_eq!(rows.len(), medians.len());
        let mut places: Vec<(f64, f64)> =
            rows.iter().map(|row| (row[1].as_f64().unwrap(), row[2].as_f64().unwrap())).collect();
        for (value, _) in &places {
            assert!(medians.contains(value), "{value} of {medians:?}");
        }
        places.sort_by(|one, other| one.0.total_cmp(&other.0));
        assert!(
            places.windows(2).all(|pair| pair[0].1 <= pair[1].1),
            "more is farther right: {places:?}"
        );
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_script_moves_marks_hides_designs_and_tells_figures() {
        let Some(mut browser) = browser("script") else { return };
        let folder = folder("script");
        let page = report_of(ALL, &folder);
        browser.open(&page, 1280, false);

        // Another scale: marks move, their figures stay, and the other ticks are seen. Back they stand where they were.
        let places = "[...document.querySelectorAll('#udp-load-0-rate [data-v]')]
            .map(mark => parseFloat(mark.getAttribute('cx') ?? mark.getAttribute('x1')))";
        let moved = |one: &Value, other: &Value| {
            let (one, other) = (one.as_array().unwrap(), other.as_array().unwrap());
            let pairs = one
                .iter()
                .zip(other)
                .map(|(a, b)| (a.as_f64().unwrap() - b.as_f64().unwrap()).abs());
            pairs.fold(0.0, f64::max)
        };
        let before = browser.value(places);
        browser.value("document.querySelectorAll('#udp-load-0-rate .scales button')[1].click()");
        assert!(
            moved(&browser.value(places), &before) > 1.0,
            "they moved by more than a percent of the width"
        );
        let ticks = "[...document.querySelectorAll('#udp-load-0-rate .ticks')].map(ticks => ticks.getBoundingClientRect().width > 0)";
        assert_eq!(browser.value(ticks), json!([false, true]));
        browser.value("document.querySelectorAll('#udp-load-0-rate .scales button')[0].click()");
        assert!(moved(&browser.value(places), &before) < 0.1, "they are back");
        assert_eq!(browser.value(ticks), json!([true, false]));

        // A design that is hidden is so in all pictures of its comparison, and in no other one.
        let shown = "[...document.querySelectorAll('svg[data-plot] [data-s=\"0\"]')]
            .filter(part => part.getBoundingClientRect().width > 0).map(part => part.closest('.study').id)";
        let count = |list: Value, study: &str| {
            list.as_array().unwrap().iter().filter(|one| **one == study).count()
        };
        let (udp, tcp) = (count(browser.value(shown), "udp"), count(browser.value(shown), "tcp"));
        assert!(udp > 5 && tcp > 5);
        browser.value(
            "document.querySelector('#udp-received .legend li[data-s=\"0\"] button').click()",
        );
        assert_eq!(count(browser.value(shown), "udp"), 0);
        assert_eq!(count(browser.value(shown), "tcp"), tcp);
        browser.value(
            "document.querySelector('#udp-received .legend li[data-s=\"0\"] button').click()",
        );
        assert_eq!(count(browser.value(shown), "udp"), udp);

        // Figures are told by keys and by the pointer.
        browser.value("document.querySelector('#udp-load-0-rate svg[data-plot]').focus({ preventScroll: true })");
        let tip = "document.getElementById('tip').textContent";
        assert_eq!(browser.value(tip), json!(""));
        browser.press("ArrowRight");
        let first = browser.value(tip);
        assert!(first.as_str().unwrap().contains(": "), "{first}");
        browser.press("ArrowRight");
        assert_ne!(browser.value(tip), first);
        browser.press("Escape");
        assert_eq!(browser.value(tip), json!(""));
        let at = browser.value(
            "(async () => {
                const mark = document.querySelector('#udp-load-0-latency g .point');
                mark.scrollIntoView({ block: 'center', behavior: 'instant' });
                for (let frame = 0; frame < 3; frame++) await new Promise(requestAnimationFrame);
                const at = mark.getBoundingClientRect();
                return [at.left + at.width / 2, at.top + at.height / 2];
            })()",
        );
        // A page that still scrolls tells nothing.
        let (x, y) = (at[0].as_f64().unwrap(), at[1].as_f64().unwrap());
        let mut nudge = 0.0;
        common::until("the pointer is told a figure", || {
            nudge = 1.0 - nudge;
            browser.point_at(x + nudge, y);
            browser.value(tip).as_str().is_some_and(|told| told.contains("µs"))
        });

        // The other theme.
        let background = "getComputedStyle(document.body).backgroundColor";
        let light = browser.value(background);
        browser.value("document.getElementById('theme').click()");
        assert_ne!(browser.value(background), light);

        // What a link leads to is opened, and what is closed is on paper, too.
        browser.value("location.hash = '#udp-load-0'");
        assert!(browser.printed().starts_with(b"%PDF"));
        assert_eq!(
            browser.value("document.querySelectorAll('details[open]').length"),
            json!(0),
            "closed again"
        );
        assert_quiet(&browser, &page);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn memory_and_failures_are_pages_too() {
        let Some(mut browser) = browser("others") else { return };
        let folder = folder("others");
        let page = report_of(MEMORY, &folder);
        browser.open(&page, 390, false);
        assert_drawn(&mut browser, 1);
        assert_no_overflow(&mut browser, 390);
        assert_quiet(&browser, &page);
        let failed = json!({ "schema_version": 1, "command": ["weir"], "results": [], "error": "<b>no core</b>" });
        let page = report_of(&failed.to_string(), &folder);
        browser.open(&page, 390, true);
        assert_no_overflow(&mut browser, 390);
        assert_quiet(&browser, &page);
        let said = browser.value("document.querySelector('[role=alert]').textContent");
        assert!(said.as_str().unwrap().contains("<b>no core</b>"), "{said}");
        std::fs::remove_dir_all(folder).unwrap();
    }
}

#[test]
fn pictures_of_lines_become_files() {
    let base = folder("plots");
    let (file, plots) = (base.join("result.json"), base.join("new/plots"));
    std::fs::write(&file, ALL).unwrap();
    let words = ["report", file.to_str().unwrap(), "--plots", plots.to_str().unwrap()];
    let run = output(&words);
    assert_eq!(run.status.code(), Some(0), "{}", errors(&run));
    let files: Vec<_> =
        std::fs::read_dir(&plots).unwrap().map(|file| file.unwrap().path()).collect();
    assert!(files.len() > 1, "{files:?}");
    for file in &files {
        let svg = std::fs::read_to_string(file).unwrap();
        assert!(svg.starts_with("<svg xmlns=") && svg.ends_with("</svg>"), "{}", file.display());
    }
    assert!(String::from_utf8_lossy(&run.stdout).contains(&format!("{} in ", files.len())));
    // One row under one load has none.
    let mut few: serde_json::Value = serde_json::from_str(ALL).unwrap();
    for kind in ["udp", "tcp", "iops"] {
        for part in ["results", "loads"] {
            few[kind][part].as_array_mut().unwrap().truncate(1);
        }
        few[kind].as_object_mut().unwrap().remove("sweeps");
    }
    std::fs::write(&file, few.to_string()).unwrap();
    let run = output(&words);
    assert_eq!(run.status.code(), Some(2), "{}", errors(&run));
    assert!(errors(&run).contains("no figures for a picture"), "{}", errors(&run));
    let _ = std::fs::remove_dir_all(&base);
}
