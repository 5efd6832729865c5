//! The MTD proxy middleware (seeds/001 section 3.1, figure 2): p Nand devices behind one Nand.
//!
//! A block of the proxy consists of the blocks with the same number on every member; its pages go round robin
//! ([`Stripe`]). Page and sub-page size are the members', a block has p times the pages, and the number of blocks is
//! that of the smallest member. A block is bad if it is bad on any member; marking it marks every member's.
//!
//! # Guarantees after a power cut
//! A program of several pages proceeds in windows of p pages, counted from its first page; the pages of a window are on
//! p different members. No window is begun before the previous one is complete on all members. So a cut leaves at most
//! one torn window, in which any subset of the pages may be missing. That is why [`NandGeometry::write_unit_bytes`] of
//! the proxy is p pages: recovery must expect a hole inside such a unit. The paper does not cover this.
//!
//! # Errors
//! A member's failure is reported with the proxy's block and page, and with the member's own error as the device's
//! name, so that UBI above can move the data and retire the whole block. Pages of the same window on other members may
//! be programmed.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use media::{Clock, Host, Nand, NandError, NandGeometry, Page, Peb, ReadReport, index};

use crate::error::{ProxyError, check_shapes};
use crate::executor::{Execution, Executor};
use crate::members::Members;
use crate::stripe::{MemberRange, Stripe};

/// A device that executes one operation at a time.
struct Member(Mutex<Box<dyn Nand>>);

impl Member {
    fn with_clock(device: Box<dyn Nand>) -> (Arc<Self>, Clock) {
        let clock = device.clock();
        (Arc::new(Self(Mutex::new(device))), clock)
    }

    fn device(&self) -> MutexGuard<'_, Box<dyn Nand>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Several Nands as one.
pub struct Proxy {
    name: Arc<str>,
    members: Members<Member>,
    geometry: NandGeometry,
    stripe: Stripe,
    /// First programmable offset of each block, as far as this proxy knows: members can't detect that a page of another
    /// member was skipped.
    next: Vec<u32>,
}

impl Proxy {
    /// Combines `members` into one device, in this order.
    pub fn new(members: Vec<Box<dyn Nand>>, execution: Execution) -> Result<Self, ProxyError> {
        let (name, geometry) = common_geometry(&members)?;
        let count = u32::try_from(members.len()).map_err(|_| ProxyError::NoMembers)?;
        let executor =
            Executor::new(execution, members.len()).map_err(|source| ProxyError::Threads { source })?;
        Ok(Self {
            name,
            stripe: Stripe::new(count, geometry.page_bytes()),
            next: geometry.pebs().map(|_| 0).collect(),
            members: Members::new(members.into_iter().map(Member::with_clock).collect(), executor),
            geometry,
        })
    }

    /// Converts a page of a member to the proxy's page.
    fn page_of_member(&self, member: usize, page: Page) -> Page {
        let member = u32::try_from(member).expect("members were counted in 32 bits");
        Page(page.0 * self.stripe.members() + member)
    }

    /// Converts a member's error to the proxy's terms.
    fn as_own(&self, member: usize, error: NandError) -> NandError {
        let device: Arc<str> = format!("{} (member {member})", self.name).into();
        match error {
            NandError::ProgramFailed {
                device: at,
                peb,
                page,
            } => NandError::ProgramFailed {
                device: format!("{} ({at}, {page})", self.name).into(),
                peb,
                page: self.page_of_member(member, page),
            },
            NandError::NotErased {
                peb,
                page,
                offset,
                next,
                ..
            } => {
                let (page, start) = (self.page_of_member(member, page), self.geometry.page_bytes());
                let place = |at: u32| self.page_of_member(member, Page(at / start)).0 * start + at % start;
                let next = place(next).min(self.geometry.block_bytes());
                NandError::NotErased {
                    device,
                    peb,
                    page,
                    offset: place(offset),
                    next,
                }
            }
            other => other,
        }
    }

    fn check_order(&self, peb: Peb, offset: u32) -> Result<(), NandError> {
        let next = self.next[index(peb.0)];
        if offset >= next {
            return Ok(());
        }
        let device = Arc::clone(&self.name);
        Err(NandError::NotErased {
            device,
            peb,
            page: self.geometry.page_of(offset),
            offset,
            next,
        })
    }

