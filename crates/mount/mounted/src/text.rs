//! The document of `tidegate stats` as text: a table, or one line of rates per interval.

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use media::quantity::{about_bytes, show_bytes};
use results::{nearest_f64, shown};
use serde_json::{Map, Value};

use crate::document::Document;

/// Header of [`render_rates`].
pub const RATES_HEADER: &str =
    "   req/s  errors/s  read MB/s write MB/s source writes/s switches/s buffered KiB";

/// The whole document as a table.
#[must_use]
pub fn render(mountpoint: &Path, document: &Document) -> String {
    let mut text = title(mountpoint, document);
    section(&mut text, "negotiated");
    members(&mut text, &document.negotiated);
    operations(&mut text, document);
    sizes(&mut text, document);
    let session = &document.session;
    section(&mut text, "session");
    line(&mut text, "read bytes", &session.read_bytes.to_string());
    line(&mut text, "written bytes", &session.written_bytes.to_string());
    line(
        &mut text,
        "voluntary context switches",
        &session.context_switches_voluntary.to_string(),
    );
    line(
        &mut text,
        "involuntary context switches",
        &session.context_switches_involuntary.to_string(),
    );
    members(&mut text, &session.more);
    section(&mut text, "write buffer");
    members(&mut text, &document.buffer);
    section(&mut text, "source");
    members(&mut text, &document.backing);
    text
}

fn title(mountpoint: &Path, document: &Document) -> String {
    let (source, place) = (&document.source, mountpoint.display());
    let title = format!("{source} on {place}, process {}", document.pid);
    let up = document
        .uptime_ns
        .map(|uptime| format!(", up {}", about_time(uptime)));
    shown::line(&title).into_owned() + &up.unwrap_or_default() + "\n"
}

/// A time for people, in its two largest units.
fn about_time(nanos: u64) -> String {
    let seconds = nanos / 1_000_000_000;
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, minutes) => format!("{minutes} min {} s", seconds % 60),
        (0, hours, minutes) => format!("{hours} h {minutes} min"),
        (days, hours, _) => format!("{days} d {hours} h"),
    }
}

/// The counters of an attached card that are not zero, with units.
#[must_use]
pub fn card(title: &str, document: &Document) -> String {
    let mut text = shown::line(title).into_owned();
    let up = document
        .uptime_ns
        .map(|uptime| format!(", up {}\n", about_time(uptime)));
    text.push_str(up.as_deref().unwrap_or("\n"));
    for (name, value) in &document.backing {
        busy_member(&mut text, name, value);
    }
    text.push_str("\n(--json also shows counters that are zero)\n");
    text
}

/// Rates since the mount.
fn mean_rates(text: &mut String, document: &Document) {
    let Some(seconds) = document
        .uptime_ns
        .map(|uptime| nearest_f64(uptime) / 1e9)
        .filter(|seconds| *seconds > 0.0)
    else {
        return;
    };
    let session = &document.session;
    section(text, "per second since the mount");
    line(
        text,
        "requests",
        &format!("{:.1}", nearest_f64(requests(document)) / seconds),
    );
    for (name, bytes) in [("read", session.read_bytes), ("written", session.written_bytes)] {
        if bytes == 0 {
            continue;
        }
        line(
            text,
            name,
            &format!("{:.3} MB", nearest_f64(bytes) / 1e6 / seconds),
        );
    }
}

/// The counters that are not zero, with units, and the settings that are on.
#[must_use]
pub fn brief(mountpoint: &Path, document: &Document) -> String {
    let mut text = title(mountpoint, document);
    busy(&mut text, "negotiated", &document.negotiated);
    let mut operations: Vec<_> = document.session.operations.iter().collect();
    operations.retain(|operation| operation.count > 0);
    operations.sort_by_key(|operation| std::cmp::Reverse(operation.count));
    if !operations.is_empty() {
        section(&mut text, "requests");
    }
    for operation in operations {
        let errors = match operation.errors {
            0 => String::new(),
            errors => format!(", {errors} with an error"),
        };
        line(
            &mut text,
            &operation.operation,
            &format!("{}{errors}", operation.count),
        );
    }
    let session = &document.session;
    let mut counters = session.more.clone();
    counters.insert("read_bytes".to_owned(), session.read_bytes.into());
    counters.insert("written_bytes".to_owned(), session.written_bytes.into());
    busy(&mut text, "session", &counters);
    busy(&mut text, "write buffer", &document.buffer);
    busy(&mut text, "source", &document.backing);
    mean_rates(&mut text, document);
    text.push_str("\n(--all also shows counters that are zero, request sizes and reasons; --watch rates)\n");
    text
}

