//! Ways to damage a volume.

use std::ops::Range;

use fastrand::Rng;

use super::oracle::{Damaged, Layout};
use super::volume::{LEB_BYTES, PAGE_BYTES};

/// All ways; a seed chooses one or several.
const WAYS: [&str; 15] = [
    "bits",
    "pages",
    "page-garbage",
    "lebs",
    "leb-garbage",
    "root",
    "leaves",
    "level",
    "index",
    "superblock",
    "master",
    "log",
    "lpt",
    "unreadable",
    "cut-end",
];

/// A damaged volume.
pub struct Wreck {
    pub raw: Vec<u8>,
    pub damaged: Damaged,
    pub holes: Vec<(u32, u32, u32)>,
    pub ways: Vec<&'static str>,
}

fn size(number: u32) -> usize {
    usize::try_from(number).expect("small")
}

/// Damages a volume.
pub fn wreck(good: &[u8], layout: &Layout, lpt: Range<usize>, random: &mut Rng) -> Wreck {
    let mut wreck = Wreck {
        raw: good.to_vec(),
        damaged: Damaged::default(),
        holes: Vec::new(),
        ways: Vec::new(),
    };
    for _ in 0..random.usize(1..3) {
        let way = WAYS[random.usize(..WAYS.len())];
        wreck.ways.push(way);
        wreck.apply(way, layout, &lpt, random);
    }
    wreck
}

impl Wreck {
    fn apply(&mut self, way: &str, layout: &Layout, lpt: &Range<usize>, random: &mut Rng) {
        let (leb, page) = (size(LEB_BYTES), size(PAGE_BYTES));
        let area = |name: &str| layout.areas.get(name).cloned().unwrap_or_default();
        match way {
            "bits" => {
                for _ in 0..random.usize(1..30) {
                    let node = &layout.all[random.usize(..layout.all.len())];
                    let at = random.usize(node.clone());
                    self.raw[at] ^= 1 << random.u8(..8);
                    self.damaged.0.push(at..at + 1);
                }
            }
            "pages" | "page-garbage" => {
                for _ in 0..random.usize(1..6) {
                    let node = &layout.all[random.usize(..layout.all.len())];
                    let at = node.start / page * page;
                    self.spoil(at..at + page, way == "page-garbage", random);
                }
            }
            "lebs" | "leb-garbage" => {
                for _ in 0..random.usize(1..3) {
                    let node = &layout.all[random.usize(..layout.all.len())];
                    let at = node.start / leb * leb;
                    self.spoil(at..at + leb, way == "leb-garbage", random);
                }
            }
            "root" => self.spoil_level(layout, layout.index.keys().max().copied(), 1, random),
            "leaves" => {
                let count = random.usize(1..6);
                self.spoil_level(layout, Some(0), count, random);
            }
            "level" => {
                let levels: Vec<u16> = layout.index.keys().copied().collect();
                let level = levels[random.usize(..levels.len())];
                self.spoil_level(layout, Some(level), usize::MAX, random);
            }
            "index" => {
                for level in layout.index.keys() {
                    self.spoil_level(layout, Some(*level), usize::MAX, random);
                }
            }
            "lpt" => self.spoil(lpt.clone(), true, random),
            "unreadable" => {
                for _ in 0..random.usize(1..5) {
                    let node = &layout.all[random.usize(..layout.all.len())];
                    let at = node.start / page * page;
                    let place = |number: usize| u32::try_from(number).expect("small");
                    self.holes.push((place(at / leb), place(at % leb), PAGE_BYTES));
                    self.damaged.0.push(at..at + page);
                }
            }
            "cut-end" => {
                let at = self.raw.len() / leb * random.usize(50..100) / 100 * leb;
                let end = self.raw.len();
                self.spoil(at..end, false, random);
            }
            area_name => {
                for range in area(area_name) {
                    self.spoil(range, true, random);
                }
            }
        }
    }

    fn spoil_level(&mut self, layout: &Layout, level: Option<u16>, count: usize, random: &mut Rng) {
        let Some(nodes) = level.and_then(|level| layout.index.get(&level)) else {
            return;
        };
        let mut nodes = nodes.clone();
        random.shuffle(&mut nodes);
        for node in nodes.into_iter().take(count) {
            self.spoil(node, true, random);
        }
    }

    /// Overwrites bytes with garbage or zeros, or erases them.
    fn spoil(&mut self, range: Range<usize>, is_garbage: bool, random: &mut Rng) {
        let fill = if random.bool() { 0 } else { 0xFF };
        for byte in &mut self.raw[range.clone()] {
            *byte = if is_garbage { random.u8(..) } else { fill };
        }
        self.damaged.0.push(range);
    }
}
