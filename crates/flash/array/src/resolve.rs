//! Decides which blocks make up a virtual LEB: those of the newest generation that was in force on all members and was
//! not given up.
//!
//! Every block of a virtual LEB carries the generation of the map or change that wrote it. Members can disagree for two
//! reasons.
//!
//! **A power cut.** Generations are assigned one at a time, so at most one was being written when power went: the
//! highest of all, from a map or a change that reached only some members. It is dropped, and erased before anything
//! else is written; after a change the old generation is still on all members, since none releases it before the new
//! one is on all. Besides, each member erases blocks of unmapped LEBs and of superseded generations in its own time, so
//! any number of them may remain on some members only. An unmapped LEB is recorded beforehand in the dirty marks of all
//! members ([`crate::history`]), and a superseded generation is followed by a newer one.
//!
//! **Damage.** A member has no block of a generation that was in force, because the block's headers are unreadable, or
//! the block's data is wrong. Everything that a power cut does not explain is damage: the LEB stays mapped, its
//! remaining shares are readable, reads of the lost ones fail, and no block of it is erased. In a closed array no
//! operation was in progress, so everything missing is damage.
//!
//! In arrays of earlier versions, without dirty marks, a LEB that is missing on a member may have been unmapped, unless
//! that member has a block with an unreadable VID header in front of data, which no power cut leaves behind.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use media::{Leb, NandError, Peb};
use ubi::{AttachError, Candidate, Scanned, VolumeId};

use crate::history::{ArrayState, History};

/// The decisions about the LEBs of an array.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resolution {
    /// Whether the array was closed.
    pub state: ArrayState,
    /// Epoch: incremented by each opening for writing; 0 if the members have no dirty marks.
    pub epoch: u64,
    /// Members on which other software moved blocks since the array was closed.
    pub moved: Vec<usize>,
    /// An update was interrupted: the volume is unusable until another one completes.
    pub update_marker: bool,
    /// Members whose dirty marks are unreadable.
    pub lost_marks: Vec<usize>,
    /// The highest generation on any block, including dropped ones, and in any dirty mark.
    pub last_generation: u64,
    /// LEBs whose newest generation was dropped as incomplete.
    pub rolled_back: u32,
    /// LEBs left unmapped because no generation was complete.
    pub forgotten: u32,
    /// Shares of mapped LEBs that damage made unreadable.
    pub lost_shares: Vec<LostShare>,
    /// With parity: shares of the last generation that a power cut kept a member from writing; they can be computed
    /// from the others.
    pub unfinished: Vec<LostShare>,
    /// LEBs that are not mapped although members have blocks of them: unmapped or forgotten.
    pub(crate) given_up: Vec<Leb>,
}

/// A member's share of a LEB that is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LostShare {
    /// The LEB.
    pub leb: Leb,
    /// Place of the member.
    pub member: usize,
}

/// One member's blocks of a generation.
enum Share {
    /// An intact block.
    Whole(Peb),
    /// A block whose data does not match its header: interrupted by a power cut, or damaged.
    Torn(Peb),
    Missing,
}

impl Share {
    const fn peb(&self) -> Option<Peb> {
        match self {
            Self::Whole(peb) | Self::Torn(peb) => Some(*peb),
            Self::Missing => None,
        }
    }
}

/// Each member's block of a LEB; `None` if it was lost to damage.
type Blocks = Vec<Option<Peb>>;

/// A member whose blocks are compared with those of the others.
pub(crate) struct Member<'a> {
    /// Its place in the array.
    pub(crate) place: usize,
    pub(crate) scanned: &'a mut Scanned,
    pub(crate) volume: VolumeId,
    /// An adopted member does not vote: only blocks that match the decision count, and all others are erased before it
    /// belongs to the array again.
    pub(crate) adopted: bool,
}

