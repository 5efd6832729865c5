//! `docs/reference/semantics.md` names a test, a contract case or a judge for each promise, and `docs/guide/mobibench.md` a
//! test for each defect of the original; these tests check that the names exist.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// The names of tests, `crate::name`, in a document that the sources do not contain.
fn missing(document: &str, sources: &[(String, String)]) -> Vec<String> {
    tests_named(document)
        .into_iter()
        .filter(|(package, test)| {
            let definition = format!("fn {test}()");
            let defines = |owner: &str, text: &str| {
                owner == *package
                    && text
                        .split("#[test]")
                        .skip(1)
                        .any(|rest| rest.trim_start().starts_with(&definition))
            };
            let is_case = |text: &str| *package == "contract" && has_case(text, test);
            !sources
                .iter()
                .any(|(owner, text)| defines(owner, text) || is_case(text))
        })
        .map(|(package, test)| format!("{package}::{test}"))
        .collect()
}

/// Returns true if a file has a contract case of this name, which one test runs with the others.
fn has_case(text: &str, name: &str) -> bool {
    let lists = text
        .split("cases![")
        .skip(1)
        .chain(text.split("programs![").skip(1));
    let mut names = lists.flat_map(|rest| rest.split(']').next().unwrap_or_default().split([',', ':']));
    names.any(|listed| listed.trim() == name)
}

fn tests_named(document: &str) -> Vec<(&str, &str)> {
    document
        .split('`')
        .skip(1)
        .step_by(2)
        .filter_map(|word| word.split_once("::"))
        .collect()
}

/// Finds promises without a proof. A promise is a row of a table with two columns; the second names a test or a judge.
fn rows_without_proof(document: &str) -> Vec<&str> {
    document
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| promise"))
        .filter(|line| {
            let proof = line
                .trim_end_matches(" |")
                .rsplit(" | ")
                .next()
                .unwrap_or_default();
            tests_named(proof).is_empty() && !proof.contains("judge")
        })
        .collect()
}

#[test]
fn every_test_that_the_document_names_exists() {
    let document = read(&root().join("docs/reference/semantics.md"));
    assert!(tests_named(&document).len() > 30, "the document was not read");
    assert_eq!(missing(&document, &sources()), Vec::<String>::new());
    for judge in ["run.sh", "external.sh"] {
        assert!(root().join("scripts/judges").join(judge).exists(), "{judge}");
    }
}

#[test]
fn every_test_that_the_page_on_the_original_names_exists() {
    let document = read(&root().join("docs/guide/mobibench.md"));
    assert!(tests_named(&document).len() > 50, "the document was not read");
    assert_eq!(missing(&document, &sources()), Vec::<String>::new());
}

#[test]
fn every_promise_names_what_holds_it() {
    let document = read(&root().join("docs/reference/semantics.md"));
    assert_eq!(rows_without_proof(&document), Vec::<&str>::new());
}

/// The hops of a walk through the code, as `file` and `function`: lines such as "3. `path/file.rs`: `name` does this".
fn hops(walk: &str) -> Vec<(&str, &str)> {
    walk.lines()
        .filter(|line| line.starts_with(|first: char| first.is_ascii_digit()))
        .filter_map(|line| {
            let mut quoted = line.split('`').skip(1).step_by(2);
            Some((quoted.next()?, quoted.next()?))
        })
        .collect()
}

/// The lines of each hop, and further names that it quotes: `name` or `Type::name`.
fn further_names(walk: &str) -> Vec<(&str, Vec<&str>)> {
    let mut found: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in walk.lines() {
        let mut quoted = line.split('`').skip(1).step_by(2);
        if line.starts_with(|first: char| first.is_ascii_digit()) {
            found.extend(quoted.next().map(|file| (file, Vec::new())));
        } else if !line.starts_with("   ") {
            continue;
        }
        let is_name = |word: &&str| {
            word.chars()
                .all(|letter| letter.is_alphanumeric() || "_:".contains(letter))
        };
        if let Some((_, names)) = found.last_mut() {
            names.extend(quoted.filter(is_name));
        }
    }
    found
}

