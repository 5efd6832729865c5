//! Several flash devices as one, in parallel: the two designs of seeds/001 section 3.1.
//!
//! - [`Proxy`]: a `Nand` of Nands (figure 2). Any UBI runs on it unchanged and knows nothing of the members.
//! - the virtual UBI (figures 3 to 5): a `Volume` of Volumes, each member an ordinary UBI device with one volume.
//!
//! Both spread pages round robin: page `i` is page `i / p` of member `i mod p` ([`Stripe`]). Both hand the pieces of a
//! request to an [`Executor`], which runs them one after the other in the caller's thread or on one worker a member with
//! a queue of its own. Time does not depend on which: members' clocks start a request together and it ends with the
//! last (`media`, section Time), so that virtual time shows the parallelism of the devices in either.
//!
//! The virtual UBI can have rotating parity ([`Redundancy::Parity`]): any one member may be lost.
//!
//! It is not: a file system, or an FTL.

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
pub use open::{Array, adopt, attach, format};
pub use proxy::Proxy;
pub use rebuild::{NewMember, RebuildStep, Rebuilt, with_new_member};
pub use resolve::{LostShare, Resolution};
pub use stripe::{MemberRange, Stripe};
pub use virtual_volume::{Mended, VirtualVolume};
