//! Files of the user. The history: `--history`, else `TIDEGATE_HISTORY`, else in the data folder. The settings folder.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The file of the history, or `off`.
const VARIABLE: &str = "TIDEGATE_HISTORY";

/// The file of the history; `None` if it is off, or without a home.
pub fn history_file(given: Option<&Path>) -> Option<PathBuf> {
    history_file_in(given, |name| std::env::var_os(name))
}

/// The user's settings folder; `None` without a home.
pub fn config_folder() -> Option<PathBuf> {
    user_folder("XDG_CONFIG_HOME", ".config", set_variable)
}

fn set_variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

fn history_file_in(given: Option<&Path>, variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    if let Some(path) = given {
        return Some(path.to_owned());
    }
    if let Some(named) = set(VARIABLE) {
        return (named != "off").then(|| PathBuf::from(named));
    }
    user_folder("XDG_DATA_HOME", ".local/share", set).map(|folder| folder.join("tidegate/history.db"))
}

/// The value of the variable if it is an absolute path, as the XDG specification requires; otherwise the default in the
/// home.
fn user_folder(variable: &str, usual: &str, set: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let named = set(variable).map(PathBuf::from);
    named
        .filter(|folder| folder.is_absolute())
        .or_else(|| Some(PathBuf::from(set("HOME")?).join(usual)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(given: Option<&str>, variables: &[(&str, &str)]) -> Option<String> {
        let variable = |name: &str| {
            let entry = variables.iter().find(|(key, _)| *key == name);
            entry.map(|(_, value)| OsString::from(value))
        };
        history_file_in(given.map(Path::new), variable).map(|path| path.display().to_string())
    }

    #[test]
    fn the_flag_wins_over_the_variable_and_that_over_the_data_folder() {
        let home = ("HOME", "/home/a");
        let all = [(VARIABLE, "/x.db"), ("XDG_DATA_HOME", "/data"), home];
        assert_eq!(found(Some("y.db"), &all).as_deref(), Some("y.db"));
        assert_eq!(found(None, &all).as_deref(), Some("/x.db"));
        assert_eq!(
            found(None, &all[1..]).as_deref(),
            Some("/data/tidegate/history.db")
        );
        assert_eq!(
            found(None, &[("XDG_DATA_HOME", "relative"), (VARIABLE, ""), home]).as_deref(),
            Some("/home/a/.local/share/tidegate/history.db")
        );
    }

    #[test]
    fn off_and_no_home_mean_no_history() {
        assert_eq!(found(None, &[(VARIABLE, "off"), ("HOME", "/home/a")]), None);
        assert_eq!(found(None, &[]), None);
        assert_eq!(
            found(Some("off"), &[]).as_deref(),
            Some("off"),
            "the flag names a file"
        );
    }
}
