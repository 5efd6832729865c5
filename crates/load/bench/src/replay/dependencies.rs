//! Tracks the dependencies between calls of different threads: a call waits until those it depends on have completed.
//!
//! A resource (a descriptor, a file position, a name) counts its completed calls. A call that depends on `n` of them
//! waits for that count. Calls that may run concurrently wait for the same count, that of the last exclusive call on
//! the resource, so a count that has been reached stays valid.
//!
//! Waiters sleep: without a waiter, no lock is taken and no wake-up is sent.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Number of wait queues, shared by all resources.
const PLACES: usize = 64;

/// Interval at which a waiter reads the stop flag.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Calls on one resource that must complete before another call is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dependency {
    /// Number of the resource.
    pub resource: u32,
    /// Number of calls on it that must have completed.
    pub done: u32,
}

#[derive(Debug, Default)]
struct Place {
    waiting: AtomicU32,
    lock: Mutex<()>,
    changed: Condvar,
}

/// The completion counts of all resources.
#[derive(Debug)]
pub struct DependencyTracker {
    done: Vec<AtomicU32>,
    places: Vec<Place>,
}

impl DependencyTracker {
    pub fn new(resources: u32) -> Self {
        Self {
            done: (0..resources).map(|_| AtomicU32::new(0)).collect(),
            places: (0..PLACES).map(|_| Place::default()).collect(),
        }
    }

    /// Waits until `need` is met. Returns false if `give_up` became true instead.
    pub fn wait(&self, need: Dependency, give_up: impl Fn() -> bool) -> bool {
        let count = self.count(need.resource);
        if count.load(Ordering::SeqCst) >= need.done {
            return true;
        }
        let place = self.place(need.resource);
        let mut guard = place.lock.lock().unwrap_or_else(PoisonError::into_inner);
        // Either this thread sees the count that a passing call has just raised, or that call sees this waiter.
        place.waiting.fetch_add(1, Ordering::SeqCst);
        let met = loop {
            if count.load(Ordering::SeqCst) >= need.done {
                break true;
            }
            if give_up() {
                break false;
            }
            let waited = place.changed.wait_timeout(guard, LOOK_EVERY);
            guard = waited.unwrap_or_else(PoisonError::into_inner).0;
        };
        place.waiting.fetch_sub(1, Ordering::SeqCst);
        met
    }

    /// Counts a completed call on the resource.
    pub fn pass(&self, resource: u32) {
        self.count(resource).fetch_add(1, Ordering::SeqCst);
        let place = self.place(resource);
        if place.waiting.load(Ordering::SeqCst) > 0 {
            drop(place.lock.lock().unwrap_or_else(PoisonError::into_inner));
            place.changed.notify_all();
        }
    }

    /// Wakes every waiter to check whether it must give up.
    pub fn wake_all(&self) {
        for place in &self.places {
            place.changed.notify_all();
        }
    }

    fn count(&self, resource: u32) -> &AtomicU32 {
        &self.done[index(resource)]
    }

    fn place(&self, resource: u32) -> &Place {
        &self.places[index(resource) % PLACES]
    }
}

fn index(resource: u32) -> usize {
    usize::try_from(resource).expect("resources are in memory, so their numbers fit")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;
    use std::thread;

    #[test]
    fn calls_pass_in_the_order_of_their_needs() {
        let tracker = DependencyTracker::new(1);
        let order = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for number in (0..8).rev() {
                let (tracker, order) = (&tracker, &order);
                scope.spawn(move || {
                    let need = Dependency {
                        resource: 0,
                        done: number,
                    };
                    assert!(tracker.wait(need, || false));
                    order.lock().unwrap().push(number);
                    tracker.pass(0);
                });
            }
        });
        assert_eq!(order.into_inner().unwrap(), (0..8).collect::<Vec<_>>());
    }

    #[test]
    fn a_waiter_gives_up_when_told() {
        let tracker = DependencyTracker::new(1);
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let need = Dependency { resource: 0, done: 1 };
                tracker.wait(need, || stop.load(Ordering::Relaxed))
            });
            stop.store(true, Ordering::Relaxed);
            tracker.wake_all();
            assert!(!waiter.join().unwrap());
        });
    }
}
