//! Decodes requests: fixed structure, names and data, with every length checked.
//!
//! The kernel is trusted to be the sender, but not to be free of bugs: a request that is shorter than its structure, or
//! whose name is not terminated, is answered with `EINVAL`; the decoder never reads beyond it.

use vfs::{Caller, FsError, FsResult, Ino};
use zerocopy::FromBytes;

use crate::abi::{InHeader, URING_HEADER_BYTES, opcode};

/// Header and fixed structure of a request; names and data are passed separately.
pub struct Request {
    pub header: InHeader,
    fixed: [u8; URING_HEADER_BYTES],
    fixed_bytes: usize,
}

impl Request {
    /// Splits a message read from the device into the request and its names and data.
    pub fn from_message(message: &[u8]) -> Option<(Self, &[u8])> {
        let (header, body) = InHeader::read_from_prefix(message).ok()?;
        let fixed_bytes = opcode::fixed_bytes(header.opcode);
        let (fixed, rest) = body.split_at_checked(fixed_bytes)?;
        // Extensions (supplementary groups, security contexts) are at the end; none is negotiated.
        let extension_bytes = usize::from(header.total_extlen) * 8;
        let rest = &rest[..rest.len().checked_sub(extension_bytes)?];
        Some((Self::new(header, fixed), rest))
    }

    /// Builds a request whose fixed structure was received separately from its names and data.
    pub fn new(header: InHeader, fixed: &[u8]) -> Self {
        let mut request = Self {
            header,
            fixed: [0; URING_HEADER_BYTES],
            fixed_bytes: fixed.len(),
        };
        request.fixed[..fixed.len()].copy_from_slice(fixed);
        request
    }

    /// The fixed structure.
    pub fn fixed<T: FromBytes>(&self) -> FsResult<T> {
        T::read_from_prefix(&self.fixed[..self.fixed_bytes])
            .map(|(value, _)| value)
            .map_err(|_| FsError::Invalid)
    }

    /// The inode the request is about.
    pub fn ino(&self) -> Ino {
        Ino(self.header.nodeid)
    }

    /// The caller's credentials.
    pub fn caller(&self) -> Caller {
        Caller {
            uid: self.header.uid,
            gid: self.header.gid,
            pid: self.header.pid,
        }
    }
}

/// Splits one NUL-terminated name off `input`.
pub fn take_name<'a>(input: &mut &'a [u8]) -> FsResult<&'a [u8]> {
    let end = input.iter().position(|byte| *byte == 0).ok_or(FsError::Invalid)?;
    let name = &input[..end];
    *input = &input[end + 1..];
    Ok(name)
}

#[cfg(test)]
mod tests {
    use zerocopy::IntoBytes;

    use super::*;
    use crate::abi::WriteIn;

    fn message(opcode: u32, body: &[u8], extensions_of_8_bytes: u16) -> Vec<u8> {
        let header = InHeader {
            opcode,
            total_extlen: extensions_of_8_bytes,
            ..InHeader::default()
        };
        [header.as_bytes(), body].concat()
    }

    #[test]
    fn a_request_cut_anywhere_is_refused_or_read_within_its_bounds() {
        let body = [
            WriteIn {
                size: 3,
                ..WriteIn::default()
            }
            .as_bytes(),
            b"abc",
        ]
        .concat();
        let whole = message(opcode::WRITE, &body, 0);
        for length in 0..=whole.len() {
            let fixed_end = size_of::<InHeader>() + size_of::<WriteIn>();
            match Request::from_message(&whole[..length]) {
                Some((request, data)) => {
                    assert!(length >= fixed_end, "accepted {length} bytes");
                    assert_eq!(data.len(), length - fixed_end);
                    assert_eq!(request.fixed::<WriteIn>().unwrap().size, 3);
                }
                None => assert!(length < fixed_end, "refused {length} bytes"),
            }
        }
    }

    #[test]
    fn extensions_are_not_taken_for_data_and_never_reach_before_the_body() {
        let extended = message(opcode::LOOKUP, b"name\0\0\0\0........", 1);
        let (_, rest) = Request::from_message(&extended).unwrap();
        assert_eq!(rest, b"name\0\0\0\0");
        assert!(Request::from_message(&message(opcode::LOOKUP, b"name", 9)).is_none());
    }

    #[test]
    fn a_name_without_end_is_invalid() {
        let mut input: &[u8] = b"first\0second";
        assert_eq!(take_name(&mut input), Ok(&b"first"[..]));
        assert_eq!(take_name(&mut input), Err(FsError::Invalid));
    }
}
