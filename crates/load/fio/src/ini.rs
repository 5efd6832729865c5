//! Parses a fio job file into sections with their options, including those inherited from `[global]`.
//!
//! A `[global]` option applies to the sections after it; several `[global]` sections accumulate, and a section's own
//! option takes precedence. `#` and `;` begin a comment at the start of a line.

use super::error::FioError;

/// One job section of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    pub name: String,
    pub line: usize,
    /// Inherited options first; a repeated key keeps its last value.
    pub options: Vec<IniOption>,
}

/// One option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IniOption {
    pub key: String,
    pub value: Option<String>,
    pub line: usize,
}

pub fn sections(file: &str, text: &str) -> Result<Vec<Section>, FioError> {
    let syntax = |line: usize, problem: String| FioError::Syntax {
        file: file.to_owned(),
        line,
        problem,
    };
    let mut globals: Vec<IniOption> = Vec::new();
    let mut found: Vec<Section> = Vec::new();
    let mut in_global = true;
    let mut is_before_all = true;
    for (index, raw) in text.lines().enumerate() {
        let (line, content) = (index + 1, raw.trim());
        if content.is_empty() || content.starts_with(['#', ';']) {
            continue;
        }
        if content.starts_with("include ") {
            let problem = "`include` is not supported: put the options of that file in its place".to_owned();
            return Err(syntax(line, problem));
        }
        if let Some(rest) = content.strip_prefix('[') {
            let Some(name) = rest.strip_suffix(']').map(str::trim) else {
                return Err(syntax(line, format!("a section is [name], found `{content}`")));
            };
            is_before_all = false;
            in_global = name == "global";
            if !in_global {
                found.push(Section {
                    name: name.to_owned(),
                    line,
                    options: globals.clone(),
                });
            }
            continue;
        }
        if is_before_all {
            let problem = format!("`{content}` stands before the first [section]");
            return Err(syntax(line, problem));
        }
        if content.contains("${") {
            let problem = format!(
                "`{content}` takes a value from the environment, which is not supported: write it out"
            );
            return Err(syntax(line, problem));
        }
        let option = option(content, line);
        let target = match found.last_mut() {
            Some(section) if !in_global => &mut section.options,
            _ => &mut globals,
        };
        // A later value replaces the earlier one, as in fio.
        target.retain(|other| other.key != option.key);
        target.push(option);
    }
    if found.is_empty() {
        return Err(FioError::Empty {
            file: file.to_owned(),
        });
    }
    Ok(found)
}

fn option(content: &str, line: usize) -> IniOption {
    let (key, value) = match content.split_once('=') {
        Some((key, value)) => (key.trim(), Some(value.trim().to_owned())),
        None => (content, None),
    };
    IniOption {
        key: canonical(key).to_owned(),
        value,
        line,
    }
}

/// The first of fio's several names for one option.
fn canonical(key: &str) -> &str {
    match key {
        "blocksize" => "bs",
        "readwrite" => "rw",
        "io_limit" => "io_size",
        "wait_for_previous" => "stonewall",
        "buffered" => "buffered",
        "time_based" | "timebased" => "time_based",
        "fadvise" | "fadvise_hint" => "fadvise_hint",
        "thinktime_us" => "thinktime",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value<'section>(section: &'section Section, key: &str) -> Option<&'section str> {
        let option = section.options.iter().find(|option| option.key == key)?;
        option.value.as_deref()
    }

    #[test]
    fn global_options_count_for_the_sections_after_them_and_give_way() {
        let text = "; comment\n[global]\nbs=4k\nsize = 1m\n[a]\nrw=read\nblocksize=8k\n[global]\nsize=2m\n# x\n[b]\nthread\n";
        let found = sections("j", text).unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!(
            (value(&found[0], "bs"), value(&found[0], "size")),
            (Some("8k"), Some("1m"))
        );
        assert_eq!(
            (value(&found[1], "bs"), value(&found[1], "size")),
            (Some("4k"), Some("2m"))
        );
        assert_eq!(value(&found[1], "rw"), None, "options of another section");
        assert_eq!(found[1].options.last().unwrap().value, None);
        assert_eq!(found[1].line, 11);
    }

    #[test]
    fn what_is_no_job_file_is_refused_with_its_line() {
        for (text, expected) in [
            ("bs=4k\n", "j:1: `bs=4k` stands before the first [section]"),
            ("[a\n", "j:1: a section is [name], found `[a`"),
            ("[a]\ninclude b.fio\n", "j:2: `include` is not supported"),
            (
                "[a]\nsize=${SIZE}\n",
                "j:2: `size=${SIZE}` takes a value from the environment",
            ),
            ("[global]\nbs=4k\n", "j: no section beside [global]"),
        ] {
            let message = sections("j", text).expect_err(text).to_string();
            assert!(message.starts_with(expected), "{message}");
        }
    }
}
