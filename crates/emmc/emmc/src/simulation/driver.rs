//! The driver of a run: fetches, gathers, starts and completes requests (see the parent module for its rules).

use media::Nanos;
use results::block_trace::{Operation, RequestFlags};

use super::{DiscardMode, DriverMode, Event, Simulation, UnderWay, Wait};
use crate::block::{Request, RequestId};
use crate::command_log::Sent;
use crate::device::{Durability, Extent};
use crate::outcome::between;
use crate::packing::{gather, is_reliable};
use crate::translation::{Forget, HowSoon, Placement};

impl Simulation {
    pub(super) fn fetch(&mut self) {
        self.idle = false;
        let Some(id) = self.queue.dispatch(self.now) else {
            return self.nothing_to_fetch();
        };
        if !matches!(self.queue.get(id).operation, Operation::Read | Operation::Write) {
            self.synchronous = Some(id);
            let at = self.drained_at();
            return self.plan(at, Event::Synchronous);
        }
        match self.setup.driver {
            DriverMode::CommandQueue(depth) => self.queue_task(id, depth),
            DriverMode::Packed(rules) => {
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
                    self.card.expect(self.queue.get(*id).sector, HowSoon::Next);
                }
                let count = u64::try_from(gathered.requests.len()).unwrap_or(u64::MAX);
                let host = &self.setup.host;
                let work = u64::from(host.fetch_ns) * (1 + u64::from(gathered.fetched))
                    + u64::from(host.prepare_ns) * count;
                self.gathered = gathered;
                let ready = self.now + Nanos(work);
                let at = self.under_way.map_or(ready, |before| before.done.max(ready));
                self.plan(at, Event::Start);
            }
        }
    }

    fn nothing_to_fetch(&mut self) {
        if let Some(under_way) = self.under_way {
            let at = under_way.done.max(self.now);
            return self.plan(at, Event::Finish);
        }
        self.idle = true;
        if let Some(at) = self.queue.wake_at()
            && self.timer != Some(at)
            && self.queue.has_work()
        {
            self.timer = Some(at);
            self.idle = false;
            self.plan(at.max(self.now), Event::Fetch);
        }
    }

    fn drained_at(&self) -> Nanos {
        let queued = match self.setup.driver {
            // Everything in the card's command queue has to end; its own events come first.
            DriverMode::CommandQueue(_) => self.bus_free.max(self.card.idle_at()) + Nanos::from_micros(100),
            DriverMode::Packed(_) => Nanos::ZERO,
        };
        let under_way = self.under_way.map_or(self.now, |before| before.done);
        self.now.max(under_way).max(queued)
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
        self.driver.busy_ns += between(self.now, sent.done);
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
        let is_pack = requests.len() > 1;
        let mut durability = Durability::Usual;
        self.extents.clear();
        for id in requests {
            let request = self.queue.get(*id);
            self.extents.push(extent(request));
            if is_reliable(request) {
                durability = Durability::Programmed;
            }
        }
        let with_cmd23 = is_pack || first_sectors > 1 || durability == Durability::Programmed;
        let mut data_start = at + Nanos(u64::from(host.command_ns));
        if with_cmd23 {
            data_start += host.cmd23();
        }
        let header = u32::from(is_pack);
        let done = if operation == Operation::Read {
            let end = self.card.read(data_start, header, &self.extents);
            end + Nanos(u64::from(host.interrupt_ns) + u64::from(host.wake_ns))
        } else {
            let times = self.card.write(data_start, header, &self.extents, durability);
            host.seen_ready(times.data_end, times.ready)
        };
        let sent = Sent {
            at,
            data_start,
            done,
            interrupts: host.interrupts(with_cmd23),
            with_cmd23,
            requests: u16::try_from(requests.len()).unwrap_or(u16::MAX),
        };
        self.count_command(requests, &sent);
        sent
    }

    fn count_command(&mut self, requests: &[RequestId], sent: &Sent) {
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
                log.add(request, sent, place, self.queue.in_driver());
            }
        }
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
        let task = &mut self.tasks[usize::from(request.actor)];
        task.outstanding -= request.bios;
        task.done_bytes += bytes;
        if let Wait::Below(count) = task.wait
            && task.outstanding <= count
        {
            task.wait = Wait::Asleep;
            self.plan(at, Event::Actor(request.actor));
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
        let host = &self.setup.host;
        let step = Nanos(u64::from(host.command_ns) + u64::from(host.interrupt_ns) + u64::from(host.wake_ns));
        let (commands, ready) = if request.operation == Operation::Flush {
            self.driver.flushes += 1;
            (1, self.card.flush(self.now + step))
        } else {
            self.driver.discards += 1;
            let how = match self.setup.discard {
                DiscardMode::Discard if request.operation == Operation::Discard => Forget::Lazily,
                // A range that must read as zeros has to do so after a power cut as well.
                DiscardMode::Discard | DiscardMode::Trim => Forget::Durably,
            };
            let start = self.now + step.times(3);
            (3, self.card.forget(start, request.sector, request.sectors, how))
        };
        let done = host.seen_ready(self.now + step.times(u64::from(commands)), ready);
        self.note_sent(&[id]);
        let sent = Sent {
            at: self.now,
            data_start: self.now,
            done,
            interrupts: commands + 1,
            with_cmd23: false,
            requests: 1,
        };
        self.driver.interrupts += u64::from(sent.interrupts);
        self.driver.busy_ns += between(self.now, done);
        if let Some(log) = &mut self.log {
            log.add(self.queue.get(id), &sent, 0, self.queue.in_driver());
        }
        self.plan(done, Event::SynchronousEnd);
    }

    pub(super) fn end_synchronous(&mut self) {
        if let Some(id) = self.synchronous.take() {
            self.complete(id, self.now);
            self.wake_blocked();
        }
        self.fetch();
    }

    /// Adds one request to the card's command queue.
    fn queue_task(&mut self, id: RequestId, depth: u32) {
        let host = &self.setup.host;
        // CMD44 and CMD45 queue the task; CMD46 or CMD47 transfers its data when the bus is free.
        let queued = self.now + Nanos(u64::from(host.fetch_ns) + 2 * u64::from(host.command_ns));
        let start = queued.max(self.bus_free) + Nanos(u64::from(host.command_ns));
        let request = self.queue.get(id);
        let extent = extent(request);
        let durability = if is_reliable(request) {
            Durability::Programmed
        } else {
            Durability::Usual
        };
        let (data_end, ready) = if request.operation == Operation::Read {
            let end = self.card.read(start, 0, &[extent]);
            (end, end)
        } else {
            let times = self.card.write(start, 0, &[extent], durability);
            (times.data_end, times.ready.max(times.data_end))
        };
        self.bus_free = data_end;
        let host = &self.setup.host;
        let done = ready
            + Nanos(u64::from(host.interrupt_ns) + u64::from(host.wake_ns) + u64::from(host.complete_ns));
        let sent = Sent {
            at: start,
            data_start: start,
            done,
            interrupts: 1,
            with_cmd23: false,
            requests: 1,
        };
        self.driver.busy_ns += between(start, data_end);
        self.count_command(&[id], &sent);
        self.plan(done, Event::Queued(id));
        if self.queue.in_driver() < depth {
            self.plan(queued, Event::Fetch);
        } else {
            self.idle = true;
        }
    }
}

fn extent(request: &Request) -> Extent {
    let placement = if request.flags.contains(RequestFlags::META) {
        Placement::Tagged
    } else if request.context > 0 {
        Placement::Context(request.context)
    } else {
        Placement::Common
    };
    Extent {
        sector: request.sector,
        sectors: u32::try_from(request.sectors).unwrap_or(u32::MAX),
        placement,
    }
}
