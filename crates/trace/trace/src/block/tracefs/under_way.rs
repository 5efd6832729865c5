//! Requests between insert and completion, as the lines of tracefs tell of them.

use std::collections::{HashMap, VecDeque};

/// A request between insert and completion.
#[derive(Debug, Default)]
pub(super) struct UnderWay {
    pub inserted: u64,
    /// 0: not yet.
    pub issued: u64,
    pub in_flight: u32,
}

/// Disk, operation and first sector of a request.
pub(super) type Place = (u32, u32, u64);

/// Requests between insert and completion. Several may be under way at one place: lines name no request, so the one that
/// was issued first is taken to complete first.
#[derive(Debug, Default)]
pub(super) struct UnderWays {
    /// In the order of their issue; those not issued last.
    pub at: HashMap<Place, VecDeque<UnderWay>>,
    pub count: usize,
    /// By disk, the number of issued ones.
    in_flight: HashMap<u32, u32>,
}

impl UnderWays {
    /// Forgets all: completions were lost.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(super) fn inserted(&mut self, place: Place, time: u64) {
        self.count += 1;
        self.at.entry(place).or_default().push_back(UnderWay {
            inserted: time,
            ..UnderWay::default()
        });
    }

    pub(super) fn issued(&mut self, place: Place, time: u64) {
        let in_flight = self.in_flight.entry(place.0).or_default();
        *in_flight += 1;
        let requests = self.at.entry(place).or_default();
        // Earlier ones may have been merged into others, and were never issued.
        let mut request = match requests.back() {
            Some(last) if last.issued == 0 => requests.pop_back().unwrap_or_default(),
            _ => {
                self.count += 1;
                UnderWay::default()
            }
        };
        (request.issued, request.in_flight) = (time, *in_flight);
        let first_waiting = requests.partition_point(|one| one.issued != 0);
        requests.insert(first_waiting, request);
    }

    /// The device had no room for the request that was issued last: it waits again.
    pub(super) fn requeued(&mut self, place: Place) {
        let Some(requests) = self.at.get_mut(&place) else {
            return;
        };
        let issued = requests.partition_point(|one| one.issued != 0);
        if let Some(mut request) = issued.checked_sub(1).and_then(|last| requests.remove(last)) {
            request.issued = 0;
            requests.push_back(request);
            self.ended(place.0);
        }
    }

    /// The request that completed; `None`: none was issued there.
    pub(super) fn completed(&mut self, place: Place) -> Option<UnderWay> {
        let requests = self.at.get_mut(&place)?;
        let request = requests.pop_front_if(|one| one.issued != 0)?;
        if requests.is_empty() {
            self.at.remove(&place);
        }
        self.count -= 1;
        self.ended(place.0);
        Some(request)
    }

    fn ended(&mut self, disk: u32) {
        let in_flight = self.in_flight.entry(disk).or_default();
        *in_flight = in_flight.saturating_sub(1);
    }
}
