//! Scaling of an array in virtual time: exact, the same on every machine.
//!
//! The limit of p devices is p times the bytes of a page divided by the time that one device needs for it: transfer and
//! tPROG to write, tR and transfer to read. Requests of one page are compared with one device, attach with one device
//! of the same total size.
#![expect(clippy::print_stdout, reason = "the figures, for who asks with --nocapture")]

use std::sync::{Arc, Mutex};

use array::{Array, Execution, MemberIdentity, Redundancy, attach, format};
use media::{Clock, Leb, Nand, Nanos, index};
use nand::{ChipModel, FaultModel, Preset, SimNand};
use ubi::{Access, AttachOptions, FormatOptions, Layout, Volume, WritePart};

type Chip = Arc<Mutex<SimNand>>;

const CELLS: [Preset; 3] = [Preset::Slc, Preset::Mlc, Preset::Tlc];

fn model(preset: Preset, blocks: u32) -> ChipModel {
    let model = preset.model();
    ChipModel {
        geometry: model.geometry.with_blocks(blocks).expect("a geometry"),
        ..model
    }
}

fn chips(preset: Preset, members: u32, blocks: u32) -> Vec<Chip> {
    let chip = |member| {
        SimNand::new(
            &format!("chip{member}"),
            model(preset, blocks),
            FaultModel::none(),
        )
    };
    (0..members)
        .map(|member| Arc::new(Mutex::new(chip(member))))
        .collect()
}

fn formatted(preset: Preset, members: u32, blocks: u32) -> Vec<Chip> {
    formatted_with(Redundancy::None, preset, members, blocks)
}

fn formatted_with(redundancy: Redundancy, preset: Preset, members: u32, blocks: u32) -> Vec<Chip> {
    let chips = chips(preset, members, blocks);
    let layout = Layout::usual(&chips[0].geometry()).expect("a layout");
    let options = FormatOptions {
        layout,
        image_sequence: 1,
        erase_counter: None,
    };
    let identity = MemberIdentity {
        array: 1,
        index: 0,
        members: 0,
        redundancy,
        label: "x".to_owned(),
    };
    format(chips.clone(), options, &identity, &mut |_, _| {}).expect("formatted");
    chips
}

fn open(chips: &[Chip]) -> Array {
    attach(
        chips.to_vec(),
        AttachOptions::linux(Access::ReadWrite),
        Execution::Inline,
    )
    .expect("attached")
}

fn took(clock: &Clock, action: impl FnOnce()) -> Nanos {
    let start = clock.now();
    action();
    clock.now() - start
}

/// Time for `bytes` at the limit of `members` devices.
fn limit_ns(preset: Preset, members: u32, bytes: u64, cells: fn(&nand::Timing) -> Nanos) -> u64 {
    let model = preset.model();
    let page = model.timing.transfer_page + cells(&model.timing);
    bytes
        .div_ceil(u64::from(model.geometry.page_bytes()))
        .div_ceil(u64::from(members))
        * page.0
}

fn share(part: u64, whole: Nanos) -> f64 {
    let exact = |number: u64| f64::from(u32::try_from(number / 1000).expect("below an hour"));
    exact(part) / exact(whole.0)
}

#[test]
fn sequential_writes_and_reads_of_64_rows_come_to_97_percent_of_the_limit() {
    for preset in CELLS {
        for members in [1, 2, 3, 4, 8, 16] {
            let array = open(&formatted(preset, members, 40));
            let volume = array.volume();
            let geometry = volume.geometry();
            let record = usize::try_from(geometry.max_write_bytes).expect("small") * 64;
            let leb = usize::try_from(geometry.leb_bytes).expect("small");
            let data: Vec<u8> = (0..record)
                .map(|at| u8::try_from(at % 250).expect("a byte"))
                .collect();
            let records = 24 * leb / record;
            // A record continues in the next LEB when one is full.
            let spans = |at: usize| {
                let (mut at, mut left) = (at, record);
                std::iter::from_fn(move || {
                    let here = left.min(leb - at % leb);
                    let span = (left > 0).then(|| {
                        (
                            Leb(u32::try_from(at / leb).unwrap()),
                            u32::try_from(at % leb).unwrap(),
                            here,
                        )
                    });
                    (at, left) = (at + here, left - here);
                    span
                })
            };
            let write = took(&volume.clock(), || {
                for number in 0..records {
                    let mut taken = 0;
                    for (leb, offset, bytes) in spans(number * record) {
                        volume
                            .write(leb, offset, &data[taken..taken + bytes])
                            .expect("room");
                        taken += bytes;
                    }
                }
            });
            let mut out = vec![0; record];
            let read = took(&volume.clock(), || {
                for number in 0..records {
                    let mut taken = 0;
                    for (leb, offset, bytes) in spans(number * record) {
                        volume
                            .read(leb, offset, &mut out[taken..taken + bytes])
                            .expect("readable");
                        taken += bytes;
                    }
                    assert!(out == data, "record {number} is another");
                }
            });
            let bytes = u64::try_from(records * record).expect("small");
            let writes = share(
                limit_ns(preset, members, bytes, |timing| timing.program_page),
                write,
            );
            let reads = share(limit_ns(preset, members, bytes, |timing| timing.read_page), read);
            println!(
                "{} p={members}: write {writes:.3}, read {reads:.3} of the limit",
                preset.name()
            );
            assert!(
                writes >= 0.97 && reads >= 0.97,
                "{preset:?} p={members}: {writes} {reads}"
            );
            assert!(
                writes <= 1.0 && reads <= 1.0,
                "faster than physics: {writes} {reads}"
            );
        }
    }
}