/// Names that the file of their hop does not have as words.
fn missing_names<'walk>(walk: &'walk str, root: &Path) -> Vec<(&'walk str, &'walk str)> {
    let mut missing = Vec::new();
    for (file, names) in further_names(walk) {
        let text = std::fs::read_to_string(root.join(file)).unwrap_or_default();
        let words: BTreeSet<&str> = text
            .split(|letter: char| !letter.is_alphanumeric() && letter != '_')
            .collect();
        let is_missing = |name: &&str| !name.split("::").all(|part| words.contains(part));
        missing.extend(names.into_iter().filter(is_missing).map(|name| (file, name)));
    }
    missing
}

/// Hops whose file or function does not exist.
fn missing_hops<'walk>(walk: &'walk str, root: &Path) -> Vec<(&'walk str, &'walk str)> {
    hops(walk)
        .into_iter()
        .filter(|(file, function)| {
            let name = function.rsplit("::").next().unwrap_or(function);
            let text = std::fs::read_to_string(root.join(file)).unwrap_or_default();
            ![format!("fn {name}("), format!("fn {name}<")]
                .iter()
                .any(|definition| text.contains(definition))
        })
        .collect()
}

#[test]
fn the_walks_of_the_architecture_name_what_exists_in_few_hops() {
    let document = read(&root().join("ARCHITECTURE.md"));
    let section = document
        .split("\n## ")
        .find(|section| section.starts_with("Walks"));
    let walks: Vec<&str> = section
        .expect("there is a section")
        .split("\n**")
        .skip(1)
        .collect();
    assert_eq!(walks.len(), 4);
    for walk in walks {
        let title = walk.lines().next().unwrap_or_default();
        assert!((5..=8).contains(&hops(walk).len()), "{title}");
        let files: BTreeSet<&str> = hops(walk).into_iter().map(|(file, _)| file).collect();
        assert!(files.len() <= 6, "{title}: {files:?}");
        assert_eq!(missing_hops(walk, &root()), [], "{title}");
        assert_eq!(missing_names(walk, &root()), [], "{title}");
    }
}

#[test]
fn canary_a_hop_that_does_not_exist_is_found() {
    let walk = "A walk:\n\n1. `Cargo.toml`: `main` starts.\n2. `crates/app/cli/src/main.rs`: `main` runs.\n   `more`\n3. `none.rs`: `a`\n";
    assert_eq!(
        missing_hops(walk, &root()),
        [("Cargo.toml", "main"), ("none.rs", "a")]
    );
    assert_eq!(
        missing_names(walk, &root()),
        [
            ("Cargo.toml", "main"),
            ("crates/app/cli/src/main.rs", "more"),
            ("none.rs", "a")
        ]
    );
}

#[test]
fn canary_a_test_that_does_not_exist_is_found() {
    let found = missing("see `cli::no_test_is_called_this` and `x`", &sources());
    assert_eq!(found, ["cli::no_test_is_called_this"]);
    // Functions that are not tests, and tests of another crate, do not count.
    assert_eq!(missing("`cli::root`", &sources()).len(), 1);
    assert_eq!(
        missing("`vfs::every_promise_names_what_holds_it`", &sources()).len(),
        1
    );
    assert_eq!(missing("`contract::no_case_is_called_this`", &sources()).len(), 1);
    assert_eq!(
        missing("`contract::cases`", &sources()).len(),
        1,
        "no case, but there is such a function"
    );
    assert_eq!(
        rows_without_proof("| promise | held by |\n| gold | `nothing` |").len(),
        1
    );
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

/// Each source file, with the name of its crate.
fn sources() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for folder in ["crates", "tools"] {
        collect(&root().join(folder), folder, &mut found);
    }
    assert!(found.len() > 1000, "the sources were not read");
    found
}

fn collect(folder: &Path, package: &str, found: &mut Vec<(String, String)>) {
    for entry in std::fs::read_dir(folder).expect("the folder is readable") {
        let path = entry.expect("the folder is readable").path();
        if path.join("Cargo.toml").exists() {
            let name = path.file_name().and_then(OsStr::to_str);
            collect(&path, name.expect("crate names are UTF-8"), found);
        } else if path.is_dir() {
            collect(&path, package, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push((package.to_owned(), read(&path)));
        }
    }
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
