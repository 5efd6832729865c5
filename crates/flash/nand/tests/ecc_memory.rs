//! The memory of a search for a layout and of a correction, over all threads. A program of its own, as nothing else may
//! allocate meanwhile.

use nand::ecc::{Choice, Corrected, FindOptions, Layout, find};
use testkit::heap::{CountingAllocator, taken_by_process};
use testkit::prng::Prng;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Memory for each byte of a dump.
const TIMES_MAX: u64 = 8;
const DUMP_BYTES: usize = 64 * 528;

/// Pages with BCH4, of which a layout is found in the first pass.
fn written() -> Vec<u8> {
    // A message and its parity by bchlib.
    let byte = |at: u32| ((at * at * 7 + at * 13 + 5) % 251).to_le_bytes()[0];
    let page: Vec<u8> = (0..512)
        .map(byte)
        .chain([0xFF; 9])
        .chain([0x34, 0xaf, 0xe6, 0x87, 0xf4, 0x27, 0x40])
        .collect();
    page.repeat(DUMP_BYTES / 528)
}

fn assert_small(what: &str, dump: &[u8], action: &mut dyn FnMut()) {
    let ((), taken) = taken_by_process(action);
    let bytes = u64::try_from(dump.len()).expect("a small dump");
    assert!(
        taken.peak_bytes <= TIMES_MAX * bytes,
        "{what}: {} bytes for a dump of {bytes}",
        taken.peak_bytes
    );
    assert!(
        taken.kept_bytes < 1 << 14,
        "{what} keeps {} bytes",
        taken.kept_bytes
    );
}

#[test]
fn a_search_and_a_correction_take_at_most_eight_times_a_small_dump() {
    let noise = Prng::new(5).bytes(DUMP_BYTES);
    let good = written();
    for (name, dump) in [("noise", &noise), ("pages with BCH4", &good)] {
        for (page_bytes, oob_bytes) in [
            (None, None),
            (Some(512), Some(16)),
            (Some(2048), Some(64)),
            (Some(4096), Some(224)),
        ] {
            assert_small(
                &format!("{name}, {page_bytes:?} and {oob_bytes:?}"),
                dump,
                &mut || {
                    let options = FindOptions {
                        range: 0..u64::try_from(dump.len()).unwrap(),
                        page_bytes,
                        oob_bytes,
                        block_bytes: None,
                        choice: Choice::Auto,
                    };
                    drop(find(&dump[..], &options));
                },
            );
        }
        // A short parity, a long one, and the largest field.
        for text in [
            "bch4/512,page=512,oob=16,mask=none",
            "bch60/1024,page=8192,oob=1024",
            "bch16/2048,page=2048,oob=64,field=15",
        ] {
            let layout = Layout::parse(text, None).unwrap();
            assert_small(&format!("{name}, {text}"), dump, &mut || {
                let range = 0..u64::try_from(dump.len()).unwrap();
                let corrected = Corrected::new(&dump[..], range, layout.clone()).unwrap();
                corrected.copy(&mut std::io::sink(), &mut |_| {}).unwrap();
            });
        }
    }
}
