//! The named analyses and the views below them: SQL files, compiled in, in the order of the report.
//!
//! Each file is one `SELECT` in the SQL that both DataFusion and Spark accept, and nothing else, so that a folder of
//! traces too large for one machine yields the same results there (`docs/guide/trace-report.md`). Comments at the head
//! of an analysis contain its title, its key (the columns that identify a row) and its rules.

use results::words::nearest;

use crate::AnalysisError;

/// A query with a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Analysis {
    /// Name of its file.
    pub name: &'static str,
    /// The query.
    pub sql: &'static str,
    /// Heading.
    pub title: String,
    /// Columns that identify a row.
    pub key: Vec<String>,
    /// The quantity counted, and its rule.
    pub about: String,
}

macro_rules! files {
    ($folder:literal: $($name:literal),+ $(,)?) => {
        [$(($name, include_str!(concat!("../sql/", $folder, $name, ".sql")))),+]
    };
}

/// Views in dependency order: file name, query. A view's name is the part after the number.
pub(crate) const VIEWS: [(&str, &str); 5] = files!("views/":
    "1_io", "2_pieces", "3_file_types", "4_typed_pieces", "5_ordered_io",
);

const ANALYSES: [(&str, &str); 27] = files!("":
    "traces", "operations",
    "sizes", "locality", "sync", "modes",
    "classes", "block_types", "file_kinds",
    "processes", "submitters", "attribution",
    "latencies", "queue_depth", "dirty_age", "throughput",
    "hot_files", "hot_places", "rewrites",
    "short_lived_files", "deleted_writes", "discards",
    "journal_homes", "journal_hot_homes", "journal_contributors",
    "file_events", "calls",
);

/// Analyses beyond those of every report: for figures and special devices.
const SPECIAL: [(&str, &str); 3] = files!("":
    "driver_commands", "paper_figure_4", "paper_table_3",
);

fn hint(name: &str) -> String {
    let files = ANALYSES.iter().chain(&SPECIAL);
    let names: Vec<&str> = files.map(|(name, _)| *name).collect();
    nearest(name, &names).map_or_else(String::new, |nearest| format!("; did you mean `{nearest}`?"))
}

/// Every analysis, in the order of the report.
#[must_use]
pub fn all() -> Vec<Analysis> {
    ANALYSES
        .iter()
        .chain(&SPECIAL)
        .map(|(name, sql)| parse(name, sql))
        .collect()
}

/// The analysis with this name.
pub fn find(name: &str) -> Result<Analysis, AnalysisError> {
    all()
        .into_iter()
        .find(|analysis| analysis.name == name)
        .ok_or_else(|| AnalysisError::UnknownName {
            name: name.to_owned(),
            hint: hint(name),
        })
}

pub(crate) fn view_name(file: &str) -> &str {
    file.split_once('_').map_or(file, |(_, name)| name)
}

fn parse(name: &'static str, sql: &'static str) -> Analysis {
    let mut analysis = Analysis {
        name,
        sql,
        title: name.to_owned(),
        key: Vec::new(),
        about: String::new(),
    };
    for line in sql.lines() {
        let Some(comment) = line.strip_prefix("-- ") else {
            break;
        };
        if let Some(title) = comment.strip_prefix("title: ") {
            analysis.title = title.to_owned();
        } else if let Some(key) = comment.strip_prefix("key: ") {
            analysis.key = key.split(", ").map(str::to_owned).collect();
        } else if let Some(about) = comment.strip_prefix("about: ") {
            if !analysis.about.is_empty() {
                analysis.about.push(' ');
            }
            analysis.about += about;
        }
    }
    analysis
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    #[test]
    fn every_file_is_named_and_every_analysis_says_what_it_is() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("sql");
        let files = |folder: &Path| -> BTreeSet<String> {
            let entries = std::fs::read_dir(folder)
                .unwrap()
                .map(|entry| entry.unwrap().path());
            entries
                .filter(|path| path.extension().is_some_and(|ending| ending == "sql"))
                .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
                .collect()
        };
        let named: BTreeSet<String> = all().iter().map(|analysis| analysis.name.to_owned()).collect();
        assert_eq!(files(&folder), named);
        let views: BTreeSet<String> = VIEWS.iter().map(|(name, _)| (*name).to_owned()).collect();
        assert_eq!(files(&folder.join("views")), views);
        for analysis in all() {
            assert!(
                !analysis.about.is_empty() && !analysis.key.is_empty(),
                "{}",
                analysis.name
            );
            assert_ne!(analysis.title, analysis.name);
        }
    }

    #[test]
    fn queries_use_no_words_that_only_one_dialect_knows() {
        // Each of these has given different results or none. The test on Spark detects integer division, casts by `::`,
        // lists of distinct columns, and orders that leave the position of nulls to the engine; this test detects the
        // words below.
        for (name, sql) in ANALYSES.iter().chain(&SPECIAL).chain(&VIEWS) {
            for word in ["::", " DIV ", "FILTER (", "QUALIFY", "ILIKE", "APPROX_", "::"] {
                assert!(!sql.to_uppercase().contains(word), "{name} uses {word}");
            }
            assert!(!sql.trim_end().ends_with(';'), "{name} ends with a semicolon");
        }
    }
}
