//! `tidegate emmc` as a program: its results are reproducible, and other commands read its files.

use std::path::Path;
use std::process::{Command, Output};

fn tidegate(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(arguments)
        .output()
        .expect("tidegate starts")
}

fn json(output: &Output) -> serde_json::Value {
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&text)
        .unwrap_or_else(|error| panic!("{error}: {text}{}", String::from_utf8_lossy(&output.stderr)))
}

fn path(path: &Path) -> &str {
    path.to_str().expect("paths of tests are UTF-8")
}

const SMALL: [&str; 6] = ["emmc", "run", "--load", "tio-rand", "--size", "8m"];

#[test]
fn packing_random_writes_is_faster_and_takes_fewer_interrupts() {
    let record = |pack: &str| json(&tidegate(&[&SMALL[..], &["--pack", pack, "--json"]].concat()));
    let (off, random) = (record("off"), record("random"));
    let elapsed = |record: &serde_json::Value| record["samples"][0]["elapsed_ns"].as_u64().expect("a time");
    assert!(elapsed(&random) < elapsed(&off), "{off} {random}");
    let interrupts = |record: &serde_json::Value| record["counters"]["emmc_interrupts_count"].as_f64();
    assert!(interrupts(&random) < interrupts(&off));
}

#[test]
fn a_run_made_twice_gives_the_same_text() {
    let text = || tidegate(&SMALL).stdout;
    let first = text();
    assert_eq!(first, text());
    let head = String::from_utf8_lossy(&first).into_owned();
    assert!(
        head.contains("load           tio-rand")
            && head.contains("\nhost           ")
            && head.contains("packs of up to "),
        "{head}"
    );
}

#[test]
fn a_record_and_a_trace_are_left_for_other_commands() {
    let folder = tempfile::tempdir().expect("a folder");
    let (record, trace) = (folder.path().join("runs.jsonl"), folder.path().join("card.trace"));
    let run = tidegate(&[&SMALL[..], &["--record", path(&record), "--trace", path(&trace)]].concat());
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let records = results::read_records(&record).expect("records");
    assert_eq!(records.len(), 1);
    assert_eq!(records[0].target.scheduler.as_deref(), Some("cfq"));
    let info = tidegate(&["trace", "info", path(&trace), "--json"]);
    assert!(info.status.success(), "{}", String::from_utf8_lossy(&info.stderr));
    // Replays the trace of this run as the load of another.
    let again = tidegate(&[
        "emmc",
        "run",
        "--replay",
        path(&trace),
        "--scheduler",
        "noop",
        "--json",
    ]);
    let again = json(&again);
    assert!(again["samples"][0]["bytes"].as_u64() > Some(4 << 20), "{again}");
}

