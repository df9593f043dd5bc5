//! The schema of the documents, for programs that read them. What is written is held against it in tests, and must
//! have no field that it does not name.

pub mod parts;

use std::borrow::Cow;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::Value;

use crate::report::Reported;
use crate::studies::{NAMES, studies};
use parts::{ComparisonOf, Dated, Failed, Part, Planned};

/// The schema of every document that `weir compare` writes.
pub fn schema() -> Schema {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let mut schema = settings.into_generator().into_root_schema_for::<Document>();
    schema.insert("title".into(), "A result of weir compare".into());
    schema
}

/// A document of any kind.
struct Document;

impl JsonSchema for Document {
    fn schema_name() -> Cow<'static, str> {
        "Document".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        macro_rules! comparison {
            ($study:ty) => {
                generator.subschema_for::<ComparisonOf<$study>>()
            };
        }
        macro_rules! others {
            ($study:ty) => {
                <$study as Reported>::other_documents(generator)
            };
        }
        let mut any = Vec::from(studies!(comparison));
        any.push(generator.subschema_for::<All>());
        any.extend(studies!(others).into_iter().flatten());
        any.push(generator.subschema_for::<Planned>());
        any.push(generator.subschema_for::<Failed>());
        json_schema!({
            "description": "What `weir compare` writes with --json, and keeps as result.json.",
            "anyOf": any,
        })
    }
}

/// The document of all kinds: its own fields, and a comparison of each kind.
struct All;

impl JsonSchema for All {
    fn schema_name() -> Cow<'static, str> {
        "All".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        macro_rules! part {
            ($study:ty) => {
                generator.subschema_for::<Part<ComparisonOf<$study>>>().to_value()
            };
        }
        let mut schema = AllFields::json_schema(generator);
        for (name, part) in NAMES.iter().zip(studies!(part)) {
            if let Some(fields) = schema.get_mut("properties").and_then(Value::as_object_mut) {
                fields.insert((*name).into(), part);
            }
            if let Some(required) = schema.get_mut("required").and_then(Value::as_array_mut) {
                required.push((*name).into());
            }
        }
        schema
    }
}

/// All kinds, one after the other.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "it is described, and never made")]
struct AllFields {
    #[serde(flatten)]
    dated: Dated,
    schema_version: u32,
    /// all.
    kind: String,
    command: Vec<String>,
    seed: u64,
    interrupted: bool,
    error: Option<String>,
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;
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
        let settings =
            Settings { depth: Depth::Full, rounds: None, budget_s: None, is_bound: false };
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
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../book/src/result.schema.json");
        let text = format!("{:#}\n", Value::from(schema()));
        if std::env::var_os("WEIR_BLESS").is_some() {
            std::fs::write(path, &text).unwrap();
        }
        let published = std::fs::read_to_string(path).unwrap_or_default();
        assert!(published == text, "{path} is old; make it anew with WEIR_BLESS=1");
    }
}
