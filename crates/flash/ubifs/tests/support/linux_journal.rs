//! Journals as left by Linux after power cuts: commits that were started and not finished, and buds referenced since.

use std::sync::Arc;

use media::Leb;
use ubi::Volume;
use ubifs::format::{CommitStart, LOG_LEB, LogReference, MAGIC, pad};
use ubifs::{OpenOptions, Ubifs};

use super::cut_again::volume;
use super::rig::Chip;

fn opened(chip: &Chip) -> (Arc<dyn Volume>, Ubifs) {
    let volume = volume(chip);
    let ubifs = Ubifs::open(Arc::clone(&volume), OpenOptions::standard());
    (volume, ubifs.expect("it is a file system"))
}

fn filled_up(mut raw: Vec<u8>, volume: &dyn Volume) -> Vec<u8> {
    let unit = usize::try_from(volume.geometry().min_io_bytes).expect("small");
    let end = raw.len();
    raw.resize(end.next_multiple_of(unit), 0);
    pad(&mut raw[end..]);
    raw
}

/// Starts commits without finishing them, as if power had gone in each, until `left` LEBs of the log are left.
pub fn start_commits(chip: &Chip, left: u32) {
    loop {
        let (volume, ubifs) = opened(chip);
        let (report, lebs) = (ubifs.replay_report(), ubifs.superblock().log_lebs);
        if u32::try_from(report.log_lebs.len()).expect("few") + left >= lebs {
            return;
        }
        let commit = ubifs.master().commit + 1;
        let raw = filled_up(CommitStart { commit }.encode(report.sequence_max + 1), &*volume);
        let last = report.log_lebs.last().expect("it has a log");
        let next = Leb(LOG_LEB + (last + 1 - LOG_LEB) % lebs);
        volume.unmap(next).expect("it takes it");
        volume.write(next, 0, &raw).expect("it takes it");
    }
}

/// Adds a bud in an empty LEB. Each of `nodes` encodes a node for a given sequence number.
pub fn add_bud<F: Fn(u64) -> Vec<u8>>(chip: &Chip, head: u32, nodes: impl IntoIterator<Item = F>) {
    let (volume, ubifs) = opened(chip);
    let gc_leb = ubifs.master().gc_leb;
    let is_free = |leb: &u32| *leb != gc_leb && !volume.is_mapped(Leb(*leb)).expect("it says");
    let leb = (0..volume.geometry().lebs).rev().find(is_free);
    drop((volume, ubifs));
    add_bud_at(chip, leb.expect("one is empty"), head, nodes);
}

/// Like [`add_bud`], in a given LEB, whose content is dropped.
pub fn add_bud_at<F: Fn(u64) -> Vec<u8>>(
    chip: &Chip,
    leb: u32,
    head: u32,
    nodes: impl IntoIterator<Item = F>,
) {
    let (volume, ubifs) = opened(chip);
    let report = ubifs.replay_report();
    volume.unmap(Leb(leb)).expect("it takes it");
    let reference = LogReference { leb, offset: 0, head };
    let mut sequences = report.sequence_max + 1..;
    let sequence = sequences.next().expect("it goes on");
    let mut raw = Vec::new();
    for (node, sequence) in nodes.into_iter().zip(sequences) {
        raw.extend_from_slice(&node(sequence));
        raw.resize(raw.len().next_multiple_of(8), 0);
    }
    let raw = filled_up(raw, &*volume);
    volume.write(Leb(leb), 0, &raw).expect("it takes it");
    let (log, end) = log_end(&*volume, &ubifs);
    let raw = filled_up(reference.encode(sequence), &*volume);
    volume.write(log, end, &raw).expect("there is room");
}

/// The last LEB of the log, and the end of its written part.
fn log_end(volume: &dyn Volume, ubifs: &Ubifs) -> (Leb, u32) {
    let lebs = &ubifs.replay_report().log_lebs;
    let log = Leb(*lebs.last().expect("it has a log"));
    let mut written = vec![0; usize::try_from(volume.geometry().leb_bytes).expect("small")];
    volume.read(log, 0, &mut written).expect("it can be read");
    let end = written.iter().rposition(|byte| *byte != 0xFF);
    let end = u32::try_from(end.expect("it is written") + 1).expect("small");
    (log, end.next_multiple_of(volume.geometry().min_io_bytes))
}

/// Tears the log: a reference was being written when power went.
pub fn tear_log(chip: &Chip) {
    let (volume, ubifs) = opened(chip);
    let (log, end) = log_end(&*volume, &ubifs);
    let mut raw = vec![0xFF; usize::try_from(volume.geometry().min_io_bytes).expect("small")];
    raw[..4].copy_from_slice(&MAGIC.to_le_bytes());
    volume.write(log, end, &raw).expect("there is room");
}