    fn program_window(&mut self, peb: Peb, offset: u32, data: &[u8]) -> Result<(), NandError> {
        let pieces = self.stripe.scatter(offset, data);
        let members: Vec<usize> = pieces.iter().map(|(piece, _)| piece.member).collect();
        let jobs = pieces
            .into_iter()
            .map(|(piece, bytes)| (piece.member, (piece.offset, bytes)));
        let results = self
            .members
            .together(jobs.collect(), move |member, (offset, bytes): (u32, Vec<u8>)| {
                member.device().program(peb, offset, &bytes)
            });
        first_error(members.into_iter().zip(results)).map_err(|(member, error)| self.as_own(member, error))
    }
}

/// The most important failure: a power cut if there is one, else that of the lowest member.
fn first_error(
    results: impl Iterator<Item = (usize, Result<(), NandError>)>,
) -> Result<(), (usize, NandError)> {
    let mut failures: Vec<_> = results
        .filter_map(|(member, result)| result.err().map(|error| (member, error)))
        .collect();
    failures.sort_by_key(|(member, error)| (!error.is_power_cut(), *member));
    failures.into_iter().next().map_or(Ok(()), Err)
}

fn common_geometry(members: &[Box<dyn Nand>]) -> Result<(Arc<str>, NandGeometry), ProxyError> {
    let first = members.first().ok_or(ProxyError::NoMembers)?;
    check_shapes(members)?;
    let shape = first.geometry();
    let least = |of: fn(&NandGeometry) -> u32| {
        let values = members.iter().map(|member| of(&member.geometry()));
        values.min().unwrap_or(1)
    };
    let count = u32::try_from(members.len()).map_err(|_| ProxyError::NoMembers)?;
    let pages = shape.pages_per_block().saturating_mul(count);
    let geometry = NandGeometry::new(shape.page_bytes(), pages, least(NandGeometry::blocks))
        .and_then(|whole| whole.with_subpage(shape.subpage_bytes()))
        .and_then(|whole| whole.with_oob(shape.oob_bytes()))
        .map(|whole| {
            whole
                .with_bitflip_threshold(least(NandGeometry::bitflip_threshold))
                .with_write_unit_pages(count)
        })
        .map_err(|source| ProxyError::Geometry {
            members: members.len(),
            source,
        })?;
    let names: Vec<String> = members.iter().map(|member| member.name().to_string()).collect();
    Ok((names.join("+").into(), geometry))
}

impl Nand for Proxy {
    fn name(&self) -> Arc<str> {
        Arc::clone(&self.name)
    }

    fn geometry(&self) -> NandGeometry {
        self.geometry
    }

    fn clock(&self) -> Clock {
        self.members.clock()
    }

    fn read(&mut self, peb: Peb, offset: u32, out: &mut [u8]) -> Result<ReadReport, NandError> {
        self.geometry.check_read(&self.name, peb, offset, out.len())?;
        let pieces = self.stripe.pieces(offset, out.len());
        let jobs = pieces.iter().map(|piece| (piece.member, *piece)).collect();
        let results = self.members.together(jobs, move |member, piece: MemberRange| {
            let mut bytes = vec![0; piece.len];
            member
                .device()
                .read(peb, piece.offset, &mut bytes)
                .map(|report| (bytes, report))
        });
        let mut whole = ReadReport::default();
        for (piece, result) in pieces.into_iter().zip(results) {
            let (bytes, mut report) = result.map_err(|error| self.as_own(piece.member, error))?;
            self.stripe.gather(offset, out, piece, &bytes);
            for page in &mut report.uncorrectable {
                *page = self.page_of_member(piece.member, *page);
            }
            whole.merge(report);
        }
        whole.uncorrectable.sort_unstable();
        Ok(whole)
    }

    fn program(&mut self, peb: Peb, offset: u32, data: &[u8]) -> Result<(), NandError> {
        self.geometry.check_program(&self.name, peb, offset, data.len())?;
        self.check_order(peb, offset)?;
        let mut at = 0;
        for (start, len) in self.stripe.windows(offset, data.len()) {
            self.program_window(peb, start, &data[at..at + len])?;
            at += len;
            self.next[index(peb.0)] = start + u32::try_from(len).expect("a row is below 4 GiB");
        }
        Ok(())
    }

    fn erase(&mut self, peb: Peb) -> Result<(), NandError> {
        self.geometry.check_peb(&self.name, peb)?;
        if self.is_bad(peb)? {
            return Err(NandError::BadBlock {
                device: Arc::clone(&self.name),
                peb,
                action: "erased",
            });
        }
        let results = self.members.on_all(move |member| member.device().erase(peb));
        first_error(results.into_iter().enumerate()).map_err(|(_, error)| error)?;
        self.next[index(peb.0)] = 0;
        Ok(())
    }

