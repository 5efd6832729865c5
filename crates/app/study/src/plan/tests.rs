use super::*;
use crate::cell::{Cell, blocks, combinations, slots};

const SMALL: &str = r#"
name = "small"
[environment]
device = "image"
[defaults]
scheduler = "none"
mount.flusher = "off"
[setting.buffered]
mount.flusher = "thread"
[workload]
size = "8m"
[[exhibit]]
name = "one"
x = "mount.io-unit"
series = "setting"
y = "share-of-max"
axes.mount.io-unit = ["4k", "512k"]
axes.setting = ["buffered"]
[[exhibit]]
name = "two"
x = "fs"
where = { mount.io-unit = "4k", setting = "buffered" }
axes.fs = ["ext4", "xfs"]
"#;

fn refused(text: &str) -> String {
    format!(
        "{:#}",
        Plan::parse("p.toml", text).expect_err("it must be refused")
    )
}

fn changed(from: &str, to: &str) -> String {
    assert!(SMALL.contains(from), "{from}");
    SMALL.replacen(from, to, 1)
}

#[test]
fn cells_of_several_exhibits_are_measured_once() {
    let plan = Plan::parse("p.toml", SMALL).unwrap();
    let blocks = blocks(&plan).unwrap();
    let sizes: Vec<usize> = blocks.iter().map(|block| block.cells.len()).collect();
    // ext4: the raw device and two units; the cell of the second exhibit is one of them.
    assert_eq!(sizes, [3, 1]);
    assert!(blocks[0].cells[0].is_raw());
    assert_eq!(combinations(&plan), 4);
}

#[test]
fn a_setting_lies_above_the_defaults_and_below_the_axes() {
    let plan = Plan::parse("p.toml", SMALL).unwrap();
    let slot = &slots(&plan, &plan.exhibits[0]).unwrap()[0];
    assert_eq!(slot.cell.value("mount.flusher"), "thread");
    assert_eq!(slot.cell.value("mount.io-unit"), "4k");
    assert_eq!(slot.cell.flags("mount."), ["--flusher=thread", "--io-unit=4k"]);
    let native = Values::from([("path".to_owned(), "native".to_owned())]);
    let cell = Cell::of(&plan, &[&native]).unwrap();
    assert_eq!(
        cell.flags("mount."),
        Vec::<String>::new(),
        "a mount option is nothing to a native cell"
    );
}

#[test]
fn a_folder_has_neither_file_systems_nor_schedulers() {
    let plan = Plan::parse("p.toml", &changed("\"image\"", "\"directory:/tmp\"")).unwrap();
    let cells = &blocks(&plan).unwrap()[0].cells;
    let paths: Vec<&str> = cells.iter().map(|cell| cell.value("path")).collect();
    assert_eq!(paths, ["mount", "mount", "native"], "MAX is the folder itself");
    let raw = changed("\"image\"", "\"directory:/tmp\"").replace("setting = \"buffered\"", "path = \"raw\"");
    let error = blocks(&Plan::parse("p.toml", &raw).unwrap()).unwrap_err();
    assert!(
        format!("{error:#}").contains("path = \"raw\" needs a device"),
        "{error:#}"
    );
}

#[test]
fn cells_of_the_guest_are_blocks_of_their_own_with_a_max_of_their_own() {
    let text = changed(
        "[\"buffered\"]",
        "[\"buffered\"]\naxes.machine = [\"host\", \"guest\"]",
    );
    let plan = Plan::parse("p.toml", &text).unwrap();
    let blocks = blocks(&plan).unwrap();
    let sizes: Vec<(bool, usize)> = blocks
        .iter()
        .map(|block| (block.is_in_guest(), block.cells.len()))
        .collect();
    assert_eq!(sizes, [(false, 3), (true, 3), (false, 1)]);
    let raw = &blocks[1].cells[0];
    assert!(raw.is_raw());
    assert_eq!(raw.value("machine"), "guest");
    // One boot serves all blocks of the guest.
    assert_eq!(crate::measure::sides(&blocks), [vec![0], vec![2], vec![1]]);
    let folder = Plan::parse("p.toml", &text.replace("\"image\"", "\"directory:/tmp\"")).unwrap();
    let error = format!("{:#}", crate::cell::blocks(&folder).unwrap_err());
    assert!(error.contains("a card or an image"), "{error}");
    let other = Plan::parse("p.toml", &text.replace("\"guest\"]", "\"gest\"]")).unwrap();
    let error = format!("{:#}", crate::cell::blocks(&other).unwrap_err());
    assert!(
        error.contains("machine: `gest`") && error.contains("guest"),
        "{error}"
    );
}

#[test]
fn an_exhibit_with_fewer_rounds_limits_only_cells_of_its_own() {
    let text = changed("x = \"fs\"", "x = \"fs\"\nrounds = 1");
    let blocks = blocks(&Plan::parse("p.toml", &text).unwrap()).unwrap();
    let counts = |round| {
        blocks
            .iter()
            .map(|block| block.order(round).len())
            .collect::<Vec<_>>()
    };
    // The cell on ext4 belongs to the other exhibit too.
    assert_eq!(counts(0), [3, 1]);
    assert_eq!(counts(1), [3, 0]);
    assert!(refused(&text.replace("rounds = 1", "rounds = 0")).contains("exhibit `two`: rounds: 0"));
}

