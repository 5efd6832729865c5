//! The driver of a run: fetches, gathers, starts and completes requests (see the parent module for its rules).

use media::Nanos;
use results::block_trace::Operation;

use super::{DiscardMode, DriverMode, Event, Simulation, UnderWay, Wait};
use crate::block::{Request, RequestId, Share};
use crate::command_log::{Codes, CommandLog, ERASE_TRIM, FLUSH_CACHE, Features, Sent, erase_commands};
use crate::device::{Durability, Extent};
use crate::outcome::between;
use crate::packing::{gather, is_reliable};
use crate::translation::{Forget, Placement, Urgency};

impl Simulation {
    pub(super) fn fetch(&mut self) {
        self.idle = false;
        let DriverMode::Packed(rules) = self.setup.driver else {
            return self.fetch_task();
        };
        let Some(id) = self.queue.dispatch(self.now) else {
            return self.nothing_to_fetch();
        };
        if !matches!(self.queue.get(id).operation, Operation::Read | Operation::Write) {
            self.synchronous = Some(id);
            let at = self.drained_at();
            return self.plan(at, Event::Synchronous);
        }
        let mut gathered = std::mem::take(&mut self.gathered);
        gather(
            &mut self.queue,
            &rules,
            &self.setup.host,
            id,
            self.now,
            &mut gathered,
        );
        if let Some(stop) = gathered.stop {
            self.driver.attempt(stop, gathered.requests.len());
        }
        for id in &gathered.requests {
            self.card.prefetch(self.queue.get(*id).sector, Urgency::Next);
        }
        let count = u64::try_from(gathered.requests.len()).unwrap_or(u64::MAX);
        let host = &self.setup.host;
        let work =
            u64::from(host.fetch_ns) * (1 + u64::from(gathered.fetched)) + u64::from(host.prepare_ns) * count;
        self.gathered = gathered;
        let ready = self.now + Nanos(work);
        let at = self.under_way.map_or(ready, |before| before.done.max(ready));
        self.plan(at, Event::Start);
    }

    fn nothing_to_fetch(&mut self) {
        if let Some(under_way) = self.under_way {
            let at = under_way.done.max(self.now);
            return self.plan(at, Event::Finish);
        }
        self.sleep();
    }

    /// The driver sleeps until a request comes, or the scheduler's timer has passed.
    pub(super) fn sleep(&mut self) {
        self.idle = true;
        if let Some(at) = self.queue.wake_at()
            && self.timer != Some(at)
            && self.queue.has_work()
        {
            self.timer = Some(at);
            self.plan(at.max(self.now), Event::Timer);
        }
    }

    /// The scheduler's timer has passed: requests that it held back may go.
    pub(super) fn timer_passed(&mut self) {
        self.timer = None;
        if self.idle && self.queue.has_work() {
            self.fetch();
        }
    }

    fn drained_at(&self) -> Nanos {
        let under_way = self.under_way.map_or(self.now, |before| before.done);
        self.now.max(under_way)
    }

    /// Starts the gathered command, and completes the previous one.
    pub(super) fn start(&mut self) {
        let gathered = std::mem::take(&mut self.gathered);
        let sent = self.send(&gathered.requests, self.now);
        if let Some(stop) = gathered.stop
            && stop.is_full()
            && gathered.requests.len() > 1
        {
            let bytes = gathered
                .requests
                .iter()
                .map(|id| self.queue.get(*id).sectors * 512);
            self.driver.full_pack_bytes += bytes.sum::<u64>();
            self.driver.full_pack_ns += between(self.now, sent.done);
        }
        self.count_busy(self.now, sent.done);
        let completed = std::mem::replace(&mut self.running, gathered.requests);
        self.under_way = Some(UnderWay { done: sent.done });
        let after = self.complete_all(&completed, sent.data_start);
        self.gathered.requests = completed;
        self.plan(after, Event::Fetch);
    }

