//! The members of an array with their clocks, and requests that start on several of them at the same moment.

use std::sync::Arc;

use media::Clock;

use crate::executor::Executor;

/// Devices or volumes that work in parallel, and the time of the whole.
///
/// A request starts on all members that it needs at the time of the whole, and the whole's time is then that of the last of
/// them. In real time clocks are moved by the edge below, and this changes nothing.
#[derive(Debug)]
pub(crate) struct Members<M: ?Sized> {
    members: Vec<(Arc<M>, Clock)>,
    clock: Clock,
    executor: Executor,
}

impl<M: Send + Sync + ?Sized + 'static> Members<M> {
    pub(crate) fn new(members: Vec<(Arc<M>, Clock)>, executor: Executor) -> Self {
        let start = members
            .iter()
            .map(|(_, clock)| clock.now())
            .max()
            .unwrap_or_default();
        Self {
            members,
            clock: Clock::starting_at(start),
            executor,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    pub(crate) fn clock(&self) -> Clock {
        self.clock.clone()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<M>> {
        self.members.iter().map(|(member, _)| member)
    }

    pub(crate) fn get(&self, member: usize) -> &Arc<M> {
        &self.members[member].0
    }

    /// Runs `action` on each named member with its input, all starting at the same moment; returns what they gave in the
    /// order of the inputs. No member may be named twice.
    pub(crate) fn together<T: Send + 'static, R: Send + 'static>(
        &self,
        inputs: Vec<(usize, T)>,
        action: impl Fn(&M, T) -> R + Send + Copy + 'static,
    ) -> Vec<R> {
        let start = self.clock.now();
        let used: Vec<usize> = inputs.iter().map(|(member, _)| *member).collect();
        for member in &used {
            self.members[*member].1.advance_to(start);
        }
        let jobs = inputs.into_iter().map(|(member, input)| {
            let device = Arc::clone(&self.members[member].0);
            (member, move || action(&device, input))
        });
        let results = self.executor.run(jobs.collect());
        for member in used {
            self.clock.advance_to(self.members[member].1.now());
        }
        results
    }

    /// Runs `action` on all members at the same moment.
    pub(crate) fn on_all<R: Send + 'static>(
        &self,
        action: impl Fn(&M) -> R + Send + Copy + 'static,
    ) -> Vec<R> {
        let all = (0..self.members.len()).map(|member| (member, ())).collect();
        self.together(all, move |device, ()| action(device))
    }
}
