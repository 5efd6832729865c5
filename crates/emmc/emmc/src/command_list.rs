//! The list of all commands on the card's bus, with arguments and the headers of packs: what a logic analyser would see,
//! without the status queries (CMD13).
//!
//! | command  | argument                                                                                      |
//! |----------|-----------------------------------------------------------------------------------------------|
//! | CMD23    | bits 15:0 blocks, 28:25 context, 29 data tag, 30 packed, 31 reliable write                     |
//! | CMD17/24, CMD18/25 | first sector                                                                       |
//! | CMD35/36 | first and last sector                                                                         |
//! | CMD38    | 1 TRIM, 3 DISCARD                                                                             |
//! | CMD6     | access, index, value and command set of an `EXT_CSD` byte                                      |
//! | CMD44    | bits 15:0 blocks, 20:16 task, 28:25 context, 29 data tag, 30 read, 31 reliable write           |
//! | CMD45    | first sector                                                                                  |
//! | CMD46/47 | bits 20:16 task                                                                               |

use media::Nanos;
use results::block_trace::Operation;

use crate::block::Request;
use crate::command_log::{Codes, Features, Sent, word};
use crate::pack_header::{
    self, CMD23_CONTEXT_SHIFT, CMD23_PACKED, CMD23_RELIABLE, CMD23_TAG, Direction, HEADER_BYTES, PackEntry,
};
use crate::packing::is_reliable;

/// CMD44 argument bit: read.
const CMD44_READ: u32 = 1 << 30;

/// A command on the bus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BusCommand {
    /// Time at which the host began with it.
    pub at: Nanos,
    /// Command number.
    pub code: u16,
    /// Argument.
    pub argument: u32,
    /// The header of a pack, if this command transfers it.
    pub header: Option<Box<[u8; HEADER_BYTES]>>,
}

/// The list; see the module.
#[derive(Clone, Debug, Default)]
pub struct CommandList {
    commands: Vec<BusCommand>,
    limit: usize,
    left_out: u64,
}

impl CommandList {
    /// A list of at most `limit` commands; further ones are only counted.
    #[must_use]
    pub const fn new(limit: usize) -> Self {
        Self {
            commands: Vec::new(),
            limit,
            left_out: 0,
        }
    }

    /// The commands in the order in which they were sent.
    #[must_use]
    pub fn into_commands(mut self) -> Vec<BusCommand> {
        self.commands.sort_by_key(|command| command.at);
        self.commands
    }

    /// Commands beyond the limit.
    #[must_use]
    pub const fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Adds a command without a header.
    pub(crate) fn plain(&mut self, at: Nanos, code: u16, argument: u32) {
        self.push(BusCommand {
            at,
            code,
            argument,
            header: None,
        });
    }

    fn push(&mut self, command: BusCommand) {
        if self.commands.len() < self.limit {
            self.commands.push(command);
        } else {
            self.left_out += 1;
        }
    }

    /// Adds the commands of one request or pack, which begin at `at`; those with the data at `begin`.
    pub(crate) fn transfer(
        &mut self,
        at: Nanos,
        begin: Nanos,
        requests: &[&Request],
        sent: &Sent,
        features: Features,
    ) {
        let Some(first) = requests.first() else {
            return;
        };
        let is_read = first.operation == Operation::Read;
        let blocks: u64 = requests.iter().map(|request| request.sectors).sum();
        let sector = word(sent.first_sector);
        if sent.codes == Codes::Single {
            return self.plain(begin, if is_read { 17 } else { 24 }, sector);
        }
        if requests.len() < 2 {
            self.plain(begin, 23, count_argument(first, features));
            return self.plain(begin, if is_read { 18 } else { 25 }, sector);
        }
        let entries: Vec<PackEntry> = requests
            .iter()
            .map(|request| PackEntry {
                cmd23: count_argument(request, features),
                sector: word(request.sector),
            })
            .collect();
        let direction = if is_read {
            Direction::Read
        } else {
            Direction::Write
        };
        let header = pack_header::encode(direction, &entries).ok().map(Box::new);
        let write_header = |header| BusCommand {
            at,
            code: 25,
            argument: sector,
            header,
        };
        if is_read {
            self.plain(at, 23, CMD23_PACKED | 1);
            self.push(write_header(header));
            self.plain(begin, 23, CMD23_PACKED | word(blocks) & 0xFFFF);
            self.plain(begin, 18, sector);
        } else {
            self.plain(at, 23, CMD23_PACKED | word(blocks + 1) & 0xFFFF);
            self.push(write_header(header));
        }
    }

    /// Adds the commands that queue a task.
    pub(crate) fn queue_task(
        &mut self,
        first: Nanos,
        second: Nanos,
        request: &Request,
        slot: u32,
        features: Features,
    ) {
        let read = if request.operation == Operation::Read {
            CMD44_READ
        } else {
            0
        };
        self.plain(first, 44, count_argument(request, features) | read | slot << 16);
        self.plain(second, 45, word(request.sector));
    }

    /// Adds the command that executes a task.
    pub(crate) fn execute_task(&mut self, at: Nanos, operation: Operation, slot: u32) {
        self.plain(at, if operation == Operation::Read { 46 } else { 47 }, slot << 16);
    }
}

/// Blocks and flags of one request, as in CMD23.
fn count_argument(request: &Request, features: Features) -> u32 {
    let mut argument = word(request.sectors) & 0xFFFF;
    if is_reliable(request) {
        argument |= CMD23_RELIABLE;
    }
    if features.tags(request) {
        argument |= CMD23_TAG;
    }
    if let Some(context) = features.context_of(request) {
        argument |= u32::from(context & 0xF) << CMD23_CONTEXT_SHIFT;
    }
    argument
}
