//! Assigns commands of a driver (mmc, SCSI) to the requests that they were sent for.
//!
//! A command that moves data completes before its block request, and carries the request's first sector; so a completed
//! request finds its commands waiting. The first one is the request's command. Commands of no request (a flush of the
//! card's cache, an erase, a status query), and those that a request needed beyond its first, are reported separately.

use std::collections::VecDeque;

use results::block_trace::{DriverCommand, IoMode, Operation, Request, RequestFlags};

use super::record::{DriverRecord, device_number, driver_flag};

/// Commands that move a request's blocks: read and write of one, of several, and of a task of the card's queue.
const MOVES_BLOCKS: [u32; 6] = [17, 18, 24, 25, 46, 47];

/// Data commands of one device whose requests have not completed.
#[derive(Debug, Default)]
pub(crate) struct Commands(VecDeque<DriverRecord>);

impl Commands {
    /// Keeps a command for its request; returns it if it can't belong to one.
    pub(crate) fn keep(&mut self, record: &DriverRecord) -> Option<DriverRecord> {
        let is_scsi = record.flags & driver_flag::SCSI != 0;
        let waits =
            record.flags & driver_flag::HAS_DATA != 0 && (is_scsi || MOVES_BLOCKS.contains(&record.code));
        if !waits {
            return Some(*record);
        }
        self.0.push_back(*record);
        None
    }

    /// Removes the commands of the request with these sectors that was in the driver between these times.
    pub(crate) fn take(&mut self, sectors: (u64, u64), time: (u64, u64)) -> VecDeque<DriverRecord> {
        let belongs = |record: &DriverRecord| {
            (sectors.0..sectors.1).contains(&record.sector)
                && record.issued >= time.0
                && record.completed <= time.1
        };
        let (taken, left) = std::mem::take(&mut self.0).into_iter().partition(belongs);
        self.0 = left;
        taken
    }

    /// Removes the next command that completed before `time`, whose request was not seen.
    pub(crate) fn expired(&mut self, time: u64) -> Option<DriverRecord> {
        let is_old = self.0.front().is_some_and(|record| record.completed < time);
        if is_old { self.0.pop_front() } else { None }
    }
}

/// Converts a record of a command; times are relative to `start`.
pub(crate) fn command(record: &DriverRecord, start: u64) -> DriverCommand {
    let narrow = |value: u32| u16::try_from(value).unwrap_or(u16::MAX);
    let has = |flag: u16| record.flags & flag != 0;
    DriverCommand {
        code: narrow(record.code),
        argument: record.argument,
        packed_requests: 1,
        retries: record.tries.saturating_sub(1),
        interrupts: record.interrupts,
        bytes: has(driver_flag::HAS_DATA).then_some(record.bytes),
        tag: has(driver_flag::QUEUED).then_some(record.tag),
        waits_busy: has(driver_flag::WAITS_BUSY),
        issued_ns: Some(record.issued.saturating_sub(start)),
        completed_ns: Some(record.completed.saturating_sub(start)),
        status: Some(status(record)),
    }
}

/// SCSI: the host timed out.
const DID_TIME_OUT: u32 = 3;
/// SCSI: the disk was missing.
const DID_NO_CONNECT: u32 = 1;

/// 0 or the error number. SCSI reports bytes: the third is the host's, the first the disk's.
fn status(record: &DriverRecord) -> i32 {
    if record.flags & driver_flag::SCSI == 0 {
        return record.error.saturating_abs();
    }
    let result = record.error.cast_unsigned();
    match (result, result >> 16 & 0xFF) {
        (0, _) => 0,
        (_, DID_NO_CONNECT) => libc::ENODEV,
        (_, DID_TIME_OUT) => libc::ETIMEDOUT,
        _ => libc::EIO,
    }
}

/// A request for a command that is reported separately.
pub(crate) fn alone(record: &DriverRecord, start: u64) -> Request {
    let command = command(record, start);
    Request {
        id: 0,
        device: device_number(record.device),
        sector: record.sector,
        bytes: command.bytes.map_or(0, u64::from),
        operation: Operation::Driver,
        flags: RequestFlags::default(),
        priority: None,
        queued_ns: None,
        inserted_ns: None,
        issued_ns: command.issued_ns,
        completed_ns: command.completed_ns,
        status: command.status,
        in_flight: None,
        hardware_queue: None,
        submitter: None,
        mode: IoMode::Unknown,
        command: Some(command),
        runs: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::FromZeros;

    use super::*;

    fn transfer(sector: u64, issued: u64) -> DriverRecord {
        DriverRecord {
            sector,
            issued,
            completed: issued + 10,
            code: 25,
            bytes: 4096,
            tries: 3,
            flags: driver_flag::HAS_DATA | driver_flag::WAITS_BUSY,
            ..DriverRecord::new_zeroed()
        }
    }

    #[test]
    fn a_command_of_scsi_bears_its_code_its_tag_and_what_went_wrong() {
        let write = DriverRecord {
            code: 0x2A,
            tag: 7,
            interrupts: 2,
            error: 0x0003_0002,
            flags: driver_flag::SCSI | driver_flag::HAS_DATA | driver_flag::QUEUED,
            ..transfer(8, 100)
        };
        let mut commands = Commands::default();
        assert!(commands.keep(&write).is_none(), "its request takes it");
        let told = command(&commands.take((0, 16), (90, 200))[0], 0);
        assert_eq!((told.code, told.tag, told.interrupts), (0x2A, Some(7), 2));
        assert_eq!(told.status, Some(libc::ETIMEDOUT));
        let refused = DriverRecord { error: 2, ..write };
        assert_eq!(command(&refused, 0).status, Some(libc::EIO));
        let done = DriverRecord { error: 0, ..write };
        assert_eq!(command(&done, 0).status, Some(0));
    }

    #[test]
    fn a_request_takes_the_commands_of_its_sectors_and_its_time() {
        let mut commands = Commands::default();
        for record in [
            transfer(8, 50),
            transfer(8, 100),
            transfer(16, 110),
            transfer(8, 300),
        ] {
            assert!(commands.keep(&record).is_none());
        }
        let taken = commands.take((8, 16), (90, 200));
        assert_eq!(taken.len(), 1);
        assert_eq!(taken[0].issued, 100);
        let told = command(&taken[0], 50);
        assert_eq!((told.code, told.retries, told.bytes), (25, 2, Some(4096)));
        assert_eq!(
            (told.issued_ns, told.tag, told.waits_busy),
            (Some(50), None, true)
        );
        assert_eq!(commands.expired(200).map(|record| record.sector), Some(8));
        assert_eq!(commands.expired(200).map(|record| record.sector), Some(16));
        assert!(commands.expired(200).is_none(), "the other one is young");
    }

    #[test]
    fn a_command_without_blocks_waits_for_nothing() {
        let mut commands = Commands::default();
        let status = DriverRecord {
            code: 13,
            ..DriverRecord::new_zeroed()
        };
        assert!(commands.keep(&status).is_some());
        // EXT_CSD is data, but of no request.
        assert!(
            commands
                .keep(&DriverRecord {
                    code: 8,
                    ..transfer(0, 1)
                })
                .is_some()
        );
    }
}
