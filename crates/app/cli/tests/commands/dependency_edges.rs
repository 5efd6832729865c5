//! Checks the dependencies between crates against cargo's metadata of the workspace.
//!
//! [`ALLOWED`] lists all permitted edges between crates of this workspace; any other edge fails. [`UNSAFE_CRATES`] lists
//! the crates that may contain `unsafe`; a test checks that ARCHITECTURE.md names each of them. Each check has a canary
//! that must fail.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package};

/// Permitted dependencies of shipped code. The contract crates `vfs` and `media` depend on no other crate, `results` only
/// on `outfile`.
const ALLOWED: &[(&str, &[&str])] = &[
    ("vfs", &[]),
    ("media", &[]),
    ("outfile", &[]),
    ("nand", &["media", "outfile"]),
    ("emmc", &["media", "results"]),
    (
        "runs",
        &["bench", "emmc", "formats", "media", "report", "results"],
    ),
    (
        "live",
        &[
            "emmc", "formats", "media", "mounted", "nand", "outfile", "results", "vfs",
        ],
    ),
    ("results", &["outfile"]),
    ("passfs", &["vfs"]),
    ("buffer", &["vfs"]),
    ("fuse", &["vfs"]),
    ("mounted", &["fuse", "media", "results"]),
    ("bench", &["results"]),
    ("jobs", &["results"]),
    ("fio", &["bench", "jobs", "results"]),
    ("series", &["bench", "report", "results", "runner"]),
    ("mobibench", &["bench", "formats", "outfile", "results", "runner"]),
    ("trace", &["formats", "fsmap", "media", "outfile", "results"]),
    ("fsmap", &["results"]),
    ("formats", &["outfile", "results"]),
    ("analysis", &["formats", "report", "results"]),
    ("history", &["results"]),
    ("runner", &["history", "outfile", "results"]),
    ("ui", &["history", "outfile", "programs", "results"]),
    ("report", &["results"]),
    (
        "study",
        &["guest", "outfile", "programs", "report", "results", "runner"],
    ),
    (
        "demo",
        &["media", "mounted", "programs", "report", "results", "runner"],
    ),
    ("guest", &[]),
    ("testkit", &["guest", "vfs"]),
    ("ubi", &["media"]),
    ("array", &["media", "ubi"]),
    ("ubifs", &["media", "ubi", "vfs"]),
    ("image", &["media", "nand", "ubi", "ubifs"]),
    (
        "extract",
        &["array", "image", "media", "report", "results", "ubi", "ubifs"],
    ),
    (
        "chipbench",
        &[
            "array", "bench", "media", "nand", "results", "ubi", "ubifs", "vfs",
        ],
    ),
    ("judge", &["results", "runner"]),
    (
        "cli",
        &[
            "array",
            "bench",
            "buffer",
            "chipbench",
            "demo",
            "emmc",
            "extract",
            "fio",
            "formats",
            "fsmap",
            "fuse",
            "history",
            "image",
            "jobs",
            "live",
            "media",
            "mobibench",
            "mounted",
            "nand",
            "outfile",
            "passfs",
            "programs",
            "report",
            "results",
            "runner",
            "runs",
            "series",
            "study",
            "trace",
            "ubi",
            "ubifs",
            "vfs",
        ],
    ),
    ("python", &["image", "media", "nand", "ubi", "ubifs"]),
    ("programs", &["media", "outfile", "report", "results"]),
    (
        "analysis-cli",
        &["analysis", "formats", "programs", "report", "results"],
    ),
];

