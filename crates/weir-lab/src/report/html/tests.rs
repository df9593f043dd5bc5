//! Pages of the fixtures, and of documents that are strange, empty or large.

use serde_json::{Value, json};

use super::page;
use crate::performance::Record;
use crate::report::document::{document, failure};
use crate::report::html::raw::MOST_BYTES;
use crate::report::model::{Standing, Study};
use crate::udp::report::fixture;

fn udp() -> Value {
    document(&fixture::results())
}

/// One document of all kinds, as `weir compare` writes it.
fn all() -> Value {
    let tcp = crate::tcp::results::tests::results(
        &[("poll", 80e3), ("epoll", 100e3), ("ring", 99.9e3)],
        1,
    );
    let devices =
        crate::device::results::tests::results(&[("sync", 2e6), ("ring --depth 7", 1e6)], 0);
    json!({
        "schema_version": 1, "kind": "all", "command": ["weir", "compare"], "seed": 7,
        "udp": udp(), "tcp": document(&tcp), "iops": document(&devices), "error": null, "interrupted": false,
    })
}

/// What stands in an attribute of each element that has it.
fn attributes<'a>(page: &'a str, name: &str) -> Vec<&'a str> {
    let start = format!(" {name}=\"");
    page.split(&start).skip(1).map(|rest| rest.split('"').next().unwrap_or_default()).collect()
}

/// The page up to its raw data.
fn body(page: &str) -> &str {
    page.split("<script id=\"data\"").next().unwrap_or_default()
}

fn data(page: &str) -> Value {
    let start = page.find("<script id=\"data\"").expect("raw data");
    let from = start + page[start..].find('>').expect("its start") + 1;
    let text = &page[from..from + page[from..].find("</script>").expect("its end")];
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error} in {text}"))
}

#[test]
fn anchors_are_unique_and_lead_somewhere() {
    for document in [udp(), all()] {
        let page = page(&document);
        let page = body(&page);
        let anchors = attributes(page, "id");
        for (index, anchor) in anchors.iter().enumerate() {
            assert!(!anchors[..index].contains(anchor), "{anchor} stands twice");
        }
        let links = attributes(page, "href");
        assert!(links.len() > 10, "{links:?}");
        for link in links.iter().filter(|link| **link != "data:,") {
            let anchor =
                link.strip_prefix('#').unwrap_or_else(|| panic!("{link} leads out of the page"));
            assert!(anchors.contains(&anchor), "{anchor} does not exist");
        }
        for of in
            attributes(page, "aria-labelledby").iter().chain(&attributes(page, "aria-describedby"))
        {
            assert!(anchors.contains(of), "{of} does not exist");
        }
    }
}

#[test]
fn every_claim_has_its_evidence() {
    let document = all();
    let page = page(&document);
    let mut claims = 0;
    for kind in ["udp", "tcp", "iops"] {
        for claim in document[kind]["conclusion"]["claims"].as_array().unwrap() {
            claims += 1;
            let anchor = claim["evidence"].as_str().unwrap().trim_start_matches('#');
            assert!(page.contains(&format!("id=\"{anchor}\"")), "{anchor}");
        }
        let headline = document[kind]["conclusion"]["headline"].as_str().unwrap();
        let words: Vec<&str> = headline.split(' ').filter(|word| !word.contains('-')).collect();
        assert!(words.iter().all(|word| page.contains(word)), "{headline}");
    }
    assert!(claims > 5);
}

#[test]
fn whatever_a_document_says_is_text() {
    const EVIL: &str = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'<!--";
    let mut document = udp();
    for row in document["results"].as_array_mut().unwrap() {
        row["design"] = json!(EVIL);
        row["name"] = json!(EVIL);
        row["limit"] = json!(EVIL);
        row["spec"] = json!(EVIL);
        row["reason"] = json!(EVIL);
        row["provider"] = json!(EVIL);
        row["failures"] = json!([EVIL]);
        row["limited_by"] = json!(EVIL);
        row["limit_reason"] = json!(EVIL);
    }
    document["conclusion"]["headline"] = json!(EVIL);
    document["conclusion"]["sentences"] = json!([EVIL]);
    document["conclusion"]["claims"][0]["text"] = json!(EVIL);
    document["conclusion"]["claims"][0]["evidence"] = json!(format!("javascript:{EVIL}"));
    document["warnings"] = json!([EVIL]);
    document["error"] = json!(EVIL);
    document["command"] = json!([EVIL]);
    document["loads"][0]["name"] = json!(EVIL);
    document["loads"][0]["summary"] = json!([EVIL]);
    let unknown = json!({ EVIL: { "median": 1.0, "unit": EVIL, "samples": [1.0] } });
    for row in document["results"].as_array_mut().unwrap() {
        row["load_name"] = json!(EVIL);
        row["metrics"][EVIL] = unknown[EVIL].clone();
    }
    document["machine"] = json!({ EVIL: EVIL });
    let page = page(&document);
    assert!(!page.contains("<script>alert") && !page.contains("<img"), "it became markup");
    assert!(!page.contains("javascript:</script>"));
    assert_eq!(page.matches("<script").count(), 2, "the data and the script of the page");
    assert_eq!(page.matches("</script>").count(), 2);
    assert!(!attributes(body(&page), "href").iter().any(|link| link.starts_with("javascript")));
    assert!(page.contains("&lt;script&gt;alert(1)"), "and it is shown");
    assert_eq!(data(&page)["conclusion"]["headline"], EVIL);
}

