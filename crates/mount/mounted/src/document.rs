//! The document of `tidegate stats`: written by the daemon, read by the commands through an extended attribute.
//!
//! The attribute is `user.tidegate.stats` on the root of the mount; its value is one JSON object ([`Document`]). The layers
//! below add their own counters unchanged, as flat objects of numbers and small lists.

use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use fuse::{Negotiated, SessionStats, StatsDocument};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use thiserror::Error;

/// Name of the extended attribute.
pub const ATTRIBUTE: &str = "user.tidegate.stats";

/// Version of the document that this program writes and reads.
pub const VERSION: u32 = 1;

/// Time limit for a daemon's answer.
pub const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// Maximum size of an extended attribute in Linux, bytes.
const ATTRIBUTE_BYTES_MAX: usize = 64 << 10;

/// The document as written by the daemon; its members are those of [`Document`].
#[derive(Debug, Serialize)]
pub struct DocumentParts<'a, Buffer, Backing> {
    /// [`VERSION`].
    pub version: u32,
    /// The serving process.
    pub pid: u32,
    /// Time since the start of the mount.
    pub uptime_ns: u64,
    /// The process namespace of `pid`.
    pub pid_namespace: Option<PathBuf>,
    /// Descriptor of the file that will hold the daemon's end status.
    pub end_descriptor: Option<i32>,
    /// The mounted folder.
    pub source: String,
    /// Features granted by the kernel.
    pub negotiated: &'a Negotiated,
    /// Counters of the FUSE session.
    pub session: &'a SessionStats,
    /// Counters of the write buffer.
    pub buffer: Buffer,
    /// Counters of the host folder.
    pub backing: Backing,
}

/// Creates the producer of the document for a mount of `source`; `layers` returns the counters of the write buffer and of
/// the layer below. `end_descriptor` is that of the file for the daemon's end status, if it has one.
pub fn producer<Buffer: Serialize, Backing: Serialize>(
    source: String,
    end_descriptor: Option<i32>,
    layers: impl Fn() -> (Buffer, Backing) + Send + Sync + 'static,
) -> StatsDocument {
    let pid_namespace = own_pid_namespace();
    let started = Instant::now();
    Box::new(move |session, negotiated| {
        let (buffer, backing) = layers();
        let document = DocumentParts {
            version: VERSION,
            pid: std::process::id(),
            uptime_ns: u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX),
            pid_namespace: pid_namespace.clone(),
            end_descriptor,
            source: source.clone(),
            negotiated,
            session,
            buffer,
            backing,
        };
        serde_json::to_vec(&document).expect("counters have string keys and no failing serializers")
    })
}

/// The document as read by the commands.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Document {
    /// [`VERSION`].
    pub version: u32,
    /// The serving process, numbered in `pid_namespace`.
    pub pid: u32,
    /// Time since the start of the mount; older daemons do not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uptime_ns: Option<u64>,
    /// Target of the daemon's `/proc/self/ns/pid`.
    pub pid_namespace: Option<PathBuf>,
    /// Descriptor of the file that will hold the daemon's end status.
    #[serde(default)]
    pub end_descriptor: Option<i32>,
    /// The mounted folder.
    pub source: String,
    /// Features granted by the kernel.
    pub negotiated: Map<String, Value>,
    /// Counters of the FUSE session.
    pub session: SessionCounters,
    /// Counters of the write buffer.
    pub buffer: Map<String, Value>,
    /// Counters of the host folder.
    pub backing: Map<String, Value>,
}

/// [`SessionStats`] as read back.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct SessionCounters {
    /// Per kind of request.
    pub operations: Vec<OperationCounter>,
    /// Per size class.
    pub sizes: Vec<SizeCounter>,
    /// Bytes read by requests.
    pub read_bytes: u64,
    /// Bytes written by requests.
    pub written_bytes: u64,
    /// Voluntary context switches of the daemon.
    pub context_switches_voluntary: u64,
    /// Involuntary context switches of the daemon.
    pub context_switches_involuntary: u64,
    /// All other counters of the session.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// One kind of request.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct OperationCounter {
    /// Name of the request.
    pub operation: String,
    /// Number of requests served.
    pub count: u64,
    /// Number of requests answered with an error.
    pub errors: u64,
}