/// Decides every LEB and makes the members choose accordingly. Writes nothing to flash.
pub(crate) fn resolve(
    members: &mut [Member<'_>],
    lebs: u32,
    history: &History,
    parity: Parity,
) -> Result<Resolution, AttachError> {
    let Overview {
        last_generation,
        last_of_all,
        unsettled,
        lacking,
    } = look_over(members, lebs, history, parity)?;
    let mut resolution = Resolution {
        state: history.state,
        epoch: history.epoch,
        moved: history.moved.clone(),
        lost_marks: history.lost_marks.clone(),
        last_generation: last_of_all.max(history.last_generation),
        ..Resolution::default()
    };
    let adopted = members.iter().filter(|member| member.adopted);
    resolution.lost_shares = adopted
        .flat_map(|Member { place, .. }| {
            lacking.iter().map(|leb| LostShare {
                leb: *leb,
                member: *place,
            })
        })
        .collect();
    for leb in unsettled {
        let groups: Vec<Vec<Candidate>> = members
            .iter()
            .map(|member| member.scanned.candidates(member.volume, leb))
            .collect();
        let newest = newest_of(voting(members, &groups));
        let in_force = newest_in_force(members, &groups, last_generation, leb, history, parity)?;
        let generation = in_force.as_ref().map(|(generation, _)| *generation);
        // Parity replaces the share that a power cut kept a member from writing. A row that was written behind the map
        // shows that the map was complete.
        let was_cut = match generation {
            Some(last)
                if parity == Parity::Complete && last == last_generation && last > history.complete =>
            {
                !matches!(evidence(members, &groups, last)?, Evidence::Written)
            }
            _ => false,
        };
        match generation {
            Some(generation) => resolution.rolled_back += u32::from(Some(generation) < newest),
            None => {
                let unmapped = newest.is_none_or(|newest| history.is_given_up(leb, newest));
                resolution.forgotten += u32::from(!unmapped);
                resolution.given_up.push(leb);
            }
        }
        let blocks = in_force.map_or_else(|| vec![None; groups.len()], |(_, blocks)| blocks);
        for (member, (block, group)) in members.iter_mut().zip(blocks.into_iter().zip(&groups)) {
            let Member { scanned, volume, .. } = member;
            match block {
                Some(peb) => scanned.choose(*volume, leb, peb)?,
                None if generation.is_some() => {
                    let member = member.place;
                    let shares = match was_cut {
                        true => &mut resolution.unfinished,
                        false => &mut resolution.lost_shares,
                    };
                    shares.push(LostShare { leb, member });
                    scanned.forget(*volume, leb);
                }
                None if !group.is_empty() => scanned.forget(*volume, leb),
                None => {}
            }
            let dropped = group.iter().filter(|one| match member.adopted {
                true => Some(one.peb) != block,
                false => one.generation == last_generation && Some(one.generation) != generation,
            });
            dropped.for_each(|one| member.scanned.erase_first(one));
        }
    }
    resolution.lost_shares.sort_unstable();
    Ok(resolution)
}

/// Whether a lost share can be computed from the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parity {
    /// The array has none.
    None,
    /// All members are present, so one share per LEB may be missing.
    Complete,
    /// A member is absent, and parity replaces it.
    Degraded,
}

/// The blocks of a LEB on the voting members.
fn voting<'a>(
    members: &'a [Member<'_>],
    groups: &'a [Vec<Candidate>],
) -> impl Iterator<Item = &'a Vec<Candidate>> {
    let voters = members.iter().zip(groups).filter(|(member, _)| !member.adopted);
    voters.map(|(_, group)| group)
}

/// Result of the first pass over all LEBs.
struct Overview {
    /// The highest generation on the voting members.
    last_generation: u64,
    /// The highest generation on any member.
    last_of_all: u64,
    /// LEBs that are damaged or had an operation in progress.
    unsettled: Vec<Leb>,
    /// LEBs on which the voting members agree and of which the adopted ones have no block: most LEBs during a rebuild.
    lacking: Vec<Leb>,
}

