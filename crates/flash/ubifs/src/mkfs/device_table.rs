//! Device tables: lines that create device files, FIFOs and directories, and set permissions and owners of files, so
//! that an image can be made without root. The format is that of mtd-utils and Buildroot:
//!
//! ```text
//! <name>    <type> <mode> <uid> <gid> <major> <minor> <start> <inc> <count>
//! /dev      d      755    0     0     -       -       -       -     -
//! /dev/tty  c      666    0     0     4       0       0       1     8
//! ```
//!
//! Types: `f` an existing file, `d` a directory, `c` and `b` devices, `p` a FIFO. With a count, creates that many
//! devices, with names numbered from `start` on and minor numbers that grow by `inc`.

use std::collections::BTreeMap;

use thiserror::Error;

use super::{Attributes, Content, FileNumber, Time, Tree, TreeFile};

/// A line that can't be applied.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line}: {why}")]
pub struct DeviceTableError {
    /// Line number, from 1.
    pub line: usize,
    /// The fault, and possible values.
    pub why: String,
}

struct Line<'a> {
    name: &'a str,
    kind: &'a str,
    permissions: u32,
    user: u32,
    group: u32,
    major: u32,
    minor: u32,
    start: u32,
    increment: u32,
    count: u32,
}

/// Applies a table to a tree. New files get the time `now`.
pub fn apply_device_table(tree: &mut Tree, table: &str, now: Time) -> Result<(), DeviceTableError> {
    for (line, text) in (1..).zip(table.lines()) {
        let text = text.split('#').next().unwrap_or_default().trim();
        if text.is_empty() {
            continue;
        }
        parse(text)
            .and_then(|parsed| apply(tree, &parsed, now))
            .map_err(|why| DeviceTableError { line, why })?;
    }
    Ok(())
}

fn parse(text: &str) -> Result<Line<'_>, String> {
    let words: Vec<_> = text.split_ascii_whitespace().collect();
    let [name, kind, mode, user, group, rest @ ..] = words.as_slice() else {
        return Err("a line has a name, a type, a mode, a user and a group at least".to_owned());
    };
    if rest.len() > 5 {
        return Err("a line has 10 words at most".to_owned());
    }
    let number = |place: usize| match rest.get(place) {
        None | Some(&"-") => Ok(0),
        Some(word) => word.parse().map_err(|_| format!("`{word}` is no number")),
    };
    let id = |word: &str| {
        word.parse()
            .map_err(|_| format!("`{word}` is no number of a user or group"))
    };
    let permissions = u32::from_str_radix(mode, 8).ok().filter(|mode| *mode <= 0o7777);
    if !name.starts_with('/') {
        return Err(format!("`{name}` does not start with /"));
    }
    Ok(Line {
        name,
        kind,
        permissions: permissions
            .ok_or_else(|| format!("`{mode}` is no mode; write for example 755 or 4711"))?,
        user: id(user)?,
        group: id(group)?,
        major: number(0)?,
        minor: number(1)?,
        start: number(2)?,
        increment: number(3)?,
        count: number(4)?,
    })
}

