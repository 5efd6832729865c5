//! The document of `tidegate stats` in the Prometheus text format, version 0.0.4.
//!
//! Counters of the session have fixed names; those of the buffer and of the source derive from the document's members,
//! `tidegate_buffer_...` and `tidegate_source_...`. Counters end in `_total`; values that can fall are gauges.

use std::fmt::{Display, Write};
use std::path::Path;

use results::shown;
use serde_json::{Map, Value};

use crate::document::Document;

/// The names of levels, whose values can fall, in each part of the document. All other members are counters.
#[derive(Clone, Copy, Debug, Default)]
pub struct Levels<'a> {
    /// Levels of the write buffer.
    pub buffer: &'a [&'a str],
    /// Levels of the layers that may be the source of a mount.
    pub source: &'a [&'a [&'a str]],
}

impl Levels<'_> {
    fn contain(&self, path: &str) -> bool {
        if let Some(name) = path.strip_prefix("tidegate_buffer_") {
            return self.buffer.contains(&name);
        }
        let name = path.strip_prefix("tidegate_source_");
        name.is_some_and(|name| self.source.iter().any(|levels| levels.contains(&name)))
    }
}

/// All counters of one mount.
#[must_use]
pub fn render(mountpoint: &Path, document: &Document, levels: Levels<'_>) -> String {
    let mountpoint = label_value(&mountpoint.display().to_string());
    let mut page = Page {
        text: String::new(),
        mountpoint,
        levels,
    };
    let session = &document.session;
    page.head("tidegate_up", "gauge", "1 while the daemon answers.");
    page.sample("tidegate_up", &[("source", &document.source)], 1);
    if let Some(uptime_ns) = document.uptime_ns {
        page.head(
            "tidegate_uptime_seconds",
            "gauge",
            "Time since the start of the mount.",
        );
        page.sample("tidegate_uptime_seconds", &[], uptime_ns / 1_000_000_000);
    }
    page.head(
        "tidegate_requests_total",
        "counter",
        "FUSE requests served, by operation.",
    );
    for operation in &session.operations {
        page.sample(
            "tidegate_requests_total",
            &[("operation", &operation.operation)],
            operation.count,
        );
    }
    page.head(
        "tidegate_request_errors_total",
        "counter",
        "FUSE requests answered with an error, by operation.",
    );
    for operation in &session.operations {
        page.sample(
            "tidegate_request_errors_total",
            &[("operation", &operation.operation)],
            operation.errors,
        );
    }
    page.head(
        "tidegate_requests_by_size_total",
        "counter",
        "Read and write requests, by size class in bytes.",
    );
    for class in &session.sizes {
        let bytes = class.bytes_max.to_string();
        for (operation, count) in [("read", class.reads), ("write", class.writes)] {
            let labels = [("operation", operation), ("bytes_max", bytes.as_str())];
            page.sample("tidegate_requests_by_size_total", &labels, count);
        }
    }
    page.head("tidegate_bytes_total", "counter", "Bytes moved by requests.");
    page.sample(
        "tidegate_bytes_total",
        &[("operation", "read")],
        session.read_bytes,
    );
    page.sample(
        "tidegate_bytes_total",
        &[("operation", "write")],
        session.written_bytes,
    );
    page.head(
        "tidegate_context_switches_total",
        "counter",
        "Context switches of the daemon.",
    );
    let switches = [
        ("voluntary", session.context_switches_voluntary),
        ("involuntary", session.context_switches_involuntary),
    ];
    for (kind, count) in switches {
        page.sample("tidegate_context_switches_total", &[("kind", kind)], count);
    }
    page.members("tidegate_session", "FUSE session", &session.more);
    page.members("tidegate_buffer", "Write buffer", &document.buffer);
    page.members("tidegate_source", "Source folder", &document.backing);
    page.text
}

struct Page<'a> {
    text: String,
    mountpoint: String,
    levels: Levels<'a>,
}

impl Page<'_> {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}")
            .expect("writing to a string can't fail");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let labels: String = labels
            .iter()
            .map(|(label, value)| format!(",{label}=\"{}\"", label_value(value)))
            .collect();
        writeln!(
            self.text,
            "{name}{{mountpoint=\"{}\"{labels}}} {value}",
            self.mountpoint
        )
        .expect("writing to a string can't fail");
    }

    /// One metric per number; nested members are prefixed with their parents' names.
    fn members(&mut self, prefix: &str, layer: &str, members: &Map<String, Value>) {
        for (name, value) in members {
            let path = format!("{prefix}_{name}");
            match value {
                Value::Object(inner) => self.members(&path, layer, inner),
                Value::Number(number) => self.member(&path, layer, number),
                Value::Bool(on) => self.member(&path, layer, u8::from(*on)),
                Value::Null | Value::String(_) | Value::Array(_) => {}
            }
        }
    }

    fn member(&mut self, path: &str, layer: &str, value: impl Display) {
        let words = path.trim_start_matches("tidegate_").replace('_', " ");
        let help = format!("{layer}: {words}, as in the JSON document.");
        // By convention `_total` is for counters, so a gauge drops it.
        let name = path.trim_end_matches("_total");
        if self.levels.contain(path) {
            self.head(name, "gauge", &help);
            self.sample(name, &[], value);
        } else {
            let name = format!("{name}_total");
            self.head(&name, "counter", &help);
            self.sample(&name, &[], value);
        }
    }
}

/// Escapes the special characters of the format, and active characters for which it has no escape.
fn label_value(text: &str) -> String {
    shown::lines(text)
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::example;

    #[test]
    fn every_sample_has_a_help_and_a_type_line_before_it() {
        let page = render(Path::new("/mnt"), &example(1), Levels::default());
        let mut typed = Vec::new();
        for line in page.lines() {
            let mut words = line.split([' ', '{']);
            match (words.next(), words.next()) {
                (Some("#"), Some("TYPE")) => typed.push(words.next().unwrap().to_owned()),
                (Some("#"), Some("HELP")) => {}
                (Some(name), _) => assert!(typed.iter().any(|typed| typed == name), "{line} has no type"),
                (None, _) => panic!("empty line"),
            }
        }
        assert!(typed.iter().any(|name| name == "tidegate_requests_total"));
    }

    #[test]
    fn each_metric_has_one_head() {
        let page = render(Path::new("/mnt"), &example(1), Levels::default());
        let mut heads: Vec<&str> = page.lines().filter(|line| line.starts_with("# TYPE")).collect();
        let all = heads.len();
        heads.sort_unstable();
        heads.dedup();
        assert_eq!(heads.len(), all);
    }

    #[test]
    fn levels_are_gauges_and_all_else_counts() {
        let levels = Levels {
            buffer: &["bytes_buffered", "causes_full"],
            source: &[&["other"], &["bytes_buffered"]],
        };
        let page = render(Path::new("/mnt"), &example(1), levels);
        for line in [
            "# TYPE tidegate_buffer_bytes_buffered gauge",
            "# TYPE tidegate_buffer_causes_full gauge",
            "# TYPE tidegate_buffer_flushes_total counter",
            "# TYPE tidegate_source_writes_total counter",
        ] {
            assert!(
                page.lines().any(|found| found == line),
                "{line} is missing in\n{page}"
            );
        }
    }

    #[test]
    fn labels_are_escaped() {
        let page = render(Path::new("/a\"b\\c\nd\u{1b}"), &example(1), Levels::default());
        assert!(page.contains(r#"mountpoint="/a\"b\\c\nd\\u001b""#), "{page}");
    }
}
