//! Little- and big-endian fields of on-media structures.
//!
//! Readers check the length of a structure once, when they fetch it. A field that still lies outside of the slice reads
//! as zero: a damaged offset may produce a wrong value, which later checks detect, but never ends the program.

/// The bytes of a field, or zeros if the slice does not contain all of it.
fn field<const N: usize>(raw: &[u8], at: usize) -> [u8; N] {
    at.checked_add(N)
        .and_then(|end| raw.get(at..end))
        .and_then(|bytes| bytes.try_into().ok())
        .unwrap_or([0; N])
}

/// One byte.
pub(crate) fn byte(raw: &[u8], at: usize) -> u8 {
    raw.get(at).copied().unwrap_or(0)
}

/// Two bytes, little-endian.
pub(crate) fn le16(raw: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(field(raw, at))
}

/// Four bytes, little-endian.
pub(crate) fn le32(raw: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(field(raw, at))
}

/// Eight bytes, little-endian.
pub(crate) fn le64(raw: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(field(raw, at))
}

/// Four bytes, big-endian: the journal of ext4.
pub(crate) fn be32(raw: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(field(raw, at))
}

/// Two bytes, big-endian.
pub(crate) fn be16(raw: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(field(raw, at))
}

/// Joins the separate halves of a 64-bit number.
pub(crate) fn joined(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

/// A count or offset in memory. Values too large for memory become the largest `usize`, which no slice reaches.
pub(crate) fn index(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

/// A length in memory as a number of bytes on a medium.
pub(crate) fn count(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_outside_of_the_slice_are_zero() {
        let raw = [1, 2, 3, 4, 5, 6, 7, 8];
        assert_eq!(le16(&raw, 6), 0x0807);
        assert_eq!(le16(&raw, 7), 0);
        assert_eq!(le32(&raw, usize::MAX), 0);
        assert_eq!(le64(&raw, 0), 0x0807_0605_0403_0201);
        assert_eq!(be32(&raw, 0), 0x0102_0304);
    }
}