fn apply(tree: &mut Tree, line: &Line<'_>, now: Time) -> Result<(), String> {
    let path: Vec<&[u8]> = line
        .name
        .split('/')
        .filter(|part| !part.is_empty())
        .map(str::as_bytes)
        .collect();
    let Some((last, parents)) = path.split_last() else {
        return match line.kind {
            "d" => {
                set(tree, Tree::ROOT, line);
                Ok(())
            }
            _ => Err("the root is a directory".to_owned()),
        };
    };
    let mut directory = Tree::ROOT;
    for part in parents {
        directory = tree.lookup(directory, part).ok_or_else(|| {
            format!(
                "there is no {}; make it with a line of type d",
                String::from_utf8_lossy(part)
            )
        })?;
    }
    let (major, first_minor) = (line.major, line.minor);
    match line.kind {
        "f" => {
            let file = tree.lookup(directory, last).ok_or("there is no such file")?;
            set(tree, file, line);
            Ok(())
        }
        "d" => {
            let file = tree.lookup(directory, last);
            match file.map(|file| (file, &tree.file(file).content)) {
                Some((file, Content::Directory(_))) => set(tree, file, line),
                Some(_) => return Err("it is there and is no directory".to_owned()),
                None => {
                    add(
                        tree,
                        directory,
                        last.to_vec(),
                        Content::Directory(BTreeMap::new()),
                        line,
                        now,
                    )?;
                }
            }
            Ok(())
        }
        "p" => add(tree, directory, last.to_vec(), Content::Fifo, line, now),
        "c" | "b" => {
            let numbers = line.start..line.start.saturating_add(line.count.max(1));
            for number in numbers {
                let minor = first_minor.saturating_add((number - line.start).saturating_mul(line.increment));
                let content = match line.kind {
                    "c" => Content::CharacterDevice { major, minor },
                    _ => Content::BlockDevice { major, minor },
                };
                let mut name = last.to_vec();
                if line.count > 0 {
                    name.extend_from_slice(number.to_string().as_bytes());
                }
                add(tree, directory, name, content, line, now)?;
            }
            Ok(())
        }
        other => Err(format!("type `{other}` is none of f, d, c, b and p")),
    }
}

fn set(tree: &mut Tree, file: FileNumber, line: &Line<'_>) {
    let attributes = &mut tree.file_mut(file).attributes;
    attributes.permissions = line.permissions;
    (attributes.user, attributes.group) = (line.user, line.group);
}

/// Creates a file, or replaces an existing one of the same type.
fn add(
    tree: &mut Tree,
    directory: FileNumber,
    name: Vec<u8>,
    content: Content,
    line: &Line<'_>,
    now: Time,
) -> Result<(), String> {
    if let Some(file) = tree.lookup(directory, &name) {
        let same = std::mem::discriminant(&tree.file(file).content) == std::mem::discriminant(&content);
        if !same {
            return Err(format!(
                "{} is there and is something else",
                String::from_utf8_lossy(&name)
            ));
        }
        tree.file_mut(file).content = content;
        set(tree, file, line);
        return Ok(());
    }
    let attributes = Attributes {
        permissions: line.permissions,
        user: line.user,
        group: line.group,
        accessed: now,
        modified: now,
        changed: now,
        xattrs: BTreeMap::new(),
    };
    let file = tree.add(TreeFile { attributes, content });
    match tree.link(directory, name, file) {
        true => Ok(()),
        false => Err("what it is to be in is no directory".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(table: &str) -> Result<Tree, DeviceTableError> {
        let mut tree = Tree::empty(Attributes::default());
        apply_device_table(&mut tree, table, Time::default()).map(|()| tree)
    }

    #[test]
    fn a_row_of_devices_is_made_with_growing_numbers() {
        let tree =
            applied("# devices\n/dev d 755 0 0 - - - - -\n/dev/tty c 620 0 5 4 10 1 2 3\n").expect("good");
        let dev = tree.lookup(Tree::ROOT, b"dev").expect("made");
        for (name, minor) in [("tty1", 10), ("tty2", 12), ("tty3", 14)] {
            let file = tree.file(tree.lookup(dev, name.as_bytes()).expect("made"));
            assert_eq!(file.content, Content::CharacterDevice { major: 4, minor });
            assert_eq!((file.attributes.permissions, file.attributes.group), (0o620, 5));
        }
        assert_eq!(tree.count(), 5);
    }

    #[test]
    fn a_line_that_makes_no_sense_is_named() {
        for (table, why) in [
            ("/a f 644 0 0", "no such file"),
            ("/a/b c 644 0 0 1 1", "there is no a"),
            ("a d 755 0 0", "start with /"),
            ("/a d 9 0 0", "no mode"),
            ("/a x 644 0 0", "none of"),
            ("/a d 755", "at least"),
        ] {
            let error = applied(&format!("\n{table}")).expect_err(table);
            assert!(error.line == 2 && error.why.contains(why), "{table}: {error}");
        }
    }
}