/// A section without the members that are zero, off or empty; nothing if none is left.
fn busy(text: &mut String, name: &str, counters: &Map<String, Value>) {
    let mut lines = String::new();
    for (name, value) in counters {
        busy_member(&mut lines, name, value);
    }
    if !lines.is_empty() {
        section(text, name);
        text.push_str(&lines);
    }
}

fn busy_member(text: &mut String, name: &str, value: &Value) {
    match value {
        Value::Object(inner) => {
            for (inner_name, value) in inner {
                busy_member(text, &format!("{name}_{inner_name}"), value);
            }
        }
        Value::Number(number) => match number.as_u64() {
            Some(0) => {}
            Some(number) => {
                let (name, value) = with_unit(name, number);
                line(text, &name, &value);
            }
            None => member(text, &name.replace('_', " "), value),
        },
        Value::Bool(false) | Value::Null => {}
        // Reasons for features that are off, a sentence each.
        Value::Array(items) if items.iter().all(Value::is_string) => {}
        other => member(text, &name.replace('_', " "), other),
    }
}

/// A counter with the unit that its name ends with.
fn with_unit(name: &str, number: u64) -> (String, String) {
    if let Some(name) = name.strip_suffix("_ns") {
        return (name.replace('_', " "), media::Nanos(number).to_string());
    }
    let name = ["_count", "_level"]
        .iter()
        .find_map(|unit| name.strip_suffix(unit))
        .unwrap_or(name);
    let shown = match name.split('_').any(|word| word == "bytes") {
        true => about_bytes(number),
        false => number.to_string(),
    };
    (name.replace('_', " "), shown)
}

/// The rates between two documents, as a line under [`RATES_HEADER`].
#[must_use]
pub fn render_rates(before: &Document, after: &Document, elapsed: Duration) -> String {
    let seconds = elapsed.as_secs_f64().max(1e-9);
    let per_second = |count: fn(&Document) -> u64| {
        u32::try_from(count(after).saturating_sub(count(before))).map_or(f64::INFINITY, f64::from) / seconds
    };
    let megabytes = |count: fn(&Document) -> u64| {
        u32::try_from(count(after).saturating_sub(count(before)) / 1000).map_or(f64::INFINITY, f64::from)
            / 1000.0
            / seconds
    };
    format!(
        "{:>8.0} {:>9.0} {:>10.1} {:>10.1} {:>15.0} {:>10.0} {:>12}",
        per_second(requests),
        per_second(errors),
        megabytes(|document| document.session.read_bytes),
        megabytes(|document| document.session.written_bytes),
        per_second(|document| number(&document.backing, "writes")),
        per_second(context_switches),
        number(&after.buffer, "bytes_buffered") / 1024,
    )
}

fn requests(document: &Document) -> u64 {
    document
        .session
        .operations
        .iter()
        .map(|operation| operation.count)
        .sum()
}

fn errors(document: &Document) -> u64 {
    document
        .session
        .operations
        .iter()
        .map(|operation| operation.errors)
        .sum()
}

fn context_switches(document: &Document) -> u64 {
    document.session.context_switches_voluntary + document.session.context_switches_involuntary
}

/// A counter by name; 0 if the daemon does not have it.
fn number(members: &Map<String, Value>, name: &str) -> u64 {
    members.get(name).and_then(Value::as_u64).unwrap_or(0)
}

fn operations(text: &mut String, document: &Document) {
    section(text, "requests");
    line(text, "operation", &format!("{:>14} {:>10}", "count", "errors"));
    for operation in &document.session.operations {
        line(
            text,
            &operation.operation,
            &format!("{:>14} {:>10}", operation.count, operation.errors),
        );
    }
}

fn sizes(text: &mut String, document: &Document) {
    section(text, "request sizes");
    line(text, "up to", &format!("{:>14} {:>10}", "reads", "writes"));
    for class in &document.session.sizes {
        line(
            text,
            &show_bytes(class.bytes_max),
            &format!("{:>14} {:>10}", class.reads, class.writes),
        );
    }
}

fn section(text: &mut String, name: &str) {
    text.push('\n');
    text.push_str(name);
    text.push('\n');
}

