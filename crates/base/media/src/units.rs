//! The units. Each is a separate type, so that a PEB can't be passed for a LEB; conversions are in `geometry.rs`.

use std::fmt;

macro_rules! unit {
    ($(#[$doc:meta])* $name:ident($raw:ty), $label:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $raw);

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(formatter, concat!($label, " {}"), self.0)
            }
        }
    };
}

unit! {
    /// A physical eraseblock of one device, counted from 0.
    Peb(u32), "PEB"
}
unit! {
    /// A logical eraseblock of one volume, counted from 0.
    Leb(u32), "LEB"
}
unit! {
    /// A page of one eraseblock, counted from 0.
    Page(u32), "page"
}
unit! {
    /// A sector of 512 bytes of a block device, counted from 0.
    Sector(u64), "sector"
}

/// A number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteCount(pub u64);

impl fmt::Display for ByteCount {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} bytes", self.0)
    }
}

impl Sector {
    /// Bytes of one sector.
    pub const BYTES: u64 = 512;
}
