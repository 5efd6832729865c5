//! Tables for the terminal: aligned columns of plain text.

/// Alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// For names.
    Left,
    /// For numbers.
    Right,
}

/// A column of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Heading, with the unit.
    pub title: String,
    /// Alignment of the cells and of the heading.
    pub align: Align,
}

impl Column {
    /// A column of names.
    #[must_use]
    pub fn left(title: &str) -> Self {
        Self {
            title: title.to_owned(),
            align: Align::Left,
        }
    }

    /// A column of numbers.
    #[must_use]
    pub fn right(title: &str) -> Self {
        Self {
            title: title.to_owned(),
            align: Align::Right,
        }
    }
}

/// Heading, rule and rows, each line ended by a newline. Missing cells are empty; control characters, which could
/// move the cursor, are shown as `?`.
#[must_use]
pub fn table(columns: &[Column], rows: &[Vec<String>]) -> String {
    let cell = |row: &[String], index: usize| row.get(index).map_or_else(String::new, |text| printable(text));
    let widths: Vec<usize> = columns
        .iter()
        .enumerate()
        .map(|(index, column)| {
            let cells = rows.iter().map(|row| cell(row, index).chars().count());
            cells
                .chain([printable(&column.title).chars().count()])
                .max()
                .unwrap_or(0)
        })
        .collect();
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
    let mut text = line(&|index| printable(&columns[index].title));
    text += &line(&|index| "-".repeat(widths[index]));
    for row in rows {
        text += &line(&|index| cell(row, index));
    }
    text
}

fn printable(text: &str) -> String {
    text.chars()
        .map(|letter| if letter.is_control() { '?' } else { letter })
        .collect()
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
        assert_eq!(table(&columns, &rows), "a       b\n------  -\nx?[2J?\n\n");
    }
}
