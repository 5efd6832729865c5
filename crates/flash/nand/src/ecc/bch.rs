//! Binary BCH codes as NAND controllers and Linux's `lib/bch.c` use them: systematic, shortened, over GF(2^m).
//!
//! A message is a string of bits, highest bit of the first byte first; it is a polynomial whose last bit is the
//! coefficient of the lowest power. Its parity is the remainder of `message * x^(m t)` divided by the generator, the
//! product of the minimal polynomials of the odd powers 1 to 2t - 1 of the primitive element. Bits in front of the
//! message that are 0 change nothing: that is the shortening, and messages are filled up with zeros in front to a
//! multiple of 8 bytes, so that the division takes 8 bytes at a time, by a table for each of their bytes. Tables
//! of long parities would exceed a processor's first cache, so each half of a byte has one.
//!
//! A word with up to t wrong bits is corrected. One with more is recognised unless it lies within t bits of another
//! code word; for random words that is a fraction of about `(n / 2^m)^t / t!` of n used bits ([`super::Code`]).

use std::sync::Arc;

use super::field::Field;
use super::locate::locate;

/// Words of 64 bits that hold every parity: 64 corrected bits in GF(2^14).
pub(super) const WORDS_MAX: usize = 14;
/// Bytes that one turn of the division takes.
const SLICE: usize = 8;
/// Longest parity in words whose tables have a row for each value of a byte.
const WORDS_BY_BYTES: usize = 3;

/// Parity bits, first bit highest, the rest 0.
pub(super) type Parity = [u64; WORDS_MAX];

/// A code with its tables: 16 KiB per 64 parity bits up to 192, 2 KiB beyond, and those of the field, which codes share.
#[derive(Debug)]
pub(super) struct Bch {
    field: Arc<Field>,
    strength: u32,
    parity_bits: u32,
    words: usize,
    /// For each byte or half of one in a slice, the last one first, for each value, the words of its remainder.
    tables: Vec<u64>,
}

impl Bch {
    /// The code that corrects `strength` bits over a field. Returns `None` if the parity is longer than [`WORDS_MAX`]
    /// words or than the code.
    pub(super) fn new(field: Arc<Field>, strength: u32) -> Option<Self> {
        let degree = field.degree();
        if strength == 0 || u64::from(strength) * u64::from(degree) >= u64::from(field.order()) {
            return None;
        }
        if media::index(strength * degree) > WORDS_MAX * 64 {
            return None;
        }
        let (generator, parity_bits) = generator(&field, strength);
        let words = parity_bits.div_ceil(64);
        // Without the leading coefficient, highest first.
        let mut divisor = [0_u64; WORDS_MAX];
        let is_set = |power: usize| generator[power / 64] >> (power % 64) & 1 == 1;
        for place in (0..parity_bits).filter(|place| is_set(parity_bits - 1 - place)) {
            divisor[place / 64] |= 1 << (63 - place % 64);
        }
        Some(Self {
            field,
            strength,
            parity_bits: u32::try_from(parity_bits).ok()?,
            words,
            tables: tables(&divisor, words),
        })
    }

    /// Length of the parity.
    pub(super) fn parity_bits(&self) -> u32 {
        self.parity_bits
    }

    /// Longest message in bits.
    pub(super) fn message_bits_max(&self) -> u32 {
        self.field.order() - self.parity_bits
    }

    /// The parity of a message whose length is a multiple of 8 bytes; the rest beyond one is ignored.
    pub(super) fn parity(&self, message: &[u8]) -> Parity {
        match self.words {
            1 => self.divide::<1, 8>(message),
            2 => self.divide::<2, 8>(message),
            3 => self.divide::<3, 8>(message),
            4 => self.divide::<4, 4>(message),
            5 => self.divide::<5, 4>(message),
            6 => self.divide::<6, 4>(message),
            7 => self.divide::<7, 4>(message),
            8 => self.divide::<8, 4>(message),
            9 => self.divide::<9, 4>(message),
            10 => self.divide::<10, 4>(message),
            11 => self.divide::<11, 4>(message),
            12 => self.divide::<12, 4>(message),
            13 => self.divide::<13, 4>(message),
            _ => self.divide::<14, 4>(message),
        }
    }

