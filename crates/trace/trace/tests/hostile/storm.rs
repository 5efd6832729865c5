//! Renames without end: processes rename faster than the tracer looks names up, and the trace must end all the same.

use std::path::Path;
use std::process::{Child, Command};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use results::block_trace::EventKind;
use trace::block::{CaptureSpec, DEFAULT_RING_BYTES, Target, capture};

use crate::disk::FileSystem;
use crate::machine::Machine;
use crate::recorded::{self, InMemory};
use crate::{Outcome, QUEUE, failed};

/// Time for which the processes rename if nobody ends them.
const STORM: Duration = Duration::from_secs(120);
const PROCESSES: usize = 2;

/// The processes; ended with the value.
struct Storm(Vec<Child>);

impl Drop for Storm {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = (child.kill(), child.wait());
        }
    }
}

/// Traces for a second while processes rename. `None`: left out, and the reason is recorded.
pub fn run(file_system: &FileSystem) -> Outcome<Option<String>> {
    let machine = match Machine::make(&[file_system], false, QUEUE) {
        Ok(machine) => machine,
        Err(reason) => {
            testkit::report_left_out(format!("storm: {reason}"));
            return Ok(None);
        }
    };
    let this = std::env::current_exe().map_err(|error| failed("this program", error))?;
    let mut storm = Storm(Vec::new());
    for number in 0..PROCESSES {
        let mut command = Command::new(&this);
        command.args(["storm", &number.to_string()]).args(machine.roots());
        storm
            .0
            .push(command.spawn().map_err(|error| failed("storm", error))?);
    }
    let devices = machine.devices();
    let targets = devices.map(|device| Target::Device(device.into())).collect();
    let spec = CaptureSpec {
        duration: Some(Duration::from_secs(1)),
        ..recorded::spec(targets, Vec::new(), DEFAULT_RING_BYTES, "storm")
    };
    let mut trace = InMemory::default();
    let captured = match capture(&spec, &AtomicBool::new(false), &mut trace) {
        Ok(captured) => captured,
        Err(trace::block::CaptureError::Forbidden { reason }) => {
            testkit::report_left_out(reason);
            return Ok(None);
        }
        Err(error) => return Err(error.to_string()),
    };
    let duration = Duration::from_nanos(captured.header.duration_ns);
    drop(storm);
    if duration > STORM / 2 {
        return Err(format!("a trace of a second took {duration:?}"));
    }
    let renames = trace
        .events
        .iter()
        .filter(|event| event.kind == EventKind::Rename);
    match renames.count() {
        0 => Err("no rename is in the trace".to_owned()),
        count => Ok(Some(format!("{count} renames in {duration:?}"))),
    }
}

/// One of the processes: renames a file, to another name each time.
pub fn rename(number: &str, folder: &str) -> Outcome<()> {
    let folder = Path::new(folder);
    let mut path = folder.join(number);
    std::fs::write(&path, "x").map_err(|error| failed("storm", error))?;
    let start = Instant::now();
    let mut count = 0_u64;
    while start.elapsed() < STORM {
        count += 1;
        let new = folder.join(format!("{number}-{count}"));
        std::fs::rename(&path, &new).map_err(|error| failed("storm", error))?;
        path = new;
    }
    Ok(())
}
