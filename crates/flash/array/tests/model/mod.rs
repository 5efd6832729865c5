//! A random workload on an array with parity, and the invariants that must hold at any moment.

use std::collections::BTreeMap;

use array::Array;
use media::Leb;
use testkit::prng::Prng;
use ubi::{Volume, VolumeError};

use crate::support::PAGE;

/// LEBs that the workload uses.
pub const LEBS: u32 = 12;
/// Rows per LEB.
pub const ROWS: usize = 6;

pub fn row_bytes(members: usize) -> usize {
    (members - 1) * PAGE
}

/// The acknowledged content, and the operation in progress.
#[derive(Clone, Debug, Default)]
pub struct Model {
    /// Written bytes of each LEB that is mapped.
    pub lebs: BTreeMap<u32, Vec<u8>>,
    pub under_way: Option<(u32, Operation)>,
}

#[derive(Clone, Debug)]
pub enum Operation {
    Write,
    Change(Vec<u8>),
    Unmap,
}

pub fn content(prng: &mut Prng, bytes: usize) -> Vec<u8> {
    let mut data = prng.bytes(bytes);
    data.chunks_mut(PAGE).for_each(|page| page[0] = 0x11);
    data
}

/// Runs the workload until it is done or power is cut.
pub fn used(array: &Array, model: &mut Model, prng: &mut Prng, steps: u64) {
    let volume = array.volume();
    let row = usize::try_from(volume.geometry().min_io_bytes).expect("small");
    for _ in 0..steps {
        let leb = u32::try_from(prng.below(u64::from(LEBS))).expect("few");
        let rows = 1 + usize::try_from(prng.below(3)).expect("few");
        let written = model.lebs.get(&leb).map_or(0, Vec::len);
        let done = match prng.below(10) {
            0..3 => {
                let data = content(prng, rows * row);
                model.under_way = Some((leb, Operation::Change(data.clone())));
                let done = volume.leb_change(Leb(leb), &data);
                if done.is_ok() {
                    model.lebs.insert(leb, data);
                }
                done
            }
            3 => {
                model.under_way = Some((leb, Operation::Unmap));
                let done = volume.unmap(Leb(leb));
                if done.is_ok() {
                    model.lebs.remove(&leb);
                }
                done
            }
            _ if written + rows * row > ROWS * row => Ok(()),
            _ => {
                let data = content(prng, rows * row);
                model.under_way = Some((leb, Operation::Write));
                let offset = u32::try_from(written).expect("small");
                let done = volume.write(Leb(leb), offset, &data);
                if done.is_ok() {
                    model.lebs.entry(leb).or_default().extend_from_slice(&data);
                }
                done
            }
        };
        if done.is_err() {
            return;
        }
        model.under_way = None;
        if prng.below(4) == 0 && volume.flush().is_err() {
            return;
        }
    }
}

fn padded(bytes: Option<&Vec<u8>>, len: usize) -> Vec<u8> {
    let mut bytes = bytes.cloned().unwrap_or_default();
    bytes.resize(len, 0xFF);
    bytes
}

/// Checks that everything acknowledged is there.
pub fn holds(array: &Array, model: &Model, what: &str) {
    let len = ROWS * row_bytes(usize::try_from(array.identity().members).expect("few"));
    for leb in 0..LEBS {
        let acknowledged = model.lebs.get(&leb);
        let expected = padded(acknowledged, len);
        let under_way = model.under_way.as_ref().filter(|(of, _)| *of == leb);
        let mut found = vec![0; len];
        match (array.volume().read(Leb(leb), 0, &mut found), under_way) {
            (Ok(()), _) => {}
            (Err(VolumeError::Uncorrectable { .. }), Some((_, Operation::Write))) => {}
            (Err(error), _) => panic!("{what}: {error}"),
        }
        match under_way {
            None => assert!(found == expected, "{what}: LEB {leb} is wrong"),
            Some((_, Operation::Write)) => {
                let written = acknowledged.map_or(0, Vec::len);
                assert!(
                    found[..written] == expected[..written],
                    "{what}: LEB {leb} lost what was written before"
                );
            }
            Some((_, Operation::Change(new))) => assert!(
                found == expected || found == padded(Some(new), len),
                "{what}: LEB {leb} is neither old nor new"
            ),
            // A LEB that was being unmapped may have its old content.
            Some((_, Operation::Unmap)) => assert!(
                found == expected || found == padded(None, len),
                "{what}: LEB {leb} is neither old nor empty"
            ),
        }
    }
}

/// Settles the interrupted operation as a file system's recovery does: replaces the LEB.
pub fn settle(array: &Array, model: &mut Model, prng: &mut Prng) {
    let Some((leb, _)) = model.under_way.take() else {
        return;
    };
    let row = usize::try_from(array.volume().geometry().min_io_bytes).expect("small");
    let data = content(prng, row);
    array.volume().leb_change(Leb(leb), &data).expect("room");
    model.lebs.insert(leb, data);
}
