//! The contract of file systems, tested by programs on real mounts in every mode. The crate `vfs` states the clauses;
//! `testkit::contract` tests them on single layers.
//!
//! Each mode is mounted once, as root over an ext4 whose medium can be inspected, and every program runs there in its own
//! folder. A failure names the mode, the clause and the program. If `/dev/fuse` or a mode is not available, a reason is
//! printed.

#[cfg(test)]
mod behind;
#[cfg(test)]
mod durable;
#[cfg(test)]
mod faults;
#[cfg(test)]
#[path = "../mount/harness.rs"]
#[expect(dead_code, reason = "the other tests of mounts use more of it")]
mod harness;
#[cfg(test)]
mod mounted;
#[cfg(test)]
mod programs;

#[cfg(test)]
mod modes {
    use std::os::unix::fs::PermissionsExt;

    use crate::harness::{BINARY, as_nobody, can_mount_as_nobody};
    use crate::mounted::{Mode, Mounted};
    use crate::{behind, durable, programs};

    /// Runs every program in one mode, and finally kills the daemon.
    fn in_mode(mode: &Mode) {
        let Some(mounted) = Mounted::start(mode) else {
            return;
        };
        let programs = [
            programs::appending(),
            programs::short_reads(),
            programs::visibility(),
            programs::handles(),
            behind::programs(),
            durable::programs(),
        ];
        mounted.run_all(programs.concat());
        durable::synced_data_survives_a_killed_daemon(mounted);
    }

    /// Runs the same tests as an ordinary user, who mounts through fusermount3 and can't inspect power cuts.
    #[test]
    fn the_contract_holds_for_an_ordinary_user() {
        if !can_mount_as_nobody() {
            return;
        }
        let folder = tempfile::TempDir::new().expect("a temporary folder");
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o777)).expect("it is ours");
        let [tests, binary] = ["tests", "tidegate"].map(|name| folder.path().join(name));
        let this = std::env::current_exe().expect("/proc is mounted");
        std::fs::copy(this, &tests).expect("there is room");
        std::fs::copy(env!("CARGO_BIN_EXE_tidegate"), &binary).expect("there is room");
        let output = as_nobody()
            .arg(&tests)
            .args(["modes::the_contract_holds_with", "--nocapture"])
            .env(BINARY, &binary)
            .env("TMPDIR", folder.path())
            .current_dir(folder.path())
            .output()
            .expect("setpriv was there");
        let told = [output.stdout, output.stderr].map(|told| String::from_utf8_lossy(&told).into_owned());
        assert!(output.status.success(), "as nobody:\n{}", told.concat());
        assert!(
            told[0].contains("the_contract_holds_with_the_manager_thread ... ok"),
            "{}",
            told.concat()
        );
    }

    #[test]
    fn the_contract_holds_on_ubifs_of_one_two_and_four_devices() {
        for members in [1, 2, 4] {
            let Some(mounted) = Mounted::ubifs(members) else {
                return;
            };
            let programs = [
                programs::appending(),
                programs::short_reads(),
                programs::visibility(),
                programs::handles(),
            ];
            mounted.run_all(programs.concat());
            durable::synced_data_survives_a_killed_daemon(mounted);
        }
    }

    #[test]
    fn the_contract_holds_with_passthrough() {
        in_mode(&Mode::PASSTHROUGH);
    }

    #[test]
    fn the_contract_holds_with_the_manager_thread() {
        in_mode(&Mode::THREAD);
    }

    #[test]
    fn the_contract_holds_with_the_inline_flusher() {
        in_mode(&Mode::INLINE);
    }

    #[test]
    fn the_contract_holds_without_a_buffer() {
        in_mode(&Mode::OFF);
    }

    #[test]
    fn the_contract_holds_with_the_page_cache() {
        in_mode(&Mode::PAGE_CACHE);
    }

    #[test]
    fn the_contract_holds_with_direct_io_for_all() {
        in_mode(&Mode::DIRECT_IO);
    }

    #[test]
    fn the_contract_holds_with_the_writeback_cache() {
        in_mode(&Mode::WRITEBACK);
    }

    #[test]
    fn the_contract_holds_over_io_uring() {
        in_mode(&Mode::IO_URING);
    }
}
