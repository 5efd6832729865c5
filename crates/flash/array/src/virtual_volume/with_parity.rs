//! Reads of an array with parity.
//!
//! Pages of members that are present are read directly. If a member is absent or lost its share, all other pages of the
//! row are read, each once, and the missing page is computed from them. The same happens afterwards if a page that was
//! read directly turns out to be uncorrectable. If two pages of a row are unreadable, both return an error; the others
//! are returned as read.
//!
//! An erased page in a written row is checked against the parity, since a block of an older copy of a member ends too
//! early.

use std::collections::BTreeMap;

use media::{Leb, index};
use ubi::{MemberVolume, ReadPart, VolumeError};

use super::VirtualVolume;
use crate::rotation::{DataPart, Rotation, missing_page};

/// A range of bytes on one member.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    member: usize,
    leb: Leb,
    offset: u32,
    len: usize,
}

/// Bytes of a member, and whether they are right.
#[derive(Debug)]
struct Bytes {
    bytes: Vec<u8>,
    is_correct: bool,
}

/// The pages of a row, one per member. A single unreadable page has been computed from the others.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) pages: Vec<Vec<u8>>,
    /// Members whose pages could neither be read nor computed from the others.
    pub(super) lost: Vec<usize>,
    /// Members whose pages could not be read.
    pub(super) unreadable: Vec<usize>,
}

impl Row {
    /// Whether the parity is consistent: the pages of a consistent row combine to an erased page.
    pub(super) fn fits(&self) -> bool {
        let bytes = self.pages.first().map_or(0, Vec::len);
        is_erased(&missing_page(self.pages.iter().map(|page| &page[..]), bytes))
    }

    /// Whether nothing was written to the row.
    pub(super) fn is_erased(&self) -> bool {
        self.unreadable.is_empty() && self.pages.iter().all(|page| is_erased(page))
    }

    /// If the parity is inconsistent, an erased page of the row was once written, and its block is an older copy.
    /// Computes the page from the others as if it were unreadable; if there are several such pages, all are lost.
    pub(super) fn distrust_erased_pages(&mut self) {
        let erased = || (0..self.pages.len()).filter(|member| is_erased(&self.pages[*member]));
        if !self.unreadable.is_empty() || erased().next().is_none() || self.fits() {
            return;
        }
        self.unreadable = erased().collect();
        match self.unreadable[..] {
            [one] => {
                let bytes = self.pages[one].len();
                let others = self.pages.iter().enumerate().filter(|(member, _)| *member != one);
                self.pages[one] = missing_page(others.map(|(_, page)| &page[..]), bytes);
            }
            _ => self.lost.clone_from(&self.unreadable),
        }
    }
}

fn is_erased(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0xFF)
}