#[test]
fn mistakes_are_named_with_their_place() {
    for (from, to, expected) in [
        (
            "series",
            "sereis",
            "p.toml:15: unknown field `sereis`, expected one of `name`",
        ),
        ("series", "sereis", "did you mean `series`?"),
        (
            "scheduler",
            "schedular",
            "p.toml: defaults: `schedular` is none of fs, ",
        ),
        ("scheduler", "schedular", "did you mean `scheduler`?"),
        ("[\"buffered\"]", "[]", "exhibit `one`: axes.setting: no value"),
        (
            "[\"ext4\", \"xfs\"]",
            "[\"xfs\", \"xfs\"]",
            "exhibit `two`: axes.fs: `xfs` twice",
        ),
        ("\"two\"", "\"one\"", "exhibit `one`: there are two of this name"),
        (
            "[[exhibit]]",
            "[run]\ncell-time = \"0s\"\n[[exhibit]]",
            "run.cell-time: 0s, expected a time above 0",
        ),
        (
            "[\"buffered\"]",
            "[\"bufered\"]",
            "exhibit `one`: setting `bufered` is none of buffered",
        ),
        ("\"share-of-max\"", "\"speed\"", "y: `speed`, expected mb-per-s"),
        (
            "\"image\"",
            "\"floppy\"",
            "environment.device: `floppy`, expected card:NAME",
        ),
        (
            "\"image\"",
            "\"/dev/sdx\"",
            "everything on /dev/sdx would be overwritten",
        ),
        ("\"image\"", "\"image\"\ntime-scale = 2", "only a card has one"),
        (
            "\"image\"",
            "\"card:gt-i9300\"\ntime-scale = 0",
            "environment.time-scale: 0, expected a number from 0.01 to 1000",
        ),
        (
            "\"image\"",
            "\"card:gt-i9300\"\ntime-scale = nan",
            "expected a number from 0.01 to 1000",
        ),
        (
            "\"image\"",
            "\"card:gt-i9300\"\ntime-scale = \"calibrate\"",
            "environment.calibrate: missing",
        ),
        (
            "\"image\"",
            "\"image\"\n[environment.guest]\ntime-scale = 2",
            "environment.guest.time-scale: only a card has one",
        ),
        (
            "\"image\"",
            "\"card:gt-i9300\"\n[environment.guest]\ntime-scale = -1",
            "environment.guest.time-scale: -1, expected a number from 0.01 to 1000",
        ),
        (
            "\"image\"",
            "\"image\"\n[environment.guest]\nsice = \"1g\"",
            "did you mean `size`?",
        ),
        (
            "\"image\"",
            "\"image\"\n[environment.guest]\ncell-time = \"soon\"",
            "environment.guest.cell-time: ",
        ),
        ("x = \"fs\"", "x = \"path\"", "x or series: `path` is none of fs"),
        (
            "size = \"8m\"",
            "size = [1]",
            "workload.size: array, expected a text",
        ),
        (
            "[workload]",
            "[run]\nrounds = 0\n[workload]",
            "run.rounds: 0, expected at least 1",
        ),
    ] {
        let message = refused(&changed(from, to));
        assert!(message.contains(expected), "{message}\nexpected: {expected}");
    }
    assert!(refused("name = ").starts_with("p.toml:1: "));
    assert!(
        refused("name = \"x\"\n[environment]\ndevice = \"image\"").contains("there is nothing to measure")
    );
}

#[test]
fn a_cell_is_traced_or_refused_and_never_measured_without_its_trace() {
    let cells = |value: &str| {
        let text = changed("scheduler", &format!("trace = {value}\nscheduler"));
        blocks(&Plan::parse("p.toml", &text).unwrap())
    };
    assert_eq!(cells("\"on\"").unwrap()[0].cells[1].value("trace"), "on");
    assert_eq!(cells("\"off\"").unwrap()[0].cells[1].value("trace"), "");
    for value in ["true", "\"yes\"", "\"\""] {
        let error = format!("{:#}", cells(value).unwrap_err());
        assert!(error.contains("trace: ") && error.contains("on, off"), "{error}");
    }
}

#[test]
fn the_plans_of_the_program_are_plans() {
    for (name, text) in PRESETS {
        let mut plan = Plan::parse(name, text).unwrap();
        let all = combinations(&plan);
        let quick = plan.run.quick.clone();
        for exhibit in &quick.only {
            assert!(
                plan.exhibits.iter().any(|known| known.name == *exhibit),
                "{exhibit}"
            );
        }
        plan.apply(&quick);
        assert!(combinations(&plan) <= all, "{name}");
        blocks(&plan).unwrap();
    }
}
