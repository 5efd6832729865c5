//! Members of arrays in dumps. The files of an array are spread over all of its members, so that one alone has none.

use array::{IdentityError, MemberIdentity};
use image::Volume;

/// The line about a volume that is a member of an array; `None` for another one.
pub fn told(volume: &Volume) -> Option<String> {
    let name = String::from_utf8(volume.name()).ok()?;
    match name.parse::<MemberIdentity>() {
        Ok(member) => {
            let MemberIdentity {
                index,
                members,
                label,
                ..
            } = member;
            let all: Vec<String> = (0..members).map(|member| format!("DUMP{member}")).collect();
            Some(format!(
                "it is member {index} of the {members} of array {label}, and no file can be read from one member: \
                 `tidegate ubifs extract {} -o DIRECTORY` reads the dumps of all of them, in their order, and with --salvage the \
                 rest if some are lost; this is its raw content",
                all.join(",")
            ))
        }
        Err(IdentityError::NotAMember { .. }) => None,
        Err(error) => Some(format!(
            "it is a member of an array, and no file can be read from one member: {error}; this is its raw content"
        )),
    }
}