    /// `BITS`: those of a row's number.
    fn divide<const WORDS: usize, const BITS: u32>(&self, message: &[u8]) -> Parity {
        let (rows, _) = self.tables.as_chunks::<WORDS>();
        let mut state = [0_u64; WORDS];
        let (slices, _) = message.as_chunks::<SLICE>();
        for slice in slices {
            let mut front = u64::from_be_bytes(*slice) ^ state[0];
            let mut next = [0_u64; WORDS];
            next[..WORDS - 1].copy_from_slice(&state[1..]);
            for values in rows.chunks_exact(1 << BITS) {
                let [low, ..] = front.to_le_bytes();
                let row = &values[usize::from(low) % (1 << BITS)];
                front >>= BITS;
                for (word, change) in next.iter_mut().zip(row) {
                    *word ^= change;
                }
            }
            state = next;
        }
        let mut parity = [0; WORDS_MAX];
        parity[..WORDS].copy_from_slice(&state);
        parity
    }

    /// The wrong bits of a code word of `word_bits`, message and parity, numbered from its first bit, whose parity
    /// differs by `difference` from that of its message. Returns `None` if there are more than can be corrected.
    pub(super) fn locate(&self, difference: &Parity, word_bits: u32) -> Option<Vec<u32>> {
        let exponents = self.exponents(difference);
        if exponents.is_empty() {
            return Some(Vec::new());
        }
        if word_bits > self.field.order() {
            return None;
        }
        let found = locate(self.field.tabled(), self.strength, &exponents, word_bits)?;
        Some(
            found
                .into_iter()
                .map(|exponent| word_bits - 1 - exponent)
                .collect(),
        )
    }

    /// Exponents of the terms of a remainder.
    fn exponents(&self, difference: &Parity) -> Vec<u32> {
        let mut exponents = Vec::new();
        for (first, word) in (0..).step_by(64).zip(&difference[..self.words]) {
            let mut rest = *word;
            while rest != 0 {
                let place = first + rest.leading_zeros();
                exponents.push(self.parity_bits - 1 - place);
                rest &= !(1 << (63 - rest.leading_zeros()));
            }
        }
        exponents
    }
}

/// The generator, lowest coefficient first, and its degree.
fn generator(field: &Field, strength: u32) -> (Vec<u64>, usize) {
    let mut product = vec![0_u64; WORDS_MAX + 1];
    product[0] = 1;
    let mut degree = 0;
    for root in (1..2 * strength).step_by(2) {
        let conjugates = conjugates(field, root);
        // The smallest one of them is odd and came before.
        if conjugates.iter().any(|conjugate| *conjugate < root) {
            continue;
        }
        degree += conjugates.len();
        let factor = minimal_polynomial(field, &conjugates);
        let mut next = vec![0_u64; WORDS_MAX + 1];
        for (shift, _) in factor.iter().enumerate().filter(|(_, is_set)| **is_set) {
            for word in (0..=WORDS_MAX).rev() {
                let carried = match (word.checked_sub(1), shift) {
                    (None, _) | (_, 0) => 0,
                    (Some(lower), _) => product[lower] >> (64 - shift),
                };
                next[word] ^= product[word] << shift | carried;
            }
        }
        product = next;
    }
    (product, degree)
}

/// Exponents of the elements with the same minimal polynomial.
fn conjugates(field: &Field, root: u32) -> Vec<u32> {
    let double = |exponent: &u32| Some(exponent * 2 % field.order()).filter(|next| *next != root);
    std::iter::successors(Some(root), double).collect()
}

fn minimal_polynomial(field: &Field, conjugates: &[u32]) -> Vec<bool> {
    let mut polynomial = vec![1_u16];
    // A conjugate is the square of the one before.
    let first = conjugates.first().copied().unwrap_or_default();
    let mut root = (0..first).fold(1, |power, _| field.times_x(power));
    for _ in conjugates {
        // Times (x + root).
        polynomial.insert(0, 0);
        for place in 0..polynomial.len() - 1 {
            let product = field.multiply_by_bits(polynomial[place + 1], root);
            polynomial[place] ^= product;
        }
        root = field.multiply_by_bits(root, root);
    }
    polynomial
        .into_iter()
        .map(|coefficient| coefficient == 1)
        .collect()
}

