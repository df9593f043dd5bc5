//! Results that were saved: their documents read again, held against each other, and against what is measured now.

pub mod claims;
pub mod diff;

use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde_json::Value;
use thiserror::Error;

use crate::experiment::cell::Better;
use crate::experiment::plan::row::OFFLOADED;
use crate::report::document::SCHEMA_VERSION;
use crate::report::html::document_of;
use crate::studies::NAMES;

/// The document in a folder of results.
pub const DOCUMENT: &str = "result.json";

/// A document is at most so long: that of the whole study has a hundredth of it.
const MOST_BYTES: u64 = 1 << 30;

/// Why a saved result cannot be used.
#[derive(Debug, Error)]
pub enum LoadError {
    /// It cannot be read.
    #[error("cannot read {}: {source}; name a file that `weir compare --json=FILE` wrote, a report, or a folder of results", path.display())]
    Unreadable {
        /// Where it is.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// It is no result, but has folders that are.
    #[error("{} holds several results, each in a folder of its own; name one of these, such as {}, the newest; \
             `weir history --results {}` lists them", path.display(), newest.display(), path.display())]
    OfFolders {
        /// Where it is.
        path: PathBuf,
        /// The newest of the folders.
        newest: PathBuf,
    },
    /// It is longer than any document.
    #[error("{} has more than {} MiB, which no document of `weir compare` has", path.display(), MOST_BYTES >> 20)]
    TooLong {
        /// Where it is.
        path: PathBuf,
    },
    /// It is no JSON.
    #[error("{} is not a JSON document: {source}; name a file that `weir compare --json=FILE` wrote, a report, or a \
             folder of results", path.display())]
    NotJson {
        /// Where it is.
        path: PathBuf,
        /// What the parser says.
        source: serde_json::Error,
    },
    /// It is no document of a comparison.
    #[error("{} holds no results of `weir compare`: {why}", path.display())]
    NotResults {
        /// Where it is.
        path: PathBuf,
        /// What is missing.
        why: String,
    },
}

/// A saved result.
#[derive(Debug, Clone)]
pub struct Saved {
    /// The file.
    pub path: PathBuf,
    /// What it holds.
    pub document: Value,
}

impl Saved {
    /// Reads a document with results, or that in a folder of results.
    ///
    /// # Errors
    /// Those of [`Saved::open`], and if it holds no results.
    pub fn load(path: &Path) -> Result<Self, LoadError> {
        let saved = Self::open(path)?;
        if saved.parts().is_empty() {
            let reason = saved.document["error"].as_str().unwrap_or("it has no loads");
            return Err(LoadError::NotResults { path: saved.path, why: reason.into() });
        }
        Ok(saved)
    }

    /// Reads any document of `weir compare`, one of a failure or of memory included, also from the report that holds it.
    ///
    /// # Errors
    /// If it cannot be read, is no JSON, no document of a comparison, or one of a newer version of weir.
    pub fn open(path: &Path) -> Result<Self, LoadError> {
        let path = match path.is_dir() {
            true if !path.join(DOCUMENT).exists() => {
                if let Some(newest) = newest_in(path) {
                    return Err(LoadError::OfFolders { path: path.to_owned(), newest });
                }
                path.join(DOCUMENT)
            }
            true => path.join(DOCUMENT),
            false => path.to_owned(),
        };
        let unread = |source| LoadError::Unreadable { path: path.clone(), source };
        let mut bytes = vec![];
        let file = std::fs::File::open(&path).map_err(unread)?;
        // What is no plain file does not say how long it is, and may have no end.
        file.take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(unread)?;
        if bytes.len() as u64 > MOST_BYTES {
            return Err(LoadError::TooLong { path });
        }
        let in_report = str::from_utf8(&bytes).ok().and_then(document_of).map(str::as_bytes);
        let document: Value = serde_json::from_slice(in_report.unwrap_or(&bytes))
            .map_err(|source| LoadError::NotJson { path: path.clone(), source })?;
        let refused = |why: String| LoadError::NotResults { path: path.clone(), why };
        match document["schema_version"].as_u64() {
            None => return Err(refused("it has no schema_version".into())),
            Some(version) if version > u64::from(SCHEMA_VERSION) => {
                return Err(refused(format!(
                    "its schema_version is {version}, and this weir knows {SCHEMA_VERSION}; use a newer weir"
                )));
            }
            Some(_) => {}
        }
        Ok(Self { path, document })
    }

    /// The comparisons in it, each of one kind.
    pub fn parts(&self) -> Vec<Part<'_>> {
        parts(&self.document)
    }

    /// The command that made it, as typed.
    pub fn command(&self) -> Vec<String> {
        strings(&self.document["command"])
    }
}

/// The newest of the folders of results in a folder: their names begin with when they were made.
fn newest_in(folder: &Path) -> Option<PathBuf> {
    let inside = std::fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
    inside.filter(|path| path.join(DOCUMENT).is_file()).max()
}

/// The comparisons in a document, each of one kind.
pub fn parts(document: &Value) -> Vec<Part<'_>> {
    let of = match document["kind"].as_str() {
        Some("all") => NAMES.iter().map(|kind| &document[*kind]).collect(),
        _ => vec![document],
    };
    of.into_iter().filter(|part| part["loads"].is_array()).map(Part).collect()
}

