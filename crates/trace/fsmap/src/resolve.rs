//! Resolves claims on byte ranges, in any order, to one sorted table without overlaps.
//!
//! If two claims overlap, the one with the higher [`Rank`] wins; among equals the first owner does. Losing claims
//! are kept in a second list, so that a lookup can name all owners of shared blocks. Work is O(n log n) in the number
//! of claims, and the table has at most twice as many entries.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::block_type::BlockType;
use crate::finding::{FindingKind, Findings, Place};

/// Trust in a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    /// Fills unclaimed space: free, or unknown.
    Gap,
    /// Deleted, or possibly out of date: any other claim is better.
    Stale,
    /// Read from a structure that failed a check.
    Doubtful,
    /// Read from a structure without problems.
    Trusted,
    /// Follows directly from the layout.
    Layout,
}

/// State of the content of a file's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Written data.
    Written,
    /// Reserved, and read as zeros.
    Unwritten,
    /// Compressed or encrypted by the file system, or in a tail: lengths on the medium and in the file differ.
    Encoded,
}

/// No file.
pub(crate) const NO_FILE: u32 = u32::MAX;

/// A range and its owner.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    /// First byte.
    pub start: u64,
    /// Length in bytes; never 0.
    pub length: u64,
    /// Offset of the range in the file.
    pub file_offset: u64,
    /// Index of the file, or [`NO_FILE`].
    pub file: u32,
    pub kind: BlockType,
    pub content: Content,
    pub rank: Rank,
    /// Other owners are legitimate.
    pub shared: bool,
}

impl Claim {
    pub(crate) fn end(&self) -> u64 {
        self.start.saturating_add(self.length)
    }

    /// A range that belongs to no file.
    pub(crate) fn area(start: u64, length: u64, kind: BlockType, rank: Rank) -> Self {
        Self {
            start,
            length,
            file_offset: 0,
            file: NO_FILE,
            kind,
            content: Content::Written,
            rank,
            shared: false,
        }
    }

    /// The part of it between two bytes inside it.
    fn cut(&self, start: u64, end: u64) -> Self {
        Self {
            start,
            length: end - start,
            file_offset: self.file_offset.saturating_add(start - self.start),
            ..*self
        }
    }

    /// Whether `next` continues this one, in the file and on the medium.
    fn continued_by(&self, next: &Self) -> bool {
        self.end() == next.start
            && (self.file, self.kind, self.content) == (next.file, next.kind, next.content)
            && (self.rank, self.shared) == (next.rank, next.shared)
            && (self.file == NO_FILE || self.file_offset.saturating_add(self.length) == next.file_offset)
    }
}

/// Appends a claim, or extends the last one if the claim continues it.
pub(crate) fn push_joined(table: &mut Vec<Claim>, claim: Claim) {
    if claim.length == 0 {
        return;
    }
    match table.last_mut() {
        Some(last) if last.continued_by(&claim) => last.length += claim.length,
        _ => table.push(claim),
    }
}

/// Resolved claims.
#[derive(Debug, Default)]
pub(crate) struct Resolved {
    /// Sorted, without overlaps.
    pub owners: Vec<Claim>,
    /// Claims that lost a part, sorted by their start.
    pub others: Vec<Claim>,
    /// For each of `others`, the largest end up to it.
    pub others_reach: Vec<u64>,
}