/// Additional dependencies permitted in tests.
const ALLOWED_IN_TESTS: &[(&str, &[&str])] = &[
    ("bench", &["formats", "runner", "testkit"]),
    ("media", &["media"]),
    ("nand", &["media", "testkit"]),
    ("buffer", &["passfs", "testkit"]),
    ("passfs", &["testkit"]),
    ("fuse", &["testkit"]),
    ("ubi", &["nand", "testkit"]),
    ("array", &["media", "nand", "testkit"]),
    ("ubifs", &["array", "buffer", "nand", "testkit"]),
    ("image", &["testkit"]),
    ("cli", &["testkit"]),
    ("trace", &["testkit"]),
    ("live", &["testkit"]),
    ("analysis", &["testkit"]),
    ("analysis-cli", &["testkit"]),
    ("formats", &["testkit"]),
    ("fsmap", &["testkit"]),
    ("judge", &["testkit"]),
    ("outfile", &["testkit"]),
];

/// Crates with `unsafe` blocks.
const UNSAFE_CRATES: &[&str] = &[
    "analysis-cli",
    "bench",
    "buffer",
    "emmc",
    "fsmap",
    "fuse",
    "live",
    "nand",
    "passfs",
    "testkit",
    "trace",
];

/// External crates that only the named crates may use.
const EXTERNAL_OWNERS: &[(&str, &[&str])] = &[
    ("aes", &["ubifs"]),
    ("anyhow", &["analysis-cli", "cli", "programs", "study", "ui"]),
    ("bytes", &["formats"]),
    ("clap", &["analysis-cli", "cli", "judge", "programs", "ui"]),
    ("hkdf", &["ubifs"]),
    // In `trace`, for its hostile programs only.
    ("io-uring", &["bench", "fuse", "trace"]),
    // In `analysis`, for its tests only: they write tables as another tool would.
    ("parquet", &["analysis", "formats"]),
    ("pyo3", &["python"]),
    ("libbpf-rs", &["trace"]),
    ("axum", &["ui"]),
    ("tokio", &["analysis", "ui"]),
    ("datafusion", &["analysis"]),
];

type Edge = (String, String, DependencyKind);

fn forbidden(edges: &[Edge], ours: &BTreeSet<String>) -> Vec<String> {
    let allowed: BTreeMap<_, _> = ALLOWED.iter().copied().collect();
    let in_tests: BTreeMap<_, _> = ALLOWED_IN_TESTS.iter().copied().collect();
    let lists = |table: &BTreeMap<&str, &[&str]>, from: &str, to: &str| {
        table.get(from).is_some_and(|targets| targets.contains(&to))
    };
    let mut found = Vec::new();
    for (from, to, kind) in edges {
        if ours.contains(to) {
            let for_tests = *kind == DependencyKind::Development && lists(&in_tests, from, to);
            if !for_tests && !lists(&allowed, from, to) {
                found.push(format!("{from} -> {to}"));
            }
        }
        let foreign_owner = EXTERNAL_OWNERS
            .iter()
            .find(|(name, owners)| *name == to && !owners.contains(&from.as_str()));
        if let Some((name, owners)) = foreign_owner {
            found.push(format!(
                "{from} -> {name}, which only {} may use",
                owners.join(", ")
            ));
        }
    }
    found
}

fn workspace() -> Metadata {
    MetadataCommand::new()
        .manifest_path(workspace_root().join("Cargo.toml"))
        .no_deps()
        .exec()
        .expect("cargo metadata reads the workspace")
}

/// Name and folder of each crate.
fn packages() -> Vec<(String, PathBuf)> {
    let folder = |package: &Package| {
        let manifest = package.manifest_path.as_std_path();
        manifest.parent().expect("a manifest lies in a folder").to_owned()
    };
    workspace()
        .packages
        .iter()
        .map(|package| (package.name.to_string(), folder(package)))
        .collect()
}

fn workspace_edges() -> (Vec<Edge>, BTreeSet<String>) {
    let metadata = workspace();
    let ours = metadata
        .packages
        .iter()
        .map(|package| package.name.to_string())
        .collect();
    let edges = metadata
        .packages
        .iter()
        .flat_map(|package| {
            package
                .dependencies
                .iter()
                .map(|dependency| (package.name.to_string(), dependency.name.clone(), dependency.kind))
        })
        .collect();
    (edges, ours)
}

