//! Which inodes the kernel was told to have setuid or setgid.
//!
//! Under HANDLE_KILLPRIV_V2 a write by an ordinary user clears those bits down here, and the kernel does not look again
//! until its attributes expire. It can only believe in a bit that a reply told it: those inodes are remembered, so that
//! the write that clears the bit can void the kernel's attributes. Almost always the set is empty, which costs one load.

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use vfs::{Attr, FileKind, Ino};

#[derive(Default)]
pub struct ToldModes {
    /// Size of the set, written under its lock.
    count: AtomicUsize,
    inodes: Mutex<HashSet<Ino>>,
}

impl ToldModes {
    /// The kernel is being told `attr`.
    pub fn tell(&self, ino: Ino, attr: &Attr) {
        let privileged = attr.kind() == FileKind::Regular && attr.mode & (libc::S_ISUID | libc::S_ISGID) != 0;
        if privileged || self.count.load(Ordering::Acquire) > 0 {
            self.change(|inodes| {
                if privileged {
                    inodes.insert(ino)
                } else {
                    inodes.remove(&ino)
                }
            });
        }
    }

    /// True when the kernel believes in such a bit; it is then no longer remembered.
    pub fn take(&self, ino: Ino) -> bool {
        self.count.load(Ordering::Acquire) > 0 && self.change(|inodes| inodes.remove(&ino))
    }

    fn change(&self, act: impl FnOnce(&mut HashSet<Ino>) -> bool) -> bool {
        let mut inodes = self.inodes.lock().expect("no panic under this lock");
        let result = act(&mut inodes);
        self.count.store(inodes.len(), Ordering::Release);
        result
    }
}

#[cfg(test)]
mod tests {
    use vfs::Timestamp;

    use super::*;

    fn attr(mode: u32) -> Attr {
        let time = Timestamp::default();
        Attr {
            shown_ino: 1,
            size: 0,
            blocks: 0,
            atime: time,
            mtime: time,
            ctime: time,
            btime: None,
            mode,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            block_size: 4096,
            attributes: 0,
            attributes_mask: 0,
        }
    }

    #[test]
    fn only_a_bit_that_was_told_and_not_taken_back_is_taken() {
        let told = ToldModes::default();
        assert!(!told.take(Ino(5)));
        told.tell(Ino(5), &attr(libc::S_IFREG | 0o4755));
        told.tell(Ino(6), &attr(libc::S_IFREG | 0o4755));
        told.tell(Ino(6), &attr(libc::S_IFREG | 0o755));
        told.tell(Ino(7), &attr(libc::S_IFDIR | 0o2755));
        assert!(told.take(Ino(5)));
        assert!(!told.take(Ino(5)) && !told.take(Ino(6)) && !told.take(Ino(7)));
    }
}
