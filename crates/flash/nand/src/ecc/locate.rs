//! Decoding of binary BCH codes: syndromes, the error locator by Berlekamp and Massey, its roots by Chien's search.
//!
//! Before the search, which looks at each bit of the word, `x^(2^m) = x` modulo the locator says whether it splits into
//! distinct linear factors at all. The locator of a word with too many errors rarely does, so such words are cheap to
//! recognise; trials of layouts meet hardly anything else. The roots found are checked against the syndromes.

use super::field::Tabled;

/// Exponents of the wrong bits of a word whose remainder has the terms `terms`, or `None` if no `strength` bits below
/// `word_bits` explain it.
pub(super) fn locate(field: Tabled<'_>, strength: u32, terms: &[u32], word_bits: u32) -> Option<Vec<u32>> {
    let syndromes = syndromes(field, strength, terms);
    let locator = locator(field, &syndromes)?;
    if locator.len() - 1 > media::index(strength) || !splits(field, &locator) {
        return None;
    }
    let roots = roots(field, &locator, word_bits);
    let explains = || {
        let found = self::syndromes(field, strength, &roots);
        found
            .iter()
            .zip(&syndromes)
            .step_by(2)
            .all(|(found, wanted)| found == wanted)
    };
    (roots.len() == locator.len() - 1 && explains()).then_some(roots)
}

/// Values of the polynomial with these terms at the powers 1 to 2t of the primitive element.
fn syndromes(field: Tabled<'_>, strength: u32, terms: &[u32]) -> Vec<u16> {
    let order = field.order();
    let mut syndromes = vec![0_u16; media::index(2 * strength)];
    for term in terms {
        let first = term % order;
        let step = 2 * first % order;
        let mut exponent = first;
        for syndrome in syndromes.iter_mut().step_by(2) {
            *syndrome ^= field.power(exponent);
            exponent += step;
            if exponent >= order {
                exponent -= order;
            }
        }
    }
    // S(2j) = S(j)^2 in characteristic 2.
    for even in (1..syndromes.len()).step_by(2) {
        syndromes[even] = field.square(syndromes[even / 2]);
    }
    syndromes
}

/// The shortest polynomial with constant 1 that generates the syndromes, lowest coefficient first and the highest not 0.
/// Returns `None` if its degree is below its length, as no set of positions has.
fn locator(field: Tabled<'_>, syndromes: &[u16]) -> Option<Vec<u16>> {
    let size = syndromes.len() + 2;
    let mut current = vec![0_u16; size];
    current[0] = 1;
    let mut previous = current.clone();
    let (mut length, mut distance, mut previous_discrepancy) = (0, 1, 1);
    for at in 0..syndromes.len() {
        let discrepancy = (1..=length.min(at)).fold(syndromes[at], |sum, place| {
            sum ^ field.multiply(current[place], syndromes[at - place])
        });
        if discrepancy == 0 {
            distance += 1;
            continue;
        }
        let factor = field.divide(discrepancy, previous_discrepancy);
        let before = (2 * length <= at).then(|| current.clone());
        for place in 0..size.saturating_sub(distance) {
            let product = field.multiply(factor, previous[place]);
            current[place + distance] ^= product;
        }
        match before {
            Some(before) => {
                length = at + 1 - length;
                previous = before;
                previous_discrepancy = discrepancy;
                distance = 1;
            }
            None => distance += 1,
        }
    }
    let degree = current.iter().rposition(|coefficient| *coefficient != 0)?;
    current.truncate(degree + 1);
    (degree == length).then_some(current)
}

/// Whether a polynomial of degree 1 or more is a product of distinct linear factors, none of them x.
fn splits(field: Tabled<'_>, locator: &[u16]) -> bool {
    let degree = locator.len() - 1;
    if degree < 2 {
        return true;
    }
    let leading = locator[degree];
    // Places and logarithms of the other coefficients, divided by the leading one.
    let monic: Vec<(usize, u32)> = locator[..degree]
        .iter()
        .enumerate()
        .filter(|(_, low)| **low != 0)
        .map(|(place, low)| (place, field.logarithm(field.divide(*low, leading))))
        .collect();
    let mut power = vec![0_u16; 2 * degree];
    power[1] = 1;
    for _ in 0..field.degree() {
        for place in (0..degree).rev() {
            let square = field.square(power[place]);
            power[place] = 0;
            power[2 * place] = square;
        }
        for high in (degree..2 * degree).rev() {
            let factor = std::mem::take(&mut power[high]);
            if factor == 0 {
                continue;
            }
            let factor = field.logarithm(factor);
            let sums = &mut power[high - degree..high];
            for (place, low) in &monic {
                sums[*place] ^= field.power_of_sum(factor, *low);
            }
        }
    }
    power[1] == 1
        && power[..degree]
            .iter()
            .enumerate()
            .all(|(place, low)| place == 1 || *low == 0)
}

/// Exponents below `word_bits` whose inverse powers are roots.
fn roots(field: Tabled<'_>, locator: &[u16], word_bits: u32) -> Vec<u32> {
    let order = field.order();
    let degree = locator.len() - 1;
    if degree == 1 {
        let root = field.logarithm(locator[1]);
        return (root < word_bits).then_some(root).into_iter().collect();
    }
    // The logarithm of each term at the current exponent, and the decrease from one exponent to the next.
    let mut terms: Vec<(u32, u32)> = (0..)
        .zip(locator)
        .skip(1)
        .filter(|(_, coefficient)| **coefficient != 0)
        .map(|(place, coefficient)| (field.logarithm(*coefficient), place % order))
        .collect();
    let mut roots = Vec::with_capacity(degree);
    for exponent in 0..word_bits {
        let mut sum = 1;
        for (logarithm, decrease) in &mut terms {
            sum ^= field.power(*logarithm);
            *logarithm = match logarithm.checked_sub(*decrease) {
                Some(next) => next,
                None => *logarithm + order - *decrease,
            };
        }
        if sum == 0 {
            roots.push(exponent);
            if roots.len() == degree {
                break;
            }
        }
    }
    roots
}

#[cfg(test)]
mod tests {
    use super::super::field::Field;
    use super::*;

    #[test]
    fn the_locator_of_errors_splits_and_one_with_a_double_or_missing_root_does_not() {
        let field = Field::new(13, 0x201b).unwrap();
        let field = field.tabled();
        let of_errors = |errors: &[u32]| locator(field, &syndromes(field, 5, errors)).unwrap();
        for errors in [&[7][..], &[0, 8190], &[3, 100, 4000], &[1, 2, 3, 4, 5]] {
            let locator = of_errors(errors);
            assert!(splits(field, &locator));
            assert_eq!(roots(field, &locator, 8191), errors);
        }
        // (1 + x)^2, and x^2 + x + c for a c that has no roots.
        assert!(!splits(field, &[1, 0, 1]));
        let without = (1..100_u16)
            .filter(|constant| !splits(field, &[*constant, 1, 1]))
            .count();
        assert!((30..70).contains(&without), "{without} of 99");
    }
}
