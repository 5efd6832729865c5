//! The virtual machine of a guest: QEMU's command line, its folder with socket and logs, and the connection.

use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use std::{fs, io};

use crate::booted::BOOT_TIMEOUT;
use crate::keeper::Kept;
use crate::{Lab, LabError, Options, file_error};

/// Makes a folder in the temporary folder, for its owner only, with a name short enough for a socket path.
pub(crate) fn new_folder() -> Result<PathBuf, LabError> {
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let name = format!("tidegate-lab-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        match fs::DirBuilder::new().mode(0o700).create(&folder) {
            Ok(()) => return fs::canonicalize(&folder).map_err(file_error(&folder)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(file_error(&folder)(error)),
        }
    }
}

/// The command that boots a guest; `own_folder` receives its socket and logs.
pub(crate) fn qemu(lab: &Lab, options: &Options, own_folder: &Path, share: &Path) -> Command {
    let mut sizes = String::new();
    for flash in &options.flash {
        sizes += &format!(",{}", flash.size_bytes());
    }
    let agent = lab.agent.as_ref();
    let agent = agent.map_or_else(String::new, |folder| format!("lab.guest={}", folder.display()));
    let kernel_arguments = [
        // A guest that panics ends at once.
        "console=ttyS0 quiet panic=-1",
        // Each of these saves time under emulation, or randomness that the guest would wait for.
        "mitigations=off nokaslr random.trust_cpu=on tsc=reliable clocksource=tsc cryptomgr.notests=1",
        // On a busy host, timer interrupts arrive too late for the kernel's timer check, which would panic.
        "no_timer_check",
        // UBIFS prints whole LEBs with an error, and the first lines must not be lost.
        "log_buf_len=16M",
        &format!("lab.modules={}", lab.modules.display()),
        &agent,
        &format!("lab.flash={}", sizes.trim_start_matches(',')),
    ]
    .join(" ");
    let mut command = Command::new("qemu-system-x86_64");
    command
        .args([
            "-nodefaults",
            "-no-user-config",
            "-display",
            "none",
            "-net",
            "none",
            "-no-reboot",
        ])
        .args(["-accel", &lab.accelerator, "-cpu", "max"])
        .args(["-smp", &options.processors.to_string()])
        .args(["-m", &options.memory_mib.to_string()])
        .arg("-kernel")
        .arg(&lab.kernel)
        .arg("-initrd")
        .arg(&lab.initramfs)
        .args(["-append", &kernel_arguments])
        .arg("-serial")
        .arg(format!("file:{}", escaped(&own_folder.join("kernel.log"))))
        .args([
            "-virtfs",
            "local,path=/,mount_tag=root,security_model=none,readonly=on,multidevs=remap",
        ])
        .arg("-virtfs")
        .arg(format!(
            "local,path={},mount_tag=host,security_model=none,multidevs=remap",
            escaped(share)
        ))
        .args(["-device", "virtio-serial-pci", "-chardev"])
        .arg(format!(
            "socket,id=control,path={},server=on,wait=off",
            escaped(&own_folder.join("control"))
        ))
        .args(["-device", "virtserialport,chardev=control,name=control"]);
    for (number, flash) in options.flash.iter().enumerate() {
        command.arg("-object").arg(format!(
            "memory-backend-file,id=flash{number},share=on,size={},mem-path={}",
            flash.window_bytes(),
            escaped(flash.path())
        ));
        // Explicit PCI addresses, away from the others: the module numbers devices by them.
        command.arg("-device").arg(format!(
            "ivshmem-plain,memdev=flash{number},addr={:#x}",
            0x10 + number
        ));
    }
    for drive in &options.drives {
        command.arg("-drive").arg(format!(
            "file={},format=raw,if=virtio,cache=unsafe",
            escaped(drive)
        ));
    }
    for device in &options.devices {
        // Past the host's page cache: the guest sees the device's times, and discards reach it.
        command.arg("-drive").arg(format!(
            "file={},format=raw,if=virtio,cache=none,discard=unmap",
            escaped(device)
        ));
    }
    for (number, card) in options.cards.iter().enumerate() {
        command.arg("-drive").arg(format!(
            "file={},format=raw,if=none,id=card{number},cache=unsafe",
            escaped(card)
        ));
        // A card is attached to the first bus of this name without one.
        command.args(["-device", "sdhci-pci", "-device"]);
        command.arg(format!("sd-card,drive=card{number},bus=sd-bus"));
    }
    command
}

/// Escapes a path for QEMU's options, in which a comma ends a value and two stand for one.
fn escaped(path: &Path) -> String {
    path.display().to_string().replace(',', ",,")
}

/// Connects to the control port as soon as QEMU has created it.
pub(crate) fn connect(qemu: &mut Kept, folder: &Path) -> Result<UnixStream, LabError> {
    let deadline = Instant::now() + BOOT_TIMEOUT;
    loop {
        match UnixStream::connect(folder.join("control")) {
            Ok(stream) => return Ok(stream),
            Err(_) if qemu.is_running() && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(_) => {
                let said = said(folder);
                let during = "before it could be reached".to_owned();
                return Err(LabError::Died { during, said });
            }
        }
    }
}

/// The last lines of the logs of QEMU and of the guest's kernel.
pub(crate) fn said(folder: &Path) -> String {
    let end = |name: &str| {
        let text = read_lossy(&folder.join(name));
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    };
    format!("{}\n{}", end("qemu.log"), end("kernel.log"))
}

/// The content of a log, empty if it does not exist yet.
pub(crate) fn read_lossy(path: &Path) -> String {
    fs::read(path).map_or_else(
        |_| String::new(),
        |bytes| String::from_utf8_lossy(&bytes).into_owned(),
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_folder_of_a_guest_is_its_owner_s() {
        let folder = new_folder().unwrap();
        let mode = fs::metadata(&folder).unwrap().permissions().mode();
        fs::remove_dir(&folder).unwrap();
        assert_eq!(mode & 0o777, 0o700);
    }
}
