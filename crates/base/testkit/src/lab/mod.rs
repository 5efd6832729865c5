//! The [`guest`] in tests: one that all tests of a program share, and the stock `fsck.ubifs`, which needs none.
//!
//! - [`shared`] is the guest that all tests of one test program use, so that they boot it once.
//! - [`Fsck`] is the stock `fsck.ubifs`, on the host.
//! - [`Lab::available`] returns the guest with the agent of these sources, or the reason why it is missing.

mod fsck;

use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

pub use fsck::{Fsck, FsckReport};
pub use guest::{Ended, FlashFile, Folders, Guest, Job, Lab, LabError, Options, Outcome, Why};

/// The guest that the tests of this program share, booted with default options at the first call and again after a job
/// has ended it. If there is no guest, prints the reason and returns `None`, so that the test is left out.
///
/// It ends with the program, however that ends.
///
/// # Panics
///
/// If the guest is installed and does not boot.
pub fn shared() -> Option<SharedGuest> {
    let lab = match Lab::available() {
        Ok(lab) => lab,
        Err(why) => {
            crate::report_left_out(why);
            return None;
        }
    };
    // A test that failed while it held the guest left it usable, or ended it.
    let mut guest = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    if guest.as_ref().is_none_or(|guest| !guest.is_alive()) {
        // End the old one first: two at a time would be slow.
        *guest = None;
        let booted = lab.boot(&Options::default());
        *guest = Some(booted.unwrap_or_else(|error| panic!("{error}")));
    }
    Some(SharedGuest(guest))
}

static SHARED: LazyLock<Mutex<Option<Guest>>> = LazyLock::new(Mutex::default);

/// The [`shared`] guest, locked for this test.
pub struct SharedGuest(MutexGuard<'static, Option<Guest>>);

impl std::ops::Deref for SharedGuest {
    type Target = Guest;

    fn deref(&self) -> &Guest {
        self.0.as_ref().expect("shared() has put one there")
    }
}

impl std::ops::DerefMut for SharedGuest {
    fn deref_mut(&mut self) -> &mut Guest {
        self.0.as_mut().expect("shared() has put one there")
    }
}
