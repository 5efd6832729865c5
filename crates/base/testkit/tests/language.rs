//! Lint over the text around the code: comments in Rust, shell, Python and TOML, the pages in `docs` and beside them, and
//! the help texts and messages of the programs.
//!
//! It enforces the rules of CONTRIBUTING.md that a program can check: a sentence or heading names its subject instead of
//! describing it by a clause ("What is buffered" for "dirty bytes"), and avoids a list of literal translations. Questions are
//! fine. [`EXCEPTIONS`] is for sentences where a rule is wrong; a canary shows that the lint fires.

use std::fs;
use std::path::{Path, PathBuf};

/// Openings that put a clause in place of a noun.
const OPENINGS: &[&str] = &[
    "What",
    "Where",
    "Who",
    "Whose",
    "Of",
    "So much",
    "So many",
    "How soon",
    "How much",
    "How many",
    "How long",
    "How far",
    "How often",
    "That which",
    "As much as",
    "For who",
    "To who",
    "By whom",
    "By what",
    "For what",
    "With what",
    "In what",
    "From what",
    "Whatever",
    "Whoever",
];

/// Phrases that have a plain equivalent.
const PHRASES: &[&str] = &[
    "in vain",
    "is led to",
    "are led to",
    "was led to",
    "to be had",
    "told of",
    "in the first place",
    "somebody",
    "who asks",
    "who waits",
    "who writes",
    "who reads",
    "who calls",
    "who needs",
    "who wants",
    "nothing of",
    "of its own accord",
];

/// Fragments of sentences that may stay.
const EXCEPTIONS: &[&str] = &[];

/// Words that "Of" may begin a sentence with.
const IDIOMS: &[&str] = &["Of course"];

fn fault(sentence: &str) -> Option<String> {
    if sentence.ends_with('?') || EXCEPTIONS.iter().any(|allowed| sentence.contains(allowed)) {
        return None;
    }
    let begins = |words: &str| {
        sentence.strip_prefix(words).is_some_and(|rest| {
            !rest.starts_with(|next: char| next.is_alphanumeric() || next == '\'' || next == '-')
        })
    };
    if let Some(opening) = OPENINGS.iter().find(|opening| begins(opening))
        && !IDIOMS.iter().any(|idiom| begins(idiom))
    {
        return Some(format!("begins with \"{opening}\""));
    }
    if sentence.ends_with(" alone.") {
        return Some("\"alone\" at the end; write \"only\" before the word".to_owned());
    }
    let lower = sentence.to_lowercase();
    PHRASES
        .iter()
        .find(|phrase| contains_words(&lower, phrase))
        .map(|phrase| format!("\"{phrase}\""))
}

fn contains_words(text: &str, words: &str) -> bool {
    text.match_indices(words).any(|(at, found)| {
        let is_inside = |next: Option<char>| next.is_some_and(|next| next.is_alphanumeric() || next == '_');
        !is_inside(text[..at].chars().next_back()) && !is_inside(text[at + found.len()..].chars().next())
    })
}

/// The sentences of a paragraph: parts that end with a stop, a colon or a semicolon and are followed by a capital.
fn sentences(paragraph: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut start = 0;
    for (at, _) in paragraph.match_indices(' ') {
        let ends = paragraph[..at].ends_with(['.', ':', ';', '?', '!']);
        let next = paragraph[at + 1..].chars().next();
        if ends && next.is_some_and(|next| next.is_uppercase() || next == '`') {
            found.push(paragraph[start..at].trim());
            start = at + 1;
        }
    }
    found.push(paragraph[start..].trim());
    found
}

/// Paragraphs of comments, with the line that each begins in.
fn comments(text: &str, markers: &[&str]) -> Vec<(usize, String)> {
    let mut paragraphs: Vec<(usize, String)> = Vec::new();
    let mut is_open = false;
    for (number, line) in text.lines().enumerate() {
        let trimmed = line.trim_start();
        let comment = markers
            .iter()
            .find_map(|marker| trimmed.strip_prefix(marker))
            .map(str::trim)
            .filter(|comment| !comment.is_empty());
        add(&mut paragraphs, &mut is_open, number, comment, false);
    }
    paragraphs
}

/// Paragraphs, list items, headings and cells of a page, outside of its code.
fn prose(text: &str) -> Vec<(usize, String)> {
    let mut paragraphs: Vec<(usize, String)> = Vec::new();
    let (mut is_open, mut is_code) = (false, false);
    for (number, line) in text.lines().enumerate() {
        let trimmed = line.trim();
        let is_fence = trimmed.starts_with("```");
        is_code ^= is_fence;
        if is_code || is_fence || trimmed.is_empty() {
            is_open = false;
        } else if trimmed.starts_with('|') {
            is_open = false;
            let cells = trimmed.split('|').map(str::trim).filter(|cell| !cell.is_empty());
            paragraphs.extend(cells.map(|cell| (number + 1, cell.to_owned())));
        } else {
            let item = trimmed.trim_start_matches(['#', '-', '*', '>']).trim_start();
            let is_first = item.len() < trimmed.len() && (trimmed.starts_with('#') || trimmed.contains(' '));
            add(&mut paragraphs, &mut is_open, number, Some(item), is_first);
        }
    }
    paragraphs
}

