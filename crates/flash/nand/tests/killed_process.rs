//! A process that writes to a chip in a file is killed: all acknowledged data is there, and the chip stays usable.
//!
//! The writer is this same program, restarted with [`CHIP`] in its environment.

use std::env;
use std::io::{BufRead, BufReader, Write, stdout};
use std::path::Path;
use std::process::{Command, Stdio};

use media::{Nand, NandGeometry, Peb};
use nand::{Access, ChipModel, FaultModel, FileNand, ImageKind};

const CHIP: &str = "TIDEGATE_TEST_CHIP";
const PAGE: u32 = 512;
const PAGES: u32 = 8;
const BLOCKS: u32 = 4;

/// The content of the n-th page that the writer programs.
fn content(number: u32) -> [u8; 512] {
    [u8::try_from(number % 200).expect("below 200"); 512]
}

/// Fills block after block, for ever, and prints the number of each completed page.
fn write_for_ever(path: &Path) {
    let mut chip = FileNand::open(path, Access::ReadWrite, None).expect("the chip opens");
    for number in 0.. {
        let (block, page) = (number / PAGES % BLOCKS, number % PAGES);
        if page == 0 {
            chip.erase(Peb(block)).expect("an erase");
        }
        chip.program(Peb(block), page * PAGE, &content(number))
            .expect("a program");
        writeln!(stdout(), "done {number}").expect("somebody reads");
    }
}

#[test]
fn what_a_killed_writer_has_done_is_there_and_the_chip_goes_on() {
    if let Some(path) = env::var_os(CHIP) {
        return write_for_ever(Path::new(&path));
    }
    for pages in [1, 7, 40, 113] {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("chip");
        let model = ChipModel::new(NandGeometry::new(PAGE, PAGES, BLOCKS).unwrap());
        drop(FileNand::create(&path, model, FaultModel::none(), ImageKind::Data, |_| {}).unwrap());
        let last = run_and_kill(&path, pages);

        let mut chip =
            FileNand::open(&path, Access::ReadWrite, None).expect("its lock went with the process");
        let block = last / PAGES % BLOCKS;
        for number in last - last % PAGES..=last {
            let mut out = [0; 512];
            let report = chip.read(Peb(block), number % PAGES * PAGE, &mut out).unwrap();
            assert!(
                report.is_correct() && out == content(number),
                "page {number} of {last} was done, killed after {pages}"
            );
        }
        for peb in chip.geometry().pebs() {
            chip.erase(peb).unwrap();
            chip.program(peb, 0, &[1; 4096]).unwrap();
        }
    }
}

/// Lets a writer complete at least `pages` pages, kills it, and returns the last page that it reported.
fn run_and_kill(path: &Path, pages: usize) -> u32 {
    let name = "what_a_killed_writer_has_done_is_there_and_the_chip_goes_on";
    let mut writer = Command::new(env::current_exe().expect("this program"))
        .args(["--exact", name, "--nocapture"])
        .env(CHIP, path)
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts again");
    let mut lines = BufReader::new(writer.stdout.take().expect("it is piped")).lines();
    let done =
        |line: std::io::Result<String>| -> Option<u32> { line.ok()?.strip_prefix("done ")?.parse().ok() };
    let mut last = None;
    let mut count = 0;
    while count < pages {
        let line = lines.next().expect("it writes for ever");
        if let Some(number) = done(line) {
            (last, count) = (Some(number), count + 1);
        }
    }
    writer.kill().expect("it runs");
    writer.wait().expect("it was started here");
    // Output of the writer that was not read before the kill.
    for line in lines {
        last = done(line).or(last);
    }
    last.expect("it said something")
}