impl<M: MemberVolume + 'static> VirtualVolume<M> {
    pub(super) fn read_with_parity(
        &self,
        rotation: &Rotation,
        parts: &mut [ReadPart<'_>],
    ) -> Result<(), VolumeError> {
        for part in &*parts {
            self.geometry
                .check_range(&self.name, part.leb, part.offset, part.out.len())?;
        }
        let pieces: Vec<(usize, DataPart)> = parts
            .iter()
            .enumerate()
            .flat_map(|(place, part)| {
                let cut = rotation.parts(part.offset, part.out.len());
                cut.map(move |piece| (place, piece))
            })
            .collect();
        let missing: Vec<Vec<usize>> = parts.iter().map(|part| self.missing_of(part.leb)).collect();
        let key = |place: usize, piece: &DataPart| (parts[place].leb, piece.row);
        // Rows of which a missing page is requested are read whole.
        let mut rows: BTreeMap<(Leb, u32), Option<Row>> = pieces
            .iter()
            .filter(|(place, piece)| missing[*place].contains(&piece.member))
            .map(|(place, piece)| (key(*place, piece), None))
            .collect();
        let direct: Vec<(usize, DataPart)> = pieces
            .iter()
            .filter(|(place, piece)| !rows.contains_key(&key(*place, piece)))
            .copied()
            .collect();
        let wanted = direct.iter().map(|(place, piece)| Wanted {
            member: piece.member,
            leb: parts[*place].leb,
            offset: piece.row * rotation.page_bytes() + piece.within,
            len: piece.len,
        });
        let found = self.read_rows_and(rotation, &mut rows, wanted.collect())?;
        // The rows of pages that turned out to be unreadable, or erased.
        let mut later: BTreeMap<(Leb, u32), Option<Row>> = BTreeMap::new();
        let mut erased: BTreeMap<(Leb, u32), usize> = BTreeMap::new();
        for ((place, piece), found) in direct.iter().zip(found) {
            let row = (parts[*place].leb, piece.row);
            if !found.is_correct {
                later.insert(row, None);
                continue;
            }
            if is_erased(&found.bytes) {
                *erased.entry(row).or_default() += piece.len;
            }
            parts[*place].out[piece.at..piece.at + piece.len].copy_from_slice(&found.bytes);
        }
        // A row whose data is all erased was never written.
        let partly = erased
            .into_iter()
            .filter(|(_, bytes)| *bytes < index(rotation.row_bytes()));
        later.extend(partly.map(|(row, _)| (row, None)));
        if !later.is_empty() {
            self.read_rows_and(rotation, &mut later, Vec::new())?;
            later.values_mut().flatten().for_each(Row::distrust_erased_pages);
            rows.append(&mut later);
        }
        let mut uncorrectable = None;
        for (place, piece) in &pieces {
            let part = &mut parts[*place];
            let Some(Some(row)) = rows.get(&(part.leb, piece.row)) else {
                continue;
            };
            let within = index(piece.within);
            let bytes = &row.pages[piece.member][within..within + piece.len];
            part.out[piece.at..piece.at + piece.len].copy_from_slice(bytes);
            if row.lost.contains(&piece.member) {
                uncorrectable.get_or_insert_with(|| self.lost(part));
            }
        }
        uncorrectable.map_or(Ok(()), Err)
    }

    /// Members that are not read for a LEB: absent, or their share is lost.
    pub(super) fn missing_of(&self, leb: Leb) -> Vec<usize> {
        let absent = (0..self.members.len()).filter(|member| self.members.is_absent(*member));
        self.lost_of(leb).into_iter().chain(absent).collect()
    }

    /// All pages of a row.
    pub(super) fn read_row(&self, rotation: &Rotation, leb: Leb, row: u32) -> Result<Row, VolumeError> {
        let mut rows = BTreeMap::from([((leb, row), None)]);
        self.read_rows_and(rotation, &mut rows, Vec::new())?;
        let read = rows.into_values().next().flatten();
        Ok(read.expect("a row that is asked for is read"))
    }

    /// Reads whole rows and the `wanted` ranges in parallel.
    fn read_rows_and(
        &self,
        rotation: &Rotation,
        rows: &mut BTreeMap<(Leb, u32), Option<Row>>,
        mut wanted: Vec<Wanted>,
    ) -> Result<Vec<Bytes>, VolumeError> {
        let others = wanted.len();
        for (leb, row) in rows.keys() {
            let missing = self.missing_of(*leb);
            let there = (0..self.members.len()).filter(|member| !missing.contains(member));
            wanted.extend(there.map(|member| Wanted {
                member,
                leb: *leb,
                offset: row * rotation.page_bytes(),
                len: index(rotation.page_bytes()),
            }));
        }
        let mut found = self.read_ranges(&wanted)?;
        let mut of_rows = wanted[others..].iter().zip(found.drain(others..)).peekable();
        for ((leb, number), row) in rows.iter_mut() {
            let mut pages: Vec<Option<Bytes>> = (0..self.members.len()).map(|_| None).collect();
            let offset = number * rotation.page_bytes();
            while let Some((wanted, bytes)) =
                of_rows.next_if(|(wanted, _)| (wanted.leb, wanted.offset) == (*leb, offset))
            {
                pages[wanted.member] = Some(bytes);
            }
            *row = Some(whole_row(pages, index(rotation.page_bytes())));
        }
        drop(of_rows);
        Ok(found)
    }

    /// Reads ranges of members in parallel. A device error counts as unreadable bytes, unless power is off.
    fn read_ranges(&self, wanted: &[Wanted]) -> Result<Vec<Bytes>, VolumeError> {
        let mut inputs: Vec<(usize, Vec<Wanted>)> = (0..self.members.len())
            .map(|member| (member, Vec::new()))
            .collect();
        let mut places: Vec<Vec<usize>> = vec![Vec::new(); self.members.len()];
        for (place, one) in wanted.iter().enumerate() {
            inputs[one.member].1.push(*one);
            places[one.member].push(place);
        }
        inputs.retain(|(_, wanted)| !wanted.is_empty());
        let order: Vec<usize> = inputs.iter().map(|(member, _)| *member).collect();
        let read = self
            .members
            .together(inputs, |member, wanted: Vec<Wanted>| read_each(member, &wanted));
        let mut found: Vec<Option<Bytes>> = wanted.iter().map(|_| None).collect();
        for (member, read) in order.into_iter().zip(read) {
            for (place, bytes) in places[member].iter().zip(read?) {
                found[*place] = Some(bytes);
            }
        }
        let all = found.into_iter();
        Ok(all.map(|bytes| bytes.expect("each range was read")).collect())
    }
}

