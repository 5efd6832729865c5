//! Reads the block traces of Alibaba Cloud (`alibaba/block-traces`, 2020): CSV
//! `device_id,opcode,offset,length,timestamp`.
//!
//! The device is the number of a virtual disk, the opcode `R` or `W`; offset and length are in bytes, the timestamp is
//! in microseconds since 1970. The schema has no header line; one with these names in the first line is skipped.

use std::collections::BTreeSet;

use results::block_trace::{DeviceNumber, Operation, Request, TracedDevice};

use super::assembly::Assembly;
use super::clock::{Clock, digits};
use super::text_source::{Expected, LineParser, columns, sector_bytes};

const HEADER: &str = "device_id,opcode,offset,length,timestamp";

/// The kernel's minor numbers have 20 bits; the published trace has 1,000 disks.
const DISKS_MAX: u32 = 1 << 20;

/// Reads lines of such a CSV.
#[derive(Debug, Default)]
pub struct AlibabaParser {
    clock: Clock,
    disks: BTreeSet<u32>,
    lines: u64,
}

impl LineParser for AlibabaParser {
    const LINE: &str = "five columns: `device_id,opcode,offset,length,timestamp`";

    fn is_line(line: &str) -> bool {
        line.trim_ascii() == HEADER || row(line).is_ok()
    }

    fn line(&mut self, line: &str, assembly: &mut Assembly) -> Result<(), Expected> {
        self.lines += 1;
        if self.lines == 1 && line.trim_ascii() == HEADER {
            return Ok(());
        }
        let (time_ns, request) = row(line)?;
        assembly.request(Request {
            queued_ns: Some(self.clock.relative(time_ns)),
            ..request
        })?;
        self.disks.insert(request.device.minor);
        Ok(())
    }

    fn end(&mut self, assembly: &mut Assembly) {
        let header = assembly.header_mut();
        header.start_realtime_ns = self.clock.base_ns();
        for minor in std::mem::take(&mut self.disks) {
            let device = DeviceNumber { major: 0, minor };
            let name = format!("disk-{minor}");
            header.devices.push(TracedDevice::named(device, name));
        }
        let missing = "files, processes, types of blocks, flags";
        assembly.limitation(missing, "the format has no columns for them");
        let why = "the format has no flushes and no discards";
        assembly.limitation("flushes and discards", why);
        let why = "the format has one time for each request, which stands as its queue time";
        assembly.limitation("latencies", why);
    }
}

/// The time of a row and its request.
fn row(line: &str) -> Result<(u64, Request), Expected> {
    let [disk, opcode, offset, length, time] = columns(line).ok_or(Expected(AlibabaParser::LINE))?;
    let minor = digits(disk).and_then(|disk| u32::try_from(disk).ok());
    let minor = minor.filter(|minor| *minor < DISKS_MAX);
    let minor = minor.ok_or(Expected("a number below 1048576 in device_id"))?;
    let operation = match opcode {
        "R" => Operation::Read,
        "W" => Operation::Write,
        _ => return Err(Expected("`R` or `W` in opcode")),
    };
    let offset = sector_bytes(offset).ok_or(Expected("bytes in offset, a multiple of 512"))?;
    let bytes = sector_bytes(length).filter(|bytes| *bytes > 0);
    let bytes = bytes.ok_or(Expected("bytes in length, a multiple of 512"))?;
    let time_ns = digits(time).and_then(|time| time.checked_mul(1000));
    let time_ns = time_ns.ok_or(Expected("microseconds since 1970 in timestamp"))?;
    let device = DeviceNumber { major: 0, minor };
    Ok((time_ns, Request::at(device, operation, offset / 512, bytes)))
}
