//! Decodes the events of a fanotify group with file handles and names.
//!
//! Source: `include/uapi/linux/fanotify.h`, fanotify(7). An event is a fixed header and a list of records; each record has
//! a type, a length, and here a file system id and a file handle, in some followed by a name and a NUL. Unknown records
//! are skipped. All fields have the host's byte order.

use crate::anchor::inode_number_in;

/// Size of the header.
const HEADER_BYTES: usize = 24;
/// `FANOTIFY_METADATA_VERSION`
const VERSION: u8 = 3;
const RECORD_HEADER_BYTES: usize = 4;
const FSID_BYTES: usize = 8;

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Event<'a> {
    /// `FAN_*` bits; merged events have several.
    pub mask: u64,
    /// The process that made the change.
    pub pid: i32,
    /// Inode number of the directory, and the name in it.
    pub name: Option<(u64, &'a [u8])>,
    /// Inode number of the changed file or directory.
    pub object: Option<u64>,
}

/// The events in `bytes`, one after the other. `None` as an item: the rest can't be understood.
pub(crate) struct Events<'a> {
    rest: &'a [u8],
}

impl<'a> Events<'a> {
    pub(crate) const fn of(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    fn take(&mut self) -> Option<Event<'a>> {
        let length = usize::try_from(u32::from_ne_bytes(*self.rest.first_chunk()?)).ok()?;
        let (event, rest) = self.rest.split_at_checked(length)?;
        let records_at = usize::from(u16::from_ne_bytes(*event.get(6..)?.first_chunk()?));
        if event.get(4) != Some(&VERSION) || records_at < HEADER_BYTES {
            return None;
        }
        let mut decoded = Event {
            mask: u64::from_ne_bytes(*event.get(8..)?.first_chunk()?),
            pid: i32::from_ne_bytes(*event.get(20..)?.first_chunk()?),
            name: None,
            object: None,
        };
        let mut records = event.get(records_at..)?;
        while !records.is_empty() {
            let length = usize::from(u16::from_ne_bytes(*records.get(2..)?.first_chunk()?));
            if length < RECORD_HEADER_BYTES {
                return None;
            }
            let (record, rest) = records.split_at_checked(length)?;
            match record[0] {
                libc::FAN_EVENT_INFO_TYPE_FID | libc::FAN_EVENT_INFO_TYPE_DFID => {
                    decoded.object = Some(handle(record)?.0);
                }
                libc::FAN_EVENT_INFO_TYPE_DFID_NAME => {
                    let (directory, after) = handle(record)?;
                    let end = after.iter().position(|byte| *byte == 0)?;
                    match &after[..end] {
                        // An event of the directory itself.
                        b"." => decoded.object = Some(directory),
                        name => decoded.name = Some((directory, name)),
                    }
                }
                _ => {}
            }
            records = rest;
        }
        self.rest = rest;
        Some(decoded)
    }
}

/// Inode number in the handle of a record, and the bytes behind the handle.
fn handle(record: &[u8]) -> Option<(u64, &[u8])> {
    let handle = record.get(RECORD_HEADER_BYTES + FSID_BYTES..)?;
    let length = usize::try_from(u32::from_ne_bytes(*handle.first_chunk()?)).ok()?;
    let kind = i32::from_ne_bytes(*handle.get(4..)?.first_chunk()?);
    let (bytes, after) = handle.get(8..)?.split_at_checked(length)?;
    Some((inode_number_in(kind, bytes)?, after))
}

impl<'a> Iterator for Events<'a> {
    type Item = Option<Event<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let taken = self.take();
        if taken.is_none() {
            self.rest = &[];
        }
        Some(taken)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A record with the ext4 handle of inode `number`.
    fn record(kind: u8, number: u32, name: &[u8]) -> Vec<u8> {
        let mut body = vec![0; FSID_BYTES];
        body.extend(8_u32.to_ne_bytes());
        body.extend(1_i32.to_ne_bytes());
        body.extend(number.to_ne_bytes());
        body.extend(7_u32.to_ne_bytes());
        if !name.is_empty() {
            body.extend(name);
            body.push(0);
        }
        body.resize(body.len().next_multiple_of(4), 0);
        let length = u16::try_from(RECORD_HEADER_BYTES + body.len()).unwrap();
        let mut record = vec![kind, 0];
        record.extend(length.to_ne_bytes());
        record.extend(body);
        record
    }

    /// An event as the kernel writes it.
    pub(crate) fn event(
        mask: u64,
        pid: i32,
        directory: Option<(u32, &[u8])>,
        object: Option<u32>,
    ) -> Vec<u8> {
        let mut records = Vec::new();
        if let Some((number, name)) = directory {
            records.extend(record(libc::FAN_EVENT_INFO_TYPE_DFID_NAME, number, name));
        }
        if let Some(number) = object {
            records.extend(record(libc::FAN_EVENT_INFO_TYPE_FID, number, b""));
        }
        let mut event = Vec::new();
        event.extend(u32::try_from(HEADER_BYTES + records.len()).unwrap().to_ne_bytes());
        event.extend([VERSION, 0]);
        event.extend(u16::try_from(HEADER_BYTES).unwrap().to_ne_bytes());
        event.extend(mask.to_ne_bytes());
        event.extend((-1_i32).to_ne_bytes());
        event.extend(pid.to_ne_bytes());
        event.extend(records);
        event
    }

    #[test]
    fn each_event_has_its_directory_name_and_object() {
        let bytes = [
            event(libc::FAN_CREATE, 5, Some((11, b"new")), Some(12)),
            event(libc::FAN_Q_OVERFLOW, 0, None, None),
            event(libc::FAN_ATTRIB, 6, None, Some(13)),
            event(libc::FAN_ATTRIB | libc::FAN_ONDIR, 6, Some((14, b".")), None),
        ]
        .concat();
        let found: Vec<_> = Events::of(&bytes).collect::<Option<_>>().unwrap();
        let of = |mask, pid, name, object| Event {
            mask,
            pid,
            name,
            object,
        };
        let wanted = [
            of(libc::FAN_CREATE, 5, Some((11, &b"new"[..])), Some(12)),
            of(libc::FAN_Q_OVERFLOW, 0, None, None),
            of(libc::FAN_ATTRIB, 6, None, Some(13)),
            of(libc::FAN_ATTRIB | libc::FAN_ONDIR, 6, None, Some(14)),
        ];
        assert_eq!(found, wanted);
    }

    #[test]
    fn bytes_that_are_cut_short_or_wrong_end_the_events() {
        let whole = event(libc::FAN_CREATE, 5, Some((11, b"new")), Some(12));
        for length in 1..whole.len() {
            let found: Vec<_> = Events::of(&whole[..length]).collect();
            assert_eq!(found, [None], "{length} of {} bytes", whole.len());
        }
        for at in 0..whole.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut changed = whole.clone();
                changed[at] = value;
                assert!(Events::of(&changed).count() <= whole.len());
            }
        }
    }
}
