//! Work for all processors, by threads that end with the call: none is left that could hold a lock while the process forks.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Maximum number of threads.
const THREADS_MAX: usize = 8;

/// The threads that may work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// Only the caller.
    Caller,
    /// One for each processor.
    Processors,
}

/// The results of `work` for all items, in their order. A panic of a thread is one of the caller.
pub fn in_parallel<T: Sync, R: Send>(
    threads: Threads,
    items: &[T],
    work: &(impl Fn(&T) -> R + Sync),
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let take = || {
        let mut done = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(number) else {
                return done;
            };
            done.push((number, work(item)));
        }
    };
    let helpers = match threads {
        Threads::Caller => 1,
        Threads::Processors => thread::available_parallelism().map_or(1, usize::from),
    };
    let helpers = helpers.min(THREADS_MAX).min(items.len()).saturating_sub(1);
    let mut done = thread::scope(|scope| {
        // A host that gives no thread is no reason to fail: the others do the work.
        let helpers: Vec<_> = (0..helpers)
            .filter_map(|_| thread::Builder::new().spawn_scoped(scope, take).ok())
            .collect();
        let mut done = take();
        for helper in helpers {
            match helper.join() {
                Ok(of_helper) => done.extend(of_helper),
                Err(panic) => resume_unwind(panic),
            }
        }
        done
    });
    done.sort_unstable_by_key(|(number, _)| *number);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_items() {
        let items: Vec<usize> = (0..1000).collect();
        let expected: Vec<usize> = items.iter().map(|item| item * 3).collect();
        for threads in [Threads::Caller, Threads::Processors] {
            assert_eq!(in_parallel(threads, &items, &|item| item * 3), expected);
            assert_eq!(in_parallel(threads, &[0_u8; 0], &|item| *item), []);
        }
    }

    #[test]
    fn the_caller_alone_works_if_no_other_may() {
        let own = thread::current().id();
        let items = [(); 100];
        let others = in_parallel(Threads::Caller, &items, &|()| thread::current().id() != own);
        assert!(!others.contains(&true));
    }

    #[test]
    fn a_panic_reaches_the_caller() {
        let items: Vec<usize> = (0..100).collect();
        let work = |item: &usize| assert!(*item != 50);
        assert!(std::panic::catch_unwind(|| in_parallel(Threads::Processors, &items, &work)).is_err());
    }
}
