//! The result of a race in words, and the lines that make a setting permanent.

use results::Estimate;
use serde_json::{Value, json};

use super::Tuned;
use crate::cell::{AS_IT_IS, Cell};
use crate::gate;
use crate::plan::{Device, Plan};

/// The result and the lines to use.
#[must_use]
pub fn text(plan: &Plan, tuned: &Tuned) -> String {
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
        let device = match &plan.environment.device {
            Device::Block(path) => path.display().to_string(),
            _ => "/dev/DEVICE".to_owned(),
        };
        let fs = cell.value("fs");
        let maker = ["mkfs.", fs, " ", cell.value("mkfs"), " ", &device].concat();
        lines.push("# once; it erases the device".to_owned());
        lines.push(maker.replace("  ", " "));
        let options = match cell.value("mount-options") {
            "" => "defaults",
            options => options,
        };
        lines.push("# /etc/fstab".to_owned());
        lines.push(format!("{device}  {data}  {fs}  {options}  0  2"));
        let kernel_name = device.trim_start_matches("/dev/");
        lines.push(fuse_line(cell, &data));
        lines.push("# /etc/udev/rules.d/60-scheduler.rules".to_owned());
        lines.push(format!(
            "ACTION==\"add|change\", KERNEL==\"{kernel_name}\", ATTR{{queue/scheduler}}=\"{}\"",
            cell.value("scheduler")
        ));
    } else {
        lines.push("# /etc/fstab".to_owned());
        lines.push(fuse_line(cell, &data));
    }
    lines.push("# or by hand".to_owned());
    let flags: Vec<String> = cell.flags("mount.");
    let words = ["tidegate mount".to_owned()].into_iter().chain(flags);
    let words: Vec<String> = words.chain([data, "/MOUNTPOINT".to_owned()]).collect();
    lines.push(words.join(" "));
    lines
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
        "verdict": if tuned.better().is_some() { "use the winner" } else { "keep the default" },
        "lines": tuned.better().map(|cell| lines(plan, cell)),
    })
}
