//! Linux and tidegate write to one image in turns. Each mounts it as the other left it, unmounted or cut by power,
//! verifies every file, overwrites files of a nearly full file system, so that garbage collection is active, and
//! passes the image on. Half of the images start with Linux, on one chip, cut by power during garbage collection; the
//! others start with tidegate, on one chip and on arrays of two and four. After five exchanges (one without
//! `TIDEGATE_FULL`) the side that started verifies the image a last time.
//!
//! Before an image is passed on, tidegate reads it, and its checker and `fsck.ubifs` find no fault. The other side
//! must find the same files in type, mode, owner, links, size, times, SHA-256 and extended attributes; Linux runs
//! with all self-checks of UBIFS enabled. If Linux was cut, the expected files are those that Linux recovers from a
//! copy.
//!
//! `TIDEGATE_ROUNDS=FROM-TO`: selects images (0-208 with `TIDEGATE_FULL`, otherwise two, one per starting side). If a
//! turn fails, its image is kept from before and after the turn, in `TIDEGATE_ROUNDS_KEEP=FOLDER` or a temporary
//! folder.
#![expect(clippy::print_stdout, reason = "the figures of a long run are what it is for")]

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::support::lab_lines::{Lines, assert_same, lines};
use crate::support::turns::{End, Image, geometry};
use testkit::lab::{Ended, FlashFile, Fsck, Guest, Job, Lab, Options};
use testkit::prng::Prng;

const SEED: u64 = 0x2077;
/// Maximum number of images per batch, each on a chip of the guest.
const CHIPS_MAX: usize = 16;
/// Steps of an uncut turn.
const STEPS: u32 = 120;
/// Attempts to cut Linux during garbage collection.
const ATTEMPTS: usize = 8;
/// More steps than needed to reach any power cut.
const ENDLESS: u32 = 100_000;

/// The side with the first turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum First {
    Linux,
    Us,
}

/// Number of exchanges, and of turns after the first. Odd, so that the last turn belongs to the side that did not
/// start.
fn changes() -> usize {
    if testkit::is_full() { 5 } else { 1 }
}

/// Images processed together.
struct Batch {
    numbers: Vec<u64>,
    first: First,
    members: u32,
}

/// Starting side, number of devices, and end of the range of image numbers in a full run.
const KINDS: [(First, u32, u64); 4] = [
    (First::Linux, 1, 104),
    (First::Us, 1, 139),
    (First::Us, 2, 174),
    (First::Us, 4, 208),
];

/// Groups the images into batches of one kind.
fn batches(images: &[u64]) -> Vec<Batch> {
    let (mut batches, mut from) = (Vec::new(), 0);
    for (first, members, to) in KINDS {
        let all: Vec<u64> = (from..to).filter(|number| images.contains(number)).collect();
        batches.extend(all.chunks(CHIPS_MAX).map(|numbers| Batch {
            numbers: numbers.to_vec(),
            first,
            members,
        }));
        from = to;
    }
    batches
}

/// Figures of a run.
#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    images: usize,
    hand_overs: usize,
    files: usize,
    cuts: usize,
    cuts_of_linux: usize,
    while_collecting: usize,
    while_recovering: usize,
    with_room: usize,
}

struct Table {
    guest: Guest,
    chips: Vec<FlashFile>,
    fsck: Option<Fsck>,
    figures: Figures,
}

/// The task of Linux with an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// Mounts, hashes, unmounts.
    Look,
    Write {
        seed: u64,
    },
    /// Writes until power goes, in this operation of the chip.
    Cut {
        seed: u64,
        operation: u64,
    },
}

/// The chip that Linux gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    Given,
    /// A copy, in which it may test whether a file can be created.
    Copied,
    /// A chip on which it makes the file system first.
    Made,
}

/// The files of an image as listed by Linux.
struct Shown {
    /// After its mount, unless power went during it.
    before: Option<Lines>,
    /// Before the unmount, unless power went.
    after: Option<Lines>,
    /// Whether a file could be created.
    has_room: bool,
}

