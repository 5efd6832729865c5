//! Limitations of a trace that are known only at its end.

use results::block_trace::Limitation;

use crate::block::attribution::Attribution;
use crate::block::joiner::Untold;
use crate::block::record::Counters;

/// The limitation of a trace that is made in a namespace of processes.
pub(super) fn in_namespace() -> Limitation {
    Limitation {
        what: "the tracer's own requests, renames and application packages by process number".to_owned(),
        why: "the tracer runs in a namespace of processes: numbers of processes are the machine's, those of renames the \
              namespace's, and its own requests are not left out"
            .to_owned(),
    }
}

/// Limitations by the counters of the source, the joiner and the attribution.
pub(super) fn at_end(
    counters: &Counters,
    (dropped_renames, unwatched): (u64, u64),
    untold: Untold,
    known: &Attribution,
    (forgotten_by_source, unmatched): (u64, u64),
) -> Vec<Limitation> {
    let limitation = |what: &str, why: String| Limitation {
        what: what.to_owned(),
        why,
    };
    let mut limitations = Vec::new();
    if counters.slots_taken_twice > 0 {
        limitations.push(limitation(
            "issue and completion of some requests",
            format!(
                "{} requests lost their place in the table of requests to others, as more were in flight than it holds",
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
    if unwatched > 0 {
        limitations.push(limitation(
            "some renames of files",
            format!(
                "{unwatched} file systems were mounted after the trace's start, or are mounted where the tracer does not \
                 see them"
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
            unmatched,
            "issue and completion of some requests",
            "completed whose issue was not seen: they were under way at the start, or their events were lost",
        ),
        (
            known.paths.cut,
            "paths of some files",
            "paths deeper than 40 folders are told without their first ones, so that different files may seem one",
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
            "more dirty ranges than are kept; their last writer is told instead, or none",
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
        (
            untold.parts,
            "owners of some blocks",
            "more pieces of I/Os waited for the rest than are kept",
        ),
        (
            forgotten_by_source,
            "owners, times and processes of some requests",
            "more places, requests in flight or threads than the reader of tracefs keeps",
        ),
    ] {
        if forgotten > 0 {
            limitations.push(limitation(what, format!("{why} (forgotten {forgotten} times)")));
        }
    }
    limitations
}
