//! What the document says of a comparison of TCP alone.

use serde_json::{Value, json};

use super::here;
use crate::tcp::classic::PUBLISHED;
use crate::tcp::results::Results;

/// The most that each row held, and what survives of the original's table; null if that was not asked for.
pub(super) fn classic(results: &Results) -> Value {
    let Some(classic) = &results.own.classic else { return Value::Null };
    let held = results
        .rows
        .iter()
        .zip(&classic.held)
        .filter_map(|(row, held)| Some(json!({ "spec": row.spec(), "most": held.as_ref()? })));
    let parts = ["as fast as they can", "at a rate", "the most"];
    let published = PUBLISHED.iter().map(|figure| {
        let found = here(results, figure.part, figure.ours);
        json!({
            "part": parts[figure.part],
            "model": figure.model,
            "attempted": figure.connections.map(|(attempted, _)| attempted),
            "connected": figure.connections.map(|(_, connected)| connected),
            "received_bytes_per_s": figure.received_per_s,
            "design": figure.ours,
            "measured_attempted": found.as_ref().map(|here| here.sample.attempted),
            "measured_connected": found.as_ref().map(|here| here.sample.connected),
            "measured_served": found.as_ref().map(|here| here.sample.served()),
            "measured_received_bytes_per_s": found.as_ref().and_then(|here| here.ranked_by),
            "unranked": found.as_ref().and_then(|here| here.unranked.clone()),
        })
    });
    json!({
        "most_tried": classic.most,
        "held": held.collect::<Vec<_>>(),
        "published": published.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::document::document;
    use crate::tcp::classic::{Classic, Held};
    use crate::tcp::results::tests::results;

    #[test]
    fn the_document_has_every_row_with_every_sample() {
        let results = results(&[("poll", 80e3), ("epoll", 100e3), ("go=x {port}", 90e3)], 1);
        let document = document(&results);
        assert_eq!((document["kind"].as_str(), &document["classic"]), (Some("tcp"), &Value::Null));
        assert_eq!(document["loads"][0]["groups"][0]["winner"], "epoll");
        let rows = document["results"].as_array().unwrap();
        assert_eq!(rows.len(), 4);
        assert_eq!((rows[1]["rank"].as_u64(), rows[1]["role"].as_str()), (Some(1), Some("plain")));
        assert_eq!(rows[2]["kind"], "peer");
        assert_eq!(rows[0]["polls"], false);
        let rate = &rows[0]["metrics"]["messages_per_s"];
        assert_eq!(rate["samples"].as_array().map(Vec::len), Some(7));
        assert!(rows[0]["metrics"]["round_trip_ns"]["p50"]["median"].is_number());
        assert_eq!(rows[0]["runs"].as_array().map(Vec::len), Some(7));
        assert!(!document.to_string().contains("NaN"));
    }

    #[test]
    fn what_was_held_stands_beside_what_was_published() {
        let mut results = results(&[("blocking", 20e3), ("port", 100e3)], 1);
        let held = Held {
            connections: Some(9000),
            broke_at: Some(9250),
            made_there: Some(9100),
            served_there: Some(9050),
            cause: Some("no thread".into()),
            sample: None,
        };
        results.own.classic = Some(Classic { most: 50_000, held: vec![Some(held), None, None] });
        let classic = &document(&results)["classic"];
        assert_eq!(classic["held"][0]["most"]["broke_at"], 9250);
        assert_eq!(classic["held"].as_array().map(Vec::len), Some(1));
        let published = classic["published"].as_array().unwrap();
        assert_eq!(published.len(), PUBLISHED.len());
        assert!(published[0]["measured_received_bytes_per_s"].is_number());
        assert!(published[1]["measured_received_bytes_per_s"].is_null());
    }
}
