//! A comparison that was made or planned: what it shows, and what a program reads of it.

use serde_json::Value;
use weir_lab::experiment::results::Results;
use weir_lab::report::Reported;
use weir_lab::report::conclusion::Claim;
use weir_lab::report::document::{document, with};
use weir_lab::report::screen::{LINES_OF_A_PART, foot_of_all, screen};
use weir_lab::report::table::report;
use weir_lab::saved::claims::{Judged, judge};

use crate::exit;
use crate::width::width;

/// The results of a comparison of any kind.
pub trait Made {
    /// All tables and sentences.
    fn details(&self) -> String;
    /// What became of the claims of another result, each with the kind of its comparison.
    fn judge(&self, claims: &[(String, Claim)]) -> Vec<Judged>;
}

impl<K: Reported> Made for Results<K> {
    fn details(&self) -> String {
        report(self, width())
    }

    fn judge(&self, claims: &[(String, Claim)]) -> Vec<Judged> {
        judge(self, claims)
    }
}

/// What a part is made of.
pub enum Content {
    /// A text is all there is.
    Text(String),
    /// Results of one kind.
    One(Box<dyn Made>),
    /// Those of several, each below its heading.
    All(Vec<(&'static str, Part)>),
}

/// A comparison that was made, or planned.
pub struct Part {
    /// The exit code that tells the truth about it.
    pub code: u8,
    /// What a program reads.
    pub document: Value,
    /// What is said before all else.
    pub said: String,
    /// What it is made of.
    pub content: Content,
}

impl Part {
    /// One that was only planned: there is its document, and nothing to print.
    pub fn planned(plan: Value) -> Self {
        Self::of(exit::OK, String::new(), plan)
    }

    /// One whose text is all there is.
    pub fn of(code: u8, text: String, document: Value) -> Self {
        Self { code, document, said: String::new(), content: Content::Text(text) }
    }

    /// One that was made.
    pub fn made<K: Reported>(results: Results<K>) -> Self {
        Self {
            code: results.exit_code(),
            document: document(&results),
            said: String::new(),
            content: Content::One(Box::new(results)),
        }
    }

    /// The same behind something that is said first, with more in the document.
    pub fn preceded_by(self, code: u8, said: String, more: Value) -> Self {
        let said = format!("{said}\n{}", self.said);
        Self { code, said, document: with(self.document, more), content: self.content }
    }

    /// The conclusion and the table that decides, in so many lines.
    /// `rest` is where that stands for which there is no place.
    pub fn screen(&self, lines: usize, rest: &str) -> String {
        let left = match self.said.lines().count() {
            0 => lines,
            said => lines.saturating_sub(said).max(LINES_OF_A_PART),
        };
        let shown = match &self.content {
            Content::Text(text) => text.clone(),
            Content::One(_) => screen(&self.document, width(), left, rest),
            Content::All(parts) => {
                let foot = foot_of_all(&self.document, width(), rest);
                let foot = match foot.as_slice() {
                    [] => String::new(),
                    lines => format!("\n{}\n", lines.join("\n")),
                };
                let left = left.saturating_sub(foot.lines().count());
                // Between two of them is an empty line.
                let each = ((left + 1) / parts.len().max(1)).saturating_sub(1);
                let screens = parts.iter().map(|(_, part)| part.screen(each, rest));
                let screens = screens.filter(|screen| !screen.is_empty()).collect::<Vec<_>>();
                screens.join("\n") + &foot
            }
        };
        format!("{}{shown}", self.said)
    }

    /// Everything that a person may read.
    pub fn details(&self) -> String {
        let shown = match &self.content {
            Content::Text(text) => text.clone(),
            Content::One(made) => {
                format!(
                    "{}\n{}",
                    screen(&self.document, width(), usize::MAX, "below"),
                    made.details()
                )
            }
            Content::All(parts) => {
                let details = parts.iter().map(|(heading, part)| {
                    let line = "=".repeat(heading.chars().count());
                    format!("{heading}\n{line}\n\n{}\n", part.details())
                });
                details.collect()
            }
        };
        format!("{}{shown}", self.said)
    }

    /// What became of the claims of another result, each with the kind of its comparison.
    pub fn judge(&self, claims: &[(String, Claim)]) -> Vec<Judged> {
        match &self.content {
            Content::Text(_) => vec![],
            Content::One(made) => made.judge(claims),
            Content::All(parts) => parts.iter().flat_map(|(_, part)| part.judge(claims)).collect(),
        }
    }
}
