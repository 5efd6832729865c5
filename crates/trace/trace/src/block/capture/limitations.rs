//! Limitations of a trace that are known only at its end.

use results::block_trace::Limitation;

use crate::block::attribution::Attribution;
use crate::block::joiner::Untold;
use crate::block::record::Counters;

/// Limitations by the counters of the source, the joiner and the attribution.
pub(super) fn at_end(
    counters: &Counters,
    dropped_renames: u64,
    untold: Untold,
    known: &Attribution,
) -> Vec<Limitation> {
    let limitation = |what: &str, why: String| Limitation {
        what: what.to_owned(),
        why,
    };
    let mut limitations = Vec::new();
    if counters.slots_taken_twice > 0 {
        limitations.push(limitation(
            "insert and issue times of some requests",
            format!(
                "{} requests shared a place in the table of requests",
                counters.slots_taken_twice
            ),
        ));
    }
    if counters.unseen > 0 {
        limitations.push(limitation(
            "times of completion of some requests",
            format!(
                "{} completed in an interrupt while the tracer was told of another completion",
                counters.unseen
            ),
        ));
    }
    if dropped_renames > 0 {
        limitations.push(limitation(
            "some renames of files",
            format!(
                "the kernel dropped some {dropped_renames} times, as more were made than are read in time"
            ),
        ));
    }
    for (count, what, why) in [
        (
            untold.own,
            "requests of the tracer itself",
            "are left out; write the trace to another device",
        ),
        (
            untold.lost,
            "I/Os whose completion was lost",
            "are left out, as their requests may be in the trace without an owner",
        ),
        (
            untold.pushed_out,
            "completion of some requests",
            "were told before it, as more were in flight than are kept",
        ),
        (
            untold.flushes,
            "callers of some flushes",
            "waited beyond those that are kept",
        ),
    ] {
        if count > 0 {
            limitations.push(limitation(what, format!("{count} {why}")));
        }
    }
    for (forgotten, what, why) in [
        (
            known.writers.forgotten,
            "writers of single pages in some files",
            "more dirty ranges than are kept; their last writer is told instead",
        ),
        (
            known.paths.forgotten,
            "names of some files",
            "more names than are kept",
        ),
        (
            known.processes.forgotten,
            "names of some processes",
            "more processes than are kept",
        ),
        (
            known.forgotten(),
            "owners and kinds of some blocks",
            "more places or transactions than are kept",
        ),
    ] {
        if forgotten > 0 {
            limitations.push(limitation(what, format!("{why} (forgotten {forgotten} times)")));
        }
    }
    limitations
}
