//! ECC of dumps of the kernel's nandsim, in the lab guest: the kernel writes data with its own software codes, the dump
//! has its OOB areas, and wrong bits are added on this side. A host without a guest skips the test and reports it.

use std::fs;

use nand::ecc::{Choice, Corrected, FindOptions, Layout, Source, find};
use tempfile::TempDir;
use testkit::lab::{Job, shared};
use testkit::prng::Prng;

const SCRIPT: &str = r#"
set -ex
dump() {
    name=$1
    shift
    rmmod nandsim 2>/dev/null || true
    modprobe nandsim id_bytes=0x20,0xa1,0x00,0x15 "$@"
    dd if=/host/data of=/dev/mtd0 bs=128k
    nanddump --noecc --oob --length=0x60000 --file=/tmp/dump /dev/mtd0
    cp /tmp/dump "/host/$name"
}
modprobe bch
dump hamming
dump bch4 bch=4
dump bch8 bch=8
rmmod nandsim
"#;

/// Raw bytes of a page.
const RAW: usize = 2112;

#[test]
fn dumps_of_the_kernel_are_recognised_and_corrected() {
    if testkit::left_to_full("the kernel of the lab guest writes with three codes") {
        return;
    }
    let Some(mut guest) = shared() else { return };
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("data");
    let data = Prng::new(11).bytes(256 << 10);
    fs::write(&path, &data).unwrap();
    let job = Job::new(SCRIPT).copy_of("data", &path);
    let outcome = guest.run(&job).unwrap().expect_success();
    for (name, strength, step, layout) in [
        ("hamming", 1, 256, "hamming/256,page=2048,oob=64,ecc=40..64"),
        ("bch4", 4, 512, "bch4/512,page=2048,oob=64,ecc=36..64"),
        ("bch8", 8, 512, "bch8/512,page=2048,oob=64,ecc=12..64"),
    ] {
        let dump = outcome.read(name).unwrap();
        assert_eq!(dump.len(), 192 * RAW, "{name}");
        let mut random = Prng::named(12, name);
        for flips in [0, strength, strength + 1] {
            let mut wrong = dump.clone();
            for page in wrong.chunks_mut(RAW).take(128) {
                for first in (0..2048).step_by(step) {
                    let mut bytes: Vec<usize> = (first..first + step).collect();
                    for _ in 0..flips {
                        let byte = bytes.swap_remove(random.below_usize(bytes.len()));
                        page[byte] ^= 1 << random.below(8);
                    }
                }
            }
            if flips > strength {
                let layout = Layout::parse(layout, None).unwrap();
                let corrected = Corrected::new(&wrong[..], 0..wrong.bytes(), layout).unwrap();
                let summary = corrected.copy(&mut Vec::new(), &mut |_| {}).unwrap();
                let steps = 128 * 2048 / step;
                // One pattern of five wrong bits in several hundred resembles another code word.
                let told = usize::try_from(summary.failed_steps).unwrap();
                assert!(told * 100 >= steps * 98, "{name}: {told} of {steps}");
                continue;
            }
            let options = FindOptions {
                range: 0..wrong.bytes(),
                page_bytes: None,
                oob_bytes: None,
                block_bytes: None,
                choice: Choice::Auto,
            };
            let found = find(&wrong[..], &options).unwrap();
            assert_eq!(
                (found.layout.to_string().as_str(), found.family),
                (layout, Some("linux"))
            );
            let corrected = Corrected::new(&wrong[..], 0..wrong.bytes(), found.layout).unwrap();
            let mut main = Vec::new();
            let summary = corrected.copy(&mut main, &mut |_| {}).unwrap();
            assert!(main[..data.len()] == data, "{name} with {flips} wrong bits");
            assert!(main[data.len()..].iter().all(|byte| *byte == 0xFF));
            assert_eq!(
                summary.corrected_bits,
                u64::try_from(flips * 128 * 2048 / step).unwrap()
            );
            assert_eq!((summary.erased_pages, summary.failed_steps), (64, 0));
        }
    }
}
