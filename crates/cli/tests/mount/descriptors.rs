//! A program that opens more files than the daemon has descriptors for.

use std::fs::{self, File};
use std::process::Command;

use rustix::io::Errno;

use crate::harness::{Mounted, report_skip};

const LIMIT: usize = 400;

#[test]
fn a_program_that_takes_all_descriptors_is_told_of_it_and_others_go_on() {
    // The daemon of a root that may not raise limits, as in a container.
    let limited = || {
        let mut command = Command::new("setpriv");
        command
            .args(["--inh-caps=-sys_resource", "--bounding-set=-sys_resource", "--"])
            .args(["prlimit", &format!("--nofile={LIMIT}:{LIMIT}"), "--"])
            .arg(env!("CARGO_BIN_EXE_tidegate"));
        command
    };
    if !rustix::process::geteuid().is_root() || Command::new("prlimit").arg("--version").output().is_err() {
        report_skip("a daemon with few descriptors: this needs root and util-linux");
        return;
    }
    let prepare = |source: &std::path::Path| {
        for number in 0..2 * LIMIT {
            fs::write(source.join(number.to_string()), "content").unwrap();
        }
    };
    for passthrough in ["auto", "off"] {
        let Some(mounted) = Mounted::start_by(limited(), prepare, &["--passthrough", passthrough]) else {
            return;
        };
        let root = mounted.mountpoint();
        let mut open = Vec::new();
        let error = loop {
            match File::open(root.join(open.len().to_string())) {
                Ok(file) => open.push(file),
                Err(error) => break error,
            }
        };
        assert_eq!(error.raw_os_error(), Some(Errno::NFILE.raw_os_error()), "{error}");
        assert!(
            open.len() > LIMIT * 9 / 10 - 20,
            "only {} files were opened",
            open.len()
        );

        // A refused creation makes nothing, and a refused truncation keeps what is there.
        File::create(root.join("new")).unwrap_err();
        assert!(!mounted.source().join("new").exists());
        File::create(root.join((2 * LIMIT - 1).to_string())).unwrap_err();
        assert_eq!(
            fs::read(mounted.source().join((2 * LIMIT - 1).to_string())).unwrap(),
            b"content"
        );

        // Others look, list and close.
        assert_eq!(fs::read_dir(&root).unwrap().count(), 2 * LIMIT);
        assert_eq!(fs::metadata(root.join("0")).unwrap().len(), 7);
        fs::rename(root.join("0"), root.join("renamed")).unwrap();
        let shortages = mounted.stats()["session"]["descriptor_shortages"].as_u64();
        assert!(shortages >= Some(3), "{shortages:?}");

        open.truncate(LIMIT / 2);
        assert_eq!(fs::read(root.join("300")).unwrap(), b"content");
        fs::write(root.join("new"), "room again").unwrap();
    }
}
