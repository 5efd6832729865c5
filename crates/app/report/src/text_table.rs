//! Tables for the terminal: aligned columns of plain text, which [`fitted`] makes as narrow as a terminal.

use results::shown;

/// Alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// For names.
    Left,
    /// For numbers.
    Right,
}

/// The part of a cell that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Elision {
    Middle,
    End,
}

/// A column of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Heading, with the unit.
    pub title: String,
    /// Alignment of the cells and of the heading.
    pub align: Align,
    /// The part of a cell that may be left out.
    elision: Option<Elision>,
    /// Order in which columns are left out, the highest first; 0 for a column that stays.
    dropped_at: u8,
}

impl Column {
    /// A column of names.
    #[must_use]
    pub fn left(title: &str) -> Self {
        Self {
            title: title.to_owned(),
            align: Align::Left,
            elision: None,
            dropped_at: 0,
        }
    }

    /// A column of numbers.
    #[must_use]
    pub fn right(title: &str) -> Self {
        Self {
            title: title.to_owned(),
            align: Align::Right,
            elision: None,
            dropped_at: 0,
        }
    }

    /// The same, with cells that are shortened in the middle where the table is too wide: paths and long names.
    #[must_use]
    pub fn elided(self) -> Self {
        Self {
            elision: Some(Elision::Middle),
            ..self
        }
    }

    /// The same, with cells that are cut at their end where the table is too wide: descriptions.
    #[must_use]
    pub fn clipped(self) -> Self {
        Self {
            elision: Some(Elision::End),
            ..self
        }
    }

    /// The same, left out where the table is too wide: the column with the highest `order` first.
    #[must_use]
    pub fn optional(self, order: u8) -> Self {
        Self {
            dropped_at: order,
            ..self
        }
    }
}

/// A table that fits into a width.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fitted {
    /// As [`table`] returns it.
    pub text: String,
    /// Titles of the columns that are left out although they are not empty.
    pub left_out: Vec<String>,
}

/// Elided cells keep at least this many characters.
const ELIDED_MIN: usize = 16;

/// Characters between two columns.
const GAP: usize = 2;

/// The table in lines of at most `width` characters, as far as its columns allow: empty optional columns are left out
/// first, then cells are elided, then optional columns are left out. Columns that may do neither stay as they are.
#[must_use]
pub fn fitted(columns: &[Column], rows: &[Vec<String>], width: usize) -> Fitted {
    let escaped = |row: &Vec<String>| row.iter().map(|cell| shown::line(cell).into_owned()).collect();
    let rows: Vec<Vec<String>> = rows.iter().map(escaped).collect();
    let rows = rows.as_slice();
    let widths = widths(columns, rows);
    let mut kept: Vec<usize> = (0..columns.len()).collect();
    let mut left_out = Vec::new();
    if total(kept.iter().map(|index| widths[*index])) > width {
        let is_empty = |index: usize| {
            rows.iter()
                .all(|row| row.get(index).is_none_or(|cell| cell.is_empty()))
        };
        kept.retain(|index| columns[*index].dropped_at == 0 || !is_empty(*index));
    }
    let narrowest = |index: usize| match columns[index].elision {
        Some(_) => widths[index].min(ELIDED_MIN.max(columns[index].title.chars().count())),
        None => widths[index],
    };
    while total(kept.iter().map(|index| narrowest(*index))) > width {
        let last = kept.iter().max_by_key(|index| columns[**index].dropped_at);
        let Some(index) = last.copied().filter(|index| columns[*index].dropped_at > 0) else {
            break;
        };
        kept.retain(|other| *other != index);
        left_out.push(columns[index].title.clone());
    }
    let mut granted: Vec<usize> = kept.iter().map(|index| widths[*index]).collect();
    // The widest elided column gives way first.
    while total(granted.iter().copied()) > width {
        let widest = (0..kept.len())
            .filter(|at| granted[*at] > narrowest(kept[*at]))
            .max_by_key(|at| granted[*at]);
        match widest {
            Some(at) => granted[at] -= 1,
            None => break,
        }
    }
    let columns: Vec<Column> = kept.iter().map(|index| columns[*index].clone()).collect();
    let cell = |row: &Vec<String>, at: usize| {
        let text = row.get(kept[at]).map_or("", String::as_str);
        match columns[at].elision {
            Some(Elision::Middle) => elided(text, granted[at]),
            Some(Elision::End) => clipped(text, granted[at]),
            None => text.to_owned(),
        }
    };
    let rows: Vec<Vec<String>> = rows
        .iter()
        .map(|row| (0..kept.len()).map(|at| cell(row, at)).collect())
        .collect();
    Fitted {
        text: table(&columns, &rows),
        left_out,
    }
}

