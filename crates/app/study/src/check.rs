//! Finds everything that a plan needs and this machine lacks, before the first cell.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use results::nearest_f64;

pub use crate::bed::scheduler_of;
use crate::cell::{Block, Cell, GUEST, MACHINE, MOUNT, NATIVE, PEERS, blocks};
use crate::dirty_limit;
use crate::guest;
use crate::plan::{Device, Plan};

/// Share of a device that a file may fill: beside it there are metadata and the journal.
const FILE_SHARE: f64 = 0.8;

/// A sentence for each thing that is missing, with the next step.
///
/// # Errors
/// If the plan has a combination that is no cell.
pub fn missing(plan: &Plan) -> Result<Vec<String>> {
    let cells: Vec<Cell> = blocks(plan)?.into_iter().flat_map(|block| block.cells).collect();
    let mut missing = Vec::new();
    let mut miss =
        |problem: Option<String>| missing.extend(problem.filter(|problem| !missing.contains(problem)));
    let is_root = rustix::process::geteuid().is_root();
    match &plan.environment.device {
        Device::Directory(path) if !path.is_dir() => {
            miss(Some(format!("{}: it is no folder", path.display())));
        }
        Device::Directory(_) => {}
        _ if !is_root => miss(Some(
            "only root can make file systems on devices; run it as root, or set device = \"directory:PATH\""
                .to_owned(),
        )),
        Device::Block(path) => {
            miss(held(path));
            for cell in &cells {
                miss(without_scheduler(path, cell.value("scheduler")));
            }
        }
        Device::Card(_) | Device::Image => {}
    }
    if plan.environment.dirty_limit.is_some()
        && !matches!(plan.environment.device, Device::Card(_) | Device::Image)
    {
        miss(Some(
            "environment.dirty-limit: only a card, an image and a guest have one; leave it out".to_owned(),
        ));
    }
    let is_on_host = |cell: &Cell| cell.value(MACHINE) != GUEST;
    if cells.iter().any(is_on_host) {
        miss(plan.environment.dirty_limit.and_then(dirty_limit::missing));
    }
    for cell in &cells {
        let has_file_system = !cell.is_raw() && !matches!(plan.environment.device, Device::Directory(_));
        let is_in_guest = cell.value(MACHINE) == GUEST;
        if has_file_system {
            if !is_in_guest {
                miss(without_file_system(cell.value("fs")));
            }
            if cell.value("mkfs").contains('/') {
                miss(Some(format!(
                    "mkfs: `{}`: expected options without paths: mkfs overwrites what it is told to",
                    cell.value("mkfs")
                )));
            }
        }
        let path = cell.value("path");
        if path != NATIVE && !cell.is_raw() && !is_in_guest && !can_open_fuse() {
            miss(Some(
                "/dev/fuse can't be opened: no mount can be measured; `modprobe fuse` adds it".to_owned(),
            ));
        }
        if path != MOUNT && PEERS.contains(&path) && program(path).is_none() {
            miss(Some(format!("{path} is not installed")));
        }
        let size = match is_in_guest {
            true => plan.environment.guest.size.or(plan.environment.size),
            false => plan.environment.size,
        };
        if let Some(bytes) = size {
            miss(too_large(cell, bytes));
        }
    }
    if in_guest(plan)?.len() > guest::BLOCKS_MAX {
        miss(Some(format!(
            "machine = \"guest\": a guest has at most {} file systems; leave some out",
            guest::BLOCKS_MAX
        )));
    }
    Ok(missing)
}

fn in_guest(plan: &Plan) -> Result<Vec<Block>> {
    Ok(blocks(plan)?.into_iter().filter(Block::is_in_guest).collect())
}

/// A sentence for each part of a plan that is left out, because this machine can't boot the lab guest or make a file
/// system for it.
///
/// # Errors
/// If the plan has a combination that is no cell.
pub fn left_out(plan: &Plan) -> Result<Vec<String>> {
    let blocks = in_guest(plan)?;
    if blocks.is_empty() {
        return Ok(Vec::new());
    }
    if let Some(reason) = guest::missing() {
        return Ok(vec![format!("left out: cells of the guest: {reason}")]);
    }
    let names = blocks.iter().filter_map(|block| block.values.get("fs"));
    let mut sentences: Vec<String> = names
        .filter_map(|name| without_maker(name))
        .map(|reason| format!("left out: cells of the guest: {reason}"))
        .collect();
    sentences.dedup();
    Ok(sentences)
}