#[test]
fn presets_name_their_sources_and_unknown_ones_are_answered_with_the_known() {
    let list = json(&tidegate(&["emmc", "presets", "--json"]));
    assert!(
        list["cards"].as_array().is_some_and(|cards| cards.len() >= 6),
        "{list}"
    );
    let unknown = tidegate(&["emmc", "run", "--card", "nexus"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("gt-i9300"));
}

/// The file that `presets NAME` prints is the same card or host, and a copy of it can be changed.
#[test]
fn a_printed_preset_is_a_file_for_card_and_host() {
    let folder = tempfile::tempdir().expect("a folder");
    let (card, host) = (folder.path().join("card.toml"), folder.path().join("host.toml"));
    for (name, file) in [("gt-i9300", &card), ("mshci", &host)] {
        let printed = tidegate(&["emmc", "presets", name]);
        assert_eq!(printed.status.code(), Some(0));
        std::fs::write(file, printed.stdout).expect("a file");
    }
    let time = |card: &str, host: &str| {
        let load = ["--load", "random-write", "--size", "1m"];
        let run = tidegate(
            &[
                &["emmc", "run", "--card", card, "--host", host],
                &load[..],
                &["--json"],
            ]
            .concat(),
        );
        json(&run)["samples"].clone()
    };
    let of_preset = time("gt-i9300", "mshci");
    assert_eq!(time(path(&card), path(&host)), of_preset);
    let text = std::fs::read_to_string(&card).expect("the file");
    std::fs::write(&card, text.replace("banks = 16", "banks = 1")).expect("a file");
    assert_ne!(time(path(&card), path(&host)), of_preset);
}

#[test]
fn one_exhibit_of_the_paper_is_drawn_as_text_and_page() {
    let folder = tempfile::tempdir().expect("a folder");
    let page = folder.path().join("paper.html");
    let drawn = tidegate(&[
        "emmc",
        "paper",
        "--scale",
        "10",
        "--bands",
        "off",
        "--only",
        "table 1",
        "--html",
        path(&page),
    ]);
    let text = String::from_utf8_lossy(&drawn.stdout);
    assert!(
        text.contains("REL and READ are 0"),
        "{text}{}",
        String::from_utf8_lossy(&drawn.stderr)
    );
    assert!(
        std::fs::read_to_string(&page)
            .expect("a page")
            .contains("table 1")
    );
    // One world has no band, so that nothing is said to hold.
    assert!(
        text.contains("inside")
            && text.contains("without bands no claim holds")
            && !text.contains("claims hold\n"),
        "{text}"
    );
}

#[test]
fn the_result_of_a_fit_is_judged_and_a_bad_one_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("fit.json");
    let judged = |text: &[u8]| {
        std::fs::write(&file, text).expect("a file");
        let options = ["--scale", "10", "--bands", "off", "--only", "table 1", "--fit"];
        tidegate(&[&["emmc", "paper"], &options[..], &[path(&file), "--json"]].concat())
    };
    let fitted = tidegate(&["emmc", "fit", "--evaluations", "1", "--scale", "10", "--json"]);
    assert_ne!(judged(&fitted.stdout).status.code(), Some(2));
    let text = String::from_utf8_lossy(&fitted.stdout).into_owned();
    for (bad, word) in [
        ("no JSON".to_owned(), "no result of tidegate emmc fit"),
        ("{}".to_owned(), "expected 60000 to 300000"),
        (
            text.replace("phone: command_ns", "phone: command"),
            "phone: command_ns",
        ),
        (text.replace("\"value\":", "\"value\":-"), "is -"),
    ] {
        let refused = judged(bad.as_bytes());
        let message = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(2), "{message}");
        assert!(
            message.contains("fit.json") && message.contains(word),
            "{message}"
        );
    }
}

/// Flags that could have no effect on an attached card are refused before anything starts.
#[test]
fn what_an_attached_card_cannot_know_is_refused() {
    for (flags, word) in [
        (["--contexts", "3"], "emmc run"),
        (["--data-tag", "on"], "--request-flags on"),
    ] {
        let refused = tidegate(&[&["emmc", "attach"], &flags[..]].concat());
        let message = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{message}");
        assert!(message.contains(word), "{message}");
    }
}

/// A flag that would have no effect, or a load without a request, is refused.
#[test]
fn loads_without_requests_and_flags_without_effect_are_refused() {
    for (flags, word) in [
        (
            &["--load", "random-write", "--size", "512"][..],
            "take 4096 or more",
        ),
        (&["--load", "tio-rand", "--size", "8k"], "take 16384 or more"),
        (&["--load", "random-read", "--block", "4097"], "512"),
        (&["--load", "postmark", "--size", "1m"], "leave it out"),
        (
            &[
                "--host",
                "cqhci-hs400",
                "--command-queue",
                "8",
                "--pack",
                "random",
            ],
            "cannot be used with",
        ),
    ] {
        let refused = tidegate(&[&["emmc", "run"], flags].concat());
        let message = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{flags:?}: {message}");
        assert!(message.contains(word), "{flags:?}: {message}");
    }
}

/// Metadata is written reliably: on a card that does not take it in packs it ends them.
#[test]
fn reliable_writes_end_packs_of_cards_that_do_not_take_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let trace = folder.path().join("card.blkparse");
    let lines = (0..6).map(|n| {
        let (flags, sector) = (if n == 3 { "WM" } else { "W" }, 2048 + n * 1024);
        format!(
            "179,0 0 {} 0.000000000 42 Q {flags} {sector} + 1024 [a{n}]\n",
            n + 1
        )
    });
    std::fs::write(&trace, lines.collect::<String>()).expect("a trace");
    let halts = |reliable: &str| {
        let flags = ["--scheduler", "noop", "--pack-reliable", reliable, "--json"];
        let record = json(&tidegate(
            &[&["emmc", "run", "--replay", path(&trace)], &flags[..]].concat(),
        ));
        record["counters"]["emmc_halts_rel_count"].as_f64()
    };
    assert_eq!((halts("on"), halts("off")), (Some(0.0), Some(1.0)));
}

