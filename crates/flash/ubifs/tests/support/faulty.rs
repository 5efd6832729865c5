//! A volume with an injected device fault: one operation fails, or all from one on. Users see the same as with a
//! device whose block failures UBI could not handle.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use media::{Leb, NandError};
use ubi::{ReadPart, Volume, VolumeError, VolumeGeometry, WritePart};

/// Class of operations counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Reads.
    Read,
    /// Writes, changes, maps and unmaps.
    Write,
    /// Waits for the device: erases of unmapped LEBs, syncs of the host.
    Settle,
}

impl Class {
    pub const ALL: [Self; 3] = [Self::Write, Self::Read, Self::Settle];
}

/// Effect of the failing operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// None.
    Nothing,
    /// The first half is written; an atomic operation has no effect.
    Half,
    /// Complete; only the result is wrong. A read returns noise and reports it as uncorrectable. Not usable during
    /// recovery, which can't tell it from a torn write.
    Done,
    /// The first half is written, then the code below panics.
    Panic,
}

/// Duration of the fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lasting {
    /// Only that operation.
    Once,
    /// All operations of the class from there on, until [`FaultyVolume::mend`].
    ForEver,
    /// Reads of that location, until [`FaultyVolume::mend`].
    ForEverThere,
}

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    pub class: Class,
    /// Number of the operation within its class, from 0.
    pub operation: u64,
    pub outcome: Outcome,
    pub lasting: Lasting,
}

#[derive(Default)]
struct State {
    fault: Option<Fault>,
    done: BTreeMap<Class, u64>,
    /// The operation that failed first.
    hit: Option<String>,
    place: Option<(Leb, u32, usize)>,
    mended: bool,
}

/// See the module.
pub struct FaultyVolume {
    inner: Arc<dyn Volume>,
    state: Mutex<State>,
}

/// Decision about an operation.
enum Verdict {
    GoOn,
    Fail(Outcome),
}

impl FaultyVolume {
    pub fn new(inner: Arc<dyn Volume>, fault: Option<Fault>) -> Arc<Self> {
        let state = State {
            fault,
            ..State::default()
        };
        Arc::new(Self {
            inner,
            state: Mutex::new(state),
        })
    }

    /// The planned fault.
    pub fn fault(&self) -> Option<Fault> {
        self.state().fault
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Plans a fault; operations are counted from now on.
    pub fn fail(&self, fault: Fault) {
        let mut state = self.state();
        let before = state.done.get(&fault.class).copied().unwrap_or(0);
        let operation = before + fault.operation;
        (state.fault, state.mended) = (Some(Fault { operation, ..fault }), false);
        (state.hit, state.place) = (None, None);
    }

    /// Number of operations of a class so far.
    pub fn done(&self, class: Class) -> u64 {
        self.state().done.get(&class).copied().unwrap_or(0)
    }

    /// The operation that failed first.
    pub fn hit(&self) -> Option<String> {
        self.state().hit.clone()
    }

    /// Ends the fault.
    pub fn mend(&self) {
        self.state().mended = true;
    }

    fn judge(&self, class: Class, what: &str, (leb, offset, len): (Leb, u32, usize)) -> Verdict {
        let mut state = self.state();
        let number = state.done.entry(class).or_default();
        let now = *number;
        *number += 1;
        let Some(fault) = state.fault.filter(|fault| fault.class == class && !state.mended) else {
            return Verdict::GoOn;
        };
        let overlaps = |(other, start, bytes): (Leb, u32, usize)| {
            let end = |start: u32, bytes: usize| u64::from(start) + u64::try_from(bytes).expect("small");
            other == leb && u64::from(start) < end(offset, len) && u64::from(offset) < end(start, bytes)
        };
        let fails = match fault.lasting {
            _ if now == fault.operation => true,
            Lasting::Once => false,
            Lasting::ForEver => now > fault.operation,
            Lasting::ForEverThere => state.place.is_some_and(overlaps),
        };
        if !fails {
            return Verdict::GoOn;
        }
        if state.hit.is_none() {
            state.hit = Some(format!("{what} of {leb}, offset {offset}, {len} bytes"));
            state.place = Some((leb, offset, len));
        }
        Verdict::Fail(fault.outcome)
    }

    fn error(&self, leb: Leb, offset: u32) -> VolumeError {
        VolumeError::Device {
            volume: self.inner.name(),
            leb,
            offset,
            source: NandError::Host {
                device: self.inner.name(),
                action: "what a test has fail".into(),
                source: io::Error::from_raw_os_error(libc::EIO),
            },
        }
    }

    fn fail_write(&self, part: WritePart<'_>, outcome: Outcome) -> Result<(), VolumeError> {
        let WritePart { leb, offset, data } = part;
        let unit = usize::try_from(self.geometry().min_io_bytes).expect("small");
        let written = match outcome {
            Outcome::Nothing => 0,
            Outcome::Half | Outcome::Panic => data.len() / 2 / unit * unit,
            Outcome::Done => data.len(),
        };
        if written > 0 {
            self.inner.write(leb, offset, &data[..written])?;
        }
        assert!(outcome != Outcome::Panic, "a test has a write of {leb} panic");
        Err(self.error(leb, offset))
    }

    /// An atomic operation.
    fn atomic(
        &self,
        class: Class,
        what: &str,
        leb: Leb,
        call: impl FnOnce() -> Result<(), VolumeError>,
    ) -> Result<(), VolumeError> {
        match self.judge(class, what, (leb, 0, 0)) {
            Verdict::GoOn => call(),
            Verdict::Fail(Outcome::Nothing | Outcome::Half) => Err(self.error(leb, 0)),
            Verdict::Fail(Outcome::Done) => call().and(Err(self.error(leb, 0))),
            Verdict::Fail(Outcome::Panic) => panic!("a test has {what} of {leb} panic"),
        }
    }
}

impl Volume for FaultyVolume {
    fn name(&self) -> Arc<str> {
        self.inner.name()
    }