/// The device or folder of a plan in words that name no other one, also after a restart of the machine.
///
/// # Errors
/// If it is not there.
pub fn identity(device: &Device) -> Result<String> {
    let real = |path: &Path| {
        path.canonicalize()
            .with_context(|| format!("{} can't be used", path.display()))
    };
    Ok(match device {
        Device::Card(name) => format!("card {name}"),
        Device::Image => "image".to_owned(),
        Device::Directory(path) => real(path)?.display().to_string(),
        Device::Block(path) => {
            let path = real(path)?;
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            let files = [
                "size",
                "wwid",
                "device/wwid",
                "device/serial",
                "partition",
                "loop/backing_file",
            ];
            let values = files.map(|file| fs::read_to_string(format!("/sys/class/block/{name}/{file}")));
            let words: Vec<String> = values
                .into_iter()
                .flatten()
                .map(|text| text.trim().to_owned())
                .collect();
            format!("{} {}", path.display(), words.join(" "))
        }
    })
}

/// Why a block device can't be used.
fn held(path: &Path) -> Option<String> {
    use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
    let is_device = fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_block_device());
    if !is_device {
        return Some(format!("{}: it is no block device", path.display()));
    }
    let exclusive = i32::try_from(rustix::fs::OFlags::EXCL.bits()).unwrap_or(0);
    let opened = fs::OpenOptions::new()
        .read(true)
        .custom_flags(exclusive)
        .open(path);
    opened
        .err()
        .map(|error| format!("{}: it is in use ({error}); unmount it first", path.display()))
}

/// Why a block device can't have a scheduler. One that is a module of the kernel is loaded when it is set.
fn without_scheduler(device: &Path, wanted: &str) -> Option<String> {
    let path = scheduler_of(device).ok()?;
    let Ok(names) = fs::read_to_string(&path) else {
        return Some(format!(
            "{}: it has no I/O scheduler ({} can't be read); set device to a disk or partition that has one",
            device.display(),
            path.display()
        ));
    };
    let is_known = names
        .split_whitespace()
        .any(|name| name.trim_matches(['[', ']']) == wanted);
    (!is_known && !is_module("block", &format!("{wanted}-iosched")) && !is_module("block", wanted)).then(
        || {
            format!(
                "{}: scheduler `{wanted}`: this kernel has {}",
                device.display(),
                names.trim()
            )
        },
    )
}

/// Whether a module of the running kernel is installed.
fn is_module(folder: &str, name: &str) -> bool {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    ["", ".xz", ".zst", ".gz"]
        .iter()
        .any(|end| Path::new(&format!("/lib/modules/{release}/kernel/{folder}/{name}.ko{end}")).exists())
}

/// Why a file system can't be made and mounted.
pub(crate) fn without_file_system(name: &str) -> Option<String> {
    if let Some(reason) = without_maker(name) {
        return Some(reason);
    }
    let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    let is_known = known
        .lines()
        .any(|line| line.split_whitespace().last() == Some(name));
    (!is_known && !is_module(&format!("fs/{name}"), name)).then(|| {
        format!("this kernel has no {name}; leave it out of the axis fs, or set machine = \"guest\"")
    })
}

/// Why a file system can't be made.
pub(crate) fn without_maker(name: &str) -> Option<String> {
    let maker = format!("mkfs.{name}");
    program(&maker)
        .is_none()
        .then(|| format!("fs = \"{name}\": {maker} is not installed"))
}

/// Why the file of a cell does not fit on the device.
fn too_large(cell: &Cell, device_bytes: u64) -> Option<String> {
    let size = cell.value("workload.size");
    let bytes = programs::quantity::parse_bytes(size).ok()?;
    let room = nearest_f64(device_bytes) * FILE_SHARE;
    (nearest_f64(bytes) > room).then(|| {
        format!("workload.size: a file of {size} does not fit on a device of {device_bytes} bytes beside metadata; set environment.size")
    })
}

fn can_open_fuse() -> bool {
    fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/fuse")
        .is_ok()
}

fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var("PATH").unwrap_or_default();
    let folders = path.split(':').chain(["/usr/sbin", "/sbin"]);
    folders
        .map(|folder| Path::new(folder).join(name))
        .find(|path| path.is_file())
}
