//! Processor time and context switches, of the machine and of one worker.

use std::fs;

use results::nearest_f64;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// Processor use of the machine during the timed window; percentages of all processors' time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcessorUse {
    /// User mode, nice included.
    pub user_percent: f64,
    /// Kernel mode.
    pub system_percent: f64,
    /// Hardware and software interrupts.
    pub interrupt_percent: f64,
    /// Idle, nothing outstanding.
    pub idle_percent: f64,
    /// Idle, I/O outstanding.
    pub iowait_percent: f64,
    /// Taken by the hypervisor.
    pub steal_percent: f64,
    /// Context switches of all processes.
    pub context_switches_count: u64,
}

impl ProcessorUse {
    /// User, kernel and interrupts.
    #[must_use]
    pub fn active_percent(&self) -> f64 {
        self.user_percent + self.system_percent + self.interrupt_percent
    }
}

/// Processor use of the workers during the timed window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerUse {
    /// Times a worker blocked.
    pub context_switches_voluntary_count: u64,
    /// Times a worker was preempted by another thread.
    pub context_switches_involuntary_count: u64,
    /// Processor time, user and kernel.
    pub cpu_ns: u64,
    /// The user-mode part of it, which the kernel knows to within a few percent.
    #[serde(default)]
    pub cpu_user_ns: u64,
}

impl WorkerUse {
    /// The use of this thread since an earlier reading of its own.
    pub(crate) fn of_this_thread_since(earlier: Option<Self>) -> Option<Self> {
        let both = Self::of_this_thread().zip(earlier);
        both.map(|(now, earlier)| now.since(earlier))
    }

    /// Use by the calling thread since it started; `None` without `/proc`.
    pub(crate) fn of_this_thread() -> Option<Self> {
        let status = fs::read_to_string("/proc/thread-self/status").ok()?;
        let field = |name: &str| -> Option<u64> {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim().parse().ok()
        };
        let time = clock_gettime(ClockId::ThreadCPUTime);
        let (seconds, nanoseconds) = (
            u64::try_from(time.tv_sec).ok()?,
            u64::try_from(time.tv_nsec).ok()?,
        );
        let cpu_ns = seconds * 1_000_000_000 + nanoseconds;
        Some(Self {
            context_switches_voluntary_count: field("voluntary_ctxt_switches:")?,
            context_switches_involuntary_count: field("nonvoluntary_ctxt_switches:")?,
            cpu_ns,
            cpu_user_ns: user_part(cpu_ns).unwrap_or(0),
        })
    }

    pub(crate) const fn since(self, earlier: Self) -> Self {
        Self {
            context_switches_voluntary_count: self
                .context_switches_voluntary_count
                .saturating_sub(earlier.context_switches_voluntary_count),
            context_switches_involuntary_count: self
                .context_switches_involuntary_count
                .saturating_sub(earlier.context_switches_involuntary_count),
            cpu_ns: self.cpu_ns.saturating_sub(earlier.cpu_ns),
            cpu_user_ns: self.cpu_user_ns.saturating_sub(earlier.cpu_user_ns),
        }
    }

    pub(crate) const fn plus(self, other: Self) -> Self {
        Self {
            context_switches_voluntary_count: self
                .context_switches_voluntary_count
                .saturating_add(other.context_switches_voluntary_count),
            context_switches_involuntary_count: self
                .context_switches_involuntary_count
                .saturating_add(other.context_switches_involuntary_count),
            cpu_ns: self.cpu_ns.saturating_add(other.cpu_ns),
            cpu_user_ns: self.cpu_user_ns.saturating_add(other.cpu_user_ns),
        }
    }
}

/// Splits the calling thread's processor time in the ratio of its ticks.
fn user_part(cpu_ns: u64) -> Option<u64> {
    let line = fs::read_to_string("/proc/thread-self/stat").ok()?;
    // The thread name may contain any character; after its closing parenthesis, user and kernel ticks are fields 12
    // and 13.
    let mut fields = line.rsplit_once(')')?.1.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let kernel: u64 = fields.next()?.parse().ok()?;
    let share = u128::from(cpu_ns) * u128::from(user) / u128::from(user + kernel).max(1);
    u64::try_from(share).ok()
}

