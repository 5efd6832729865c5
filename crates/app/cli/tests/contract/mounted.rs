//! A mount in one mode, with a folder for each program.

use std::ffi::OsString;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde_json::Value;
use tempfile::TempDir;
use testkit::Ext4;

use crate::harness::{can_mount, tidegate, wait_for_end};

/// A data path of a mount.
#[derive(Clone, Copy, Debug)]
pub struct Mode {
    pub name: &'static str,
    arguments: &'static [&'static str],
    /// The kernel caches writes and uses its own file size: see docs/reference/semantics.md, "Not promised".
    pub writeback: bool,
    /// The files also exist on the host.
    has_source: bool,
}

impl Mode {
    pub const UBIFS: Self = Self {
        has_source: false,
        ..Self::new("UBIFS", &[])
    };
    pub const PASSTHROUGH: Self = Self::new("passthrough", &["--passthrough", "on"]);
    pub const THREAD: Self = Self::new(
        "manager thread",
        &["--passthrough", "off", "--flush-interval", "30s"],
    );
    pub const INLINE: Self = Self::new("inline flusher", &["--passthrough", "off", "--flusher", "inline"]);
    pub const OFF: Self = Self::new("no buffer", &["--passthrough", "off", "--flusher", "off"]);
    pub const PAGE_CACHE: Self = Self::new(
        "page cache",
        &[
            "--passthrough",
            "off",
            "--flush-interval",
            "30s",
            "--direct-io",
            "off",
        ],
    );
    pub const DIRECT_IO: Self = Self::new(
        "direct I/O for all",
        &[
            "--passthrough",
            "off",
            "--flush-interval",
            "30s",
            "--direct-io",
            "on",
        ],
    );
    pub const WRITEBACK: Self = Self {
        writeback: true,
        ..Self::new(
            "writeback cache",
            &[
                "--passthrough",
                "off",
                "--flush-interval",
                "30s",
                "--writeback",
                "on",
            ],
        )
    };
    pub const IO_URING: Self = Self::new("io_uring", &["--passthrough", "off", "--uring", "on"]);

    /// The modes in which a fault in the source takes different paths.
    pub const ALL: [Self; 8] = [
        Self::PASSTHROUGH,
        Self::THREAD,
        Self::INLINE,
        Self::OFF,
        Self::PAGE_CACHE,
        Self::DIRECT_IO,
        Self::WRITEBACK,
        Self::IO_URING,
    ];