/// Finds the highest generations and the unsettled LEBs. Keeps only those in memory: there are as many settled LEBs as
/// blocks, and they are visited one at a time.
fn look_over(
    members: &mut [Member<'_>],
    lebs: u32,
    history: &History,
    parity: Parity,
) -> Result<Overview, NandError> {
    let mut of_members: Vec<_> = members
        .iter()
        .map(|member| member.scanned.lebs(member.volume).peekable())
        .collect();
    let mut overview = Overview {
        last_generation: 0,
        last_of_all: 0,
        unsettled: Vec::new(),
        lacking: Vec::new(),
    };
    for leb in (0..lebs).map(Leb) {
        let groups: Vec<Vec<Candidate>> = of_members
            .iter_mut()
            .map(|lebs| lebs.next_if(|(next, _)| *next == leb))
            .map(|found| found.map(|(_, group)| group).unwrap_or_default())
            .collect();
        let Some(newest) = newest_of(groups.iter()) else {
            continue;
        };
        overview.last_of_all = overview.last_of_all.max(newest);
        let voted = newest_of(voting(members, &groups)).unwrap_or(0);
        overview.last_generation = overview.last_generation.max(voted);
        let of_adopted = members.iter().zip(&groups).filter(|(member, _)| member.adopted);
        let of_adopted: Vec<_> = of_adopted.map(|(_, group)| group).collect();
        let lacks_all = !of_adopted.is_empty() && of_adopted.iter().all(|group| group.is_empty());
        // A share that a rebuild was writing when power went is the member's only block of that LEB.
        let is_of_rebuild = (history.state == ArrayState::Open || history.rebuild_is_open)
            && of_adopted.iter().any(|group| group.iter().any(|one| one.copied));
        if history.is_given_up(leb, newest) || is_of_rebuild {
            overview.unsettled.push(leb);
        } else if lacks_all && is_settled(voting(members, &groups)) {
            overview.lacking.push(leb);
        } else if !is_settled(groups.iter()) {
            overview.unsettled.push(leb);
        }
    }
    drop(of_members);
    if history.state == ArrayState::Open && parity != Parity::None {
        add_made_anew(members, lebs, history, &mut overview)?;
    }
    Ok(overview)
}

/// Adds the LEBs that a member has a single block of, written as a whole since the array was last closed: a lost share
/// that was made anew when power went may be torn, and there is no older block in its place.
fn add_made_anew(
    members: &mut [Member<'_>],
    lebs: u32,
    history: &History,
    overview: &mut Overview,
) -> Result<(), NandError> {
    let known: BTreeSet<Leb> = overview.unsettled.iter().copied().collect();
    let mut added = BTreeSet::new();
    for leb in (0..lebs).map(Leb).filter(|leb| !known.contains(leb)) {
        for member in &mut *members {
            let [one] = member.scanned.candidates(member.volume, leb)[..] else {
                continue;
            };
            if !one.copied {
                continue;
            }
            let closed = history.closed_at.get(&member.place);
            let written = member.scanned.sequence_number(&one)?;
            if written.is_none_or(|written| closed.is_none_or(|closed| written > *closed)) {
                added.insert(leb);
                break;
            }
        }
    }
    overview.lacking.retain(|leb| !added.contains(leb));
    overview.unsettled.extend(added);
    Ok(())
}

fn newest_of<'a>(groups: impl Iterator<Item = &'a Vec<Candidate>>) -> Option<u64> {
    groups.flatten().map(|candidate| candidate.generation).max()
}

/// Whether every member has exactly one block for the LEB, which is chosen, and all have the same generation: no
/// operation was in progress.
fn is_settled<'a>(groups: impl Iterator<Item = &'a Vec<Candidate>>) -> bool {
    let mut generation = None;
    groups.into_iter().all(|group| match &group[..] {
        [one] => one.chosen && one.generation == *generation.get_or_insert(one.generation),
        _ => false,
    })
}

