//! Hostile inputs: valid inputs of a decoder, changed at random, and the limits that hold for each.
//!
//! This is mutation without coverage feedback: nothing measures which code an input reaches, and no input is derived
//! from one that reached more. Recomputed checksums and valid inputs of every kind make up for part of that.
//!
//! A decoder supplies valid inputs, a function that repairs the checksums of a changed one, and one that reads it.
//! [`Decoder::run`] checks that nothing panics, or takes more than [`SECONDS_MAX`] or [`MEMORY_BYTES_MAX`] (of the
//! calling thread, if the test program counts: see [`crate::heap`]). A failure names the decoder and the seed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::heap::taken_by;
use crate::prng::Prng;

/// Maximum time for one input.
pub const SECONDS_MAX: u64 = 10;
/// Maximum memory for one input.
pub const MEMORY_BYTES_MAX: u64 = 256 << 20;

/// A text does not grow beyond this: time that is due to its length is not a defect.
const TEXT_BYTES_MAX: usize = 1 << 20;

/// Seeds of the inputs for a decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inputs {
    /// A fixed number.
    Count {
        /// The first seed.
        first: u64,
        /// The number of seeds.
        count: u64,
    },
    /// Seeds until a time limit.
    Time {
        /// The first seed.
        first: u64,
        /// Time after which no new input is tried.
        time: Duration,
    },
}

impl Inputs {
    /// 30 inputs, or 3,000 with `TIDEGATE_FULL`. `TIDEGATE_FUZZ_SECONDS=N` tries new inputs for N seconds, and
    /// `TIDEGATE_SEED=N` replays one.
    ///
    /// # Panics
    /// If a value is not a number.
    #[must_use]
    pub fn asked_for() -> Self {
        let number = |name: &str| {
            let text = std::env::var(name).ok()?;
            Some(text.parse::<u64>().unwrap_or_else(|_| panic!("{name}={text}")))
        };
        if let Some(first) = number("TIDEGATE_SEED") {
            return Self::Count { first, count: 1 };
        }
        match number("TIDEGATE_FUZZ_SECONDS") {
            None => Self::Count {
                first: 0,
                count: if crate::is_full() { 3000 } else { 30 },
            },
            Some(seconds) => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                Self::Time {
                    first: now.as_secs() * 1_000_000,
                    time: Duration::from_secs(seconds),
                }
            }
        }
    }

    fn seeds(self) -> impl Iterator<Item = u64> {
        let started = Instant::now();
        let (first, count) = match self {
            Self::Count { first, count } => (first, count),
            Self::Time { first, .. } => (first, u64::MAX - first),
        };
        (first..first + count).take_while(move |_| match self {
            Self::Count { .. } => true,
            Self::Time { time, .. } => started.elapsed() < time,
        })
    }
}

/// Kind of inputs, which decides how they are changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Numbers in binary.
    Bytes,
    /// Lines, words and decimal numbers.
    Text,
}

/// Reads an input to its end; true if it was accepted.
pub type Decode<'a> = Box<dyn FnMut(&[u8]) -> bool + 'a>;

/// A decoder with its valid inputs.
pub struct Decoder<'a> {
    /// Its name, for messages.
    pub name: &'static str,
    /// The kind of its inputs.
    pub kind: Kind,
    /// Inputs that it accepts.
    pub good: Vec<Vec<u8>>,
    /// Repairs checksums.
    pub fix: fn(&mut Vec<u8>),
    /// Reads an input.
    pub decode: Decode<'a>,
}

/// Statistics of a decoder's run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tried {
    /// Number of inputs.
    pub inputs: u64,
    /// Number of accepted inputs.
    pub accepted: u64,
    /// Largest memory for one input, in bytes.
    pub peak_bytes: u64,
    /// Longest time for one input.
    pub longest: Duration,
}