fn strings(list: &Value) -> Vec<String> {
    let list = list.as_array().into_iter().flatten();
    list.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// A metric of a row; a dot in its name leads into a group of them.
pub(crate) fn metric_of<'a>(row: &'a Value, name: &str) -> &'a Value {
    name.split('.').fold(&row["metrics"], |at, name| &at[name])
}

/// The document of a comparison of one kind.
#[derive(Debug, Clone, Copy)]
pub struct Part<'a>(pub &'a Value);

/// A row under a load in a document.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// The load.
    pub load: String,
    /// The row, with its options.
    pub spec: String,
    /// Its provider.
    pub provider: Option<String>,
    /// The metric that rows are ranked by under this load.
    pub metric: String,
    /// Its median.
    pub median: f64,
    /// The ends of its 95 % interval, where there were enough rounds.
    pub interval: Option<(f64, f64)>,
}

impl Figure {
    /// The row without its provider, which may be named in it or not.
    fn name(&self) -> String {
        let named = self.provider.as_ref().map(|provider| format!(" --provider {provider}"));
        named.map_or_else(|| self.spec.clone(), |named| self.spec.replace(&named, ""))
    }

    /// Which end of the metric is the good one: less is better of latencies alone.
    pub fn better(&self) -> Better {
        if self.metric.starts_with("latency") { Better::Lower } else { Better::Higher }
    }
}

impl<'a> Part<'a> {
    /// What was compared: udp, tcp or iops.
    pub fn kind(self) -> &'a str {
        self.0["kind"].as_str().unwrap_or("?")
    }

    /// What it concludes, in a sentence.
    pub fn headline(self) -> Option<&'a str> {
        self.0["conclusion"]["headline"].as_str()
    }

    /// A property of its machine, as text.
    pub fn machine(self, name: &str) -> Option<String> {
        match &self.0["machine"][name] {
            Value::Null => None,
            Value::String(text) => Some(text.clone()),
            other => Some(other.to_string()),
        }
    }

    /// The link that its datagrams or connections crossed, in words; `None` for loopback.
    pub fn link(self) -> Option<&'a str> {
        self.0["link"].as_str()
    }

    /// The median time from core to core before its runs, in ns.
    pub fn core_to_core_ns(self) -> Option<f64> {
        let runs = self.rows().filter_map(|row| row["runs"].as_array()).flatten();
        let times: Vec<f64> = runs.filter_map(|run| run["core_to_core_ns"].as_f64()).collect();
        crate::stats::median(&times)
    }

    pub(crate) fn loads(self) -> impl Iterator<Item = &'a Value> {
        self.0["loads"].as_array().into_iter().flatten()
    }

    pub(crate) fn rows(self) -> impl Iterator<Item = &'a Value> {
        self.0["results"].as_array().into_iter().flatten()
    }

    /// The figures of all rows that may be compared, by what each load is ranked by. Second names are none of
    /// them.
    pub fn figures(self) -> Vec<Figure> {
        let loads: Vec<&Value> = self.loads().collect();
        let figure = |row: &Value| {
            let of = loads.iter().find(|load| is_under(row, load))?;
            let metric = of["ranked_by"].as_str()?;
            let values = metric_of(row, metric);
            (row["role"] != "again" && row["reason"].is_null()).then_some(())?;
            Some(Figure {
                load: load_name(of),
                spec: spec_of(row, of)?,
                provider: row["provider"].as_str().map(str::to_owned),
                metric: metric.to_owned(),
                median: values["median"].as_f64()?,
                interval: values["low"].as_f64().zip(values["high"].as_f64()),
            })
        };
        self.rows().filter_map(figure).collect()
    }

    /// Differences below this share are noise under a load; `None` if that is not known.
    pub fn noise_floor(self, load: &str) -> Option<f64> {
        let of = self.loads().find(|of| load_name(of) == load)?;
        let groups = of["groups"].as_array().into_iter().flatten().chain([of]);
        let floors = groups.filter_map(|group| group["noise_floor_percent"].as_f64());
        floors.reduce(f64::max).map(|percent| percent / 100.0)
    }
}

/// A load as it is called in tables; in documents that do not say it, its fields.
pub(crate) fn load_name(load: &Value) -> String {
    load["name"].as_str().map_or_else(|| load["load"].to_string(), str::to_owned)
}

/// Whether a row of a document is one under this load.
pub(crate) fn is_under(row: &Value, load: &Value) -> bool {
    match row["load_name"].is_string() {
        true => load["name"] == row["load_name"],
        // A row says besides what it obtained, and whether it alone had receive offload.
        false => {
            let (own, of) = (row["load"].as_object(), load["load"].as_object());
            own.zip(of).map_or(row["load"] == load["load"], |(own, of)| {
                of.iter().all(|(name, asked)| {
                    own.get(name) == Some(asked)
                        || ["receive_offload", "send_offload"].contains(&name.as_str())
                        || name == "rcvbuf_bytes" && asked.is_null()
                })
            })
        }
    }
}

/// The text of a row of a document under this load, by which it is known there besides its provider.
pub(crate) fn spec_of(row: &Value, load: &Value) -> Option<String> {
    let offloaded = |load: &Value| load["receive_offload"] == true;
    let apart = offloaded(&row["load"]) && !offloaded(&load["load"]);
    Some(row["spec"].as_str()?.to_owned() + if apart { OFFLOADED } else { "" })
}

#[cfg(test)]
mod tests;
