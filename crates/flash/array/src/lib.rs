//! Combines several flash devices into one, working in parallel: the two designs of seeds/001 section 3.1.
//!
//! - [`Proxy`]: a `Nand` of Nands (figure 2). Any UBI runs on it unchanged, unaware of the members.
//! - the virtual UBI (figures 3 to 5): a `Volume` of Volumes, each member an ordinary UBI device with one volume.
//!
//! Both stripe pages round robin: page `i` is page `i / p` of member `i mod p` ([`Stripe`]). Both pass the pieces of a
//! request to an [`Executor`], which runs them in sequence in the caller's thread or on one worker per member, each
//! with its own queue. Time does not depend on the choice: members' clocks start a request together, and it ends with
//! the last one (`media`, section Time), so virtual time shows the parallelism of the devices in either mode.
//!
//! The virtual UBI can have rotating parity ([`Redundancy::Parity`]): any one member may be lost.
//!
//! This crate is neither a file system nor an FTL.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod error;
mod executor;
mod history;
mod identity;
mod log;
mod mark;
mod members;
mod membership;
mod open;
mod proxy;
mod rebuild;
mod resolve;
mod rotation;
mod stripe;
mod virtual_volume;

pub use error::{ArrayError, ProxyError, ShapesDiffer};
pub use executor::{Execution, Executor};
pub use history::ArrayState;
pub use identity::{
    IdentityError, MAX_LABEL_BYTES, MAX_MEMBERS, MIN_MEMBERS_WITH_PARITY, MemberIdentity, Redundancy,
};
pub use membership::Absent;
pub use open::{Array, adopt, attach, attach_rest, format};
pub use proxy::Proxy;
pub use rebuild::{NewMember, RebuildStep, Rebuilt, with_new_member};
pub use resolve::{LostShare, Resolution};
pub use stripe::{MemberRange, Stripe};
pub use virtual_volume::{Mended, VirtualVolume};
