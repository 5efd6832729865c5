//! Directories of a comparison.

use std::path::PathBuf;
use std::str::FromStr;

/// A directory to measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Name in tables and records.
    pub label: String,
    /// The directory.
    pub directory: PathBuf,
}

impl FromStr for Target {
    type Err = String;

    /// Parses `LABEL=DIRECTORY`.
    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((label, directory))
                if !label.is_empty() && !label.contains([':', '>', '<']) && !directory.is_empty() =>
            {
                Ok(Self {
                    label: label.to_owned(),
                    directory: directory.into(),
                })
            }
            _ => Err(format!(
                "`{text}` is no target; write LABEL=DIRECTORY, for example native=/data"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_has_a_label_and_a_directory() {
        let target: Target = "native=/data/a=b".parse().unwrap();
        assert_eq!(
            (target.label.as_str(), target.directory),
            ("native", "/data/a=b".into())
        );
        for text in ["", "native", "=/data", "native=", "a:b=/data"] {
            text.parse::<Target>().expect_err(text);
        }
    }
}
