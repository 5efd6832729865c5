//! The members of an array with their clocks, and requests that start on several of them simultaneously.

use std::sync::Arc;

use media::Clock;

use crate::executor::Executor;

/// Devices or volumes that work in parallel, with the array's clock.
///
/// A request starts on all members that it needs at the array's time, and then advances that time to the last member's.
/// In real time the host adapter below moves the clocks, and this has no effect.
#[derive(Debug)]
pub(crate) struct Members<M: ?Sized> {
    /// `None` for an absent member: it takes part in no request.
    members: Vec<Option<(Arc<M>, Clock)>>,
    clock: Clock,
    executor: Executor,
}

impl<M: Send + Sync + ?Sized + 'static> Members<M> {
    pub(crate) fn new(members: Vec<(Arc<M>, Clock)>, executor: Executor) -> Self {
        Self::with_absent(members.into_iter().map(Some).collect(), executor)
    }

    pub(crate) fn with_absent(members: Vec<Option<(Arc<M>, Clock)>>, executor: Executor) -> Self {
        let start = members
            .iter()
            .flatten()
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

    /// Iterates over the present members.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<M>> {
        self.members.iter().flatten().map(|(member, _)| member)
    }

    /// Iterates over the places of the present members.
    pub(crate) fn places(&self) -> impl Iterator<Item = usize> {
        let places = self.members.iter().enumerate();
        places.filter_map(|(place, member)| member.is_some().then_some(place))
    }

    pub(crate) fn is_absent(&self, member: usize) -> bool {
        self.members[member].is_none()
    }

    /// # Panics
    /// When the member is absent.
    pub(crate) fn get(&self, member: usize) -> &Arc<M> {
        &self.present(member).0
    }

    fn present(&self, member: usize) -> &(Arc<M>, Clock) {
        self.members[member]
            .as_ref()
            .expect("requests are made of members that are present")
    }

    /// Runs `action` on each listed member with its input, all starting simultaneously. Returns the results in the
    /// order of the inputs. A member may be listed only once.
    pub(crate) fn together<T: Send + 'static, R: Send + 'static>(
        &self,
        inputs: Vec<(usize, T)>,
        action: impl Fn(&M, T) -> R + Send + Copy + 'static,
    ) -> Vec<R> {
        let start = self.clock.now();
        let used: Vec<usize> = inputs.iter().map(|(member, _)| *member).collect();
        for member in &used {
            self.present(*member).1.advance_to(start);
        }
        let jobs = inputs.into_iter().map(|(member, input)| {
            let device = Arc::clone(self.get(member));
            (member, move || action(&device, input))
        });
        let results = self.executor.run(jobs.collect());
        for member in used {
            self.clock.advance_to(self.present(member).1.now());
        }
        results
    }

    /// Runs `action` on all present members simultaneously.
    pub(crate) fn on_all<R: Send + 'static>(
        &self,
        action: impl Fn(&M) -> R + Send + Copy + 'static,
    ) -> Vec<R> {
        let all = self.places().map(|member| (member, ())).collect();
        self.together(all, move |device, ()| action(device))
    }
}
