//! The terminal's other screen, and the keys that end what is shown there. Plain ANSI: three sequences are all it takes.
//!
//! Dropped, the terminal is as it was before. A signal raises the stop flag, so it comes to that as well.

use std::io::{self, IsTerminal, Write, stdin, stdout};

use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize, tcsetattr,
};

/// Other screen, no cursor.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
/// The cursor again, and the screen from before.
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
/// To the first place.
const HOME: &str = "\x1b[H";
/// Empties the rest of the line, then the next line.
const NEXT_LINE: &str = "\x1b[K\r\n";
/// Empties the rest of the line and all below.
const EMPTY_REST: &str = "\x1b[K\x1b[J";

/// What fits.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Characters in a line.
    pub columns: usize,
    /// Lines.
    pub lines: usize,
}

/// The other screen.
pub struct Screen {
    /// How the keyboard was set; `None` where standard input is no terminal.
    before: Option<Termios>,
}

impl Screen {
    /// Turns to the other screen; keys come at once and are not shown.
    pub fn open() -> io::Result<Self> {
        let before = if stdin().is_terminal() {
            let before = tcgetattr(stdin())?;
            let mut quiet = before.clone();
            quiet.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
            // A read gives what is there, and does not wait.
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

    /// What fits now; the usual size where the terminal does not tell.
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

    /// Shows `text` in place of what was there.
    pub fn draw(&mut self, text: &str) -> io::Result<()> {
        let lines: Vec<&str> = text.lines().collect();
        put(&format!("{HOME}{}{EMPTY_REST}", lines.join(NEXT_LINE)))
    }

    /// Whether q was pressed since the last question.
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
