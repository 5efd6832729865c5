//! A walk over the footer of a table, before its decoder.
//!
//! The crate parquet reserves memory for as many row groups and columns as a footer claims, and descends once for each
//! level of its schema. Neither a failed allocation nor an overflow of the stack is a panic, so a footer is walked
//! before: it is a structure of Thrift's compact protocol (`FileMetaData` of parquet.thrift). The decoder takes a known field
//! by its number, cut to 16 bits, whatever type it is said to have; so those must have the right one.

/// Levels of a schema; tables of traces have one.
const SCHEMA_LEVELS_MAX: usize = 64;
/// Levels of structures and lists within each other; Parquet has nine.
const LEVELS_MAX: u32 = 32;
/// Elements of a schema; tables of traces have some forty.
const SCHEMA_ELEMENTS_MAX: usize = 4096;
/// Elements of any other list but that of row groups.
const ELEMENTS_MAX: usize = 32_767;
/// Columns of all row groups together: those of this crate's largest table with 32,767 row groups, the most that are written.
const COLUMNS_MAX: usize = 32_767 * 40;
/// Most row groups: their number has 16 bits.
const ROW_GROUPS_MAX: usize = 32_768;
/// Fewest bytes of a row group with a column.
const ROW_GROUP_BYTES_LEAST: usize = 16;

/// Types of Thrift's compact protocol.
mod kind {
    pub const TRUE: u8 = 1;
    pub const FALSE: u8 = 2;
    pub const BYTE: u8 = 3;
    pub const I16: u8 = 4;
    pub const I32: u8 = 5;
    pub const I64: u8 = 6;
    pub const DOUBLE: u8 = 7;
    pub const BINARY: u8 = 8;
    pub const LIST: u8 = 9;
    pub const SET: u8 = 10;
    pub const MAP: u8 = 11;
    pub const STRUCT: u8 = 12;
}

/// The content that a known field has.
#[derive(Clone, Copy)]
enum Shape {
    /// A value of this type, without more to know about it.
    Plain(u8),
    Structure(Fields),
    List(&'static Shape),
    /// The list of a row group's columns.
    Columns,
}

/// The known fields of a structure, by number. Others are passed over, by the decoder too.
type Fields = &'static [(i16, Shape)];

/// The structures of parquet.thrift, as of version 2.12 of the format.
mod structure {
    use super::{Fields, Shape, kind};
    use Shape::{Columns, List, Plain, Structure};

    const TRUTH: Shape = Plain(kind::TRUE);
    const BYTE: Shape = Plain(kind::BYTE);
    const I16: Shape = Plain(kind::I16);
    const I32: Shape = Plain(kind::I32);
    const I64: Shape = Plain(kind::I64);
    const BINARY: Shape = Plain(kind::BINARY);
    const EMPTY: Shape = Structure(&[]);

