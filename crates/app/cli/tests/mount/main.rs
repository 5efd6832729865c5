//! Tests on real mounts, one module per subject. Without `/dev/fuse` they print a reason and pass.

#[cfg(test)]
mod appending;
#[cfg(test)]
mod coherence;
mod commands;
mod daemon_life;
mod descriptors;
#[cfg(test)]
mod failing_source;
mod harness;
mod local_file_system;
mod looks;
#[cfg(test)]
mod mapped_owner;
mod messages;
mod mount_helper;
mod mounted_twice;
#[cfg(test)]
mod opens;
#[cfg(test)]
mod own_source;
mod passthrough;
mod place;
mod privileges;
mod quota;
#[cfg(test)]
mod races;
#[cfg(test)]
mod requests;
#[cfg(test)]
mod rights;
#[cfg(test)]
mod stacked;
mod sync_reach;
#[cfg(test)]
mod synchronous;
#[cfg(test)]
mod synchronous_source;
mod ubifs;
mod ubifs_answers;
mod ubifs_writable;
mod users;