impl Decoder<'_> {
    /// Decodes the valid inputs, and changed ones.
    ///
    /// # Panics
    /// If a valid input is refused, or if an input makes the decoder panic or exceed a limit.
    pub fn run(mut self, inputs: Inputs) -> Tried {
        for (number, good) in self.good.iter().enumerate() {
            assert!(
                (self.decode)(good),
                "{}: good input {number} is refused",
                self.name
            );
        }
        let watch = Watch::start();
        let mut tried = Tried::default();
        for seed in inputs.seeds() {
            let mut random = Prng::named(seed, self.name);
            let mut input = random.pick(&self.good).clone();
            match self.kind {
                Kind::Bytes => change_bytes(&mut input, &mut random),
                Kind::Text => change_text(&mut input, &mut random),
            }
            // In the other cases the checksum reveals the damage.
            if random.chance(90) {
                (self.fix)(&mut input);
            }
            let replay = format!(
                "{}: replay with TIDEGATE_SEED={seed} TIDEGATE_DECODER={}",
                self.name, self.name
            );
            watch.begin(&replay);
            let started = Instant::now();
            let decode = || taken_by(|| (self.decode)(&input));
            let (accepted, taken) =
                catch_unwind(AssertUnwindSafe(decode)).unwrap_or_else(|_| panic!("it panicked: {replay}"));
            let elapsed = started.elapsed();
            watch.end();
            assert!(elapsed.as_secs() < SECONDS_MAX, "{elapsed:?}: {replay}");
            assert!(
                taken.peak_bytes < MEMORY_BYTES_MAX,
                "{} bytes: {replay}",
                taken.peak_bytes
            );
            tried.inputs += 1;
            tried.accepted += u64::from(accepted);
            tried.peak_bytes = tried.peak_bytes.max(taken.peak_bytes);
            tried.longest = tried.longest.max(elapsed);
        }
        tried
    }
}

/// Ends the program when an input takes too long: nothing else can end an endless loop.
struct Watch {
    now: Arc<Mutex<Option<(Instant, String)>>>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    #[expect(clippy::print_stderr, reason = "the program ends without another word")]
    fn start() -> Self {
        let now: Arc<Mutex<Option<(Instant, String)>>> = Arc::default();
        let watched = Arc::downgrade(&now);
        let watching = move || {
            while let Some(now) = watched.upgrade() {
                if let Some((since, replay)) = &*now.lock().expect("no panic under it")
                    && since.elapsed().as_secs() >= 2 * SECONDS_MAX
                {
                    eprintln!("it hangs: {replay}");
                    std::process::abort();
                }
                drop(now);
                thread::park_timeout(Duration::from_secs(1));
            }
        };
        Self {
            now,
            thread: Some(thread::spawn(watching)),
        }
    }

    fn set(&self, what: Option<(Instant, String)>) {
        *self.now.lock().expect("no panic under it") = what;
    }

    fn begin(&self, replay: &str) {
        self.set(Some((Instant::now(), replay.to_owned())));
    }

    fn end(&self) {
        self.set(None);
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.now = Arc::default();
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A panic in it has already been reported.
            let _ended = thread.join();
        }
    }
}

/// Changes one to four places: bits, numbers of each width and byte order at their limits, pieces that are moved,
/// doubled or cut off.
pub fn change_bytes(raw: &mut Vec<u8>, random: &mut Prng) {
    for _ in 0..=random.below(4) {
        if raw.is_empty() {
            return;
        }
        let at = random.below_usize(raw.len());
        match random.below(12) {
            0 | 1 => raw[at] ^= 1 << random.below(8),
            2 => raw[at] = *random.pick(&[0, 1, 0x7F, 0x80, 0xFF]),
            3..=8 => {
                let width = *random.pick(&[2, 4, 4, 8]);
                let at = at - at % width.min(4);
                let number = extreme(raw.len(), random);
                let bytes = match random.chance(50) {
                    true => number.to_le_bytes()[..width].to_vec(),
                    false => number.to_be_bytes()[8 - width..].to_vec(),
                };
                let end = raw.len().min(at + width);
                raw[at..end].copy_from_slice(&bytes[..end - at]);
            }
            9 => {
                let length = random.below_usize(64).min(raw.len() - at);
                let to = random.below_usize(raw.len() - length + 1);
                raw.copy_within(at..at + length, to);
            }
            10 => {
                let end = (at + random.below_usize(600)).min(raw.len());
                let value = *random.pick(&[0, 0xFF]);
                raw[at..end].fill(value);
            }
            _ => raw.truncate(at),
        }
    }
}

