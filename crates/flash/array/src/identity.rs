//! Membership of an array, stored in the name of each member's volume, so that a member remains an ordinary UBI device
//! that Linux attaches.
//!
//! The name is `tga1-UUID-INDEX-MEMBERS-LABEL`: 32 hexadecimal digits, the member's place from 0, the number of
//! members, and the user's name for the array. At most 127 bytes, the limit of UBI. It begins with `tga2-` if the array
//! has parity, and with `tgr2-` on a member that is being rebuilt. Spec: `docs/formats/array.md`.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// Maximum number of members of an array.
pub const MAX_MEMBERS: u32 = 16;

/// Maximum length of a label in bytes: the rest of UBI's 127.
pub const MAX_LABEL_BYTES: usize = 80;

const PREFIX: &str = "tga1-";

const PREFIX_WITH_PARITY: &str = "tga2-";

const PREFIX_OF_REBUILD: &str = "tgr2-";

/// Minimum number of members of an array with parity.
pub const MIN_MEMBERS_WITH_PARITY: u32 = 3;

/// Redundancy of an array.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Redundancy {
    /// No redundancy: data lost on a member is lost.
    #[default]
    None,
    /// One parity page per row: any one member may be lost.
    Parity,
}

/// A member's place in its array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberIdentity {
    /// The array's UUID, the same on all members.
    pub array: u128,
    /// The member's place, from 0.
    pub index: u32,
    /// Number of members.
    pub members: u32,
    /// Redundancy of the array.
    pub redundancy: Redundancy,
    /// The user's name for the array.
    pub label: String,
}

/// Reason why a volume name is not an identity.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum IdentityError {
    /// The volume does not belong to an array.
    #[error("volume {name:?} is no member of an array: its name does not begin with {PREFIX:?}")]
    NotAMember {
        /// Name of the volume.
        name: String,
    },
    /// The volume is a new member whose rebuild is not finished.
    #[error("volume {name:?} is a member whose rebuild did not end; run `tidegate array rebuild` again")]
    Unfinished {
        /// Name of the volume.
        name: String,
    },
    /// The name has the prefix of a member, but a field is invalid.
    #[error("volume {name:?}: {field} is {found:?}, expected {expected}")]
    Field {
        /// Name of the volume.
        name: String,
        /// The invalid field.
        field: &'static str,
        /// The value found.
        found: String,
        /// The accepted values.
        expected: &'static str,
    },
}

impl MemberIdentity {
    /// The identity of another member of the same array.
    #[must_use]
    pub fn at(&self, index: u32) -> Self {
        Self {
            index,
            ..self.clone()
        }
    }

    /// The name of a member's volume during its rebuild.
    #[must_use]
    pub fn name_of_rebuild(&self) -> String {
        let name = self.to_string();
        name.replacen(PREFIX_WITH_PARITY, PREFIX_OF_REBUILD, 1)
    }

    /// Parses the volume name of a member that is being rebuilt.
    #[must_use]
    pub fn of_rebuild(name: &str) -> Option<Self> {
        let rest = name.strip_prefix(PREFIX_OF_REBUILD)?;
        format!("{PREFIX_WITH_PARITY}{rest}").parse().ok()
    }

    /// Applies the checks of [`MemberIdentity::from_str`].
    pub fn check(&self) -> Result<(), IdentityError> {
        self.to_string().parse::<Self>().map(|_| ())
    }
}

impl fmt::Display for MemberIdentity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            array,
            index,
            members,
            redundancy,
            label,
        } = self;
        let prefix = match redundancy {
            Redundancy::None => PREFIX,
            Redundancy::Parity => PREFIX_WITH_PARITY,
        };
        write!(formatter, "{prefix}{array:032x}-{index}-{members}-{label}")
    }
}

impl FromStr for MemberIdentity {
    type Err = IdentityError;

