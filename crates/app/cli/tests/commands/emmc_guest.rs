//! Compares the commands of the model with those of Linux's mmc driver, traced by tracepoints while the lab guest writes to
//! an SD card. Runs only with `TIDEGATE_FULL`, because a guest with a card needs its own boot.

use std::collections::BTreeMap;
use std::process::Command;

use testkit::lab::{Job, Lab, Options};

/// Writes past the page cache, in sequence: one sector, several, and 512 KiB in one request; then reads.
const SCRIPT: &str = r#"
modprobe sdhci_pci && modprobe mmc_block || exit 2
tries=300
until [ -b /dev/mmcblk0 ]; do
    [ "$((tries -= 1))" -gt 0 ] || exit 3
    sleep 0.1
done
dd if=/dev/mmcblk0 of=/dev/null bs=512 count=1 iflag=direct 2>/dev/null
cd /sys/kernel/tracing || exit 4
echo 1 >events/mmc/mmc_request_start/enable
: >trace
while read -r how sector sectors; do
    case $how in
    write) dd if=/dev/zero of=/dev/mmcblk0 bs="$((sectors * 512))" oflag=direct,seek_bytes seek="$((sector * 512))" count=1 \
        2>/dev/null || exit 5 ;;
    read) dd if=/dev/mmcblk0 of=/dev/null bs="$((sectors * 512))" iflag=direct,skip_bytes skip="$((sector * 512))" count=1 \
        2>/dev/null || exit 6 ;;
    esac
done </host/requests
cat trace >/host/trace
"#;

const REQUESTS: [(&str, u64, u64); 10] = [
    ("write", 2048, 8),
    ("write", 2056, 8),
    ("write", 100, 1),
    ("write", 8000, 128),
    ("write", 16_384, 1024),
    ("write", 3000, 1),
    ("read", 2048, 8),
    ("read", 100, 1),
    ("write", 2048, 16),
    ("read", 16_384, 1024),
];

/// A command with data: its number, first sector and sector count.
type Sent = (u64, u64, u64);

/// Commands with data; the flag is true if a CMD13 follows before the next one.
fn of_linux(trace: &str) -> Vec<(Sent, bool)> {
    let mut sent: Vec<(Sent, bool)> = Vec::new();
    for line in trace.lines().filter(|line| line.contains("mmc_request_start")) {
        let members: BTreeMap<&str, &str> = line
            .split_whitespace()
            .filter_map(|word| word.split_once('='))
            .collect();
        let number = |name: &str| {
            members
                .get(name)
                .and_then(|value| value.parse::<u64>().ok())
                .unwrap_or_default()
        };
        match number("cmd_opcode") {
            code @ (17 | 18 | 24 | 25) => sent.push(((code, number("blk_addr"), number("blocks")), false)),
            13 => {
                if let Some((_, polled)) = sent.last_mut() {
                    *polled = true;
                }
            }
            _ => {}
        }
    }
    sent
}

fn of_the_model(folder: &std::path::Path) -> Vec<Sent> {
    let (log, out) = (folder.join("requests.iolog"), folder.join("out.jsonl"));
    let mut text = "fio version 2 iolog\n/dev/card add\n/dev/card open\n".to_owned();
    for (how, sector, sectors) in REQUESTS {
        text += &format!("/dev/card {how} {} {}\n", sector * 512, sectors * 512);
    }
    text += "/dev/card close\n";
    std::fs::write(&log, text).expect("the log can be written");
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args([
            "emmc",
            "run",
            "--host",
            "sdhci-hs200",
            "--pack",
            "off",
            "--scheduler",
            "none",
            "--depth",
            "1",
        ])
        .arg("--replay")
        .arg(&log)
        .arg("--trace")
        .arg(&out)
        .output()
        .expect("tidegate starts");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let lines = std::fs::read_to_string(&out).expect("a trace");
    let requests = lines.lines().filter_map(|line| {
        let value: serde_json::Value = serde_json::from_str(line).expect("JSON lines");
        let request = value.get("request").unwrap_or(&value).clone();
        let code = request["command"]["code"].as_u64()?;
        Some((
            code,
            request["sector"].as_u64()?,
            request["bytes"].as_u64()? / 512,
        ))
    });
    requests.collect()
}

#[test]
fn plain_requests_become_the_commands_that_linux_sends_in_their_order() {
    if testkit::left_to_full("a guest with a card is a boot of its own") {
        return;
    }
    let lab = match Lab::available() {
        Ok(lab) => lab,
        Err(why) => {
            testkit::report_left_out(why);
            return;
        }
    };
    let folder = tempfile::tempdir().expect("a folder");
    let card = folder.path().join("card.img");
    std::fs::File::create(&card)
        .and_then(|file| file.set_len(64 << 20))
        .expect("an image");
    let options = Options {
        cards: vec![card],
        ..Options::default()
    };
    let mut guest = lab.boot(&options).expect("the guest boots");
    let requests: String = REQUESTS
        .iter()
        .map(|(how, sector, sectors)| format!("{how} {sector} {sectors}\n"))
        .collect();
    let outcome = guest
        .run(&Job::new(SCRIPT).file("requests", requests))
        .expect("the guest works")
        .expect_success();
    let linux = of_linux(&outcome.read_text("trace").expect("a trace"));
    let commands: Vec<Sent> = linux.iter().map(|(sent, _)| *sent).collect();
    assert_eq!(commands.len(), REQUESTS.len(), "{commands:?}");
    assert_eq!(of_the_model(folder.path()), commands);
    for (sent, polled) in &linux {
        let writes = matches!(sent.0, 24 | 25);
        assert!(
            !writes || *polled,
            "{sent:?}: the driver asks for the card's state after a write, as the model does"
        );
    }
}
