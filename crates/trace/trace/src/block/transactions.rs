//! The processes that take part in each transaction of a journal.
//!
//! Only a process that is the sole participant can be the cause of a transaction's blocks. The transaction that runs when
//! the trace starts, or when records are lost, may have participants that were not seen: it has none that is told.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use results::block_trace::Process;

/// Transactions whose commits were not seen yet: there are two at a time, unless records are lost.
const MAX_OPEN: usize = 1 << 10;

/// Participants by file system and transaction.
#[derive(Debug, Default)]
pub(crate) struct Transactions {
    open: HashMap<(u32, u32), HashSet<Arc<Process>>>,
    /// By file system, the first transaction met since the start or the last loss: it may have begun before.
    first: HashMap<u32, u32>,
    /// Number of times that all were dropped at the memory limit.
    pub forgotten: u64,
}

impl Transactions {
    /// Records a participant.
    pub(crate) fn contributed(&mut self, file_system: u32, transaction: u32, process: Arc<Process>) {
        if self.open.len() >= MAX_OPEN {
            self.lose();
            self.forgotten += 1;
        }
        self.first.entry(file_system).or_insert(transaction);
        let known = self.open.entry((file_system, transaction)).or_default();
        // Only a sole one is asked for.
        if known.len() < 2 {
            known.insert(process);
        }
    }

    /// The sole participant, if there is one and all were seen.
    pub(crate) fn only_one(&self, file_system: u32, transaction: u32) -> Option<Arc<Process>> {
        let first = self.first.get(&file_system)?;
        // Numbers of transactions wrap.
        if transaction.wrapping_sub(*first).cast_signed() <= 0 {
            return None;
        }
        let known = self.open.get(&(file_system, transaction))?;
        known.iter().next().filter(|_| known.len() == 1).cloned()
    }

    /// Forgets a transaction that was committed.
    pub(crate) fn committed(&mut self, file_system: u32, transaction: u32) {
        self.open.remove(&(file_system, transaction));
    }

    /// Records were lost, perhaps of participants.
    pub(crate) fn lose(&mut self) {
        self.open.clear();
        self.first.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32) -> Arc<Process> {
        Arc::new(Process {
            pid,
            tid: pid,
            name: "writer".into(),
            package: None,
        })
    }

    #[test]
    fn a_transaction_that_began_before_the_trace_or_before_a_loss_has_no_sole_participant() {
        let mut transactions = Transactions::default();
        transactions.contributed(7, u32::MAX, process(1));
        assert_eq!(transactions.only_one(7, u32::MAX), None, "it ran at the start");
        transactions.contributed(7, 0, process(1));
        assert_eq!(transactions.only_one(7, 0), Some(process(1)));
        transactions.contributed(7, 0, process(2));
        assert_eq!(transactions.only_one(7, 0), None, "there are two");
        transactions.lose();
        transactions.contributed(7, 1, process(1));
        assert_eq!(transactions.only_one(7, 1), None, "it ran at the loss");
        transactions.contributed(7, 2, process(1));
        assert_eq!(transactions.only_one(7, 2), Some(process(1)));
    }

    #[test]
    fn transactions_without_end_are_forgotten_and_counted() {
        let mut transactions = Transactions::default();
        for number in 0..u32::try_from(MAX_OPEN).unwrap() + 1 {
            transactions.contributed(7, number, process(1));
        }
        assert_eq!((transactions.open.len(), transactions.forgotten), (1, 1));
    }
}
