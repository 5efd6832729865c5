//! Reads CSV of the Pixel traces (MobileBlockIOTraces): `process,device,rw_flag,sector,size,timestamp`.
//!
//! The process is `NAME-PID`, the device the kernel's number (major in the bits above 20), sector and size are in
//! sectors of 512 bytes, the time is in seconds. Names may contain commas: columns are counted from the end.

use std::sync::Arc;

use results::block_trace::{CauseQuality, DeviceNumber, Operation, Request, Run};

use super::assembly::Assembly;
use super::clock::{Clock, digits, nanoseconds};
use super::text_source::{Expected, LineParser};

/// Reads lines of such a CSV.
#[derive(Debug, Default)]
pub struct PixelCsvParser {
    clock: Clock,
    lines: u64,
}

impl LineParser for PixelCsvParser {
    const LINE: &str = "six columns: `process,device,rw_flag,sector,size,timestamp`";

    fn is_line(line: &str) -> bool {
        is_header(line) || row(line).is_some()
    }

    fn line(&mut self, line: &str, assembly: &mut Assembly) -> Result<(), Expected> {
        self.lines += 1;
        if self.lines == 1 && is_header(line) {
            return Ok(());
        }
        let row = row(line).ok_or(Expected(Self::LINE))?;
        let queued_ns = self.clock.relative(row.time_ns);
        let submitter = assembly.process(row.pid, row.name);
        let bytes = row.sectors.saturating_mul(512);
        let cause = Some(Arc::clone(&submitter));
        assembly.request(Request {
            queued_ns: Some(queued_ns),
            submitter: Some(submitter),
            runs: vec![Run {
                cause,
                cause_quality: CauseQuality::Submitter,
                ..Run::unknown(row.sector, bytes)
            }],
            ..Request::at(row.device, row.operation, row.sector, bytes)
        })?;
        Ok(())
    }

    fn end(&mut self, assembly: &mut Assembly) {
        assembly.limitation(
            "files, types of blocks, flags",
            "the format has no columns for them",
        );
        assembly.limitation(
            "latencies",
            "the format has one time for each request, which stands as its queue time",
        );
        assembly.limitation(
            "wall-clock time",
            "times are seconds since the phone started, though the format's description says otherwise",
        );
    }
}

struct Row<'line> {
    name: &'line str,
    pid: u32,
    device: DeviceNumber,
    operation: Operation,
    sector: u64,
    sectors: u64,
    time_ns: u64,
}

fn row(line: &str) -> Option<Row<'_>> {
    let mut columns = line.trim_ascii().rsplitn(6, ',');
    let time_ns = nanoseconds(columns.next()?)?;
    let sectors = digits(columns.next()?)?;
    let sector = digits(columns.next()?)?;
    let operation = match columns.next()? {
        "R" => Operation::Read,
        "W" => Operation::Write,
        "D" => Operation::Discard,
        _ => return None,
    };
    let device = u32::try_from(digits(columns.next()?)?).ok()?;
    let process = columns.next()?;
    // Some rows lack the number after the name.
    let (name, pid) = process
        .rsplit_once('-')
        .filter(|(_, pid)| digits(pid).is_some())
        .unwrap_or((process, "0"));
    Some(Row {
        name,
        pid: u32::try_from(digits(pid)?).ok()?,
        device: DeviceNumber {
            major: device >> 20,
            minor: device & 0xF_FFFF,
        },
        operation,
        sector,
        sectors,
        time_ns,
    })
}

/// True for the header line. The traces spell its first column `proces`.
pub fn is_header(line: &str) -> bool {
    line.trim_ascii()
        .ends_with(",device,rw_flag,sector,size,timestamp")
}
