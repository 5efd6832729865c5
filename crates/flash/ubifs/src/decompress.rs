//! Decompresses data nodes. The size of the block is known in advance and bounds the output.

use flate2::{Decompress, FlushDecompress, Status};
use thiserror::Error;
use zstd::bulk::Decompressor as Zstd;

use crate::format::Compression;
use crate::lzo;

/// Why decompression failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DecompressError {
    /// The compressor number is unknown.
    #[error("compressor {number} is unknown")]
    Unknown {
        /// The number.
        number: u16,
    },
    /// The stream is invalid.
    #[error("the {} stream is broken", compression.name())]
    Broken {
        /// The compressor.
        compression: Compression,
    },
    /// The output has another size than expected.
    #[error("the {} stream holds {found} bytes, its node says {expected}", compression.name())]
    Size {
        /// The compressor.
        compression: Compression,
        /// Size found.
        found: usize,
        /// Size expected.
        expected: usize,
    },
}

/// Decompresses `stored` into `block`. For a single block; a [`Decompressor`] is faster for many.
pub fn decompress(compression: Compression, stored: &[u8], block: &mut [u8]) -> Result<(), DecompressError> {
    Decompressor::default().fill(compression, stored, block)
}

/// State of the decompressors, which is larger than a block and therefore reused.
#[derive(Default)]
pub(crate) struct Decompressor {
    zlib: Option<Decompress>,
    zstd: Option<Zstd<'static>>,
}

impl Decompressor {
    /// Decompresses `stored` into `block`.
    pub(crate) fn fill(
        &mut self,
        compression: Compression,
        stored: &[u8],
        block: &mut [u8],
    ) -> Result<(), DecompressError> {
        let broken = DecompressError::Broken { compression };
        let found = match compression {
            Compression::None => {
                let size = DecompressError::Size {
                    compression,
                    found: stored.len(),
                    expected: block.len(),
                };
                // Encryption rounds up the length; without it the length is exact.
                block.copy_from_slice(stored.get(..block.len()).ok_or(size)?);
                stored.len()
            }
            Compression::Lzo => lzo::decompress(stored, block).ok_or(broken)?,
            Compression::Zlib => self.inflate(stored, block).ok_or(broken)?,
            Compression::Zstd => self.unzstd(stored, block).ok_or(broken)?,
        };
        if found == block.len() {
            return Ok(());
        }
        Err(DecompressError::Size {
            compression,
            found,
            expected: block.len(),
        })
    }

    /// Raw deflate, without zlib's header.
    fn inflate(&mut self, stored: &[u8], block: &mut [u8]) -> Option<usize> {
        let state = self.zlib.get_or_insert_with(|| Decompress::new(false));
        state.reset(false);
        let status = state.decompress(stored, block, FlushDecompress::Finish).ok()?;
        let all = usize::try_from(state.total_out()).ok()?;
        (status == Status::StreamEnd).then_some(all)
    }

    fn unzstd(&mut self, stored: &[u8], block: &mut [u8]) -> Option<usize> {
        if self.zstd.is_none() {
            self.zstd = Some(Zstd::new().ok()?);
        }
        self.zstd.as_mut()?.decompress_to_buffer(stored, block).ok()
    }
}
