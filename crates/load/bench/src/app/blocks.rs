//! Applications of the buffered-FUSE study (section 3.1) and of the packed-command study (table 3): requests of the
//! block layer, below the page cache, on one partition.
//!
//! Both studies state shares and totals, not request lists. The partition has three parts, so that the statements
//! about data, metadata and journal can be measured again: see [`DATA_START_BYTES`].

use results::call_trace::Layer;

use super::exact::{Bucket, Keep};
use super::shapes;
use super::table::Relation::{AtLeast, AtMost, Within};
use super::table::Statistic::{
    BufferedPercent, DataOfReadsPercent, DataOfWritesPercent, DataWritePercent, DurationSeconds,
    LargeWritePercent, LargestBytes, RandomWritePercent, ReadPercent, Requests, SequentialPercent,
    SmallWritePercent, SyncedWritePercent, WrittenMegabytes,
};
use super::table::{
    Application, Claim, Direction, Labelled, Order, Place, Relation, Spread, Statistic, Stream, assumed,
    derived, published,
};

const MIB: u64 = 1 << 20;

/// Metadata lies below this offset; the journal starts here.
const JOURNAL_START_BYTES: u64 = 16 * MIB;

/// File data starts here.
pub(super) const DATA_START_BYTES: u64 = 48 * MIB;

const FUSE_STUDY: &str = "buffered-FUSE study, section 3.1 (Galaxy S3, user partition, block requests)";
const PACKED_STUDY: &str = "packed-command study, table 3 (Galaxy S3, eMMC driver)";
const TEXT: &str = "section 3.1";
const COUNT: &str = "the source gives shares only; so many that the shares come out";
const PHOTOS: &str = "60 photos, one a second, of 2.2 MB as AndroBench's recorded camera writes them";
const GUESS: &str = "a guess";
const NO_SYNC: Labelled<u64> = assumed(0, "written back by the page cache");
const LAYOUT: &str = "metadata, journal and data in one part of the partition each";
const MOST_512: &str = "shares above 256 KiB [published]; at most 512 KiB, which the I/O scheduler builds";
const GAPS: &str = "the source says nothing; shape of the block requests of recording a video (Nexus 5)";
const INSTALL_GAPS: &str = "the source says nothing; shape of the block requests of installing (Nexus 5)";
const EVENLY: &str =
    "packing by default needs sequential writes: the packed share (69.66 and 94.47 % of all writes)";

const PAIRED: &str = "packing by default needs sequential writes, and packs the first of them too; metadata comes between a tenth of \
     them: (1 - 0.9 x 0.585)^2 of the data are alone, the rest is packed (69.66 % of all writes [published])";

const METADATA: Labelled<Place> = assumed(
    Place::Region {
        start_bytes: 0,
        bytes: JOURNAL_START_BYTES,
    },
    LAYOUT,
);
const JOURNAL: Labelled<Place> = assumed(
    Place::Region {
        start_bytes: JOURNAL_START_BYTES,
        bytes: DATA_START_BYTES - JOURNAL_START_BYTES,
    },
    LAYOUT,
);

const fn data(bytes: u64) -> Labelled<Place> {
    assumed(
        Place::Region {
            start_bytes: DATA_START_BYTES,
            bytes,
        },
        LAYOUT,
    )
}

const fn claim(statistic: Statistic, value: f64, relation: Relation) -> Claim {
    Claim {
        statistic,
        value,
        relation,
    }
}

const fn journal(requests: u64, bytes: u64, synced_permille: Labelled<u64>) -> Stream {
    Stream {
        name: "journal",
        direction: Direction::Write,
        requests: assumed(requests, COUNT),
        bytes: assumed(bytes, GUESS),
        sizes: assumed(shapes::SMALL_BLOCKS, GUESS),
        sequential_permille: assumed(1000, "a journal is a ring"),
        synced_permille,
        place: JOURNAL,
    }
}

