//! Extended attributes: each value is stored in its own inode, which an entry of the file refers to.

use super::held::OrphanChange;
use super::journal::NewNode;
use super::names::{NewFile, entry_bytes, touch};
use super::{WriteError, Writer};
use crate::file_system::UbifsError;
use crate::format::{
    DirectoryEntry, EntryKind, INODE_DATA_BYTES_MAX, INODE_XATTR, InodeNumber, Key, NAME_BYTES_MAX, NodeKind,
};
use crate::mkfs::Time;

/// Maximum total size of a file's attribute names, as listed by Linux.
const NAMES_BYTES_MAX: u32 = 1 << 16;

fn check_name(name: &[u8]) -> Result<u16, WriteError> {
    if name.contains(&0) {
        return Err(WriteError::Invalid("no extended attribute can have that name"));
    }
    u16::try_from(name.len())
        .ok()
        .filter(|bytes| (1..=NAME_BYTES_MAX).contains(&u32::from(*bytes)))
        .ok_or(WriteError::Length {
            what: "a name",
            bytes: name.len(),
            largest: NAME_BYTES_MAX,
        })
}

/// Contribution of a value to the file's `xattr_bytes`.
const fn value_bytes(bytes: u32) -> u32 {
    (161 + bytes).next_multiple_of(8)
}

impl Writer {
    /// Sets an extended attribute; the name includes its prefix.
    pub fn set_xattr(
        &mut self,
        inode: InodeNumber,
        name: &[u8],
        value: &[u8],
        now: Time,
    ) -> Result<(), WriteError> {
        let name_bytes = check_name(name)?;
        let bytes = u32::try_from(value.len())
            .ok()
            .filter(|bytes| *bytes <= INODE_DATA_BYTES_MAX);
        let Some(bytes) = bytes else {
            return Err(WriteError::Length {
                what: "an extended attribute",
                bytes: value.len(),
                largest: INODE_DATA_BYTES_MAX,
            });
        };
        let mut host = self.ubifs.inode(inode)?;
        touch(&mut host, now, false);
        let existing = self.ubifs.xattr_inode(inode, name)?;
        if let Some(number) = existing {
            let mut holder = self.ubifs.inode(number)?;
            host.xattr_bytes =
                host.xattr_bytes.saturating_sub(value_bytes(holder.data_bytes)) + value_bytes(bytes);
            (holder.data, holder.data_bytes, holder.size_bytes) = (value.to_vec(), bytes, bytes.into());
            touch(&mut holder, now, true);
            return self.operation(&[NewNode::Inode(holder), NewNode::Inode(host)]);
        }
        if host.xattr_names_bytes + u32::from(name_bytes) + host.xattr_count + 1 > NAMES_BYTES_MAX {
            return Err(self.no_space());
        }
        let file = NewFile {
            mode: 0o100_777,
            user: host.user,
            group: host.group,
            data: value.to_vec(),
        };
        let mut holder = self.new_inode(&file, INODE_XATTR, now)?;
        holder.size_bytes = bytes.into();
        host.xattr_count += 1;
        host.xattr_names_bytes += u32::from(name_bytes);
        host.xattr_bytes += value_bytes(bytes) + u32::try_from(entry_bytes(name)).unwrap_or(0);
        let entry = self.xattr_entry(inode, name, name_bytes, holder.key.inode_number());
        self.operation(&[entry, NewNode::Inode(holder), NewNode::Inode(host)])
    }

    /// Removes an extended attribute.
    pub fn remove_xattr(&mut self, inode: InodeNumber, name: &[u8], now: Time) -> Result<(), WriteError> {
        let name_bytes = check_name(name)?;
        let Some(number) = self.ubifs.xattr_inode(inode, name)? else {
            return Err(UbifsError::NoName {
                volume: self.name(),
                inode,
                name: name.to_vec(),
            }
            .into());
        };
        let mut host = self.ubifs.inode(inode)?;
        let mut holder = self.ubifs.inode(number)?;
        touch(&mut host, now, false);
        host.xattr_count = host.xattr_count.saturating_sub(1);
        host.xattr_names_bytes = host.xattr_names_bytes.saturating_sub(name_bytes.into());
        let space = value_bytes(holder.data_bytes) + u32::try_from(entry_bytes(name)).unwrap_or(0);
        host.xattr_bytes = host.xattr_bytes.saturating_sub(space);
        holder.links = 0;
        holder.data = Vec::new();
        let entry = self.xattr_entry(inode, name, name_bytes, InodeNumber(0));
        self.removal_operation(
            &[entry, NewNode::Inode(holder), NewNode::Inode(host)],
            OrphanChange::None,
        )
    }

    fn xattr_entry(&self, inode: InodeNumber, name: &[u8], name_bytes: u16, value: InodeNumber) -> NewNode {
        let entry = DirectoryEntry {
            key: Key::xattr(inode, self.ubifs.name_hash(name)),
            inode: value.0.into(),
            kind: EntryKind::File.number(),
            name_bytes,
            cookie: 0,
            name: name.to_vec(),
        };
        NewNode::Entry(NodeKind::XattrEntry, entry)
    }
}
