//! The page of a simulation, and its pictures. What was computed by a model says so in its title, above everything, and
//! in each picture.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::chart::{Axis, Drawing, Line, Lines, Picture, Point, shapes};
use super::{SCRIPT, head};
use crate::report::number::{microseconds, si};
use crate::simulate::predict::answers;
use crate::simulate::report::{Document, MODEL};
use crate::simulate::{Copies, Design, Row};

/// Most bytes of the document in its page.
const MOST_DATA: usize = 2_000_000;

/// The page of a simulation, complete: one HTML file.
pub fn page(document: &Document) -> String {
    let pictures = pictures(document);
    let data = super::raw::escaped(&serde_json::to_value(document).unwrap_or_default());
    let (data, said) = match data.len() <= MOST_DATA {
        true => (data, "The document that this page was made from is in the page itself."),
        false => {
            ("null".into(), "The document that this page was made from is too large to be in it.")
        }
    };
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            (head("weir: a model of UDP designs on many cores"))
            body {
                (shapes())
                header {
                    p.brand { "weir" span { " model" } }
                    p.where { (document.command.join(" ")) }
                    button #theme type="button" hidden { "Dark" }
                }
                main {
                    section #conclusion {
                        h1 { "A model of UDP designs on many cores" }
                        p { strong { (MODEL) } }
                        @for answer in answers(&document.crossings) { p { (answer) } }
                    }
                    section #pictures {
                        h2 { "Pictures" }
                        div.plots { @for picture in &pictures { (picture.markup()) } }
                    }
                    (costs(document))
                    (rows(document))
                }
                section #raw-data {
                    h2 { "Raw data" }
                    p { (said) }
                    p.script-only { button #save type="button" { "Save it as result.json" } }
                }
                script #data type="application/json" { (PreEscaped(data)) }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    page.into_string()
}

fn costs(document: &Document) -> Markup {
    html! {
        section #costs {
            h2 { "Costs" }
            div.scroll { table {
                thead { tr { th scope="col" { "cost" } th scope="col" { "ns" } th scope="col" { "how it was found" } } }
                tbody { @for (name, cost) in &document.costs.0 { tr {
                    th scope="row" { (name) } td { (cost.ns) } td.words { (cost.how) }
                } } }
            } }
        }
    }
}

/// Most rows of the table: the others are in the raw data.
const MOST_ROWS: usize = 2000;

fn rows(document: &Document) -> Markup {
    let rows = &document.rows[..document.rows.len().min(MOST_ROWS)];
    html! {
        section #rows {
            h2 { "Rows of the model" }
            details {
                summary { "All figures: " (document.rows.len()) " rows" }
                @if document.rows.len() > MOST_ROWS { p { "The first " (MOST_ROWS) " of them." } }
                div.scroll { table {
                    thead { tr {
                        @for heading in ["design", "copies", "cores", "shared work ns", "offered/s", "received/s", "lost %",
                            "batch", "threads active", "cores busy", "p50 µs", "p99 µs"] { th scope="col" { (heading) } }
                    } }
                    tbody { @for row in rows { tr {
                        th scope="row" { (row.design) }
                        td { (row.copies) }
                        td { (row.cores) }
                        td { (row.shared_work_ns) }
                        td { (si(row.offered_per_s)) }
                        td { (si(row.received_per_s)) }
                        td { (format!("{:.1}", row.lost_percent)) }
                        td { (row.batch_mean.map_or("-".into(), |mean| format!("{mean:.1}"))) }
                        td { (row.threads_active) }
                        td { (format!("{:.2}", row.cores_busy)) }
                        td { (row.latency_ns.map_or("-".into(), |of| microseconds(of.p50))) }
                        td { (row.latency_ns.map_or("-".into(), |of| microseconds(of.p99))) }
                    } } }
                } }
            }
        }
    }
}

/// The pictures, each as a file of its own: its name and the SVG.
pub fn files(document: &Document) -> Vec<(String, String)> {
    pictures(document)
        .iter()
        .map(|picture| (format!("{}.svg", picture.id), picture.file()))
        .collect()
}

