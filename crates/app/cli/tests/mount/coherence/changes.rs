//! Kinds of change that are made to the source behind the mount.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;

use rustix::fs::{AtFlags, CWD, FallocateFlags, FileType, Mode, OFlags, RenameFlags, Timestamps, XattrFlags};

use crate::harness::LONG_AGO;

/// The tree that the changes are made to.
pub fn make_subject(source: &Path) {
    for folder in ["a", "b", "a/deep", "b/deep", "c"] {
        fs::create_dir_all(source.join(folder)).unwrap();
        for file in ["one", "two", "three"] {
            fs::write(
                source.join(folder).join(file),
                format!("{folder}/{file} at first"),
            )
            .unwrap();
        }
        symlink("one", source.join(folder).join("link")).unwrap();
    }
}

fn exchange(one: &Path, two: &Path) -> std::io::Result<()> {
    Ok(rustix::fs::renameat_with(
        CWD,
        one,
        CWD,
        two,
        RenameFlags::EXCHANGE,
    )?)
}

pub type Act = fn(&Path, &Path, u64) -> std::io::Result<()>;

/// Kinds of change: in the source, with a folder beside it on the same file system, and a number that is never the same.
pub const CHANGES: &[(&str, Act)] = &[
    ("overwrite", |at, _, number| {
        let file = OpenOptions::new().write(true).open(at.join("a/one"))?;
        file.write_all_at(&number.to_be_bytes(), 0)
    }),
    ("append", |at, _, number| {
        use std::io::Write;
        let mut file = OpenOptions::new().append(true).open(at.join("a/two"))?;
        write!(file, "{number}")
    }),
    ("truncate", |at, _, number| {
        let file = OpenOptions::new().write(true).open(at.join("b/two"))?;
        file.set_len(number % 50)
    }),
    ("write of a file that stays open", |at, _, number| {
        let file = OpenOptions::new().write(true).open(at.join("b/three"))?;
        file.write_all_at(&number.to_be_bytes(), 3)?;
        // Until the next one: only the write itself is reported.
        static OPEN: Mutex<Option<File>> = Mutex::new(None);
        *OPEN.lock().unwrap() = Some(file);
        Ok(())
    }),
    ("rewrite", |at, _, number| {
        fs::write(at.join("c/one"), number.to_string())
    }),
    ("replace", |at, beside, number| {
        fs::write(beside.join("new"), format!("replaced {number}"))?;
        fs::rename(beside.join("new"), at.join("a/three"))
    }),
    ("replace within", |at, _, number| {
        fs::write(at.join("c/new"), format!("replaced {number}"))?;
        fs::rename(at.join("c/new"), at.join("c/two"))
    }),
    ("times", |at, _, number| {
        let mut times: Timestamps = LONG_AGO;
        times.last_modification.tv_sec = number.try_into().unwrap();
        Ok(rustix::fs::utimensat(
            CWD,
            at.join("b/one"),
            &times,
            AtFlags::empty(),
        )?)
    }),
    ("mode", |at, _, number| {
        let mode = 0o400 + u32::try_from(number % 8).unwrap();
        fs::set_permissions(at.join("b/one"), PermissionsExt::from_mode(mode))
    }),
    ("mode of a folder", |at, _, number| {
        let mode = 0o750 + u32::try_from(number % 8).unwrap();
        fs::set_permissions(at.join("b/deep"), PermissionsExt::from_mode(mode))
    }),
    ("owner", |at, _, number| {
        std::os::unix::fs::chown(
            at.join("b/one"),
            Some(1000 + u32::try_from(number).unwrap()),
            None,
        )
    }),
    ("group of a link", |at, _, number| {
        std::os::unix::fs::lchown(
            at.join("c/link"),
            None,
            Some(1000 + u32::try_from(number).unwrap()),
        )
    }),
    ("attribute", |at, _, number| {
        let value = number.to_be_bytes();
        Ok(rustix::fs::setxattr(
            at.join("c/three"),
            "user.test",
            &value,
            XattrFlags::empty(),
        )?)
    }),
    ("attribute removed", |at, _, _| {
        let removed = rustix::fs::removexattr(at.join("c/three"), "user.test");
        Ok(removed.or_else(|error| match error {
            rustix::io::Errno::NODATA => Ok(()),
            error => Err(error),
        })?)
    }),
    ("acl", |at, _, number| {
        // Version 2; owner, the user 7, group, mask, others.
        let user = u8::try_from(number % 8).unwrap();
        let entries = [
            (1, 6, u32::MAX),
            (2, user, 7),
            (4, 4, u32::MAX),
            (0x10, 7, u32::MAX),
            (0x20, 4, u32::MAX),
        ];
        let mut acl = 2_u32.to_le_bytes().to_vec();
        for (tag, permissions, id) in entries {
            acl.extend([tag, 0, permissions, 0]);
            acl.extend(id.to_le_bytes());
        }
        let name = "system.posix_acl_access";
        Ok(rustix::fs::setxattr(
            at.join("c/three"),
            name,
            &acl,
            XattrFlags::empty(),
        )?)
    }),
    ("create", |at, _, _| File::create(at.join("a/absent")).map(drop)),
    ("remove", |at, _, _| fs::remove_file(at.join("a/absent"))),
    ("create elsewhere and remove", |at, _, number| {
        fs::write(at.join("absent"), number.to_string())?;
        fs::remove_file(at.join("absent"))
    }),
    ("make a folder", |at, _, number| {
        fs::create_dir(at.join("b/absent"))?;
        fs::write(at.join("b/absent/inside"), number.to_string())
    }),
    ("remove a folder", |at, _, _| {
        fs::remove_dir_all(at.join("b/absent"))
    }),
    ("make a fifo", |at, _, number| {
        let name = at.join(format!("a/fifo {}", number % 3));
        let _ = fs::remove_file(&name);
        Ok(rustix::fs::mknodat(CWD, name, FileType::Fifo, Mode::RUSR, 0)?)
    }),
    ("point a link elsewhere", |at, _, number| {
        fs::remove_file(at.join("a/link"))?;
        symlink(format!("to {number}"), at.join("a/link"))
    }),
    ("point a link elsewhere by a rename", |at, _, number| {
        symlink(format!("to {number}"), at.join("b/new link"))?;
        fs::rename(at.join("b/new link"), at.join("b/link"))
    }),
    ("rename", |at, _, _| {
        fs::rename(at.join("a/deep/one"), at.join("a/deep/first"))?;
        fs::rename(at.join("a/deep/two"), at.join("a/deep/one"))?;
        fs::rename(at.join("a/deep/first"), at.join("a/deep/two"))
    }),
    ("exchange", |at, _, _| {
        exchange(&at.join("a/deep/one"), &at.join("b/deep/two"))
    }),
    ("exchange folders", |at, _, _| {
        exchange(&at.join("a/deep"), &at.join("b/deep"))
    }),
    ("rename a folder twice", |at, _, number| {
        fs::rename(at.join("c"), at.join(format!("c {number}")))?;
        fs::rename(at.join(format!("c {number}")), at.join("c"))
    }),
    ("move a folder out", |at, beside, _| {
        fs::rename(at.join("b/deep"), beside.join("deep"))
    }),
    ("move a folder in", |at, beside, _| {
        fs::rename(beside.join("deep"), at.join("b/deep"))
    }),
    ("change a folder outside and move it in", |at, beside, number| {
        fs::rename(at.join("a/deep"), beside.join("other"))?;
        fs::write(beside.join("other/three"), format!("outside {number}"))?;
        fs::rename(beside.join("other"), at.join("a/deep"))
    }),
    ("move a file in", |at, beside, number| {
        fs::write(beside.join("file"), number.to_string())?;
        fs::rename(beside.join("file"), at.join("moved in"))
    }),
    ("move a file out", |at, beside, _| {
        fs::rename(at.join("moved in"), beside.join("out"))
    }),
    ("write by a name outside", |at, beside, number| {
        fs::hard_link(at.join("c/one"), beside.join("second name"))?;
        fs::write(beside.join("second name"), format!("by another name {number}"))?;
        fs::remove_file(beside.join("second name"))
    }),
    ("a name more", |at, _, number| {
        let name = at.join(format!("b/name {}", number % 3));
        let _ = fs::remove_file(&name);
        fs::hard_link(at.join("b/two"), name)
    }),
    ("an unnamed file gets a name", |at, _, number| {
        let file = OpenOptions::new()
            .write(true)
            .custom_flags(OFlags::TMPFILE.bits().cast_signed())
            .open(at.join("a"))?;
        file.write_all_at(&number.to_be_bytes(), 0)?;
        let name = at.join(format!("a/linked {}", number % 3));
        let _ = fs::remove_file(&name);
        let from = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
        Ok(rustix::fs::linkat(CWD, from, CWD, name, AtFlags::SYMLINK_FOLLOW)?)
    }),
    ("punch a hole", |at, _, number| {
        let file = OpenOptions::new().write(true).open(at.join("c/two"))?;
        file.write_all_at(&[number.to_be_bytes()[7]; 9000], 0)?;
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(rustix::fs::fallocate(&file, punch, number % 4096, 2000)?)
    }),
    ("copy within the host", |at, _, number| {
        let from = File::open(at.join("a/one"))?;
        let to = OpenOptions::new().write(true).open(at.join("c/three"))?;
        let mut offset = number % 10;
        rustix::fs::copy_file_range(&from, None, &to, Some(&mut offset), 5)?;
        Ok(())
    }),
    ("a file becomes a folder", |at, _, number| {
        let name = at.join("b/kind");
        match fs::symlink_metadata(&name) {
            Ok(meta) if meta.is_dir() => fs::remove_dir(&name)?,
            Ok(_) => fs::remove_file(&name)?,
            Err(_) => {}
        }
        match number % 2 {
            0 => fs::create_dir(&name),
            _ => fs::write(&name, number.to_string()),
        }
    }),
    ("restore a backup", |at, beside, _| {
        let (at, beside) = (at.join("c"), beside.join("backup"));
        let copy = |from: &Path, to: &Path| -> std::io::Result<()> {
            let done = Command::new("cp")
                .arg("-a")
                .arg("-T")
                .arg(from)
                .arg(to)
                .status()?;
            assert!(done.success());
            Ok(())
        };
        let _ = fs::remove_dir_all(&beside);
        copy(&at, &beside)?;
        fs::remove_dir_all(&at)?;
        copy(&beside, &at)
    }),
    ("write by another process with a mapping", |at, _, number| {
        const SCRIPT: &str = "import mmap, sys; f = open(sys.argv[1], 'r+b'); m = mmap.mmap(f.fileno(), 4); \
                              m[0:4] = sys.argv[2].encode()[-4:].rjust(4); m.close(); f.close()";
        let done = Command::new("python3")
            .args(["-c", SCRIPT])
            .arg(at.join("a/one"))
            .arg(number.to_string())
            .status()?;
        assert!(done.success());
        Ok(())
    }),
];
