//! A read-write mount satisfies the contract of file systems, by itself and below a write buffer, on one chip and on
//! arrays of two and four: the effects of every call, and the state after a power cut.

use crate::support::medium::Medium;
use crate::support::rig::{SMALL, Shape};
use buffer::{BufferConfig, Buffered, Flusher};
use testkit::contract::{self, PowerCut};
use ubifs::MountedWriter;
use vfs::{FileSystem, FsError, Ino, OpenFlags, Privileges};

/// Large enough for the contract tests.
const ROOMY: Shape = Shape {
    page: 2048,
    pages: 64,
    blocks: 64,
    lebs: 50,
    fanout: 8,
    reserved_bytes: 0,
};

/// Empty file systems on one, two and four chips.
fn media() -> [Medium; 3] {
    [(ROOMY, 1), (SMALL, 2), (SMALL, 4)].map(|(shape, members)| Medium::formatted(shape, members))
}

fn mounted(medium: &Medium) -> MountedWriter {
    medium.mount().expect("it mounts")
}

fn buffered(medium: &Medium, flusher: Flusher) -> Buffered<MountedWriter> {
    let config = BufferConfig {
        flusher,
        ..BufferConfig::default()
    };
    Buffered::new(mounted(medium), config).expect("the default is valid")
}

#[test]
fn a_mounted_file_system_keeps_the_contract() {
    for medium in media() {
        contract::run_all(|| mounted(&medium.copy()));
    }
}

#[test]
fn a_mounted_file_system_below_a_buffer_keeps_the_contract() {
    let [chip, pair, four] = media();
    contract::run_all(|| buffered(&chip.copy(), Flusher::Thread));
    contract::run_all(|| buffered(&pair.copy(), Flusher::Inline));
    contract::run_all(|| buffered(&four.copy(), Flusher::Thread));
}

/// A file system and its chips.
struct OnChips<F> {
    medium: Medium,
    file_system: F,
}

impl<F: FileSystem> PowerCut for OnChips<F> {
    type Fs = F;

    fn file_system(&self) -> &F {
        &self.file_system
    }

    /// Mounts a copy of the chips in their current state, as after a power cut.
    fn after_power_cut(&self, name: &[u8]) -> Option<Vec<u8>> {
        let again = mounted(&self.medium.copy());
        let entry = match again.lookup(Ino::ROOT, name) {
            Err(FsError::NotFound) => return None,
            found => found.expect("the root can be read"),
        };
        let opened = again.open(entry.ino, OpenFlags(libc::O_RDONLY), Privileges::Keep);
        let handle = opened.expect("the file can be opened").handle;
        let mut content = vec![0; usize::try_from(entry.attr.size).expect("small")];
        let read = again.read(entry.ino, handle, 0, &mut content);
        assert_eq!(read, Ok(content.len()));
        Some(content)
    }
}

fn on_chips<F>(medium: Medium, mount: impl FnOnce(&Medium) -> F) -> OnChips<F> {
    OnChips {
        file_system: mount(&medium),
        medium,
    }
}

#[test]
fn what_is_durable_by_the_contract_outlives_a_power_cut() {
    for medium in media() {
        contract::run_durability(|| on_chips(medium.copy(), mounted));
    }
}

#[test]
fn what_is_durable_by_the_contract_outlives_a_power_cut_below_a_buffer() {
    let [chip, pair, four] = media();
    contract::run_durability(|| on_chips(chip.copy(), |medium| buffered(medium, Flusher::Inline)));
    contract::run_durability(|| on_chips(pair.copy(), |medium| buffered(medium, Flusher::Thread)));
    contract::run_durability(|| on_chips(four.copy(), |medium| buffered(medium, Flusher::Off)));
}
