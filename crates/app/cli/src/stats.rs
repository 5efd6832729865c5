//! `tidegate stats`: queries the daemon and prints its counters as a table, JSON, Prometheus text, or rates over time.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use mounted::document::ReadError;
use mounted::prometheus::{self, Levels};
use mounted::table::{self, Mount};
use mounted::{document, text};
use report::Column;
use serde_json::{Value, json};

use crate::arguments::StatsArguments;
use crate::output::{self, Printed};

/// The levels of everything that a mount may consist of.
pub const LEVELS: Levels<'_> = Levels {
    buffer: buffer::BufferStats::LEVELS,
    source: &[
        passfs::PassCounters::LEVELS,
        ubifs::WriterStatistics::LEVELS,
        live::counters::LEVELS,
    ],
};

/// Runs the command.
pub fn run(arguments: &StatsArguments) -> Result<()> {
    let Some(mountpoint) = &arguments.mountpoint else {
        return list(arguments);
    };
    if arguments.ask {
        output::print_bytes(&document::answer(mountpoint))?;
        return Ok(());
    }
    let mount = table::find_fuse(mountpoint)?;
    if let Some(interval) = arguments.watch {
        return watch(&mount, interval);
    }
    let document = document::read(&mount.mountpoint)?;
    if arguments.json {
        output::print_line(&serde_json::to_string(&document)?)?;
    } else if arguments.prometheus {
        output::print_text(&prometheus::render(&mount.mountpoint, &document, LEVELS))?;
    } else {
        let show = match arguments.all {
            true => text::render,
            false => text::brief,
        };
        output::print_text(&show(&mount.mountpoint, &document))?;
    }
    Ok(())
}

/// Daemons that are asked beside each other: each takes a process.
const ASKED_TOGETHER: usize = 64;

/// Prints each mount of the type `fuse.tidegate`: mount point, source and serving process.
fn list(arguments: &StatsArguments) -> Result<()> {
    let mounts = table::all()?.into_iter().filter(Mount::is_tidegate);
    let mut rows: Vec<(Mount, Option<u32>, &str)> = Vec::new();
    // Beside each other: any user may have many that don't answer.
    let mounts: Vec<Mount> = mounts.collect();
    for mounts in mounts.chunks(ASKED_TOGETHER) {
        thread::scope(|scope| {
            let ask = |mount: &Mount| document::read(&mount.mountpoint);
            let asked: Vec<_> = mounts
                .iter()
                .map(|mount| scope.spawn(move || ask(mount)))
                .collect();
            for (mount, answer) in mounts.iter().zip(asked) {
                let (pid, state) = match answer.join().expect("its own message is above") {
                    Ok(document) => (Some(document.pid), "serves"),
                    Err(ReadError::Dead) => (None, "dead"),
                    Err(ReadError::Silent { .. }) => (None, "silent"),
                    Err(_) => (None, "not for this user"),
                };
                rows.push((mount.clone(), pid, state));
            }
        });
    }
    if arguments.json {
        let rows = rows.iter().map(|(mount, pid, state)| {
            json!({
                "mountpoint": mount.mountpoint.display().to_string(),
                "source": mount.source.display().to_string(),
                "pid": pid,
                "state": state,
            })
        });
        output::print_line(&Value::from_iter(rows).to_string())?;
        return Ok(());
    }
    let columns = [
        Column::right("process"),
        Column::left("mountpoint").elided(),
        Column::left("source").elided(),
    ];
    let row = |(mount, pid, state): &(Mount, Option<u32>, &str)| {
        vec![
            pid.map_or_else(|| (*state).to_owned(), |pid| pid.to_string()),
            mount.mountpoint.display().to_string(),
            mount.source.display().to_string(),
        ]
    };
    if rows.is_empty() {
        output::print_error("nothing is mounted by tidegate");
        return Ok(());
    }
    let rows: Vec<Vec<String>> = rows.iter().map(row).collect();
    output::print_text(&arguments.width.table(&columns, &rows))?;
    Ok(())
}

fn watch(mount: &Mount, interval: Duration) -> Result<()> {
    if interval.is_zero() {
        bail!("an interval of 0 s would ask without pause; give for example --watch=1");
    }
    let mut before = document::read(&mount.mountpoint)?;
    let mut asked_at = Instant::now();
    for line in 0_u64.. {
        if line.is_multiple_of(20) && output::print_line(text::RATES_HEADER)? == Printed::Closed {
            return Ok(());
        }
        // Wait for the next point of a fixed grid, so that a late line does not delay the following ones.
        let next = asked_at + interval;
        thread::sleep(next.saturating_duration_since(Instant::now()));
        let now = document::read(&mount.mountpoint)?;
        let answered_at = Instant::now();
        let rates = text::render_rates(&before, &now, answered_at - asked_at);
        if output::print_line(&rates)? == Printed::Closed {
            return Ok(());
        }
        (before, asked_at) = (now, answered_at);
    }
    Ok(())
}
