//! Bios: arrival, their requests, refusal, and completion without a request.

use std::sync::Arc;

use formats::pieces::{Joined, Piece, Place};
use results::block_trace::{Operation, Request, RequestFlags, Run};

use super::words::{low_half, priority, status};
use super::{FlushWaiter, Joiner};
use crate::block::record::{BioDoneRecord, BioRecord, RequestRecord, device_number};
use crate::block::request_flags::operation;

impl Joiner {
    pub(super) fn bio(&mut self, bio: &BioRecord) {
        let mut parts = self.parts.take((bio.bio, low_half(bio.time)));
        parts.push(bio.run);
        let flags = self.bits.flags(bio.operation);
        let submitter = self.attribution.processes.get(bio.submitter);
        let queued = self.attribution.since_start(bio.time);
        if bio.without_requests == 0 && (bio.bytes == 0 || flags.contains(RequestFlags::PREFLUSH)) {
            // The kernel sends the flush as a separate request, before data if there is any.
            let waiter = FlushWaiter {
                bio: bio.bio,
                queued,
                submitter: Arc::clone(&submitter),
                flags,
            };
            self.ask_for_flush(bio.device, waiter);
        }
        let is_flush = bio.bytes == 0;
        if is_flush && bio.without_requests == 0 {
            return;
        }
        let (runs, mode) = self.attribution.bio(bio, &parts);
        let (operation, sector) = match is_flush {
            true => (Operation::Flush, 0),
            false => (operation(bio.operation), bio.sector),
        };
        let request = Request {
            flags,
            priority: priority(bio.priority),
            queued_ns: Some(queued),
            submitter: Some(submitter),
            mode,
            runs: if is_flush { Vec::new() } else { runs },
            ..Request::at(device_number(bio.device), operation, sector, u64::from(bio.bytes))
        };
        self.arrivals += 1;
        let pieces = &mut self.devices.entry(bio.device).or_default().pieces;
        let (place, ended) = pieces.insert(self.arrivals, Piece::new(request, bio.bio));
        if let Some(ended) = ended {
            self.ended_unseen(bio.device, ended);
        }
        self.waiting.insert((queued, bio.device, place));
    }

    /// A bio has the address of this one, which therefore has ended. After a loss it is dropped, as its request may be
    /// lost; else its request is told later.
    fn ended_unseen(&mut self, number: u32, place: Place) {
        if self.lost_at.is_none() {
            return;
        }
        let pieces = &mut self.devices.entry(number).or_default().pieces;
        if let Some(bio) = pieces.remove(place) {
            self.waits_no_longer(number, place, &bio);
            self.untold.lost += 1;
        }
    }

    fn waits_no_longer(&mut self, number: u32, place: Place, bio: &Piece) {
        let queued = bio.request.queued_ns.unwrap_or(0);
        self.waiting.remove(&(queued, number, place));
    }

    /// Finds the bios of a request: those that the record names, or by their sectors.
    fn places_of(&mut self, record: &RequestRecord, start: u64, end: u64) -> Vec<Place> {
        let mut names = self.merged.take((record.bio, low_half(record.completed)));
        names.push(record.bio);
        let operation = operation(record.operation);
        let pieces = &self.devices.entry(record.device).or_default().pieces;
        let issued = self.attribution.since_start(record.issued);
        let mut places = pieces.named(&names, operation, (start, end), issued);
        let since = match self.lost_at {
            None => 0,
            // Other bios of these sectors may be those of requests that were lost.
            Some(_) if record.bio != 0 => return places,
            Some(lost_at) => lost_at,
        };
        let of_both = |place: &Place| {
            let its_end = pieces.get(*place).map_or(place.1, |bio| bio.request.end_sector());
            its_end.min(end).saturating_sub(place.1.max(start))
        };
        if places.iter().map(of_both).sum::<u64>() < end - start {
            let later = |place: &Place| {
                let queued = pieces.get(*place).and_then(|bio| bio.request.queued_ns);
                queued.is_some_and(|queued| (since..=issued).contains(&queued))
            };
            let others = pieces
                .overlapping(operation, start, end)
                .into_iter()
                .filter(later);
            let others: Vec<Place> = others.filter(|place| !places.contains(place)).collect();
            places.extend(others);
        }
        places
    }

    pub(super) fn join(&mut self, request: Request, record: &RequestRecord) -> Request {
        let places = self.places_of(record, request.sector, request.end_sector());
        let mut joined = Joined::new(request);
        let pieces = &mut self.devices.entry(record.device).or_default().pieces;
        for (place, bio) in pieces.join(&mut joined, &places) {
            self.waits_no_longer(record.device, place, &bio);
        }
        joined.finish(&Run::unknown(0, 0))
    }

    /// A bio, or the rest of one that was split, ended without a request: it moved nothing.
    pub(super) fn refused(&mut self, done: &BioDoneRecord) {
        let Some(device) = self.devices.get_mut(&done.device) else {
            return;
        };
        let is_it = |waiter: &FlushWaiter| done.bio != 0 && waiter.bio == done.bio;
        if let Some(at) = device.flushes.iter().rposition(is_it) {
            device.flushes.remove(at);
            if done.bytes == 0 {
                self.untold.refused += 1;
                return;
            }
        }
        let range = (done.sector, done.sector + u64::from(done.bytes) / 512);
        let pieces = &mut device.pieces;
        let place = match done.bio {
            // Its source tells no addresses: the latest of these sectors is meant.
            0 => pieces
                .overlapping(operation(done.operation), range.0, range.1)
                .pop(),
            address => pieces.at(address),
        };
        let Some(place) = place else {
            return;
        };
        self.untold.refused += 1;
        if let Some(bio) = pieces.drop_part(place, range) {
            self.waits_no_longer(done.device, place, &bio);
        }
    }

    /// A bio of a device without requests completed.
    pub(super) fn bio_done(&mut self, done: &BioDoneRecord) {
        let Some(device) = self.devices.get_mut(&done.device) else {
            return;
        };
        let Some(place) = device.pieces.at(done.bio) else {
            return;
        };
        let Some(bio) = device.pieces.remove(place) else {
            return;
        };
        self.waits_no_longer(done.device, place, &bio);
        for mut request in bio.rest() {
            request.completed_ns = Some(self.attribution.since_start(done.time));
            request.status = Some(status(done.status));
            self.emit(request);
        }
    }
}
