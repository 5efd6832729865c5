//! Configurations of the demo, lowest first after native, and their mounts.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use mounted::document::{self, Document};

use crate::{DemoError, TestFileSystem, this_program};

/// A configuration: its name and the arguments of its mount; `None` measures the file system itself.
pub struct Configuration {
    /// Name in tables and records.
    pub label: &'static str,
    /// Short description.
    pub meaning: &'static str,
    /// True for the configurations of the paper, in its order: each is faster than the one before.
    pub is_in_paper: bool,
    /// Arguments of `tidegate mount`, in groups.
    pub mount: Option<&'static [&'static [&'static str]]>,
}

impl Configuration {
    /// Description of the configuration, with its mount arguments.
    pub fn description(&self) -> String {
        match self.mount {
            None => self.meaning.to_owned(),
            Some([]) => format!("{}: tidegate mount with nothing but defaults", self.meaning),
            Some(arguments) => format!("{}: {}", self.meaning, arguments.concat().join(" ")),
        }
    }
}

/// Label of the baseline.
pub const NATIVE: &str = "native";

/// FUSE as in the paper, without newer kernel features, and with workers that sleep.
const PAPERS_KERNEL: &[&str] = &["--writeback=off", "--passthrough=off", "--uring=off", "--poll=0"];

/// Plain FUSE: data goes through the page cache above it.
const CACHED: &[&str] = &["--direct-io", "off"];

/// The ladder. `bfuse-8m` differs from `fuse-512k` by the buffer, its thread, and by direct I/O for writers: the
/// buffer replaces the page cache above it, because two caches in a row would hide the effect of the buffer.
pub const LADDER: [Configuration; 5] = [
    Configuration {
        label: NATIVE,
        is_in_paper: false,
        meaning: "the file system itself",
        mount: None,
    },
    Configuration {
        label: "fuse-4k",
        is_in_paper: true,
        meaning: "plain FUSE, 4 KiB requests",
        mount: Some(&[PAPERS_KERNEL, CACHED, &["--io-unit", "4k", "--flusher", "off"]]),
    },
    Configuration {
        label: "fuse-512k",
        is_in_paper: true,
        meaning: "plain FUSE, 512 KiB requests",
        mount: Some(&[PAPERS_KERNEL, CACHED, &["--io-unit", "512k", "--flusher", "off"]]),
    },
    Configuration {
        label: "bfuse-8m",
        is_in_paper: true,
        meaning: "512 KiB requests, 8 MiB write buffer emptied by a thread in place of FUSE's page cache for writers \
                  (direct I/O at auto)",
        mount: Some(&[
            PAPERS_KERNEL,
            &["--io-unit", "512k", "--buffer", "8m", "--flusher", "thread"],
            &["--direct-io", "auto"],
        ]),
    },
    Configuration {
        label: "tuned",
        is_in_paper: false,
        meaning: "all that the kernel grants",
        mount: Some(&[]),
    },
];

/// A configuration ready for measuring; unmounted on drop.
pub struct MountedConfiguration {
    label: &'static str,
    directory: PathBuf,
    is_mount: bool,
    negotiated: Option<String>,
}

impl MountedConfiguration {
    /// Mounts a configuration over the test file system.
    pub fn mount(configuration: &Configuration, test: &TestFileSystem) -> Result<Self, DemoError> {
        let label = configuration.label;
        let Some(arguments) = configuration.mount else {
            return Ok(Self {
                label,
                directory: test.data(),
                is_mount: false,
                negotiated: None,
            });
        };
        std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/fuse")
            .map_err(DemoError::NoFuse)?;
        let mut mounted = Self {
            label,
            directory: test.mountpoint(label)?,
            is_mount: true,
            negotiated: None,
        };
        let output = this_program()?
            .args(["mount", "--json"])
            .arg(test.data())
            .arg(&mounted.directory)
            .args(arguments.concat())
            .stdin(Stdio::null())
            .output()
            .map_err(|error| DemoError::Start("mounting", error))?;
        if !output.status.success() {
            let message = String::from_utf8_lossy(&output.stderr);
            return Err(DemoError::Mount(message.trim_end().to_owned()));
        }
        let report: serde_json::Value =
            serde_json::from_slice(&output.stdout).map_err(DemoError::MountReport)?;
        let summary = report["summary"].as_str();
        mounted.negotiated = summary.and_then(|text| text.lines().next()).map(str::to_owned);
        Ok(mounted)
    }

    /// Name of the configuration.
    pub fn label(&self) -> &'static str {
        self.label
    }

    /// Directory to measure.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Features granted by the kernel, in words; `None` if there is no daemon.
    pub fn negotiated(&self) -> Option<&str> {
        self.negotiated.as_deref()
    }

    /// The daemon's counters; `None` if there is no daemon.
    pub fn statistics(&self) -> Result<Option<Document>, DemoError> {
        if !self.is_mount {
            return Ok(None);
        }
        Ok(Some(document::read(&self.directory)?))
    }
}

impl Drop for MountedConfiguration {
    fn drop(&mut self) {
        if !self.is_mount {
            return;
        }
        // A failure shows by the directory left behind; drop can do nothing more.
        let _ = this_program().map(|mut program| {
            program
                .args(["unmount", "--lazy"])
                .arg(&self.directory)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status()
        });
    }
}
