//! CRC-32C (Castagnoli) and CRC-16 as ext4 uses them, and CRC-32 as GPT does: plain updates of a seed.
//!
//! ext4 inverts neither the seed nor the result: the result of one part is the seed of the next.

/// Tables for eight bytes at a time.
static CASTAGNOLI: [[u32; 256]; 8] = tables(0x82F6_3B78);
static IEEE: [[u32; 256]; 8] = tables(0xEDB8_8320);

const fn tables(polynomial: u32) -> [[u32; 256]; 8] {
    let mut tables = [[0_u32; 256]; 8];
    let mut index = 0;
    let mut value = 0_u32;
    while index < 256 {
        let mut crc = value;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 {
                crc >> 1 ^ polynomial
            } else {
                crc >> 1
            };
            bit += 1;
        }
        tables[0][index] = crc;
        index += 1;
        value += 1;
    }
    let mut table = 1;
    while table < 8 {
        let mut index = 0;
        while index < 256 {
            let before = tables[table - 1][index];
            let [low, ..] = before.to_le_bytes();
            tables[table][index] = before >> 8 ^ tables[0][widen(low)];
            index += 1;
        }
        table += 1;
    }
    tables
}

/// `usize::from` is not yet usable in constants.
const fn widen(byte: u8) -> usize {
    let mut result = 0;
    let mut bit = 0;
    while bit < 8 {
        if byte >> bit & 1 == 1 {
            result |= 1 << bit;
        }
        bit += 1;
    }
    result
}

fn update(tables: &[[u32; 256]; 8], mut crc: u32, data: &[u8]) -> u32 {
    let (eights, rest) = data.as_chunks::<8>();
    for eight in eights {
        let [a, b, c, d, e, f, g, h] = *eight;
        let [w, x, y, z] = crc.to_le_bytes();
        crc = tables[7][usize::from(a ^ w)]
            ^ tables[6][usize::from(b ^ x)]
            ^ tables[5][usize::from(c ^ y)]
            ^ tables[4][usize::from(d ^ z)]
            ^ tables[3][usize::from(e)]
            ^ tables[2][usize::from(f)]
            ^ tables[1][usize::from(g)]
            ^ tables[0][usize::from(h)];
    }
    for byte in rest {
        let [low, ..] = crc.to_le_bytes();
        crc = crc >> 8 ^ tables[0][usize::from(low ^ byte)];
    }
    crc
}

/// CRC-32C of `data`, continued from `seed`.
pub(crate) fn crc32c(seed: u32, data: &[u8]) -> u32 {
    update(&CASTAGNOLI, seed, data)
}

/// CRC-32 of `data` with the usual inversions, as in GPT headers.
pub(crate) fn crc32(data: &[u8]) -> u32 {
    !update(&IEEE, u32::MAX, data)
}

/// CRC-16 (polynomial 0x8005, reflected) of `data`, continued from `seed`: group descriptors before `metadata_csum`.
pub(crate) fn crc16(seed: u16, data: &[u8]) -> u16 {
    data.iter().fold(seed, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte), |crc, _| {
            if crc & 1 == 1 { crc >> 1 ^ 0xA001 } else { crc >> 1 }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_values_of_the_catalogue_come_out() {
        let nine = b"123456789";
        assert_eq!(!crc32c(u32::MAX, nine), 0xE306_9283);
        assert_eq!(crc32(nine), 0xCBF4_3926);
        assert_eq!(crc16(0, nine), 0xBB3D);
    }

    #[test]
    fn a_checksum_in_pieces_is_that_of_the_whole() {
        let data: Vec<u8> = (0..=255).collect();
        let pieces = crc32c(crc32c(7, &data[..13]), &data[13..]);
        assert_eq!(pieces, crc32c(7, &data));
    }
}
