//! Parts of a dump whose pages are corrected as they are read.
//!
//! A corrected page is presented as main area and OOB area behind it, whatever its layout, so that readers compute places
//! as without ECC. Between the known blocks of a partition, steps that can't be corrected stay as they were read and are
//! remembered. Around them, where another writer's data may lie, a page counts only if all of its steps are right or can be
//! corrected: otherwise it stays as it was read.
//!
//! Memory: 2 bytes per page, those of uncorrectable steps, and a cache of pages.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nand::ecc::{Found, Layout, PageCorrector};

use crate::dump::Dump;

/// Bytes of pages that are kept for readers of small pieces, per region.
const CACHE_BYTES: usize = 2 << 20;
/// A page that was not read yet, in [`Account::bits`].
const UNSEEN: u16 = u16::MAX;
/// A page that was written without ECC, in [`Account::bits`].
const UNPROTECTED: u16 = u16::MAX - 1;
/// Larger numbers of corrected bits count as this one.
const BITS_MAX: u16 = u16::MAX - 2;

/// The ECC of a partition, and the bits that it corrected.
#[derive(Clone, Debug)]
pub struct Correction {
    /// The layout, and its evidence.
    pub found: Found,
    /// Corrected bits in the pages of the partition.
    pub corrected_bits: u64,
    /// Pages with such bits.
    pub corrected_pages: u64,
    /// Steps that could not be corrected, also those of blocks without content.
    pub failed_steps: usize,
    /// Pages that were written without ECC: with data, and an erased parity. They stay as they were read.
    pub unprotected_pages: u64,
}

/// Consecutive raw pages of one layout.
#[derive(Debug)]
pub(crate) struct Region {
    /// Offset of the first page in the dump, and the end of the last one.
    range: Range<u64>,
    /// The known blocks of the partition.
    core: Range<u64>,
    found: Found,
    corrector: PageCorrector,
    cache: Mutex<Cache>,
    account: Mutex<Account>,
}

#[derive(Debug, Default)]
struct Cache {
    pages: HashMap<u64, Arc<[u8]>>,
    /// In the order of their loading.
    order: VecDeque<u64>,
}

#[derive(Debug)]
struct Account {
    /// Corrected bits of each page.
    bits: Vec<u16>,
    /// Offset in the dump of each uncorrectable step.
    failed: BTreeSet<u64>,
}

/// Disjoint regions by offset.
#[derive(Debug, Default)]
pub(crate) struct Regions(Vec<Region>);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Region {
    /// The whole pages in `range`, whose first byte begins one. `None` if there are none.
    pub(crate) fn new(range: Range<u64>, core: Range<u64>, found: Found) -> Option<Self> {
        let corrector = PageCorrector::new(&found.layout).ok()?;
        let raw = u64::from(found.layout.raw_bytes());
        let pages = range.end.saturating_sub(range.start) / raw;
        let count = usize::try_from(pages).ok().filter(|pages| *pages > 0)?;
        Some(Self {
            range: range.start..range.start + pages * raw,
            core,
            corrector,
            found,
            cache: Mutex::default(),
            account: Mutex::new(Account {
                bits: vec![UNSEEN; count],
                failed: BTreeSet::new(),
            }),
        })
    }

    fn raw_bytes(&self) -> usize {
        media::index(self.found.layout.raw_bytes())
    }

    /// Replaces the bytes of `out`, which begins at byte `at` of the dump, by those of corrected pages.
    fn correct(&self, dump: &Dump, at: i64, out: &mut [u8]) {
        let raw = u64::from(self.found.layout.raw_bytes());
        let first = u64::try_from(at).unwrap_or(0).max(self.range.start);
        let length = i64::try_from(out.len()).unwrap_or(i64::MAX);
        let end = u64::try_from(at.saturating_add(length))
            .unwrap_or(0)
            .min(self.range.end);
        let mut next = first;
        while next < end {
            let page = (next - self.range.start) / raw;
            let start = self.range.start + page * raw;
            let stop = (start + raw).min(end);
            let bytes = self.page(dump, page);
            let to = i64::try_from(next).unwrap_or(i64::MAX).saturating_sub(at);
            let to = usize::try_from(to).unwrap_or(usize::MAX);
            let from = usize::try_from(next - start).unwrap_or(usize::MAX);
            let count = usize::try_from(stop - next).unwrap_or(0);
            let source = bytes.get(from..from.saturating_add(count));
            let target = out.get_mut(to..to.saturating_add(count));
            if let (Some(source), Some(target)) = (source, target) {
                target.copy_from_slice(source);
            }
            next = stop;
        }
    }