    fn from_str(name: &str) -> Result<Self, IdentityError> {
        if name.starts_with(PREFIX_OF_REBUILD) {
            return Err(IdentityError::Unfinished {
                name: name.to_owned(),
            });
        }
        let plain = name.strip_prefix(PREFIX).map(|rest| (rest, Redundancy::None));
        let with_parity = || {
            let rest = name.strip_prefix(PREFIX_WITH_PARITY)?;
            Some((rest, Redundancy::Parity))
        };
        let Some((rest, redundancy)) = plain.or_else(with_parity) else {
            return Err(IdentityError::NotAMember {
                name: name.to_owned(),
            });
        };
        let mut fields = rest.splitn(4, '-');
        let mut next = || fields.next().unwrap_or_default();
        let (array, index, members, label) = (next(), next(), next(), next());
        let wrong = |field, found: &str, expected| IdentityError::Field {
            name: name.to_owned(),
            field,
            found: found.to_owned(),
            expected,
        };
        let digits = array.len() == 32 && array.bytes().all(|byte| byte.is_ascii_hexdigit());
        let uuid = u128::from_str_radix(array, 16)
            .ok()
            .filter(|_| digits)
            .ok_or_else(|| wrong("the array's id", array, "32 hexadecimal digits"))?;
        let count = number(members)
            .filter(|count| (1..=MAX_MEMBERS).contains(count))
            .ok_or_else(|| wrong("the number of members", members, "a number from 1 to 16"))?;
        if redundancy == Redundancy::Parity && count < MIN_MEMBERS_WITH_PARITY {
            return Err(wrong(
                "the number of members",
                members,
                "3 to 16, as it has parity",
            ));
        }
        let place = number(index).filter(|place| *place < count).ok_or_else(|| {
            wrong(
                "the member's place",
                index,
                "a number below the number of members",
            )
        })?;
        let printable = label.bytes().all(|byte| byte.is_ascii_graphic());
        if label.is_empty() || label.len() > MAX_LABEL_BYTES || !printable {
            return Err(wrong(
                "the label",
                label,
                "1 to 80 printable ASCII characters without spaces",
            ));
        }
        Ok(Self {
            array: uuid,
            index: place,
            members: count,
            redundancy,
            label: label.to_owned(),
        })
    }
}

/// Parses a decimal number in canonical form only, so that names and identities correspond one to one.
fn number(text: &str) -> Option<u32> {
    text.parse::<u32>()
        .ok()
        .filter(|number| number.to_string() == text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> MemberIdentity {
        MemberIdentity {
            array: 0xA5,
            index: 2,
            members: 4,
            redundancy: Redundancy::None,
            label: "rootfs-a".to_owned(),
        }
    }

    #[test]
    fn a_name_is_read_back_as_what_it_was_made_of() {
        let name = identity().to_string();
        assert_eq!(name, "tga1-000000000000000000000000000000a5-2-4-rootfs-a");
        assert_eq!(name.parse(), Ok(identity()));
        let with_parity = MemberIdentity {
            redundancy: Redundancy::Parity,
            ..identity()
        };
        let name = with_parity.to_string();
        assert_eq!(name, "tga2-000000000000000000000000000000a5-2-4-rootfs-a");
        assert_eq!(name.parse(), Ok(with_parity.clone()));
        let name = with_parity.name_of_rebuild();
        assert_eq!(name, "tgr2-000000000000000000000000000000a5-2-4-rootfs-a");
        let error = name.parse::<MemberIdentity>().unwrap_err();
        assert!(matches!(error, IdentityError::Unfinished { .. }), "{error}");
    }

    #[test]
    fn the_longest_name_fits_ubi() {
        let longest = MemberIdentity {
            array: u128::MAX,
            index: 15,
            members: 16,
            redundancy: Redundancy::Parity,
            label: "x".repeat(MAX_LABEL_BYTES),
        };
        longest.check().unwrap();
        assert!(longest.to_string().len() <= 127);
    }

    #[test]
    fn names_with_a_second_meaning_or_none_are_refused() {
        let id = "0".repeat(32);
        for name in [
            format!("tga1-{id}-4-4-x"),
            format!("tga1-{id}-0-17-x"),
            format!("tga2-{id}-0-2-x"),
            format!("tga1-{id}-00-4-x"),
            format!("tga1-{id}-+1-4-x"),
            format!("tga1-{id}-0-4-"),
            format!("tga1-{id}-0-4-a b"),
            format!("tga1-{id}-0-4"),
            format!("tga1-{}-0-4-x", "g".repeat(32)),
            "tga1-".to_owned(),
        ] {
            let error = name.parse::<MemberIdentity>().unwrap_err();
            assert!(matches!(error, IdentityError::Field { .. }), "{error}");
        }
        let error = "rootfs".parse::<MemberIdentity>().unwrap_err();
        assert!(matches!(error, IdentityError::NotAMember { .. }), "{error}");
    }
}
