//! PostMark's random number generator: the 32-bit Mersenne Twister, seeded as its authors did in 1999.
//!
//! The seeding is older than that of most libraries, and the remainder that selects from a range is slightly biased;
//! both are kept, because only they reproduce the same files, sizes and transactions.

const WORDS: usize = 624;
const DISTANCE: usize = 397;
const MATRIX: u32 = 0x9908_b0df;
const UPPER: u32 = 0x8000_0000;

/// A generator of 32-bit numbers.
#[derive(Clone, Debug)]
pub struct Twister {
    state: [u32; WORDS],
    next: usize,
}

impl Twister {
    /// The initial state for PostMark's `seed`.
    pub fn new(seed: u32) -> Self {
        let mut state = [0; WORDS];
        let mut number = seed;
        let step = |number: u32| number.wrapping_mul(69_069).wrapping_add(1);
        for word in &mut state {
            let high = number & 0xffff_0000;
            number = step(number);
            *word = high | (number >> 16);
            number = step(number);
        }
        Self { state, next: WORDS }
    }

    /// A number below `limit`. For 0 it returns 0 and draws no random number.
    pub fn below(&mut self, limit: u32) -> u32 {
        if limit == 0 { 0 } else { self.number() % limit }
    }

    fn number(&mut self) -> u32 {
        if self.next == WORDS {
            self.twist();
        }
        let mut number = self.state[self.next];
        self.next += 1;
        number ^= number >> 11;
        number ^= (number << 7) & 0x9d2c_5680;
        number ^= (number << 15) & 0xefc6_0000;
        number ^ (number >> 18)
    }

    fn twist(&mut self) {
        for place in 0..WORDS {
            let (this, following) = (self.state[place], self.state[(place + 1) % WORDS]);
            let joined = (this & UPPER) | (following & !UPPER);
            let odd = if joined & 1 == 1 { MATRIX } else { 0 };
            self.state[place] = self.state[(place + DISTANCE) % WORDS] ^ (joined >> 1) ^ odd;
        }
        self.next = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first text that PostMark 1.51 writes with its default seed, taken from its system calls.
    #[test]
    fn the_text_of_the_original_comes_out() {
        let mut twister = Twister::new(42);
        let text: Vec<u8> = (0..32)
            .map(|_| u8::try_from(32 + twister.below(95)).unwrap())
            .collect();
        assert_eq!(text, b"LeZebJ6S5~qPv$C$py}hmKd H58nM4~.");
    }

    #[test]
    fn an_empty_range_uses_no_number_up() {
        let (mut one, mut other) = (Twister::new(42), Twister::new(42));
        assert_eq!(one.below(0), 0);
        assert_eq!(one.number(), other.number());
    }
}
