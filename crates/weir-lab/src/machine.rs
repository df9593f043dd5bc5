//! The machine an experiment ran on.

use serde::Serialize;
use serde_json::{Map, Value};

/// What is known of the machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Machine {
    /// Its properties by name, with units in the names; unknown ones are null.
    #[serde(flatten)]
    pub properties: Map<String, Value>,
    /// What makes its figures doubtful: other load, a governor that saves power.
    pub warnings: Vec<String>,
}

impl Machine {
    /// A property as text, or `None` where it is unknown.
    pub fn text(&self, name: &str) -> Option<String> {
        match self.properties.get(name)? {
            Value::Null => None,
            Value::String(text) => Some(text.clone()),
            other => Some(other.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_is_not_text() {
        let properties = Map::from_iter([
            ("cpu".to_owned(), Value::from("A CPU")),
            ("cores".to_owned(), Value::from(2)),
            ("governor".to_owned(), Value::Null),
        ]);
        let machine = Machine { properties, warnings: vec![] };
        assert_eq!(machine.text("cpu").as_deref(), Some("A CPU"));
        assert_eq!(machine.text("cores").as_deref(), Some("2"));
        assert_eq!((machine.text("governor"), machine.text("none")), (None, None));
    }
}