/// Resolves claims. `name` formats an owner for findings.
pub(crate) fn resolve(
    mut claims: Vec<Claim>,
    findings: &mut Findings,
    name: impl Fn(&Claim) -> String,
) -> Resolved {
    claims.retain(|claim| claim.length > 0 && claim.start.checked_add(claim.length).is_some());
    claims.sort_unstable_by_key(|claim| {
        (
            claim.start,
            Reverse(claim.rank),
            claim.file,
            claim.file_offset,
            claim.length,
        )
    });
    let mut owners: Vec<Claim> = Vec::with_capacity(claims.len());
    let mut lost = vec![false; claims.len()];
    let mut live: BinaryHeap<(Rank, Reverse<usize>)> = BinaryHeap::new();
    let (mut position, mut next) = (0, 0);
    loop {
        while live
            .peek()
            .is_some_and(|(_, Reverse(top))| claims[*top].end() <= position)
        {
            live.pop();
        }
        if live.is_empty() {
            match claims.get(next) {
                None => break,
                Some(claim) => position = claim.start,
            }
        }
        while let Some(claim) = claims.get(next).filter(|claim| claim.start == position) {
            if let Some((rank, Reverse(top))) = live.peek() {
                let loser = if claim.rank > *rank { *top } else { next };
                // Claims that only fill gaps can't lose.
                if !lost[loser] && claims[loser].rank > Rank::Stale {
                    lost[loser] = true;
                    report_overlap(&claims[*top], claim, findings, &name);
                }
            }
            live.push((claim.rank, Reverse(next)));
            next += 1;
        }
        let Some((_, Reverse(top))) = live.peek() else {
            break;
        };
        let top = &claims[*top];
        let end = claims
            .get(next)
            .map_or(top.end(), |claim| claim.start.min(top.end()));
        push_joined(&mut owners, top.cut(position, end));
        position = end;
    }
    let others: Vec<Claim> = claims
        .iter()
        .zip(&lost)
        .filter_map(|(claim, lost)| lost.then_some(*claim))
        .collect();
    let others_reach = others
        .iter()
        .scan(0, |reach: &mut u64, claim| {
            *reach = (*reach).max(claim.end());
            Some(*reach)
        })
        .collect();
    Resolved {
        owners,
        others,
        others_reach,
    }
}

fn report_overlap(first: &Claim, second: &Claim, findings: &mut Findings, name: &impl Fn(&Claim) -> String) {
    let right = (first.shared && second.shared) || first.rank <= Rank::Stale || second.rank <= Rank::Stale;
    if !right {
        findings.add(
            FindingKind::CrossLink,
            Place::Byte(second.start),
            "one owner",
            format!("{} and {}", name(first), name(second)),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(start: u64, length: u64, file: u32, rank: Rank) -> Claim {
        Claim {
            file,
            ..Claim::area(start, length, BlockType::Data, rank)
        }
    }

    fn shown(resolved: &Resolved) -> Vec<(u64, u64, u32, u64)> {
        resolved
            .owners
            .iter()
            .map(|claim| (claim.start, claim.length, claim.file, claim.file_offset))
            .collect()
    }

    #[test]
    fn the_higher_rank_wins_and_the_loser_keeps_the_rest() {
        let mut findings = Findings::default();
        let claims = vec![claim(0, 100, 1, Rank::Doubtful), claim(40, 20, 2, Rank::Trusted)];
        let resolved = resolve(claims, &mut findings, |claim| claim.file.to_string());
        assert_eq!(shown(&resolved), [(0, 40, 1, 0), (40, 20, 2, 0), (60, 40, 1, 60)]);
        assert_eq!(resolved.others.len(), 1);
        assert_eq!(findings.total(), 1);
    }

    #[test]
    fn neighbours_that_go_on_become_one() {
        let mut second = claim(10, 10, 1, Rank::Trusted);
        second.file_offset = 10;
        let claims = vec![second, claim(0, 10, 1, Rank::Trusted)];
        let resolved = resolve(claims, &mut Findings::default(), |_| String::new());
        assert_eq!(shown(&resolved), [(0, 20, 1, 0)]);
    }

    #[test]
    fn any_claims_give_what_asking_each_byte_gives() {
        for seed in 0..300 {
            let mut random = fastrand::Rng::with_seed(seed);
            let ranks = [Rank::Stale, Rank::Doubtful, Rank::Trusted, Rank::Layout];
            let claims: Vec<Claim> = (0..random.u32(1..12))
                .map(|file| {
                    claim(
                        random.u64(0..50),
                        random.u64(1..20),
                        file,
                        ranks[random.usize(0..4)],
                    )
                })
                .collect();
            let resolved = resolve(claims.clone(), &mut Findings::default(), |_| String::new());
            for byte in 0..80 {
                let covers = |claim: &&Claim| claim.start <= byte && byte < claim.end();
                let best = claims.iter().filter(covers).map(|claim| claim.rank).max();
                let found: Vec<&Claim> = resolved.owners.iter().filter(covers).collect();
                assert!(found.len() <= 1, "seed {seed}: byte {byte} has two owners");
                assert_eq!(
                    found.first().map(|claim| claim.rank),
                    best,
                    "seed {seed}: byte {byte}"
                );
                if let Some(owner) = found.first() {
                    let claim = &claims[usize::try_from(owner.file).expect("small")];
                    assert_eq!(owner.file_offset - (owner.start - claim.start), 0, "seed {seed}");
                }
            }
        }
    }
}