    /// Sends one request or a pack at `at`.
    fn send(&mut self, requests: &[RequestId], at: Nanos) -> Sent {
        let host = &self.setup.host;
        let first = self.queue.get(requests[0]);
        let (operation, first_sectors) = (first.operation, first.sectors);
        let first_sector = first.sector;
        let is_pack = requests.len() > 1;
        let mut durability = Durability::Cached;
        self.extents.clear();
        for id in requests {
            let request = self.queue.get(*id);
            self.extents.push(extent(request, self.features));
            if is_reliable(request) {
                durability = Durability::Programmed;
            }
        }
        // CMD23 is also the only one that carries a context.
        let in_context = self.features.context_of(first).is_some();
        let with_cmd23 = is_pack || first_sectors > 1 || durability == Durability::Programmed || in_context;
        let interrupts = host.interrupts(with_cmd23);
        let mut begin = at;
        if is_pack && operation == Operation::Read {
            // The header of packed reads is a write of its own: CMD23 and CMD25 with one sector.
            let header = begin + host.cmd23() + Nanos(u64::from(host.command_ns));
            let (end, ready) = self.card.accept_header(header);
            begin = host.seen_ready(end, ready);
            let of_header = host.interrupts(true);
            self.driver.commands += 1;
            self.driver.interrupts += u64::from(of_header);
            let count = u16::try_from(requests.len()).unwrap_or(u16::MAX);
            if let Some(log) = &mut self.log {
                log.add_read_header(first, count, (at, begin), of_header);
            }
        }
        let mut data_start = begin + Nanos(u64::from(host.command_ns));
        if with_cmd23 {
            data_start += host.cmd23();
        }
        let done = if operation == Operation::Read {
            let end = self.card.read(data_start, 0, &self.extents);
            end + Nanos(u64::from(host.interrupt_ns) + u64::from(host.wake_ns))
        } else {
            let header = u32::from(is_pack);
            let times = self.card.write(data_start, header, &self.extents, durability);
            host.seen_ready(times.data_end, times.ready)
        };
        let sent = Sent {
            at,
            data_start,
            done,
            interrupts,
            codes: if with_cmd23 { Codes::Counted } else { Codes::Single },
            requests: u16::try_from(requests.len()).unwrap_or(u16::MAX),
            first_sector,
            in_card: self.queue.in_driver(),
        };
        if let Some(commands) = self.log.as_mut().and_then(CommandLog::commands) {
            let listed: Vec<&Request> = requests.iter().map(|id| self.queue.get(*id)).collect();
            commands.transfer(at, begin, &listed, &sent, self.features);
        }
        self.count_command(requests, &sent);
        sent
    }

    pub(super) fn count_command(&mut self, requests: &[RequestId], sent: &Sent) {
        self.note_sent(requests);
        self.driver.commands += 1;
        self.driver.interrupts += u64::from(sent.interrupts);
        for (place, id) in (0_u16..).zip(requests) {
            let request = self.queue.get(*id);
            let bytes = request.sectors * 512;
            if request.operation == Operation::Write {
                self.driver.write_requests += 1;
                self.driver.write_bytes += bytes;
                if requests.len() > 1 {
                    self.driver.packed_write_requests += 1;
                    self.driver.packed_write_bytes += bytes;
                }
            }
            if let Some(log) = &mut self.log {
                log.add(request, sent, place);
            }
        }
    }

    /// Counts the time of a command as busy, except for the part that overlaps earlier ones.
    pub(super) fn count_busy(&mut self, from: Nanos, to: Nanos) {
        self.driver.busy_ns += between(from.max(self.busy_until), to);
        self.busy_until = self.busy_until.max(to);
    }

    pub(super) fn complete_running(&mut self) {
        let completed = std::mem::take(&mut self.running);
        self.under_way = None;
        let now = self.now;
        self.now = self.complete_all(&completed, now);
        self.gathered.requests = completed;
    }

    /// Completes requests one after another from `from` on. Returns the end of the last completion.
    fn complete_all(&mut self, requests: &[RequestId], from: Nanos) -> Nanos {
        let mut at = from;
        for id in requests {
            at += Nanos(u64::from(self.setup.host.complete_ns));
            self.complete(*id, at);
        }
        self.wake_blocked();
        at
    }

    pub(super) fn complete(&mut self, id: RequestId, at: Nanos) {
        let shares = self.queue.take_shares(id);
        let request = self.queue.complete(id, at);
        self.requests_done += 1;
        self.note_done(&request, at);
        let bytes = request.sectors * 512;
        let kind = match request.operation {
            Operation::Read => Some(&mut self.reads),
            Operation::Write => Some(&mut self.writes),
            _ => None,
        };
        if let Some(kind) = kind {
            kind.requests += 1;
            kind.bytes += bytes;
            kind.latency.record(between(request.queued, at));
        }
        let of_others = |part: fn(&Share) -> u64| shares.iter().map(part).sum::<u64>();
        let (bios, sectors) = (
            of_others(|share| u64::from(share.bios)),
            of_others(|share| share.sectors),
        );
        let own = Share {
            actor: request.actor,
            bios: request.bios - u32::try_from(bios).unwrap_or(request.bios),
            sectors: request.sectors - sectors,
        };
        for share in std::iter::once(&own).chain(&shares) {
            self.credit(share, at);
        }
    }

