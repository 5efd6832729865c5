//! Hamming codes of 256 or 512 bytes in 3 bytes, which correct one bit and recognise two.
//!
//! Bit n of a step has the address `8 * byte + bit`, bit 0 the lowest of its byte. For each bit of the address the code
//! holds two parities: of the data bits whose address has it clear, and of those that have it set. A wrong data bit
//! changes one of each pair and so names itself; a wrong code bit changes one in all.

use super::bch::{Parity, WORDS_MAX};

/// Bits of the stored code, 22 or 24 of them used.
pub(super) const CODE_BITS: u32 = 24;

/// Places of the parities in the three bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HammingOrder {
    /// Linux's software ECC: rows 4 to 7 of the byte's number, rows 0 to 3, then the bit's number with row 8 below it;
    /// inverted.
    Linux,
    /// SmartMedia and Linux's `sm_order`: the first two bytes exchanged.
    SmartMedia,
    /// OMAP GPMC: the eight lowest parities of clear address bits, of set ones, then the upper four of each; not inverted.
    Omap,
}

/// A code for steps of one size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hamming {
    order: HammingOrder,
    /// Bits of an address: 11 or 12.
    address_bits: u32,
}

impl Hamming {
    /// Returns `None` unless a step has 256 or 512 bytes.
    pub(super) fn new(order: HammingOrder, step_bytes: u32) -> Option<Self> {
        matches!(step_bytes, 256 | 512).then(|| Self {
            order,
            address_bits: step_bytes.trailing_zeros() + 3,
        })
    }

    /// Bytes of a step.
    pub(super) fn step_bytes(self) -> u32 {
        1 << (self.address_bits - 3)
    }

    /// The address bit of a stored bit and whether it covers set ones; `None` for a bit that is not used.
    fn place(self, byte: u32, bit: u32) -> Option<(u32, bool)> {
        let (address_bit, is_of_set) = match (self.order, byte) {
            (HammingOrder::Linux, 0) | (HammingOrder::SmartMedia, 1) => (7 + bit / 2, bit % 2 == 1),
            (HammingOrder::Linux | HammingOrder::SmartMedia, 0 | 1) => (3 + bit / 2, bit % 2 == 1),
            (HammingOrder::Linux | HammingOrder::SmartMedia, _) if bit < 2 => (11, bit == 1),
            (HammingOrder::Linux | HammingOrder::SmartMedia, _) => ((bit - 2) / 2, bit % 2 == 1),
            (HammingOrder::Omap, 0 | 1) => (bit, byte == 1),
            (HammingOrder::Omap, _) => (8 + bit % 4, bit >= 4),
        };
        (address_bit < self.address_bits).then_some((address_bit, is_of_set))
    }

    /// The code of a step, as the first 24 bits of a parity.
    pub(super) fn parity(self, step: &[u8]) -> Parity {
        let (of_set, whole) = parities(step);
        let mut code = [0_u8; 3];
        for (number, byte) in (0..).zip(&mut code) {
            for bit in 0..8 {
                let is_odd = self.place(number, bit).is_some_and(|(address_bit, is_of_set)| {
                    let set = of_set >> address_bit & 1 == 1;
                    if is_of_set { set } else { set != whole }
                });
                *byte |= u8::from(is_odd) << bit;
            }
            if self.order != HammingOrder::Omap {
                *byte = !*byte;
            }
        }
        let mut parity = [0; WORDS_MAX];
        parity[0] = u64::from_be_bytes([code[0], code[1], code[2], 0, 0, 0, 0, 0]);
        parity
    }

    /// The wrong bits of step and code, numbered from the first bit of the step with the highest bit of a byte first, if
    /// stored and computed code differ by `difference`. Returns `None` for more than one.
    pub(super) fn locate(self, difference: &Parity) -> Option<Vec<u32>> {
        let bytes = difference[0].to_be_bytes();
        let (mut of_clear, mut of_set, mut stored) = (0_u32, 0_u32, Vec::new());
        for (number, byte) in (0..3).zip(bytes) {
            for bit in (0..8).filter(|bit| byte >> bit & 1 == 1) {
                if let Some((address_bit, is_of_set)) = self.place(number, bit) {
                    let half = if is_of_set { &mut of_set } else { &mut of_clear };
                    *half |= 1 << address_bit;
                    stored.push(self.step_bytes() * 8 + number * 8 + 7 - bit);
                }
            }
        }
        if of_clear ^ of_set == (1 << self.address_bits) - 1 {
            return Some(vec![of_set / 8 * 8 + 7 - of_set % 8]);
        }
        (stored.len() <= 1).then_some(stored)
    }
}

