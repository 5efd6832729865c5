//! Files that commands of tidegate write beside records and traces: the history, side-cars, reports and timelines.

use std::path::Path;

use super::content::Head;
use super::identity::{Identity, Kind, quoted};

/// Offset of the application's number in an SQLite file, and the number of the history (`TGHS`).
const APPLICATION_ID: (usize, &[u8]) = (68, b"TGHS");

/// Identifies a file by its first bytes, or a timeline by its name too.
pub fn identify(path: &Path, head: &Head) -> Option<Identity> {
    let bytes = head.bytes.as_slice();
    let is_at = |at: usize, magic: &[u8]| bytes.get(at..).is_some_and(|rest| rest.starts_with(magic));
    let output = |description: &str| Identity::new(Kind::Output, description);
    if is_at(0, b"TIDENAND") {
        let image = quoted(&path.with_extension("").display().to_string());
        return Some(output("the side-car of a NAND image").then(format!("tidegate nand info {image}")));
    }
    if is_at(0, b"SQLite format 3\0") && is_at(APPLICATION_ID.0, APPLICATION_ID.1) {
        let identity = output("a history of measurements");
        return Some(identity.then("tidegate bench history list --history FILE"));
    }
    if path.extension().is_some_and(|extension| extension == "pftrace") && is_at(0, b"\x0a") {
        return Some(output("a Perfetto trace (open it at ui.perfetto.dev)"));
    }
    if is_at(0, b"<!DOCTYPE html>") {
        return Some(output("an HTML page, such as a report (open it in a browser)"));
    }
    if is_at(0, b"<svg") {
        return Some(output("an SVG picture (open it in a browser)"));
    }
    document(&String::from_utf8_lossy(bytes))
}

/// A document in JSON, by the keys at its beginning.
fn document(head: &str) -> Option<Identity> {
    let begins = |key: &str| {
        head.trim_start()
            .strip_prefix('{')
            .is_some_and(|rest| rest.trim_start().starts_with(key))
    };
    let description = if begins("\"schema\":1,\"tables\"") || begins("\"traces\":") {
        "a report on block traces in JSON"
    } else if begins("\"fio version\"") {
        "results in the layout of fio's JSON"
    } else if begins("\"") {
        "a JSON document"
    } else {
        return None;
    };
    Some(Identity::new(Kind::Output, description).then("jq . FILE"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_told_apart_by_their_first_key() {
        let described = |text: &str| document(text).map(|identity| identity.description);
        assert_eq!(
            described("{\"schema\":1,\"tables\":["),
            Some("a report on block traces in JSON".to_owned())
        );
        assert_eq!(
            described("{\n  \"fio version\" : \"x\""),
            Some("results in the layout of fio's JSON".to_owned())
        );
        assert_eq!(described("[1]"), None);
        assert_eq!(described("{1}"), None);
    }
}