fn workspace_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

#[test]
fn no_crate_depends_on_one_that_it_must_not_know() {
    let (edges, ours) = workspace_edges();
    assert!(edges.len() > 10, "the workspace was not read");
    assert_eq!(forbidden(&edges, &ours), Vec::<String>::new());
}

#[test]
fn every_crate_is_in_the_table() {
    let (_, ours) = workspace_edges();
    let listed: BTreeSet<String> = ALLOWED.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(listed, ours);
}

#[test]
fn canary_a_forbidden_edge_is_found() {
    let ours: BTreeSet<String> = ["fuse", "passfs", "vfs", "buffer"].map(str::to_owned).into();
    let edge = |from: &str, to: &str, kind| (from.to_owned(), to.to_owned(), kind);
    let edges = [
        edge("fuse", "passfs", DependencyKind::Normal),
        edge("vfs", "buffer", DependencyKind::Development),
        edge("buffer", "passfs", DependencyKind::Normal),
        edge("passfs", "anyhow", DependencyKind::Normal),
        edge("buffer", "vfs", DependencyKind::Normal),
    ];
    assert_eq!(forbidden(&edges, &ours).len(), 4);
}

#[test]
fn unsafe_is_only_where_architecture_says() {
    let mut found = BTreeSet::new();
    for (name, folder) in packages() {
        if rust_files(&folder).iter().any(|path| has_unsafe(&read(path))) {
            found.insert(name);
        }
    }
    let allowed: BTreeSet<String> = UNSAFE_CRATES.iter().map(|name| (*name).to_owned()).collect();
    assert!(
        found.is_subset(&allowed),
        "unsafe in {:?}",
        found.difference(&allowed)
    );
    let architecture = read(&workspace_root().join("ARCHITECTURE.md"));
    for name in UNSAFE_CRATES {
        assert!(
            architecture.contains(&format!("`{name}`: ")),
            "ARCHITECTURE.md does not list {name}"
        );
    }
}

#[test]
fn canary_an_unsafe_block_is_seen() {
    // Assembled at run time, so that this file contains no such block.
    let block = ["un", "safe { call() }"].concat();
    assert!(has_unsafe(&format!("let x = {block};")));
    assert!(!has_unsafe(&format!("// why {block} is not needed")));
    assert!(!has_unsafe("#![deny(unsafe_code)]"));
}

/// Crates whose programs are not shipped.
const NOT_SHIPPED: &[&str] = &["judge", "testkit"];

#[test]
fn every_crate_that_is_shipped_asks_clippy_for_the_methods_that_follow_planted_links() {
    for (name, folder) in packages() {
        let is_shipped = !NOT_SHIPPED.contains(&name.as_str());
        for root in ["src/lib.rs", "src/main.rs"].map(|root| folder.join(root)) {
            assert!(
                !is_shipped || !root.exists() || bans_methods(&read(&root)),
                "{} lacks the line",
                root.display()
            );
        }
    }
}

#[test]
fn canary_a_crate_that_does_not_ask_is_seen() {
    assert!(!bans_methods("//! A crate.\n\npub mod x;\n"));
    assert!(bans_methods(
        "//! A crate.\n\n#![cfg_attr(not(test), warn(clippy::disallowed_methods))]\n"
    ));
}

fn bans_methods(root: &str) -> bool {
    root.contains("\n#![cfg_attr(not(test), warn(clippy::disallowed_methods))]\n")
}

fn has_unsafe(source: &str) -> bool {
    source
        .lines()
        .map(|line| line.split("//").next().unwrap_or(line))
        .any(|code| {
            ["{", "fn ", "impl ", "extern "]
                .iter()
                .any(|next| code.contains(&["un", "safe ", next].concat()))
        })
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).expect("the folder is readable") {
        let path = entry.expect("the folder is readable").path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
