//! Words of messages: numbers with their nouns, and mistyped words, the same on the command line, in job files and in settings.

use std::fmt;

/// A number with its noun.
#[must_use]
pub fn counted<N: fmt::Display + From<u8> + PartialEq>(number: N, noun: &str) -> String {
    let ending = if number == N::from(1) { "" } else { "s" };
    format!("{number} {noun}{ending}")
}

/// The word in `known` that was most likely meant: within a typing error, with its parts in another order, or the only one
/// that contains `word`.
#[must_use]
pub fn nearest<'known>(word: &str, known: &[&'known str]) -> Option<&'known str> {
    // One error in three letters is a typing error; more errors make a different word.
    let most_slips = word.chars().count().div_ceil(3).max(1);
    let near = known
        .iter()
        .map(|candidate| (strsim::osa_distance(word, candidate), *candidate))
        .filter(|(slips, _)| *slips <= most_slips)
        .min_by_key(|(slips, _)| *slips);
    let parts = |name: &str| {
        let mut parts: Vec<String> = name.split(['-', '_', ' ']).map(str::to_owned).collect();
        parts.sort();
        parts
    };
    let reordered = || known.iter().find(|candidate| parts(candidate) == parts(word));
    let containing = || {
        let mut found = known.iter().filter(|candidate| candidate.contains(word));
        let first = found.next().filter(|_| word.chars().count() >= SHORTEST_PART);
        first.filter(|_| found.next().is_none())
    };
    near.map(|(_, candidate)| candidate)
        .or_else(|| reordered().copied())
        .or_else(|| containing().copied())
}

/// Letters of a part that stands for a whole word.
const SHORTEST_PART: usize = 3;

/// The message about a word that is not in `known`, with the most likely intended one.
#[must_use]
pub fn unknown(word: &str, known: &[&str]) -> String {
    format!("`{word}` is none of {}", expected(word, known))
}

/// The words in `known`, with the one most likely intended by `word`, for the end of a message.
#[must_use]
pub fn expected(word: &str, known: &[&str]) -> String {
    let names = known.join(", ");
    match nearest(word, known) {
        Some(nearest) => format!("{names}; did you mean `{nearest}`?"),
        None => names,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_fingers_finds_its_word() {
        let known = ["record", "size", "threads", "write-target"];
        assert_eq!(nearest("recrod", &known), Some("record"));
        assert_eq!(nearest("thread", &known), Some("threads"));
        assert_eq!(nearest("siez", &known), Some("size"));
        assert_eq!(nearest("write_target", &known), Some("write-target"));
    }

    #[test]
    fn parts_of_a_name_find_it_in_any_order() {
        let known = ["app-install", "google-drive", "google-map"];
        assert_eq!(nearest("install-app", &known), Some("app-install"));
        assert_eq!(nearest("install", &known), Some("app-install"));
        assert_eq!(nearest("google", &known), None, "there are two");
        assert_eq!(nearest("in", &known), None, "too short");
    }

    #[test]
    fn another_word_is_not_guessed_at() {
        assert_eq!(nearest("colour", &["record", "size"]), None);
        assert_eq!(nearest("x", &["record"]), None);
    }
}
