//! The flush manager: the thread that writes entries out in the background.
//!
//! It writes sealed entries at once, the oldest first and one of each file in turn, and looks for overdue ones at every
//! interval. When the buffer has been empty for [`IDLE_TICKS`] intervals it frees the memory and sleeps without a
//! timeout. Before that it keeps ticking, so that a file that is written and closed need not wake it.
//!
//! With the inline flusher, writers write out the entries that they seal or find overdue. The thread is then only a
//! timer: it writes out entries that no writer has handled after twice the time that a writer would have left them, so
//! a load that keeps writing never triggers it.

use std::sync::Arc;
use std::time::Instant;

use vfs::FileSystem;

use crate::central::Central;
use crate::config::Flusher;
use crate::engine::Engine;

/// Intervals with nothing buffered before memory is freed: one second at 10 ms.
const IDLE_TICKS: u32 = 100;
/// Factor by which the timer of the inline flusher leaves an entry longer than a writer does.
const TIMER_FACTOR: u32 = 2;

/// Reports the end of the manager, also by a panic: writers do its work from then on.
struct Presence<'a>(&'a Central);

impl Drop for Presence<'_> {
    fn drop(&mut self) {
        self.0.manager_goes();
    }
}

/// The thread's body; returns when it is told to stop. The caller that stops it writes the remaining entries.
pub fn run<F: FileSystem>(engine: &Arc<Engine<F>>) {
    let _presence = Presence(&engine.central);
    let factor = match engine.config.flusher {
        Flusher::Inline => TIMER_FACTOR,
        Flusher::Thread | Flusher::Off => 1,
    };
    let interval = engine.config.flush_interval;
    let mut next_tick = Instant::now() + interval;
    // Nothing has been buffered yet: sleep at the first tick.
    let mut idle_ticks = IDLE_TICKS;
    let mut lists = engine.central.lock();
    loop {
        engine.central.count_round();
        if let Some(inode) = lists.ready.pop_front() {
            drop(lists);
            engine.flush_ready(&inode);
            lists = engine.central.lock();
            continue;
        }
        if lists.stop {
            return;
        }
        let now = Instant::now();
        if now < next_tick {
            lists = engine.central.manager_sleeps(lists, Some(next_tick - now));
            continue;
        }
        next_tick = now + interval;
        if !lists.active.is_empty() {
            idle_ticks = 0;
            drop(lists);
            engine.flush_overdue(factor);
            lists = engine.central.lock();
        } else if idle_ticks < IDLE_TICKS {
            idle_ticks += 1;
        } else {
            drop(lists);
            engine.central.give_memory_back();
            lists = engine.central.lock();
            if lists.active.is_empty() && lists.ready.is_empty() && !lists.stop {
                lists = engine.central.manager_sleeps(lists, None);
            }
            (idle_ticks, next_tick) = (0, Instant::now() + interval);
        }
    }
}