    const fn new(name: &'static str, arguments: &'static [&'static str]) -> Self {
        Self {
            name,
            arguments,
            writeback: false,
            has_source: true,
        }
    }

    /// Returns true if this machine supports the mode; otherwise prints the reason.
    pub fn is_available(&self) -> bool {
        if !can_mount() {
            return false;
        }
        let is_root = rustix::process::geteuid().is_root();
        let reason = if self.name == Self::PASSTHROUGH.name && !is_root {
            "passthrough needs root"
        } else if self.name == Self::IO_URING.name && !uring_is_enabled() {
            "/sys/module/fuse/parameters/enable_uring is not Y"
        } else {
            return true;
        };
        testkit::report_left_out(format!("mode {}: {reason}", self.name));
        false
    }
}

fn uring_is_enabled() -> bool {
    let parameter = std::fs::read_to_string("/sys/module/fuse/parameters/enable_uring");
    parameter.is_ok_and(|value| value.starts_with('Y'))
}

/// A program: its clause, its name and its function.
pub type Program = (&'static str, &'static str, fn(&Place<'_>));

/// The programs of a clause; each has the name of its function.
macro_rules! programs {
    ($clause:literal: $($program:ident),* $(,)?) => {
        vec![$(($clause, stringify!($program), $program as fn(&crate::mounted::Place<'_>))),*]
    };
}
pub(crate) use programs;

/// A mount in the background, unmounted on drop.
pub struct Mounted {
    pub mode: Mode,
    mountpoint: TempDir,
    /// Keeps the source, or the chips of a UBIFS.
    folder: TempDir,
    ext4: Option<Ext4>,
    report: Value,
    /// The command to mount it again.
    command: Vec<OsString>,
}

impl Mounted {
    /// Returns `None`, with a printed reason, if this machine does not support the mode.
    pub fn start(mode: &Mode) -> Option<Self> {
        if !mode.is_available() {
            return None;
        }
        let ext4 = Ext4::new(96)
            .inspect_err(|reason| testkit::report_left_out(format!("power cuts: {reason}")))
            .ok();
        let folder = TempDir::new().expect("a temporary folder");
        let source = ext4.as_ref().map_or(folder.path(), Ext4::folder).to_owned();
        Some(Self::over(&source, mode, folder, ext4))
    }

    /// Mounts `source`; `folder` is only kept alive.
    pub fn over(source: &Path, mode: &Mode, folder: TempDir, ext4: Option<Ext4>) -> Self {
        let mut command: Vec<OsString> = vec!["mount".into(), "--json".into(), source.into()];
        // No caching in the kernel, so that changes behind the mount are visible at once.
        command.extend(["--attr-timeout", "0s", "--entry-timeout", "0s"].map(OsString::from));
        command.extend(mode.arguments.iter().map(OsString::from));
        if rustix::process::geteuid().is_root() {
            command.extend(["-o", "allow_other"].map(OsString::from));
        }
        Self::by_command(command, mode, folder, ext4)
    }

    /// A UBIFS on chips in files, 18 MiB in total. `None`, with a printed reason, if this user can't mount.
    pub fn ubifs(members: u32) -> Option<Self> {
        if !can_mount() {
            return None;
        }
        let folder = TempDir::new().expect("a temporary folder");
        let devices: Vec<OsString> = match members {
            1 => Vec::new(),
            _ => vec!["--devices".into(), members.to_string().into()],
        };
        let chip = folder.path().join("chip").into_os_string();
        let run = |words: &[&str], more: &[&str]| {
            let mut command = tidegate();
            let command = command.args(words).arg(&chip).args(&devices).args(more);
            let output = command.output().expect("the binary runs");
            assert!(output.status.success(), "{words:?}: {output:?}");
        };
        let blocks = (288 / members).to_string();
        let shape = ["--page", "2048", "--pages-per-block", "32", "--blocks", &blocks];
        run(&["nand", "create"], &shape);
        if members == 1 {
            run(&["ubi", "format"], &[]);
            run(&["ubi", "mkvol"], &["-N", "data", "-m"]);
        } else {
            run(&["ubi", "format"], &["--label", "data"]);
        }
        run(&["ubifs", "mkfs"], &[]);
        let mut command: Vec<OsString> = vec!["ubifs".into(), "mount".into(), "--json".into(), chip];
        command.extend(devices);
        command.extend(["-o", "rw"].map(OsString::from));
        Some(Self::by_command(command, &Mode::UBIFS, folder, None))
    }

    fn by_command(command: Vec<OsString>, mode: &Mode, folder: TempDir, ext4: Option<Ext4>) -> Self {
        let mountpoint = TempDir::new().expect("a temporary folder");
        let report = mount(&command, mountpoint.path(), mode);
        Self {
            mode: *mode,
            mountpoint,
            folder,
            ext4,
            report,
            command,
        }
    }

    pub fn root(&self) -> &Path {
        self.mountpoint.path()
    }

    pub const fn has_source(&self) -> bool {
        self.mode.has_source
    }

    /// The source of the mount on the host; for UBIFS, which has only chips there, the mount itself.
    fn source(&self) -> &Path {
        match &self.ext4 {
            Some(ext4) => ext4.folder(),
            None if self.mode.has_source => self.folder.path(),
            None => self.root(),
        }
    }

    /// Runs each program in its own folder, and fails at the end with the list of failed ones.
    pub fn run_all(&self, programs: Vec<Program>) {
        let mut failed = Vec::new();
        for (clause, name, program) in programs {
            let place = Place::new(self, name);
            if catch_unwind(AssertUnwindSafe(|| program(&place))).is_err() {
                failed.push(format!(
                    "mode {}, clause {clause}: {}",
                    self.mode.name,
                    name.replace('_', " ")
                ));
            }
        }
        assert!(failed.is_empty(), "the contract is broken: {failed:#?}");
    }

    /// Ends the daemon by SIGKILL.
    pub fn kill(&self) {
        let pid = self.report["pid"]
            .as_i64()
            .and_then(|pid| i32::try_from(pid).ok());
        let pid = pid.and_then(Pid::from_raw).expect("the report has it");
        let daemon = pidfd_open(pid, PidfdFlags::empty()).expect("the daemon runs");
        pidfd_send_signal(&daemon, Signal::KILL).expect("it may be signalled");
        wait_for_end(&daemon);
    }

    /// The folder with the data that a killed daemon left: the source, or the UBIFS mounted again. No file of the mount may
    /// be open.
    pub fn left(&mut self) -> &Path {
        if !self.mode.has_source {
            let removed = tidegate().arg("unmount").arg(self.root()).output();
            assert!(
                removed.as_ref().is_ok_and(|removed| removed.status.success()),
                "{removed:?}"
            );
            self.report = mount(&self.command, self.root(), &self.mode);
        }
        self.source()
    }
}

fn mount(command: &[OsString], mountpoint: &Path, mode: &Mode) -> Value {
    let output = tidegate().args(command).arg(mountpoint).output();
    let output = output.expect("the binary runs");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "mode {}: {told}", mode.name);
    serde_json::from_slice(&output.stdout).expect("a report in JSON")
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Best effort: a failure here would hide the test's own message.
        let _ = tidegate()
            .arg("unmount")
            .arg(self.root())
            .args(["--lazy", "--timeout", "10s"])
            .output();
    }
}

/// The folder of one program.
pub struct Place<'a> {
    pub mounted: &'a Mounted,
    /// Path on the mount.
    pub root: PathBuf,
    /// Path on the host.
    pub source: PathBuf,
    name: &'a str,
}

impl<'a> Place<'a> {
    fn new(mounted: &'a Mounted, name: &'a str) -> Self {
        let (root, source) = (mounted.root().join(name), mounted.source().join(name));
        std::fs::create_dir(&source).expect("the source takes folders");
        sync(mounted.source());
        Self {
            mounted,
            root,
            source,
            name,
        }
    }

    pub const fn mode(&self) -> &Mode {
        &self.mounted.mode
    }

    /// The content of a file after a power cut now; `None` if the medium can't be inspected.
    pub fn after_power_cut(&self, name: &str) -> Option<Option<Vec<u8>>> {
        let ext4 = self.mounted.ext4.as_ref()?;
        Some(ext4.after_power_cut(&Path::new(self.name).join(name)))
    }

    /// Runs a shell script in a folder, as a separate process.
    pub fn shell(&self, folder: &Path, script: &str) -> String {
        let output = Command::new("sh")
            .current_dir(folder)
            .args(["-c", script])
            .output();
        let output = output.expect("there is a shell");
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "`{script}`: {told}");
        String::from_utf8(output.stdout).expect("text")
    }
}

/// Syncs the names in a folder to the medium.
pub fn sync(folder: &Path) {
    let synced = std::fs::File::open(folder).and_then(|folder| folder.sync_all());
    synced.unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
}
