//! Dumps whose obvious reading is wrong: each of them once gave wrong content without a word, or lost content that is there.

use std::io::Read;
use std::sync::Arc;

use image::{Content, Dump, Hints, Part, Partition, Severity, Survey, What, survey};
use media::NandGeometry;
use testkit::prng::Prng;
use ubi::format::VolumeKind;
use ubi::format::volume_table::VolumeName;
use ubi::{ImageOptions, ImageVolume, Layout, VolumeId, build_image};

const PAGE: u32 = 512;
const BLOCK: usize = 8192;
const LEB: usize = BLOCK - 1024;

struct Made<'a> {
    name: &'static str,
    kind: VolumeKind,
    /// Reserved bytes.
    bytes: u64,
    content: &'a [u8],
}

fn fixed<'a>(name: &'static str, content: &'a [u8]) -> Made<'a> {
    Made {
        name,
        kind: VolumeKind::Static,
        bytes: 400_000,
        content,
    }
}

fn dynamic<'a>(name: &'static str, content: &'a [u8]) -> Made<'a> {
    Made {
        kind: VolumeKind::Dynamic,
        ..fixed(name, content)
    }
}

/// A UBI image as an image maker writes it.
fn ubi(sequence: u32, block_bytes: usize, volumes: &[Made<'_>]) -> Vec<u8> {
    let pages = u32::try_from(block_bytes).expect("it is small") / PAGE;
    let geometry = NandGeometry::new(PAGE, pages, 4096).expect("it is valid");
    let options = ImageOptions {
        layout: Layout::usual(&geometry).expect("it is valid"),
        geometry,
        image_sequence: sequence,
        erase_counter: 0,
    };
    let volumes = (0..).zip(volumes).map(|(id, volume)| {
        let made = ImageVolume {
            id: VolumeId(id),
            name: VolumeName::new(volume.name.as_bytes()).expect("it is valid"),
            kind: volume.kind,
            bytes: volume.bytes,
            alignment: 1,
            autoresize: false,
            skip_check: false,
            content_bytes: u64::try_from(volume.content.len()).expect("it is valid"),
        };
        (made, volume.content)
    });
    let mut image = Vec::new();
    let mut write = |bytes: &[u8]| {
        image.extend_from_slice(bytes);
        Ok(())
    };
    build_image(&options, volumes.collect(), &mut write).expect("it is valid");
    image
}

fn surveyed(content: &[u8]) -> Survey {
    surveyed_with(content, &Hints::default())
}

fn surveyed_with(content: &[u8], hints: &Hints) -> Survey {
    let dump = Arc::new(Dump::spool("dump", content).expect("it is valid"));
    survey(&dump, hints, &mut |_| {})
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
    let mut volumes = partition.volumes.iter();
    let volume = volumes.find(|volume| volume.name() == name.as_bytes());
    let mut bytes = Vec::new();
    let mut stream = volume.expect("the volume").stream();
    stream.read_to_end(&mut bytes).expect("it is valid");
    bytes
}

fn losses(survey: &Survey) -> Vec<What> {
    let of_partitions = partitions(survey).into_iter().flat_map(|partition| {
        let of_volumes = partition.volumes.iter().flat_map(|volume| &volume.findings);
        partition.findings.iter().chain(of_volumes)
    });
    let all = survey.findings.iter().chain(of_partitions);
    all.filter(|finding| finding.severity() == Severity::Loss)
        .map(|finding| finding.what.clone())
        .collect()
}

/// The kernels have 3 and 2 LEBs, so that most LEBs of the second image lie one block nearer to the first one's than its
/// volume table does: the last LEB of the first `data` became one of the second.
#[test]
fn images_with_one_sequence_part_at_the_volume_table_of_the_second() {
    let mut random = Prng::new(1);
    let sizes = [(3, 11), (2, 10), (5, 4), (1, 14)];
    let contents: Vec<[Vec<u8>; 2]> = sizes
        .iter()
        .map(|(kernel, data)| [random.bytes(LEB * kernel), random.bytes(LEB * data)])
        .collect();
    let images: Vec<Vec<u8>> = contents
        .iter()
        .map(|[kernel, data]| ubi(7, BLOCK, &[fixed("kernel", kernel), dynamic("data", data)]))
        .collect();
    for order in [
        &[0, 1][..],
        &[1, 0],
        &[2, 1],
        &[3, 0],
        &[0, 1, 2],
        &[3, 2, 1, 0],
        &[2, 2, 0],
    ] {
        let dump: Vec<u8> = order.iter().flat_map(|image| images[*image].clone()).collect();
        let survey = surveyed(&dump);
        let found = partitions(&survey);
        assert_eq!(found.len(), order.len(), "{order:?}");
        for (partition, image) in found.iter().zip(order) {
            assert!(content(partition, "kernel") == contents[*image][0], "{order:?}");
            assert!(content(partition, "data") == contents[*image][1], "{order:?}");
        }
        assert_eq!(losses(&survey), [], "{order:?}");
    }
}

#[test]
fn images_beyond_the_limit_of_one_sequence_are_a_loss() {
    let images = |number: u8| -> Vec<u8> {
        let contents = (0..number).map(|image| vec![image; LEB * 3]);
        contents
            .flat_map(|data| ubi(7, BLOCK, &[dynamic("data", &data)]))
            .collect()
    };
    let survey = surveyed(&images(16));
    assert_eq!((partitions(&survey).len(), losses(&survey)), (16, vec![]));
    let survey = surveyed(&images(17));
    assert_eq!(partitions(&survey).len(), 16);
    let is_told = |what: &What| matches!(what, What::TooManyCopies { copies: 16, .. });
    assert!(losses(&survey).iter().any(is_told), "{:?}", losses(&survey));
}

/// The second device has rewritten its volume table, which therefore gives no distance; that of most LEBs is wrong.
#[test]
fn blocks_between_two_possible_borders_are_a_loss() {
    use ubi::format::{Decoded, VidHeader};
    let data = vec![0x42; LEB * 11];
    let first = ubi(
        7,
        BLOCK,
        &[fixed("kernel", &data[..LEB * 3]), dynamic("data", &data)],
    );
    let mut second = ubi(
        7,
        BLOCK,
        &[
            fixed("kernel", &data[..LEB * 2]),
            dynamic("data", &data[..LEB * 10]),
        ],
    );
    for block in [0, BLOCK] {
        let header = &mut second[block + 512..block + 576];
        let Decoded::Header(table) = VidHeader::decode(header[..].first_chunk().unwrap(), 7168) else {
            panic!("an image begins with the volume table");
        };
        let newer = VidHeader {
            sequence_number: 5,
            ..table
        };
        header.copy_from_slice(&newer.encode());
    }
    let survey = surveyed(&[first, second].concat());
    assert_eq!(partitions(&survey).len(), 2);
    let is_told = |what: &What| {
        matches!(
            what,
            What::SecondCopy {
                is_certain: false,
                ..
            }
        )
    };
    assert!(losses(&survey).iter().any(is_told), "{:?}", losses(&survey));
}

/// The inner image has blocks of an eighth of the outer ones, and therefore more of them, with headers at the same offsets.
#[test]
fn an_image_inside_of_a_volume_leaves_the_outer_partition_whole() {
    let mut random = Prng::new(4);
    for (inner_bytes, others, kind) in [
        (200_000, 100_000, VolumeKind::Static),
        (300_000, 20_000, VolumeKind::Dynamic),
        (30_000, 0, VolumeKind::Static),
    ] {
        let (inside, beside) = (random.bytes(inner_bytes), random.bytes(others));
        let inner = ubi(77, BLOCK, &[dynamic("inner", &inside)]);
        let blob = Made {
            kind,
            bytes: 1_000_000,
            ..fixed("blob", &inner)
        };
        let outer = ubi(5, BLOCK * 8, &[blob, dynamic("other", &beside)]);
        let given = Hints {
            block_bytes: Some(65_536),
            ..Hints::default()
        };
        for hints in [Hints::default(), given] {
            let survey = surveyed_with(&outer, &hints);
            let found = partitions(&survey);
            let place = format!("{inner_bytes} {hints:?}: {found:?}");
            assert_eq!(found.len(), 1, "{place}");
            assert_eq!(found[0].image_sequence, 5, "{place}");
            assert!(content(found[0], "blob").starts_with(&inner), "{place}");
            assert!(content(found[0], "other").starts_with(&beside), "{place}");
            assert_eq!(losses(&survey), []);
        }
    }
}

/// A part of a dump of a large chip: the volume table, and the last blocks of a volume of 2000 LEBs.
#[test]
fn lebs_far_from_the_first_one_are_content() {
    let mut data = vec![0x5A; LEB * 2000];
    data[LEB * 1990..].fill(0x77);
    let volume = Made {
        bytes: 40_000_000,
        ..dynamic("data", &data)
    };
    let image = ubi(7, BLOCK, &[volume]);
    let blocks = 50;
    let part = [&image[..2 * BLOCK], &image[image.len() - blocks * BLOCK..]].concat();
    let survey = surveyed(&part);
    let [partition] = partitions(&survey)[..] else {
        panic!("{:?}", partitions(&survey));
    };
    let volume = &partition.volumes[0];
    assert_eq!(
        (volume.content, volume.mapped().count()),
        (Content::Unknown, blocks)
    );
    let bytes = content(partition, "data");
    assert!(bytes.len() == data.len() && bytes[LEB * 1950..] == data[LEB * 1950..]);
    let opened = volume.open();
    let mut read = [0; 4];
    ubi::Volume::read(&opened, media::Leb(1999), 0, &mut read).expect("it is there");
    assert_eq!(read, [0x77; 4]);
}

/// A forged volume table lifted the limit of LEB numbers, so that 13 MiB of dump made 59 GiB of volume.
#[test]
fn a_table_that_reserves_millions_of_blocks_fills_no_disk() {
    use ubi::format::{Decoded, VidHeader};
    let data = vec![0x5A; LEB * 20];
    let volume = Made {
        bytes: 5_000_000_000,
        ..dynamic("data", &data)
    };
    let mut image = ubi(7, BLOCK, &[volume]);
    let last = image.len() - BLOCK;
    let header = &mut image[last + 512..last + 576];
    let Decoded::Header(vid) = VidHeader::decode(header[..].first_chunk().unwrap(), 7168) else {
        panic!("the block of the last LEB");
    };
    let far = VidHeader { leb: 499_999, ..vid };
    header.copy_from_slice(&far.encode());
    let survey = surveyed(&image);
    let [partition] = partitions(&survey)[..] else {
        panic!("{:?}", partitions(&survey));
    };
    let bytes = partition.volumes[0].stream().length_bytes();
    assert!(bytes < 64 * u64::try_from(image.len()).unwrap(), "{bytes} bytes");
    let is_told = |what: &What| matches!(what, What::FarLebs { lebs: 1, .. });
    assert!(losses(&survey).iter().any(is_told), "{:?}", losses(&survey));
}

/// A squashfs of version 4 of this length by its superblock, with this many bytes.
fn squashfs(length: usize, bytes: usize) -> Vec<u8> {
    let mut content = Prng::new(9).bytes(bytes);
    content[..4].copy_from_slice(b"hsqs");
    content[28..32].copy_from_slice(&[4, 0, 0, 0]);
    content[40..48].copy_from_slice(&u64::try_from(length).expect("it is small").to_le_bytes());
    content
}

#[test]
fn a_squashfs_that_is_longer_than_its_volume_is_a_loss() {
    let cut = |lebs, there| What::CutSquashfs { lebs, there };
    let cases = [
        (10, VolumeKind::Dynamic, 6, vec![cut(10, 6)]),
        (6, VolumeKind::Dynamic, 6, vec![]),
        (3, VolumeKind::Dynamic, 6, vec![]),
        (10, VolumeKind::Static, 6, vec![cut(10, 3)]),
        (3, VolumeKind::Static, 6, vec![]),
        (1 << 40, VolumeKind::Dynamic, 6, vec![cut(u32::MAX, 6)]),
    ];
    for (lebs, kind, reserved, expected) in cases {
        let content = squashfs(lebs * LEB, 3 * LEB);
        let volume = Made {
            kind,
            bytes: u64::try_from(reserved * LEB).unwrap(),
            ..fixed("rootfs", &content)
        };
        let survey = surveyed(&ubi(7, BLOCK, &[volume]));
        let found: Vec<What> = losses(&survey)
            .into_iter()
            .filter(|what| matches!(what, What::CutSquashfs { .. }))
            .collect();
        assert_eq!(found, expected, "{lebs} LEBs in a {kind:?} volume");
    }
}

/// Headers of 16384 partitions, each twice: as many comparisons of each with each other would take minutes.
#[test]
fn headers_of_many_partitions_are_grouped_in_linear_time() {
    let half: Vec<u8> = (1..=16_384_u32)
        .flat_map(|image_sequence| {
            let header = ubi::format::EcHeader {
                erase_counter: 1,
                vid_header_offset: 64,
                data_offset: 128,
                image_sequence,
            };
            header.encode()
        })
        .collect();
    let begin = std::time::Instant::now();
    drop(surveyed(&[&half[..], &half].concat()));
    assert!(begin.elapsed().as_secs() < 30, "{:?}", begin.elapsed());
}

#[test]
fn sizes_that_contradict_the_headers_are_told() {
    let data = vec![0x42; 60_000];
    let image = ubi(7, BLOCK, &[dynamic("data", &data)]);
    let told = |page_bytes: Option<u32>, block_bytes: Option<u32>| -> Vec<What> {
        let hints = Hints {
            page_bytes,
            block_bytes,
            ..Hints::default()
        };
        let survey = surveyed_with(&image, &hints);
        assert!(content(partitions(&survey)[0], "data").starts_with(&data));
        let findings = survey.findings.into_iter().map(|finding| finding.what);
        findings
            .filter(|what| matches!(what, What::OtherSize { .. }))
            .collect()
    };
    assert_eq!(told(Some(512), Some(8192)), []);
    assert_eq!(told(None, None), []);
    let other = |option, given, found| What::OtherSize { option, given, found };
    assert_eq!(told(None, Some(16_384)), [other("--block", 16_384, 8192)]);
    assert_eq!(told(Some(2048), None), [other("--page", 2048, 1024)]);
}
