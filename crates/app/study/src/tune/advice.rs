//! The result of a race in words, and the lines that make a setting permanent.

use std::path::Path;

use results::Estimate;
use serde_json::{Value, json};

use super::Tuned;
use crate::bed::scheduler_of;
use crate::cell::{AS_IT_IS, Cell};
use crate::gate;
use crate::plan::{Device, Plan};

/// The result and the lines to use.
#[must_use]
pub fn text(plan: &Plan, tuned: &Tuned) -> String {
    let mut text = result(plan, tuned);
    if let Some((_, reason)) = tuned.failed.first() {
        let cells: Vec<_> = tuned.failed.iter().map(|(cell, _)| cell).collect();
        text += &format!(
            "\n{} settings failed, and nothing is known about them: {}\n  {}\n",
            cells.len(),
            titles(plan, tuned, &cells).join(", "),
            reason.lines().next().unwrap_or_default()
        );
    }
    text
}

/// The values by which settings differ from the default and each other.
fn titles(plan: &Plan, tuned: &Tuned, cells: &[&Cell]) -> Vec<String> {
    let with_base: Vec<&Cell> = [&tuned.base].into_iter().chain(cells.iter().copied()).collect();
    gate::titles(plan, &with_base).split_off(1)
}

fn result(plan: &Plan, tuned: &Tuned) -> String {
    let interval = |gain: &Estimate| format!("{:.3} [{:.3}, {:.3}]", gain.value, gain.low, gain.high);
    let Some(winner) = &tuned.winner else {
        return "keep the default: no setting was faster in the race\n".to_owned();
    };
    let titles = gate::titles(plan, &[&tuned.base, winner]);
    let measured = tuned.gain.as_ref().map_or_else(
        || "it was not confirmed".to_owned(),
        |gain| {
            format!(
                "{} of the default's MB/s in {} new rounds ({:.0} %)",
                interval(gain),
                gain.count,
                gain.coverage * 100.0
            )
        },
    );
    let Some(better) = tuned.better() else {
        return format!(
            "keep the default: the fastest of the race was no faster for certain\n  {}: {measured}\n",
            titles[1]
        );
    };
    let mut text = format!("use {}: {measured}\n  default: {}\n\n", titles[1], titles[0]);
    for line in lines(plan, better) {
        text += &line;
        text.push('\n');
    }
    text
}

/// Lines for the shell, /etc/fstab and udev. Names that the race can't know are in capitals.
fn lines(plan: &Plan, cell: &Cell) -> Vec<String> {
    let mut lines = Vec::new();
    let data = match &plan.environment.device {
        Device::Directory(path) => path.display().to_string(),
        _ => "/DATA".to_owned(),
    };
    if cell.value("fs") != AS_IT_IS {
        let (device, disk) = match &plan.environment.device {
            Device::Block(path) => (path.display().to_string(), disk_name(path)),
            _ => ("/dev/DEVICE".to_owned(), "DEVICE".to_owned()),
        };
        let fs = cell.value("fs");
        let mut maker = vec![format!("mkfs.{fs}")];
        maker.extend(cell.value("mkfs").split_whitespace().map(shell_word));
        maker.push(shell_word(&device));
        lines.push("# once; it erases the device".to_owned());
        lines.push(maker.join(" "));
        let options = match cell.value("mount-options") {
            "" => "defaults",
            options => options,
        };
        lines.push("# /etc/fstab".to_owned());
        let fields = [&device, &data, fs, options].map(fstab_field);
        lines.push(format!("{}  0  2", fields.join("  ")));
        lines.push(fuse_line(cell, &data));
        lines.push("# /etc/udev/rules.d/60-scheduler.rules".to_owned());
        lines.push(format!(
            "ACTION==\"add|change\", KERNEL==\"{disk}\", ATTR{{queue/scheduler}}=\"{}\"",
            cell.value("scheduler")
        ));
    } else {
        lines.push("# /etc/fstab".to_owned());
        lines.push(fuse_line(cell, &data));
    }
    lines.push("# or by hand".to_owned());
    let flags: Vec<String> = cell.flags("mount.").iter().map(|flag| shell_word(flag)).collect();
    let words = ["tidegate mount".to_owned()].into_iter().chain(flags);
    let words: Vec<String> = words
        .chain([shell_word(&data), "/MOUNTPOINT".to_owned()])
        .collect();
    lines.push(words.join(" "));
    lines
}