    const DECIMAL: Shape = Structure(&[(1, I32), (2, I32)]);
    const UNIT: Shape = Structure(&[(1, EMPTY), (2, EMPTY), (3, EMPTY)]);
    const TIME: Shape = Structure(&[(1, TRUTH), (2, UNIT)]);
    const INTEGER: Shape = Structure(&[(1, BYTE), (2, TRUTH)]);
    const LOGICAL_TYPE: Shape = Structure(&[
        (1, EMPTY),
        (2, EMPTY),
        (3, EMPTY),
        (4, EMPTY),
        (5, DECIMAL),
        (6, EMPTY),
        (7, TIME),
        (8, TIME),
        (10, INTEGER),
        (11, EMPTY),
        (12, EMPTY),
        (13, EMPTY),
        (14, EMPTY),
        (15, EMPTY),
        (16, Structure(&[(1, BYTE)])),
        (17, Structure(&[(1, BINARY)])),
        (18, Structure(&[(1, BINARY), (2, I32)])),
    ]);
    pub const SCHEMA_ELEMENT: Fields = &[
        (1, I32),
        (2, I32),
        (3, I32),
        (4, BINARY),
        (5, I32),
        (6, I32),
        (7, I32),
        (8, I32),
        (9, I32),
        (10, LOGICAL_TYPE),
    ];
    const KEY_VALUE: Shape = Structure(&[(1, BINARY), (2, BINARY)]);
    const SORTING: Shape = Structure(&[(1, I32), (2, TRUTH), (3, TRUTH)]);
    const STATISTICS: Shape = Structure(&[
        (1, BINARY),
        (2, BINARY),
        (3, I64),
        (4, I64),
        (5, BINARY),
        (6, BINARY),
        (7, TRUTH),
        (8, TRUTH),
    ]);
    const PAGES: Shape = Structure(&[(1, I32), (2, I32), (3, I32)]);
    const SIZES: Shape = Structure(&[(1, I64), (2, List(&I64)), (3, List(&I64))]);
    const DOUBLE: Shape = Plain(kind::DOUBLE);
    const BOX: Shape = Structure(&[
        (1, DOUBLE),
        (2, DOUBLE),
        (3, DOUBLE),
        (4, DOUBLE),
        (5, DOUBLE),
        (6, DOUBLE),
        (7, DOUBLE),
        (8, DOUBLE),
    ]);
    const GEOGRAPHY: Shape = Structure(&[(1, BOX), (2, List(&I32))]);
    const COLUMN: Shape = Structure(&[
        (1, I32),
        (2, List(&I32)),
        (3, List(&BINARY)),
        (4, I32),
        (5, I64),
        (6, I64),
        (7, I64),
        (8, List(&KEY_VALUE)),
        (9, I64),
        (10, I64),
        (11, I64),
        (12, STATISTICS),
        (13, List(&PAGES)),
        (14, I64),
        (15, I32),
        (16, SIZES),
        (17, GEOGRAPHY),
    ]);
    pub const COLUMN_CHUNK: Shape = Structure(&[
        (1, BINARY),
        (2, I64),
        (3, COLUMN),
        (4, I64),
        (5, I32),
        (6, I64),
        (7, I32),
        (8, EMPTY),
        (9, BINARY),
    ]);
    pub const ROW_GROUP: Shape = Structure(&[
        (1, Columns),
        (2, I64),
        (3, I64),
        (4, List(&SORTING)),
        (5, I64),
        (6, I64),
        (7, I16),
    ]);
    pub const FILE: Fields = &[
        (1, I32),
        (2, List(&Structure(SCHEMA_ELEMENT))),
        (3, I64),
        (4, List(&ROW_GROUP)),
        (5, List(&KEY_VALUE)),
        (6, BINARY),
        (7, List(&Structure(&[(1, EMPTY)]))),
        (8, EMPTY),
        (9, BINARY),
    ];
}

/// The bytes of a footer that are not walked yet, and the columns seen. Each step returns `None` where the footer ends within it.
pub struct Walk<'a>(&'a [u8], usize);

impl<'a> Walk<'a> {
    /// A walk over a whole footer.
    pub const fn over(footer: &'a [u8]) -> Self {
        Self(footer, 0)
    }

    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    fn pass(&mut self, bytes: usize) -> Option<()> {
        self.0 = self.0.get(bytes..)?;
        Some(())
    }

    /// The number and type of the next field behind that of number `last`; an inner `None` at the end of the structure.
    fn field(&mut self, last: &mut i16) -> Option<Option<u8>> {
        let head = self.byte()?;
        if head == 0 {
            return Some(None);
        }
        *last = match i16::from(head >> 4) {
            0 => {
                let number = i32::try_from(self.number()?).ok()?;
                i16::try_from((number >> 1) ^ -(number & 1)).ok()?
            }
            step => last.checked_add(step)?,
        };
        Some(Some(head & 0xf))
    }

    /// A field of a structure with these known ones.
    fn known(&mut self, number: i16, of: u8, fields: Fields, level: u32) -> Option<()> {
        let shape = fields.iter().find(|(known, _)| *known == number);
        match shape {
            Some((_, shape)) => self.shaped(of, *shape, level),
            None => self.value(of, level),
        }
    }

    /// A value that must have this shape.
    fn shaped(&mut self, of: u8, shape: Shape, level: u32) -> Option<()> {
        let inner = level + 1;
        match (shape, of) {
            (Shape::Plain(kind::TRUE), kind::TRUE | kind::FALSE) => Some(()),
            (Shape::Plain(plain), of) if plain == of => self.value(of, level),
            (Shape::Structure(fields), kind::STRUCT) => {
                let mut last = 0;
                while let Some(of) = self.field(&mut last)? {
                    self.known(last, of, fields, inner)?;
                }
                Some(())
            }
            (Shape::List(element), kind::LIST) => {
                let (of, count) = self.list(1)?;
                (count <= ELEMENTS_MAX).then_some(())?;
                (0..count).try_for_each(|_| self.shaped(of, *element, inner))
            }
            (Shape::Columns, kind::LIST) => {
                let (of, count) = self.list(1)?;
                self.1 = self.1.checked_add(count)?;
                (self.1 <= COLUMNS_MAX).then_some(())?;
                (0..count).try_for_each(|_| self.shaped(of, structure::COLUMN_CHUNK, inner))
            }
            _ => None,
        }
    }

    /// The type and number of elements of a list, each of which has at least `least` bytes.
    fn list(&mut self, least: usize) -> Option<(u8, usize)> {
        let head = self.byte()?;
        let count = match head >> 4 {
            15 => usize::try_from(self.number()?).ok()?,
            count => usize::from(count),
        };
        let is_possible = count.checked_mul(least)? <= self.0.len();
        is_possible.then_some((head & 0xf, count))
    }