/// The machine's counters at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessorSnapshot {
    /// Ticks of user, nice, system, idle, iowait, irq, softirq, steal. Guest time is part of user and nice.
    ticks: [u64; 8],
    context_switches: u64,
}

impl ProcessorSnapshot {
    /// `None` without `/proc/stat`.
    pub fn take() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/stat").ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        let all = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let mut fields = all.split_whitespace();
        let mut ticks = [0; 8];
        for tick in &mut ticks {
            // Kernels before 2.6.11 have fewer fields; missing ones count as 0.
            *tick = fields.next().map_or(Ok(0), str::parse).ok()?;
        }
        let switches = text.lines().find_map(|line| line.strip_prefix("ctxt "))?;
        Some(Self {
            ticks,
            context_switches: switches.trim().parse().ok()?,
        })
    }

    /// The difference since `earlier`; `None` if the window was shorter than one tick.
    pub fn since(&self, earlier: &Self) -> Option<ProcessorUse> {
        let mut spent = [0; 8];
        for (spent, (now, then)) in spent.iter_mut().zip(self.ticks.iter().zip(earlier.ticks)) {
            // iowait may decrease on a machine that hot-plugs its processors.
            *spent = now.saturating_sub(then);
        }
        let total: u64 = spent.iter().sum();
        if total == 0 {
            return None;
        }
        let percent = |ticks: u64| 100.0 * nearest_f64(ticks) / nearest_f64(total);
        let [user, nice, system, idle, iowait, interrupt, soft_interrupt, steal] = spent;
        Some(ProcessorUse {
            user_percent: percent(user + nice),
            system_percent: percent(system),
            interrupt_percent: percent(interrupt + soft_interrupt),
            idle_percent: percent(idle),
            iowait_percent: percent(iowait),
            steal_percent: percent(steal),
            context_switches_count: self.context_switches.saturating_sub(earlier.context_switches),
        })
    }
}

/// The start of a measurement of the whole machine and this thread.
pub struct UsageWindow(Option<ProcessorSnapshot>, Option<WorkerUse>);

impl UsageWindow {
    /// Starts now.
    pub fn begin() -> Self {
        Self(ProcessorSnapshot::take(), WorkerUse::of_this_thread())
    }

    /// The use since the start.
    pub fn end(self) -> (Option<ProcessorUse>, Option<WorkerUse>) {
        let machine = ProcessorSnapshot::take().zip(self.0);
        (
            machine.and_then(|(now, before)| now.since(&before)),
            WorkerUse::of_this_thread_since(self.1),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_of_the_kernel_is_counted_once() {
        let before = "cpu  100 0 100 1000 10 0 0 0 0 0\ncpu0 1 2 3\nctxt 500\n";
        let after = "cpu  130 10 120 1020 15 2 3 10 7 0\ncpu0 1 2 3\nctxt 750\n";
        let (before, after) = (
            ProcessorSnapshot::parse(before).unwrap(),
            ProcessorSnapshot::parse(after).unwrap(),
        );
        let found = after.since(&before).unwrap();
        assert_eq!(found.user_percent, 40.0, "guest time is part of user time");
        assert_eq!(found.system_percent, 20.0);
        assert_eq!(found.interrupt_percent, 5.0);
        assert_eq!(
            (found.idle_percent, found.iowait_percent, found.steal_percent),
            (20.0, 5.0, 10.0)
        );
        assert_eq!(found.active_percent(), 65.0);
        assert_eq!(found.context_switches_count, 250);
    }

    #[test]
    fn a_window_without_a_tick_has_no_percentages() {
        let now = ProcessorSnapshot::parse("cpu  1 2 3 4\nctxt 5\n").unwrap();
        assert_eq!(now.since(&now), None);
    }

    #[test]
    fn this_machine_and_this_thread_can_be_read() {
        assert!(ProcessorSnapshot::take().is_some());
        assert!(WorkerUse::of_this_thread().is_some());
    }
}