const fn metadata(direction: Direction, requests: u64) -> Stream {
    Stream {
        name: "metadata",
        direction,
        requests: assumed(requests, COUNT),
        bytes: derived(requests * 4096, "4 KiB each"),
        sizes: assumed(shapes::ONE_BLOCK, "blocks of the file system"),
        sequential_permille: assumed(0, "inodes and bitmaps lie apart"),
        synced_permille: NO_SYNC,
        place: METADATA,
    }
}

/// All applications of both studies.
pub(super) const APPLICATIONS: [Application; 6] = [
    CAMERA,
    CAMCORDER,
    GALLERY,
    DATA_PARTITION,
    GOOGLE_DRIVE,
    APP_INSTALL,
];

const CAMERA: Application = Application {
    name: "camera",
    title: "taking pictures one after the other for one minute",
    layer: Layer::Block,
    source: FUSE_STUDY,
    claims: &[
        claim(DurationSeconds, 60.0, Within(0.5)),
        claim(DataWritePercent, 95.0, Within(0.5)),
        claim(LargeWritePercent, 70.0, Within(0.5)),
        // The source says "near 100 %".
        claim(SequentialPercent, 97.0, AtLeast),
        claim(BufferedPercent, 70.0, AtLeast),
    ],
    duration_ms: published(60_000, TEXT),
    gaps: assumed(shapes::GAPS_161, GAPS),
    buffered: derived(
        true,
        "over 70 % are buffered [published]; the others are followed by a flush",
    ),
    streams: &[
        Stream {
            name: "pictures",
            direction: Direction::Write,
            requests: assumed(399, "95 % [published] of 420; that count: photos of 2.2 MB"),
            bytes: assumed(132_001_792, PHOTOS),
            sizes: assumed(shapes::CAMERA_WRITES, MOST_512),
            sequential_permille: derived(1000, "\"near 100 %\" [published]"),
            synced_permille: assumed(200, "less than the 30 % that \"over 70 % buffered\" leaves"),
            place: data(160 * MIB),
        },
        journal(13, 159_744, assumed(1000, "commits are flushed")),
        metadata(Direction::Write, 4),
        metadata(Direction::Read, 4),
    ],
    usual_scale_ppm: 1_000_000,
};

const CAMCORDER: Application = Application {
    name: "camcorder",
    title: "recording a video of 1920x1080 at 30 pictures a second for one minute",
    layer: Layer::Block,
    source: FUSE_STUDY,
    claims: &[
        claim(DurationSeconds, 60.0, Within(0.5)),
        claim(DataWritePercent, 97.0, Within(0.5)),
        claim(LargeWritePercent, 70.0, Within(0.5)),
        claim(SequentialPercent, 97.0, AtLeast),
        claim(BufferedPercent, 100.0, Within(0.5)),
    ],
    duration_ms: published(60_000, TEXT),
    gaps: assumed(shapes::GAPS_161, GAPS),
    buffered: published(true, TEXT),
    streams: &[
        Stream {
            name: "video",
            direction: Direction::Write,
            requests: assumed(
                388,
                "97 % [published] of 400; that count: the volume in requests of these sizes",
            ),
            bytes: assumed(
                124_600_320,
                "2.08 MB/s, which the MTD-array study's CameraVideo gives (another phone)",
            ),
            sizes: assumed(shapes::CAMCORDER_WRITES, MOST_512),
            sequential_permille: derived(1000, "\"near 100 %\" [published]"),
            synced_permille: published(0, "100 % buffered"),
            place: data(160 * MIB),
        },
        journal(6, 73_728, published(0, "100 % buffered")),
        metadata(Direction::Write, 4),
        metadata(Direction::Read, 2),
    ],
    usual_scale_ppm: 1_000_000,
};