/// Each run checks at its end that its counters add up: all loads on all cards, new and used.
#[test]
fn every_load_runs_on_every_card() {
    let whole = !testkit::left_to_full("all loads on all cards take minutes");
    let list = json(&tidegate(&["emmc", "presets", "--json"]));
    let cards = list["cards"].as_array().expect("cards");
    let loads = [
        "tio-seq",
        "tio-rand",
        "random-write",
        "random-read",
        "sequential-write",
        "postmark",
        "google-drive",
        "app-install",
    ];
    for card in cards.iter().take(if whole { cards.len() } else { 1 }) {
        let (name, bytes) = (&card["name"], &card["flash"]["capacity_bytes"]);
        let (name, bytes) = (name.as_str().expect("a name"), bytes.to_string());
        for load in loads {
            for written in ["0", &bytes] {
                let long = matches!(load, "postmark" | "google-drive" | "app-install") || written != "0";
                if long && !whole {
                    continue;
                }
                let options = [
                    "--card",
                    name,
                    "--load",
                    load,
                    "--size",
                    "16m",
                    "--written",
                    written,
                ];
                let run = tidegate(&[&["emmc", "run"], &options[..], &["--json"]].concat());
                let message = String::from_utf8_lossy(&run.stderr);
                assert_eq!(run.status.code(), Some(0), "{load} on {name}: {message}");
                let energy = &json(&run)["counters"]["emmc_flash_energy_mj"];
                assert_eq!(
                    energy.is_number(),
                    name.starts_with("gt-"),
                    "{load} on {name}: {energy}"
                );
            }
        }
    }
}

/// The card of `emmc paper` is what the fit finds from the card that was set by hand.
#[test]
fn the_fitted_card_is_the_result_of_the_fit() {
    if testkit::left_to_full("700 evaluations take minutes") {
        return;
    }
    let fit = [
        "emmc",
        "fit",
        "--evaluations",
        "700",
        "--scale",
        "120",
        "--seed",
        "1",
        "--json",
    ];
    let found = json(&tidegate(&fit));
    let list = json(&tidegate(&["emmc", "presets", "gt-i9300-fit", "--json"]));
    let card = &list["cards"][0];
    for (name, preset) in [
        ("phone: transfer_ns", &card["flash"]["transfer_ns"]),
        ("phone: program_slc_us", &card["flash"]["program_slc_us"]),
        ("phone: command_ns", &card["controller"]["command_ns"]),
        ("phone: packed_entry_ns", &card["controller"]["packed_entry_ns"]),
    ] {
        let parameters = found["parameters"].as_array().expect("parameters");
        let value = parameters
            .iter()
            .find(|one| one["name"] == name)
            .expect("a parameter");
        let (value, preset) = (value["value"].as_f64(), preset.as_f64());
        let ratio = value.expect("a number") / preset.expect("a number");
        assert!((ratio - 1.0).abs() < 0.005, "{name}: {ratio}, {found}");
    }
    let cost = |name: &str| found[name].as_f64().expect("a cost");
    assert!(cost("cost") < cost("cost_before"), "{found}");
    // The interval of other programs' reads is that of the fit as well.
    assert!(
        (cost("cost_of_preset") / cost("cost") - 1.0).abs() < 0.02,
        "{found}"
    );
}

/// Checked before privileges, so that nothing has been touched; and without them.
#[test]
fn a_card_is_not_attached_at_an_impossible_time_scale() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = folder.path().join("run");
    for scale in ["0", "-1", "nan", "inf", "fast", "0.001", "1001", "1e2", ""] {
        let refused = tidegate(&[
            "emmc",
            "attach",
            "--time-scale",
            scale,
            "--run-folder",
            path(&run),
        ]);
        let message = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{scale}: {message}");
        assert!(
            message.contains("--time-scale") && (message.contains("from 0.01 to 1000") || scale.is_empty()),
            "{scale}: {message}"
        );
        assert!(!run.exists(), "{scale}");
    }
}

