//! Compresses file blocks for data nodes.
//!
//! As in Linux, short and incompressible blocks are stored uncompressed. The output differs from that of the kernel's
//! compressors, but its decompressors accept it.

use flate2::{Compress, FlushCompress, Status};
use lzokay::compress::{Dict, compress_with_dict};

use crate::format::Compression;
use crate::lzo::pack::Encoder;

/// Shorter blocks are stored uncompressed.
const BLOCK_BYTES_MIN: usize = 128;
/// Blocks that would save less than this are stored uncompressed.
const SAVED_BYTES_MIN: usize = 64;

/// Compression of new blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compressor {
    /// A single compressor, or none.
    Only(Compression),
    /// LZO, or deflate if that is at least `percent` smaller.
    FavorLzo {
        /// Percent of the size after LZO.
        percent: u32,
    },
}

impl Compressor {
    /// The compressor named in inodes and the superblock.
    #[must_use]
    pub const fn default_of_files(self) -> Compression {
        match self {
            Self::Only(compression) => compression,
            Self::FavorLzo { .. } => Compression::Lzo,
        }
    }
}

/// Compresses blocks; owns the state of the compressors.
pub(crate) struct Packer {
    compressor: Compressor,
    lzo: Lzo,
    zstd: zstd::bulk::Compressor<'static>,
}

/// An LZO compressor.
enum Lzo {
    /// For size, used for images.
    Thorough(Box<Dict>),
    /// For speed, used for mounted file systems.
    Quick(Encoder),
}

impl Packer {
    /// For images, which are written once and read often.
    pub(crate) fn thorough(compressor: Compressor) -> Self {
        Self::new(compressor, Lzo::Thorough(Dict::new()))
    }

    /// For mounted file systems.
    pub(crate) fn quick(compressor: Compressor) -> Self {
        Self::new(compressor, Lzo::Quick(Encoder::new()))
    }

    fn new(compressor: Compressor, lzo: Lzo) -> Self {
        Self {
            compressor,
            lzo,
            zstd: zstd::bulk::Compressor::default(),
        }
    }

    /// Compresses a block; returns the compressor used and the bytes to store.
    pub(crate) fn pack(&mut self, block: &[u8]) -> (Compression, Vec<u8>) {
        let as_it_is = || (Compression::None, block.to_vec());
        if block.len() < BLOCK_BYTES_MIN {
            return as_it_is();
        }
        let packed = match self.compressor {
            Compressor::Only(compression) => self.by(compression, block).map(|packed| (compression, packed)),
            Compressor::FavorLzo { percent } => self.best(block, percent),
        };
        packed
            .filter(|(_, packed)| packed.len() + SAVED_BYTES_MIN <= block.len())
            .unwrap_or_else(as_it_is)
    }

    fn best(&mut self, block: &[u8], percent: u32) -> Option<(Compression, Vec<u8>)> {
        let lzo = self.by(Compression::Lzo, block)?;
        let zlib = self.by(Compression::Zlib, block)?;
        let worth = lzo.len() - lzo.len() * crate::scan::to_usize(percent.min(100)) / 100;
        Some(match zlib.len() <= worth {
            true => (Compression::Zlib, zlib),
            false => (Compression::Lzo, lzo),
        })
    }

    /// `None` if compression gains nothing.
    fn by(&mut self, compression: Compression, block: &[u8]) -> Option<Vec<u8>> {
        match compression {
            Compression::None => None,
            Compression::Lzo => match &mut self.lzo {
                Lzo::Thorough(dictionary) => compress_with_dict(block, dictionary).ok(),
                Lzo::Quick(encoder) => encoder.compress(block),
            },
            Compression::Zlib => deflate(block),
            Compression::Zstd => self.zstd.compress(block).ok(),
        }
    }
}

/// Raw deflate, without zlib's header; `None` if the result would be longer than the block.
fn deflate(block: &[u8]) -> Option<Vec<u8>> {
    let mut packed = vec![0; block.len()];
    let mut state = Compress::new(flate2::Compression::default(), false);
    let status = state.compress(block, &mut packed, FlushCompress::Finish).ok()?;
    if status != Status::StreamEnd {
        return None;
    }
    packed.truncate(usize::try_from(state.total_out()).ok()?);
    Some(packed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decompress;

    const ALL: [Compression; 4] = [
        Compression::None,
        Compression::Lzo,
        Compression::Zlib,
        Compression::Zstd,
    ];

    #[test]
    fn blocks_are_the_same_after_a_round_trip_and_never_longer() {
        let mut random = fastrand::Rng::with_seed(5);
        let mut compressed = 0;
        let makers = [Packer::thorough, Packer::quick];
        for (compression, packer) in ALL.into_iter().flat_map(|one| makers.map(|maker| (one, maker))) {
            let mut packer = packer(Compressor::Only(compression));
            for _ in 0..200 {
                let (bytes, letters) = (random.usize(1..=4096), random.u8(1..=255));
                let block: Vec<u8> = (0..bytes).map(|_| random.u8(..letters)).collect();
                let (how, packed) = packer.pack(&block);
                assert!(packed.len() <= block.len() && (how == compression || how == Compression::None));
                compressed += usize::from(how != Compression::None);
                let mut out = vec![0; bytes];
                assert_eq!(decompress(how, &packed, &mut out), Ok(()));
                assert!(out == block, "{how:?}, {bytes} bytes of {letters} letters");
            }
        }
        assert!(compressed > 400, "only {compressed} blocks were compressed");
    }

    #[test]
    fn deflate_is_taken_where_it_saves_enough_more_than_lzo() {
        let mut random = fastrand::Rng::with_seed(6);
        let block: Vec<u8> = (0..4096).map(|_| random.u8(..16)).collect();
        for (percent, expected) in [(0, Compression::Zlib), (100, Compression::Lzo)] {
            let (how, _) = Packer::thorough(Compressor::FavorLzo { percent }).pack(&block);
            assert_eq!(how, expected, "{percent} percent");
        }
    }
}