#[test]
fn marks_stand_at_the_figures_of_the_document() {
    let document = udp();
    let page = page(&document);
    let page = body(&page);
    let mut looked_at = 0;
    for (load, name) in [(0, "received_per_s"), (1, "latency_ns.p50")] {
        let start = page.find(&format!(" id=\"udp-load-{load}-rate\"")).expect("a picture");
        let figure = &page[start..start + page[start..].find("</figure>").unwrap()];
        let drawn: Vec<&str> = figure
            .split("<circle class=\"point point\"")
            .skip(1)
            .map(|mark| attributes(mark, "data-v")[0])
            .collect();
        let of_load = &document["loads"][load]["name"];
        let rows: Vec<&Value> = document["results"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|row| row["load_name"] == *of_load && row["status"] == "ok")
            .collect();
        assert_eq!(drawn.len(), rows.len());
        for row in rows {
            let median = name.split('.').fold(&row["metrics"], |at, part| &at[part])["median"]
                .as_f64()
                .unwrap();
            assert!(
                drawn.iter().any(|value| value.parse::<f64>().unwrap() == median),
                "{median} of {drawn:?}"
            );
            looked_at += 1;
        }
        // A dot for each run, hollow where it does not count: the machine was another in the fourth round.
        assert_eq!(
            figure.matches("class=\"dot").count(),
            8 * drawn.len() + 2,
            "and two in the key"
        );
        assert_eq!(figure.matches("class=\"dot out\"").count(), drawn.len() + 1);
    }
    assert!(looked_at > 5);
}

#[test]
fn a_paced_load_shows_what_latency_costs() {
    let mut document = udp();
    let load = document["loads"][1]["name"].clone();
    for (index, row) in document["results"].as_array_mut().unwrap().iter_mut().enumerate() {
        row["metrics"]["server_cpu_utilization_percent"] =
            json!({ "median": 20 + index, "unit": "percent", "samples": [] });
    }
    let counts =
        |row: &&Value| row["load_name"] == load && row["status"] == "ok" && row["role"] != "again";
    let all = document["results"].as_array().unwrap().clone();
    let expected = all.iter().filter(counts).count();
    assert!(expected > 1);
    let shown = page(&document);
    let start = shown.find("id=\"udp-load-1-frontier\"").expect("a picture");
    let picture = &shown[start..start + shown[start..].find("</figure>").unwrap()];
    let marks: Vec<&str> = picture.split("<use ").filter(|mark| mark.contains("data-x")).collect();
    assert_eq!(marks.len(), expected);
    for row in all.iter().filter(counts) {
        let [x, y] = [
            &row["metrics"]["server_cpu_utilization_percent"]["median"],
            &row["metrics"]["latency_ns"]["p99"]["median"],
        ]
        .map(|figure| figure.as_f64().unwrap().to_string());
        let is_it =
            |mark: &&str| attributes(mark, "data-x")[0] == x && attributes(mark, "data-v")[0] == y;
        assert!(marks.iter().any(is_it), "{x}, {y}: {marks:?}");
    }
    // Where the rate decides, each row has as much CPU time as it can get; and one row is no choice.
    assert!(!shown.contains("id=\"udp-load-0-frontier\""));
    let files = super::files(&document);
    let (_, svg) =
        files.iter().find(|(name, _)| name == "udp-load-1-frontier.svg").expect("a file");
    assert!(svg.starts_with("<svg xmlns=") && svg.contains("of the server"));
    document["results"] = json!([all.iter().find(counts)]);
    assert!(!page(&document).contains("-frontier"));
}

#[test]
fn pictures_are_there_where_their_figures_are() {
    let page = page(&all());
    for plot in ["rate", "latency", "cpu", "batch", "rounds", "received", "lost"] {
        assert!(page.contains(&format!("data-plot=\"{plot}\"")), "{plot}");
    }
    // One load of TCP, one depth of a device, one thread each: no curves of those.
    for plot in ["memory-curve", "depth", "delay", "threads", "sweep-threads"] {
        assert!(!page.contains(&format!("data-plot=\"{plot}\"")), "{plot}");
    }
}