impl Table {
    /// A turn of Linux with each image.
    fn linux(&mut self, images: &mut [Image], turns: &[Turn], origin: Origin) -> Vec<Shown> {
        let shape = geometry(images[0].members);
        for (chip, image) in self.chips.iter().zip(&*images) {
            chip.load(&image.raw).expect("it fits");
        }
        let sizes = vec![shape.total_bytes().0.to_string(); self.chips.len()].join(",");
        let operation = |turn: &Turn| match turn {
            Turn::Cut { operation, .. } => *operation,
            _ => 0,
        };
        let cuts: Vec<String> = turns.iter().map(|turn| operation(turn).to_string()).collect();
        let cut: Vec<String> = (0..)
            .zip(turns)
            .filter(|(_, turn)| operation(turn) > 0)
            .map(|(number, _): (u32, _)| number.to_string())
            .collect();
        let churn = (0..)
            .zip(turns)
            .filter_map(|(number, turn): (u32, _)| match turn {
                Turn::Look => None,
                Turn::Write { seed } => Some(format!("/mnt/{number} {seed} {STEPS}")),
                Turn::Cut { seed, .. } => Some(format!("/mnt/{number} {seed} {ENDLESS}")),
            });
        let job = Job::ready_made("turn.sh")
            .expect("the script is in the repository")
            .variable("COUNT", images.len().to_string())
            .variable(
                "FLASH",
                format!(
                    "page={} block={} writebuf={} sizes={sizes} cuts={} torn={}",
                    shape.page_bytes(),
                    shape.block_bytes(),
                    shape.page_bytes() * images[0].members,
                    cuts.join(","),
                    cuts.len() * 77 % 512,
                ),
            )
            .variable("CHURN", churn.collect::<Vec<_>>().join(" "))
            .variable("CUT", cut.join(" "))
            .variable("MADE", if origin == Origin::Made { "yes" } else { "" })
            .variable("TOUCH", if origin == Origin::Copied { "yes" } else { "" })
            .timeout(Duration::from_secs(1800));
        let outcome = self.guest.run(&job).unwrap_or_else(|error| panic!("{error}"));
        let names: Vec<&str> = images.iter().map(|image| image.name.as_str()).collect();
        assert_eq!(
            outcome.ended,
            Ended::Code(0),
            "chips from 0 on: {names:#?}\n{}",
            outcome.text()
        );
        let bytes = usize::try_from(shape.total_bytes().0).expect("small");
        for (chip, image) in self.chips.iter().zip(&mut *images) {
            image.raw = fs::read(chip.path()).expect("it is there");
            image.raw.truncate(bytes);
        }
        let numbers_in = |file| {
            let text = outcome.read_text(file).unwrap_or_default();
            let number = |line: &str| line.parse::<usize>().expect("a number");
            text.lines().map(number).collect::<Vec<_>>()
        };
        let (off, touched) = (numbers_in("off.txt"), numbers_in("touched.txt"));
        let before = trees(&outcome.read_text("before.txt").unwrap_or_default());
        assert_eq!(before.len() + off.len(), images.len());
        let mut before = before.into_iter();
        let has_after = turns.iter().any(|turn| matches!(turn, Turn::Write { .. }));
        let after = has_after.then(|| outcome.read_text("after.txt").expect("the job wrote it"));
        let mut after = trees(&after.unwrap_or_default()).into_iter();
        let shown = |(number, turn): (usize, &Turn)| Shown {
            before: (!off.contains(&number)).then(|| before.next().expect("it was hashed")),
            after: matches!(turn, Turn::Write { .. }).then(|| after.next().expect("it was hashed")),
            has_room: touched.contains(&number),
        };
        turns.iter().enumerate().map(shown).collect()
    }

    /// A turn of Linux, which must find the expected files.
    fn turn_of_linux(&mut self, images: &mut [Image], turns: &[Turn]) {
        let found = self.linux(images, turns, Origin::Given);
        let is_recovering: Vec<bool> = found.iter().map(|shown| shown.before.is_none()).collect();
        for (image, Shown { before, after, .. }) in images.iter_mut().zip(found) {
            if let Some(before) = before {
                assert_same(&image.expected, &before, &format!("{}: Linux", image.name));
                image.expected = after.unwrap_or(before);
            }
            image.has_room = false;
        }
        let expected: Vec<Lines> = images.iter().map(|image| image.expected.clone()).collect();
        self.recover_copies(images, turns);
        let recovered = images.iter().zip(expected).zip(is_recovering);
        for ((image, expected), _) in recovered.filter(|(_, is_recovering)| *is_recovering) {
            let what = format!("{}: Linux, cut while it recovered", image.name);
            assert_same(&expected, &image.expected, &what);
            self.figures.while_recovering += 1;
        }
    }

