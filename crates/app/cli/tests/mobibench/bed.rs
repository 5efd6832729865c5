//! Fixture: a folder, the program run in it, and its output.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

/// The private folder of one test.
pub struct Bed {
    directory: TempDir,
}

/// Result of a run: exit code and output.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Bed {
    /// On the file system of the build, usually a disk.
    pub fn new() -> Self {
        let directory = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder for the test");
        Self { directory }
    }

    /// In memory; `None`, with a printed reason, if there is no such folder.
    pub fn in_memory() -> Option<Self> {
        match TempDir::new_in("/dev/shm") {
            Ok(directory) => Some(Self { directory }),
            Err(error) => {
                testkit::report_left_out(format!("/dev/shm can't be used: {error}"));
                None
            }
        }
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// The folder that [`Bed::run`] passes as `-p`; the program creates it.
    pub fn folder(&self) -> PathBuf {
        self.path().join("test")
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.folder().join(name)
    }

    pub fn length(&self, name: &str) -> u64 {
        fs::metadata(self.file(name))
            .unwrap_or_else(|error| panic!("{name}: {error}"))
            .len()
    }

    /// Creates a file in the folder before the program runs.
    pub fn put(&self, name: &str, content: &[u8]) {
        fs::create_dir_all(self.folder()).expect("the folder");
        fs::write(self.file(name), content).expect("a file");
    }

    /// Runs `tidegate mobibench -p FOLDER --cache as-is WORDS`: only tests about caches drop those of the machine.
    pub fn run(&self, words: &[&str]) -> Ran {
        Ran::of(self.command().args(words))
    }

    /// Runs `tidegate mobibench WORDS`.
    pub fn run_words(&self, words: &[&str]) -> Ran {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        Ran::of(command.arg("mobibench").args(words).current_dir(self.path()))
    }

    pub fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command
            .args(["mobibench", "--cache", "as-is", "-p"])
            .arg(self.folder())
            .current_dir(self.path());
        command
    }

    /// Runs under strace and returns the calls of these names without process ids; `None`, with a printed reason, if
    /// tracing is not possible.
    pub fn traced(&self, names: &str, words: &[&str]) -> Option<(Ran, Vec<String>)> {
        let log = self.path().join("calls");
        let mut command = Command::new("strace");
        command
            .args([
                "-f",
                "-qq",
                "-s",
                "8",
                "-e",
                "signal=none",
                "-e",
                &format!("trace={names}"),
                "-o",
            ])
            .arg(&log)
            .arg(env!("CARGO_BIN_EXE_tidegate"))
            .args(["mobibench", "--cache", "as-is", "-p"])
            .arg(self.folder())
            .args(words)
            .current_dir(self.path());
        let output = match command.output() {
            Ok(output) => output,
            Err(error) => {
                testkit::report_left_out(format!("strace can't be run: {error}"));
                return None;
            }
        };
        let text = fs::read_to_string(&log).unwrap_or_default();
        if text.is_empty() {
            testkit::report_left_out(format!(
                "strace traced nothing: {}",
                String::from_utf8_lossy(&output.stderr)
            ));
            return None;
        }
        let calls = text
            .lines()
            .filter_map(|line| line.split_once(' '))
            .map(|(_process, call)| call.trim_start().to_owned())
            .filter(|call| !call.starts_with("<..."))
            .collect();
        Some((Ran::from(output), calls))
    }
}

impl Ran {
    pub fn of(command: &mut Command) -> Self {
        Self::from(command.stdin(Stdio::null()).output().expect("the program runs"))
    }

    /// The line that begins with `start`.
    pub fn line(&self, start: &str) -> &str {
        self.out
            .lines()
            .find(|line| line.starts_with(start))
            .unwrap_or_else(|| panic!("no line {start}:\n{}{}", self.out, self.err))
    }

    /// The message after `Err string`.
    pub fn error(&self) -> &str {
        self.line("Err string : ").trim_start_matches("Err string : ")
    }

    /// Checks that the run failed and reported it in each of the three ways; returns the message.
    pub fn refusal(&self) -> &str {
        assert_eq!(self.code, 2, "{}{}", self.out, self.err);
        assert!(self.err.contains(self.error()), "{}{}", self.out, self.err);
        assert!(
            !self.out.contains("[TIME]"),
            "a failed run gave numbers:\n{}",
            self.out
        );
        self.error()
    }

    /// Returns true if the file system has no `O_DIRECT`.
    pub fn direct_io_is_missing(&self) -> bool {
        self.code == 2 && self.error().starts_with("open of") && self.error().contains("os error 22")
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8(output.stdout).expect("UTF-8"),
            err: String::from_utf8(output.stderr).expect("UTF-8"),
        }
    }
}

/// The number after `before` in `text`.
pub fn number_after(text: &str, before: &str) -> f64 {
    let (_, rest) = text
        .split_once(before)
        .unwrap_or_else(|| panic!("no `{before}` in `{text}`"));
    let digits = rest.trim_start();
    let end = digits
        .find(|letter: char| !letter.is_ascii_digit() && letter != '.')
        .unwrap_or(digits.len());
    digits[..end]
        .parse()
        .unwrap_or_else(|error| panic!("`{digits}` after `{before}`: {error}"))
}

/// Number of calls whose text begins with `start`.
pub fn count(calls: &[String], start: &str) -> usize {
    calls.iter().filter(|call| call.starts_with(start)).count()
}
