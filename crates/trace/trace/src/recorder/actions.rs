//! The action of a finished call on names or on a descriptor.

use libc::pid_t;
use results::call_trace::{Action, CallTraceError, Descriptor, Outcome, Whence};

use super::arguments::{id, low_bytes, names_of, number_of, word};
use super::{Began, NOT_OPEN, Recorder, UNREADABLE};
use crate::call::Watch;
use crate::tracee;

pub(super) enum Named {
    Action(Action),
    /// Counted as left out.
    Left,
    /// Not a call on names.
    None,
}

impl Recorder<'_> {
    pub(super) fn on_names(&mut self, watch: Watch, began: &Began) -> Result<Named, CallTraceError> {
        let arguments = &began.arguments;
        if matches!(watch, Watch::StatAt { .. }) && began.names[0].is_none() && began.descriptor.is_some() {
            return Ok(Named::None);
        }
        let places = names_of(watch, arguments);
        if places[0].is_none() {
            return Ok(Named::None);
        }
        let mut names = [None, None];
        for (name, (place, path)) in names.iter_mut().zip(places.iter().zip(&began.names)) {
            if place.is_none() {
                continue;
            }
            let Some(path) = path else {
                self.writer.skip(UNREADABLE);
                return Ok(Named::Left);
            };
            if tracee::is_kernel_file(path) {
                self.writer.skip(tracee::KERNEL_FILE);
                return Ok(Named::Left);
            }
            *name = Some(self.writer.name(path)?);
        }
        let removes_directory = arguments[2] & number_of(libc::AT_REMOVEDIR) != 0;
        Ok(Named::Action(match (watch, names) {
            (Watch::Stat | Watch::StatAt { .. }, [Some(name), _]) => Action::Stat { name },
            (Watch::Access | Watch::AccessAt, [Some(name), _]) => Action::Access { name },
            (Watch::UnlinkAt, [Some(name), _]) if removes_directory => Action::RemoveDirectory { name },
            (Watch::Unlink | Watch::UnlinkAt, [Some(name), _]) => Action::Unlink { name },
            (Watch::RemoveDirectory, [Some(name), _]) => Action::RemoveDirectory { name },
            (Watch::MakeDirectory | Watch::MakeDirectoryAt, [Some(name), _]) => {
                Action::MakeDirectory { name }
            }
            (Watch::Truncate, [Some(name), _]) => {
                let bytes = arguments[1];
                Action::Truncate { name, bytes }
            }
            (Watch::RenameAt { has_flags: true }, _)
                if arguments[4] & u64::from(libc::RENAME_EXCHANGE) != 0 =>
            {
                self.writer.skip("RENAME_EXCHANGE is not replayed");
                return Ok(Named::Left);
            }
            (Watch::Rename | Watch::RenameAt { .. }, [Some(from), Some(to)]) => Action::Rename { from, to },
            (Watch::Link | Watch::LinkAt, [Some(from), Some(to)]) => Action::Link { from, to },
            _ => return Ok(Named::None),
        }))
    }

    pub(super) fn on_descriptor(
        &mut self,
        process: pid_t,
        began: &Began,
        outcome: Outcome,
    ) -> Option<Action> {
        let handle = match began.descriptor {
            Some(Descriptor::File(handle)) => handle,
            Some(Descriptor::Other(what)) => {
                self.writer.skip(what);
                return None;
            }
            None => {
                self.writer.skip(NOT_OPEN);
                return None;
            }
        };
        let [_, _, third, fourth, ..] = began.arguments;
        let moved = outcome.value().unwrap_or(0);
        let second = began.arguments[1];
        Some(match began.watch {
            Watch::Read => Action::Read { handle, bytes: third },
            Watch::Write => Action::Write { handle, bytes: third },
            Watch::ReadVector => Action::Read { handle, bytes: moved },
            Watch::WriteVector => Action::Write { handle, bytes: moved },
            Watch::ReadAt => Action::ReadAt {
                handle,
                bytes: third,
                offset: fourth,
            },
            Watch::WriteAt => Action::WriteAt {
                handle,
                bytes: third,
                offset: fourth,
            },
            Watch::ReadVectorAt => Action::ReadAt {
                handle,
                bytes: moved,
                offset: fourth,
            },
            Watch::WriteVectorAt => Action::WriteAt {
                handle,
                bytes: moved,
                offset: fourth,
            },
            Watch::Fsync => Action::Fsync { handle },
            Watch::Fdatasync => Action::Fdatasync { handle },
            Watch::SyncRange => Action::SyncRange {
                handle,
                offset: second,
                bytes: third,
            },
            Watch::TruncateHandle => Action::TruncateHandle {
                handle,
                bytes: second,
            },
            Watch::Allocate => {
                let mode = u32::from_ne_bytes(low_bytes(second));
                Action::Allocate {
                    handle,
                    mode,
                    offset: third,
                    bytes: fourth,
                }
            }
            Watch::StatHandle | Watch::StatAt { .. } => Action::StatHandle { handle },
            Watch::List => Action::List { handle },
            Watch::Seek => {
                let Some(whence) = whence_of(word(third)) else {
                    self.writer.skip("lseek from an unknown place");
                    return None;
                };
                let offset = i64::from_ne_bytes(second.to_ne_bytes());
                Action::Seek {
                    handle,
                    offset,
                    whence,
                }
            }
            Watch::SendFile | Watch::CopyRange => {
                let sends = began.watch == Watch::SendFile;
                let (other, bytes) = if sends {
                    (second, fourth)
                } else {
                    (third, began.arguments[4])
                };
                let at_positions = if sends {
                    third == 0
                } else {
                    second == 0 && fourth == 0
                };
                match self.tables.get(id(process), word(other)).filter(|_| at_positions) {
                    Some(Descriptor::File(other)) if sends => Action::Copy {
                        from: other,
                        to: handle,
                        bytes,
                    },
                    Some(Descriptor::File(other)) => Action::Copy {
                        from: handle,
                        to: other,
                        bytes,
                    },
                    _ => {
                        self.writer
                            .skip("copy at given offsets, or to something that is no file");
                        return None;
                    }
                }
            }
            _ => return None,
        })
    }
}

const fn whence_of(number: i32) -> Option<Whence> {
    Some(match number {
        libc::SEEK_SET => Whence::Start,
        libc::SEEK_CUR => Whence::Current,
        libc::SEEK_END => Whence::End,
        libc::SEEK_DATA => Whence::Data,
        libc::SEEK_HOLE => Whence::Hole,
        _ => return None,
    })
}
