//! Steps of requests in the order of time, as text of block tracers has them.
//!
//! Requests come in the order of their first steps; later steps wait here until no earlier one can come. Memory is that of
//! the steps which overlap in time.

use std::collections::BTreeMap;

/// Lines by time, then by arrival.
#[derive(Debug, Default)]
pub struct Timeline {
    lines: BTreeMap<(u64, u64), Line>,
    arrivals: u64,
}

/// One line, whose number in the text is not known until it goes out.
#[derive(Clone, Debug)]
pub struct Line {
    pub time_ns: u64,
    /// What stands before the sequence number.
    pub head: String,
    /// What stands behind.
    pub tail: String,
}

impl Timeline {
    pub fn add(&mut self, line: Line) {
        self.lines.insert((line.time_ns, self.arrivals), line);
        self.arrivals += 1;
    }

    /// The next line that began before `time_ns`.
    pub fn before(&mut self, time_ns: u64) -> Option<Line> {
        let first = self.lines.first_entry()?;
        (first.key().0 < time_ns).then(|| first.remove())
    }

    /// The next line.
    pub fn next(&mut self) -> Option<Line> {
        self.lines.pop_first().map(|(_, line)| line)
    }
}
