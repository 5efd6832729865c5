//! Applications of the MTD-array study (section 5.1 and table 3): calls on files, above the page cache.
//!
//! The study describes five traces in words: the activity and its duration, the share of reads, the bytes of the
//! dominant direction, and for one trace the mean size and mean gap. It gives no sizes, gaps or files for the others;
//! those are borrowed and labelled as such.

use results::call_trace::Layer;

use super::shapes;
use super::table::Relation::Within;
use super::table::Statistic::{
    DurationSeconds, MeanBytes, MeanGapMilliseconds, ReadMegabytes, ReadPercent, ReadToWritten,
    WrittenMegabytes,
};
use super::table::{
    Application, Claim, Direction, Labelled, Place, Statistic, Stream, assumed, derived, published,
};

const SOURCE: &str = "MTD-array study, section 5.1 and table 3 (calls recorded by an I/O monitor on a phone)";
const TABLE: &str = "table 3";
const MB: &str = "section 5.1; MB is taken as 10^6 bytes";
const BORROWED: &str =
    "shape of this application's requests below the page cache (Nexus 5 block traces): another layer";
const BOTH: &str = "the source says only that input and output are similar";
const FILES: &str = "as many bytes as the Nexus 5 block trace touched; the number of files is a guess";
const SYSTEM_CALLS: Labelled<bool> = derived(true, "calls on files go through the page cache");
const NEVER_SYNCED: Labelled<u64> = assumed(0, "the source names no syncs");
const MIB: u64 = 1 << 20;

const fn stated(statistic: Statistic, value: f64, precision: f64) -> Claim {
    Claim {
        statistic,
        value,
        relation: Within(precision),
    }
}

/// The study's five applications.
pub(super) const APPLICATIONS: [Application; 5] = [ANGRY_BIRD, GOOGLE_MAP, MOVIE, CAMERA_VIDEO, WEB_BROWSING];

const ANGRY_BIRD: Application = Application {
    name: "angry-bird",
    title: "playing a game for one hour",
    layer: Layer::SystemCalls,
    source: SOURCE,
    claims: &[
        stated(DurationSeconds, 3600.0, 0.5),
        stated(ReadPercent, 96.9, 0.05),
        stated(ReadMegabytes, 2790.0, 5.0),
    ],
    duration_ms: published(3_600_000, TABLE),
    gaps: assumed(shapes::GAPS_171, BORROWED),
    buffered: SYSTEM_CALLS,
    streams: &[
        Stream {
            name: "levels and sounds",
            direction: Direction::Read,
            requests: assumed(
                62_016,
                "96.9 % [published] of 64,000, so that a read is 45 KB as below the page cache",
            ),
            bytes: published(2_790_000_000, "section 5.1; GB is taken as 10^9 bytes"),
            sizes: assumed(shapes::READS_171, BORROWED),
            sequential_permille: assumed(340, BORROWED),
            synced_permille: NEVER_SYNCED,
            place: assumed(
                Place::Files {
                    folder: "assets",
                    count: 40,
                    bytes: 76 * MIB,
                },
                FILES,
            ),
        },
        Stream {
            name: "saved state",
            direction: Direction::Write,
            requests: derived(1_984, "what the share of reads leaves of 64,000"),
            bytes: assumed(52_000_000, "26 KB a write, as below the page cache"),
            sizes: assumed(shapes::WRITES_171, BORROWED),
            sequential_permille: assumed(300, BORROWED),
            synced_permille: NEVER_SYNCED,
            place: assumed(
                Place::Files {
                    folder: "state",
                    count: 8,
                    bytes: 16 * MIB,
                },
                "a guess",
            ),
        },
    ],
    usual_scale_ppm: 1_000_000,
};

const GOOGLE_MAP: Application = Application {
    name: "google-map",
    title: "navigating a route for 30 minutes",
    layer: Layer::SystemCalls,
    source: SOURCE,
    claims: &[
        stated(DurationSeconds, 1800.0, 0.5),
        stated(ReadPercent, 63.8, 0.05),
        stated(ReadToWritten, 1.0, 0.1),
    ],
    duration_ms: published(1_800_000, TABLE),
    gaps: assumed(shapes::GAPS_201, BORROWED),
    buffered: SYSTEM_CALLS,
    streams: &[
        Stream {
            name: "tiles shown",
            direction: Direction::Read,
            requests: assumed(
                8_415,
                "63.8 % [published] of 13,190; that count: as many a second as block requests",
            ),
            bytes: assumed(106_000_000, BOTH),
            sizes: assumed(shapes::READS_201, BORROWED),
            sequential_permille: assumed(50, BORROWED),
            synced_permille: NEVER_SYNCED,
            place: assumed(
                Place::Files {
                    folder: "tiles",
                    count: 64,
                    bytes: 142 * MIB,
                },
                FILES,
            ),
        },
        Stream {
            name: "tiles stored",
            direction: Direction::Write,
            requests: derived(4_775, "what the share of reads leaves of 13,190"),
            bytes: assumed(106_000_000, BOTH),
            sizes: assumed(shapes::WRITES_201, BORROWED),
            sequential_permille: assumed(240, BORROWED),
            synced_permille: NEVER_SYNCED,
            place: assumed(
                Place::Files {
                    folder: "new-tiles",
                    count: 64,
                    bytes: 106 * MIB,
                },
                "a guess",
            ),
        },
    ],
    usual_scale_ppm: 1_000_000,
};

