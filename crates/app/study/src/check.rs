//! Finds everything that a plan needs and this machine lacks, before the first cell.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use results::nearest_f64;

use crate::cell::{Cell, MOUNT, NATIVE, PEERS, blocks};
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
        Device::Block(path) => miss(held(path)),
        Device::Card(_) | Device::Image => {}
    }
    for cell in &cells {
        let has_file_system = !cell.is_raw() && !matches!(plan.environment.device, Device::Directory(_));
        if has_file_system {
            miss(without_file_system(cell.value("fs")));
            if cell.value("mkfs").contains('/') {
                miss(Some(format!(
                    "mkfs: `{}`: expected options without paths: mkfs overwrites what it is told to",
                    cell.value("mkfs")
                )));
            }
        }
        let path = cell.value("path");
        if path != NATIVE && !cell.is_raw() && !can_open_fuse() {
            miss(Some(
                "/dev/fuse can't be opened: no mount can be measured; `modprobe fuse` adds it".to_owned(),
            ));
        }
        if path != MOUNT && PEERS.contains(&path) && program(path).is_none() {
            miss(Some(format!("{path} is not installed")));
        }
        if let Some(bytes) = plan.environment.size {
            miss(too_large(cell, bytes));
        }
    }
    Ok(missing)
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

/// Why a file system can't be made and mounted.
pub(crate) fn without_file_system(name: &str) -> Option<String> {
    let maker = format!("mkfs.{name}");
    if program(&maker).is_none() {
        return Some(format!("{maker} is not installed"));
    }
    let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    let is_known = known
        .lines()
        .any(|line| line.split_whitespace().last() == Some(name));
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let module = ["", ".xz", ".zst", ".gz"]
        .iter()
        .any(|end| Path::new(&format!("/lib/modules/{release}/kernel/fs/{name}/{name}.ko{end}")).exists());
    (!is_known && !module).then(|| format!("this kernel has no {name}; leave it out of the axis fs"))
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