fn add(
    paragraphs: &mut Vec<(usize, String)>,
    is_open: &mut bool,
    number: usize,
    line: Option<&str>,
    is_first: bool,
) {
    match (line, paragraphs.last_mut()) {
        (Some(line), Some((_, paragraph))) if *is_open && !is_first => {
            paragraph.push(' ');
            paragraph.push_str(line);
        }
        (Some(line), _) => paragraphs.push((number + 1, line.to_owned())),
        (None, _) => {}
    }
    *is_open = line.is_some();
}

/// Texts in quotation marks, with the line that each ends in: help and messages of a program, without its unit tests.
fn messages(text: &str) -> Vec<(usize, String)> {
    let text = text.split("#[cfg(test)]").next().unwrap_or_default();
    let is_code = |line: &&str| !line.trim_start().starts_with("//");
    let mut found = Vec::new();
    let mut open: Option<String> = None;
    for (number, line) in text.lines().enumerate().filter(|(_, line)| is_code(line)) {
        let mut letters = line.trim_start().chars();
        while let Some(letter) = letters.next() {
            match (letter, &mut open) {
                ('"', None) => open = Some(String::new()),
                ('"', Some(_)) => found.extend(open.take().map(|message| (number + 1, message))),
                ('\\', Some(message)) => match letters.next() {
                    Some('n') => message.push_str(". "),
                    Some(escaped) => message.push(escaped),
                    None => {}
                },
                // A quotation mark as a character opens nothing.
                ('\'', None) if letters.as_str().starts_with("\"'") => drop(letters.nth(1)),
                (_, Some(message)) => message.push(letter),
                (_, None) => {}
            }
        }
    }
    found.retain(|(_, message)| message.contains(' '));
    found
}

/// Folders with programs, whose messages are text for people.
const PROGRAMS: [&str; 4] = [
    "crates/app/cli/src",
    "crates/app/analysis-cli/src",
    "crates/app/ui/src",
    "crates/base/programs/src",
];

fn faults_of(path: &Path, text: &str) -> Vec<String> {
    let extension = path.extension().and_then(|extension| extension.to_str());
    let paragraphs = match extension {
        Some("rs") if PROGRAMS.iter().any(|program| path.starts_with(program)) => {
            let mut all = comments(text, &["///", "//!", "//"]);
            all.extend(messages(text));
            all
        }
        Some("rs") => comments(text, &["///", "//!", "//"]),
        Some("md") => prose(text),
        _ => comments(text, &["#"]),
    };
    let mut found = Vec::new();
    for (line, paragraph) in paragraphs {
        for sentence in sentences(&paragraph) {
            if let Some(fault) = fault(sentence) {
                found.push(format!("{}:{line}: {fault}: {sentence}", path.display()));
            }
        }
    }
    found
}

fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(3);
    root.expect("this crate is in crates/base/testkit").to_owned()
}

/// The project's texts below a folder: no build output, nothing hidden but `.ci`.
fn texts(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("the sources are readable") {
        let path = entry.expect("the sources are readable").path();
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        let is_kept =
            (!name.starts_with('.') || name == ".ci") && !["target", "out", "CHANGELOG.md"].contains(&name);
        let is_text = ["rs", "md", "sh", "py", "toml"]
            .iter()
            .any(|known| path.extension() == Some(known.as_ref()));
        if path.is_dir() && is_kept {
            texts(&path, found);
        } else if is_kept && (is_text || name == "Makefile") {
            found.push(path);
        }
    }
}

#[test]
fn comments_and_pages_are_in_plain_english() {
    let mut paths = Vec::new();
    texts(&root(), &mut paths);
    assert!(paths.len() > 1000, "the sources were not read");
    let mut found: Vec<String> = paths
        .iter()
        .flat_map(|path| {
            let text = fs::read_to_string(path).expect("the sources are UTF-8");
            faults_of(path.strip_prefix(root()).expect("it is below the root"), &text)
        })
        .collect();
    found.sort();
    assert!(
        found.is_empty(),
        "{} sentences:\n{}",
        found.len(),
        found.join("\n")
    );
}

#[test]
fn canary_a_clause_in_place_of_a_noun_is_seen() {
    // Put together here, so that this file has no such comment.
    let rust = [
        "//",
        "/ Counts.\n//",
        "/ What is held. Who",
        "ever asks.\nlet what = 1;\n",
    ]
    .concat();
    assert_eq!(faults_of(Path::new("a.rs"), &rust).len(), 2);
    let message = "bail!(\"{x}: nothing {y}; What is left {z} \\\n     stays\\nOf none\");\nlet quote = '\"'; // in vain\n";
    let program = Path::new("crates/app/cli/src/a.rs");
    assert_eq!(faults_of(program, message).len(), 2);
    let page = "# What it is\n\nIt waits in\nvain.\n\n| Of a file | a member |\n\n```\nWhat is code\n```\n- Which one?\n";
    assert_eq!(faults_of(Path::new("a.md"), page).len(), 3);
    let fine = "// Offset in bytes. What else could it be?\n// Whole pages, somewhere: often in one.\n";
    assert_eq!(faults_of(Path::new("a.rs"), fine), Vec::<String>::new());
}
