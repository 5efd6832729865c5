//! A straightforward encoder: long division bit by bit, and places written down per controller. It shares nothing with
//! the crate but the meaning of its names.
//!
//! A place is a bit of the raw page: `8 * byte + bit`, bit 0 the lowest.

/// Code words of one raw page: the places of message and parity, in order.
pub struct Page {
    pub raw: Vec<u8>,
    pub words: Vec<Vec<usize>>,
}

/// A binary BCH code.
pub struct Bch {
    /// Coefficients of the generator, highest first.
    generator: Vec<bool>,
}

impl Bch {
    pub fn new(m: u32, polynomial: u32, t: u32) -> Self {
        let multiply = |one: u32, other: u32| {
            let mut product = 0;
            for bit in (0..m).rev() {
                product <<= 1;
                if product >> m == 1 {
                    product ^= polynomial;
                }
                if other >> bit & 1 == 1 {
                    product ^= one;
                }
            }
            product
        };
        let power = |exponent: u32| (0..exponent).fold(1, |value, _| multiply(value, 2));
        // Multiplies in (x + a^root) for each root that is not one already.
        let mut generator: Vec<u32> = vec![1];
        let value_at =
            |polynomial: &[u32], at: u32| polynomial.iter().fold(0, |sum, next| multiply(sum, at) ^ next);
        for root in (1..2 * t).step_by(2) {
            let mut conjugate = power(root);
            while value_at(&generator, conjugate) != 0 {
                let mut next = generator.clone();
                next.push(0);
                for (place, coefficient) in generator.iter().enumerate() {
                    next[place + 1] ^= multiply(*coefficient, conjugate);
                }
                generator = next;
                conjugate = multiply(conjugate, conjugate);
            }
        }
        assert!(generator.iter().all(|coefficient| *coefficient <= 1));
        Self {
            generator: generator
                .into_iter()
                .map(|coefficient| coefficient == 1)
                .collect(),
        }
    }

    pub fn parity(&self, message: &[bool]) -> Vec<bool> {
        let mut register = vec![false; self.generator.len() - 1];
        for bit in message {
            let front = register[0] != *bit;
            register.rotate_left(1);
            let last = register.len() - 1;
            register[last] = false;
            if front {
                for (cell, tap) in register.iter_mut().zip(&self.generator[1..]) {
                    *cell ^= tap;
                }
            }
        }
        register
    }
}

/// Addition to the parity.
#[derive(Clone, Copy, PartialEq)]
pub enum Mask {
    None,
    /// Erased bytes have an erased parity.
    Erased,
}

/// The places of some bytes, in order.
pub fn places(bytes: std::ops::Range<usize>, lowest_first: bool) -> Vec<usize> {
    let of_byte = |byte: usize| {
        let bits: Vec<usize> = if lowest_first {
            (0..8).collect()
        } else {
            (0..8).rev().collect()
        };
        bits.into_iter().map(move |bit| byte * 8 + bit)
    };
    bytes.flat_map(of_byte).collect()
}

pub fn get(raw: &[u8], place: usize) -> bool {
    raw[place / 8] >> (place % 8) & 1 == 1
}

pub fn put(raw: &mut [u8], place: usize, bit: bool) {
    raw[place / 8] = raw[place / 8] & !(1 << (place % 8)) | u8::from(bit) << (place % 8);
}

pub fn flip(raw: &mut [u8], place: usize) {
    raw[place / 8] ^= 1 << (place % 8);
}

impl Page {
    pub fn erased(bytes: usize) -> Self {
        Self {
            raw: vec![0xFF; bytes],
            words: Vec::new(),
        }
    }

    /// Computes the parity of the bits at the places of `message` and stores it at those of `parity`.
    pub fn encode(&mut self, code: &Bch, mask: Mask, message: Vec<usize>, parity: &[usize]) {
        let bits: Vec<bool> = message.iter().map(|place| get(&self.raw, *place)).collect();
        let mut computed = code.parity(&bits);
        assert!(parity.len() >= computed.len());
        if mask == Mask::Erased {
            let of_ones = code.parity(&vec![true; bits.len()]);
            for (bit, of_ones) in computed.iter_mut().zip(of_ones) {
                *bit ^= !of_ones;
            }
        }
        for (place, bit) in parity.iter().zip(&computed) {
            put(&mut self.raw, *place, *bit);
        }
        let word = message
            .into_iter()
            .chain(parity[..computed.len()].iter().copied());
        self.words.push(word.collect());
    }

    /// Three bytes of Hamming parity at `first`, as `nand_ecc_sw_hamming` documents it: `code[0]` has the upper rows.
    pub fn encode_hamming(&mut self, data: std::ops::Range<usize>, parity: [usize; 3]) {
        let bytes = data.len();
        let mut parity_of = [[false; 2]; 12];
        for (number, byte) in self.raw[data.clone()].iter().enumerate() {
            for bit in 0..8 {
                let address = number * 8 + bit;
                for (n, pair) in parity_of.iter_mut().enumerate() {
                    pair[address >> n & 1] ^= byte >> bit & 1 == 1;
                }
            }
        }
        let mut code = [0xFF_u8; 3];
        let mut clear = |byte: usize, bit: usize, is_odd: bool| {
            if is_odd {
                code[byte] &= !(1 << bit);
            }
        };
        for (n, pair) in parity_of.into_iter().enumerate() {
            for (half, is_odd) in pair.into_iter().enumerate() {
                match n {
                    0..3 => clear(2, 2 + 2 * n + half, is_odd),
                    3..7 => clear(1, 2 * (n - 3) + half, is_odd),
                    7..11 => clear(0, 2 * (n - 7) + half, is_odd),
                    _ if bytes == 512 => clear(2, half, is_odd),
                    _ => {}
                }
            }
        }
        let mut word = places(data, false);
        for (place, byte) in parity.into_iter().zip(code) {
            self.raw[place] = byte;
            word.extend(places(place..place + 1, false));
        }
        if bytes == 256 {
            // Two bits are not used.
            word.retain(|place| !(place / 8 == parity[2] && place % 8 < 2));
        }
        self.words.push(word);
    }
}