    /// For images cut while Linux wrote, expects the files that Linux recovers from a copy.
    fn recover_copies(&mut self, images: &mut [Image], turns: &[Turn]) {
        let is_cut = |turn: &Turn| matches!(turn, Turn::Cut { .. });
        let cut: Vec<usize> = (0..turns.len())
            .filter(|number| is_cut(&turns[*number]))
            .collect();
        if cut.is_empty() {
            return;
        }
        let mut copies: Vec<Image> = cut.iter().map(|number| images[*number].clone()).collect();
        let looks = vec![Turn::Look; copies.len()];
        let found = self.linux(&mut copies, &looks, Origin::Copied);
        for (number, shown) in cut.iter().zip(found) {
            let image = &mut images[*number];
            image.expected = shown.before.expect("nothing is cut");
            image.has_room = shown.has_room;
            self.figures.with_room += usize::from(shown.has_room);
            self.figures.cuts_of_linux += 1;
            self.figures.while_collecting += usize::from(image.is_cut_while_collecting());
        }
        self.figures.cuts += cut.len();
    }

    /// Reads and checks images before they are passed on.
    fn hand_over(&mut self, images: &[Image], by: &str) {
        for image in images {
            let read = image.read(self.fsck.as_ref());
            assert_same(&read, &image.expected, &format!("{}: left by {by}", image.name));
            self.figures.hand_overs += 1;
            self.figures.files += read.len();
        }
    }

    fn play(&mut self, batch: &Batch) {
        let mut prngs: Vec<Prng> = batch
            .numbers
            .iter()
            .map(|number| Prng::named(SEED, &format!("image {number}")))
            .collect();
        let image = |number: &u64| Image {
            name: format!("image {number}"),
            members: batch.members,
            raw: Vec::new(),
            expected: Lines::new(),
            has_room: false,
        };
        let mut images: Vec<Image> = batch.numbers.iter().map(image).collect();
        for round in 0..=changes() {
            let is_linux = (batch.first == First::Linux) == round.is_multiple_of(2);
            let by = if is_linux { "Linux" } else { "us" };
            for (image, number) in images.iter_mut().zip(&batch.numbers) {
                image.name = format!("TIDEGATE_ROUNDS={number}-{}, turn {round} of {by}", number + 1);
            }
            let before = images.clone();
            let played = catch_unwind(AssertUnwindSafe(|| {
                match is_linux {
                    true => self.round_of_linux(&mut images, &mut prngs, round),
                    false => self.round_of_ours(&mut images, &mut prngs, round),
                }
                self.hand_over(&images, by);
            }));
            if let Err(panic) = played {
                keep(&before, &images);
                resume_unwind(panic);
            }
        }
        // The last verification.
        match batch.first {
            First::Linux => self.turn_of_linux(&mut images, &vec![Turn::Look; batch.numbers.len()]),
            First::Us => images
                .iter_mut()
                .for_each(|image| image.our_turn(0, 0, End::Unmounted)),
        }
        self.hand_over(&images, "the last one");
        self.figures.images += images.len();
    }

    fn round_of_linux(&mut self, images: &mut [Image], prngs: &mut [Prng], round: usize) {
        let turn = |prng: &mut Prng| {
            if round == 0 {
                return first_cut(prng);
            }
            let (seed, operation) = (prng.below(1 << 30), 60 + prng.below(3000));
            match prng.chance(50) {
                true => Turn::Cut { seed, operation },
                false => Turn::Write { seed },
            }
        };
        let turns: Vec<Turn> = prngs.iter_mut().map(turn).collect();
        match round {
            0 => {
                self.make_by_linux(images, prngs, turns.clone());
                self.recover_copies(images, &turns);
            }
            _ => self.turn_of_linux(images, &turns),
        }
    }

    /// Has Linux make file systems and write until power goes; repeats those that were not cut during garbage
    /// collection.
    fn make_by_linux(&mut self, images: &mut [Image], prngs: &mut [Prng], mut turns: Vec<Turn>) {
        let bytes = usize::try_from(geometry(1).total_bytes().0).expect("small");
        let mut left: Vec<usize> = (0..images.len()).collect();
        for _ in 0..ATTEMPTS {
            let mut made: Vec<Image> = left.iter().map(|number| images[*number].clone()).collect();
            made.iter_mut().for_each(|image| image.raw = vec![0xFF; bytes]);
            let turns_left: Vec<Turn> = left.iter().map(|number| turns[*number]).collect();
            self.linux(&mut made, &turns_left, Origin::Made);
            for (number, image) in left.iter().zip(made) {
                images[*number] = image;
            }
            left.retain(|number| !images[*number].is_cut_while_collecting());
            for number in &left {
                turns[*number] = first_cut(&mut prngs[*number]);
            }
            if left.is_empty() {
                return;
            }
        }
        panic!(
            "the garbage collector was never at work in {left:?} of {} images",
            images.len()
        );
    }