/// Rates over cores for each copying and work; rates and latencies over loads on the most cores, without shared work.
fn pictures(document: &Document) -> Vec<Picture> {
    let rows = &document.rows;
    let mut all = vec![];
    for copies in Copies::ALL {
        for work in distinct(rows, |row| row.shared_work_ns) {
            let of = |row: &&Row| row.copies == copies.name() && row.shared_work_ns == work;
            let highest = rows.iter().filter(of).map(|row| row.offered_per_s).fold(0.0, f64::max);
            let at = |row: &&Row| of(row) && row.offered_per_s == highest;
            all.extend(lines(
                "model-cores",
                format!("model-cores-{}-{work:.0}", copies.name()),
                format!("Model: datagrams received by cores, {}", circumstances(copies, work)),
                format!("{} {}/s are offered. {MODEL}", about(copies), si(highest)),
                ("cores", |row| row.cores as f64, whole),
                ("received/s", |row| Some(row.received_per_s), si),
                rows.iter().filter(at),
            ));
        }
        let most = rows.iter().map(|row| row.cores).max().unwrap_or(0);
        let least_work = distinct(rows, |row| row.shared_work_ns).first().copied().unwrap_or(0.0);
        let of = |row: &&Row| {
            row.copies == copies.name() && row.cores == most && row.shared_work_ns == least_work
        };
        let title = |what: &str| {
            format!("Model: {what} by load, {most} cores, {}", circumstances(copies, least_work))
        };
        all.extend(lines(
            "model-loads",
            format!("model-loads-{}", copies.name()),
            title("datagrams received"),
            format!("{} {MODEL}", about(copies)),
            ("offered/s", |row| row.offered_per_s, si),
            ("received/s", |row| Some(row.received_per_s), si),
            rows.iter().filter(of),
        ));
        all.extend(lines(
            "model-latency",
            format!("model-latency-{}", copies.name()),
            title("99th percentile of latency"),
            format!("From arrival until handled. {} {MODEL}", about(copies)),
            ("offered/s", |row| row.offered_per_s, si),
            ("p99 in µs", |row| row.latency_ns.map(|of| of.p99), microseconds),
            rows.iter().filter(of),
        ));
    }
    all
}

fn circumstances(copies: Copies, work: f64) -> String {
    let work =
        if work == 0.0 { "no shared work".into() } else { format!("{work:.0} ns of shared work") };
    match copies {
        Copies::Thread => format!("{work}, threads copy"),
        Copies::Stack => format!("{work}, the stack copies"),
    }
}

fn about(copies: Copies) -> &'static str {
    match copies {
        Copies::Thread => "The thread that dequeues copies, as on plain sockets.",
        Copies::Stack => "The network stack copies beforehand, as with RIO and AF_XDP.",
    }
}

fn whole(value: f64) -> String {
    format!("{value:.0}")
}

fn distinct(rows: &[Row], of: impl Fn(&Row) -> f64) -> Vec<f64> {
    let mut all: Vec<f64> = rows.iter().map(of).collect();
    all.sort_by(f64::total_cmp);
    all.dedup();
    all
}

/// An axis of a picture: what it shows, a row's figure, and how that is written.
type Side<'a, T> = (&'a str, fn(&Row) -> T, fn(f64) -> String);

