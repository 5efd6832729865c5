//! Distributions that the generators draw from.
//!
//! Most are the shares measured on the public block traces of a Nexus 5 (30 traces of the group that published the
//! five applications of the MTD-array study; the numbers before each name are those of its log). They were recorded
//! below the page cache: an application of system calls that borrows one says so in its label.

use super::exact::{Bucket, Keep};
use super::table::{Order, Spread};

const KIB: u64 = 1024;

/// Shares of sizes up to 4, 8, 16, 32, 64, 128, 256, 512 KiB, and above (up to 1 MiB).
const fn sizes(shares: [u64; 9]) -> [Bucket; 9] {
    let mut buckets = [Bucket {
        above: 0,
        up_to: 4 * KIB,
        weight: shares[0],
    }; 9];
    let mut place = 1;
    while place < 9 {
        let above = (2 * KIB) << place;
        buckets[place] = Bucket {
            above,
            up_to: 2 * above,
            weight: shares[place],
        };
        place += 1;
    }
    buckets
}

/// Upper bounds of the gap ranges, in microseconds; the last range holds all gaps above 3 s.
const GAP_ENDS_US: [u64; 11] = [
    100, 300, 1000, 3000, 10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000,
];

/// Shares of gaps in nanoseconds, in the ranges above.
const fn gaps(shares: [u64; 11]) -> [Bucket; 11] {
    let mut buckets = [Bucket {
        above: 0,
        up_to: 0,
        weight: 0,
    }; 11];
    let mut place = 0;
    let mut above = 0;
    while place < 11 {
        let up_to = GAP_ENDS_US[place] * 1000;
        buckets[place] = Bucket {
            above,
            up_to,
            weight: shares[place],
        };
        above = up_to;
        place += 1;
    }
    buckets
}

const fn shape(buckets: &'static [Bucket]) -> Spread {
    Spread {
        buckets,
        keep: Keep::Shape,
        order: Order::Shuffled,
    }
}

const fn exact(buckets: &'static [Bucket]) -> Spread {
    Spread {
        buckets,
        keep: Keep::Buckets,
        order: Order::Shuffled,
    }
}

const fn bucket(above: u64, up_to: u64, weight: u64) -> Bucket {
    Bucket {
        above: above * KIB,
        up_to: up_to * KIB,
        weight,
    }
}

pub(super) const READS_171: Spread = shape(&sizes([20, 7, 16, 12, 15, 29, 0, 0, 0]));
pub(super) const WRITES_171: Spread = shape(&sizes([51, 10, 9, 10, 16, 3, 1, 0, 1]));
pub(super) const GAPS_171: Spread = shape(&gaps([10, 3, 8, 22, 27, 6, 3, 2, 5, 6, 9]));
pub(super) const READS_201: Spread = shape(&sizes([39, 12, 14, 9, 12, 15, 0, 0, 0]));
pub(super) const WRITES_201: Spread = shape(&sizes([51, 26, 10, 4, 8, 1, 0, 0, 0]));
pub(super) const GAPS_201: Spread = shape(&gaps([11, 1, 21, 37, 18, 3, 2, 1, 2, 3, 1]));
pub(super) const READS_121: Spread = shape(&sizes([7, 7, 14, 49, 21, 4, 0, 0, 0]));
pub(super) const WRITES_121: Spread = shape(&sizes([65, 12, 4, 7, 11, 1, 0, 1, 0]));
pub(super) const GAPS_121: Spread = shape(&gaps([71, 1, 1, 1, 5, 1, 0, 1, 13, 5, 0]));
pub(super) const READS_161: Spread = shape(&sizes([29, 9, 12, 10, 18, 21, 1, 0, 0]));
pub(super) const GAPS_161: Spread = shape(&gaps([34, 3, 15, 18, 13, 6, 3, 3, 1, 2, 3]));
pub(super) const GAPS_166: Spread = shape(&gaps([13, 3, 12, 25, 21, 5, 3, 2, 3, 4, 10]));
pub(super) const GAPS_181: Spread = shape(&gaps([8, 4, 8, 38, 28, 6, 3, 2, 3, 1, 0]));

/// About half are small; the rest are pieces of about 512 KiB.
pub(super) const VIDEO_WRITES: Spread = shape(&[bucket(0, 4, 49), bucket(4, 256, 6), bucket(384, 512, 45)]);

/// The frequent sizes in system-call traces of two social applications: 36, 256, 1024 and 4096 bytes.
pub(super) const SMALL_CALLS: Spread = shape(&[
    Bucket {
        above: 0,
        up_to: 64,
        weight: 10,
    },
    Bucket {
        above: 64,
        up_to: 256,
        weight: 15,
    },
    Bucket {
        above: 256,
        up_to: 1024,
        weight: 30,
    },
    Bucket {
        above: 1024,
        up_to: 2048,
        weight: 10,
    },
    Bucket {
        above: 2048,
        up_to: 4096,
        weight: 30,
    },
    Bucket {
        above: 4096,
        up_to: 8192,
        weight: 5,
    },
]);

/// 291 of the camera's 416 writes are above 256 KiB.
pub(super) const CAMERA_WRITES: Spread = exact(&[
    bucket(0, 4, 30),
    bucket(4, 64, 40),
    bucket(64, 256, 38),
    bucket(256, 512, 291),
]);

/// 279 of the camcorder's 398 writes are above 256 KiB.
pub(super) const CAMCORDER_WRITES: Spread = exact(&[
    bucket(0, 4, 20),
    bucket(4, 64, 45),
    bucket(64, 256, 44),
    bucket(256, 512, 279),
]);

pub(super) const PICTURE_READS: Spread =
    exact(&[bucket(0, 64, 35), bucket(64, 256, 60), bucket(256, 512, 280)]);
pub(super) const SMALL_BLOCKS: Spread = shape(&[bucket(0, 4, 50), bucket(4, 16, 30), bucket(16, 64, 20)]);
pub(super) const ONE_BLOCK: Spread = exact(&[bucket(0, 4, 1)]);

pub(super) const SYNCED_FILES: Spread = exact(&[
    bucket(0, 4, 20),
    bucket(4, 8, 5),
    bucket(8, 16, 8),
    bucket(16, 32, 10),
    bucket(32, 64, 15),
    bucket(64, 128, 25),
    bucket(128, 256, 10),
    bucket(256, 512, 7),
]);

/// About half have the largest size that the I/O scheduler builds. They come from large files: consecutive pieces for
/// 32 MiB.
pub(super) const PACKAGE_WRITES: Spread = Spread {
    order: Order::LargestInRuns(64),
    ..exact(&[
        bucket(0, 64, 22),
        bucket(64, 256, 18),
        bucket(256, 508, 12),
        bucket(508, 512, 48),
    ])
};

/// 64 % are 4 KiB.
pub(super) const DATABASE_WRITES: Spread = exact(&[
    bucket(0, 4, 64),
    bucket(4, 8, 10),
    bucket(8, 16, 10),
    bucket(16, 64, 10),
    bucket(64, 256, 6),
]);
