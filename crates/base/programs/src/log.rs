//! Messages: to standard error, and for a mount in the background to its log file or the system log.
//!
//! The system log is the datagram socket `/dev/log`, which journald and every syslogd serve: `<priority>tag[pid]:
//! message` (the local form of RFC 3164, in which the receiver adds the time). If the receiver is missing or too slow,
//! the message is lost; the daemon never waits.

use std::io::{self, Write};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use report::number::date_and_time;
use results::shown;

/// Severity of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Data was or may be lost, or an operation failed.
    Error,
    /// Normal operation.
    Info,
}

/// `LOG_DAEMON`.
const FACILITY: u8 = 3 << 3;
/// Longer messages are cut: a receiver need not accept more than 2 KiB.
const MESSAGE_BYTES_MAX: usize = 1900;

enum Target {
    /// Standard error is the log file.
    File,
    System(SystemLog),
}

static BACKGROUND: OnceLock<Target> = OnceLock::new();

/// Sends messages to the background targets from here on; panics become messages too.
pub fn to_background(log_file: Option<&Path>) {
    let target = match log_file {
        Some(_) => Target::File,
        None => Target::System(SystemLog::new("/dev/log".into())),
    };
    if BACKGROUND.set(target).is_ok() {
        std::panic::set_hook(Box::new(|panic| {
            let thread = std::thread::current();
            let name = thread.name().unwrap_or("without a name").to_owned();
            message(Level::Error, &format!("thread {name}: {panic}"));
        }));
    }
}

/// Writes a message. A failure can't be reported and is ignored.
pub fn message(level: Level, text: &str) {
    let text = shown::lines(text);
    match BACKGROUND.get() {
        None => drop(writeln!(io::stderr(), "tidegate: {}", below_one_another(&text))),
        Some(Target::File) => {
            // A name with a line feed must not look like a separate message.
            let text = text.replace('\n', " ");
            let line = format!("{} tidegate[{}]: {text}\n", utc_now(), std::process::id());
            let _ = io::stderr().write_all(line.as_bytes());
        }
        Some(Target::System(log)) => log.send(level, &text),
    }
}

/// Indents all lines but the first: a line feed in a name can't begin a message of its own.
fn below_one_another(text: &str) -> String {
    text.replace('\n', "\n  ")
}

struct SystemLog {
    path: PathBuf,
    /// Connected at the first message, and again after a restart of the receiver.
    socket: Mutex<Option<UnixDatagram>>,
}

impl SystemLog {
    const fn new(path: PathBuf) -> Self {
        Self {
            path,
            socket: Mutex::new(None),
        }
    }

    fn send(&self, level: Level, text: &str) {
        let priority = FACILITY
            + match level {
                Level::Error => 3,
                Level::Info => 6,
            };
        let mut line = format!(
            "<{priority}>tidegate[{}]: {}",
            std::process::id(),
            text.replace('\n', " ")
        );
        line.truncate(line.floor_char_boundary(MESSAGE_BYTES_MAX));
        let mut socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..2 {
            if socket.is_none() {
                *socket = self.connect().ok();
            }
            let Some(connected) = socket.as_ref() else { return };
            match connected.send(line.as_bytes()) {
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => *socket = None,
                _ => return,
            }
        }
    }

    fn connect(&self) -> io::Result<UnixDatagram> {
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        socket.connect(&self.path)?;
        Ok(socket)
    }
}

/// `2026-01-31T23:59:59Z`.
fn utc_now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
    date_and_time(seconds).replace(' ', "T") + "Z"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_feed_begins_no_other_message() {
        assert_eq!(
            below_one_another("a\ntidegate: all is well"),
            "a\n  tidegate: all is well"
        );
    }

    #[test]
    fn messages_reach_a_system_log_that_starts_late_or_restarts() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("log");
        let log = SystemLog::new(path.clone());
        log.send(Level::Error, "nobody listens");
        let received = |server: &UnixDatagram| {
            let mut buffer = [0; 4096];
            let length = server.recv(&mut buffer).unwrap();
            String::from_utf8(buffer[..length].to_vec()).unwrap()
        };
        let pid = std::process::id();
        let server = UnixDatagram::bind(&path).unwrap();
        log.send(Level::Error, "two\nlines");
        assert_eq!(received(&server), format!("<27>tidegate[{pid}]: two lines"));
        drop(server);
        std::fs::remove_file(&path).unwrap();
        let server = UnixDatagram::bind(&path).unwrap();
        log.send(Level::Info, &"é".repeat(4000));
        let long = received(&server);
        assert!(long.starts_with("<30>tidegate[") && long.len() <= MESSAGE_BYTES_MAX);
    }

    #[test]
    fn a_system_log_that_does_not_read_delays_no_sender() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("log");
        let _server = UnixDatagram::bind(&path).unwrap();
        let log = SystemLog::new(path);
        // More than the queue of any receiver.
        (0..10_000).for_each(|_| log.send(Level::Info, &"x".repeat(1000)));
    }
}
