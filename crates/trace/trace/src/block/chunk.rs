//! Chunks of records on their way from a source to the caller's thread.

/// Chunks in the channel: 1 GiB, about five million requests.
pub(crate) const MAX_CHUNKS: usize = 1024;

/// Records, each preceded by its length.
#[derive(Debug, Default)]
pub(crate) struct Chunk {
    pub bytes: Vec<u8>,
}

impl Chunk {
    /// Adds a record.
    pub(crate) fn push(&mut self, record: &[u8]) {
        let length = u32::try_from(record.len()).expect("no record is longer than 280 bytes");
        self.bytes.extend_from_slice(&length.to_ne_bytes());
        self.bytes.extend_from_slice(record);
    }

    /// The records, in the order of the ring.
    pub(crate) fn records(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = self.bytes.as_slice();
        std::iter::from_fn(move || {
            let (length, after) = rest.split_first_chunk::<4>()?;
            let length = usize::try_from(u32::from_ne_bytes(*length)).ok()?;
            let (record, after) = after.split_at_checked(length)?;
            rest = after;
            Some(record)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_out_of_a_chunk_as_they_went_in() {
        let mut chunk = Chunk::default();
        chunk.push(b"one");
        chunk.push(b"");
        chunk.push(b"three");
        let records: Vec<&[u8]> = chunk.records().collect();
        assert_eq!(records, [b"one".as_slice(), b"", b"three"]);
    }
}