    fn is_bad(&mut self, peb: Peb) -> Result<bool, NandError> {
        self.geometry.check_peb(&self.name, peb)?;
        self.members
            .on_all(move |member| member.device().is_bad(peb))
            .into_iter()
            .try_fold(false, |bad, one| Ok(bad | one?))
    }

    fn mark_bad(&mut self, peb: Peb) -> Result<(), NandError> {
        self.geometry.check_peb(&self.name, peb)?;
        let results = self.members.on_all(move |member| member.device().mark_bad(peb));
        first_error(results.into_iter().enumerate()).map_err(|(_, error)| error)
    }

    fn sync(&mut self) -> Result<(), NandError> {
        let results = self.members.on_all(|member| member.device().sync());
        first_error(results.into_iter().enumerate()).map_err(|(_, error)| error)
    }

    fn host(&self) -> Option<Arc<dyn Host>> {
        let hosts: Vec<_> = self
            .members
            .iter()
            .filter_map(|member| member.device().host())
            .collect();
        match hosts.is_empty() {
            true => None,
            false => Some(Arc::new(Hosts(hosts))),
        }
    }
}

/// The hosts of all members.
#[derive(Debug)]
struct Hosts(Vec<Arc<dyn Host>>);

impl Host for Hosts {
    fn sync(&self) -> Result<(), NandError> {
        self.0.iter().try_for_each(|host| host.sync())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use media::RamNand;

    fn chips(count: usize, blocks: u32) -> Vec<Box<dyn Nand>> {
        let geometry = NandGeometry::new(512, 4, blocks)
            .and_then(|geometry| geometry.with_subpage(128))
            .unwrap();
        let chip = |member| -> Box<dyn Nand> { Box::new(RamNand::new(&format!("chip{member}"), geometry)) };
        (0..count).map(chip).collect()
    }

    #[test]
    fn one_to_five_devices_keep_the_contract_inline_and_threaded() {
        for members in 1..=5 {
            for execution in [Execution::Inline, Execution::Threads] {
                media::contract::run_all(|| Proxy::new(chips(members, 6), execution).unwrap());
            }
        }
    }

    #[test]
    fn a_page_of_the_whole_is_on_the_member_that_figure_5_says() {
        let mut members: Vec<Arc<Mutex<RamNand>>> = Vec::new();
        let geometry = NandGeometry::new(512, 4, 2).unwrap();
        for member in 0..3 {
            members.push(Arc::new(Mutex::new(RamNand::new(
                &format!("chip{member}"),
                geometry,
            ))));
        }
        let boxed = members
            .iter()
            .map(|member| -> Box<dyn Nand> { Box::new(Arc::clone(member)) });
        let mut proxy = Proxy::new(boxed.collect(), Execution::Inline).unwrap();
        let data: Vec<u8> = (0..5_u8).flat_map(|page| [page; 512]).collect();
        proxy.program(Peb(1), 0, &data).unwrap();
        for page in 0..5_u8 {
            let mut out = [0xEE; 512];
            let member = &mut members[usize::from(page % 3)];
            let report = member.read(Peb(1), u32::from(page / 3) * 512, &mut out).unwrap();
            assert!(report.is_correct());
            assert_eq!(out, [page; 512], "page {page}");
        }
    }

    #[test]
    fn the_smallest_member_gives_the_number_of_blocks_and_other_shapes_are_refused() {
        let mut members = chips(2, 8);
        members.extend(chips(1, 5));
        assert_eq!(
            Proxy::new(members, Execution::Inline)
                .unwrap()
                .geometry()
                .blocks(),
            5
        );
        let mut members = chips(1, 8);
        members.push(Box::new(RamNand::new(
            "odd",
            NandGeometry::new(1024, 4, 8).unwrap(),
        )));
        let text = Proxy::new(members, Execution::Inline).err().unwrap().to_string();
        assert!(
            text.contains("odd has 4 pages of 1024 bytes") && text.contains("chip0"),
            "{text}"
        );
        assert!(Proxy::new(Vec::new(), Execution::Inline).is_err());
    }

    #[test]
    fn a_block_is_bad_when_any_members_is_and_marking_marks_all() {
        let mut members = chips(3, 6);
        members[1].mark_bad(Peb(2)).unwrap();
        let mut proxy = Proxy::new(members, Execution::Inline).unwrap();
        assert!(proxy.is_bad(Peb(2)).unwrap() && !proxy.is_bad(Peb(3)).unwrap());
        proxy.mark_bad(Peb(3)).unwrap();
        for member in proxy.members.iter() {
            assert!(member.device().is_bad(Peb(3)).unwrap());
        }
    }
}
