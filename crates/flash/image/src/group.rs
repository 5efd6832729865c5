//! Groups of EC headers: by image sequence, by the offsets in them, and by their distance. `partition` makes partitions of
//! them.

use std::collections::{BTreeMap, HashMap};

use ubi::format::EcHeader;

use crate::finding::{Finding, What};
use crate::scan::Hit;
use crate::shape::{Hints, candidates};

/// EC headers that lie a whole number of blocks apart.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub sequence: u32,
    pub header: EcHeader,
    /// Distance between blocks, or a multiple of it, bytes.
    pub stride: u32,
    /// Ascending offsets.
    pub at: Vec<u64>,
}

/// Headers in a row from which their distance counts as the size of a block: those of a volume table and one LEB.
const ROW: usize = 3;

/// Sorts groups by their claims on blocks, strongest first: groups whose blocks have the size that was given; then those
/// in a row, by the bytes that they cover; then the others, whose distance is mostly not the size of a block, by their
/// number of headers.
pub(crate) fn sort_by_claim(groups: &mut [Group], hints: &Hints) {
    groups.sort_by_cached_key(|group| {
        let fits = hints.block_bytes.is_none_or(|given| {
            let shapes = candidates(group.stride, &group.header, hints);
            shapes.iter().any(|shape| shape.block_bytes == given)
        });
        let headers = u64::try_from(group.at.len()).unwrap_or(u64::MAX);
        let ends = group.at.first().zip(group.at.last());
        let places = ends.map_or(0, |(first, last)| {
            (last - first) / u64::from(group.stride.max(1)) + 1
        });
        let is_row = group.at.len() >= ROW && headers.saturating_mul(2) >= places;
        let claim = match is_row {
            true => headers.saturating_sub(1).saturating_mul(group.stride.into()),
            false => headers,
        };
        let first = group.at.first().copied();
        (std::cmp::Reverse((fits, is_row, claim)), first)
    });
}

/// The fields that the EC headers of a partition share.
type Key = (u32, u32, u32);

/// The distance between the headers of a key.
struct Known<'a> {
    key: Key,
    stride: u32,
    at: &'a [u64],
}

/// Keys with the most headers whose distance other keys may take over. Bounds the time on hostile dumps.
const TAKEN_FROM_MAX: usize = 64;

impl Known<'_> {
    fn offsets(&self) -> (u32, u32) {
        (self.key.1, self.key.2)
    }

    /// Whether this key has a few of the blocks of a partition whose other blocks have `other`: several of those blocks
    /// apart, and in a row with them. The headers of an image inside of a volume are in no row with those of its blocks,
    /// because a LEB is no whole number of blocks.
    fn is_among(&self, other: &Known<'_>) -> bool {
        let is_finer = self.offsets() == other.offsets()
            && other.at.len() > self.at.len()
            && self.stride.is_multiple_of(other.stride);
        let Some((first, last)) = self.at.first().zip(self.at.last()).filter(|_| is_finer) else {
            return false;
        };
        let inside = other.at.partition_point(|at| at < first)..other.at.partition_point(|at| at < last);
        let near = match inside.is_empty() {
            true => other.at,
            false => &other.at[inside],
        };
        let stride = u64::from(other.stride);
        let in_row = near.iter().filter(|at| *at % stride == first % stride).count();
        in_row * 4 >= near.len() * 3
    }
}

