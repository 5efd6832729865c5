//! Tables as wide as the terminal.

use std::io::{IsTerminal, stdout};

use clap::Args;
use report::{Column, fitted, table};
use rustix::termios::tcgetwinsize;

/// Width where a terminal does not tell its own.
const USUAL_COLUMNS: usize = 80;

/// Width of the terminal on standard output, in characters; `None` where standard output is no terminal.
pub fn columns() -> Option<usize> {
    if !stdout().is_terminal() {
        return None;
    }
    let told = tcgetwinsize(stdout()).map_or(0, |size| usize::from(size.ws_col));
    Some(if told == 0 { USUAL_COLUMNS } else { told })
}

/// Width of tables.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct WidthArguments {
    /// Show all columns, even where they do not fit the terminal
    #[arg(long)]
    pub wide: bool,
}

impl WidthArguments {
    /// A table that fits the terminal; the whole one where standard output is no terminal, or with `--wide`.
    pub fn table(self, titles: &[Column], rows: &[Vec<String>]) -> String {
        let Some(width) = columns().filter(|_| !self.wide) else {
            return table(titles, rows);
        };
        let fitted = fitted(titles, rows, width);
        match fitted.left_out.as_slice() {
            [] => fitted.text,
            titles => format!("{}(--wide also shows: {})\n", fitted.text, titles.join(", ")),
        }
    }
}
