//! Credentials of a caller that the protocol does not carry: supplementary groups, capabilities and user namespace.
//!
//! They are read from `/proc`, only if the host has refused a call or the change depends on groups, and count only while
//! that process still has the ids of the request: one that has started a setuid program since then has others.

use std::fs;
use std::ops::Range;

use rustix::thread::CapabilitySet;
use vfs::Caller;

/// Credentials that the protocol does not carry, in ids of the daemon's user namespace.
#[derive(Debug)]
pub(crate) struct Process {
    pub groups: Vec<u32>,
    pub capabilities: CapabilitySet,
    /// The users and groups over whose files its capabilities have power: those of its user namespace.
    users: Vec<Range<u64>>,
    user_groups: Vec<Range<u64>>,
}

impl Process {
    /// `None` if the process is gone, or has other ids than the request.
    pub(crate) fn of(caller: &Caller) -> Option<Self> {
        // The name of a process, which is part of its status, can be any bytes.
        let read = |file: &str| {
            let bytes = fs::read(format!("/proc/{}/{file}", caller.pid)).ok()?;
            Some(String::from_utf8_lossy(&bytes).into_owned())
        };
        let status = read("status")?;
        let capabilities = u64::from_str_radix(field(&status, "CapEff:")?, 16).ok()?;
        let maps = (read("uid_map")?, read("gid_map")?);
        // Check the ids last: they vouch for everything read before.
        let again = read("status")?;
        for status in [&status, &again] {
            let id = |name| {
                field(status, name)?
                    .split_whitespace()
                    .nth(3)?
                    .parse::<u32>()
                    .ok()
            };
            if (id("Uid:")?, id("Gid:")?) != (caller.uid, caller.gid) {
                return None;
            }
        }
        let groups = field(&status, "Groups:")?.split_whitespace();
        Some(Self {
            groups: groups.map(str::parse).collect::<Result<_, _>>().ok()?,
            capabilities: CapabilitySet::from_bits_retain(capabilities),
            users: maps.0.lines().filter_map(mapped).collect(),
            user_groups: maps.1.lines().filter_map(mapped).collect(),
        })
    }

    /// True outside of containers.
    pub(crate) fn has_power_over_all(&self) -> bool {
        let all = 0..u64::from(u32::MAX);
        self.users.first() == Some(&all) && self.user_groups.first() == Some(&all)
    }

    /// Whether its capabilities have power over files of this owner and group.
    pub(crate) fn has_power_over(&self, (uid, gid): (u32, u32)) -> bool {
        let has = |ranges: &[Range<u64>], id: u32| ranges.iter().any(|range| range.contains(&id.into()));
        has(&self.users, uid) && has(&self.user_groups, gid)
    }
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.map(str::trim)
}

/// The ids, in the daemon's numbering, of a line of `uid_map`.
fn mapped(line: &str) -> Option<Range<u64>> {
    let mut numbers = line.split_whitespace().map(str::parse::<u64>);
    let (_inside, first, count) = (
        numbers.next()?.ok()?,
        numbers.next()?.ok()?,
        numbers.next()?.ok()?,
    );
    Some(first..first.checked_add(count)?)
}