    /// A value of this type, at this level.
    fn value(&mut self, of: u8, level: u32) -> Option<()> {
        let inner = level + 1;
        match of {
            _ if level > LEVELS_MAX => None,
            kind::TRUE | kind::FALSE => Some(()),
            kind::BYTE => self.pass(1),
            kind::I16 | kind::I32 | kind::I64 => self.number().map(drop),
            kind::DOUBLE => self.pass(8),
            kind::BINARY => {
                let bytes = usize::try_from(self.number()?).ok()?;
                self.pass(bytes)
            }
            kind::LIST | kind::SET => {
                let (of, count) = self.list(1)?;
                (0..count).try_for_each(|_| self.element(of, inner))
            }
            kind::MAP => {
                let count = self.number()?;
                if count == 0 {
                    return Some(());
                }
                let types = self.byte()?;
                (0..count).try_for_each(|_| {
                    self.element(types >> 4, inner)?;
                    self.element(types & 0xf, inner)
                })
            }
            kind::STRUCT => self.shaped(of, Shape::Structure(&[]), level),
            _ => None,
        }
    }

    /// A value in a list. None of truth: it has a byte there, which the decoder does not pass over, so that it would take the bytes
    /// behind it for fields.
    fn element(&mut self, of: u8, level: u32) -> Option<()> {
        match of {
            kind::TRUE | kind::FALSE => None,
            other => self.value(other, level),
        }
    }

    /// The whole footer.
    pub fn file(mut self) -> Option<()> {
        const SCHEMA: i16 = 2;
        const ROW_GROUPS: i16 = 4;
        let mut last = 0;
        while let Some(of) = self.field(&mut last)? {
            match (last, of) {
                (SCHEMA, kind::LIST) => self.schema()?,
                (ROW_GROUPS, kind::LIST) => {
                    let (of, count) = self.list(ROW_GROUP_BYTES_LEAST)?;
                    (count <= ROW_GROUPS_MAX).then_some(())?;
                    (0..count).try_for_each(|_| self.shaped(of, structure::ROW_GROUP, 1))?;
                }
                _ => self.known(last, of, structure::FILE, 1)?,
            }
        }
        Some(())
    }

    /// The list of a schema's elements, a tree in which each comes before its children.
    fn schema(&mut self) -> Option<()> {
        let (of, count) = self.list(1)?;
        if of != kind::STRUCT || count > SCHEMA_ELEMENTS_MAX {
            return None;
        }
        // Children that are still to come, at each level.
        let mut open: Vec<usize> = Vec::new();
        for left in (0..count).rev() {
            let children = usize::try_from(self.schema_element()?).ok()?;
            if children > left {
                return None;
            }
            if let Some(siblings) = open.last_mut() {
                *siblings = siblings.checked_sub(1)?;
            } else if left + 1 < count {
                // A second root.
                return None;
            }
            open.push(children);
            if open.len() > SCHEMA_LEVELS_MAX {
                return None;
            }
            while open.last() == Some(&0) {
                open.pop();
            }
        }
        Some(())
    }