const GALLERY: Application = Application {
    name: "gallery",
    title: "scrolling thumbnails and showing each picture for one minute",
    layer: Layer::Block,
    source: FUSE_STUDY,
    claims: &[
        claim(DurationSeconds, 60.0, Within(0.5)),
        // The source says "almost 100 %".
        claim(DataOfReadsPercent, 99.5, AtLeast),
        claim(DataOfWritesPercent, 30.0, Within(0.5)),
        claim(SequentialPercent, 90.0, AtLeast),
        claim(BufferedPercent, 70.0, AtLeast),
    ],
    duration_ms: published(60_000, TEXT),
    gaps: assumed(
        shapes::GAPS_121,
        "the source says nothing; shape of the block requests of a movie (Nexus 5)",
    ),
    buffered: derived(
        true,
        "over 70 % are buffered [published]; journal writes are followed by a flush",
    ),
    streams: &[
        Stream {
            name: "pictures",
            direction: Direction::Read,
            requests: assumed(
                375,
                "the volume in requests most of which are above 256 KiB [published]",
            ),
            bytes: assumed(132_001_792, "60 pictures of 2.2 MB, one a second"),
            sizes: assumed(shapes::PICTURE_READS, "\"most are above 256 KiB\" [published]"),
            sequential_permille: assumed(1000, "pictures lie in the order in which they were taken"),
            synced_permille: NO_SYNC,
            place: data(160 * MIB),
        },
        Stream {
            name: "thumbnails",
            direction: Direction::Read,
            requests: assumed(20, "few, so that over 90 % are sequential [published]"),
            bytes: assumed(20 * 16_384, GUESS),
            sizes: assumed(shapes::SMALL_BLOCKS, GUESS),
            sequential_permille: assumed(0, "they lie apart"),
            synced_permille: NO_SYNC,
            place: data(160 * MIB),
        },
        metadata(Direction::Read, 1),
        Stream {
            name: "database of thumbnails",
            direction: Direction::Write,
            requests: assumed(
                13,
                "30 % [published] of 44 writes; that count: a tenth of all requests",
            ),
            bytes: assumed(13 * 16_384, GUESS),
            sizes: assumed(shapes::SMALL_BLOCKS, GUESS),
            sequential_permille: assumed(900, "over 90 % are sequential [published]"),
            synced_permille: NO_SYNC,
            place: data(160 * MIB),
        },
        journal(24, 294_912, assumed(1000, "commits are flushed")),
        metadata(Direction::Write, 7),
    ],
    usual_scale_ppm: 1_000_000,
};

const DATA_PARTITION: Application = Application {
    name: "data-partition",
    title: "applications with their databases on the data partition",
    layer: Layer::Block,
    source: FUSE_STUDY,
    claims: &[
        claim(SmallWritePercent, 64.0, Within(0.5)),
        claim(RandomWritePercent, 75.0, Within(0.5)),
        claim(SyncedWritePercent, 70.0, Within(0.5)),
    ],
    duration_ms: assumed(60_000, GUESS),
    gaps: assumed(
        shapes::GAPS_171,
        "the source says nothing; shape of the block requests of a game (Nexus 5)",
    ),
    buffered: derived(
        true,
        "30 % are not synchronous [published]; the others are followed by a flush",
    ),
    streams: &[
        Stream {
            name: "databases",
            direction: Direction::Write,
            requests: assumed(2_400, GUESS),
            bytes: assumed(2_400 * 16_384, GUESS),
            sizes: published(
                shapes::DATABASE_WRITES,
                "64 % are 4 KiB; the sizes of the others are a guess",
            ),
            sequential_permille: published(250, "75 % are random"),
            synced_permille: published(700, "70 % are synchronous"),
            place: data(256 * MIB),
        },
        Stream {
            name: "applications",
            direction: Direction::Read,
            requests: assumed(600, "a fifth, as the Nexus 5 block traces of such applications"),
            bytes: assumed(600 * 20_480, GUESS),
            sizes: assumed(
                Spread {
                    buckets: FREE,
                    keep: Keep::Shape,
                    order: Order::Shuffled,
                },
                GUESS,
            ),
            sequential_permille: assumed(200, GUESS),
            synced_permille: NO_SYNC,
            place: data(256 * MIB),
        },
    ],
    usual_scale_ppm: 1_000_000,
};

