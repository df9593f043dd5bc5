//! Prometheus' text format, version 0.0.4: a page of metrics.
//!
//! The crates that are well kept write OpenMetrics, where the name of a counter's family lacks `_total`: what reads
//! this older format, `promtool check metrics` among it, then finds counters without a type.

use std::fmt::Write as _;

/// What a scraper is told about the page.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Names and values of labels.
pub type Labels<'l> = &'l [(&'l str, &'l str)];

/// What kind a metric is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only ever grows while the process lives.
    Counter,
    /// As it is now.
    Gauge,
}

/// A value as it is written.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value {
    /// A count, or bytes.
    Count(u64),
    /// Time, in nanoseconds: written as seconds.
    Nanoseconds(u64),
}

impl From<u64> for Value {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

/// How many of what was measured lie at or below each bound, and how many there are at all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Histogram {
    /// Bounds, in rising order, each with how many lie at or below it.
    pub at_most: Vec<(u64, u64)>,
    /// The sum of everything measured, if known.
    pub sum: Option<u64>,
    /// How many there are.
    pub count: u64,
}

/// A page that is being written.
#[derive(Debug, Default)]
pub struct Page {
    text: String,
    /// Labels that each sample of a server has.
    common: Vec<(String, String)>,
}

impl Page {
    /// An empty page. Each metric that is written `of_server` has these labels.
    pub fn new(common: &[(String, String)]) -> Self {
        Self { text: String::new(), common: common.to_vec() }
    }

    /// A metric with one sample; none if its value is unknown.
    pub fn one(&mut self, kind: Kind, name: &str, help: &str, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.several(kind, name, help, &[(&[], value.into())]);
        }
    }

    /// A metric with several samples, which differ in their labels; none if there are no samples.
    pub fn several(&mut self, kind: Kind, name: &str, help: &str, samples: &[(Labels, Value)]) {
        if samples.is_empty() {
            return;
        }
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        self.head(name, kind, help);
        for (labels, value) in samples {
            self.sample(name, labels, *value);
        }
    }

    /// A distribution.
    pub fn histogram(&mut self, name: &str, help: &str, of: &Histogram) {
        self.head(name, "histogram", help);
        let bucket = format!("{name}_bucket");
        for (bound, count) in &of.at_most {
            self.sample(&bucket, &[("le", &bound.to_string())], Value::Count(*count));
        }
        self.sample(&bucket, &[("le", "+Inf")], Value::Count(of.count));
        if let Some(sum) = of.sum {
            self.sample(&format!("{name}_sum"), &[], Value::Count(sum));
        }
        self.sample(&format!("{name}_count"), &[], Value::Count(of.count));
    }

    /// All of it.
    pub fn text(self) -> String {
        self.text
    }

    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        // To a String nothing can fail.
        let _ = write!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    fn sample(&mut self, name: &str, labels: Labels, value: Value) {
        let own = labels.iter().copied();
        // What is of the process has the names that every program's has, and no label.
        let common = self.common.iter().filter(|_| !name.starts_with("process_"));
        let common = common.map(|(name, value)| (name.as_str(), value.as_str()));
        let labels: Vec<String> = common
            .chain(own)
            .map(|(name, value)| format!("{name}=\"{}\"", escaped(value)))
            .collect();
        self.text += name;
        if !labels.is_empty() {
            let _ = write!(self.text, "{{{}}}", labels.join(","));
        }
        let _ = match value {
            Value::Count(count) => writeln!(self.text, " {count}"),
            Value::Nanoseconds(ns) => writeln!(self.text, " {}", ns as f64 / 1e9),
        };
    }
}

/// The value of a label between its quotes.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_as_the_format_says() {
        let mut page = Page::new(&[("design".into(), "say \"a\\b\"\nc".into())]);
        page.one(Kind::Counter, "weir_x_total", "One \\ two\nthree.", Some(7));
        page.one(Kind::Gauge, "weir_unknown", "Nothing is known of it.", None::<u64>);
        page.several(Kind::Counter, "weir_none_total", "There is none.", &[]);
        let by_reason: [(Labels, Value); 2] =
            [(&[("reason", "a")], 1.into()), (&[("reason", "b")], u64::MAX.into())];
        page.several(Kind::Gauge, "weir_y", "Two.", &by_reason);
        let cpu = Some(Value::Nanoseconds(1_250_000_000));
        page.one(Kind::Counter, "process_cpu_seconds_total", "CPU time.", cpu);
        let expected = "\
# HELP weir_x_total One \\\\ two\\nthree.
# TYPE weir_x_total counter
weir_x_total{design=\"say \\\"a\\\\b\\\"\\nc\"} 7
# HELP weir_y Two.
# TYPE weir_y gauge
weir_y{design=\"say \\\"a\\\\b\\\"\\nc\",reason=\"a\"} 1
weir_y{design=\"say \\\"a\\\\b\\\"\\nc\",reason=\"b\"} 18446744073709551615
# HELP process_cpu_seconds_total CPU time.
# TYPE process_cpu_seconds_total counter
process_cpu_seconds_total 1.25
";
        assert_eq!(page.text(), expected);
    }

    #[test]
    fn a_histogram_ends_with_all() {
        let mut page = Page::default();
        let of = Histogram { at_most: vec![(1, 2), (4, 5)], sum: Some(30), count: 6 };
        page.histogram("weir_h", "Sizes.", &of);
        page.histogram("weir_i", "Sizes.", &Histogram { sum: None, ..Histogram::default() });
        let expected = "\
# HELP weir_h Sizes.
# TYPE weir_h histogram
weir_h_bucket{le=\"1\"} 2
weir_h_bucket{le=\"4\"} 5
weir_h_bucket{le=\"+Inf\"} 6
weir_h_sum 30
weir_h_count 6
# HELP weir_i Sizes.
# TYPE weir_i histogram
weir_i_bucket{le=\"+Inf\"} 0
weir_i_count 0
";
        assert_eq!(page.text(), expected);
    }
}