/// One class of request sizes.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct SizeCounter {
    /// Upper bound in bytes.
    pub bytes_max: u64,
    /// Read requests.
    pub reads: u64,
    /// Write requests.
    pub writes: u64,
}

/// Reasons for a failed read of the document.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The daemon is gone.
    #[error(
        "the daemon of this mount is gone; its last messages are in its --log-file or, without one, in the system log \
         (`journalctl -t tidegate`); remove the mount with `tidegate unmount`"
    )]
    Dead,
    /// The daemon does not answer: it hangs, or waits for something that hangs.
    #[error(
        "{}: its daemon did not answer within {} s; it may be stopped, or wait for its source", mountpoint.display(), limit.as_secs_f64()
    )]
    Silent {
        /// Mount point of the daemon.
        mountpoint: PathBuf,
        /// Time limit that passed.
        limit: Duration,
    },
    /// This user may not access the mount.
    #[error("{}: {source}; only the user that mounted it may ask, unless it has allow_other", mountpoint.display())]
    Refused {
        /// Mount point of the daemon.
        mountpoint: PathBuf,
        /// Error of the kernel.
        source: Errno,
    },
    /// Another file system is mounted there, or none.
    #[error("{}: no tidegate mount answers here ({source})", mountpoint.display())]
    NotOurs {
        /// Path that was queried.
        mountpoint: PathBuf,
        /// Error of the kernel.
        source: Errno,
    },
    /// The answer is not a document of this version.
    #[error("{}: the daemon's answer can't be read: {source}", mountpoint.display())]
    Malformed {
        /// Mount point of the daemon.
        mountpoint: PathBuf,
        /// Error of the parser.
        source: serde_json::Error,
    },
    /// The daemon has another version.
    #[error("{}: the daemon writes statistics of version {found}, this program reads {VERSION}", mountpoint.display())]
    Version {
        /// Mount point of the daemon.
        mountpoint: PathBuf,
        /// The daemon's version.
        found: u32,
    },
}

/// Queries the daemon behind `mountpoint` for its document, as bytes, with a time limit.
///
/// The question is asked by a child process (see [`answer`]), which is abandoned if the daemon does not answer: system
/// calls on a mount have no time limit, and a process that waits for a reply to a request that its daemon has read can't
/// end, not even by SIGKILL.
fn read_raw(mountpoint: &Path, limit: Duration) -> Result<Vec<u8>, ReadError> {
    let Ok(mut child) = ask_by_child(mountpoint) else {
        // No process could be started.
        return told(mountpoint, ask(mountpoint));
    };
    let (sender, answer) = mpsc::channel();
    let pipe = child.stdout.take();
    let reading = move || {
        let mut raw = Vec::new();
        let read = pipe.map(|pipe| pipe.take(ANSWER_BYTES_MAX).read_to_end(&mut raw));
        // Nobody waits for it any longer if this fails.
        let _ = sender.send(read.is_some_and(|read| read.is_ok()).then_some(raw));
    };
    let reader = thread::Builder::new().spawn(reading);
    match reader.map(|_| answer.recv_timeout(limit)) {
        Ok(Ok(Some(raw))) => {
            // It has closed its output as its last step.
            let _ = child.wait();
            told(mountpoint, decoded(raw))
        }
        _ => {
            // It may not end before the daemon does.
            let _ = child.kill();
            Err(ReadError::Silent {
                mountpoint: mountpoint.to_owned(),
                limit,
            })
        }
    }
}

fn ask_by_child(mountpoint: &Path) -> io::Result<Child> {
    Command::new("/proc/self/exe")
        .arg0("tidegate")
        .args(["stats", "--ask", "--"])
        .arg(mountpoint)
        .current_dir("/")
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
}

/// The document of a mount, or the error's number, to be printed for [`read_raw`] of the process that started this one.
#[must_use]
pub fn answer(mountpoint: &Path) -> Vec<u8> {
    match ask(mountpoint) {
        Ok(document) => [DOCUMENT, &document].concat(),
        Err(error) => [ERROR, error.raw_os_error().to_string().as_bytes()].concat(),
    }
}

/// The beginnings of an answer.
const DOCUMENT: &[u8] = b"document ";
const ERROR: &[u8] = b"error ";
const ANSWER_BYTES_MAX: u64 = 65 << 10;