const FREE: &[Bucket] = &[
    Bucket {
        above: 0,
        up_to: 4096,
        weight: 40,
    },
    Bucket {
        above: 4096,
        up_to: 131_072,
        weight: 60,
    },
];

const GOOGLE_DRIVE: Application = Application {
    name: "google-drive",
    title: "synchronising music and documents to the phone",
    layer: Layer::Block,
    source: PACKED_STUDY,
    claims: &[
        claim(Requests, 9912.0, Within(0.5)),
        claim(WrittenMegabytes, 700.0, Within(50.0)),
        claim(ReadPercent, 0.0, Within(0.5)),
        claim(LargestBytes, 524_288.0, AtMost),
    ],
    duration_ms: derived(28_991, "0.7 GB at 24.146 MB/s"),
    gaps: assumed(shapes::GAPS_181, INSTALL_GAPS),
    buffered: derived(false, "requests as the eMMC driver saw them"),
    streams: &[
        Stream {
            name: "file data",
            direction: Direction::Write,
            requests: assumed(8_912, "of 9,912 [published], a tenth for metadata and journal"),
            bytes: derived(687_714_304, "0.7 GB [published], less metadata and journal"),
            sizes: assumed(
                shapes::SYNCED_FILES,
                "mean 71 KB [derived]; at most 512 KiB, which the scheduler builds",
            ),
            sequential_permille: derived(585, PAIRED),
            synced_permille: NO_SYNC,
            place: data(1024 * MIB),
        },
        Stream {
            name: "metadata and journal",
            direction: Direction::Write,
            requests: assumed(1_000, "a tenth"),
            bytes: assumed(12_288_000, "12 KiB each"),
            sizes: assumed(shapes::SMALL_BLOCKS, GUESS),
            sequential_permille: assumed(0, "they interrupt the data"),
            synced_permille: NO_SYNC,
            place: METADATA,
        },
    ],
    usual_scale_ppm: 1_000_000,
};

const APP_INSTALL: Application = Application {
    name: "app-install",
    title: "installing many large applications",
    layer: Layer::Block,
    source: PACKED_STUDY,
    claims: &[
        claim(Requests, 10_126.0, Within(0.5)),
        claim(WrittenMegabytes, 3100.0, Within(50.0)),
        claim(ReadPercent, 0.0, Within(0.5)),
        claim(LargestBytes, 524_288.0, AtMost),
    ],
    duration_ms: derived(85_685, "3.1 GB at 36.179 MB/s"),
    gaps: assumed(shapes::GAPS_181, INSTALL_GAPS),
    buffered: derived(false, "requests as the eMMC driver saw them"),
    streams: &[
        Stream {
            name: "packages",
            direction: Direction::Write,
            requests: derived(9_566, EVENLY),
            bytes: derived(3_095_412_736, "3.1 GB [published], less metadata and journal"),
            sizes: assumed(
                shapes::PACKAGE_WRITES,
                "mean 306 KB [derived]; at most 512 KiB, which the scheduler builds",
            ),
            sequential_permille: derived(1000, EVENLY),
            synced_permille: NO_SYNC,
            place: data(4096 * MIB),
        },
        Stream {
            name: "metadata and journal",
            direction: Direction::Write,
            requests: derived(560, "what the packed share leaves"),
            bytes: assumed(4_587_520, "8 KiB each"),
            sizes: assumed(shapes::SMALL_BLOCKS, GUESS),
            sequential_permille: assumed(0, "they interrupt the data"),
            synced_permille: NO_SYNC,
            place: METADATA,
        },
    ],
    usual_scale_ppm: 500_000,
};