    fn round_of_ours(&mut self, images: &mut [Image], prngs: &mut [Prng], round: usize) {
        for (image, prng) in images.iter_mut().zip(prngs) {
            let (seed, share) = (prng.below(1 << 30), prng.below(1000));
            let end = match prng.below(4) {
                // In half of the images, our turn after a cut of Linux only recovers and unmounts.
                0 | 1 => End::Unmounted,
                2 if round > 0 => End::Killed,
                _ => End::Cut(share),
            };
            let end = if round == 0 { End::Cut(share) } else { end };
            if round == 0 {
                image.make();
            }
            image.our_turn(seed, STEPS, end);
            self.figures.cuts += usize::from(end != End::Unmounted);
        }
    }
}

/// A first turn of Linux, cut after formatting and filling up.
fn first_cut(prng: &mut Prng) -> Turn {
    Turn::Cut {
        seed: prng.below(1 << 30),
        operation: 2500 + prng.below(3000),
    }
}

/// Parses the trees of `lab-hash`, each behind a line with its folder if there are several.
fn trees(text: &str) -> Vec<Lines> {
    match text.starts_with("== ") {
        false if text.is_empty() => Vec::new(),
        false => vec![lines(text)],
        true => text
            .split("== ")
            .skip(1)
            .map(|tree| lines(tree.split_once('\n').map_or("", |(_, rest)| rest)))
            .collect(),
    }
}

fn keep(before: &[Image], after: &[Image]) {
    let folder = std::env::var_os("TIDEGATE_ROUNDS_KEEP").map_or_else(
        || std::env::temp_dir().join(format!("tidegate-rounds-{}", std::process::id())),
        PathBuf::from,
    );
    fs::create_dir_all(&folder).expect("it can be made");
    for (before, after) in before.iter().zip(after) {
        let name = before.name.replace([' ', ',', '='], "-");
        for (what, image) in [("before", before), ("after", after)] {
            fs::write(folder.join(format!("{name}.{what}")), &image.raw).expect("there is room");
        }
    }
    println!("the images are in {}", folder.display());
}

/// The images selected.
fn images() -> Vec<u64> {
    match std::env::var("TIDEGATE_ROUNDS") {
        Ok(range) => {
            let (from, to) = range.split_once('-').expect("FROM-TO");
            (from.parse().expect("a number")..to.parse().expect("a number")).collect()
        }
        Err(_) if testkit::is_full() => (0..208).collect(),
        // One per starting side.
        Err(_) => vec![0, 104],
    }
}

#[test]
fn what_linux_and_we_write_in_turns_is_there_for_both() {
    let lab = match Lab::with_flash() {
        Ok(lab) => lab,
        Err(why) => {
            testkit::report_left_out(why);
            return;
        }
    };
    let fsck = Fsck::available()
        .inspect_err(|why| testkit::report_left_out(why))
        .ok();
    let folder = tempfile::tempdir().expect("a folder");
    let batches = batches(&images());
    let members = batches.iter().map(|batch| batch.members).max();
    let largest = geometry(members.expect("some images")).total_bytes().0;
    let count = batches.iter().map(|batch| batch.numbers.len()).max();
    let chip = |number| FlashFile::erased(&folder.path().join(format!("chip-{number}")), largest);
    let chips: Vec<FlashFile> = (0..count.unwrap_or(0))
        .map(|number| chip(number).expect("there is room"))
        .collect();
    let options = Options {
        flash: chips.clone(),
        ..Options::default()
    };
    let guest = lab.boot(&options).unwrap_or_else(|error| panic!("{error}"));
    let mut table = Table {
        guest,
        chips,
        fsck,
        figures: Figures::default(),
    };
    for batch in batches {
        let start = Instant::now();
        table.play(&batch);
        println!(
            "{} images of {:?}, {} devices: {} s; so far {:?}",
            batch.numbers.len(),
            batch.first,
            batch.members,
            start.elapsed().as_secs(),
            table.figures
        );
    }
}
