//! Bit packing of integers, least significant bit first, and the CRC-16 of the LPT.

/// Packs integers.
#[derive(Default)]
pub(super) struct BitWriter {
    raw: Vec<u8>,
    pending: u64,
    pending_bits: u32,
}

impl BitWriter {
    /// Appends the lowest `bits` bits of `value`; at most 32.
    ///
    /// # Panics
    ///
    /// When `value` needs more than `bits` bits.
    pub(super) fn put(&mut self, value: u32, bits: u32) {
        assert!(
            bits <= 32 && u64::from(value) < 1 << bits,
            "{value} does not fit {bits} bits"
        );
        self.pending |= u64::from(value) << self.pending_bits;
        self.pending_bits += bits;
        while self.pending_bits >= 8 {
            self.raw.push(self.pending.to_le_bytes()[0]);
            self.pending >>= 8;
            self.pending_bits -= 8;
        }
    }

    /// The packed bytes; unused bits of the last byte are zero.
    pub(super) fn finish(mut self) -> Vec<u8> {
        if self.pending_bits > 0 {
            self.raw.push(self.pending.to_le_bytes()[0]);
        }
        self.raw
    }
}

/// Unpacks integers.
pub(super) struct BitReader<'a> {
    raw: std::slice::Iter<'a, u8>,
    pending: u64,
    pending_bits: u32,
}

impl<'a> BitReader<'a> {
    pub(super) fn new(raw: &'a [u8]) -> Self {
        Self {
            raw: raw.iter(),
            pending: 0,
            pending_bits: 0,
        }
    }

    /// The next integer of `bits` bits, at most 32; `None` at the end.
    pub(super) fn get(&mut self, bits: u32) -> Option<u32> {
        while self.pending_bits < bits {
            self.pending |= u64::from(*self.raw.next()?) << self.pending_bits;
            self.pending_bits += 8;
        }
        let value = self.pending & ((1 << bits) - 1);
        self.pending >>= bits;
        self.pending_bits -= bits;
        u32::try_from(value).ok()
    }
}

/// CRC-16 with the reflected polynomial 0x8005, seed all ones.
pub(super) fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0xFFFF, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte), |crc, _| match crc & 1 {
            0 => crc >> 1,
            _ => (crc >> 1) ^ 0xA001,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc_16_is_that_of_linux() {
        assert_eq!(crc16(b"123456789"), 0x4B37);
    }

    #[test]
    fn numbers_are_packed_from_the_lowest_bit() {
        let mut writer = BitWriter::default();
        for (value, bits) in [(0b101, 3), (0x3FF, 10), (0, 1), (0x8000_0001, 32), (1, 1)] {
            writer.put(value, bits);
        }
        let raw = writer.finish();
        assert_eq!(raw, [0b1111_1101, 0b0101_1111, 0, 0, 0, 0b0110_0000]);
        let mut reader = BitReader::new(&raw);
        assert_eq!(reader.get(3), Some(0b101));
        assert_eq!(reader.get(10), Some(0x3FF));
        assert_eq!(reader.get(1), Some(0));
        assert_eq!(reader.get(32), Some(0x8000_0001));
        assert_eq!(reader.get(1), Some(1));
        assert_eq!((reader.get(1), reader.get(8)), (Some(0), None));
    }
}