    /// Tells a task that its part of a request is done.
    fn credit(&mut self, share: &Share, at: Nanos) {
        let task = &mut self.tasks[usize::from(share.actor)];
        task.outstanding -= share.bios;
        task.done_bytes += share.sectors * 512;
        if let Wait::Below(count) = task.wait
            && task.outstanding <= count
        {
            task.wait = Wait::Asleep;
            self.plan(at, Event::Actor(share.actor));
        }
    }

    pub(super) fn wake_blocked(&mut self) {
        if !self.blocked.is_empty() && self.queue.has_room() {
            while let Some(actor) = self.blocked.pop_front() {
                self.tasks[usize::from(actor)].wait = Wait::Asleep;
                self.plan(self.now, Event::Actor(actor));
            }
        }
    }

    pub(super) fn start_synchronous(&mut self) {
        if self.under_way.is_some() {
            self.complete_running();
        }
        let Some(id) = self.synchronous else {
            return;
        };
        let request = self.queue.get(id);
        if request.operation == Operation::Flush && !self.card.has_cache() {
            return self.flush_nothing(id);
        }
        let host = &self.setup.host;
        let step = Nanos(u64::from(host.command_ns) + u64::from(host.interrupt_ns) + u64::from(host.wake_ns));
        let codes: Vec<(u16, u32)> = if request.operation == Operation::Flush {
            self.driver.flushes += 1;
            vec![FLUSH_CACHE]
        } else {
            self.driver.discards += 1;
            let how = match self.setup.discard {
                DiscardMode::Discard if request.operation == Operation::Discard => Forget::Lazily,
                // A range that must read as zeros has to do so after a power cut as well.
                DiscardMode::Discard | DiscardMode::Trim => Forget::Durably,
            };
            erase_commands(request.sector, request.end(), how).to_vec()
        };
        let count = u16::try_from(codes.len()).unwrap_or(u16::MAX);
        let sent_last = self.now + step.times(u64::from(count));
        let (sector, sectors) = (request.sector, request.sectors);
        let ready = match codes.last() {
            Some((38, argument)) => {
                let how = if *argument == ERASE_TRIM {
                    Forget::Durably
                } else {
                    Forget::Lazily
                };
                self.card.forget(sent_last, sector, sectors, how)
            }
            _ => self.card.flush(sent_last),
        };
        let done = host.seen_ready(sent_last, ready);
        let times: Vec<(Nanos, Nanos, (u16, u32))> = (0..)
            .zip(&codes)
            .map(|(place, command)| {
                let begin = self.now + step.times(place);
                let is_last = place + 1 == u64::from(count);
                (begin, if is_last { done } else { begin + step }, *command)
            })
            .collect();
        let interrupts = count + 1;
        self.note_sent(&[id]);
        self.driver.interrupts += u64::from(interrupts);
        self.count_busy(self.now, done);
        self.log_driver_commands(id, &times, interrupts);
        self.plan(done, Event::SynchronousEnd);
    }

    /// Answers a flush of a card without a cache: Linux's driver sends no command then.
    fn flush_nothing(&mut self, id: RequestId) {
        self.driver.flushes += 1;
        self.note_sent(&[id]);
        self.log_driver_commands(id, &[], 0);
        self.plan(self.now, Event::SynchronousEnd);
    }

    /// Logs a request without data and its commands.
    pub(super) fn log_driver_commands(
        &mut self,
        id: RequestId,
        commands: &[(Nanos, Nanos, (u16, u32))],
        interrupts: u16,
    ) {
        if let Some(log) = &mut self.log {
            let request = self.queue.get(id);
            log.add_without_data(request, self.now, commands, interrupts, self.queue.in_driver());
        }
    }

    pub(super) fn end_synchronous(&mut self) {
        if let Some(id) = self.synchronous.take() {
            self.complete(id, self.now);
            self.wake_blocked();
        }
        self.fetch();
    }
}

/// Durability that a write needs when it is acknowledged.
pub(super) fn durability_of(request: &Request) -> Durability {
    if is_reliable(request) {
        Durability::Programmed
    } else {
        Durability::Cached
    }
}

/// The sectors of a request, separated by what its command tells a card with these features.
pub(super) fn extent(request: &Request, features: Features) -> Extent {
    let placement = match features.context_of(request) {
        _ if features.tags(request) => Placement::Tagged,
        Some(context) => Placement::Context(context),
        None => Placement::Default,
    };
    Extent {
        sector: request.sector,
        sectors: u32::try_from(request.sectors).unwrap_or(u32::MAX),
        placement,
    }
}
