//! Locks of images and devices against other users.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::Access;

/// A child inherits all descriptors between fork and exec, and with them a lock that this process has just given up.
const OF_A_CHILD: Duration = Duration::from_millis(250);

/// Takes the lock, shared for [`Access::ReadOnly`].
///
/// # Errors
/// `WOULDBLOCK` if another user still has it after a quarter of a second; those of `flock(2)`.
pub fn lock(file: impl AsFd, access: Access) -> Result<(), Errno> {
    let operation = match access {
        Access::ReadOnly => FlockOperation::NonBlockingLockShared,
        Access::ReadWrite => FlockOperation::NonBlockingLockExclusive,
    };
    let start = Instant::now();
    loop {
        match flock(&file, operation) {
            Err(Errno::WOULDBLOCK) if start.elapsed() < OF_A_CHILD => {
                std::thread::sleep(Duration::from_millis(5));
            }
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn a_lock_that_is_given_up_soon_is_waited_for_and_one_that_is_held_is_told() {
        let file = tempfile::NamedTempFile::new().expect("there is room for it");
        let open = || File::open(file.path()).expect("it is there");
        let held = open();
        lock(&held, Access::ReadWrite).expect("it is free");
        assert_eq!(lock(open(), Access::ReadOnly), Err(Errno::WOULDBLOCK));
        std::thread::scope(|scope| {
            scope.spawn(move || {
                std::thread::sleep(Duration::from_millis(50));
                drop(held);
            });
            assert_eq!(lock(open(), Access::ReadWrite), Ok(()));
        });
    }
}
