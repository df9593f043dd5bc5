//! Counters for the recorder that a program has installed by the crate `metrics`.

use super::names::Name;
use metrics::{Label, counter, describe_counter, gauge};

/// What is exported of one server: labels that all its metrics have.
pub(crate) struct Export(Vec<Label>);

impl Export {
    /// With the design and the provider among these settings in effect, and the program's own labels.
    pub(crate) fn of(settings: &[(String, String)], own: &[(&'static str, &str)]) -> Self {
        let told = settings.iter().filter_map(|(name, value)| match name.as_str() {
            "design" => Some(Label::new("design", value.clone())),
            "provider" => Some(Label::new("provider", value.clone())),
            _ => None,
        });
        Self(
            told.chain(own.iter().map(|(name, value)| Label::new(*name, (*value).to_owned())))
                .collect(),
        )
    }

    /// Sets the counters of a table to what was counted by now.
    pub(crate) fn counters(&self, table: &[Name], counted: &[(&'static str, u64)]) {
        for Name { counter, metric, label, help } in table {
            let Some((_, count)) = counted.iter().find(|(known, _)| known == counter) else {
                continue;
            };
            if !help.is_empty() {
                describe_counter!(*metric, *help);
            }
            let own = label.map(|(name, value)| Label::from_static_parts(name, value));
            let labels: Vec<Label> = self.0.iter().cloned().chain(own).collect();
            counter!(*metric, labels).absolute(*count);
        }
    }

    /// Sets a gauge.
    pub(crate) fn gauge(&self, metric: &'static str, value: u32) {
        gauge!(metric, self.0.clone()).set(value);
    }
}
