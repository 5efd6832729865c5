//! `--open cached`: small files that are opened for reading are read through the kernel's page cache, which a report of a
//! change makes invalid.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use testkit::prng::Prng;

use super::walks::fewest_requests_of;
use super::{PATIENCE, start_told};
use crate::harness::{Mounted, tidegate};
use crate::requests::requests_of;

const CACHED: [&str; 2] = ["--open", "cached"];

/// Longer than the time without a change after which a file is kept.
const SETTLED: Duration = Duration::from_millis(1100);

/// Longer than any file that is kept in the page cache for its size.
const LARGE: usize = 300 << 10;

fn start_cached(prepare: impl FnOnce(&Path), more: &[&str]) -> Option<Mounted> {
    start_told(prepare, &[&CACHED, more].concat())
}

fn read_whole(file: &File) -> Vec<u8> {
    let mut content = Vec::new();
    let mut part = vec![0; 64 << 10];
    loop {
        let length = file
            .read_at(&mut part, content.len().try_into().unwrap())
            .unwrap();
        if length == 0 {
            return content;
        }
        content.extend_from_slice(&part[..length]);
    }
}

#[test]
fn a_known_small_file_that_is_opened_and_read_sends_an_open_and_no_other_request_that_is_waited_for() {
    const FILES: u64 = 40;
    let make = |source: &Path| {
        for number in 0..FILES {
            let length = usize::try_from(number * 3000).unwrap();
            fs::write(source.join(number.to_string()), vec![1; length]).unwrap();
        }
    };
    for more in [&[][..], &["--passthrough", "off"]] {
        let Some(mounted) = start_cached(make, more) else {
            return;
        };
        let read = || {
            for number in 0..FILES {
                let file = File::open(mounted.mountpoint().join(number.to_string())).unwrap();
                let length = file.metadata().unwrap().len();
                assert_eq!(length, number * 3000);
                assert_eq!(read_whole(&file), vec![1; length.try_into().unwrap()]);
            }
        };
        read();
        let wanted = 2 * FILES + 4;
        let requests = fewest_requests_of(&mounted, wanted, read);
        assert_eq!(requests.get("open"), Some(&FILES), "{more:?}: {requests:?}");
        let others = requests
            .iter()
            .filter(|(name, _)| !["open", "release"].contains(&name.as_str()));
        let others: u64 = others.map(|(_, count)| count).sum();
        assert!(others <= 4, "{more:?}: {requests:?}");
    }
}

#[test]
fn a_change_behind_the_mount_shows_in_a_small_file_that_stays_open() {
    let make = |source: &Path| fs::write(source.join("file"), "at first").unwrap();
    let Some(mounted) = start_cached(make, &[]) else {
        return;
    };
    let open = || File::open(mounted.mountpoint().join("file")).unwrap();
    // Kept from the second open on, once no change was seen for a second.
    std::thread::sleep(SETTLED);
    drop(open());
    let reader = open();
    let kept = requests_of(&mounted, || assert_eq!(read_whole(&reader), b"at first"));
    assert!(
        kept.contains_key("read"),
        "it is not read through the kernel's page cache: {kept:?}"
    );
    let changed = OpenOptions::new()
        .write(true)
        .open(mounted.source().join("file"))
        .unwrap();
    let mut random = Prng::new(5);
    for length in [8, 8, 5000, 5000, 1, 70_000, LARGE, 8, 0, 4096] {
        let content = random.bytes(length);
        changed.set_len(length.try_into().unwrap()).unwrap();
        changed.write_all_at(&content, 0).unwrap();
        let since = Instant::now();
        while read_whole(&reader) != content
            || reader.metadata().unwrap().len() != u64::try_from(content.len()).unwrap()
        {
            assert!(since.elapsed() < PATIENCE, "{length} bytes are not seen");
            std::thread::yield_now();
        }
    }
}

/// One of the two files of the test below, and what it contains.
struct Subject {
    name: String,
    content: Vec<u8>,
    open: Vec<(File, bool)>,
}

impl Subject {
    fn open(&mut self, root: &Path, random: &mut Prng) {
        let writes = random.chance(40);
        let truncates = writes && random.chance(15);
        let mut options = OpenOptions::new();
        options.read(true).write(writes).truncate(truncates);
        let file = options.open(root.join(&self.name)).unwrap();
        if truncates {
            self.content.clear();
        }
        self.open.push((file, writes));
    }

