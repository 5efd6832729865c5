//! The terminal's alternate screen, and its keys. Plain ANSI: three sequences are enough.
//!
//! Dropping it restores the terminal; a signal only sets the stop flag, so the drop runs then too.

use std::io::{self, IsTerminal, Write, stdin, stdout};

use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize, tcsetattr,
};
use trace::top_table::Size;

/// Switches to the alternate screen and hides the cursor.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
/// Shows the cursor and switches back.
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
/// Moves the cursor to the top left.
const HOME: &str = "\x1b[H";
/// Clears the rest of the line and moves to the next one.
const NEXT_LINE: &str = "\x1b[K\r\n";
/// Clears the rest of the line and everything below.
const EMPTY_REST: &str = "\x1b[K\x1b[J";

/// The alternate screen.
pub struct Screen {
    /// Saved keyboard settings; `None` if standard input is not a terminal.
    before: Option<Termios>,
}

impl Screen {
    /// Switches to the alternate screen; turns off line buffering and echo of the keyboard.
    pub fn open() -> io::Result<Self> {
        let before = if stdin().is_terminal() {
            let before = tcgetattr(stdin())?;
            let mut quiet = before.clone();
            quiet.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
            // A read returns the available keys without waiting.
            quiet.special_codes[SpecialCodeIndex::VMIN] = 0;
            quiet.special_codes[SpecialCodeIndex::VTIME] = 0;
            tcsetattr(stdin(), OptionalActions::Now, &quiet)?;
            Some(before)
        } else {
            None
        };
        let screen = Self { before };
        put(ENTER)?;
        Ok(screen)
    }

    /// The current size, or 80x24 if the terminal does not report one.
    pub fn size(&self) -> Size {
        let told = tcgetwinsize(stdout()).ok();
        let size = told.filter(|size| size.ws_col > 0 && size.ws_row > 0);
        size.map_or(
            Size {
                columns: 80,
                lines: 24,
            },
            |size| Size {
                columns: usize::from(size.ws_col),
                lines: usize::from(size.ws_row),
            },
        )
    }

    /// Replaces the content of the screen with `text`.
    pub fn draw(&mut self, text: &str) -> io::Result<()> {
        let lines: Vec<&str> = text.lines().collect();
        put(&format!("{HOME}{}{EMPTY_REST}", lines.join(NEXT_LINE)))
    }

    /// Returns true if q was pressed since the last call.
    pub fn wants_to_end(&self) -> bool {
        if self.before.is_none() {
            return false;
        }
        let mut keys = [0; 64];
        let count = rustix::io::read(stdin(), &mut keys).unwrap_or(0);
        keys[..count].iter().any(|key| matches!(key, b'q' | b'Q'))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = put(LEAVE);
        if let Some(before) = &self.before {
            let _ = tcsetattr(stdin(), OptionalActions::Now, before);
        }
    }
}

fn put(text: &str) -> io::Result<()> {
    let mut out = stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}
