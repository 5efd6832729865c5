//! The survey of dumps that are composed, damaged at random, and forged.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use image::{
    ByteSource, Content, Dump, Hints, Part, Partition, Severity, Survey, What, open_ubifs, survey,
    unreadable_since,
};
use media::{Leb, NandGeometry};
use testkit::prng::Prng;
use ubi::format::volume_table::VolumeName;
use ubi::format::{EcHeader, VolumeKind};
use ubi::{ImageOptions, ImageVolume, Layout, VolumeId, build_image};
use ubifs::OpenOptions;

const PAGE: u32 = 512;
const PAGES: u32 = 16;
const BLOCK: usize = 8192;

/// A UBI image with a static and a dynamic volume of this content.
fn ubi(sequence: u32, subpage: u32, contents: [&[u8]; 2]) -> Vec<u8> {
    let geometry = NandGeometry::new(PAGE, PAGES, 64)
        .and_then(|geometry| geometry.with_subpage(subpage))
        .expect("it is valid");
    let options = ImageOptions {
        layout: Layout::usual(&geometry).expect("it is valid"),
        geometry,
        image_sequence: sequence,
        erase_counter: 0,
    };
    let volume = |id, name: &str, kind, content: &[u8]| ImageVolume {
        id: VolumeId(id),
        name: VolumeName::new(name.as_bytes()).expect("it is valid"),
        kind,
        bytes: 100_000,
        alignment: 1,
        autoresize: false,
        skip_check: false,
        content_bytes: u64::try_from(content.len()).expect("it is valid"),
    };
    let volumes = vec![
        (volume(0, "static", VolumeKind::Static, contents[0]), contents[0]),
        (
            volume(3, "dynamic", VolumeKind::Dynamic, contents[1]),
            contents[1],
        ),
    ];
    let mut image = Vec::new();
    let mut write = |bytes: &[u8]| {
        image.extend_from_slice(bytes);
        Ok(())
    };
    build_image(&options, volumes, &mut write).expect("it is valid");
    image
}

fn surveyed(content: &[u8]) -> Survey {
    let dump = Arc::new(Dump::spool("dump", content).expect("it is valid"));
    survey(&dump, &Hints::default(), &mut |_| {})
}

fn partitions(survey: &Survey) -> Vec<&Partition> {
    let parts = survey.parts.iter();
    parts
        .filter_map(|part| match part {
            Part::Ubi(partition) => Some(partition),
            Part::Ubifs(_) => None,
        })
        .collect()
}

fn content(partition: &Partition, name: &str) -> Vec<u8> {
    let volume = partition
        .volumes
        .iter()
        .find(|volume| volume.name() == name.as_bytes())
        .expect("the volume");
    let mut bytes = Vec::new();
    volume.stream().read_to_end(&mut bytes).expect("it is valid");
    bytes
}

fn losses(survey: &Survey) -> usize {
    let of_partitions = partitions(survey).into_iter().flat_map(|partition| {
        let of_volumes = partition.volumes.iter().flat_map(|volume| &volume.findings);
        partition.findings.iter().chain(of_volumes)
    });
    let all = survey.findings.iter().chain(of_partitions);
    all.filter(|finding| finding.severity() == Severity::Loss).count()
}

#[test]
fn partitions_are_found_at_any_byte_with_any_oob() {
    let mut random = Prng::new(7);
    for round in 0..30 {
        let contents: [Vec<u8>; 4] = std::array::from_fn(|_| {
            let length = 20_000 + random.below_usize(40_000);
            random.bytes(length)
        });
        let subpage = *random.pick(&[PAGE, 256]);
        let images = [
            ubi(11, subpage, [&contents[0], &contents[1]]),
            ubi(12, PAGE, [&contents[2], &contents[3]]),
        ];
        let mut dump = Vec::new();
        for image in &images {
            let length = random.below_usize(3) * random.below_usize(20_000);
            let noise = random.bytes(length);
            // Pages with OOB are cut into units from the beginning.
            dump.extend(noise.iter().take(noise.len() / 512 * 512));
            dump.extend(image);
        }
        let oob = *random.pick(&[0, 16]);
        let mut dump: Vec<u8> = dump
            .chunks(512)
            .flat_map(|page| [page, &vec![0x3C; oob][..]].concat())
            .collect();
        let length = random.below_usize(2) * random.below_usize(900);
        let shift = random.bytes(length);
        dump.splice(0..0, shift);
        let survey = surveyed(&dump);
        let found = partitions(&survey);
        let place = format!("round {round}: subpage {subpage}, OOB {oob}: {found:?}");
        assert_eq!(found.len(), 2, "{place}");
        assert_eq!(losses(&survey), 0, "{place}");
        for (partition, contents) in found.iter().zip(contents.chunks(2)) {
            assert_eq!(partition.shape.oob_bytes, u32::try_from(oob).unwrap(), "{place}");
            assert!(content(partition, "static") == contents[0], "{place}");
            assert!(content(partition, "dynamic").starts_with(&contents[1]), "{place}");
        }
    }
}