/// The code of Linux's software ECC for 256 bytes.
pub(crate) fn linux_hamming(step: &[u8]) -> [u8; 3] {
    let code = Hamming {
        order: HammingOrder::Linux,
        address_bits: 11,
    };
    let [first, second, third, ..] = code.parity(step)[0].to_be_bytes();
    [first, second, third]
}

/// The parities of the data bits with each address bit set, and that of all.
fn parities(step: &[u8]) -> (u32, bool) {
    const LOW_BITS: u64 = 0x0101_0101_0101_0101;
    let (words, _) = step.as_chunks::<8>();
    let (mut columns, mut bytes, mut rows) = (0_u64, 0_u64, 0_u32);
    for (number, word) in (0..).zip(words) {
        let word = u64::from_le_bytes(*word);
        columns ^= word;
        // The parity of each byte, in its lowest bit.
        let mut folded = word ^ word >> 4;
        folded ^= folded >> 2;
        folded ^= folded >> 1;
        folded &= LOW_BITS;
        bytes ^= folded;
        if folded.count_ones() % 2 == 1 {
            rows ^= number;
        }
    }
    let column = columns.to_le_bytes().into_iter().fold(0, |sum, byte| sum ^ byte);
    let mut address = rows << 6;
    for (bit, set) in [0b1010_1010, 0b1100_1100, 0b1111_0000_u8].into_iter().enumerate() {
        address |= u32::from((column & set).count_ones() % 2 == 1) << bit;
    }
    for (number, byte) in (0_u32..).zip(bytes.to_le_bytes()) {
        if byte == 1 {
            address ^= number << 3;
        }
    }
    (address, column.count_ones() % 2 == 1)
}

#[cfg(test)]
mod tests {
    use testkit::prng::Prng;

    use super::*;

    const ORDERS: [HammingOrder; 3] = [HammingOrder::Linux, HammingOrder::SmartMedia, HammingOrder::Omap];

    fn difference(one: &Parity, other: &Parity) -> Parity {
        let mut result = *one;
        result[0] ^= other[0];
        result
    }

    #[test]
    fn every_single_bit_is_found_and_two_are_refused() {
        for (order, bytes) in ORDERS.into_iter().flat_map(|order| [(order, 256), (order, 512)]) {
            let code = Hamming::new(order, bytes).unwrap();
            let good = Prng::new(u64::from(bytes)).bytes(media::index(bytes));
            let parity = code.parity(&good);
            assert_eq!(code.locate(&[0; WORDS_MAX]), Some(vec![]));
            for at in 0..bytes * 8 {
                let mut bad = good.clone();
                bad[media::index(at / 8)] ^= 0x80 >> (at % 8);
                assert_eq!(
                    code.locate(&difference(&code.parity(&bad), &parity)),
                    Some(vec![at])
                );
                let other = (at * 7 + 5) % (bytes * 8);
                bad[media::index(other / 8)] ^= 0x80 >> (other % 8);
                let found = code.locate(&difference(&code.parity(&bad), &parity));
                assert_eq!(
                    found,
                    if other == at { Some(vec![]) } else { None },
                    "{order:?} {at} {other}"
                );
            }
            for at in 0..CODE_BITS {
                let mut flipped = [0; WORDS_MAX];
                flipped[0] = 1 << (63 - at);
                let is_used = code.place(at / 8, 7 - at % 8).is_some();
                let expected = if is_used { vec![bytes * 8 + at] } else { vec![] };
                assert_eq!(code.locate(&flipped), Some(expected));
            }
        }
    }

    #[test]
    fn erased_bytes_have_an_erased_code_except_on_omap() {
        for bytes in [256, 512] {
            let code = |order| {
                Hamming::new(order, bytes)
                    .unwrap()
                    .parity(&[0xFF; 512][..media::index(bytes)])[0]
            };
            assert_eq!(code(HammingOrder::Linux), 0xFFFF_FF00_0000_0000);
            assert_eq!(code(HammingOrder::SmartMedia), 0xFFFF_FF00_0000_0000);
            assert_eq!(code(HammingOrder::Omap), 0);
        }
    }
}