    fn geometry(&self) -> VolumeGeometry {
        self.inner.geometry()
    }

    fn read(&self, leb: Leb, offset: u32, out: &mut [u8]) -> Result<(), VolumeError> {
        match self.judge(Class::Read, "a read", (leb, offset, out.len())) {
            Verdict::GoOn => self.inner.read(leb, offset, out),
            Verdict::Fail(Outcome::Nothing | Outcome::Half) => {
                out.fill(0x5A);
                Err(self.error(leb, offset))
            }
            Verdict::Fail(Outcome::Done) => {
                let read = self.inner.read(leb, offset, out);
                for byte in out.iter_mut().step_by(7) {
                    *byte ^= 0x11;
                }
                read.and(Err(VolumeError::Uncorrectable {
                    volume: self.inner.name(),
                    leb,
                    offset,
                    len: out.len(),
                }))
            }
            Verdict::Fail(Outcome::Panic) => panic!("a test has a read of {leb} panic"),
        }
    }

    fn read_many(&self, parts: &mut [ReadPart<'_>]) -> Result<(), VolumeError> {
        let mut uncorrectable = Ok(());
        for part in parts {
            match self.read(part.leb, part.offset, part.out) {
                Err(error @ VolumeError::Uncorrectable { .. }) => {
                    uncorrectable = uncorrectable.and(Err(error));
                }
                other => other?,
            }
        }
        uncorrectable
    }

    fn write(&self, leb: Leb, offset: u32, data: &[u8]) -> Result<(), VolumeError> {
        self.write_many(&[WritePart { leb, offset, data }])
    }

    /// Writes to other LEBs proceed even if one fails, since they are in flight at the same time.
    fn write_many(&self, parts: &[WritePart<'_>]) -> Result<(), VolumeError> {
        let (mut good, mut failing) = (Vec::new(), Vec::new());
        for part in parts {
            match self.judge(Class::Write, "a write", (part.leb, part.offset, part.data.len())) {
                Verdict::GoOn => good.push(*part),
                Verdict::Fail(outcome) => failing.push((*part, outcome)),
            }
        }
        if !good.is_empty() {
            self.inner.write_many(&good)?;
        }
        let failed = failing
            .into_iter()
            .map(|(part, outcome)| self.fail_write(part, outcome));
        failed.fold(Ok(()), Result::and)
    }

    fn leb_change(&self, leb: Leb, data: &[u8]) -> Result<(), VolumeError> {
        self.atomic(Class::Write, "a change", leb, || self.inner.leb_change(leb, data))
    }

    fn map(&self, leb: Leb) -> Result<(), VolumeError> {
        self.atomic(Class::Write, "a map", leb, || self.inner.map(leb))
    }

    fn unmap(&self, leb: Leb) -> Result<(), VolumeError> {
        self.atomic(Class::Write, "an unmap", leb, || self.inner.unmap(leb))
    }

    fn is_mapped(&self, leb: Leb) -> Result<bool, VolumeError> {
        self.inner.is_mapped(leb)
    }

    fn flush(&self) -> Result<(), VolumeError> {
        self.atomic(Class::Settle, "a flush", Leb(0), || self.inner.flush())
    }

    fn sync(&self) -> Result<(), VolumeError> {
        self.atomic(Class::Settle, "a sync", Leb(0), || self.inner.sync())
    }

    fn freeze(&self, reason: &str) {
        self.inner.freeze(reason);
    }

    fn frozen(&self) -> Option<Arc<str>> {
        self.inner.frozen()
    }
}