fn decoded(raw: Vec<u8>) -> Result<Vec<u8>, Errno> {
    if let Some(document) = raw.strip_prefix(DOCUMENT) {
        return Ok(document.to_vec());
    }
    let number = raw
        .strip_prefix(ERROR)
        .and_then(|number| str::from_utf8(number).ok());
    let number = number.and_then(|number| number.parse().ok());
    Err(number.map_or(Errno::IO, Errno::from_raw_os_error))
}

fn ask(mountpoint: &Path) -> Result<Vec<u8>, Errno> {
    let mut value = vec![0; ATTRIBUTE_BYTES_MAX];
    let length = rustix::fs::getxattr(mountpoint, ATTRIBUTE, value.as_mut_slice())?;
    value.truncate(length);
    Ok(value)
}

fn told(mountpoint: &Path, answer: Result<Vec<u8>, Errno>) -> Result<Vec<u8>, ReadError> {
    let mountpoint = mountpoint.to_owned();
    answer.map_err(|source| match source {
        Errno::NOTCONN | Errno::CONNABORTED => ReadError::Dead,
        Errno::ACCESS | Errno::PERM => ReadError::Refused { mountpoint, source },
        _ => ReadError::NotOurs { mountpoint, source },
    })
}

/// Queries the daemon behind `mountpoint` for its document.
///
/// # Errors
/// [`ReadError`].
pub fn read(mountpoint: &Path) -> Result<Document, ReadError> {
    read_within(ANSWER_LIMIT, mountpoint)
}

/// As [`read`], with a time limit other than [`ANSWER_LIMIT`].
///
/// # Errors
/// [`ReadError`].
pub fn read_within(limit: Duration, mountpoint: &Path) -> Result<Document, ReadError> {
    parse(mountpoint, &read_raw(mountpoint, limit)?)
}

/// Identity of this process's pid namespace; `None` without /proc.
#[must_use]
pub fn own_pid_namespace() -> Option<PathBuf> {
    std::fs::read_link("/proc/self/ns/pid").ok()
}

fn parse(mountpoint: &Path, raw: &[u8]) -> Result<Document, ReadError> {
    #[derive(Deserialize)]
    struct Envelope {
        version: u32,
    }
    let malformed = |source| ReadError::Malformed {
        mountpoint: mountpoint.to_owned(),
        source,
    };
    let Envelope { version } = serde_json::from_slice(raw).map_err(malformed)?;
    if version != VERSION {
        return Err(ReadError::Version {
            mountpoint: mountpoint.to_owned(),
            found: version,
        });
    }
    serde_json::from_slice(raw).map_err(malformed)
}

/// A document with counters that grow with `step`.
#[cfg(test)]
pub fn example(step: u64) -> Document {
    let raw = serde_json::json!({
        "version": 1, "pid": 7, "pid_namespace": "pid:[1]", "source": "/the/source",
        "negotiated": {"kernel_protocol": [7, 45], "transport": "device", "not_granted": ["uring: off"]},
        "session": {
            "operations": [{"operation": "lookup", "count": 10 * step, "errors": step}],
            "sizes": [{"bytes_max": 524_288, "reads": 0, "writes": 4 * step}],
            "read_bytes": 0, "written_bytes": 2_097_152 * step,
            "context_switches_voluntary": step, "context_switches_involuntary": 0
        },
        "buffer": {"bytes_buffered": 4096, "flushes": step, "causes": {"full": step}},
        "backing": {"writes": 4 * step}
    });
    parse(Path::new("/mnt"), raw.to_string().as_bytes()).expect("the example is a document")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_version_is_told_apart_from_nonsense() {
        let mountpoint = Path::new("/mnt");
        let other = parse(mountpoint, br#"{"version":2,"anything":true}"#);
        assert!(matches!(other, Err(ReadError::Version { found: 2, .. })));
        assert!(matches!(
            parse(mountpoint, b"nonsense"),
            Err(ReadError::Malformed { .. })
        ));
    }

    #[test]
    fn members_that_this_version_does_not_know_are_kept() {
        let mut raw = serde_json::to_value(example(1)).expect("a document is JSON");
        raw["session"]["queue_depth"] = 3.into();
        let document = parse(Path::new("/mnt"), raw.to_string().as_bytes()).expect("one more member is fine");
        assert_eq!(document.session.more["queue_depth"], 3);
    }
}