/// Groups headers by their fields and places.
pub(crate) fn groups(hits: &[Hit], hints: &Hints, base: u64, findings: &mut Vec<Finding>) -> Vec<Group> {
    let mut by_key: BTreeMap<Key, (EcHeader, Vec<u64>)> = BTreeMap::new();
    for hit in hits {
        let header = hit.header;
        let key = (
            header.image_sequence,
            header.vid_header_offset,
            header.data_offset,
        );
        by_key.entry(key).or_insert((header, Vec::new())).1.push(hit.at);
    }
    let mut known: Vec<Known<'_>> = Vec::new();
    for (key, (header, at)) in &by_key {
        if let Some(stride) = hints.stride(header).or_else(|| distance(at, header.data_offset)) {
            known.push(Known {
                key: *key,
                stride,
                at,
            });
        }
    }
    let own: HashMap<Key, usize> = known.iter().map(|known| known.key).zip(0..).collect();
    let mut most: Vec<&Known<'_>> = known.iter().collect();
    most.sort_by_key(|known| std::cmp::Reverse(known.at.len()));
    // Too few headers of their own: the distance of the others, those with the same offsets first.
    let mut of_offsets: HashMap<(u32, u32), u32> = HashMap::new();
    for known in &most {
        of_offsets.entry(known.offsets()).or_insert(known.stride);
    }
    let distance_of_others = |key: &Key| {
        let alike = of_offsets.get(&(key.1, key.2)).copied();
        alike.or_else(|| most.first().map(|known| known.stride))
    };
    let mut groups = Vec::new();
    for (key, (header, at)) in &by_key {
        let own = own.get(key).map(|place| &known[*place]);
        // A few blocks among those of another partition lie several blocks apart.
        let finer = own.and_then(|own| {
            let mut others = most.iter().take(TAKEN_FROM_MAX);
            others.find(|other| own.is_among(other))
        });
        let own = finer.copied().or(own).map(|known| known.stride);
        let Some(stride) = own.or_else(|| distance_of_others(key)) else {
            let what = What::UnknownDistance { headers: at.len() };
            findings.push(Finding::new(at.first().map(|at| base + at), what));
            continue;
        };
        let mut phases: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for at in at {
            phases.entry(at % u64::from(stride)).or_default().push(*at);
        }
        groups.extend(phases.into_values().map(|at| Group {
            sequence: key.0,
            header: *header,
            stride,
            at,
        }));
    }
    groups
}

/// The distance between blocks: the greatest common divisor of the frequent distances between headers. Rare ones may be
/// those of other partitions with the same fields.
fn distance(at: &[u64], data_offset: u32) -> Option<u32> {
    let mut counts: BTreeMap<u64, usize> = BTreeMap::new();
    for pair in at.windows(2) {
        *counts.entry(pair[1] - pair[0]).or_default() += 1;
    }
    let largest = counts.values().max().copied()?;
    let enough = (largest / 8).max(if largest > 1 { 2 } else { 1 });
    let frequent = || {
        let all = counts.iter().filter(|(_, count)| **count >= enough);
        all.map(|(distance, _)| *distance)
    };
    let is_possible = |distance: &u64| *distance > u64::from(data_offset);
    let common = frequent().reduce(greatest_common_divisor).filter(is_possible);
    let usual = || {
        counts
            .iter()
            .filter(|(distance, _)| is_possible(distance))
            .max_by_key(|(_, count)| **count)
    };
    common
        .or_else(|| usual().map(|(distance, _)| *distance))
        .and_then(|distance| u32::try_from(distance).ok())
        .filter(|distance| *distance <= STRIDE_MAX)
}

/// Largest distance between blocks, bytes.
const STRIDE_MAX: u32 = 32 << 20;

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    match b {
        0 => a,
        b => greatest_common_divisor(b, a % b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distance_is_the_divisor_of_the_frequent_ones() {
        let block = 131_072;
        let regular: Vec<u64> = (0..20).map(|number| number * block + 1000).collect();
        assert_eq!(distance(&regular, 4096), u32::try_from(block).ok());
        // Every third block has no header, and a copy begins somewhere else.
        let mut gaps: Vec<u64> = (0..40)
            .filter(|number| number % 3 != 0)
            .map(|number| number * block)
            .collect();
        gaps.extend((0..5).map(|number| 100 * block + 777 + number * block));
        assert_eq!(distance(&gaps, 4096), u32::try_from(block).ok());
        assert_eq!(distance(&[5, 5 + block], 4096), u32::try_from(block).ok());
        assert_eq!(distance(&[5], 4096), None);
        assert_eq!(distance(&[0, 64, 128, 192], 4096), None);
    }
}
