//! Round-robin striping of pages over members (seeds/001 section 3.2.1), as arithmetic.
//!
//! Page `i` of the array is page `i / p` of member `i mod p`. A row is the `p` pages at the same position of each
//! member. Within a member, the pages of any range of the array are consecutive: a range has at most one piece per
//! member.
//!
//! Ranges need no alignment: a page is never split between members.

use media::index;

/// Layout of an array of `members` devices with pages of `page_bytes`, both nonzero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stripe {
    members: u32,
    page_bytes: u32,
}

/// A member's piece of a range, consecutive on that member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberRange {
    /// The member, from 0.
    pub member: usize,
    /// First byte within the member's block.
    pub offset: u32,
    /// Length in bytes, at least 1.
    pub len: usize,
}

impl Stripe {
    /// # Panics
    /// When there is no member or a page has no bytes.
    #[must_use]
    pub const fn new(members: u32, page_bytes: u32) -> Self {
        assert!(members > 0 && page_bytes > 0, "an array has members and pages");
        Self { members, page_bytes }
    }

    /// Number of members.
    #[must_use]
    pub const fn members(&self) -> u32 {
        self.members
    }

    /// Bytes of one row: one page of each member.
    #[must_use]
    pub const fn row_bytes(&self) -> u32 {
        self.members * self.page_bytes
    }

    /// The member that holds byte `offset`, and its offset there.
    #[must_use]
    pub fn locate(&self, offset: u32) -> (usize, u32) {
        let page = offset / self.page_bytes;
        let within = offset % self.page_bytes;
        (
            index(page % self.members),
            page / self.members * self.page_bytes + within,
        )
    }

    /// Whether the `len` bytes from `offset` lie within one page.
    #[must_use]
    pub fn is_one_page(&self, offset: u32, len: usize) -> bool {
        index(offset % self.page_bytes) + len <= index(self.page_bytes)
    }

    /// The pieces of `len` bytes from `offset`, one for each member involved, in member order.
    #[must_use]
    pub fn pieces(&self, offset: u32, len: usize) -> Vec<MemberRange> {
        let mut pieces: Vec<Option<MemberRange>> = vec![None; index(self.members)];
        for part in self.parts(offset, len) {
            let piece = &mut pieces[part.member];
            match piece {
                Some(piece) => piece.len += part.len,
                None => {
                    *piece = Some(MemberRange {
                        member: part.member,
                        offset: part.offset,
                        len: part.len,
                    })
                }
            }
        }
        pieces.into_iter().flatten().collect()
    }

    /// Splits `len` bytes from `offset` at row boundaries: `(offset, bytes)` of each part, in order.
    pub fn rows(&self, offset: u32, len: usize) -> impl Iterator<Item = (u32, usize)> + use<> {
        let row = self.row_bytes();
        let (mut at, mut left) = (offset, len);
        std::iter::from_fn(move || {
            if left == 0 {
                return None;
            }
            let here = left.min(index(row - at % row));
            let cut = (at, here);
            at += u32::try_from(here).expect("a row is below 4 GiB");
            left -= here;
            Some(cut)
        })
    }

    /// Splits `len` bytes from `offset` after every `p` pages, counted from the page of `offset`: no two pages of such
    /// a window are on one member, wherever it begins. `(offset, bytes)` of each, in order.
    pub fn windows(&self, offset: u32, len: usize) -> impl Iterator<Item = (u32, usize)> + use<> {
        let shift = offset / self.page_bytes % self.members * self.page_bytes;
        self.rows(offset - shift, len)
            .map(move |(at, bytes)| (at + shift, bytes))
    }

    /// Splits `data` at `offset` of the array into the members' pieces with their bytes.
    #[must_use]
    pub fn scatter(&self, offset: u32, data: &[u8]) -> Vec<(MemberRange, Vec<u8>)> {
        let mut pieces: Vec<_> = self
            .pieces(offset, data.len())
            .into_iter()
            .map(|piece| (piece, Vec::with_capacity(piece.len)))
            .collect();
        let mut place = vec![usize::MAX; index(self.members)];
        for (position, (piece, _)) in pieces.iter().enumerate() {
            place[piece.member] = position;
        }
        for part in self.parts(offset, data.len()) {
            pieces[place[part.member]]
                .1
                .extend_from_slice(&data[part.at..part.at + part.len]);
        }
        pieces
    }