const MOVIE: Application = Application {
    name: "movie",
    title: "watching movie clips for 15 minutes",
    layer: Layer::SystemCalls,
    source: SOURCE,
    claims: &[
        stated(DurationSeconds, 900.0, 0.5),
        stated(ReadPercent, 87.4, 0.05),
        stated(ReadMegabytes, 110.3, 0.05),
    ],
    duration_ms: published(900_000, TABLE),
    gaps: assumed(shapes::GAPS_121, BORROWED),
    buffered: SYSTEM_CALLS,
    streams: &[
        Stream {
            name: "clips",
            direction: Direction::Read,
            requests: assumed(
                3_769,
                "87.4 % [published] of 4,312; that count: as many a second as block requests",
            ),
            bytes: published(110_300_000, MB),
            sizes: assumed(shapes::READS_121, BORROWED),
            sequential_permille: assumed(1000, "a clip is read from its start to its end"),
            synced_permille: NEVER_SYNCED,
            place: assumed(
                Place::Files {
                    folder: "clips",
                    count: 1,
                    bytes: 110_300_000,
                },
                "no byte is read twice",
            ),
        },
        Stream {
            name: "player state",
            direction: Direction::Write,
            requests: derived(543, "what the share of reads leaves of 4,312"),
            bytes: assumed(9_300_000, "17 KB a write, as below the page cache"),
            sizes: assumed(shapes::WRITES_121, BORROWED),
            sequential_permille: assumed(240, BORROWED),
            synced_permille: NEVER_SYNCED,
            place: assumed(
                Place::Files {
                    folder: "state",
                    count: 8,
                    bytes: 8 * MIB,
                },
                "a guess",
            ),
        },
    ],
    usual_scale_ppm: 1_000_000,
};

const CAMERA_VIDEO: Application = Application {
    name: "camera-video",
    title: "recording a video clip of 3 minutes",
    layer: Layer::SystemCalls,
    source: SOURCE,
    claims: &[
        stated(DurationSeconds, 180.0, 0.5),
        // The source says "95.6 % of its requests are writes".
        stated(ReadPercent, 4.4, 0.05),
        stated(WrittenMegabytes, 373.8, 0.05),
    ],
    duration_ms: published(180_000, TABLE),
    gaps: assumed(shapes::GAPS_161, BORROWED),
    buffered: SYSTEM_CALLS,
    streams: &[
        Stream {
            name: "clip",
            direction: Direction::Write,
            requests: assumed(
                1_549,
                "95.6 % [published] of 1,620, so that half of the writes are pieces of 512 KiB",
            ),
            bytes: published(373_800_000, MB),
            sizes: assumed(
                shapes::VIDEO_WRITES,
                "AndroBench's recorded camera writes 512 KiB pieces; half are small as below the page cache",
            ),
            sequential_permille: assumed(1000, "one file that grows"),
            synced_permille: NEVER_SYNCED,
            place: assumed(
                Place::NewFile { name: "clip.mp4" },
                "one file, synced and closed at the end",
            ),
        },
        Stream {
            name: "settings and thumbnails",
            direction: Direction::Read,
            requests: derived(71, "what the share of writes leaves of 1,620"),
            bytes: assumed(2_800_000, "39 KB a read, as below the page cache"),
            sizes: assumed(shapes::READS_161, BORROWED),
            sequential_permille: assumed(170, BORROWED),
            synced_permille: NEVER_SYNCED,
            place: assumed(
                Place::Files {
                    folder: "thumbnails",
                    count: 8,
                    bytes: 4 * MIB,
                },
                "a guess",
            ),
        },
    ],
    usual_scale_ppm: 1_000_000,
};

const WEB_BROWSING: Application = Application {
    name: "web-browsing",
    title: "surfing for 15 minutes",
    layer: Layer::SystemCalls,
    source: SOURCE,
    claims: &[
        stated(DurationSeconds, 900.0, 0.5),
        stated(ReadPercent, 42.3, 0.05),
        stated(MeanBytes, 1800.0, 50.0),
        stated(MeanGapMilliseconds, 14.5, 0.05),
        stated(ReadToWritten, 1.0, 0.1),
    ],
    duration_ms: published(900_000, TABLE),
    gaps: assumed(
        shapes::GAPS_166,
        "mean 14.5 ms [published]; shape of the block requests (Nexus 5): another layer",
    ),
    buffered: SYSTEM_CALLS,
    streams: &[
        Stream {
            name: "pages read",
            direction: Direction::Read,
            requests: derived(
                26_256,
                "42.3 % [published] of 62,070, which is 15 minutes at a mean gap of 14.5 ms",
            ),
            bytes: derived(
                55_863_000,
                "half of 62,070 requests of 1.8 KB [published] on the mean",
            ),
            sizes: assumed(
                shapes::SMALL_CALLS,
                "\"mostly small\" [published]; sizes frequent in system-call traces",
            ),
            sequential_permille: assumed(280, BORROWED),
            synced_permille: NEVER_SYNCED,
            place: assumed(
                Place::Files {
                    folder: "cache",
                    count: 200,
                    bytes: 70 * MIB,
                },
                FILES,
            ),
        },
        Stream {
            name: "pages stored",
            direction: Direction::Write,
            requests: derived(35_814, "what the share of reads leaves of 62,070"),
            bytes: derived(
                55_863_000,
                "half of 62,070 requests of 1.8 KB [published] on the mean",
            ),
            sizes: assumed(
                shapes::SMALL_CALLS,
                "\"mostly small\" [published]; sizes frequent in system-call traces",
            ),
            sequential_permille: assumed(240, BORROWED),
            synced_permille: NEVER_SYNCED,
            place: assumed(
                Place::Files {
                    folder: "new-pages",
                    count: 200,
                    bytes: 56 * MIB,
                },
                "a guess",
            ),
        },
    ],
    usual_scale_ppm: 1_000_000,
};