    /// Number of children of an element.
    fn schema_element(&mut self) -> Option<u64> {
        const CHILDREN: i16 = 5;
        let (mut last, mut children) = (0, 0);
        while let Some(of) = self.field(&mut last)? {
            if (last, of) == (CHILDREN, kind::I32) {
                // Zigzag; no negative number.
                let number = self.number()?;
                children = (number & 1 == 0).then_some(number >> 1)?;
            } else {
                self.known(last, of, structure::SCHEMA_ELEMENT, 2)?;
            }
        }
        Some(children)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A schema of this many elements within each other.
    fn nested(groups: usize) -> Vec<u8> {
        let head = [0x29, 0xfc];
        let count = [groups & 0x7f | 0x80, groups >> 7].map(|byte| u8::try_from(byte).expect("few"));
        // Field 4, a name of one letter; field 5, one child.
        let group = [0x48, 1, b'a', 0x15, 2, 0];
        let last = [0x48, 1, b'a', 0];
        [&head[..], &count, &group.repeat(groups - 1), &last, &[0]].concat()
    }

    #[test]
    fn a_schema_may_have_levels_but_not_thousands() {
        assert!(Walk::over(&nested(SCHEMA_LEVELS_MAX)).file().is_some());
        assert!(Walk::over(&nested(SCHEMA_LEVELS_MAX + 1)).file().is_none());
        assert!(Walk::over(&nested(10_000)).file().is_none());
    }

    #[test]
    fn a_list_has_no_more_elements_than_bytes_behind_it() {
        // Field 4, a list of structures, 2^31 - 1 of them.
        assert!(
            Walk::over(&[0x49, 0xfc, 0xff, 0xff, 0xff, 0xff, 7, 0])
                .file()
                .is_none()
        );
        assert!(Walk::over(&[0x49, 0x0c, 0]).file().is_some());
    }

    /// A number of up to 21 bits, in three bytes.
    fn three_bytes(number: usize) -> [u8; 3] {
        let bytes = [number & 0x7f | 0x80, number >> 7 & 0x7f | 0x80, number >> 14];
        bytes.map(|byte| u8::try_from(byte).expect("seven bits and a mark"))
    }

    #[test]
    fn a_schema_has_one_root_and_no_list_thousands_of_empty_elements() {
        let list = |field: u8, count: usize| [&[field << 4 | 9, 0xfc][..], &three_bytes(count)].concat();
        // Field 2: structures without anything.
        assert!(Walk::over(&[0x29, 0x1c, 0, 0]).file().is_some());
        assert!(Walk::over(&[0x29, 0x2c, 0, 0, 0]).file().is_none());
        // A root (field 5) with all others as its children.
        let schema = |count: usize| {
            let children = three_bytes((count - 1) << 1);
            [&list(2, count), &[0x55][..], &children, &vec![0; count + 1]].concat()
        };
        assert!(Walk::over(&schema(SCHEMA_ELEMENTS_MAX)).file().is_some());
        assert!(Walk::over(&schema(SCHEMA_ELEMENTS_MAX + 1)).file().is_none());
        // Field 5: pairs without key and value.
        let pairs = |count: usize| [list(5, count), vec![0; count + 1]].concat();
        assert!(Walk::over(&pairs(ELEMENTS_MAX)).file().is_some());
        assert!(Walk::over(&pairs(ELEMENTS_MAX + 1)).file().is_none());
    }

    #[test]
    fn no_list_of_truth_hides_fields() {
        // Field 10, a list of 15, in which the decoder would find a schema and 2^31 - 1 row groups.
        let hidden = [
            0x09, 0x04, 0x1c, 0x48, 1, b'a', 0, 0x29, 0xfc, 0xff, 0xff, 0xff, 0xff, 7, 0,
        ];
        for of in [kind::TRUE, kind::FALSE] {
            assert!(
                Walk::over(&[&[0xa9, 0xf0 | of, 15][..], &hidden, &[0]].concat())
                    .file()
                    .is_none()
            );
            // A map of one key.
            assert!(
                Walk::over(&[0xab, 1, of << 4 | kind::BYTE, 1, 1, 0])
                    .file()
                    .is_none()
            );
        }
        assert!(
            Walk::over(&[0xab, 1, kind::BYTE << 4 | kind::BYTE, 1, 1, 0])
                .file()
                .is_some()
        );
    }

    #[test]
    fn all_row_groups_together_have_a_bounded_number_of_columns() {
        // Field 4: row groups, whose field 1 has columns without anything.
        let groups = |groups: usize, columns: usize| {
            let group = [&[0x19, 0xfc][..], &three_bytes(columns), &vec![0; columns + 1]].concat();
            [
                &[0x49, 0xfc][..],
                &three_bytes(groups),
                &group.repeat(groups),
                &[0],
            ]
            .concat()
        };
        assert!(Walk::over(&groups(320, 4096)).file().is_none());
        assert!(Walk::over(&groups(319, 4096)).file().is_some());
        assert!(Walk::over(&groups(ROW_GROUPS_MAX, 16)).file().is_some());
        assert!(Walk::over(&groups(ROW_GROUPS_MAX + 1, 16)).file().is_none());
    }

    #[test]
    fn a_known_field_has_the_type_and_the_number_that_it_should() {
        for wrong in [
            // Field 2, the schema, as a set; as field 65,538, which is 2 in 16 bits; field 1 as text.
            &[0x2a, 0x0c, 0][..],
            &[0x09, 0x84, 0x80, 0x08, 0x0c, 0],
            &[0x18, 0, 0],
        ] {
            assert!(Walk::over(wrong).file().is_none(), "{wrong:x?}");
        }
        // Field 100, which nobody knows, as a set of a byte.
        assert!(Walk::over(&[0x0a, 0xc8, 1, 0x13, 7, 0]).file().is_some());
    }

    #[test]
    fn an_element_has_no_more_children_than_elements_behind_it() {
        let mut schema = nested(3);
        // The children of the second one.
        let at = schema.len() - 7;
        assert_eq!(schema[at..at + 2], [2, 0]);
        schema[at] = 4;
        assert!(Walk::over(&schema).file().is_none());
    }

    #[test]
    fn structures_within_each_other_end() {
        // Field 101 and those within it: unknown ones.
        let start = [0x0c, 0xca, 1];
        let deep = [&start[..], &[0x1c; 100], &[0; 102]].concat();
        assert!(Walk::over(&deep).file().is_none());
        let few = [&start[..], &[0x1c; 20], &[0; 22]].concat();
        assert!(Walk::over(&few).file().is_some());
    }
}
