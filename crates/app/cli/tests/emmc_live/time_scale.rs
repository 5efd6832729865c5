//! Cards whose time runs faster or slower than the machine's.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::bed::{Bed, device_of, must};

/// Attempts on a machine with other load.
const TRIES: u32 = 8;

fn nanos(counters: &Value, name: &str) -> u64 {
    counters[name]
        .as_u64()
        .unwrap_or_else(|| panic!("{name} in {counters}"))
}

/// 8 MiB in order with 512 KiB per request, past the page cache.
fn write_stream(device: &str) {
    must(
        "dd",
        &[
            "if=/dev/zero",
            &format!("of={device}"),
            "bs=512k",
            "count=16",
            "oflag=direct",
        ],
    );
}

/// The card's work takes the same virtual time at both scales. In real time, a stream takes at least that time divided by
/// the scale, always, and less than half of the time at scale 1, in some attempt.
#[test]
fn at_scale_4_a_stream_of_writes_takes_a_quarter_of_the_time() {
    let Some(bed) = Bed::make() else { return };
    let attach = |scale: &str| {
        let card = [
            "--json",
            "--card",
            "gt-i9300",
            "--size",
            "64m",
            "--time-scale",
            scale,
        ];
        let report: Value = serde_json::from_str(&bed.done("attach", &card)).unwrap();
        device_of(&report)
    };
    let timed = |device: &str| {
        let before = bed.stats(device);
        let start = Instant::now();
        write_stream(device);
        let elapsed = start.elapsed();
        let after = bed.stats(device);
        assert_eq!(nanos(&after, "writes_count") - nanos(&before, "writes_count"), 16);
        (elapsed, nanos(&after, "busy_ns") - nanos(&before, "busy_ns"))
    };
    let (one, four) = (attach("1"), attach("4"));
    let (at_1, busy_at_1) = timed(&one);
    let mut ratios = Vec::new();
    for _ in 0..TRIES {
        let (at_4, busy_at_4) = timed(&four);
        let difference = busy_at_1.abs_diff(busy_at_4);
        assert!(difference * 10 < busy_at_1, "{busy_at_1} and {busy_at_4} ns busy");
        assert!(
            at_4 * 5 > Duration::from_nanos(busy_at_4),
            "{at_4:?} for {busy_at_4} ns"
        );
        ratios.push(at_1.as_secs_f64() / at_4.as_secs_f64());
        if at_4 * 2 < at_1 {
            bed.done("detach", &["--all"]);
            return;
        }
    }
    panic!("times at scale 1 per time at scale 4: {ratios:?}");
}

/// The counters are read before and after, so the bounds hold however long that takes.
#[test]
fn the_cards_time_passes_at_its_scale_and_the_counters_say_so() {
    let Some(bed) = Bed::make() else { return };
    let device = device_of(&bed.attach(&["--size", "64m", "--time-scale", "9"]));
    let outer = Instant::now();
    let before = bed.stats(&device);
    let inner = Instant::now();
    write_stream(&device);
    let inner = inner.elapsed();
    let after = bed.stats(&device);
    let outer = outer.elapsed();
    let passed = Duration::from_nanos(nanos(&after, "card_time_ns") - nanos(&before, "card_time_ns"));
    assert!(
        inner * 9 <= passed && passed <= outer * 9,
        "{inner:?} {passed:?} {outer:?}"
    );
    assert_eq!(
        (&after["time_scale_ratio"], &after["time_base"]),
        (&9.0.into(), &"virtual".into())
    );
    let list: Value = serde_json::from_str(&bed.done("stats", &["--json"])).unwrap();
    assert_eq!(list["time_scale"], 9.0);
    let shown = bed.done("stats", &[&device]);
    assert!(shown.contains("time scale 9, up "), "{shown}");
    let metrics = bed.done("stats", &[&device, "--prometheus"]);
    assert!(metrics.contains("tidegate_source_time_scale_ratio{") && metrics.contains("} 9.0\n"));
    bed.done("detach", &[&device]);
}

#[test]
fn a_card_in_a_file_is_attached_again_at_another_scale() {
    let Some(bed) = Bed::make() else { return };
    let image = bed.path("card.img");
    let attach = |scale: &str| {
        let arguments = ["--store", &image, "--size", "64m", "--time-scale", scale];
        device_of(&bed.attach(&arguments))
    };
    let first = attach("9");
    fs::write(bed.path("pattern"), [7; 1 << 20]).unwrap();
    let from = format!("if={}", bed.path("pattern"));
    for _ in 0..2 {
        must("dd", &[&from, &format!("of={first}"), "bs=512k", "oflag=direct"]);
    }
    bed.done("detach", &[&first]);
    let kept = fs::read(format!("{image}.maps")).unwrap();
    for scale in ["0.5", "1", "1000"] {
        let device = attach(scale);
        let found = must("cmp", &["--bytes=1048576", &device, &bed.path("pattern")]);
        assert_eq!(found, "");
        assert_eq!(
            bed.stats(&device)["time_scale_ratio"].as_f64(),
            scale.parse().ok()
        );
        bed.done("detach", &[&device]);
        let maps = fs::read(format!("{image}.maps")).unwrap();
        // Behind the header, with its checksum, and the number of the epoch.
        assert!(
            maps[36..] == kept[36..],
            "reads at scale {scale} change the kept maps"
        );
    }
}
