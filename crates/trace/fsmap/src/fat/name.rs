//! Names of FAT: eight and three characters in the DOS code page, and long ones in UTF-16 in preceding entries.

use crate::bytes::{byte, le16};

/// The upper half of code page 437.
const UPPER: &str = "ÇüéâäàåçêëèïîìÄÅÉæÆôöòûùÿÖÜ¢£¥₧ƒáíóúñÑªº¿⌐¬½¼¡«»░▒▓│┤╡╢╖╕╣║╗╝╜╛┐└┴┬├─┼╞╟╚╔╩╦╠═╬╧╨╤╥╙╘╒╓╫╪┘┌█▄▌▐▀αßΓπΣσµτΦΘΩδ∞φε∩≡±≥≤⌠⌡÷≈°∙·√ⁿ²■\u{a0}";

const LAST: u8 = 0x40;
/// Parts of a long name: 20 of 13 characters.
const PARTS_MAX: u8 = 20;
const CHARACTERS: [usize; 13] = [1, 3, 5, 7, 9, 14, 16, 18, 20, 22, 24, 28, 30];

/// The short name in an entry.
pub(crate) fn short(raw: &[u8]) -> String {
    let case = byte(raw, 12);
    let part = |range: std::ops::Range<usize>, lower: bool| -> String {
        let bytes = raw.get(range).unwrap_or_default();
        let text: String = bytes.iter().map(|value| character(*value)).collect();
        let text = text.trim_end_matches(' ');
        if lower {
            text.to_lowercase()
        } else {
            text.to_owned()
        }
    };
    let mut base = part(0..8, case & 0x08 != 0);
    if byte(raw, 0) == 0x05 {
        // 0xE5 marks deleted entries, so a name that starts with it is stored like this.
        base.replace_range(..1, &character(0xE5).to_string());
    }
    let extension = part(8..11, case & 0x10 != 0);
    if extension.is_empty() {
        base
    } else {
        format!("{base}.{extension}")
    }
}

fn character(value: u8) -> char {
    if value.is_ascii() {
        return char::from(value);
    }
    UPPER
        .chars()
        .nth(usize::from(value - 0x80))
        .unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// The checksum of a short name, contained in all parts of its long name.
pub(crate) fn checksum(short: &[u8]) -> u8 {
    short
        .iter()
        .take(11)
        .fold(0_u8, |sum, value| sum.rotate_right(1).wrapping_add(*value))
}

/// Parts of a long name in order of arrival: the last one first.
#[derive(Debug, Default)]
pub(crate) struct LongName {
    units: Vec<u16>,
    checksum: u8,
    /// Number of the next expected part, counting down; 0 if the name is complete.
    wanted: u8,
    started: bool,
}

impl LongName {
    /// Adds a part. `false` if it does not match the parts before.
    pub(crate) fn push(&mut self, raw: &[u8]) -> bool {
        let number = byte(raw, 0);
        if number & LAST != 0 {
            let parts = number & !LAST;
            let fresh = !self.started;
            *self = Self {
                wanted: parts,
                checksum: byte(raw, 13),
                started: true,
                units: Vec::new(),
            };
            if parts == 0 || parts > PARTS_MAX {
                *self = Self::default();
                return false;
            }
            self.take_in(raw);
            return fresh;
        }
        if !self.started || number != self.wanted || byte(raw, 13) != self.checksum {
            *self = Self::default();
            return false;
        }
        self.take_in(raw);
        true
    }

    fn take_in(&mut self, raw: &[u8]) {
        let mut units: Vec<u16> = CHARACTERS.iter().map(|at| le16(raw, *at)).collect();
        units.append(&mut self.units);
        self.units = units;
        self.wanted -= 1;
    }

    pub(crate) fn is_empty(&self) -> bool {
        !self.started
    }

    /// The name, if all its parts have arrived and belong to the short name.
    pub(crate) fn finish(&mut self, short: &[u8]) -> Option<String> {
        let name = std::mem::take(self);
        if !name.started || name.wanted != 0 || name.checksum != checksum(short) {
            return None;
        }
        let end = name
            .units
            .iter()
            .position(|unit| *unit == 0)
            .unwrap_or(name.units.len());
        let text = String::from_utf16_lossy(name.units.get(..end)?);
        (!text.is_empty()).then_some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(number: u8, checksum: u8, text: &str) -> [u8; 32] {
        let mut raw = [0xFF; 32];
        raw[0] = number;
        raw[11] = 0x0F;
        raw[13] = checksum;
        let units = text.encode_utf16().chain([0]);
        for (at, unit) in CHARACTERS.iter().zip(units) {
            raw[*at..at + 2].copy_from_slice(&unit.to_le_bytes());
        }
        raw
    }

    #[test]
    fn short_names_have_a_dot_only_with_an_extension() {
        assert_eq!(short(b"README  TXT\x20\0"), "README.TXT");
        assert_eq!(short(b"README     \x20\x08"), "readme");
        assert_eq!(short(b"\x05BC     TXT\x20\0"), "σBC.TXT");
        assert_eq!(short(b"\x81BER    \x20\x20\x20\x20\0"), "üBER");
    }

    #[test]
    fn a_long_name_needs_all_parts_in_order_and_the_checksum() {
        let alias = b"AVERYL~1TXT";
        let sum = checksum(alias);
        let mut name = LongName::default();
        assert!(name.push(&part(0x42, sum, "tail.txt")));
        assert!(name.push(&part(0x01, sum, "averylongname")));
        assert_eq!(name.finish(alias).as_deref(), Some("averylongnametail.txt"));

        assert!(name.push(&part(0x42, sum, "tail.txt")));
        assert_eq!(name.finish(alias), None, "a part is missing");
        assert!(name.push(&part(0x41, sum ^ 1, "x")));
        assert_eq!(name.finish(alias), None, "it belongs to another name");
        assert!(!name.push(&part(0x01, sum, "x")), "it has no last part");
    }
}
