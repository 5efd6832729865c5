//! Checks that every request of a card or SCSI disk has the command that its driver sent for it.

use std::path::Path;

use results::block_trace::{Operation, Request};

use crate::{Outcome, say, traced};

/// Few transfers, as an emulated card is slow: buffered, direct, and read.
const LOAD: &str = "dd if=/dev/zero of=$1/x bs=64k count=16 conv=fsync && \
                    dd if=/dev/zero of=$1/y bs=4k count=20 oflag=direct && \
                    dd if=$1/x of=/dev/null bs=64k iflag=direct";

/// Reads and writes of a card (one block, several), and of SCSI in 10 and 16 bytes.
const READS: [u16; 4] = [17, 18, 0x28, 0x88];
const WRITES: [u16; 4] = [24, 25, 0x2A, 0x8A];
/// Lower command numbers are those of cards.
const SCSI: u16 = 0x28;

/// Writes to and reads from a mounted file system.
pub fn here(folder: &Path) -> Outcome<()> {
    let words = ["sh", "-c", LOAD, "sh"].map(Into::into).into_iter();
    let command = words.chain([folder.as_os_str().to_owned()]).collect();
    let (trace, _) = traced(folder, command)?.ok_or("the guest forbids tracing")?;
    say(&judge(&trace.requests)?);
    Ok(())
}

/// Each read and write has one command of its kind and length, within the request's time, and without an error.
fn judge(requests: &[Request]) -> Outcome<String> {
    let (mut joined, mut alone) = (0_u64, 0_u64);
    for request in requests {
        let Some(command) = request.command else {
            if request.moves_data() {
                return Err(format!("no command for {request:?}"));
            }
            continue;
        };
        if request.operation == Operation::Driver {
            alone += 1;
            continue;
        }
        let codes = if request.operation == Operation::Read {
            READS
        } else {
            WRITES
        };
        let is_right = codes.contains(&command.code)
            && command.bytes.map(u64::from) == Some(request.bytes)
            && command.status == Some(0)
            && command.issued_ns >= request.issued_ns
            && command.completed_ns <= request.completed_ns
            && command.issued_ns <= command.completed_ns
            // Only a card's host has interrupts here.
            && (command.code >= SCSI) == (command.interrupts == 0)
            && (command.code >= SCSI) == command.tag.is_some();
        if !is_right {
            return Err(format!("the wrong command: {request:?}"));
        }
        joined += 1;
    }
    if joined == 0 || alone == 0 {
        return Err(format!(
            "{joined} commands with requests, {alone} by themselves: expected both"
        ));
    }
    Ok(format!(
        "{joined} requests have their commands, {alone} commands stand alone"
    ))
}
