//! The schema as it follows from the types. Only tests make it, so that nobody else builds what it takes.

use std::borrow::Cow;
use std::path::Path;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::Value;

use super::parts::{ComparisonOf, Dated, Failed, Part, Planned};
use crate::report::Reported;
use crate::studies::{NAMES, studies};

/// The schema of every document that `weir compare` writes.
pub fn schema() -> Schema {
    schema_of::<Document>("A result of weir compare")
}

/// The schema of what is written of this type.
pub fn schema_of<T: JsonSchema>(title: &str) -> Schema {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    schema.insert("title".into(), title.into());
    schema
}

/// Asserts that the schema which the program has is this one; with `WEIR_BLESS=1` its file is made anew.
pub fn assert_is_published(schema: Schema, published: &str, file: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    let text = format!("{:#}\n", Value::from(schema));
    if std::env::var_os("WEIR_BLESS").is_some() {
        std::fs::write(&path, &text).unwrap();
        return;
    }
    assert!(published == text, "{} is old; make it anew with WEIR_BLESS=1", path.display());
}

/// A study as its documents are described.
pub trait Described: Reported<Sample: JsonSchema> {
    /// The fields that only its documents have.
    type OfAll: JsonSchema;
    /// Those that only its loads have.
    type OfLoad: JsonSchema;
    /// Those that only its rows have.
    type OfRow: JsonSchema;

    /// The schemas of documents of its own that are no comparisons.
    fn other_documents(_: &mut SchemaGenerator) -> Vec<Schema> {
        vec![]
    }
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
                <$study as Described>::other_documents(generator)
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
