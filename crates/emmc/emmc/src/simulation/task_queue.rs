//! The card's command queue (eMMC 5.1) and the host's engine for it (CQHCI).
//!
//! - The driver prepares requests one after another and rings a doorbell for each; the engine does the rest without the
//!   processor. While all slots are taken, one more request is prepared, so a free slot is taken without a round trip.
//! - CMD44 and CMD45 queue a task. The card begins to read its data at once, on all banks in parallel, and decides the
//!   order: a task is ready when its data can be transferred without a pause (a read) or when the controller has looked
//!   at it (a write).
//! - The queue status (CMD13) shows ready tasks; CMD46 or CMD47 transfers the data of one. The data lines are taken only
//!   for that time. Tasks become ready, and so are executed, out of order.
//! - A flush is a direct command (DCMD) in slot 31 with a queue barrier: the engine sends it when all tasks before it are
//!   done, and later tasks wait for it. With it, at most 31 tasks have data. Without a cache no flush is sent. Discards
//!   have no direct command here: as in Linux, the driver waits until the queue is empty and halts it.
//!
//! Write tasks end when the card has programmed their data (with a cache: when it is in RAM). The transfer of the next
//! task does not wait for that.

use std::collections::BTreeSet;

use media::Nanos;
use results::block_trace::Operation;

use super::driver::{durability_of, extent};
use super::{Event, Simulation};
use crate::block::RequestId;
use crate::command_log::{Codes, CommandLog, FLUSH_CACHE, Sent};

/// The slot of direct commands; the other ones hold tasks with data.
pub const DIRECT_SLOT: u32 = 31;

/// State of the queue; see the module.
#[derive(Clone, Debug, Default)]
pub(super) struct TaskQueue {
    /// Slots that hold a task.
    slots: u32,
    /// Slot of each task, with its request.
    tasks: Vec<(RequestId, u32)>,
    /// Tasks whose data was not transferred yet.
    untransferred: u32,
    /// The request that waits for a slot.
    prepared: Option<RequestId>,
    /// The driver prepares this request.
    preparing: Option<RequestId>,
    /// The flush that waits for the tasks before it.
    barrier: Option<RequestId>,
    /// That flush was sent.
    flushes: bool,
    /// Tasks ready for their data, by the time since when.
    ready: BTreeSet<(Nanos, RequestId)>,
    /// The data lines are in use.
    bus_is_busy: bool,
    /// The command line is free from then on.
    commands_free: Nanos,
    /// Latest end of a task in the card.
    last_end: Nanos,
}

impl TaskQueue {
    fn count(&self) -> u32 {
        self.slots.count_ones()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slots == 0 && self.preparing.is_none() && self.prepared.is_none()
    }

    fn take_slot(&mut self, id: RequestId) -> u32 {
        let slot = self.slots.trailing_ones();
        self.slots |= 1 << slot;
        self.tasks.push((id, slot));
        slot
    }

    fn free_slot(&mut self, id: RequestId) {
        if let Some(at) = self.tasks.iter().position(|(task, _)| *task == id) {
            let (_, slot) = self.tasks.swap_remove(at);
            self.slots &= !(1 << slot);
        }
    }

    fn slot_of(&self, id: RequestId) -> u32 {
        let found = self.tasks.iter().find(|(task, _)| *task == id);
        found.map_or(DIRECT_SLOT, |(_, slot)| *slot)
    }
}

impl Simulation {
    /// Fetches the next request, unless one waits for a slot already.
    pub(super) fn fetch_task(&mut self) {
        self.idle = false;
        let queue = &self.tasks_in_card;
        if queue.prepared.is_some()
            || queue.preparing.is_some()
            || queue.barrier.is_some()
            || self.synchronous.is_some()
        {
            return;
        }
        let Some(id) = self.queue.dispatch(self.now) else {
            return self.sleep();
        };
        let host = &self.setup.host;
        let fetched = self.now + Nanos(u64::from(host.fetch_ns));
        match self.queue.get(id).operation {
            Operation::Read | Operation::Write => {
                let at = fetched + Nanos(u64::from(host.prepare_ns));
                self.tasks_in_card.preparing = Some(id);
                self.plan(at, Event::Prepared(id));
            }
            Operation::Flush if host.direct_commands => {
                self.tasks_in_card.barrier = Some(id);
                if self.card.has_cache() {
                    self.begin_barrier();
                } else {
                    self.flush_no_cache(id, fetched);
                }
            }
            _ => {
                self.synchronous = Some(id);
                self.begin_synchronous_if_empty();
            }
        }
    }

    fn begin_synchronous_if_empty(&mut self) {
        if self.synchronous.is_some() && self.tasks_in_card.is_empty() {
            self.plan(self.now, Event::Synchronous);
        }
    }

    /// The driver has prepared a request.
    pub(super) fn task_prepared(&mut self, id: RequestId, depth: u32) {
        self.tasks_in_card.preparing = None;
        let slots = if self.setup.host.direct_commands {
            depth.min(DIRECT_SLOT)
        } else {
            depth.min(DIRECT_SLOT + 1)
        };
        if self.tasks_in_card.count() < slots {
            self.queue_task(id);
            self.fetch_task();
        } else {
            self.tasks_in_card.prepared = Some(id);
        }
    }