/// The tables of a divisor of `words` words.
fn tables(divisor: &Parity, words: usize) -> Vec<u64> {
    let bits = if words <= WORDS_BY_BYTES { 8 } else { 4 };
    let values = 1 << bits;
    let rows = media::index(64 / bits) * values;
    let mut tables = Vec::with_capacity(rows * words);
    let row = |tables: &[u64], at: usize| {
        let mut row = [0; WORDS_MAX];
        row[..words].copy_from_slice(&tables[at * words..][..words]);
        row
    };
    for at in 0..rows {
        let mut state = [0; WORDS_MAX];
        match at.checked_sub(values) {
            None => {
                for bit in (0..bits).rev() {
                    let is_set = (state[0] >> 63 == 1) != (at >> bit & 1 == 1);
                    shift_left(&mut state, 1);
                    add_if(&mut state, divisor, is_set);
                }
            }
            // That of the place before, divided on.
            Some(before) => {
                state = row(&tables, before);
                let front = usize::from(state[0].to_be_bytes()[0]) >> (8 - bits);
                shift_left(&mut state, bits);
                add_if(&mut state, &row(&tables, front), true);
            }
        }
        tables.extend_from_slice(&state[..words]);
    }
    tables
}

/// Shifts by 1 to 63 bits.
fn shift_left(state: &mut Parity, bits: u32) {
    for word in 0..WORDS_MAX {
        let next = state.get(word + 1).copied().unwrap_or(0);
        state[word] = state[word] << bits | next >> (64 - bits);
    }
}

fn add_if(sum: &mut Parity, other: &Parity, adds: bool) {
    if adds {
        for (word, change) in sum.iter_mut().zip(other) {
            *word ^= change;
        }
    }
}

#[cfg(test)]
mod tests {
    use testkit::prng::Prng;

    use super::*;

    fn code_over(degree: u32, polynomial: u32, strength: u32) -> Option<Bch> {
        Bch::new(Arc::new(Field::new(degree, polynomial)?), strength)
    }

    /// Division bit by bit.
    fn slow_parity(code: &Bch, message: &[u8]) -> Vec<bool> {
        let (words, parity_bits) = generator(&code.field, code.strength);
        let generator: Vec<bool> = (0..=parity_bits)
            .map(|power| words[power / 64] >> (power % 64) & 1 == 1)
            .collect();
        let mut rest: Vec<bool> = message
            .iter()
            .flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1 == 1))
            .chain(std::iter::repeat_n(false, parity_bits))
            .collect();
        for at in 0..rest.len() - parity_bits {
            if rest[at] {
                for (place, is_set) in generator.iter().rev().enumerate() {
                    rest[at + place] ^= is_set;
                }
            }
        }
        rest.split_off(rest.len() - parity_bits)
    }

    fn bits(parity: &Parity, count: u32) -> Vec<bool> {
        (0..media::index(count))
            .map(|at| parity[at / 64] >> (63 - at % 64) & 1 == 1)
            .collect()
    }

    #[test]
    fn the_tables_divide_as_long_division_does() {
        let mut random = Prng::new(3);
        for (degree, polynomial, strength) in [
            (13, 0x201b, 1),
            (13, 0x201b, 4),
            (13, 0x201b, 8),
            (13, 0x201b, 40),
            (14, 0x402b, 24),
            (14, 0x5803, 60),
            (15, 0x8003, 16),
        ] {
            let code = code_over(degree, polynomial, strength).unwrap();
            let message = random.bytes(136);
            assert_eq!(code.parity_bits(), degree * strength);
            let parity = code.parity(&message);
            assert_eq!(
                bits(&parity, code.parity_bits()),
                slow_parity(&code, &message),
                "t {strength}"
            );
        }
    }

    #[test]
    fn zeros_in_front_change_nothing() {
        let code = code_over(14, 0x402b, 8).unwrap();
        let message = Prng::new(4).bytes(64);
        assert_eq!(
            code.parity(&[&[0; 24][..], &message].concat()),
            code.parity(&message)
        );
    }

    #[test]
    fn impossible_codes_are_refused() {
        assert!(code_over(13, 0x201b, 0).is_none());
        assert!(code_over(14, 0x402b, 65).is_none());
        assert!(code_over(5, 0x25, 7).is_none());
        assert!(code_over(13, 0x2019, 4).is_none());
    }
}
