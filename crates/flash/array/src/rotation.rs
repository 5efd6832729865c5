//! Rotating parity, as arithmetic: the layout of a row, and the computation of a page from the others of its row.
//!
//! With `p` members a row has `p - 1` data pages and one parity page. The parity of row `r` is on member `p - 1 - r mod
//! p`, and the data follows it in member order, wrapping around. So data page `i` of a LEB is on member `i mod p`, in
//! row `i / (p - 1)`: neighbouring pages are on neighbouring members, and a long read keeps all of them busy.
//!
//! The complement of the parity page is the XOR of the complements of the data pages, so that a row of erased pages is
//! consistent.

use media::index;

/// Layout of an array with rotating parity, of `members` devices with pages of `page_bytes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rotation {
    members: u32,
    page_bytes: u32,
}

/// A part of one data page: its row and member, and its position in the page and in the caller's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DataPart {
    pub(crate) row: u32,
    pub(crate) member: usize,
    /// First byte within the page.
    pub(crate) within: u32,
    pub(crate) len: usize,
    /// First byte in the caller's buffer.
    pub(crate) at: usize,
}

impl Rotation {
    /// # Panics
    /// When there are fewer than 3 members or a page has no bytes.
    pub(crate) const fn new(members: u32, page_bytes: u32) -> Self {
        assert!(members >= 3 && page_bytes > 0, "parity takes three members");
        Self { members, page_bytes }
    }

    pub(crate) const fn page_bytes(&self) -> u32 {
        self.page_bytes
    }

    /// Bytes of data in a row.
    pub(crate) const fn row_bytes(&self) -> u32 {
        (self.members - 1) * self.page_bytes
    }

    /// The member that holds the parity of a row.
    pub(crate) fn parity_of(&self, row: u32) -> usize {
        index(self.members - 1 - row % self.members)
    }

    /// The member that holds a data page of a LEB.
    fn member_of(&self, page: u32) -> usize {
        index(page % self.members)
    }

    /// Splits `len` bytes from `offset` of a LEB at page boundaries.
    pub(crate) fn parts(&self, offset: u32, len: usize) -> impl Iterator<Item = DataPart> + use<> {
        let rotation = *self;
        let (mut here, mut at) = (offset, 0);
        std::iter::from_fn(move || {
            if at == len {
                return None;
            }
            let page = here / rotation.page_bytes;
            let within = here % rotation.page_bytes;
            let bytes = (len - at).min(index(rotation.page_bytes - within));
            let part = DataPart {
                row: page / (rotation.members - 1),
                member: rotation.member_of(page),
                within,
                len: bytes,
                at,
            };
            at += bytes;
            here += u32::try_from(bytes).expect("a page is below 4 GiB");
            Some(part)
        })
    }

    /// Returns each member's pages for the whole rows of `data`, the first of which is `first_row`.
    ///
    /// # Panics
    /// When `data` does not consist of whole rows.
    pub(crate) fn encode(&self, first_row: u32, data: &[u8]) -> Vec<Vec<u8>> {
        assert_eq!(data.len() % index(self.row_bytes()), 0, "rows are written whole");
        let rows = data.len() / index(self.row_bytes());
        let mut pages: Vec<Vec<u8>> = (0..self.members)
            .map(|_| Vec::with_capacity(rows * index(self.page_bytes)))
            .collect();
        for (row, data) in (first_row..).zip(data.chunks(index(self.row_bytes()))) {
            let first_page = row * (self.members - 1);
            for (page, bytes) in (first_page..).zip(data.chunks(index(self.page_bytes))) {
                pages[self.member_of(page)].extend_from_slice(bytes);
            }
            let parity = missing_page(data.chunks(index(self.page_bytes)), index(self.page_bytes));
            pages[self.parity_of(row)].extend_from_slice(&parity);
        }
        pages
    }
}

/// Computes the missing page of a row, data or parity, from all others.
pub(crate) fn missing_page<'a>(others: impl Iterator<Item = &'a [u8]>, page_bytes: usize) -> Vec<u8> {
    let mut page = vec![0xFF; page_bytes];
    for other in others {
        for (byte, other) in page.iter_mut().zip(other) {
            *byte ^= !other;
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(bytes: usize) -> Vec<u8> {
        (0..bytes).map(|at| u8::try_from(at % 251).unwrap()).collect()
    }

    #[test]
    fn parity_rotates_and_neighbouring_pages_are_on_neighbouring_members() {
        let rotation = Rotation::new(4, 100);
        assert_eq!(rotation.row_bytes(), 300);
        let parity: Vec<usize> = (0..5).map(|row| rotation.parity_of(row)).collect();
        assert_eq!(parity, [3, 2, 1, 0, 3]);
        let members: Vec<(u32, usize)> = rotation
            .parts(0, 1200)
            .map(|part| (part.row, part.member))
            .collect();
        let expected = [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
            .into_iter()
            .zip([0, 1, 2, 3].into_iter().cycle());
        assert_eq!(members, expected.collect::<Vec<_>>());
        for (row, member) in members {
            assert_ne!(rotation.parity_of(row), member, "data in the place of parity");
        }
    }

    #[test]
    fn every_page_of_a_row_follows_from_the_others() {
        for members in [3, 4, 5, 16] {
            let rotation = Rotation::new(members, 64);
            let rows = 2 * members;
            let data = data(index(rows * rotation.row_bytes()));
            let pages = rotation.encode(3, &data);
            for row in 0..rows {
                let page = |member: usize| &pages[member][index(row) * 64..][..64];
                for missing in 0..index(members) {
                    let others = (0..index(members)).filter(|member| *member != missing);
                    let found = missing_page(others.map(page), 64);
                    assert_eq!(found, page(missing), "{members} members, row {row}, {missing}");
                }
            }
        }
    }

    #[test]
    fn data_is_where_the_parts_say() {
        let rotation = Rotation::new(3, 64);
        let data = data(64 * 2 * 9);
        let pages = rotation.encode(0, &data);
        for (offset, len) in [(0, 1), (63, 66), (7, 1000), (64 * 2 * 9 - 1, 1)] {
            for part in rotation.parts(offset, len) {
                let at = index(part.row * 64 + part.within);
                let expected = &data[index(offset) + part.at..][..part.len];
                assert_eq!(&pages[part.member][at..at + part.len], expected, "{part:?}");
            }
        }
    }

    #[test]
    fn a_row_of_erased_pages_has_an_erased_parity_page() {
        let blank = [0xFF; 64];
        assert_eq!(missing_page([&blank[..], &blank[..]].into_iter(), 64), blank);
    }
}