/// Two tasks with 16 reads each: the quantum limits each queue's part of the driver's queue while the other one is busy.
#[test]
fn the_quantum_of_cfq_changes_the_results() {
    let elapsed = |quantum: &str| {
        let record = json(&tidegate(&[
            "emmc",
            "run",
            "--load",
            "random-read",
            "--tasks",
            "2",
            "--depth",
            "16",
            "--size",
            "4m",
            "--range",
            "64m",
            "--written",
            "64m",
            "--host",
            "cqhci-hs400",
            "--command-queue",
            "32",
            "--cfq-quantum",
            quantum,
            "--json",
        ]));
        record["samples"][0]["elapsed_ns"].as_u64().expect("a time")
    };
    let (small, large) = (elapsed("1"), elapsed("16"));
    assert!(large < small, "{small} and {large} ns");
}

#[test]
fn every_command_on_the_bus_is_listed_with_its_argument() {
    let folder = tempfile::tempdir().expect("a folder");
    let list = folder.path().join("bus.jsonl");
    let listed = |pack: &str| -> Vec<serde_json::Value> {
        let options = ["--pack", pack, "--contexts", "3", "--commands", path(&list)];
        let run = tidegate(&[&SMALL[..], &options[..]].concat());
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
        let text = std::fs::read_to_string(&list).expect("a list");
        let lines = text
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON lines"));
        lines.collect()
    };
    let contexts: std::collections::BTreeSet<u64> = listed("off")
        .iter()
        .filter(|command| command["command"] == 23)
        .filter_map(|command| Some(command["argument"].as_u64()? >> 25 & 0xF))
        .collect();
    assert!(
        [1, 2, 3].iter().all(|context| contexts.contains(context)),
        "{contexts:?}"
    );
    let packed = listed("random");
    let header = packed.iter().find_map(|command| command["pack_header"].as_str());
    assert!(
        header.is_some_and(|header| header.len() == 1024 && header.starts_with("0102")),
        "{header:?}"
    );
}

#[test]
fn a_host_without_a_command_queue_is_refused_one() {
    let refused = tidegate(&[&SMALL[..], &["--command-queue", "8"]].concat());
    assert_eq!(refused.status.code(), Some(2));
    let message = String::from_utf8_lossy(&refused.stderr);
    assert!(message.contains("cqhci-hs400"), "{message}");
}

#[test]
fn bad_cards_are_refused_in_few_words() {
    let folder = tempfile::TempDir::new().unwrap();
    let card = folder.path().join("bad.toml");
    let refused = |text: &str| {
        std::fs::write(&card, text).unwrap();
        let output = tidegate(&["emmc", "run", "--card", path(&card), "--size", "64k"]);
        assert_eq!(output.status.code(), Some(2));
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(message.len() < 4096, "{} bytes", message.len());
        message
    };
    assert!(refused(&format!("name = {}", "x".repeat(500_000))).contains("bad.toml"));
    assert!(refused(&format!("# {}", "x".repeat(2 << 20))).contains("longer than 1 MiB"));
    let preset = include_str!("../../../../emmc/emmc/cards/gt-i9300.toml");
    let huge = preset.replace("capacity_bytes = 17179869184", "capacity_bytes = 17592186044416");
    assert_ne!(huge, preset);
    assert!(refused(&huge).contains("at most 512 GiB"));
}

/// Held-out claims hold over the whole band of the assumed numbers, 8 of 34 at full scale and 6 at a tenth of the bytes; and every
/// claim says what kind of evidence it is.
#[test]
fn predictions_of_the_paper_hold_whatever_is_assumed() {
    if testkit::left_to_full("31 worlds take minutes") {
        return;
    }
    let document = json(&tidegate(&["emmc", "paper", "--scale", "100", "--json"]));
    let claims = document["claims"].as_array().expect("claims");
    let hold = claims
        .iter()
        .filter(|claim| claim["kind"] == "held-out" && claim["verdict"] == "holds");
    assert!(hold.count() >= 6, "{document}");
    let band_is_around = |claim: &serde_json::Value| {
        claim["band"][0].as_f64() <= claim["found"].as_f64()
            && claim["found"].as_f64() <= claim["band"][1].as_f64()
    };
    assert!(claims.iter().all(band_is_around), "{document}");
}
