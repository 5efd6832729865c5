//! Reads logs of BIOTracer (SmartphoneIOTraces, Nexus 5): eight tab-separated columns.
//!
//! Start in sectors, sectors, bytes, kind (bit 0 write, bit 2 the queue was empty), and four times in seconds:
//! generated, taken by the driver, sent to the card, done. The driver adds a sector to some sizes; an excess of one
//! sector over a whole number of 4 KiB blocks is removed, as the authors prescribe.

use results::block_trace::{DeviceNumber, Operation, Request, TracedDevice};

use super::assembly::Assembly;
use super::clock::{Clock, digits, nanoseconds};
use super::text_source::{Expected, LineParser};

/// The phone's eMMC.
const DEVICE: DeviceNumber = DeviceNumber { major: 179, minor: 0 };

/// A longer gap between times is not a pause: the phone's clock was set.
const LEAP_NS: u64 = 24 * 3600 * 1_000_000_000;

/// Reads lines of BIOTracer.
#[derive(Debug, Default)]
pub struct BiotracerParser {
    clock: Clock,
    /// Subtracted from times because the clock was set.
    leap_ns: u64,
    last_ns: u64,
    cleaned: u64,
}

impl LineParser for BiotracerParser {
    const LINE: &str =
        "eight columns of BIOTracer: `SECTOR SECTORS BYTES KIND SECONDS SECONDS SECONDS SECONDS`";

    fn is_line(line: &str) -> bool {
        row(line).is_some()
    }

    fn line(&mut self, line: &str, assembly: &mut Assembly) -> Result<(), Expected> {
        let row = row(line).ok_or(Expected(Self::LINE))?;
        let [queued, taken, _sent, completed] = row.times_ns;
        if taken < queued || completed < taken {
            return Err(Expected("times that do not go back within a line"));
        }
        let behind = queued.saturating_sub(self.leap_ns).saturating_sub(self.last_ns);
        if self.clock.base_ns().is_some() && behind > LEAP_NS {
            if self.leap_ns == 0 {
                let why = "the clock was set during the trace; the time until then is closed up";
                assembly.limitation("a pause", why);
            }
            self.leap_ns = queued.saturating_sub(self.last_ns);
        }
        self.last_ns = queued.saturating_sub(self.leap_ns);
        let (leap_ns, clock) = (self.leap_ns, &mut self.clock);
        let queued = clock.relative(queued.saturating_sub(leap_ns));
        let mut time = |time_ns: u64| clock.relative(time_ns.saturating_sub(leap_ns));
        let sectors = if row.sectors % 8 == 1 && row.sectors > 8 {
            self.cleaned += 1;
            row.sectors - 1
        } else {
            row.sectors
        };
        let is_write = row.kind & 1 == 1;
        let bytes = sectors.saturating_mul(512);
        let operation = if is_write {
            Operation::Write
        } else {
            Operation::Read
        };
        assembly.request(Request {
            queued_ns: Some(queued),
            issued_ns: Some(time(taken)),
            completed_ns: Some(time(completed)),
            ..Request::at(DEVICE, operation, row.sector, bytes)
        })?;
        Ok(())
    }

    fn end(&mut self, assembly: &mut Assembly) {
        let header = assembly.header_mut();
        header
            .devices
            .push(TracedDevice::named(DEVICE, "mmcblk0".to_owned()));
        // Seconds since boot are small; others are wall clock times.
        if self.leap_ns == 0 {
            header.start_realtime_ns = self.clock.base_ns().filter(|base| *base > LEAP_NS);
        }
        assembly.limitation(
            "files, processes, types of blocks, flags",
            "BIOTracer does not tell them",
        );
        assembly.limitation("flushes and discards", "BIOTracer tells reads and writes alone");
        assembly.limitation(
            "when the card was told",
            "issue times are those at which the driver took the request",
        );
        if self.cleaned > 0 {
            let why = format!(
                "{} sizes had a sector that the driver adds; it is taken off",
                self.cleaned
            );
            assembly.limitation("exact sizes", &why);
        }
    }
}

struct Row {
    sector: u64,
    sectors: u64,
    kind: u64,
    times_ns: [u64; 4],
}

fn row(line: &str) -> Option<Row> {
    let mut words = line.split_ascii_whitespace();
    let (sector, sectors, bytes) = (
        digits(words.next()?)?,
        digits(words.next()?)?,
        digits(words.next()?)?,
    );
    let kind = digits(words.next()?)?;
    let mut times_ns = [0; 4];
    for time_ns in &mut times_ns {
        *time_ns = nanoseconds(words.next()?)?;
    }
    let is_whole = words.next().is_none() && sectors.checked_mul(512) == Some(bytes) && kind < 8;
    is_whole.then_some(Row {
        sector,
        sectors,
        kind,
        times_ns,
    })
}