#[test]
fn ties_look_like_ties_and_what_is_open_looks_undecided() {
    let results = crate::tcp::results::tests::results(
        &[("poll", 80e3), ("epoll", 100e3), ("ring", 99.95e3)],
        1,
    );
    let tied = document(&results);
    let studies = Study::all(&tied);
    let standing = |name: &str| {
        studies[0]
            .rows()
            .find(|(_, row)| row.name == name)
            .map(|(_, row)| row.standing)
            .expect("a row")
    };
    assert_eq!(
        [standing("epoll"), standing("ring"), standing("poll")],
        [Standing::Tied, Standing::Tied, Standing::Behind]
    );
    let shown = page(&tied);
    assert_eq!(shown.matches("<td class=\"rank\">1</td>").count(), 2);
    assert!(shown.contains("~1.00"));

    // Too few rounds: the best figure is no winner.
    let mut few = udp();
    for row in few["results"].as_array_mut().unwrap() {
        if row["winner_to_it"].is_object() {
            row["winner_to_it"]["verdict"] = json!("too_few_pairs");
            row["tied_with_winner"] = json!(false);
        }
    }
    let studies = Study::all(&few);
    assert!(
        studies[0]
            .rows()
            .all(|(_, row)| row.standing != Standing::Best && row.standing != Standing::Tied)
    );
    let shown = page(&few);
    assert!(shown.contains("<td class=\"rank\">?</td>") && !shown.contains("<tr class=\"best\""));

    // Too much noise: there is no rank at all.
    let mut noisy = udp();
    for row in noisy["results"].as_array_mut().unwrap() {
        row["rank"] = Value::Null;
        row["tied_with_winner"] = Value::Null;
        row["winner_to_it"] = Value::Null;
    }
    let studies = Study::all(&noisy);
    let mut figures = studies[0].loads[0].rows().filter(|row| row.value["status"] == "ok");
    assert!(figures.all(|row| matches!(row.standing, Standing::Open | Standing::Again)));
}

#[test]
fn a_document_without_results_is_a_page_that_says_why() {
    let failed = page(&failure(&["weir".into()], "nothing can run here", crate::exit::FAILED));
    assert!(failed.contains("No results") && failed.contains("nothing can run here"));
    let mut interrupted = fixture::results();
    interrupted.interrupted = true;
    interrupted.cells[1].iter_mut().for_each(|cell| cell.samples.clear());
    let shown = page(&document(&interrupted));
    assert!(shown.contains("ended before its plan was complete"));
    let mut nothing = fixture::results();
    nothing.interrupted = true;
    for cell in nothing.cells.iter_mut().flatten() {
        cell.samples.clear();
    }
    let shown = page(&document(&nothing));
    assert!(
        shown.contains("Interrupted before anything was measured") && !shown.contains("<svg role"),
        "no picture has figures"
    );
    let mut part = all();
    part["tcp"] = failure(&["weir".into()], "no core for the client", crate::exit::FAILED);
    assert!(page(&part).contains("weir compare tcp: no core for the client"));
    let mut plan = udp();
    plan["planned"] = json!(["blocking", "port"]);
    plan["results"] = json!([]);
    plan["conclusion"] = Value::Null;
    plan["loads"] = json!([{ "kind": "saturation", "rounds_aimed_at": 9 }]);
    let shown = page(&plan);
    assert!(
        shown.contains("only planned")
            && shown.contains("blocking, port")
            && !shown.contains("id=\"udp\"")
    );
    // What is no document at all.
    for strange in [
        json!(null),
        json!([]),
        json!({ "loads": [{}], "results": [{}] }),
        json!({ "loads": [null], "results": [7] }),
    ] {
        assert!(page(&strange).ends_with("</html>"), "{strange}");
    }
}

#[test]
fn no_row_is_lost_between_groups() {
    for (polls, groups) in [(Value::Null, 1), (json!(true), 1), (Value::Null, 2)] {
        let mut document = all()["tcp"].take();
        let rows = document["results"].as_array().unwrap().len();
        document["results"][0]["polls"] = polls;
        if groups == 2 {
            let mut second = document["loads"][0]["groups"][0].clone();
            second["polls"] = json!(true);
            document["loads"][0]["groups"].as_array_mut().unwrap().push(second);
        }
        let studies = Study::all(&document);
        assert_eq!(studies[0].rows().count(), rows);
    }
}

#[test]
fn one_row_is_enough_and_unknown_figures_are_left_out() {
    let mut one = udp();
    let first = one["results"][1].clone();
    one["results"] = json!([first]);
    one["loads"] = json!([one["loads"][0]]);
    one["conclusion"]["claims"] = json!([]);
    assert!(page(&one).contains("data-plot=\"rate\""));
    for metric in one["results"][0]["metrics"].as_object_mut().unwrap().values_mut() {
        *metric =
            json!({ "median": null, "low": null, "high": null, "samples": [null], "unit": "ns" });
    }
    one["results"][0]["latency_of_all_runs_ns"] = Value::Null;
    assert!(!page(&one).contains("<svg role"));
}

