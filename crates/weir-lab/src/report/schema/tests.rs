use serde_json::{Map, Value, json};

use super::RESULT;
use super::described::{assert_is_published, schema};
use crate::exit;
use crate::experiment::plan::{Depth, Settings};
use crate::report::document::{document, failure, plan};

/// The same, and no field that it does not name.
fn strict(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            if fields.get("properties").is_some_and(Value::is_object) {
                fields.entry("additionalProperties").or_insert(false.into());
            }
            fields.values_mut().for_each(strict);
        }
        Value::Array(all) => all.iter_mut().for_each(strict),
        _ => {}
    }
}

/// What is wrong with a document of the kind that is described at this place of the root's list.
fn wrong(document: &Value, at: usize) -> Vec<String> {
    let mut schema = Value::from(schema());
    strict(&mut schema);
    let root = schema["anyOf"][at].clone();
    let fields = schema.as_object_mut().unwrap();
    fields.remove("anyOf");
    fields.extend(root.as_object().cloned().unwrap_or_else(Map::new));
    let validator = jsonschema::validator_for(&schema).unwrap();
    validator.iter_errors(document).map(|e| format!("{}: {e}", e.instance_path())).collect()
}

#[test]
fn documents_have_the_fields_that_are_described_and_no_others() {
    let udp = document(&crate::udp::report::fixture::results());
    assert_eq!(wrong(&udp, 0), Vec::<String>::new());
    let rows = [("epoll", 100e3), ("poll", 80e3), ("go=x {port}", 90e3)];
    let tcp = document(&crate::tcp::results::tests::results(&rows, 1));
    assert_eq!(wrong(&tcp, 1), Vec::<String>::new());
    let rows = [("sync", 2e6), ("ring --depth 7", 1e6), ("fio psync=fio", 9e5)];
    let mut devices = crate::device::results::tests::results(&rows, 0);
    devices.own.long_runs[0] = Some(crate::device::results::LongRun::Failed("no".into()));
    assert_eq!(wrong(&document(&devices), 2), Vec::<String>::new());
    let failed = failure(&["weir".into()], "no design can run", exit::FAILED);
    assert_eq!(wrong(&failed, 6), Vec::<String>::new());
    let settings = Settings { depth: Depth::Full, rounds: None, budget_s: None, is_bound: false };
    assert_eq!(wrong(&plan(&devices, &settings), 5), Vec::<String>::new());
    let all = json!({
        "schema_version": 1, "kind": "all", "command": [], "seed": 1, "interrupted": false, "error": null,
        "udp": udp, "tcp": tcp, "iops": failed,
    });
    assert_eq!(wrong(&all, 3), Vec::<String>::new());
}

#[test]
fn what_is_missing_unknown_or_of_another_type_is_found() {
    let whole = document(&crate::udp::report::fixture::results());
    for (path, value) in [
        ("/seed", json!("7")),
        ("/loads/0/rounds", json!(true)),
        ("/results/0/rank", json!("first")),
    ] {
        let mut changed = whole.clone();
        *changed.pointer_mut(path).unwrap() = value;
        assert_eq!(wrong(&changed, 0).len(), 1, "{path}");
    }
    let mut more = whole.clone();
    more["results"][0]["surprise"] = 1.into();
    assert_eq!(wrong(&more, 0).len(), 1);
    let mut less = whole;
    less["results"][0].as_object_mut().unwrap().remove("reason");
    assert_eq!(wrong(&less, 0).len(), 1);
}

#[test]
fn the_published_schema_is_this() {
    assert_is_published(schema(), RESULT, "src/report/schema/result.schema.json");
}