/// Reads ranges of a member in one request, or one by one if that fails.
fn read_each<M: MemberVolume + ?Sized>(member: &M, wanted: &[Wanted]) -> Result<Vec<Bytes>, VolumeError> {
    let mut buffers: Vec<Vec<u8>> = wanted.iter().map(|one| vec![0; one.len]).collect();
    let mut parts: Vec<ReadPart<'_>> = wanted
        .iter()
        .zip(&mut buffers)
        .map(|(one, out)| ReadPart {
            leb: one.leb,
            offset: one.offset,
            out,
        })
        .collect();
    let all_correct = member.read_many(&mut parts).is_ok();
    drop(parts);
    let mut read = Vec::with_capacity(wanted.len());
    for (one, mut bytes) in wanted.iter().zip(buffers) {
        let again = match all_correct {
            true => Ok(()),
            false => member.read(one.leb, one.offset, &mut bytes),
        };
        let is_correct = match again {
            Ok(()) => true,
            Err(VolumeError::Uncorrectable { .. }) => false,
            Err(error @ VolumeError::Device { .. }) if !error.is_power_cut() => false,
            Err(error) => return Err(error),
        };
        read.push(Bytes { bytes, is_correct });
    }
    Ok(read)
}

/// Assembles a row from the pages read; `None` is a page of a member that was not read.
fn whole_row(pages: Vec<Option<Bytes>>, page_bytes: usize) -> Row {
    let is_readable = |page: &Option<Bytes>| page.as_ref().is_some_and(|page| page.is_correct);
    let unreadable: Vec<usize> = (0..pages.len())
        .filter(|member| !is_readable(&pages[*member]))
        .collect();
    // Zeroes cannot be mistaken for erased flash.
    let bytes = |page: Option<Bytes>| page.map_or_else(|| vec![0; page_bytes], |page| page.bytes);
    let mut pages: Vec<Vec<u8>> = pages.into_iter().map(bytes).collect();
    let lost = match unreadable[..] {
        [] => Vec::new(),
        [one] => {
            let others = pages.iter().enumerate().filter(|(member, _)| *member != one);
            pages[one] = missing_page(others.map(|(_, page)| &page[..]), page_bytes);
            Vec::new()
        }
        _ => unreadable.clone(),
    };
    Row {
        pages,
        lost,
        unreadable,
    }
}
