//! A test folder with a tree and a volume made from it, in which commands run.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

pub struct Bench(pub TempDir);

impl Bench {
    /// Creates the folder with an empty folder `tree`.
    pub fn new() -> Self {
        let folder = TempDir::new().expect("a folder");
        fs::create_dir(folder.path().join("tree")).expect("made");
        Self(folder)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Runs the program in the folder; returns exit code, standard output and standard error.
    pub fn run(&self, words: &str) -> (i32, String, String) {
        let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(words.split(' '))
            .current_dir(&self.0)
            .output()
            .expect("the program runs");
        let text = |raw: &[u8]| String::from_utf8_lossy(raw).into_owned();
        let code = output.status.code().expect("it ends by itself");
        (code, text(&output.stdout), text(&output.stderr))
    }

    pub fn ends(&self, code: i32, words: &str) {
        let (found, out, told) = self.run(words);
        assert_eq!(found, code, "{words}: {out}{told}");
    }

    /// Makes the file `volume` of `tree`.
    pub fn make_volume(&self) {
        self.ends(0, "ubifs mkfs -r tree -m 2048 -e 126976 -c 200 -x none volume");
    }
}