/// A text of at most `width` characters, shortened in the middle; the end, which tells paths apart, gets more.
#[must_use]
pub fn elided(text: &str, width: usize) -> String {
    let letters: Vec<char> = text.chars().collect();
    if letters.len() <= width || width == 0 {
        return text.to_owned();
    }
    let front = (width - 1) / 3;
    let back = width - 1 - front;
    let ends = [&letters[..front], &['\u{2026}'], &letters[letters.len() - back..]];
    ends.concat().into_iter().collect()
}

/// A text of at most `width` characters, cut at its end.
#[must_use]
pub fn clipped(text: &str, width: usize) -> String {
    match text.chars().count() <= width || width == 0 {
        true => text.to_owned(),
        false => text.chars().take(width - 1).chain(['\u{2026}']).collect(),
    }
}

fn total(widths: impl Iterator<Item = usize>) -> usize {
    widths.map(|width| width + GAP).sum::<usize>().saturating_sub(GAP)
}

fn widths(columns: &[Column], rows: &[Vec<String>]) -> Vec<usize> {
    let width = |(index, column): (usize, &Column)| {
        let cells = rows
            .iter()
            .map(|row| row.get(index).map_or(0, |text| shown::line(text).chars().count()));
        cells
            .chain([shown::line(&column.title).chars().count()])
            .max()
            .unwrap_or(0)
    };
    columns.iter().enumerate().map(width).collect()
}

/// Heading, rule and rows, each line ended by a newline. Missing cells are empty; others are escaped by [`shown::line`].
#[must_use]
pub fn table(columns: &[Column], rows: &[Vec<String>]) -> String {
    let cell = |row: &[String], index: usize| {
        row.get(index)
            .map_or_else(String::new, |text| shown::line(text).into_owned())
    };
    let widths = widths(columns, rows);
    let line = |cells: &dyn Fn(usize) -> String| {
        let padded = columns
            .iter()
            .zip(&widths)
            .enumerate()
            .map(|(index, (column, &width))| {
                let text = cells(index);
                match column.align {
                    Align::Left => format!("{text:<width$}"),
                    Align::Right => format!("{text:>width$}"),
                }
            });
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    let mut text = line(&|index| shown::line(&columns[index].title).into_owned());
    text += &line(&|index| "-".repeat(widths[index]));
    for row in rows {
        text += &line(&|index| cell(row, index));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_left_and_numbers_right() {
        let columns = [Column::left("name"), Column::right("MB/s")];
        let rows = [
            vec!["native".to_owned(), "1,234".to_owned()],
            vec!["fuse µ".to_owned(), "5".to_owned()],
        ];
        let expected = "name     MB/s\n------  -----\nnative  1,234\nfuse µ      5\n";
        assert_eq!(table(&columns, &rows), expected);
    }

    #[test]
    fn short_rows_and_control_characters_do_not_break_the_table() {
        let columns = [Column::left("a"), Column::left("b")];
        let rows = [vec!["x\u{1b}[2J\n".to_owned()], vec![]];
        let expected = "a             b\n------------  -\nx\\u001b[2J\\n\n\n";
        assert_eq!(table(&columns, &rows), expected);
    }

    fn history() -> ([Column; 5], Vec<Vec<String>>) {
        let columns = [
            Column::right("id"),
            Column::left("path").elided(),
            Column::right("records").optional(2),
            Column::left("file system").optional(1),
            Column::left("tags").optional(3),
        ];
        let row = ["7", "/home/user/measurements/phone/data", "3", "ext4", ""];
        (columns, vec![row.map(str::to_owned).to_vec()])
    }

    #[test]
    fn a_table_that_fits_is_not_changed() {
        let (columns, rows) = history();
        let fitted = fitted(&columns, &rows, 80);
        assert_eq!(fitted.text, table(&columns, &rows));
        assert_eq!(fitted.left_out, Vec::<String>::new());
    }

    #[test]
    fn empty_columns_go_first_then_paths_are_elided_then_columns_are_left_out() {
        let (columns, rows) = history();
        let at = |width| fitted(&columns, &rows, width);
        let without_tags = at(62);
        assert!(without_tags.text.contains("/home/user/measurements/phone/data"));
        assert!(!without_tags.text.contains("tags"), "{}", without_tags.text);
        assert_eq!(without_tags.left_out, Vec::<String>::new());
        assert_eq!(
            at(50).text.lines().nth(2),
            Some(" 7  /home/u\u{2026}ments/phone/data        3  ext4")
        );
        assert_eq!(at(34).left_out, ["records"]);
        assert_eq!(at(20).left_out, ["records", "file system"]);
        for width in 20..100 {
            let text = at(width).text;
            assert!(text.lines().all(|line| line.chars().count() <= width), "{text}");
        }
        // Nothing more can give way.
        assert_eq!(at(1).text, at(20).text);
    }
}
