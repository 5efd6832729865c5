//! The same judgement in the lab guest: another kernel, and file systems that this machine's may not have.

use testkit::lab::{self, Ended, Job};

use crate::{Outcome, failed};

/// A file system that `lab/jobs/on-filesystem.sh` makes.
pub struct GuestCase {
    pub name: &'static str,
    kind: &'static str,
    /// What to read in the end: the file under the loop device is without anybody's cache.
    medium: &'static str,
}

const fn on_loop(name: &'static str, kind: &'static str) -> GuestCase {
    GuestCase {
        name,
        kind,
        medium: "/dev/shm/disk",
    }
}

pub const GUEST_CASES: &[GuestCase] = &[
    on_loop("guest_f2fs", "f2fs"),
    on_loop("guest_nilfs2", "nilfs2"),
    on_loop("guest_vfat", "vfat"),
    GuestCase {
        name: "guest_ext4_on_dm",
        kind: "ext4-dm",
        // Its sectors are not those of the loop device below.
        medium: "$DEVICE",
    },
];

impl GuestCase {
    /// The report. `None`: there is no guest on this machine, and the reason is printed.
    pub fn run(&self) -> Outcome<Option<String>> {
        let Some(mut guest) = lab::shared() else {
            return Ok(None);
        };
        let program = std::env::current_exe().map_err(|error| failed("this program's path", error))?;
        let job = Job::ready_made("on-filesystem.sh")
            .map_err(|error| failed(self.name, error))?
            .copy_of("truth", program)
            .variable("KIND", self.kind)
            .variable("RUN", format!("/host/truth here \"$FOLDER\" \"{}\"", self.medium));
        let outcome = guest.run(&job).map_err(|error| failed(self.name, error))?;
        let text = outcome.text();
        match outcome.ended {
            Ended::Code(0) => Ok(Some(text.trim().to_owned())),
            ended => Err(format!("{ended:?}: {}", text.trim())),
        }
    }
}