/// A line for each design; `None` if there are not two places across.
fn lines<'a>(
    plot: &'static str,
    id: String,
    title: String,
    about: String,
    across: Side<'_, f64>,
    up: Side<'_, Option<f64>>,
    rows: impl Iterator<Item = &'a Row>,
) -> Option<Picture> {
    let rows: Vec<&Row> = rows.collect();
    let line = |(series, design): (usize, Design)| {
        let of = rows.iter().filter(|row| row.design == design.name());
        let points =
            of.filter_map(|row| Some(Point { x: across.1(row), y: up.1(row)?, interval: None }));
        let mut points: Vec<Point> = points.collect();
        points.sort_by(|one, other| one.x.total_cmp(&other.x));
        Line { name: design.name().into(), series, key: series.to_string(), points }
    };
    let series: Vec<Line> = Design::ALL
        .into_iter()
        .enumerate()
        .map(line)
        .filter(|line| line.points.len() > 1)
        .collect();
    let all = |of: fn(&Point) -> f64| -> Vec<f64> {
        series.iter().flat_map(|line| line.points.iter().map(of)).collect()
    };
    let (xs, ys) = (all(|point| point.x), all(|point| point.y));
    let across = Axis::log(across.0, &xs, across.2)?;
    let up = Axis::log(up.0, &ys, up.2)?;
    let drawing = Drawing::Lines(Lines { across, up, series, diagonal: false });
    Some(Picture { plot, id, title, about, drawing, keys: vec![] })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::{
        Course, Plan,
        costs::{Costs, ROUND},
        predict,
        report::Settings,
        simulate_all,
    };

    fn document() -> Document {
        let plan = Plan {
            designs: Design::ALL.to_vec(),
            copies: Copies::ALL.to_vec(),
            cores: vec![1, 2],
            loads: vec![1e5, 1e7],
            shared_work_ns: vec![0.0, 500.0],
            course: Course { datagrams: 2000, ..Course::default() },
            seed: 1,
        };
        let costs: Costs = ROUND;
        let rows = simulate_all(&plan.courses().unwrap(), &costs, |_, _| ());
        let crossings = predict::crossings(&rows);
        Document {
            schema_version: 1,
            kind: "simulation".into(),
            model: MODEL.into(),
            command: vec!["weir".into(), "simulate".into(), "</script><b>".into()],
            status: "completed".into(),
            seed: 1,
            answers: answers(&crossings),
            costs: costs.table("invented"),
            settings: Settings {
                buffer_datagrams: 1,
                flows: 1,
                train_datagrams: 1,
                dequeue_max: 1,
                threshold: 1,
                spin_us: 0.0,
                own_work_ns: 0.0,
            },
            crossings,
            rows,
            check: None,
        }
    }

    #[test]
    fn every_picture_and_the_page_say_that_it_is_a_model() {
        let document = document();
        let pictures = pictures(&document);
        assert_eq!(pictures.len(), 2 * (2 + 2));
        for picture in &pictures {
            assert!(picture.title.starts_with("Model: ") && picture.about.contains(MODEL));
        }
        let page = page(&document);
        assert!(
            page.contains(MODEL) && page.matches("<svg role=\"img\"").count() == pictures.len()
        );
        assert!(!page.contains("</script><b>"), "what a document says is text");
    }

    #[test]
    fn pictures_stand_alone() {
        for (name, svg) in files(&document()) {
            assert!(name.starts_with("model-") && name.ends_with(".svg"), "{name}");
            assert!(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""), "{svg:.80}");
            assert!(
                svg.contains("Model: ") && svg.contains("rio-sharded") && !svg.contains("var("),
                "{name}"
            );
        }
    }

    #[test]
    fn the_document_fits_its_schema_and_the_tables_its_rows() {
        let document = document();
        let schema = serde_json::from_str(crate::simulate::report::SCHEMA).unwrap();
        let value = serde_json::to_value(&document).unwrap();
        let errors: Vec<_> = jsonschema::validator_for(&schema)
            .unwrap()
            .iter_errors(&value)
            .map(|e| e.to_string())
            .collect();
        assert!(errors.is_empty(), "{errors:?}");
        assert_eq!(serde_json::from_value::<Document>(value).unwrap(), document);
        let csv = document.csv().unwrap();
        assert_eq!(csv.lines().count(), document.rows.len() + 1);
        assert!(csv.lines().skip(1).all(|line| line.starts_with("model,")));
        let (few, all) = (document.text(false, 80), document.text(true, 80));
        assert!(few.starts_with(MODEL) && all.lines().count() >= few.lines().count());
    }
}
