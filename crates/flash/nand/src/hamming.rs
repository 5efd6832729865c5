//! The bytes that Linux's software Hamming ECC stores in the OOB area, so that an image with OOB equals one made by
//! `nanddump --oob`, and `nandwrite --noecc --oob` can write it to a chip of the kernel.
//!
//! Each 256 bytes have 3 bytes of parity ([`crate::ecc`] has the code). The codes are at the end of the OOB area, in
//! order; the bytes before them are 0xFF except for the bad-block mark. OOB areas of 16 bytes are too small for that and
//! have the codes at offsets 0 to 3, 6 and 7.
//!
//! The simulator does not correct errors with this code: the number of bits it corrects is a parameter of its model.

/// Bytes covered by one code.
const STEP_BYTES: usize = 256;
const CODE_BYTES: usize = 3;

/// Offsets of the codes of a 512-byte page in an OOB area of 16 bytes.
const SMALL_PLACES: [usize; 6] = [0, 1, 2, 3, 6, 7];

/// Writes the codes of `data`, a part of a page that begins at byte `start`, into the page's OOB area. Codes of
/// partly covered steps stay unchanged.
pub(crate) fn put_codes(oob: &mut [u8], page_bytes: usize, start: usize, data: &[u8]) {
    let codes_bytes = page_bytes / STEP_BYTES * CODE_BYTES;
    if codes_bytes == 0 || oob.len() < codes_bytes {
        return;
    }
    let is_small = oob.len() == 16 && codes_bytes == SMALL_PLACES.len();
    let first = start.next_multiple_of(STEP_BYTES);
    let steps = data.get(first - start..).unwrap_or(&[]).chunks_exact(STEP_BYTES);
    for (number, step) in (first / STEP_BYTES..).zip(steps) {
        for (part, byte) in code(step).into_iter().enumerate() {
            let at = number * CODE_BYTES + part;
            let place = if is_small {
                SMALL_PLACES[at]
            } else {
                oob.len() - codes_bytes + at
            };
            oob[place] = byte;
        }
    }
}

fn code(step: &[u8]) -> [u8; CODE_BYTES] {
    crate::ecc::linux_hamming(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn erased_bytes_have_an_erased_code() {
        assert_eq!(code(&[0xFF; 256]), [0xFF; 3]);
    }

    #[test]
    fn one_flipped_bit_moves_half_of_the_code_and_names_itself() {
        let step: Vec<u8> = (0..=255_u8).map(|at| at.wrapping_mul(37)).collect();
        let right = code(&step);
        for bit in 0..2048_usize {
            let mut wrong = step.clone();
            wrong[bit / 8] ^= 1 << (bit % 8);
            let other = code(&wrong);
            let moved: Vec<u8> = right.iter().zip(other).map(|(one, other)| one ^ other).collect();
            // The upper bit of each pair: the number of the wrong bit has this bit set.
            let upper = |byte: u8, pairs: std::ops::Range<u8>| {
                pairs.fold(0, |number, pair| {
                    number | usize::from(byte >> (2 * pair + 1) & 1) << pair
                })
            };
            let byte = upper(moved[0], 0..4) << 4 | upper(moved[1], 0..4);
            assert_eq!((byte, upper(moved[2] >> 2, 0..3)), (bit / 8, bit % 8));
            let ones: u32 = moved.iter().map(|byte| byte.count_ones()).sum();
            assert_eq!(ones, 11);
        }
    }

    #[test]
    fn codes_go_to_the_end_of_the_area_and_parts_leave_the_others_alone() {
        let mut oob = [0xFF; 64];
        put_codes(&mut oob, 2048, 512, &[0; 512]);
        let changed: Vec<_> = (0..64).filter(|at| oob[*at] != 0xFF).collect();
        assert!(changed.iter().all(|at| (46..52).contains(at)), "{changed:?}");
        let mut narrow = [0xFF; 8];
        put_codes(&mut narrow, 2048, 0, &[1; 2048]);
        assert_eq!(narrow, [0xFF; 8], "there is no room");
    }
}
