//! `/dev/mtdN` against the kernel's nandsim, in the lab guest. The guest runs this same program, which then finds
//! [`PHASE`] in its environment; a host without a guest skips the test and reports the reason.

use std::env;
use std::path::Path;

use media::{Nand, NandError, Page, Peb};
use nand::{Access, FaultModel, FileNand, ImageKind, MtdError, MtdNand, Preset, RawNand};
use testkit::lab::{Job, shared};

const PHASE: &str = "TIDEGATE_TEST_PHASE";
const DEVICE: &str = "/dev/mtd0";

/// The script of the guest: several chips in turn, each with different faults.
const SCRIPT: &str = r#"
set -ex
chip() { rmmod nandsim 2>/dev/null || true; modprobe nandsim id_bytes=0x20,0xa1,0x00,0x15 "$@"; }
phase() { TIDEGATE_TEST_PHASE=$1 "$PROGRAM" --exact a_chip_of_the_kernel --nocapture; }
chip
phase contract
chip badblocks=3
phase content
dd if=/dev/mtd0 of=/tmp/read bs=128k count=2
cmp /tmp/read /host/written
nanddump --oob --length=0x40000 --file=/host/with_oob /dev/mtd0
chip
phase one_page
# The same page and its ECC once more, with 0x5A (Z) turned into 0x52 (R) in one place.
nanddump --noecc --oob --length=2048 --file=/tmp/page /dev/mtd0
printf R | dd of=/tmp/page bs=1 seek=100 conv=notrunc
flash_erase /dev/mtd0 0 1
nandwrite --noecc --oob /dev/mtd0 /tmp/page
phase corrected
chip gravepages=65:0
phase uncorrectable
chip weakpages=66:0 weakblocks=2:0
phase failures
chip
modprobe ubi
ubiattach -m 0 /dev/ubi_ctrl
phase attached
ubidetach -m 0 /dev/ubi_ctrl
rmmod nandsim
"#;

#[test]
fn a_chip_of_the_kernel() {
    if let Ok(phase) = env::var(PHASE) {
        return match phase.as_str() {
            "contract" => contract(),
            "content" => content(),
            "one_page" => erased().program(Peb(0), 0, &[0x5A; 2048]).expect("a page"),
            "corrected" => corrected(),
            "uncorrectable" => uncorrectable(),
            "failures" => failures(),
            "attached" => attached(),
            other => panic!("there is no phase {other}"),
        };
    }
    let Some(mut guest) = shared() else { return };
    let program = env::current_exe().unwrap();
    let job = Job::new(SCRIPT).variable("PROGRAM", program.display().to_string());
    let outcome = guest.run(&job).unwrap().expect_success();
    let expected = image_with_oob();
    assert!(
        outcome.read("with_oob").unwrap() == expected,
        "the kernel's dump is another than ours"
    );
    let phases = outcome.text().matches("test result: ok. 1 passed").count();
    assert_eq!(phases, 7, "{}", outcome.text());
}

fn open() -> MtdNand {
    MtdNand::open(Path::new(DEVICE), Access::ReadWrite).expect("the device opens")
}

/// The device with its first good blocks erased.
fn erased() -> MtdNand {
    let mut device = open();
    let good: Vec<_> = device
        .geometry()
        .pebs()
        .filter(|peb| !device.is_bad(*peb).expect("an answer"))
        .take(4)
        .collect();
    for peb in good {
        device.erase(peb).expect("an erase");
    }
    device
}

fn contract() {
    media::contract::run_all(erased);
    media::contract::run_all(|| erased().without_requests());
}

