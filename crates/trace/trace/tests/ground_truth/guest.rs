//! The same check in the lab guest: another kernel, and file systems that this machine's kernel may lack.

use testkit::lab::{self, Ended, Guest, Job, Lab, Options};

use crate::{Outcome, failed, say};

/// A file system that `lab/jobs/on-filesystem.sh` makes.
pub struct GuestCase {
    pub name: &'static str,
    kind: &'static str,
    /// The medium to read at the end: the file under the loop device bypasses all caches.
    medium: &'static str,
    disk: GuestDisk,
}

/// Device of the file system.
#[derive(Clone, Copy, PartialEq, Eq)]
enum GuestDisk {
    Loop,
    /// A SCSI disk simulated by the guest's kernel: its driver's commands are checked.
    Scsi,
    /// An SD card, in a separate guest: its driver's commands are checked.
    Card,
}

const CARD_BYTES: u64 = 512 << 20;
/// The check of the driver's commands.
const COMMANDS: &str = "/host/truth commands \"$FOLDER\"";

const fn on_loop(name: &'static str, kind: &'static str) -> GuestCase {
    GuestCase {
        name,
        kind,
        medium: "/dev/shm/disk",
        disk: GuestDisk::Loop,
    }
}

const GUEST_CASES: &[GuestCase] = &[
    on_loop("guest_f2fs", "f2fs"),
    on_loop("guest_nilfs2", "nilfs2"),
    on_loop("guest_vfat", "vfat"),
    GuestCase {
        name: "guest_ext4_on_dm",
        kind: "ext4-dm",
        // Its sectors differ from those of the loop device below.
        medium: "$DEVICE",
        disk: GuestDisk::Loop,
    },
    GuestCase {
        name: "guest_ext4_on_scsi",
        kind: "ext4",
        medium: "$DEVICE",
        disk: GuestDisk::Scsi,
    },
    GuestCase {
        name: "guest_ext4_on_card",
        kind: "ext4",
        medium: "$DEVICE",
        disk: GuestDisk::Card,
    },
];

/// The cases of this run.
pub fn cases() -> &'static [GuestCase] {
    if testkit::left_to_full("each file system of the guest takes a minute") {
        return &[];
    }
    GUEST_CASES
}

impl GuestCase {
    /// Runs the case and returns its report. `None`: there is no guest on this machine, and the reason is printed.
    pub fn run(&self) -> Outcome<Option<String>> {
        let program = std::env::current_exe().map_err(|error| failed("this program's path", error))?;
        let job = Job::ready_made("on-filesystem.sh")
            .map_err(|error| failed(self.name, error))?
            .copy_of("truth", program)
            .variable("KIND", self.kind);
        let ran = match self.disk {
            GuestDisk::Loop => {
                let Some(mut guest) = lab::shared() else {
                    return Ok(None);
                };
                let judge = format!("/host/truth here \"$FOLDER\" \"{}\"", self.medium);
                guest.run(&job.variable("RUN", judge))
            }
            GuestDisk::Scsi => {
                let Some(mut guest) = lab::shared() else {
                    return Ok(None);
                };
                guest.run(&job.variable("DEVICE", "scsi").variable("RUN", COMMANDS))
            }
            GuestDisk::Card => {
                let Some(mut guest) = with_card()? else {
                    return Ok(None);
                };
                // Discarding a whole emulated card takes minutes.
                let job = job.variable("DEVICE", "card").variable("MKFS", "-E nodiscard");
                guest.0.run(&job.variable("RUN", COMMANDS))
            }
        };
        let outcome = ran.map_err(|error| failed(self.name, error))?;
        let text = outcome.text();
        match outcome.ended {
            Ended::Code(0) => Ok(Some(text.trim().to_owned())),
            ended => Err(format!("{ended:?}: {}", text.trim())),
        }
    }
}

/// A guest with an SD card, which needs a separate boot.
fn with_card() -> Outcome<Option<(Guest, tempfile::NamedTempFile)>> {
    let lab = match Lab::available() {
        Ok(lab) => lab,
        Err(why) => {
            say(&format!("guest_ext4_on_card: left out: {why}"));
            return Ok(None);
        }
    };
    let image = tempfile::NamedTempFile::new().map_err(|error| failed("the card's image", error))?;
    image
        .as_file()
        .set_len(CARD_BYTES)
        .map_err(|error| failed("the card's image", error))?;
    let options = Options {
        cards: vec![image.path().to_owned()],
        ..Options::default()
    };
    let guest = lab
        .boot(&options)
        .map_err(|error| failed("a guest with a card", error))?;
    Ok(Some((guest, image)))
}
