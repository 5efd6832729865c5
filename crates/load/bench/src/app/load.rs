//! Reads the tables of the applications: `apps/*.toml`, which are part of the program.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::{Deserialize, Deserializer};

use super::exact::{Bucket, Keep};
use super::table::{Application, Order, Spread};

const KIB: u64 = 1024;

/// Upper bounds of the ranges of sizes.
const SIZE_ENDS: [u64; 9] = [
    4 * KIB,
    8 * KIB,
    16 * KIB,
    32 * KIB,
    64 * KIB,
    128 * KIB,
    256 * KIB,
    512 * KIB,
    1024 * KIB,
];

/// Upper bounds of the ranges of gaps, in nanoseconds; the last range holds all gaps above 3 s.
const GAP_ENDS_NS: [u64; 11] = [
    100_000,
    300_000,
    1_000_000,
    3_000_000,
    10_000_000,
    30_000_000,
    100_000_000,
    300_000_000,
    1_000_000_000,
    3_000_000_000,
    10_000_000_000,
];

/// A distribution as `shapes.toml` has it: one of the four lists.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Shape {
    keep: Keep,
    #[serde(default)]
    order: Order,
    #[serde(default)]
    sizes: Vec<u64>,
    #[serde(default)]
    gaps: Vec<u64>,
    #[serde(default)]
    kib: Vec<[u64; 3]>,
    #[serde(default)]
    bytes: Vec<[u64; 3]>,
}

impl Shape {
    fn spread(self) -> Spread {
        let in_ranges = |ends: &[u64], shares: Vec<u64>| {
            let starts = std::iter::once(0).chain(ends.to_vec());
            let ranges = starts.zip(ends.to_vec()).zip(shares);
            ranges
                .map(|((above, up_to), share)| [above, up_to, share])
                .collect::<Vec<_>>()
        };
        let kib = self.kib.into_iter();
        let buckets: Vec<Bucket> = in_ranges(&SIZE_ENDS, self.sizes)
            .into_iter()
            .chain(in_ranges(&GAP_ENDS_NS, self.gaps))
            .chain(kib.map(|[above, up_to, share]| [above * KIB, up_to * KIB, share]))
            .chain(self.bytes)
            .map(|[above, up_to, weight]| Bucket { above, up_to, weight })
            .collect();
        Spread {
            buckets: buckets.leak(),
            keep: self.keep,
            order: self.order,
        }
    }
}

static SHAPES: LazyLock<BTreeMap<String, Spread>> = LazyLock::new(|| {
    let shapes: BTreeMap<String, Shape> = table(include_str!("../../apps/shapes.toml"));
    let spreads = shapes.into_iter().map(|(name, shape)| (name, shape.spread()));
    spreads.collect()
});

impl TryFrom<String> for Spread {
    type Error = String;

    fn try_from(name: String) -> Result<Self, Self::Error> {
        let found = SHAPES.get(&name).copied();
        found.ok_or_else(|| format!("there is no shape `{name}`"))
    }
}

#[derive(Deserialize)]
struct Applications {
    application: Vec<Application>,
}

/// All applications, those recorded as calls on files first.
pub(super) static APPLICATIONS: LazyLock<Vec<Application>> = LazyLock::new(|| {
    let texts = [
        include_str!("../../apps/calls.toml"),
        include_str!("../../apps/blocks.toml"),
    ];
    let tables = texts.map(|text| table::<Applications>(text).application);
    tables.into_iter().flatten().collect()
});

fn table<T: for<'de> Deserialize<'de>>(text: &str) -> T {
    toml::from_str(text).expect("the tables are part of the program")
}

/// A text that is kept for the life of the process, as the tables are.
pub(super) fn kept_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<&'static str, D::Error> {
    String::deserialize(deserializer).map(|text| &*text.leak())
}

/// A list that is kept for the life of the process.
pub(super) fn kept_list<'de, T, D>(deserializer: D) -> Result<&'static [T], D::Error>
where
    T: Deserialize<'de> + 'static,
    D: Deserializer<'de>,
{
    Vec::deserialize(deserializer).map(|list| &*list.leak())
}
