//! The thread that empties the ring. It copies records into chunks and sends them on, without decoding them.
//!
//! The programs wake it only when the ring is over half full, so it polls every 50 ms. If the receiver is so far behind
//! that the channel is full, the thread waits: then the ring fills, and the programs count lost records.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use libbpf_rs::RingBufferBuilder;

use super::chunk::Chunk;
use super::error::CaptureError;
use super::programs::RingHandle;

const INTERVAL: Duration = Duration::from_millis(50);
/// Size of a chunk in bytes.
const CHUNK: usize = 1 << 20;
/// Empties the ring until `stop`, and once more after it.
pub(crate) fn read(
    ring: &RingHandle,
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
