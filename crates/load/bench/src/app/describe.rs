//! The tables as text: each number with its label, and the source's claims beside the generated values.

use std::fmt::Write;

use super::applications;
use super::exact::{Bucket, Keep};
use super::generate::Scale;
use super::statistics::Statistics;
use super::table::{Application, Claim, Labelled, Place, Relation, Spread};
use crate::error::BenchError;

/// One line per application.
#[must_use]
pub fn list() -> String {
    let mut text =
        String::from("name             layer          requests  duration  scale  what its user does\n");
    for application in applications() {
        let layer = layer_word(application);
        let seconds = application.duration_ms.value.div_ceil(1000);
        let scale = results::nearest_f64(application.usual_scale_ppm) / 1e6;
        let line = format!(
            "{:<16} {layer:<13} {:>9} {seconds:>7} s {scale:>6}  {}\n",
            application.name,
            application.requests(),
            application.title
        );
        text.push_str(&line);
    }
    text
}

/// The full description of an application, with the statistics of its trace for this seed and scale.
///
/// # Errors
/// If the scale is too small or too large.
pub fn describe(application: &Application, seed: u64, scale: Scale) -> Result<String, BenchError> {
    let measured = Statistics::of(&application.generate(seed, scale)?);
    let mut text = format!(
        "{}: {}\n  source: {}\n  layer: {} ({})\n",
        application.name,
        application.title,
        application.source,
        layer_word(application),
        application.layer.describe()
    );
    let factor = results::nearest_f64(scale.ppm) / 1e6;
    let _ = writeln!(
        text,
        "\nWhat the source states, and what is generated at scale {factor}:"
    );
    for checked in application.check(&measured, scale) {
        let verdict = if checked.agrees { "" } else { "  DIFFERS" };
        let stated = relation_text(&checked.claim);
        let name = checked.claim.statistic.describe();
        let _ = writeln!(
            text,
            "  {name:<26} {stated:>18}   {:>12.3}{verdict}",
            checked.found
        );
    }
    text.push_str("\nParameters at scale 1:\n");
    let mut line = |name: &str, value: String, origin: &str, reason: &str| {
        let _ = writeln!(text, "  {name:<12} {value:<34} [{origin}] {reason}");
    };
    let mut labelled = |name: &str, value: String, label: (&str, &str)| line(name, value, label.0, label.1);
    labelled(
        "duration",
        format!("{} ms", application.duration_ms.value),
        label(&application.duration_ms),
    );
    labelled(
        "gaps",
        spread(application.gaps.value, &nanoseconds),
        label(&application.gaps),
    );
    let cache = if application.buffered.value {
        "through it"
    } else {
        "past it (O_DIRECT)"
    };
    labelled("page cache", cache.to_owned(), label(&application.buffered));
    for stream in application.streams {
        let direction = match stream.direction {
            super::Direction::Read => "reads",
            super::Direction::Write => "writes",
        };
        labelled("stream", format!("{} ({direction})", stream.name), ("-", ""));
        labelled(
            "  requests",
            stream.requests.value.to_string(),
            label(&stream.requests),
        );
        labelled("  bytes", stream.bytes.value.to_string(), label(&stream.bytes));
        labelled(
            "  sizes",
            spread(stream.sizes.value, &bytes),
            label(&stream.sizes),
        );
        labelled(
            "  sequential",
            permille(stream.sequential_permille.value),
            label(&stream.sequential_permille),
        );
        labelled(
            "  synced",
            permille(stream.synced_permille.value),
            label(&stream.synced_permille),
        );
        labelled("  place", place(stream.place.value), label(&stream.place));
    }
    Ok(text
        .replace("  stream       ", "\n  stream       ")
        .replace(" [-] \n", "\n"))
}

/// A claim as text: `96.9 +- 0.05`, `>= 70`.
pub(super) fn relation_text(claim: &Claim) -> String {
    match claim.relation {
        Relation::Within(precision) => format!("{} +- {precision}", claim.value),
        Relation::AtLeast => format!(">= {}", claim.value),
        Relation::AtMost => format!("<= {}", claim.value),
    }
}

/// Name of the layer in lists and records.
pub(super) const fn layer_word(application: &Application) -> &'static str {
    match application.layer {
        results::call_trace::Layer::SystemCalls => "system-calls",
        results::call_trace::Layer::Block => "block",
    }
}

const fn label<T>(labelled: &Labelled<T>) -> (&'static str, &'static str) {
    (labelled.origin.name(), labelled.reason)
}

fn permille(value: u64) -> String {
    format!("{} %", results::nearest_f64(value) / 10.0)
}

fn spread(spread: Spread, show: &dyn Fn(u64) -> String) -> String {
    let total: u64 = spread.buckets.iter().map(|bucket| bucket.weight).sum();
    let share = |bucket: &Bucket| {
        let percent = 100.0 * results::nearest_f64(bucket.weight) / results::nearest_f64(total);
        format!("{percent:.0}% to {}", show(bucket.up_to))
    };
    let shares: Vec<String> = spread
        .buckets
        .iter()
        .filter(|bucket| bucket.weight > 0)
        .map(share)
        .collect();
    let kept = match spread.keep {
        Keep::Buckets => "as they are",
        Keep::Shape => "times one factor",
    };
    format!("{} ({kept})", shares.join(", "))
}

fn bytes(value: u64) -> String {
    if value.is_multiple_of(1024) {
        format!("{}k", value / 1024)
    } else {
        value.to_string()
    }
}

fn nanoseconds(value: u64) -> String {
    format!("{}ms", results::nearest_f64(value) / 1e6)
}

fn place(place: Place) -> String {
    match place {
        Place::Files { folder, count, bytes } => format!("{folder}/: {count} files, {bytes} bytes in all"),
        Place::NewFile { name } => format!("{name}, made"),
        Place::Region { start_bytes, bytes } => format!("bytes {start_bytes} to {}", start_bytes + bytes),
    }
}
