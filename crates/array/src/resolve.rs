//! Which blocks are a virtual LEB after a power cut: the newest generation that is complete on all members.
//!
//! Every block of a virtual LEB carries the generation that it was mapped or changed with. Three things can have been
//! under way when power went:
//! - a map (before a first write): the new generation is on some members only, and is dropped;
//! - a change: the new generation is on some members only, or torn on one, and is dropped; the old one is still on all, since
//!   nobody lets it go before the new one is on all;
//! - an unmap: the generation is on some members only, and is dropped: the LEB is not mapped.
//!
//! In all three it is the newest complete one, or none. What is dropped is erased later; should it come back after another
//! cut, it is incomplete still, and its number is never given to another.

use media::{Leb, Nand, NandError};
use ubi::{AttachError, Candidate, Scanned, VolumeId};

/// What was decided about the LEBs of an array.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resolution {
    /// The highest generation on any block, also on dropped ones.
    pub last_generation: u64,
    /// LEBs of which a newer generation was dropped because it was not complete.
    pub rolled_back: u32,
    /// LEBs that are not mapped because no generation was complete.
    pub forgotten: u32,
}

/// Decides for every LEB, and has the members choose the same. Nothing is written. Place `i` of `volumes` is the number of the
/// volume of member `i`.
pub(crate) fn resolve<N: Nand>(
    members: &mut [Scanned<N>],
    volumes: &[VolumeId],
    lebs: u32,
) -> Result<Resolution, AttachError> {
    let (last_generation, unsettled) = look_over(members, volumes, lebs);
    let mut resolution = Resolution {
        last_generation,
        ..Resolution::default()
    };
    for leb in unsettled {
        let groups: Vec<Vec<Candidate>> = members
            .iter()
            .zip(volumes)
            .map(|(member, volume)| member.candidates(*volume, leb))
            .collect();
        let newest = newest_of(&groups).unwrap_or(0);
        match newest_complete(members, &groups)? {
            Some((generation, pebs)) => {
                resolution.rolled_back += u32::from(generation < newest);
                for ((member, volume), peb) in members.iter_mut().zip(volumes).zip(pebs) {
                    member.choose(*volume, leb, peb)?;
                }
            }
            None => {
                resolution.forgotten += 1;
                for ((member, volume), group) in members.iter_mut().zip(volumes).zip(&groups) {
                    if !group.is_empty() {
                        member.forget(*volume, leb);
                    }
                }
            }
        }
    }
    Ok(resolution)
}

/// The highest generation of all, and the LEBs that something was under way with. Only those are remembered: of all others, which
/// are as many as there are blocks, one is looked at a time.
fn look_over<N: Nand>(members: &[Scanned<N>], volumes: &[VolumeId], lebs: u32) -> (u64, Vec<Leb>) {
    let mut of_members: Vec<_> = members
        .iter()
        .zip(volumes)
        .map(|(member, volume)| member.lebs(*volume).peekable())
        .collect();
    let (mut last_generation, mut unsettled) = (0, Vec::new());
    for leb in (0..lebs).map(Leb) {
        let groups: Vec<Vec<Candidate>> = of_members
            .iter_mut()
            .map(|lebs| lebs.next_if(|(next, _)| *next == leb))
            .map(|found| found.map(|(_, group)| group).unwrap_or_default())
            .collect();
        let Some(newest) = newest_of(&groups) else {
            continue;
        };
        last_generation = last_generation.max(newest);
        if !is_settled(&groups) {
            unsettled.push(leb);
        }
    }
    (last_generation, unsettled)
}

fn newest_of(groups: &[Vec<Candidate>]) -> Option<u64> {
    groups
        .iter()
        .flatten()
        .map(|candidate| candidate.generation)
        .max()
}

/// Whether every member has one block for the LEB and all are of one generation: nothing was under way.
fn is_settled(groups: &[Vec<Candidate>]) -> bool {
    let first = groups
        .first()
        .and_then(|group| group.first())
        .map(|candidate| candidate.generation);
    groups
        .iter()
        .all(|group| group.len() == 1 && group.first().map(|one| one.generation) == first)
}

/// The newest generation of which every member has a whole block, and those blocks.
fn newest_complete<N: Nand>(
    members: &mut [Scanned<N>],
    groups: &[Vec<Candidate>],
) -> Result<Option<(u64, Vec<media::Peb>)>, NandError> {
    let mut generations: Vec<u64> = groups
        .iter()
        .flatten()
        .map(|candidate| candidate.generation)
        .collect();
    generations.sort_unstable_by(|a, b| b.cmp(a));
    generations.dedup();
    for generation in generations {
        let mut pebs = Vec::with_capacity(groups.len());
        for (member, group) in members.iter_mut().zip(groups) {
            let Some(peb) = whole_of(member, group, generation)? else {
                break;
            };
            pebs.push(peb);
        }
        if pebs.len() == groups.len() {
            return Ok(Some((generation, pebs)));
        }
    }
    Ok(None)
}

/// The latest whole block of a generation: wear levelling copies blocks, and a copy may be torn.
fn whole_of<N: Nand>(
    member: &mut Scanned<N>,
    group: &[Candidate],
    generation: u64,
) -> Result<Option<media::Peb>, NandError> {
    for candidate in group
        .iter()
        .filter(|candidate| candidate.generation == generation)
    {
        if member.is_whole(candidate)? {
            return Ok(Some(candidate.peb));
        }
    }
    Ok(None)
}