/// The documents of a usual comparison, with as many rows and rounds, as large.
fn large(rows: usize) -> Value {
    let mut document = all();
    for kind in ["udp", "tcp", "iops"] {
        let all = document[kind]["results"].as_array_mut().unwrap();
        let mut first = all[0].clone();
        let settings = json!({ "text": "x".repeat(700) });
        first["settings"] = settings.clone();
        for run in first["runs"].as_array_mut().unwrap() {
            run["settings"] = settings.clone();
        }
        for index in 0..rows {
            let mut row = first.clone();
            row["spec"] = json!(format!("design-{index} --threads 8"));
            row["design"] = json!(format!("design-{index}"));
            row["name"] = row["spec"].clone();
            row["role"] = json!("plain");
            all.push(row);
        }
    }
    document
}

#[test]
fn a_page_stays_below_its_limit() {
    let document = large(10);
    let page_of_usual = page(&document);
    assert!(document.to_string().len() > MOST_BYTES / 4 * 3, "{}", document.to_string().len());
    assert!(page_of_usual.len() < MOST_BYTES, "{}", page_of_usual.len());
    let kept = data(&page_of_usual);
    let pictures = body(&page_of_usual).len();
    assert!(
        kept["udp"]["results"][0]["runs"][0]["received_per_s"].is_number(),
        "every run of {} is in it beside {pictures} bytes",
        document.to_string().len()
    );
    assert!(page_of_usual.contains("What repeats is left out of it"));
    // Far more than is usual: what does not fit is left out, and that is said.
    let page_of_much = page(&large(120));
    assert!(page_of_much.len() < MOST_BYTES, "{}", page_of_much.len());
    assert!(page_of_much.contains("result.json"));
    assert!(page_of_much.contains("Designs that are not drawn: "));
}

#[test]
fn a_performance_log_is_drawn_and_left_out_of_the_raw_data() {
    let mut results = fixture::results();
    let record = |second: u64| Record {
        from_ns: second * 1_000_000_000,
        to_ns: (second + 1) * 1_000_000_000,
        counts: [("datagrams".to_owned(), 1000 + second)].into(),
        ..Record::default()
    };
    for cell in &mut results.cells[0] {
        for sample in &mut cell.samples {
            sample.performance = vec![record(0), record(1)];
        }
    }
    let document = document(&results);
    assert!(document.to_string().contains("\"performance\""));
    let page = page(&document);
    let plots = attributes(body(&page), "data-plot");
    assert!(plots.contains(&"log-rate"), "{plots:?}");
    assert!(!plots.contains(&"log-cpu"), "what is not known is not drawn: {plots:?}");
    assert!(!data(&page).to_string().contains("\"performance\""));
    assert!(page.contains("it stands in performance.ndjson and performance.csv"));
    assert!(!super::page(&udp()).contains("performance.ndjson"), "there is none");
}

#[test]
fn nothing_is_asked_of_another_place() {
    let page = page(&all());
    let page = body(&page);
    for word in ["http:", "https:", "src=", "@import", "url(", "fetch(", "XMLHttpRequest"] {
        assert!(!page.contains(word), "{word}");
    }
    assert!(page.contains("default-src 'none'"));
}

#[test]
fn memory_is_drawn_against_what_is_outstanding() {
    let row = |outstanding: u32, kernel: u32| {
        json!({
            "design": "port", "provider": "uring", "outstanding": outstanding, "kernel_bytes": kernel,
        })
    };
    let memory = json!({
        "schema_version": 1, "command": ["weir"], "status": "ok", "machine": {}, "noise_bytes": 0,
        "results": [row(100, 4096), row(1000, 65_536), row(5000, 1 << 20)],
    });
    let page = page(&memory);
    assert!(page.contains("data-plot=\"memory\"") && page.contains("64 KiB"));
}

#[test]
fn where_all_rows_have_receive_offload_their_noise_is_known() {
    let mut results = fixture::results();
    results.loads[0].receive_offload = true;
    let page = page(&document(&results));
    let of_load = page.split("id=\"udp-load-").nth(1).unwrap();
    assert!(
        of_load.contains("Noise floor ") && !of_load.contains("noise floor is unknown"),
        "{of_load}"
    );
}

#[test]
fn a_round_of_any_number_is_shown() {
    let mut document = document(&fixture::results());
    document["results"][0]["runs"][0]["block"] = json!(u64::MAX);
    assert!(page(&document).contains("id=\"udp-load-0\""));
}