    fn page(&self, dump: &Dump, page: u64) -> Arc<[u8]> {
        if let Some(bytes) = lock(&self.cache).pages.get(&page) {
            return Arc::clone(bytes);
        }
        let bytes = self.load(dump, page);
        let mut cache = lock(&self.cache);
        if cache.pages.insert(page, Arc::clone(&bytes)).is_none() {
            cache.order.push_back(page);
        }
        if cache.order.len() > (CACHE_BYTES / self.raw_bytes()).max(4)
            && let Some(oldest) = cache.order.pop_front()
        {
            cache.pages.remove(&oldest);
        }
        bytes
    }

    fn load(&self, dump: &Dump, page: u64) -> Arc<[u8]> {
        let start = self.range.start + page * u64::from(self.found.layout.raw_bytes());
        let mut read = vec![0; self.raw_bytes()];
        dump.read_raw(i64::try_from(start).unwrap_or(i64::MAX), &mut read);
        let mut raw = read.clone();
        let mut main = vec![0; media::index(self.found.layout.page_bytes)];
        let state = self.corrector.correct(&mut raw, &mut main);
        let is_wrong = !state.failed.is_empty() || state.is_unprotected;
        let is_foreign = is_wrong && !self.core.contains(&start);
        if !is_foreign {
            let bits = match state.is_unprotected {
                true => UNPROTECTED,
                false => u16::try_from(state.corrected_bits)
                    .unwrap_or(BITS_MAX)
                    .min(BITS_MAX),
            };
            self.count(
                page,
                bits,
                state.failed.iter().map(|step| start + u64::from(step.start)),
            );
        }
        if is_foreign || state.is_unprotected || state.failed.len() == state.steps {
            return read.into();
        }
        if !self.corrector.is_apart() {
            raw.fill(0xFF);
            raw[..main.len()].copy_from_slice(&main);
        }
        raw.into()
    }

    /// Counts a page once.
    fn count(&self, page: u64, bits: u16, failed: impl Iterator<Item = u64>) {
        let mut account = lock(&self.account);
        let index = usize::try_from(page).unwrap_or(usize::MAX);
        let Some(known) = account.bits.get_mut(index).filter(|known| **known == UNSEEN) else {
            return;
        };
        *known = bits;
        account.failed.extend(failed);
    }
}

impl Regions {
    pub(crate) fn new(mut regions: Vec<Region>) -> Self {
        regions.sort_by_key(|region| region.range.start);
        Self(regions)
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Replaces the bytes of `out`, which begins at byte `at` of the dump, where they are those of corrected pages.
    pub(crate) fn correct(&self, dump: &Dump, at: i64, out: &mut [u8]) {
        for region in &self.0 {
            region.correct(dump, at, out);
        }
    }

    fn region_at(&self, at: u64) -> Option<&Region> {
        self.0.iter().find(|region| region.range.contains(&at))
    }

    /// The layout of the pages at this offset in the dump.
    pub(crate) fn layout_at(&self, at: u64) -> Option<&Layout> {
        self.region_at(at).map(|region| &region.found.layout)
    }

    /// Number of uncorrectable steps that begin between these offsets, of the pages read so far.
    pub(crate) fn failed(&self, start: i64, end: i64) -> usize {
        let (start, end) = (u64::try_from(start).unwrap_or(0), u64::try_from(end).unwrap_or(0));
        let count = |region: &Region| {
            let account = lock(&region.account);
            account.failed.range(start..end.max(start)).count()
        };
        self.0.iter().map(count).sum()
    }

    /// The work between these offsets; `None` if no ECC is known there.
    pub(crate) fn account(&self, start: i64, end: i64) -> Option<Correction> {
        let from = u64::try_from(start).unwrap_or(0);
        let inside = self.region_at(from).or_else(|| {
            let touches = |region: &&Region| {
                i64::try_from(region.range.start).is_ok_and(|at| (start..end).contains(&at))
            };
            self.0.iter().find(touches)
        })?;
        let mut correction = Correction {
            found: inside.found.clone(),
            corrected_bits: 0,
            corrected_pages: 0,
            failed_steps: self.failed(start, end),
            unprotected_pages: 0,
        };
        let end = u64::try_from(end).unwrap_or(0);
        for region in &self.0 {
            let raw = u64::from(region.found.layout.raw_bytes());
            let page =
                |at: u64| usize::try_from(at.saturating_sub(region.range.start) / raw).unwrap_or(usize::MAX);
            let account = lock(&region.account);
            let pages =
                page(from).min(account.bits.len())..page(end.min(region.range.end)).min(account.bits.len());
            let wrong = account.bits.get(pages).unwrap_or_default().iter();
            for bits in wrong {
                match *bits {
                    UNSEEN | 0 => {}
                    UNPROTECTED => correction.unprotected_pages += 1,
                    bits => {
                        correction.corrected_bits += u64::from(bits);
                        correction.corrected_pages += 1;
                    }
                }
            }
        }
        Some(correction)
    }
}
