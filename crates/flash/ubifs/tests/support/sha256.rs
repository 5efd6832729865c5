//! SHA-256, used by the lab guest to identify contents. Spec: FIPS 180-4.

/// The digest in hex.
pub fn sha256(data: &[u8]) -> String {
    let (constants, mut state) = (roots(64, 3), roots(8, 2));
    let mut padded = data.to_vec();
    padded.push(0x80);
    padded.resize((padded.len() + 8).next_multiple_of(64) - 8, 0);
    let bits = u64::try_from(data.len()).expect("it is in memory") * 8;
    padded.extend_from_slice(&bits.to_be_bytes());
    for block in padded.chunks_exact(64) {
        let mut words: Vec<u32> = block
            .as_chunks::<4>()
            .0
            .iter()
            .map(|raw| u32::from_be_bytes(*raw))
            .collect();
        for at in 16..64 {
            let (a, b) = (words[at - 15], words[at - 2]);
            let small = a.rotate_right(7) ^ a.rotate_right(18) ^ a >> 3;
            let large = b.rotate_right(17) ^ b.rotate_right(19) ^ b >> 10;
            words.push(
                words[at - 16]
                    .wrapping_add(small)
                    .wrapping_add(words[at - 7])
                    .wrapping_add(large),
            );
        }
        let mut s = state.clone();
        for (word, constant) in words.iter().zip(&constants) {
            let first = s[4].rotate_right(6) ^ s[4].rotate_right(11) ^ s[4].rotate_right(25);
            let choice = s[4] & s[5] ^ !s[4] & s[6];
            let one = [first, choice, *constant, *word]
                .iter()
                .fold(s[7], |sum, part| sum.wrapping_add(*part));
            let second = s[0].rotate_right(2) ^ s[0].rotate_right(13) ^ s[0].rotate_right(22);
            let two = second.wrapping_add(s[0] & s[1] ^ s[0] & s[2] ^ s[1] & s[2]);
            s.rotate_right(1);
            s[4] = s[4].wrapping_add(one);
            s[0] = one.wrapping_add(two);
        }
        for (sum, part) in state.iter_mut().zip(&s) {
            *sum = sum.wrapping_add(*part);
        }
    }
    state.iter().map(|word| format!("{word:08x}")).collect()
}

/// The first 32 fractional bits of the square (2) or cube (3) roots of the first primes.
fn roots(count: usize, power: u32) -> Vec<u32> {
    let is_prime = |number: &u128| (2..*number).all(|divisor| !number.is_multiple_of(divisor));
    let root = |prime: u128| {
        // The largest integer whose power is at most prime * 2^(32 * power).
        let scaled = prime << (32 * power);
        let mut value: u128 = 0;
        for bit in (0..42).rev() {
            let larger = value | 1 << bit;
            if larger.pow(power) <= scaled {
                value = larger;
            }
        }
        u32::try_from(value & 0xFFFF_FFFF).expect("it is masked")
    };
    (2..).filter(is_prime).take(count).map(root).collect()
}

#[test]
fn sha256_of_abc_is_that_of_the_standard() {
    assert_eq!(
        sha256(b"abc"),
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    );
}