fn line(text: &mut String, name: &str, value: &str) {
    writeln!(text, "  {name:<34} {value}").expect("writing to a string can't fail");
}

/// All members by name; nested ones are prefixed with their parents' names.
fn members(text: &mut String, members: &Map<String, Value>) {
    for (name, value) in members {
        member(text, &name.replace('_', " "), value);
    }
}

fn member(text: &mut String, name: &str, value: &Value) {
    match value {
        Value::Object(inner) => {
            for (inner_name, value) in inner {
                member(text, &format!("{name} {}", inner_name.replace('_', " ")), value);
            }
        }
        Value::Array(items) if items.iter().all(Value::is_number) => {
            let items: Vec<String> = items.iter().map(Value::to_string).collect();
            line(text, name, &items.join("."));
        }
        Value::Array(items) => {
            for item in items {
                member(text, name, item);
            }
        }
        Value::Bool(on) => line(text, name, if *on { "on" } else { "off" }),
        Value::String(word) => line(text, name, word),
        Value::Null => line(text, name, "-"),
        Value::Number(number) => line(text, name, &number.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::example;

    #[test]
    fn the_table_names_every_counter() {
        let table = render(Path::new("/mnt"), &example(1));
        for name in [
            "lookup",
            "512 KiB",
            "bytes buffered",
            "writes",
            "source on /mnt",
            "transport",
        ] {
            assert!(table.contains(name), "{name} is missing in\n{table}");
        }
    }

    #[test]
    fn the_short_form_leaves_zeros_out_and_has_units() {
        let mut document = example(2);
        document
            .buffer
            .insert("entry_wait_ns".to_owned(), 1_500_000.into());
        document.buffer.insert("idle".to_owned(), 0.into());
        let text = brief(Path::new("/mnt"), &document);
        for line in [
            "lookup                             20, 2 with an error",
            "written bytes                      4 MiB",
            "entry wait                         1.5 ms",
            "causes full                        2",
        ] {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
        for absent in ["idle", "read bytes", "not granted"] {
            assert!(!text.contains(absent), "{absent} is in\n{text}");
        }
        assert!(text.lines().count() < render(Path::new("/mnt"), &document).lines().count());
    }

    #[test]
    fn the_title_has_the_uptime_and_the_end_has_rates_since_then() {
        let mut document = example(2);
        assert!(
            !brief(Path::new("/mnt"), &document).contains(", up "),
            "older daemons do not tell"
        );
        document.uptime_ns = Some(4_000_000_000);
        let text = brief(Path::new("/mnt"), &document);
        assert!(
            text.starts_with("/the/source on /mnt, process 7, up 4 s\n"),
            "{text}"
        );
        assert!(
            text.contains("requests                           5.0\n"),
            "{text}"
        );
        assert!(
            text.contains("written                            1.049 MB\n"),
            "{text}"
        );
        for (seconds, shown) in [
            (59, "59 s"),
            (61, "1 min 1 s"),
            (7260, "2 h 1 min"),
            (90_000, "1 d 1 h"),
        ] {
            assert_eq!(about_time(seconds * 1_000_000_000), shown);
        }
    }

    #[test]
    fn the_counters_of_a_card_have_units_and_no_zeros() {
        let mut document = example(1);
        let counters = [
            ("late_p50_ns", 2_500),
            ("reads_count", 7),
            ("written_bytes", 1536 << 10),
            ("erases_count", 0),
        ];
        document.backing = counters
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value.into()))
            .collect();
        let text = card("/dev/loop7: card x", &document);
        for line in [
            "late p50                           2.5 us",
            "reads                              7",
            "1.5 MiB",
        ] {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
        assert!(!text.contains("erases"), "{text}");
    }

    #[test]
    fn rates_fit_eighty_columns() {
        assert!(RATES_HEADER.len() <= 80);
        let line = render_rates(&example(1), &example(3), Duration::from_secs(2));
        assert_eq!(line.len(), RATES_HEADER.len());
    }

    #[test]
    fn rates_are_differences_over_the_time_between() {
        let line = render_rates(&example(1), &example(3), Duration::from_secs(2));
        let columns: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(columns[0], "10", "20 requests in 2 s: {line}");
        assert_eq!(columns[4], "4", "8 source writes in 2 s: {line}");
        assert_eq!(columns.len(), 7);
    }
}