#[test]
fn writes_to_different_lebs_go_on_at_the_same_time() {
    for preset in CELLS {
        let array = open(&formatted(preset, 4, 40));
        let volume = array.volume();
        let page = index(volume.geometry().min_io_bytes);
        let data = vec![1; 8 * page];
        for leb in [0, 1] {
            volume.map(Leb(leb)).expect("room");
        }
        volume.write(Leb(1), 0, &data[..2 * page]).expect("room");
        let part = |leb, offset_pages: usize, pages: usize| WritePart {
            leb: Leb(leb),
            offset: u32::try_from(offset_pages * page).expect("small"),
            data: &data[..pages * page],
        };
        let clock = volume.clock();
        // Each LEB's two pages are on the members without pages of the other LEB.
        let both = took(&clock, || {
            volume.write_many(&[part(0, 0, 2), part(1, 2, 2)]).expect("room");
        });
        // Rows of the same LEB are written in sequence.
        let rows = took(&clock, || {
            volume.write_many(&[part(0, 2, 6), part(1, 4, 4)]).expect("room");
        });
        let timing = preset.model().timing;
        let one = timing.transfer_page + timing.program_page;
        assert_eq!(both, one, "{preset:?}");
        // First, members 2 and 3 each have a page of both LEBs; then only the second row of the first LEB is written.
        assert_eq!(rows, one.times(3), "{preset:?}");
        let mut out = vec![0; 8 * page];
        for leb in [0, 1] {
            volume.read(Leb(leb), 0, &mut out).expect("readable");
            assert_eq!(out, data, "LEB {leb}");
        }
    }
}

#[test]
fn requests_of_one_page_cost_no_more_than_on_one_device() {
    for preset in CELLS {
        let time = |members| {
            let array = open(&formatted(preset, members, 40));
            let volume = array.volume();
            let page = volume.geometry().min_io_bytes;
            let data = vec![1; usize::try_from(page).expect("small")];
            let write = took(&volume.clock(), || {
                for leb in 0..20 {
                    for at in 0..20 {
                        volume.write(Leb(leb), at * page, &data).expect("room");
                    }
                }
            });
            let mut out = data.clone();
            let read = took(&volume.clock(), || {
                for at in 0..400 {
                    volume
                        .read(Leb(at * 7 % 20), at % 20 * page, &mut out)
                        .expect("readable");
                }
            });
            (write, read)
        };
        let (one, four) = (time(1), time(4));
        let ratio = |four: Nanos, one: Nanos| share(four.0, one);
        println!(
            "{}: write {:.4}, read {:.4}",
            preset.name(),
            ratio(four.0, one.0),
            ratio(four.1, one.1)
        );
        assert!(
            ratio(four.0, one.0) <= 1.05,
            "{preset:?}: writes {four:?} {one:?}"
        );
        assert!(ratio(four.1, one.1) <= 1.05, "{preset:?}: reads {four:?} {one:?}");
    }
}

#[test]
fn members_attach_in_parallel() {
    for preset in CELLS {
        // The total size of the paper's configurations: 1 GiB (seeds/001 table 2).
        let blocks =
            u32::try_from((1 << 30) / u64::from(preset.model().geometry.block_bytes())).expect("few");
        let time = |members: u32| {
            let chips = formatted(preset, members, blocks / members);
            let array = open(&chips);
            let leb_bytes = usize::try_from(array.volume().geometry().leb_bytes).expect("small");
            for leb in 0..20 / members {
                array
                    .volume()
                    .write(Leb(leb), 0, &vec![3; leb_bytes])
                    .expect("room");
            }
            drop(array);
            let before = chips
                .iter()
                .map(|chip| chip.clock().now())
                .max()
                .expect("members");
            for chip in &chips {
                chip.clock().advance_to(before);
            }
            let array = open(&chips);
            array.volume().clock().now() - before
        };
        let one = time(1);
        for members in [2, 4, 8] {
            let ratio = share(time(members).0, one) * f64::from(members);
            println!("{} p={members}: {ratio:.3} of one device over p", preset.name());
            assert!(ratio <= 1.15, "{preset:?} p={members}: {ratio}");
        }
    }
}

