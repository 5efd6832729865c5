//! The thread that empties the ring. It copies records into chunks and sends them on, without decoding them.
//!
//! The programs wake it only when the ring is over half full, so it polls every 50 ms. If the receiver is so far behind
//! that the channel is full, the thread waits: then the ring fills, and the programs count lost records.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use libbpf_rs::{MapHandle, RingBufferBuilder};

use super::error::CaptureError;

const INTERVAL: Duration = Duration::from_millis(50);
/// Size of a chunk in bytes.
const CHUNK: usize = 1 << 20;
/// Chunks in the channel: 1 GiB, about five million requests.
pub(crate) const MAX_CHUNKS: usize = 1024;

/// Records, each preceded by its length.
#[derive(Debug, Default)]
pub(crate) struct Chunk {
    bytes: Vec<u8>,
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

/// Empties the ring until `stop`, and once more after it.
pub(crate) fn read(
    ring: &MapHandle,
    chunks: &SyncSender<Chunk>,
    stop: &AtomicBool,
) -> Result<(), CaptureError> {
    let refused = |error: libbpf_rs::Error| CaptureError::Refused {
        step: "reading the ring".to_owned(),
        source: std::io::Error::other(error.to_string()),
    };
    let current = std::cell::RefCell::new(Chunk::default());
    let send = || {
        let chunk = current.take();
        // The receiver is gone only if the trace ended with an error of its own.
        chunk.bytes.is_empty() || chunks.send(chunk).is_ok()
    };
    let mut builder = RingBufferBuilder::new();
    let take = |record: &[u8]| {
        current.borrow_mut().push(record);
        if current.borrow().bytes.len() >= CHUNK {
            send();
        }
        0
    };
    builder.add(ring, take).map_err(refused)?;
    let reader = builder.build().map_err(refused)?;
    loop {
        let last = stop.load(Ordering::Acquire);
        reader.consume().map_err(refused)?;
        if !send() || last {
            return Ok(());
        }
        match reader.poll(INTERVAL) {
            Ok(()) => {}
            Err(error) if error.kind() == libbpf_rs::ErrorKind::Interrupted => {}
            Err(error) => return Err(refused(error)),
        }
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
