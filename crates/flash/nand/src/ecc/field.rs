//! Finite fields GF(2^m), by tables of powers and logarithms of a primitive element.
//!
//! An element is the bit pattern of a polynomial over GF(2) of degree below m. The tables take 4 bytes per element, and
//! are made when they are first used: codes divide without them, and only the location of wrong bits needs them.

use std::sync::OnceLock;

/// Smallest and largest m. Codes of NAND controllers use 13 to 15.
pub(super) const DEGREES: std::ops::RangeInclusive<u32> = 5..=15;

/// A field.
#[derive(Debug)]
pub(super) struct Field {
    degree: u32,
    polynomial: u32,
    /// Number of elements other than 0: the order of the primitive element.
    order: u32,
    tables: OnceLock<Tables>,
}

#[derive(Debug)]
struct Tables {
    /// Powers of the primitive element.
    powers: Vec<u16>,
    /// Logarithms; that of 0 is not used.
    logarithms: Vec<u16>,
}

impl Field {
    /// The field of `degree` whose elements are reduced by `polynomial`. Returns `None` unless x is primitive.
    pub(super) fn new(degree: u32, polynomial: u32) -> Option<Self> {
        if !DEGREES.contains(&degree) || polynomial >> degree != 1 {
            return None;
        }
        let field = Self {
            degree,
            polynomial,
            order: (1 << degree) - 1,
            tables: OnceLock::new(),
        };
        let is_primitive = field.elements().skip(1).all(|element| element != 1);
        is_primitive.then_some(field)
    }

    /// The powers of x, from exponent 0 on.
    fn elements(&self) -> impl Iterator<Item = u16> {
        let next = |element: &u16| Some(self.times_x(*element));
        std::iter::successors(Some(1), next).take(media::index(self.order))
    }

    /// The product with x.
    pub(super) fn times_x(&self, element: u16) -> u16 {
        let shifted = u32::from(element) << 1;
        let reduced = shifted ^ if shifted > self.order { self.polynomial } else { 0 };
        // At most 15 bits.
        let [low, high, ..] = reduced.to_le_bytes();
        u16::from_le_bytes([low, high])
    }

    fn tables(&self) -> &Tables {
        self.tables.get_or_init(|| {
            let powers: Vec<u16> = self.elements().collect();
            let mut logarithms = vec![0; media::index(self.order + 1)];
            for (exponent, element) in (0..).zip(&powers) {
                logarithms[usize::from(*element)] = exponent;
            }
            Tables { powers, logarithms }
        })
    }

    /// m.
    pub(super) fn degree(&self) -> u32 {
        self.degree
    }

    /// Number of elements other than 0.
    pub(super) fn order(&self) -> u32 {
        self.order
    }

    /// The product, without tables.
    pub(super) fn multiply_by_bits(&self, one: u16, other: u16) -> u16 {
        (0..self.degree).rev().fold(0, |product, bit| {
            self.times_x(product) ^ if other >> bit & 1 == 1 { one } else { 0 }
        })
    }

    /// The operations that need tables.
    pub(super) fn tabled(&self) -> Tabled<'_> {
        let tables = self.tables();
        Tabled {
            degree: self.degree,
            order: self.order,
            powers: &tables.powers,
            logarithms: &tables.logarithms,
        }
    }
}

/// A field with its tables.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tabled<'a> {
    degree: u32,
    order: u32,
    powers: &'a [u16],
    logarithms: &'a [u16],
}

impl Tabled<'_> {
    /// m.
    pub(super) fn degree(self) -> u32 {
        self.degree
    }

    /// Number of elements other than 0.
    pub(super) fn order(self) -> u32 {
        self.order
    }

    /// A power of the primitive element; the exponent is below the order.
    pub(super) fn power(self, exponent: u32) -> u16 {
        self.powers[media::index(exponent)]
    }

    /// The logarithm of an element other than 0.
    pub(super) fn logarithm(self, element: u16) -> u32 {
        u32::from(self.logarithms[usize::from(element)])
    }

    pub(super) fn multiply(self, one: u16, other: u16) -> u16 {
        if one == 0 || other == 0 {
            return 0;
        }
        self.power_of_sum(self.logarithm(one), self.logarithm(other))
    }

    /// `one / other`; `other` is not 0.
    pub(super) fn divide(self, one: u16, other: u16) -> u16 {
        if one == 0 {
            return 0;
        }
        self.power_of_sum(self.logarithm(one), self.order - self.logarithm(other))
    }

    pub(super) fn square(self, element: u16) -> u16 {
        self.multiply(element, element)
    }

    /// The power whose exponent is a sum below twice the order.
    pub(super) fn power_of_sum(self, one: u32, other: u32) -> u16 {
        let exponent = one + other;
        // The smaller one, as the difference wraps if the exponent is below the order.
        self.power(exponent.min(exponent.wrapping_sub(self.order)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_polynomial_without_a_primitive_root_is_refused() {
        for (degree, polynomial) in [
            (13, 0x201b),
            (14, 0x402b),
            (14, 0x4443),
            (14, 0x5803),
            (15, 0x8003),
        ] {
            assert!(Field::new(degree, polynomial).is_some(), "{polynomial:#x}");
        }
        for (degree, polynomial) in [(13, 0x2001), (13, 0x402b), (14, 0x4001), (3, 0xb), (16, 0x1_100b)] {
            assert!(Field::new(degree, polynomial).is_none(), "{polynomial:#x}");
        }
    }

    #[test]
    fn multiplication_agrees_with_shift_and_reduce() {
        let field = Field::new(13, 0x201b).unwrap();
        let slow = |one: u16, other: u16| {
            let mut product = 0_u32;
            for bit in (0..13).rev() {
                product <<= 1;
                if product >> 13 == 1 {
                    product ^= 0x201b;
                }
                if other >> bit & 1 == 1 {
                    product ^= u32::from(one);
                }
            }
            u16::try_from(product).unwrap()
        };
        let tabled = field.tabled();
        for step in 0..2000_u16 {
            let (one, other) = (step.wrapping_mul(5) % 8192, step.wrapping_mul(37) % 8192);
            let product = tabled.multiply(one, other);
            assert_eq!(product, slow(one, other));
            assert_eq!(product, field.multiply_by_bits(one, other));
            if other != 0 {
                assert_eq!(tabled.divide(product, other), one);
            }
        }
    }
}
