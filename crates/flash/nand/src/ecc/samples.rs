//! Programmed places of a dump, for trials: a few windows of it in memory.

use std::io;
use std::ops::Range;

use super::source::Source;

/// Spots looked for.
const SPOTS_MAX: usize = 48;
/// Enough of them, so that the dump is not searched from end to end.
const SPOTS_ENOUGH: usize = 16;
const PROBES: u64 = 4096;
const PROBE_BYTES: usize = 512;
/// Bytes of a probe that are not 0xFF, at least.
const WRITTEN_BYTES_MIN: usize = 48;
/// Distance of spots in a search from end to end.
const DISTANCE: u64 = 64 << 10;
/// Bytes kept on both sides of a spot: more than a raw page of any known size.
const WINDOW_BYTES: u64 = 20 << 10;
const SCAN_BYTES: u64 = 1 << 20;
/// 2^64 divided by the golden ratio: its multiples are spread evenly whatever their number.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// Programmed spots and the bytes around them.
#[derive(Debug)]
pub(super) struct Samples {
    start: u64,
    end: u64,
    /// Spots in the order in which they were found: an even spread.
    spots: Vec<u64>,
    windows: Vec<(u64, Vec<u8>)>,
}

impl Samples {
    pub(super) fn take(source: &(impl Source + ?Sized), range: Range<u64>) -> io::Result<Self> {
        let mut spots = probed(source, &range)?;
        if spots.len() < SPOTS_ENOUGH {
            spots = scanned(source, &range)?;
        }
        let mut ranges: Vec<Range<u64>> = spots
            .iter()
            .map(|spot| {
                spot.saturating_sub(WINDOW_BYTES).max(range.start)..(spot + WINDOW_BYTES).min(range.end)
            })
            .collect();
        ranges.sort_by_key(|range| range.start);
        let mut merged: Vec<Range<u64>> = Vec::new();
        for range in ranges {
            match merged.last_mut() {
                Some(last) if last.end >= range.start => last.end = last.end.max(range.end),
                _ => merged.push(range),
            }
        }
        let mut windows = Vec::with_capacity(merged.len());
        for range in merged {
            let mut bytes = vec![0; usize::try_from(range.end - range.start).unwrap_or(usize::MAX)];
            source.read_at(range.start, &mut bytes)?;
            windows.push((range.start, bytes));
        }
        Ok(Self {
            start: range.start,
            end: range.end,
            spots,
            windows,
        })
    }

    /// Number of spots.
    pub(super) fn len(&self) -> usize {
        self.spots.len()
    }

    /// The raw pages of a size that contain spots, each once.
    pub(super) fn pages(&self, raw_bytes: u32) -> Vec<&[u8]> {
        let raw = u64::from(raw_bytes);
        let mut starts: Vec<u64> = Vec::new();
        for spot in &self.spots {
            let start = self.start + (spot - self.start) / raw * raw;
            if start + raw <= self.end && !starts.contains(&start) {
                starts.push(start);
            }
        }
        starts
            .into_iter()
            .filter_map(|start| self.bytes(start, raw_bytes))
            .collect()
    }

    fn bytes(&self, start: u64, bytes: u32) -> Option<&[u8]> {
        let (first, window) = self.windows.iter().rev().find(|(first, _)| *first <= start)?;
        let at = usize::try_from(start - first).ok()?;
        window.get(at..at.checked_add(media::index(bytes))?)
    }
}

fn is_written(bytes: &[u8]) -> bool {
    let first = bytes.first().copied().unwrap_or(0xFF);
    let is_constant = bytes.iter().all(|byte| *byte == first);
    !is_constant && bytes.iter().filter(|byte| **byte != 0xFF).count() >= WRITTEN_BYTES_MIN
}

fn probed(source: &(impl Source + ?Sized), range: &Range<u64>) -> io::Result<Vec<u64>> {
    let mut spots = Vec::new();
    let mut probe = [0; PROBE_BYTES];
    let length = range.end.saturating_sub(range.start);
    let Some(span) = length.checked_sub(u64::try_from(PROBE_BYTES).unwrap_or(0)) else {
        return Ok(spots);
    };
    for number in 0..PROBES.min(length / 512) {
        let fraction = number.wrapping_mul(GOLDEN);
        let offset = u64::try_from((u128::from(fraction) * u128::from(span)) >> 64).unwrap_or(0);
        source.read_at(range.start + offset, &mut probe)?;
        if is_written(&probe) {
            spots.push(range.start + offset);
            if spots.len() == SPOTS_MAX {
                break;
            }
        }
    }
    Ok(spots)
}

/// From end to end, for dumps that are nearly empty.
fn scanned(source: &(impl Source + ?Sized), range: &Range<u64>) -> io::Result<Vec<u64>> {
    let mut spots: Vec<u64> = Vec::new();
    let mut at = range.start;
    let distance = DISTANCE.min((range.end - range.start) / 256);
    let mut buffer = Vec::new();
    while at < range.end {
        let bytes = SCAN_BYTES.min(range.end - at);
        buffer.resize(usize::try_from(bytes).unwrap_or(usize::MAX), 0);
        source.read_at(at, &mut buffer)?;
        for (number, part) in (0..).zip(buffer.chunks(PROBE_BYTES)) {
            let spot = at + number * 512;
            let is_apart = spots.last().is_none_or(|last| spot >= last + distance);
            if is_apart && is_written(part) {
                spots.push(spot);
                if spots.len() == SPOTS_MAX {
                    return Ok(spots);
                }
            }
        }
        at += bytes;
    }
    Ok(spots)
}
