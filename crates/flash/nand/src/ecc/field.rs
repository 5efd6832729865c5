//! Finite fields GF(2^m), by tables of powers and logarithms of a primitive element.
//!
//! An element is the bit pattern of a polynomial over GF(2) of degree below m. The tables take 6 bytes per element.

/// Smallest and largest m. Codes of NAND controllers use 13 to 15.
pub(super) const DEGREES: std::ops::RangeInclusive<u32> = 5..=15;

/// A field with its tables.
#[derive(Clone, Debug)]
pub(super) struct Field {
    degree: u32,
    /// Number of elements other than 0: the order of the primitive element.
    order: u32,
    /// Powers of the primitive element, twice, so that a sum of two logarithms needs no reduction.
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
        let order = (1_u32 << degree) - 1;
        let mut powers = Vec::with_capacity(media::index(2 * order));
        let mut logarithms = vec![0; media::index(order + 1)];
        let mut element = 1_u32;
        for exponent in 0..order {
            if exponent > 0 && element == 1 {
                return None;
            }
            let value = u16::try_from(element).ok()?;
            powers.push(value);
            logarithms[usize::from(value)] = u16::try_from(exponent).ok()?;
            element <<= 1;
            if element > order {
                element ^= polynomial;
            }
        }
        powers.extend_from_within(..);
        Some(Self {
            degree,
            order,
            powers,
            logarithms,
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

    /// A power of the primitive element; the exponent is below twice the order.
    pub(super) fn power(&self, exponent: u32) -> u16 {
        self.powers[media::index(exponent)]
    }

    /// The logarithm of an element other than 0.
    pub(super) fn logarithm(&self, element: u16) -> u32 {
        u32::from(self.logarithms[usize::from(element)])
    }

    pub(super) fn multiply(&self, one: u16, other: u16) -> u16 {
        if one == 0 || other == 0 {
            return 0;
        }
        self.power(self.logarithm(one) + self.logarithm(other))
    }

    /// `one / other`; `other` is not 0.
    pub(super) fn divide(&self, one: u16, other: u16) -> u16 {
        if one == 0 {
            return 0;
        }
        self.power(self.logarithm(one) + self.order - self.logarithm(other))
    }

    pub(super) fn square(&self, element: u16) -> u16 {
        self.multiply(element, element)
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
        for step in 0..2000_u16 {
            let (one, other) = (step.wrapping_mul(5) % 8192, step.wrapping_mul(37) % 8192);
            let product = field.multiply(one, other);
            assert_eq!(product, slow(one, other));
            if other != 0 {
                assert_eq!(field.divide(product, other), one);
            }
        }
    }
}