    /// Rings the doorbell of a request.
    fn queue_task(&mut self, id: RequestId) {
        let command = Nanos(u64::from(self.setup.host.command_ns));
        let queue = &mut self.tasks_in_card;
        let slot = queue.take_slot(id);
        queue.untransferred += 1;
        let begun = self.now.max(queue.commands_free);
        let arrived = begun + command.times(2);
        queue.commands_free = arrived;
        if let Some(commands) = self.log.as_mut().and_then(CommandLog::commands) {
            commands.queue_task(begun, begun + command, self.queue.get(id), slot, self.features);
        }
        let request = self.queue.get(id);
        let ready = if request.operation == Operation::Read {
            self.card
                .begin_read_task(arrived, &extent(request, self.features))
        } else {
            self.card.begin_write_task(arrived)
        };
        self.plan(ready + command, Event::TaskReady(id));
    }

    /// The queue status shows that a task is ready for its data.
    pub(super) fn task_ready(&mut self, id: RequestId) {
        self.tasks_in_card.ready.insert((self.now, id));
        self.transfer_next();
    }

    /// The data lines are free.
    pub(super) fn bus_is_free(&mut self) {
        self.tasks_in_card.bus_is_busy = false;
        self.transfer_next();
    }

    fn transfer_next(&mut self) {
        if self.tasks_in_card.bus_is_busy {
            return;
        }
        let Some((_, id)) = self.tasks_in_card.ready.pop_first() else {
            return;
        };
        let host = &self.setup.host;
        let data_start = self.now + Nanos(u64::from(host.command_ns));
        let answer = Nanos(u64::from(host.interrupt_ns) + u64::from(host.wake_ns));
        let request = self.queue.get(id);
        let (data_end, end) = if request.operation == Operation::Read {
            let end = self
                .card
                .transfer_read_task(data_start, &extent(request, self.features));
            (end, end)
        } else {
            let times = self.card.write_task(
                data_start,
                &extent(request, self.features),
                durability_of(request),
            );
            (times.data_end, times.ready.max(times.data_end))
        };
        let slot = self.tasks_in_card.slot_of(id);
        let sent = Sent {
            at: self.now,
            data_start,
            done: end,
            interrupts: 1,
            codes: Codes::Task { slot },
            requests: 1,
            first_sector: request.sector,
            in_card: self.tasks_in_card.count(),
        };
        if let Some(commands) = self.log.as_mut().and_then(CommandLog::commands) {
            commands.execute_task(self.now, self.queue.get(id).operation, slot);
        }
        let queue = &mut self.tasks_in_card;
        queue.bus_is_busy = true;
        queue.untransferred -= 1;
        queue.last_end = queue.last_end.max(end);
        self.count_busy(self.now, end);
        self.count_command(&[id], &sent);
        self.plan(data_end, Event::BusFree);
        self.plan(end + answer, Event::TaskDone(id));
        self.begin_barrier();
    }

    /// The driver sees the end of a task: rings the doorbell of the next one, then completes the request.
    pub(super) fn task_done(&mut self, id: RequestId) {
        self.tasks_in_card.free_slot(id);
        if let Some(next) = self.tasks_in_card.prepared.take() {
            self.queue_task(next);
        }
        self.complete(id, self.now + Nanos(u64::from(self.setup.host.complete_ns)));
        self.wake_blocked();
        self.begin_synchronous_if_empty();
        self.fetch_task();
    }

    /// Answers a flush of a card without a cache: Linux's driver sends no command, and waits for no task.
    fn flush_no_cache(&mut self, id: RequestId, fetched: Nanos) {
        let done = fetched + Nanos(u64::from(self.setup.host.complete_ns));
        self.tasks_in_card.flushes = true;
        self.driver.flushes += 1;
        self.note_sent(&[id]);
        self.log_driver_commands(id, &[], 0);
        self.plan(done, Event::BarrierDone(id));
    }

    /// Sends the flush that waits, if the ends of all tasks before it are known: the engine needs no processor for that.
    fn begin_barrier(&mut self) {
        let queue = &self.tasks_in_card;
        if queue.untransferred > 0 || queue.flushes {
            return;
        }
        let Some(id) = queue.barrier else {
            return;
        };
        let host = &self.setup.host;
        let start = self.now.max(queue.last_end) + Nanos(u64::from(host.command_ns));
        let answer =
            Nanos(u64::from(host.interrupt_ns) + u64::from(host.wake_ns) + u64::from(host.complete_ns));
        let end = self.card.flush(start);
        self.tasks_in_card.flushes = true;
        self.driver.flushes += 1;
        self.driver.interrupts += 1;
        self.count_busy(start, end);
        self.note_sent(&[id]);
        self.log_driver_commands(id, &[(start, end, FLUSH_CACHE)], 1);
        self.plan(end + answer, Event::BarrierDone(id));
    }

    /// The driver sees the end of a flush that was a direct command.
    pub(super) fn barrier_done(&mut self, id: RequestId) {
        self.tasks_in_card.barrier = None;
        self.tasks_in_card.flushes = false;
        self.complete(id, self.now);
        self.wake_blocked();
        self.fetch_task();
    }
}