#[test]
fn virtual_time_does_not_depend_on_threads() {
    let time = |execution| {
        let chips = formatted(Preset::Mlc, 4, 40);
        let array = attach(chips, AttachOptions::linux(Access::ReadWrite), execution).expect("attached");
        let volume = array.volume();
        let bytes = usize::try_from(volume.geometry().leb_bytes).expect("small");
        for leb in 0..6 {
            volume.write(Leb(leb), 0, &vec![5; bytes]).expect("room");
            volume
                .leb_change(Leb(leb + 10), &vec![6; bytes / 2])
                .expect("room");
        }
        let mut out = vec![0; bytes];
        volume.read(Leb(3), 0, &mut out).expect("readable");
        volume.clock().now()
    };
    assert_eq!(time(Execution::Inline), time(Execution::Threads));
}

/// Writes or reads at least 16 MiB in requests of at most `request` bytes. Returns the time taken.
fn write_and_read(array: &Array, request: u32, write: bool) -> Nanos {
    let volume = array.volume();
    let geometry = volume.geometry();
    let request = request.min(geometry.leb_bytes) / geometry.min_io_bytes * geometry.min_io_bytes;
    let mut left = 16 << 20;
    let data = vec![0x5A; usize::try_from(geometry.leb_bytes).expect("small")];
    let mut out = data.clone();
    took(&volume.clock(), || {
        for leb in (0..geometry.lebs).map(Leb) {
            let mut offset = 0;
            while offset < geometry.leb_bytes && left > 0 {
                let len = usize::try_from(request.min(geometry.leb_bytes - offset)).expect("small");
                match write {
                    true => volume.write(leb, offset, &data[..len]).expect("room"),
                    false => volume.read(leb, offset, &mut out[..len]).expect("readable"),
                }
                offset += u32::try_from(len).expect("small");
                left -= len.min(left);
            }
        }
        assert_eq!(left, 0, "there was no room for all of it");
    })
}

fn room_for_16_mib(preset: Preset, data_members: u32) -> u32 {
    let block = preset.model().geometry.block_bytes();
    (18 << 20) / data_members / block * 11 / 10 + 40
}

/// With p = 4: writes run at the rate of three devices. Without one member, reads of whole rows run at the rate of all
/// four, and long reads at that of the remaining three; with all members, long reads use all four.
#[test]
fn parity_costs_the_writes_of_one_member_and_a_lost_one_costs_its_share_of_long_reads() {
    for preset in CELLS {
        let one = open(&formatted(preset, 1, room_for_16_mib(preset, 1)));
        let plain = open(&formatted(preset, 4, room_for_16_mib(preset, 3)));
        let chips = formatted_with(Redundancy::Parity, preset, 4, room_for_16_mib(preset, 3));
        let parity = open(&chips);
        let long = 1 << 30;
        let row = parity.volume().geometry().min_io_bytes;
        let write = [&one, &plain, &parity].map(|array| write_and_read(array, long, true));
        let read_rows = write_and_read(&parity, row, false);
        let read_long = [&one, &parity].map(|array| write_and_read(array, long, false));
        parity.close().expect("nothing fails");
        drop(parity);
        for gone in 0..4 {
            let mut left = chips.clone();
            left.remove(gone);
            let options = AttachOptions::linux(Access::ReadOnly);
            let degraded = attach(left, options, Execution::Inline).expect("attached");
            let rows = share(read_rows.0, write_and_read(&degraded, row, false));
            let long = write_and_read(&degraded, long, false);
            let (to_healthy, to_one) = (share(read_long[1].0, long), share(read_long[0].0, long));
            println!(
                "{} without {gone}: rows {rows:.3} of the healthy array, long reads {to_healthy:.3} of it and {to_one:.2} x one device",
                preset.name()
            );
            assert!(rows >= 0.9, "{preset:?}: rows without {gone}: {rows}");
            assert!(
                to_healthy >= 0.74 && to_one >= 2.9,
                "{preset:?}: {to_healthy} {to_one}"
            );
        }
        let to_one = share(write[0].0, write[2]);
        let to_plain = share(write[1].0, write[2]);
        let read_to_one = share(read_long[0].0, read_long[1]);
        println!(
            "{} p=4 with parity: 16 MiB written at {to_one:.2} x one device, {to_plain:.3} of the plain array; read at {read_to_one:.2} x one device",
            preset.name()
        );
        assert!(to_one >= 2.9, "{preset:?}: {to_one} x one device");
        assert!(to_plain >= 0.7495, "{preset:?}: {to_plain} of the plain array");
        assert!(read_to_one >= 3.8, "{preset:?}: {read_to_one} x one device");
    }
}