/// The newest generation that was in force on all members, and its remaining blocks.
fn newest_in_force(
    members: &mut [Member<'_>],
    groups: &[Vec<Candidate>],
    last_generation: u64,
    leb: Leb,
    history: &History,
    parity: Parity,
) -> Result<Option<(u64, Blocks)>, NandError> {
    let mut generations: Vec<u64> = voting(members, groups)
        .flatten()
        .map(|candidate| candidate.generation)
        .filter(|generation| !history.is_given_up(leb, *generation))
        .collect();
    generations.sort_unstable_by_key(|generation| Reverse(*generation));
    generations.dedup();
    let mut damaged_last: Option<(u64, Blocks, bool)> = None;
    for generation in generations {
        let shares = members
            .iter_mut()
            .zip(groups)
            .map(|(member, group)| share_of(member.scanned, group, generation, parity))
            .collect::<Result<Vec<_>, _>>()?;
        let may_be_cut = generation == last_generation && generation > history.complete;
        let voters = || members.iter().zip(&shares).filter(|(member, _)| !member.adopted);
        let damaged_blocks = voters().map(|(member, share)| (member.scanned.damaged_blocks(), share));
        let explained = explanation(damaged_blocks, may_be_cut, history.state);
        let is_torn = voters().any(|(_, share)| matches!(share, Share::Torn(_)));
        let is_missing = voters().any(|(_, share)| matches!(share, Share::Missing));
        let was_erased = voters().any(|(member, share)| {
            matches!(share, Share::Missing) && member.scanned.unreadable_headers() == 0
        });
        // On an adopted member, damage cannot be distinguished from a part that was never written.
        let block = |(member, share): (&Member<'_>, &Share)| match share {
            Share::Torn(_) if member.adopted => None,
            share => share.peb(),
        };
        let blocks = members.iter().zip(&shares).map(block).collect();
        let lacking = voters().filter(|(_, share)| !matches!(share, Share::Whole(_)));
        if parity == Parity::Complete && lacking.count() <= 1 {
            return Ok(Some((generation, blocks)));
        }
        match explained {
            Explanation::Whole => return Ok(Some((generation, blocks))),
            // A member erases the old content of a LEB once the change is on all members. So if the old content is
            // missing, the last change was complete (unless one of its blocks is torn), and its missing shares are
            // damage.
            Explanation::Damage
                if was_erased && damaged_last.is_some()
                    || is_missing && damaged_last.as_ref().is_some_and(|(.., torn)| !torn) => {}
            Explanation::Damage => return Ok(Some((generation, blocks))),
            Explanation::DamageOrPower => match evidence(members, groups, generation)? {
                Evidence::Written => return Ok(Some((generation, blocks))),
                // If an older generation is in force, it was a power cut.
                Evidence::Changed => damaged_last = Some((generation, blocks, is_torn)),
                Evidence::MappedOnly => {}
            },
            Explanation::Power => {}
        }
    }
    Ok(damaged_last.map(|(generation, blocks, _)| (generation, blocks)))
}

/// Finds a member's block of a generation. Wear levelling copies blocks, so there may be several: the latest intact one
/// counts. With parity, shares are rewritten with an unchanged generation, and a torn one does not count: the erased
/// pages at its end would be read as data.
fn share_of(
    member: &mut Scanned,
    group: &[Candidate],
    generation: u64,
    parity: Parity,
) -> Result<Share, NandError> {
    let mut torn = None;
    for candidate in group
        .iter()
        .filter(|candidate| candidate.generation == generation)
    {
        if member.is_whole(candidate)? {
            return Ok(Share::Whole(candidate.peb));
        }
        if parity == Parity::None || member.was_written_whole(candidate)? {
            torn.get_or_insert(candidate.peb);
        }
    }
    Ok(torn.map_or(Share::Missing, Share::Torn))
}

/// Whether a generation was on all members, and why it is not now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Explanation {
    /// It is on all members.
    Whole,
    /// It was on all members.
    Damage,
    /// It is the last, and a power cut may have kept it from reaching all members.
    DamageOrPower,
    /// It never reached all members, or it was given up and is being erased.
    Power,
}

/// The worst explanation over all shares. A torn block of any generation other than the one in progress was once
/// intact, and a missing one once existed: where members have dirty marks, an unmapped LEB is recorded there before any
/// member erases it. Without marks, only an unreadable block shows that a share is missing rather than erased.
fn explanation<'a>(
    shares: impl Iterator<Item = (u32, &'a Share)>,
    may_be_cut: bool,
    state: ArrayState,
) -> Explanation {
    let is_told = |damaged_blocks: u32| state != ArrayState::Unmarked || damaged_blocks > 0;
    let of_share = |(damaged_blocks, share): (u32, &'a Share)| match share {
        Share::Whole(_) => Explanation::Whole,
        Share::Missing if !is_told(damaged_blocks) => Explanation::Power,
        Share::Torn(_) | Share::Missing if may_be_cut => Explanation::DamageOrPower,
        Share::Torn(_) | Share::Missing => Explanation::Damage,
    };
    shares.map(of_share).max().unwrap_or(Explanation::Whole)
}

/// Progress of the last generation, as shown by its blocks.
enum Evidence {
    /// Pages were written after a map, which happens only once the map is on all members.
    Written,
    /// A change, which may have been on some members only.
    Changed,
    /// Only headers, as an interrupted map leaves them.
    MappedOnly,
}

fn evidence(
    members: &mut [Member<'_>],
    groups: &[Vec<Candidate>],
    generation: u64,
) -> Result<Evidence, NandError> {
    let mut evidence = Evidence::MappedOnly;
    let voters = members
        .iter_mut()
        .zip(groups)
        .filter(|(member, _)| !member.adopted);
    for (member, group) in voters {
        for candidate in group.iter().filter(|one| one.generation == generation) {
            if candidate.copied {
                evidence = Evidence::Changed;
            } else if !member.scanned.is_blank(candidate)? {
                return Ok(Evidence::Written);
            }
        }
    }
    Ok(evidence)
}
