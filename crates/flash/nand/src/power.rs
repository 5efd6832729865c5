//! Power supplies and planned power cuts. Chips on one supply lose power together.
//!
//! A cut is planned in advance: at the n-th write of all chips on the supply, or at a moment of virtual time. The
//! second is for arrays: all operations of several chips that overlap the moment are torn, each in proportion to its
//! progress, whatever order they were issued in.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use media::Nanos;

/// Time of a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutTime {
    /// At the n-th write, counted from 0 over all chips of the supply since it was created ([`PowerSupply::writes`]).
    /// A write is the program of one page (or part of a page), an erase, or a bad-block mark.
    Write(u64, CutPoint),
    /// When a chip's clock passes this moment; an operation in progress is torn proportionally.
    Moment(Nanos),
}

/// Progress of the interrupted operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutPoint {
    /// Not begun.
    Before,
    /// A program has written this number of bytes; an erase is half done and leaves garbage.
    Partway(u32),
    /// Completed, but not acknowledged.
    After,
}

/// A planned power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PowerCut {
    /// Time of the cut.
    pub time: CutTime,
    /// Whether the ECC reports a torn page as uncorrectable. Real pages do either, so tests try both.
    pub torn_is_uncorrectable: bool,
}

/// Ways to cut a write: its progress, and whether the torn page is uncorrectable.
const WAYS: [(CutPoint, bool); 5] = [
    (CutPoint::Partway(5), false),
    (CutPoint::Partway(70), true),
    (CutPoint::After, false),
    (CutPoint::Partway(300), false),
    (CutPoint::Before, false),
];

impl PowerCut {
    /// Number of ways to cut a write, for sweeps that rotate through them.
    pub const WAYS: usize = WAYS.len();

    /// A cut at write number `write`, in way number `way` modulo [`Self::WAYS`].
    #[must_use]
    pub const fn of_write(write: u64, way: usize) -> Self {
        let (point, torn_is_uncorrectable) = WAYS[way % WAYS.len()];
        Self {
            time: CutTime::Write(write, point),
            torn_is_uncorrectable,
        }
    }
}

/// The power supply of one or more chips. Clones are the same supply.
#[derive(Clone, Debug, Default)]
pub struct PowerSupply(Arc<Mutex<State>>);

#[derive(Clone, Debug, Default)]
struct State {
    writes: u64,
    cut: Option<PowerCut>,
    is_off: bool,
}

/// Verdict of the power supply on one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Allowed {
    All,
    Cut {
        point: CutPoint,
        torn_is_uncorrectable: bool,
    },
    Nothing,
}

impl PowerSupply {
    /// A supply without a planned cut.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Plans a cut, replacing any other plan.
    pub fn plan(&self, cut: PowerCut) {
        self.state().cut = Some(cut);
    }

    /// Plans a cut at write number `write` ([`CutTime::Write`]) whose torn pages have no ECC error.
    pub fn cut_at_write(&self, write: u64, point: CutPoint) {
        self.plan(PowerCut {
            time: CutTime::Write(write, point),
            torn_is_uncorrectable: false,
        });
    }

    /// Switches power on, and drops the plan.
    pub fn power_on(&self) {
        let mut state = self.state();
        state.is_off = false;
        state.cut = None;
    }

    /// Switches power off, between operations, and drops the plan.
    pub fn power_off(&self) {
        let mut state = self.state();
        state.is_off = true;
        state.cut = None;
    }

    /// Whether power is off. A cut at a moment takes effect with the first operation that reaches it.
    #[must_use]
    pub fn is_off(&self) -> bool {
        self.state().is_off
    }

    /// Number of writes so far, over all chips of the supply, and the number of the next write.
    #[must_use]
    pub fn writes(&self) -> u64 {
        self.state().writes
    }

    /// An independent supply in the same state.
    #[must_use]
    pub fn fork(&self) -> Self {
        Self(Arc::new(Mutex::new(self.state().clone())))
    }

    /// Whether a read that ends at `end` completes.
    pub(crate) fn allows_read(&self, end: Nanos) -> bool {
        let mut state = self.state();
        if let Some(PowerCut {
            time: CutTime::Moment(moment),
            ..
        }) = state.cut
        {
            let allowed = end <= moment;
            state.is_off |= !allowed;
            return allowed;
        }
        !state.is_off
    }

    /// Verdict on a write from `start` to `end`, of `bytes` if it is a program. Counts it unless power is off.
    pub(crate) fn allows_write(&self, start: Nanos, end: Nanos, bytes: u32) -> Allowed {
        let mut state = self.state();
        let Some(cut) = state.cut else {
            if state.is_off {
                return Allowed::Nothing;
            }
            state.writes += 1;
            return Allowed::All;
        };
        let point = match cut.time {
            CutTime::Moment(moment) => {
                if start >= moment {
                    state.is_off = true;
                    return Allowed::Nothing;
                }
                (end > moment).then(|| partway(moment - start, end - start, bytes))
            }
            CutTime::Write(..) if state.is_off => return Allowed::Nothing,
            CutTime::Write(number, point) => (state.writes == number).then_some(point),
        };
        state.writes += 1;
        match point {
            None => Allowed::All,
            Some(point) => {
                state.is_off = true;
                Allowed::Cut {
                    point,
                    torn_is_uncorrectable: cut.torn_is_uncorrectable,
                }
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn partway(done: Nanos, whole: Nanos, bytes: u32) -> CutPoint {
    let share = u128::from(bytes) * u128::from(done.0) / u128::from(whole.0.max(1));
    CutPoint::Partway(u32::try_from(share).unwrap_or(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEVER: Nanos = Nanos(u64::MAX);

    #[test]
    fn a_cut_by_number_counts_the_writes_of_all_chips_and_stays() {
        let supply = PowerSupply::new();
        let second_chip = supply.clone();
        supply.cut_at_write(2, CutPoint::Partway(7));
        assert_eq!(supply.allows_write(Nanos(0), Nanos(1), 512), Allowed::All);
        assert_eq!(second_chip.allows_write(Nanos(0), Nanos(1), 512), Allowed::All);
        assert!(supply.allows_read(NEVER));
        let cut = Allowed::Cut {
            point: CutPoint::Partway(7),
            torn_is_uncorrectable: false,
        };
        assert_eq!(supply.allows_write(Nanos(0), Nanos(1), 512), cut);
        assert_eq!(
            second_chip.allows_write(Nanos(0), Nanos(1), 512),
            Allowed::Nothing
        );
        assert!(!second_chip.allows_read(Nanos(0)));
        supply.power_on();
        assert_eq!(second_chip.allows_write(Nanos(0), Nanos(1), 512), Allowed::All);
        assert_eq!(supply.writes(), 4);
    }

    #[test]
    fn a_cut_by_time_tears_what_is_under_way_in_proportion_whatever_the_order() {
        let supply = PowerSupply::new();
        supply.plan(PowerCut {
            time: CutTime::Moment(Nanos(100)),
            torn_is_uncorrectable: true,
        });
        let torn = |bytes| Allowed::Cut {
            point: CutPoint::Partway(bytes),
            torn_is_uncorrectable: true,
        };
        assert_eq!(supply.allows_write(Nanos(50), Nanos(150), 1000), torn(500));
        assert_eq!(
            supply.allows_write(Nanos(100), Nanos(150), 1000),
            Allowed::Nothing
        );
        assert_eq!(supply.allows_write(Nanos(75), Nanos(175), 1000), torn(250));
        assert_eq!(supply.allows_write(Nanos(0), Nanos(100), 1000), Allowed::All);
        assert!(supply.is_off());
    }
}
