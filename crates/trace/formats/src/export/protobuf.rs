//! The wire format of protocol buffers, as far as needed here: varints and length-delimited fields.

/// A message being encoded.
#[derive(Clone, Debug, Default)]
pub struct Message {
    bytes: Vec<u8>,
}

/// Wire type of a varint.
const VARINT: u64 = 0;
/// Wire type of bytes preceded by their length.
const LENGTH_DELIMITED: u64 = 2;

impl Message {
    pub fn number(mut self, field: u32, value: u64) -> Self {
        self.varint(u64::from(field) << 3 | VARINT);
        self.varint(value);
        self
    }

    pub fn text(self, field: u32, value: &str) -> Self {
        self.bytes(field, value.as_bytes())
    }

    pub fn message(self, field: u32, value: &Self) -> Self {
        self.bytes(field, &value.bytes)
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    fn bytes(mut self, field: u32, value: &[u8]) -> Self {
        self.varint(u64::from(field) << 3 | LENGTH_DELIMITED);
        self.varint(u64::try_from(value.len()).expect("memory is smaller than 2^64"));
        self.bytes.extend_from_slice(value);
        self
    }

    fn varint(&mut self, mut value: u64) {
        loop {
            let low = u8::try_from(value & 0x7F).expect("seven bits are left of it");
            value >>= 7;
            if value == 0 {
                self.bytes.push(low);
                return;
            }
            self.bytes.push(low | 0x80);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_those_of_the_specification() {
        // The examples of the encoding guide: `a: 150` and `b: "testing"`.
        assert_eq!(Message::default().number(1, 150).into_bytes(), [0x08, 0x96, 0x01]);
        let text = Message::default().text(2, "testing").into_bytes();
        assert_eq!(text, [0x12, 0x07, 0x74, 0x65, 0x73, 0x74, 0x69, 0x6e, 0x67]);
        let inner = Message::default().number(1, 150);
        assert_eq!(
            Message::default().message(3, &inner).into_bytes(),
            [0x1a, 0x03, 0x08, 0x96, 0x01]
        );
        assert_eq!(Message::default().number(1, u64::MAX).into_bytes().len(), 11);
    }
}
