//! Parser for ubinize's .ini files: sections of `key = value`, comments from `#` or `;`.

use anyhow::{Result, bail};

/// A section and its keys, in order.
#[derive(Debug, PartialEq, Eq)]
pub struct Section {
    pub name: String,
    /// Line number in the file, from 1.
    pub line: usize,
    /// Keys in lower case, and trimmed values.
    pub entries: Vec<(String, String)>,
}

impl Section {
    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&str> {
        let entry = self.entries.iter().rev().find(|(name, _)| name == key);
        entry.map(|(_, value)| value.as_str())
    }
}

/// Reads all sections.
pub fn parse(text: &str) -> Result<Vec<Section>> {
    let mut sections: Vec<Section> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split(['#', ';']).next().unwrap_or(line).trim();
        if line.is_empty() {
            continue;
        }
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            sections.push(Section {
                name: name.trim().to_owned(),
                line: number,
                entries: Vec::new(),
            });
            continue;
        }
        let Some((key, value)) = line.split_once('=') else {
            bail!("line {number}: `{line}` is neither [section] nor key = value");
        };
        let Some(section) = sections.last_mut() else {
            bail!("line {number}: `{line}` comes before the first [section]");
        };
        let value = value.trim().trim_matches('"').to_owned();
        section.entries.push((key.trim().to_ascii_lowercase(), value));
    }
    Ok(sections)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_keys_and_comments_are_told_apart() {
        let text = "# first\n[root]\nMode = ubi ; a comment\nimage=\"a b.img\"\n\n[data]\n";
        let sections = parse(text).unwrap();
        assert_eq!(sections[0].get("mode"), Some("ubi"));
        assert_eq!(sections[0].get("image"), Some("a b.img"));
        assert_eq!((sections[1].name.as_str(), sections[1].line), ("data", 6));
    }

    #[test]
    fn lines_that_mean_nothing_are_named() {
        assert!(parse("[a]\nnonsense").unwrap_err().to_string().contains("line 2"));
        assert!(parse("a=b").unwrap_err().to_string().contains("line 1"));
    }
}