    fn write(&mut self, random: &mut Prng) {
        let writers: Vec<_> = self.open.iter().filter(|(_, writes)| *writes).collect();
        if writers.is_empty() {
            return;
        }
        let (file, _) = random.pick(&writers);
        if random.chance(10) {
            let length = random.below_usize(LARGE);
            file.set_len(length.try_into().unwrap()).unwrap();
            self.content.resize(length, 0);
            return;
        }
        let most = if random.chance(5) { LARGE } else { 9000 };
        let length = 1 + random.below_usize(most);
        let data = random.bytes(length);
        let at = random.below_usize(self.content.len() + 5000);
        file.write_all_at(&data, at.try_into().unwrap()).unwrap();
        let end = self.content.len().max(at + data.len());
        self.content.resize(end, 0);
        self.content[at..at + data.len()].copy_from_slice(&data);
    }

    fn check(&self, step: u64) {
        for (file, writes) in &self.open {
            let same = read_whole(file) == self.content;
            assert!(same, "step {step}: {} (opened for writing: {writes})", self.name);
            let length = file.metadata().unwrap().len();
            assert_eq!(length, u64::try_from(self.content.len()).unwrap(), "step {step}");
        }
    }
}

/// Opens small files for reading once they are kept: at the second open after a second without a change.
fn open_settled(subjects: &mut [Subject; 2], root: &Path) {
    for subject in subjects.iter_mut() {
        subject.open.clear();
    }
    std::thread::sleep(SETTLED);
    for subject in subjects {
        for _ in 0..2 {
            subject.open.clear();
            let file = File::open(root.join(&subject.name)).unwrap();
            subject.open.push((file, false));
        }
    }
}

fn read_and_write(more: &[&str], seed: u64) {
    const STEPS: u64 = 1200;
    let make = |source: &Path| {
        for name in ["one", "two"] {
            fs::write(source.join(name), "").unwrap();
        }
    };
    let Some(mounted) = start_cached(make, more) else {
        return;
    };
    let root = mounted.mountpoint();
    let mut random = Prng::new(seed);
    let mut subjects = ["one", "two"].map(|name| Subject {
        name: name.to_owned(),
        content: Vec::new(),
        open: Vec::new(),
    });
    for step in 0..STEPS {
        if step % 150 == 0 {
            open_settled(&mut subjects, &root);
        }
        let chosen = random.below_usize(2);
        let subject = &mut subjects[chosen];
        match random.below(10) {
            0..3 if subject.open.len() < 5 => subject.open(&root, &mut random),
            0..3 => subject.open.clear(),
            3 if !subject.open.is_empty() => {
                let closed = random.below_usize(subject.open.len());
                subject.open.remove(closed);
            }
            3..8 => subject.write(&mut random),
            _ if subject.open.is_empty() => {
                let length = random.below_usize(9000);
                subject.content = random.bytes(length);
                fs::write(mounted.source().join(&subject.name), &subject.content).unwrap();
                let since = Instant::now();
                while fs::read(root.join(&subject.name)).unwrap() != subject.content {
                    assert!(since.elapsed() < PATIENCE, "step {step}: a change is not seen");
                }
            }
            _ => {}
        }
        subject.check(step);
    }
    for subject in &mut subjects {
        subject.open.clear();
        let below = fs::read(mounted.source().join(&subject.name)).unwrap();
        assert!(below == subject.content, "{}", subject.name);
    }
}

/// Whichever comes first decides how the data of a file travels, and its size too: each order must give one content.
#[test]
fn readers_and_writers_of_small_files_see_one_content_whoever_opens_first() {
    let modes = [
        &[][..],
        &["--passthrough", "off"],
        &["--passthrough", "off", "--direct-io", "off"],
    ];
    std::thread::scope(|scope| {
        for (seed, more) in (23..).zip(modes) {
            scope.spawn(move || read_and_write(more, seed));
        }
    });
}

#[test]
fn files_are_not_kept_where_no_change_is_reported_or_the_kernel_keeps_no_data() {
    if !testkit::needs(&[testkit::Need::Root]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for (option, reason) in [
        (["--coherence", "timeout"], "which takes coherence=watch"),
        (["--direct-io", "on"], "the kernel keeps no data"),
        (["--writeback", "on"], "data that has changed in the source"),
        (["-o", "strictatime"], "each read has to reach the source"),
    ] {
        let output = tidegate()
            .arg("mount")
            .args(CACHED)
            .args(option)
            .arg("/usr")
            .arg(folder.path())
            .output()
            .unwrap();
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{option:?}: {message}");
        assert!(
            message.contains("open=cached can't be had") && message.contains(reason),
            "{option:?}: {message}"
        );
    }
}
