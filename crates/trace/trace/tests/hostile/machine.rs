//! The devices of a case: file systems on loop devices with short queues, bind mounts, and a bare device.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use tempfile::TempDir;

use crate::disk::{Device, Disk, FileSystem, run as system};
use crate::{Outcome, failed};

/// Folder in which the programs' folders are, so that a bind mount can show a part of the file system.
const PART: &str = "part";
/// Time for which the tracer is stopped, and runs, when records are to be lost.
const PAUSE: Duration = Duration::from_millis(15);

/// Devices of a case; gone with the value.
pub struct Machine {
    // Unmounted before the disks.
    binds: Vec<Bind>,
    places: Vec<Place>,
    disks: Vec<Disk>,
    bare: Option<Device>,
}

/// A mounted file system.
struct Place {
    root: PathBuf,
    device: String,
}

struct Bind {
    place: TempDir,
}

impl Bind {
    fn make(folder: &Path) -> Outcome<Self> {
        let place =
            TempDir::with_prefix_in("tidegate-bind-", "/dev/shm").map_err(|error| failed("bind", error))?;
        system(&[
            "mount",
            "--bind",
            &folder.to_string_lossy(),
            &place.path().to_string_lossy(),
        ])?;
        Ok(Self { place })
    }
}

impl Drop for Bind {
    fn drop(&mut self) {
        let _ = system(&["umount", &self.place.path().to_string_lossy()]);
    }
}

impl Machine {
    /// Makes the devices, or returns the missing requirement.
    pub fn make(file_systems: &[&FileSystem], with_device: bool, queue: u32) -> Outcome<Self> {
        let disks: Vec<Disk> = file_systems
            .iter()
            .map(|one| Disk::make(one))
            .collect::<Outcome<_>>()?;
        let of_disk = |disk: &Disk| Place {
            root: disk.mountpoint.clone(),
            device: disk.device.name.clone(),
        };
        let mut machine = Self::of(disks.iter().map(of_disk).collect())?;
        machine.disks = disks;
        if with_device {
            machine.bare = Some(Device::make()?);
        }
        machine.shorten(queue)?;
        Ok(machine)
    }

    /// A file system that is mounted already.
    pub fn mounted(root: &Path, device: &str, queue: u32) -> Outcome<Self> {
        let machine = Self::of(vec![Place {
            root: root.to_owned(),
            device: device.to_owned(),
        }])?;
        machine.shorten(queue)?;
        Ok(machine)
    }

    fn of(places: Vec<Place>) -> Outcome<Self> {
        let mut binds = Vec::new();
        for place in &places {
            let part = place.root.join(PART);
            std::fs::create_dir(&part).map_err(|error| failed("folder", error))?;
            binds.push(Bind::make(&part)?);
        }
        Ok(Self {
            binds,
            places,
            disks: Vec::new(),
            bare: None,
        })
    }

    /// Gives the devices' queues this many places.
    fn shorten(&self, queue: u32) -> Outcome<()> {
        for device in self.devices() {
            let name = device.trim_start_matches("/dev/");
            let setting = format!("/sys/block/{name}/queue/nr_requests");
            std::fs::write(&setting, queue.to_string()).map_err(|error| failed(&setting, error))?;
        }
        Ok(())
    }

    /// The mountpoints.
    pub fn roots(&self) -> impl Iterator<Item = &Path> {
        self.places.iter().map(|place| place.root.as_path())
    }

    pub fn devices(&self) -> impl Iterator<Item = &str> {
        let places = self.places.iter().map(|place| place.device.as_str());
        places.chain(self.bare.iter().map(|device| device.name.as_str()))
    }

    /// Arguments of [`run_all`]: for each device its root, its bind mount or `-`, and the programs, separated by commas.
    pub fn arguments(&self, programs: &[&str]) -> Vec<OsString> {
        let of_device = |name: &&&str| name.starts_with("raw_");
        let raw: Vec<&str> = programs.iter().filter(of_device).copied().collect();
        let others: Vec<&str> = programs.iter().filter(|name| !of_device(name)).copied().collect();
        let mut arguments: Vec<OsString> = Vec::new();
        for (place, bind) in self.places.iter().zip(&self.binds) {
            arguments.push(place.root.clone().into());
            arguments.push(bind.place.path().into());
            arguments.push(others.join(",").into());
        }
        if let Some(bare) = &self.bare {
            arguments.push(bare.name.clone().into());
            arguments.push("-".into());
            arguments.push(raw.join(",").into());
        }
        arguments
    }
}

/// The traced command: starts all programs at once and waits for them. Losing: it stops the tracer meanwhile, again and
/// again, so that records are lost between others that are not.
pub fn run_all(ledger: &str, scale: &str, losing: bool, folders: &[&str]) -> Outcome<()> {
    let this = std::env::current_exe().map_err(|error| failed("this program", error))?;
    let mut children: Vec<(String, Child)> = Vec::new();
    for place in folders.chunks(3) {
        let [root, bind, programs] = place else {
            return Err(format!("{folders:?} are no places"));
        };
        let is_device = *bind == "-";
        for program in programs.split(',') {
            let mut command = Command::new(&this);
            command.args(["program", program, root, ledger, scale]);
            if !is_device {
                command.arg(bind);
            }
            let child = command.spawn().map_err(|error| failed(program, error))?;
            children.push((program.to_owned(), child));
        }
    }
    while losing && is_one_running(&mut children) {
        let tracer = rustix::process::getppid();
        for signal in [rustix::process::Signal::STOP, rustix::process::Signal::CONT] {
            if let Some(tracer) = tracer {
                rustix::process::kill_process(tracer, signal).map_err(|error| failed("the tracer", error))?;
            }
            std::thread::sleep(PAUSE);
        }
    }
    let mut outcome = Ok(());
    for (program, mut child) in children {
        let status = child.wait().map_err(|error| failed(&program, error))?;
        if !status.success() {
            outcome = Err(format!("{program} ended with {status}"));
        }
    }
    outcome
}

fn is_one_running(children: &mut [(String, Child)]) -> bool {
    children
        .iter_mut()
        .any(|(_, child)| child.try_wait().is_ok_and(|status| status.is_none()))
}

/// The programs' folder on a file system.
pub fn part_of(root: &Path) -> PathBuf {
    root.join(PART)
}