    /// Copies the bytes of one member's piece to their positions in `out`, which is a range of the array at `offset`.
    pub fn gather(&self, offset: u32, out: &mut [u8], piece: MemberRange, bytes: &[u8]) {
        let mut taken = 0;
        for part in self
            .parts(offset, out.len())
            .filter(|part| part.member == piece.member)
        {
            out[part.at..part.at + part.len].copy_from_slice(&bytes[taken..taken + part.len]);
            taken += part.len;
        }
        assert_eq!(taken, bytes.len(), "a piece covers its member's share");
    }

    fn parts(&self, offset: u32, len: usize) -> impl Iterator<Item = Part> + use<> {
        let stripe = *self;
        let (mut here, mut at) = (offset, 0);
        std::iter::from_fn(move || {
            if at == len {
                return None;
            }
            let (member, member_offset) = stripe.locate(here);
            let bytes = (len - at).min(index(stripe.page_bytes - here % stripe.page_bytes));
            let part = Part {
                member,
                offset: member_offset,
                len: bytes,
                at,
            };
            at += bytes;
            here = here.saturating_add(u32::try_from(bytes).expect("a page is below 4 GiB"));
            Some(part)
        })
    }
}

/// A part of one page: its member, the offset there, and its position in the caller's buffer.
struct Part {
    member: usize,
    offset: u32,
    len: usize,
    at: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_go_round_robin_as_in_figure_5() {
        let stripe = Stripe::new(4, 2048);
        assert_eq!(stripe.locate(0), (0, 0));
        assert_eq!(stripe.locate(2048), (1, 0));
        assert_eq!(stripe.locate(3 * 2048 + 5), (3, 5));
        assert_eq!(stripe.locate(4 * 2048), (0, 2048));
        assert_eq!(stripe.row_bytes(), 8192);
    }

    #[test]
    fn a_range_has_one_piece_a_member() {
        let stripe = Stripe::new(3, 100);
        let piece = |member, offset, len| MemberRange { member, offset, len };
        assert_eq!(
            stripe.pieces(150, 400),
            [piece(0, 100, 100), piece(1, 50, 150), piece(2, 0, 150)]
        );
        assert_eq!(stripe.pieces(10, 5), [piece(0, 10, 5)]);
        assert_eq!(stripe.pieces(10, 0), []);
    }

    #[test]
    fn rows_end_where_every_member_ends_a_page() {
        let stripe = Stripe::new(3, 100);
        assert_eq!(
            stripe.rows(150, 500).collect::<Vec<_>>(),
            [(150, 150), (300, 300), (600, 50)]
        );
    }

    #[test]
    fn windows_begin_where_the_range_does_and_meet_each_member_once() {
        let stripe = Stripe::new(3, 100);
        assert_eq!(
            stripe.windows(150, 500).collect::<Vec<_>>(),
            [(150, 250), (400, 250)]
        );
        for (offset, len) in stripe.windows(150, 500) {
            assert!(stripe.pieces(offset, len).iter().all(|piece| piece.len <= 100));
        }
    }

    #[test]
    fn what_is_scattered_is_gathered_as_it_was() {
        for members in 1..=16 {
            for (offset, len) in [(0, 1), (0, 4096), (7, 1000), (63, 66), (512, 513)] {
                let stripe = Stripe::new(members, 64);
                let data: Vec<u8> = (0..len).map(|at| u8::try_from(at % 251).unwrap()).collect();
                let mut out = vec![0; len];
                for (piece, bytes) in stripe.scatter(offset, &data) {
                    assert_eq!(piece.len, bytes.len());
                    stripe.gather(offset, &mut out, piece, &bytes);
                }
                assert_eq!(out, data, "{members} members, {len} bytes at {offset}");
            }
        }
    }
}