/// The kernel's name of the disk that has the scheduler of a device, which may be a link or a partition.
fn disk_name(device: &Path) -> String {
    let scheduler = scheduler_of(device).ok();
    let disk = scheduler
        .as_deref()
        .and_then(|file| file.ancestors().nth(2)?.file_name());
    let name = disk.or_else(|| device.file_name()).unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// A word for a shell.
fn shell_word(text: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_@%+=:,./-".contains(letter);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

/// A field of /etc/fstab, where blanks separate fields and `#` begins a comment.
fn fstab_field(text: &str) -> String {
    let escaped = |letter: char| match letter {
        ' ' | '\t' | '\n' | '\\' | '#' => format!("\\{:03o}", u32::from(letter)),
        other => other.to_string(),
    };
    text.chars().map(escaped).collect()
}

/// The line of /etc/fstab for the mount through FUSE.
fn fuse_line(cell: &Cell, data: &str) -> String {
    let options: Vec<String> = cell
        .flags("mount.")
        .iter()
        .map(|flag| {
            let flag = flag.trim_start_matches("--");
            let (name, value) = flag.split_once('=').unwrap_or((flag, ""));
            let name = name.replace('-', "_");
            match value {
                "" => name,
                value => format!("{name}={value}"),
            }
        })
        .collect();
    let options = match options.is_empty() {
        true => "defaults".to_owned(),
        false => options.join(","),
    };
    let (data, options) = (fstab_field(data), fstab_field(&options));
    format!("{data}  /MOUNTPOINT  fuse.tidegate  {options}  0  0")
}

/// Everything as one document in JSON.
#[must_use]
pub fn json(plan: &Plan, tuned: &Tuned) -> Value {
    json!({
        "schema": "tidegate.tune/1",
        "name": plan.name,
        "default": tuned.base,
        "winner": tuned.winner,
        "gain": tuned.gain,
        "failed": tuned.failed.iter().map(|(cell, reason)| json!({ "cell": cell, "reason": reason })).collect::<Vec<_>>(),
        "verdict": if tuned.better().is_some() { "use the winner" } else { "keep the default" },
        "lines": tuned.better().map(|cell| lines(plan, cell)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines_for(device: &str) -> Vec<String> {
        let text = format!("name = \"p\"\n[environment]\n{device}\n[defaults]\nfs = \"ext4\"\n");
        let plan = Plan::parse("p", &(text + "[axes]\nmount.io-unit = [\"4k\"]\n")).unwrap();
        let cell = Cell::of(&plan, &[]).unwrap().with("mount.io-unit", "4k");
        lines(&plan, &cell)
    }

    #[test]
    fn lines_name_a_folder_as_shells_and_fstab_read_it() {
        let lines = lines_for("device = \"directory:/srv/my data; rm -rf #1/it's\"");
        assert_eq!(
            lines[1],
            "/srv/my\\040data;\\040rm\\040-rf\\040\\0431/it's  /MOUNTPOINT  fuse.tidegate  io_unit=4k  0  0"
        );
        assert_eq!(
            lines.last().unwrap(),
            "tidegate mount --io-unit=4k '/srv/my data; rm -rf #1/it'\\''s' /MOUNTPOINT"
        );
    }

    #[test]
    fn a_rule_for_the_scheduler_has_no_path() {
        let lines = lines_for("device = \"/dev/disk/by-id/a disk\"\ndestroy-data = true");
        assert!(
            lines.contains(&"mkfs.ext4 '/dev/disk/by-id/a disk'".to_owned()),
            "{lines:?}"
        );
        let rule = lines.iter().find(|line| line.starts_with("ACTION")).unwrap();
        assert!(rule.contains("KERNEL==\"a disk\""), "{rule}");
    }
}