/// A number at a limit, or near the length of the input.
fn extreme(length: usize, random: &mut Prng) -> u64 {
    let length = u64::try_from(length).expect("a size fits 64 bits");
    let limits = [
        0,
        1,
        2,
        0x7FFF,
        0xFFFF,
        0x7FFF_FFFF,
        0x8000_0000,
        0xFFFF_FFFF,
        1 << 40,
        i64::MAX.cast_unsigned(),
        1 << 63,
        u64::MAX,
        length,
        length / 512,
    ];
    match random.below(4) {
        0 => random.below(300),
        1 => 1 << random.below(64),
        _ => random.pick(&limits).wrapping_add(random.below(3)).wrapping_sub(1),
    }
}

/// Changes one to four places: numbers at their limits, words, lines that are doubled, exchanged, cut or unterminated,
/// control bytes.
pub fn change_text(raw: &mut Vec<u8>, random: &mut Prng) {
    const NUMBERS: [&str; 16] = [
        "0",
        "-1",
        "4294967295",
        "4294967296",
        "9223372036854775807",
        "9223372036854775808",
        "18446744073709551615",
        "18446744073709551616",
        "99999999999999999999999999999999999999999",
        "1e309",
        "-1e309",
        "nan",
        "0x",
        "",
        "00000000000000000000000000000000000000000000001",
        "0.0000000000000000000000000000000000000001",
    ];
    const ODD: [&[u8]; 12] = [
        b"\0",
        b"\x1b[2J",
        b"\r",
        b"\xFF\xFE",
        "\u{202E}".as_bytes(),
        b"\"",
        b"\\",
        b"[[[[[[[[",
        b"{{{{{{{{",
        b"=",
        b"../../../etc/passwd",
        b"%s%n",
    ];
    for _ in 0..=random.below(4) {
        if raw.is_empty() {
            return;
        }
        let at = random.below_usize(raw.len());
        match random.below(12) {
            0..=4 => {
                let is_digit = |byte: &u8| byte.is_ascii_digit();
                let Some(start) = raw[at..].iter().position(is_digit).map(|skip| at + skip) else {
                    continue;
                };
                let end = raw[start..].iter().position(|byte| !is_digit(byte));
                let end = end.map_or(raw.len(), |length| start + length);
                raw.splice(start..end, random.pick(&NUMBERS).bytes());
            }
            5 | 6 => {
                let piece = random.pick(&ODD).repeat(*random.pick(&[1, 1, 1, 300]));
                raw.splice(at..at, piece);
            }
            7 => {
                let line = line_around(raw, at);
                let line = raw[line].repeat(*random.pick(&[1, 2, 200]));
                raw.splice(at..at, line);
            }
            8 => {
                let line = line_around(raw, at);
                raw.drain(line);
            }
            9 => {
                let (one, other) = (raw[at], random.below_usize(raw.len()));
                raw[at] = raw[other];
                raw[other] = one;
            }
            10 => {
                let long = vec![*random.pick(b"a9 [\"\t"); 40_000];
                raw.splice(at..at, long);
            }
            _ => raw.truncate(at),
        }
    }
    raw.truncate(TEXT_BYTES_MAX);
}

/// The line around an offset, with its line feed.
fn line_around(raw: &[u8], at: usize) -> std::ops::Range<usize> {
    let start = raw[..at]
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |end| end + 1);
    let end = raw[at..].iter().position(|byte| *byte == b'\n');
    start..end.map_or(raw.len(), |length| at + length + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_makes_the_same_input_again_and_another_seed_another() {
        let make = |seed, change: fn(&mut Vec<u8>, &mut Prng)| {
            let mut raw = b"one 1 two 22\nthree 333\n".repeat(9);
            change(&mut raw, &mut Prng::new(seed));
            raw
        };
        for change in [change_bytes, change_text] {
            assert_eq!(make(1, change), make(1, change));
            let different: std::collections::BTreeSet<_> = (0..50).map(|seed| make(seed, change)).collect();
            assert!(different.len() > 40, "{}", different.len());
        }
    }
}