fn content() {
    let mut device = open();
    let geometry = device.geometry();
    assert_eq!(
        (
            geometry.page_bytes(),
            geometry.oob_bytes(),
            geometry.subpage_bytes()
        ),
        (2048, 64, 512)
    );
    assert_eq!((geometry.block_bytes(), geometry.blocks()), (128 << 10, 1024));
    assert!(device.is_bad(Peb(3)).expect("an answer"));
    let refusal = MtdNand::open(Path::new(DEVICE), Access::ReadWrite).expect_err("one is enough");
    assert!(matches!(refusal, MtdError::Locked { .. }), "{refusal}");
    let data = data();
    let mut written = vec![0xFF; 256 << 10];
    written[..131_072].copy_from_slice(&data[..131_072]);
    written[131_072..][..2560].copy_from_slice(&data[..2560]);
    for peb in [Peb(0), Peb(1)] {
        device.erase(peb).expect("an erase");
    }
    device
        .program(Peb(0), 0, &data[..131_072])
        .expect("a whole block");
    device
        .program(Peb(1), 0, &data[..2560])
        .expect("a page and a sub-page");
    std::fs::write("/host/written", written).expect("the host's folder");
    let mut oob = [0xFF; 64];
    device.read_oob(Peb(0), Page(1), &mut oob).expect("an OOB area");
    assert!(
        oob[40..].iter().any(|byte| *byte != 0xFF),
        "software ECC is there"
    );
    drop(device);
    let mut reader = MtdNand::open(Path::new(DEVICE), Access::ReadOnly).expect("reading is allowed");
    let mut out = vec![0; 3000];
    assert!(reader.read(Peb(0), 1000, &mut out).expect("a read").is_correct());
    assert_eq!(out, data[1000..4000]);
    let error = reader.erase(Peb(0)).expect_err("opened to read");
    assert!(matches!(error, NandError::ReadOnly { .. }), "{error}");
}

fn data() -> Vec<u8> {
    (0..200_000_u32).map(|at| (at / 7).to_le_bytes()[0]).collect()
}

/// The same two blocks as a simulated chip stores them in a file with OOB areas.
fn image_with_oob() -> Vec<u8> {
    let folder = tempfile::TempDir::new().expect("a folder");
    let path = folder.path().join("chip");
    let model = Preset::Nandsim.model().with_size(256 << 10).expect("two blocks");
    let kind = ImageKind::DataAndOob;
    let mut chip = FileNand::create(&path, model, FaultModel::none(), kind, |_| {}).expect("a chip");
    let data = data();
    chip.program(Peb(0), 0, &data[..131_072]).expect("a whole block");
    chip.program(Peb(1), 0, &data[..2560])
        .expect("a page and a sub-page");
    std::fs::read(&path).expect("the image")
}

fn corrected() {
    let mut device = open();
    for has_requests in [true, false] {
        let mut out = vec![0; 2048];
        let report = device.read(Peb(0), 0, &mut out).expect("a read");
        assert!(report.is_correct(), "requests {has_requests}: {report:?}");
        assert_eq!(
            (report.corrected_bits, report.worst_step_bits),
            (1, 1),
            "requests {has_requests}"
        );
        assert!(
            report.needs_scrub(&device.geometry()),
            "one bit is all that this ECC corrects"
        );
        assert!(out == [0x5A; 2048]);
        device = device.without_requests();
    }
}

fn uncorrectable() {
    let mut device = erased();
    device.program(Peb(1), 0, &vec![1; 8 * 2048]).expect("pages");
    let mut out = vec![0; 8 * 2048];
    let report = device.read(Peb(1), 0, &mut out).expect("a read that works");
    assert_eq!(report.uncorrectable, [Page(1)], "page 65 of the chip");
    assert!(out[..2048] == [1; 2048] && out[4096..] == [1; 6 * 2048]);
    let mut device = device.without_requests();
    let report = device.read(Peb(1), 0, &mut out).expect("a read by the old way");
    assert_eq!(report.uncorrectable, [Page(1)]);
}

fn failures() {
    let mut device = open();
    device.erase(Peb(1)).expect("a strong block");
    device.program(Peb(1), 0, &[1; 4096]).expect("strong pages");
    let error = device
        .program(Peb(1), 4096, &[1; 2048])
        .expect_err("page 66 is weak");
    assert!(
        matches!(
            error,
            NandError::ProgramFailed {
                peb: Peb(1),
                page: Page(2),
                ..
            }
        ),
        "{error}"
    );
    let error = device.erase(Peb(2)).expect_err("block 2 is weak");
    assert!(
        matches!(error, NandError::EraseFailed { peb: Peb(2), .. }),
        "{error}"
    );
}

fn attached() {
    let refusal = MtdNand::open(Path::new(DEVICE), Access::ReadWrite).expect_err("UBI has it");
    assert!(
        refusal
            .to_string()
            .contains("in use by the kernel: ubi0 is attached to it"),
        "{refusal}"
    );
    MtdNand::open(Path::new(DEVICE), Access::ReadOnly).expect("looking is allowed");
}