#[test]
fn image_sequence_0_joins_the_partition_around_it() {
    let data = vec![0x42; 60_000];
    let mut image = ubi(11, PAGE, [&data, &data]);
    let free = EcHeader {
        erase_counter: 3,
        vid_header_offset: 512,
        data_offset: 1024,
        image_sequence: 0,
    };
    let block = [&free.encode()[..], &vec![0xFF; BLOCK - 64]].concat();
    for at in [image.len(), 4 * BLOCK] {
        image.splice(at..at, block.clone());
    }
    let survey = surveyed(&image);
    let found = partitions(&survey);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!((found[0].image_sequence, found[0].counts.free), (11, 2));
    assert_eq!(content(found[0], "static"), data);
}

/// Bytes in memory.
#[derive(Debug)]
struct Memory(Vec<u8>);

impl ByteSource for Memory {
    fn read_exact_at(&self, out: &mut [u8], at: u64) -> io::Result<()> {
        let at = usize::try_from(at).map_err(io::Error::other)?;
        let found = self.0.get(at..at + out.len());
        out.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

#[test]
fn blocks_without_headers_are_gaps_in_any_source() {
    let data = vec![0x42; 60_000];
    let mut image = ubi(11, PAGE, [&data, &data]);
    image.splice(4 * BLOCK..4 * BLOCK, vec![0x5A; BLOCK]);
    image.splice(7 * BLOCK..7 * BLOCK, vec![0xFF; 2 * BLOCK]);
    let shift = 777;
    let dump = [vec![0x11; shift], image].concat();
    let bytes = u64::try_from(dump.len()).unwrap();
    let dump = Arc::new(Dump::of_source("memory", Box::new(Memory(dump)), bytes));
    let survey = survey(&dump, &Hints::default(), &mut |_| {});
    let found = partitions(&survey);
    let place = |block: usize| u64::try_from(shift + block * BLOCK).unwrap();
    assert_eq!(found[0].gaps, [(place(4), place(5)), (place(7), place(9))]);
    assert_eq!(content(found[0], "static"), data);
}

/// Two devices that were written with one image. The second one has moved a copy of the volume table to its end since, and
/// begins with a newer version of the first LEB of its volume.
#[test]
fn a_second_copy_begins_at_its_own_first_block_whatever_is_in_it() {
    use ubi::format::{Decoded, VidHeader};
    let data = vec![0x42; 60_000];
    let image = ubi(11, PAGE, [&data, &data]);
    let free = EcHeader {
        erase_counter: 3,
        vid_header_offset: 512,
        data_offset: 1024,
        image_sequence: 11,
    };
    let free = [&free.encode()[..], &vec![0xFF; BLOCK - 64]].concat();
    let at = |number: usize| number * BLOCK..(number + 1) * BLOCK;
    let of_dynamic = |number: &usize| {
        let raw = image[at(*number)][512..].first_chunk().unwrap();
        matches!(VidHeader::decode(raw, 7168), Decoded::Header(header) if header.volume == 3 && header.leb == 0)
    };
    let place = (0..image.len() / BLOCK).find(of_dynamic).unwrap();
    let Decoded::Header(header) = VidHeader::decode(image[at(place)][512..].first_chunk().unwrap(), 7168)
    else {
        panic!("it was found by it");
    };
    let newer = VidHeader {
        sequence_number: 9,
        ..header
    };
    let mut second = [&image[..], &free, &free].concat();
    let table = second[at(0)].to_vec();
    second[at(0)].copy_from_slice(&image[at(place)]);
    second[512..576].copy_from_slice(&newer.encode());
    second[1024..BLOCK].fill(0x99);
    second[image.len()..][..BLOCK].copy_from_slice(&table);
    second[at(place)].copy_from_slice(&free);
    for blocks in [1, 3] {
        let first = [&image[..], &free.repeat(blocks)].concat();
        let survey = surveyed(&[&first[..], &second].concat());
        let found = partitions(&survey);
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!(usize::try_from(found[1].offset).unwrap(), first.len());
        let firsts = found.iter().map(|partition| content(partition, "dynamic")[0]);
        assert_eq!(firsts.collect::<Vec<_>>(), [0x42, 0x99]);
        assert!(found.iter().all(|partition| content(partition, "static") == data));
        assert_eq!(losses(&survey), 0);
    }
    // Too few LEBs have their first version to tell: blocks of either may be in the other one.
    let mut others = [&image[..], &free].concat();
    for number in 3..others.len() / BLOCK - 1 {
        others[at(number)].copy_from_slice(&free);
    }
    others.splice(0..0, [&second[at(0)], &free].concat());
    let survey = surveyed(&[&image[..], &others].concat());
    assert!(losses(&survey) > 0, "{:?}", partitions(&survey));
}

/// The events of the findings of a volume.
fn missing(partition: &Partition, name: &str) -> Vec<What> {
    let volumes = partition.volumes.iter();
    let volume = volumes
        .into_iter()
        .find(|volume| volume.name() == name.as_bytes());
    let findings = volume.expect("the volume").findings.iter();
    findings.map(|finding| finding.what.clone()).collect()
}

#[test]
fn lebs_between_others_are_lost_if_a_block_without_headers_may_have_had_them() {
    let data = vec![0x42; 60_000];
    let image = ubi(11, PAGE, [&[], &data]);
    // Blocks 0 and 1 have the volume table; those of the volume follow.
    let hole = |loses_data| What::MissingLebs {
        first: Leb(2),
        lebs: 1,
        loses_data,
    };
    for fill in [0x5A, 0xFF] {
        let mut dump = image.clone();
        dump[4 * BLOCK..5 * BLOCK].fill(fill);
        let survey = surveyed(&dump);
        let found = partitions(&survey);
        assert_eq!(missing(found[0], "dynamic"), [hole(true)]);
        assert_eq!(missing(found[0], "static"), [What::NoLebs { loses_data: true }]);
    }
    // All blocks have headers: the user of the volume may have unmapped it.
    let mut dump = image.clone();
    dump.drain(4 * BLOCK..5 * BLOCK);
    let survey = surveyed(&dump);
    let found = partitions(&survey);
    assert_eq!(missing(found[0], "dynamic"), [hole(false)]);
    assert_eq!(missing(found[0], "static"), [What::NoLebs { loses_data: false }]);
    assert_eq!(losses(&survey), 0);
    let survey = surveyed(&image);
    assert_eq!(missing(partitions(&survey)[0], "dynamic"), []);
}

/// A file that is cut, or a device that fails, after the survey.
#[derive(Debug)]
struct Failing(Memory, Arc<AtomicBool>);

impl ByteSource for Failing {
    fn read_exact_at(&self, out: &mut [u8], at: u64) -> io::Result<()> {
        match self.1.load(Ordering::Relaxed) {
            true => Err(io::ErrorKind::UnexpectedEof.into()),
            false => self.0.read_exact_at(out, at),
        }
    }
}

#[test]
fn bytes_that_can_not_be_read_any_more_are_a_loss() {
    let data = vec![0x42; 60_000];
    let image = ubi(11, PAGE, [&data, &data]);
    let bytes = u64::try_from(image.len()).unwrap();
    let fails = Arc::new(AtomicBool::new(false));
    let source = Failing(Memory(image), Arc::clone(&fails));
    let dump = Arc::new(Dump::of_source("failing", Box::new(source), bytes));
    let survey = survey(&dump, &Hints::default(), &mut |_| {});
    assert_eq!(content(partitions(&survey)[0], "static"), data);
    assert_eq!(unreadable_since(&dump), []);
    fails.store(true, Ordering::Relaxed);
    assert_ne!(content(partitions(&survey)[0], "dynamic")[0], 0x42);
    assert!(dump.late_failures() > 0);
    let late = unreadable_since(&dump);
    assert!(!late.is_empty() && late.iter().all(|finding| finding.severity() == Severity::Loss));
}

/// A device whose every second piece of 4 KiB is unreadable.
#[derive(Debug)]
struct Striped(u64);

impl ByteSource for Striped {
    fn read_exact_at(&self, out: &mut [u8], at: u64) -> io::Result<()> {
        let end = at + u64::try_from(out.len()).expect("small");
        match end.div_ceil(4096) - at / 4096 > 1 || at / 4096 % 2 == 1 && end <= self.0 {
            true => Err(io::Error::other("bad sectors")),
            false => {
                out.fill(0x42);
                Ok(())
            }
        }
    }
}

#[test]
fn any_number_of_unreadable_ranges_is_known() {
    let bytes = 64 << 20;
    let dump = Arc::new(Dump::of_source("striped", Box::new(Striped(bytes)), bytes));
    let found = survey(&dump, &Hints::default(), &mut |_| {});
    assert_eq!(losses(&found), 8192);
    let known = dump.unreadable();
    assert_eq!(known.len(), 8192);
    assert_eq!(known[8191], (bytes - 4096, bytes));
    let mut out = vec![0; 1 << 20];
    dump.read(bytes.cast_signed() - (1 << 20), &mut out);
    dump.read(5000, &mut out);
    assert_eq!((dump.unreadable(), dump.late_failures()), (known, 0));
}

/// A device with a bad sector of 512 bytes.
#[derive(Debug)]
struct BadSector(Memory, u64);

impl ByteSource for BadSector {
    fn read_exact_at(&self, out: &mut [u8], at: u64) -> io::Result<()> {
        let end = at + u64::try_from(out.len()).expect("small");
        match at < self.1 + 512 && self.1 < end {
            true => Err(io::Error::other("bad sector")),
            false => self.0.read_exact_at(out, at),
        }
    }
}

#[test]
fn a_bad_sector_costs_the_same_bytes_wherever_a_read_begins() {
    let data = vec![0x42; 60_000];
    let image = ubi(11, PAGE, [&data, &data]);
    let bytes = u64::try_from(image.len()).unwrap();
    let source = BadSector(Memory(image.clone()), 9 * 4096 + 512);
    let dump = Arc::new(Dump::of_source("bad", Box::new(source), bytes));
    let survey = survey(&dump, &Hints::default(), &mut |_| {});
    let known = dump.unreadable();
    assert_eq!(known, [(9 * 4096, 10 * 4096)]);
    assert!(losses(&survey) > 0);
    let mut expected = image;
    expected[9 * 4096..10 * 4096].fill(0xFF);
    for start in (0..9 * 4096 + 1024).step_by(512).chain([1000, 4097]) {
        let mut out = vec![0; 10 * 4096];
        dump.read(i64::try_from(start).unwrap(), &mut out);
        assert!(out == expected[start..start + out.len()], "from {start}");
    }
    assert_eq!((dump.unreadable(), dump.late_failures()), (known, 0));
    assert_eq!(unreadable_since(&dump), []);
}

#[test]
fn an_incomplete_copy_does_not_hide_the_block_before_it() {
    use ubi::format::{Decoded, VidHeader, crc32};
    let data = vec![0x42; 14_000];
    let image = ubi(11, PAGE, [&[], &data]);
    let block = &image[2 * BLOCK..3 * BLOCK];
    let Decoded::Header(header) = VidHeader::decode(block[512..].first_chunk().unwrap(), 7168) else {
        panic!("the first block of the volume")
    };
    let copy = VidHeader {
        copied: true,
        data_size: 7168,
        data_crc: crc32(&[0x99; 7168]),
        sequence_number: 9,
        ..header
    };
    let mut whole = block.to_vec();
    whole[512..576].copy_from_slice(&copy.encode());
    whole[1024..].fill(0x99);
    let mut torn = whole.clone();
    torn[4096..].fill(0xFF);
    for (newest, first) in [(whole, 0x99), (torn, 0x42)] {
        let survey = surveyed(&[&image[..], &newest].concat());
        let found = partitions(&survey);
        assert_eq!(content(found[0], "dynamic")[0], first);
        let is_told = found[0].volumes[1]
            .findings
            .iter()
            .any(|finding| matches!(finding.what, What::TornCopy { .. }));
        assert_eq!(is_told, first == 0x42);
    }
}

#[test]
fn damaged_and_forged_dumps_never_panic_and_never_grow() {
    let mut random = Prng::new(11);
    let data = random.bytes(50_000);
    let mut valid = ubi(11, PAGE, [&data, &data]);
    valid.extend(vec![0xFF; 3 * BLOCK]);
    valid.extend(ubi(12, 256, [&data[..9000], b"\x31\x18\x10\x06 no node"]));
    let rounds = if testkit::is_full() { 20_000 } else { 150 };
    for seed in 0..rounds {
        let mut random = Prng::new(seed);
        let mut dump = valid.clone();
        for _ in 0..=random.below(12) {
            match random.below(5) {
                0 => {
                    let at = random.below_usize(dump.len());
                    dump[at] ^= 1 << random.below(8);
                }
                1 => {
                    let (from, to) = (random.below_usize(dump.len()), random.below_usize(dump.len()));
                    dump.splice(from.min(to)..from.max(to), []);
                    dump.resize(dump.len().max(1000), 0x5A);
                }
                2 => {
                    let (from, to) = (
                        random.below_usize(dump.len() / BLOCK + 1),
                        random.below_usize(dump.len()),
                    );
                    let block: Vec<u8> = dump.iter().copied().skip(from * BLOCK).take(BLOCK).collect();
                    dump.splice(to..to, block);
                }
                // Headers with right CRCs and any values.
                3 => forge(&mut random, &mut dump),
                _ => {
                    let at = random.below_usize(dump.len()) / 64 * 64;
                    let length = random.below_usize(2000);
                    let junk = random.bytes(length.min(dump.len() - at));
                    dump[at..at + junk.len()].copy_from_slice(&junk);
                }
            }
        }
        let survey = surveyed(&dump);
        for partition in partitions(&survey) {
            for volume in &partition.volumes {
                let mut stream = volume.stream();
                // A forged LEB number makes a stream that no budget takes.
                let _ = io::copy(&mut stream.by_ref().take(1 << 20), &mut io::sink());
                if volume.content == Content::Ubifs {
                    let _ = open_ubifs(Arc::new(volume.open()), OpenOptions::standard());
                }
                for finding in stream.findings() {
                    assert!(!finding.to_string().is_empty());
                }
            }
        }
    }
}

#[test]
fn numbers_of_lebs_beyond_any_chip_are_told_and_fill_no_disk() {
    let contents = [&[1; 20_000][..], &[2; 20_000][..]];
    let whole = ubi(7, 512, contents);
    for (volume, leb, used_lebs) in [(3, 120_000, 0), (0, 1, 0x7FFF_FFFF), (5, 0x7FFF_FFFE, 0)] {
        let mut dump = whole.clone();
        // One block more, behind the others, with the EC header of the first one.
        let block = dump[..BLOCK].to_vec();
        let at = dump.len();
        dump.extend_from_slice(&block);
        let header = ubi::format::VidHeader {
            kind: match used_lebs {
                0 => VolumeKind::Dynamic,
                _ => VolumeKind::Static,
            },
            copied: false,
            compatibility: ubi::format::Compatibility::None,
            volume,
            leb,
            data_size: if used_lebs == 0 { 0 } else { 7168 },
            used_lebs,
            data_padding: 0,
            data_crc: 0,
            sequence_number: 1000,
            generation: 0,
        };
        let header = header.encode();
        dump[at + 512..at + 512 + header.len()].copy_from_slice(&header);
        let survey = surveyed(&dump);
        let [partition] = partitions(&survey)[..] else {
            panic!("{:?}", partitions(&survey));
        };
        let far = partition.volumes.iter().flat_map(|volume| &volume.findings);
        let far: Vec<&What> = far
            .map(|finding| &finding.what)
            .filter(|what| matches!(what, What::FarLebs { lebs: 1, .. }))
            .collect();
        assert_eq!(far.len(), usize::from(volume != 5), "volume {volume}: {far:?}");
        let longest = partition
            .volumes
            .iter()
            .map(|volume| volume.stream().length_bytes());
        assert!(longest.max() < Some(1 << 20));
        assert_eq!(content(partition, "static"), contents[0]);
        assert_eq!(content(partition, "dynamic")[..20_000], *contents[1]);
    }
}

fn forge(random: &mut Prng, dump: &mut [u8]) {
    use ubi::format::{Compatibility, VidHeader};
    let any = |random: &mut Prng| {
        let values = [0, 1, 64, 512, 1024, 8191, 8192, 1 << 20, u32::MAX / 2, u32::MAX];
        *random.pick(&values)
    };
    let header = match random.chance(50) {
        true => EcHeader {
            erase_counter: 1,
            vid_header_offset: any(random),
            data_offset: any(random),
            image_sequence: *random.pick(&[0, 11, 12, 13]),
        }
        .encode(),
        false => VidHeader {
            kind: *random.pick(&[VolumeKind::Dynamic, VolumeKind::Static]),
            copied: random.chance(50),
            compatibility: Compatibility::None,
            volume: *random.pick(&[0, 3, 7, 127]),
            leb: any(random) & 0x7FFF_FFFF,
            data_size: any(random),
            used_lebs: any(random),
            data_padding: *random.pick(&[0, 0, 512]),
            data_crc: 0,
            sequence_number: u64::from(any(random)),
            generation: 0,
        }
        .encode(),
    };
    let at = random.below_usize(dump.len() / 512) * 512;
    if let Some(place) = dump.get_mut(at..at + header.len()) {
        place.copy_from_slice(&header);
    }
}
