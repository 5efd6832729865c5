//! A thread's share of a set of small files, of which some exist.
//!
//! At the start 80 % of the set exist, with sizes of a gamma distribution of shape 1.5: those of filebench's sets. Files
//! are drawn at random, and put back after use. Shares are disjoint, so that a thread's draws follow from the seed and
//! need no lock.
//!
//! Invariant: there are never more files than the set has.

use std::f64::consts::TAU;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

use results::nearest_f64;

use crate::error::BenchError;
use crate::file_calls::FileCalls;
use crate::loops::Share;
use crate::random::Random;

/// A share of the set.
#[derive(Debug)]
pub struct FileSet {
    random: Random,
    /// Existing files with their sizes.
    existing: Vec<(PathBuf, u64)>,
    absent: Vec<PathBuf>,
    mean_bytes: u64,
    append_bytes: u64,
}

impl FileSet {
    /// Makes four of five files of a thread's share, or fewer if the run is stopped meanwhile.
    pub fn prepared(share: &Share<'_>, calls: &mut FileCalls) -> Result<Self, BenchError> {
        let (loops, thread) = (share.loops, share.thread);
        let mut set = Self {
            random: Random::named(share.seed, &format!("file-set-{thread}")),
            existing: Vec::new(),
            absent: Vec::new(),
            mean_bytes: loops.mean_bytes,
            append_bytes: loops.append_bytes,
        };
        for number in (0..loops.files).filter(|number| number % loops.threads == thread) {
            let path = share.directory.join(format!("file-{number:07}"));
            if number / loops.threads % 5 == 4 {
                set.absent.push(path);
                continue;
            }
            if share.stop.load(Ordering::Relaxed) {
                break;
            }
            let bytes = set.file_length();
            let file = calls.open(path, true)?;
            calls.append(&file, bytes)?;
            set.put(calls.close(file)?, bytes);
        }
        Ok(set)
    }

    /// Takes an existing file, with its size.
    pub fn draw(&mut self) -> (PathBuf, u64) {
        let place = place(&mut self.random, self.existing.len());
        self.existing.swap_remove(place)
    }

    /// Takes the path of a file that does not exist.
    pub fn draw_absent(&mut self) -> PathBuf {
        let place = place(&mut self.random, self.absent.len());
        self.absent.swap_remove(place)
    }

    /// Puts a file back.
    pub fn put(&mut self, path: PathBuf, bytes: u64) {
        self.existing.push((path, bytes));
    }

    /// Puts the path of a deleted file back.
    pub fn put_absent(&mut self, path: PathBuf) {
        self.absent.push(path);
    }

    /// The length of a new file.
    pub fn file_length(&mut self) -> u64 {
        gamma(&mut self.random, self.mean_bytes)
    }

    /// The length of an append: 1 byte up to the largest, each with the same chance.
    pub fn append_length(&mut self) -> u64 {
        1 + self.random.below(self.append_bytes)
    }
}

fn place(random: &mut Random, among: usize) -> usize {
    let place = random.below(u64::try_from(among).unwrap_or(u64::MAX));
    usize::try_from(place).expect("a place in memory")
}

/// A size of the gamma distribution of shape 1.5: an exponential variable and half the square of a normal one.
fn gamma(random: &mut Random, mean_bytes: u64) -> u64 {
    let mut uniform = || (nearest_f64(random.below(1 << 53)) + 1.0) / 2_f64.powi(53);
    let half_square = -uniform().ln() * (TAU * uniform()).cos().powi(2);
    let bytes = nearest_f64(mean_bytes) / 1.5 * (half_square - uniform().ln());
    // Seconds stand for bytes: there is no other conversion to integers without loss.
    Duration::from_secs_f64(bytes).as_secs().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_the_mean_and_the_variance_of_a_gamma_distribution_of_shape_1_5() {
        let mut random = Random::named(1, "sizes");
        let sizes: Vec<f64> = (0..200_000)
            .map(|_| nearest_f64(gamma(&mut random, 16 << 10)))
            .collect();
        let mean = sizes.iter().sum::<f64>() / 200_000.0;
        let squares = sizes.iter().map(|size| (size - mean).powi(2)).sum::<f64>();
        let shape = mean * mean / (squares / 200_000.0);
        assert!((mean - 16_384.0).abs() < 164.0, "{mean}");
        assert!((shape - 1.5).abs() < 0.03, "{shape}");
    }
}
