//! What the reports of all comparisons have in common, for a person ([`table`]) and for a program ([`document`]).

pub mod columns;
pub mod conclusion;
pub mod deciding;
pub mod document;
pub mod explain;
pub mod export;
pub mod html;
pub mod kinds;
pub mod layout;
pub(crate) mod missed;
pub mod model;
pub mod number;
pub(crate) mod peers;
pub mod pictures;
pub(crate) mod places;
pub mod schema;
pub mod screen;
pub(crate) mod sentences;
pub mod table;
pub(crate) mod words;

use serde::Serialize;
use serde_json::{Value, json};

use crate::experiment::course::Course;
use crate::experiment::plan::Row;
use crate::experiment::ranking::Ranking;
use crate::experiment::results::Results;
use crate::experiment::verdict::Limit;
use crate::hosts::Hosts;
use columns::Column;
use conclusion::Unit;
use pictures::{Aside, Overtaking, Pictures};

/// A question and what was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The question.
    pub question: &'static str,
    /// What the figures say to it; at least one sentence.
    pub sentences: Vec<String>,
}

impl<K: Reported> Results<K> {
    /// A row as it is called in sentences.
    pub fn title(&self, row: usize) -> String {
        K::title(&self.rows[row])
    }
}

/// A study as it is reported: for a person, and for a program.
pub trait Reported: Course<Sample: Serialize> + Serialize {
    /// What the document is about.
    const KIND: &'static str;
    /// What is counted, and what the first screen shows of it.
    const UNIT: Unit<Self::Sample>;
    /// What is counted under a load.
    fn one(_: &Self::Load) -> &'static str {
        Self::UNIT.one
    }

    /// What stands in the column of what limited a row, and what it means.
    const LIMITS: &'static str;
    /// What the page draws of it.
    const PICTURES: Pictures;
    /// Where the latencies of all runs of a row stand in the document.
    const LATENCY_FIELD: &'static str = "latency_of_all_runs_ns";
    /// Where a row's ratio to the measure stands in the document.
    const RATIO_FIELD: Option<&'static str> = None;

    /// A row as it is called in sentences.
    fn title(row: &Row) -> String {
        Self::name(row)
    }

    /// A row as it is called where its provider stands beside it.
    fn name(row: &Row) -> String;

    /// What limited a run, in a word.
    fn word(limit: Limit) -> &'static str {
        limit.word()
    }

    /// What stands in the place of that where a row's figures cannot be checked.
    fn doubted(_: &Results<Self>, _load: usize, _row: usize) -> Option<&'static str> {
        None
    }

    /// What the experiment ran on and with, besides the machine: a paragraph each.
    fn settings(results: &Results<Self>) -> Vec<String>;

    /// What the generators of a comparison over hosts are called, one of them.
    const GENERATOR: &'static str = "generator";

    /// Where the runs of a load were made, of a comparison over hosts.
    fn hosts(_: &Results<Self>, _load: usize) -> Option<Hosts> {
        None
    }

    /// Whether a load has a table of its own.
    fn has_table(_: &Self::Load) -> bool {
        true
    }

    /// What is said of a group behind the name of a load, where there are several.
    fn beside(group: Self::Group) -> &'static str;

    /// The columns of a load.
    fn columns(results: &Results<Self>, load: usize) -> Vec<Column<Self>>;

    /// Who wins, by how much, why, and whether the difference is real.
    fn summary(
        results: &Results<Self>,
        load: usize,
        group: Self::Group,
        ranking: &Ranking,
    ) -> Vec<String>;

    /// What else is said of a group under a load: a paragraph each.
    fn of_group(_: &Results<Self>, _load: usize, _group: Self::Group) -> Vec<String> {
        vec![]
    }

    /// What follows the tables of a load, as it is to be printed.
    fn after_load(_: &Results<Self>, _load: usize, _width: usize) -> String {
        String::new()
    }

    /// What follows those of all loads.
    fn after_loads(_: &Results<Self>, _width: usize) -> String {
        String::new()
    }

    /// What it concludes, where that is something else than who leads under which load: the headline, and a sentence
    /// each.
    fn conclusion(_: &Results<Self>) -> Option<(String, Vec<String>)> {
        None
    }

    /// Every question that this experiment can be asked.
    fn answers(results: &Results<Self>) -> Vec<Answer>;

    /// Where the ranking was found to change: a sentence for each point.
    fn turning_points(_: &Results<Self>) -> Vec<String> {
        vec![]
    }

    /// What a reader must know besides what the columns mean: a paragraph each.
    fn legend(_: &Results<Self>) -> Vec<String> {
        vec![]
    }

    /// A load in the document.
    fn load_value(load: &Self::Load) -> Value;

    /// What only this study says of a load.
    fn of_load_value(_: &Results<Self>, _load: usize) -> Value {
        json!({})
    }

    /// What only this study says of a group of rows under a load.
    fn of_group_value(_: &Results<Self>, _load: usize, group: Self::Group) -> Value;

    /// How the groups of a load stand in its object.
    fn groups_value(_: &Results<Self>, _load: usize, groups: Vec<Value>) -> Value {
        json!({ "groups": groups })
    }

    /// What only this study says of a row under a load.
    fn of_row_value(results: &Results<Self>, load: usize, row: usize) -> Value;

    /// What only this study says besides.
    fn of_all_value(_: &Results<Self>) -> Value {
        json!({})
    }

    /// Where its document says that one design overtakes another.
    fn overtakings(_document: &Value) -> Vec<Overtaking> {
        vec![]
    }

    /// A table of its document that only this study has.
    fn further(_document: &Value) -> Option<Aside> {
        None
    }

    /// What others published, beside what its document has.
    fn published(_document: &Value) -> Option<Aside> {
        None
    }
}
