//! Reads the block traces of MSR Cambridge (SNIA IOTTA): CSV
//! `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`.
//!
//! The timestamp is the issue of a request in ticks of 100 ns since 1601 (Windows FILETIME), the response time is in
//! ticks too; the type is `Read` or `Write`; offset and size are in bytes from the start of the volume. Each pair of
//! host and disk is a device of its own. The published files have no header line; one in the first line is skipped.

use results::block_trace::{DeviceNumber, Operation, Request, TracedDevice};

use super::assembly::Assembly;
use super::clock::{Clock, digits};
use super::text_source::{Expected, LineParser, columns, sector_bytes};

const HEADER: &str = "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime";

/// From 1601, when FILETIME begins, to 1970.
const UNIX_EPOCH_NS: u64 = 11_644_473_600 * 1_000_000_000;

/// The published traces have 36 volumes; more than this mean that the file is damaged.
const VOLUMES_MAX: usize = 4096;

/// Reads lines of such a CSV.
#[derive(Debug, Default)]
pub struct MsrParser {
    clock: Clock,
    /// Names of the volumes (`HOST_DISK`) by minor number.
    volumes: Vec<String>,
    lines: u64,
}

impl LineParser for MsrParser {
    const LINE: &str = "seven columns: `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`";

    fn is_line(line: &str) -> bool {
        line.trim_ascii() == HEADER || row(line).is_ok()
    }

    fn line(&mut self, line: &str, assembly: &mut Assembly) -> Result<(), Expected> {
        self.lines += 1;
        if self.lines == 1 && line.trim_ascii() == HEADER {
            return Ok(());
        }
        let row = row(line)?;
        let device = self.device(row.host, row.disk)?;
        let queued_ns = self.clock.relative(row.issued_ns);
        assembly.request(Request {
            queued_ns: Some(queued_ns),
            completed_ns: Some(queued_ns.saturating_add(row.response_ns)),
            ..Request::at(device, row.operation, row.offset / 512, row.bytes)
        })?;
        Ok(())
    }

    fn end(&mut self, assembly: &mut Assembly) {
        let header = assembly.header_mut();
        let base_ns = self.clock.base_ns();
        header.start_realtime_ns = base_ns.and_then(|base_ns| base_ns.checked_sub(UNIX_EPOCH_NS));
        for (minor, name) in (0..).zip(std::mem::take(&mut self.volumes)) {
            let device = DeviceNumber { major: 0, minor };
            header.devices.push(TracedDevice::named(device, name));
        }
        let missing = "files, processes, types of blocks, flags";
        assembly.limitation(missing, "the format has no columns for them");
        let why = "the format has no flushes and no discards";
        assembly.limitation("flushes and discards", why);
        let why = "the format has one time of issue, which stands as queue time; the response time is from there on";
        assembly.limitation("time in the device", why);
    }
}

impl MsrParser {
    fn device(&mut self, host: &str, disk: &str) -> Result<DeviceNumber, Expected> {
        let is_it =
            |name: &String| name.strip_prefix(host).and_then(|rest| rest.strip_prefix('_')) == Some(disk);
        let known = self.volumes.iter().position(is_it);
        if known.is_none() {
            if self.volumes.len() >= VOLUMES_MAX {
                return Err(Expected("at most 4096 volumes in one trace"));
            }
            self.volumes.push(format!("{host}_{disk}"));
        }
        let minor = u32::try_from(known.unwrap_or(self.volumes.len() - 1)).unwrap_or(u32::MAX);
        Ok(DeviceNumber { major: 0, minor })
    }
}

struct Row<'line> {
    issued_ns: u64,
    host: &'line str,
    disk: &'line str,
    operation: Operation,
    offset: u64,
    bytes: u64,
    response_ns: u64,
}

fn row(line: &str) -> Result<Row<'_>, Expected> {
    let [issued, host, disk, kind, offset, bytes, response] =
        columns(line).ok_or(Expected(MsrParser::LINE))?;
    let nanoseconds = |ticks: &str| digits(ticks)?.checked_mul(100);
    Ok(Row {
        issued_ns: nanoseconds(issued).ok_or(Expected("Timestamp in ticks of 100 ns since 1601"))?,
        host,
        disk: digits(disk)
            .map(|_| disk)
            .ok_or(Expected("a number in DiskNumber"))?,
        operation: match kind {
            "Read" => Operation::Read,
            "Write" => Operation::Write,
            _ => return Err(Expected("`Read` or `Write` in Type")),
        },
        offset: sector_bytes(offset).ok_or(Expected("bytes in Offset, a multiple of 512"))?,
        bytes: sector_bytes(bytes)
            .filter(|bytes| *bytes > 0)
            .ok_or(Expected("bytes in Size, a multiple of 512"))?,
        response_ns: nanoseconds(response).ok_or(Expected("ticks of 100 ns in ResponseTime"))?,
    })
}
