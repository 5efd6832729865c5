//! Renames: each is one group of nodes, so that a power cut leaves either the old or the new names.

use super::held::OrphanChange;
use super::journal::NewNode;
use super::names::{NewFile, entry_bytes, inherited_flags, kind_of, touch};
use super::room::Purpose;
use super::{WriteError, Writer};
use crate::file_system::UbifsError;
use crate::format::{EntryKind, Inode, InodeNumber};
use crate::mkfs::Time;

/// A directory and a name in it.
pub type NameIn<'a> = (InodeNumber, &'a [u8]);

impl Writer {
    /// Renames; a file with the new name is replaced atomically.
    pub fn rename(&mut self, from: NameIn<'_>, to: NameIn<'_>, now: Time) -> Result<(), WriteError> {
        self.move_name(from, to, None, now)
    }

    /// Like [`Writer::rename`], but leaves a whiteout under the old name: a character device 0:0 with the given
    /// owner.
    pub fn rename_with_whiteout(
        &mut self,
        from: NameIn<'_>,
        to: NameIn<'_>,
        (user, group): (u32, u32),
        now: Time,
    ) -> Result<(), WriteError> {
        let whiteout = NewFile {
            mode: EntryKind::CharacterDevice.mode(),
            user,
            group,
            data: vec![0; 4],
        };
        self.move_name(from, to, Some(&whiteout), now)
    }

    fn move_name(
        &mut self,
        (from, old): NameIn<'_>,
        (to, new): NameIn<'_>,
        whiteout: Option<&NewFile>,
        now: Time,
    ) -> Result<(), WriteError> {
        let found = self.ubifs.lookup(from, old)?;
        let mut file = self.ubifs.inode(found.inode)?;
        let kind = kind_of(&file)?;
        let replaced = match self.ubifs.lookup(to, new) {
            Ok(entry) if entry.inode == found.inode => return Ok(()),
            Ok(entry) => Some(self.ubifs.inode(entry.inode)?),
            Err(UbifsError::NoName { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        let is_directory = kind == EntryKind::Directory;
        if is_directory && from != to && self.is_below(to, found.inode)? {
            return Err(WriteError::Invalid("a directory can't be moved below itself"));
        }
        if let Some(replaced) = &replaced {
            self.check_replaceable(replaced, is_directory)?;
        }
        let mut source = self.directory(from)?;
        let mut target = match from == to {
            true => None,
            false => Some(self.host(to, new)?),
        };
        let entry = self.entry(to, new, found.inode, kind)?;
        touch(&mut file, now, false);
        touch(&mut source, now, true);
        let mut nodes = vec![entry];
        let mut purpose = Purpose::Removal;
        match whiteout {
            None => nodes.push(self.removal(&mut source, old)?),
            Some(whiteout) => {
                purpose = self.growth();
                let flags = inherited_flags(&source, whiteout.mode);
                let device = self.new_inode(whiteout, flags, now)?;
                let number = device.key.inode_number();
                nodes.push(self.entry(from, old, number, EntryKind::CharacterDevice)?);
                nodes.push(NewNode::Inode(device));
            }
        }
        if is_directory {
            source.links = source.links.saturating_sub(1);
        }
        let host = target.as_mut().unwrap_or(&mut source);
        touch(host, now, true);
        match replaced.as_ref().map(Inode::kind) {
            None => host.size_bytes += entry_bytes(new),
            Some(Some(EntryKind::Directory)) => host.links = host.links.saturating_sub(1),
            Some(_) => {}
        }
        if is_directory {
            host.links += 1;
        }
        let mut orphan = OrphanChange::None;
        if let Some(replaced) = replaced {
            let (replaced, change) = self.without_a_name(replaced, now)?;
            nodes.push(NewNode::Inode(replaced));
            orphan = change;
        }
        nodes.push(NewNode::Inode(file));
        nodes.push(NewNode::Inode(source));
        nodes.extend(target.map(NewNode::Inode));
        self.operation_for(&nodes, purpose, orphan)
    }

    /// Whether a rename may replace the file.
    fn check_replaceable(&self, replaced: &Inode, by_directory: bool) -> Result<(), WriteError> {
        let inode = replaced.key.inode_number();
        match (by_directory, replaced.kind() == Some(EntryKind::Directory)) {
            (true, false) => Err(WriteError::NotDirectory { inode }),
            (false, true) => Err(WriteError::IsDirectory { inode }),
            (true, true) => self.check_empty(inode),
            (false, false) => Ok(()),
        }
    }

    /// Exchanges two names.
    pub fn exchange(
        &mut self,
        (from, old): NameIn<'_>,
        (to, new): NameIn<'_>,
        now: Time,
    ) -> Result<(), WriteError> {
        let (one, other) = (self.ubifs.lookup(from, old)?, self.ubifs.lookup(to, new)?);
        if one.inode == other.inode {
            return Ok(());
        }
        let mut first = self.ubifs.inode(one.inode)?;
        let mut second = self.ubifs.inode(other.inode)?;
        let kinds = (kind_of(&first)?, kind_of(&second)?);
        let is_directory = |kind| kind == EntryKind::Directory;
        if from != to {
            let moves_below_itself = (is_directory(kinds.0) && self.is_below(to, one.inode)?)
                || (is_directory(kinds.1) && self.is_below(from, other.inode)?);
            if moves_below_itself {
                return Err(WriteError::Invalid("a directory can't be moved below itself"));
            }
        }
        let mut source = self.directory(from)?;
        touch(&mut first, now, false);
        touch(&mut second, now, false);
        touch(&mut source, now, true);
        let mut nodes = vec![
            self.entry(to, new, one.inode, kinds.0)?,
            self.entry(from, old, other.inode, kinds.1)?,
            NewNode::Inode(first),
            NewNode::Inode(second),
        ];
        if from != to {
            let mut target = self.directory(to)?;
            touch(&mut target, now, true);
            let links = |host: &Inode, lost, won| {
                (host.links + u32::from(is_directory(won))).saturating_sub(u32::from(is_directory(lost)))
            };
            source.links = links(&source, kinds.0, kinds.1);
            target.links = links(&target, kinds.1, kinds.0);
            nodes.push(NewNode::Inode(target));
        }
        nodes.push(NewNode::Inode(source));
        self.operation(&nodes)
    }

    /// Whether a directory is `above` or below it.
    fn is_below(&self, directory: InodeNumber, above: InodeNumber) -> Result<bool, WriteError> {
        // Directories have no parent link: searches the whole subtree.
        let mut pending = vec![above];
        while let Some(next) = pending.pop() {
            if next == directory {
                return Ok(true);
            }
            let entries = self.ubifs.read_directory(next)?;
            let below = entries
                .into_iter()
                .filter(|entry| entry.kind == Some(EntryKind::Directory));
            pending.extend(below.map(|entry| entry.inode));
        }
        Ok(false)
    }
}
