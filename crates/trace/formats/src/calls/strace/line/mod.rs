//! Parser for one line of strace output: thread, time, call, arguments and result.
//!
//! The parser does not know the meaning of calls. Every function is total: text that can't be parsed gives `None`.

/// A parsed line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line<'text> {
    /// Thread number, if present (`-f`).
    pub thread: Option<u32>,
    /// Time as printed.
    pub time: Option<Time>,
    /// The event.
    pub event: Event<'text>,
}

/// A time as strace prints it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    /// Since 1970 (`-ttt`).
    Absolute(u64),
    /// Since midnight (`-t`, `-tt`).
    OfDay(u64),
    /// Since the line before (`-r`).
    Relative(u64),
}

/// Event of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<'text> {
    /// A complete call.
    Call {
        name: &'text str,
        arguments: &'text str,
        answer: Answer<'text>,
    },
    /// The start of a call that is completed on another line.
    Unfinished { name: &'text str, arguments: &'text str },
    /// The end of a call that was started on another line.
    Resumed {
        name: &'text str,
        /// The remaining arguments.
        arguments: &'text str,
        answer: Answer<'text>,
    },
    /// The thread ended.
    Exit,
    /// A signal, or a message of strace itself.
    Remark,
}

/// Result of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer<'text> {
    /// Return value without the annotation of `-y`; `?` when the call did not return.
    pub value: &'text str,
    /// Annotation of a descriptor by `-y`.
    pub annotation: Option<&'text str>,
    /// Name of the error.
    pub error: Option<&'text str>,
    /// Duration, with `-T`.
    pub duration_ns: Option<u64>,
}

const UNFINISHED: &str = "<unfinished ...>";

/// Parses a line.
pub fn line(text: &str) -> Option<Line<'_>> {
    let (thread, rest) = thread(text.trim_start());
    let (time, rest) = time(rest.trim_start());
    // Without -f, a leading number may be a time; with -f, it is the thread.
    Some(Line {
        thread,
        time,
        event: event(rest.trim_start())?,
    })
}

fn thread(text: &str) -> (Option<u32>, &str) {
    if let Some(rest) = text.strip_prefix("[pid")
        && let Some((number, rest)) = rest.split_once(']')
        && let Ok(thread) = number.trim().parse()
    {
        return (Some(thread), rest);
    }
    if let Some((number, rest)) = text.split_once(' ')
        && let Ok(thread) = number.parse()
    {
        return (Some(thread), rest);
    }
    (None, text)
}

fn time(text: &str) -> (Option<Time>, &str) {
    let Some((word, rest)) = text.split_once(' ') else {
        return (None, text);
    };
    let found = if word.contains(':') {
        of_day(word).map(Time::OfDay)
    } else {
        // Values below 10^8 seconds are relative: a trace from before 1973 is less likely than a pause of three
        // years.
        seconds(word).map(|ns| {
            if ns < 100_000_000_000_000_000 {
                Time::Relative(ns)
            } else {
                Time::Absolute(ns)
            }
        })
    };
    found.map_or((None, text), |time| (Some(time), rest))
}

fn of_day(word: &str) -> Option<u64> {
    let mut parts = word.splitn(3, ':');
    let hours: u64 = parts.next()?.parse().ok()?;
    let minutes: u64 = parts.next()?.parse().ok()?;
    let last = parts.next()?;
    let ns = if last.contains('.') {
        seconds(last)?
    } else {
        last.parse::<u64>().ok()?.checked_mul(1_000_000_000)?
    };
    hours
        .checked_mul(60)?
        .checked_add(minutes)?
        .checked_mul(60_000_000_000)?
        .checked_add(ns)
}

/// Seconds with a fraction, as nanoseconds.
pub fn seconds(word: &str) -> Option<u64> {
    let (whole, fraction) = word.split_once('.')?;
    if fraction.is_empty() || fraction.len() > 9 || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let whole: u64 = whole.parse().ok()?;
    let fraction: u64 = format!("{fraction:0<9}").parse().ok()?;
    whole.checked_mul(1_000_000_000)?.checked_add(fraction)
}

fn event(text: &str) -> Option<Event<'_>> {
    if text.starts_with("+++") {
        return Some(Event::Exit);
    }
    if text.starts_with("---") || text.starts_with("strace: ") {
        return Some(Event::Remark);
    }
    if let Some(rest) = text.strip_prefix("<... ") {
        let (name, rest) = rest.split_once(" resumed>")?;
        let end = closing(rest)?;
        return Some(Event::Resumed {
            name,
            arguments: &rest[..end],
            answer: answer(&rest[end + 1..])?,
        });
    }
    let (name, rest) = text.split_once('(')?;
    if name.is_empty()
        || !name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    {
        return None;
    }
    if let Some(arguments) = rest.trim_end().strip_suffix(UNFINISHED) {
        return Some(Event::Unfinished {
            name,
            arguments: arguments.trim_end(),
        });
    }
    let end = closing(rest)?;
    Some(Event::Call {
        name,
        arguments: &rest[..end],
        answer: answer(&rest[end + 1..])?,
    })
}

/// Position of the bracket that closes the one open at the start of `text`.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0_u32;
    for (place, byte) in outside_quotes(text) {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' if depth == 0 => return Some(place),
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    None
}

/// Bytes outside strings and outside the descriptor annotations of `-y`.
fn outside_quotes(text: &str) -> impl Iterator<Item = (usize, u8)> + '_ {
    let mut in_string = false;
    let mut in_annotation = false;
    let mut is_escaped = false;
    let mut before = 0_u8;
    text.bytes().enumerate().filter(move |&(_, byte)| {
        if is_escaped {
            is_escaped = false;
            return false;
        }
        if in_string || in_annotation {
            is_escaped = byte == b'\\';
            in_string &= byte != b'"';
            in_annotation &= byte != b'>';
            before = byte;
            return false;
        }
        // `3</path>` and `AT_FDCWD</path>`: the bracket immediately follows a word.
        in_annotation = byte == b'<' && (before.is_ascii_digit() || before == b'D');
        in_string = byte == b'"';
        before = byte;
        !in_string && !in_annotation
    })
}

fn answer(text: &str) -> Option<Answer<'_>> {
    let text = text.trim().strip_prefix('=')?.trim();
    let (text, duration_ns) = match text.rsplit_once('<') {
        Some((before, last)) if before.ends_with(' ') || before.is_empty() => {
            match last.strip_suffix('>').and_then(seconds) {
                Some(ns) => (before.trim_end(), Some(ns)),
                None => (text, None),
            }
        }
        _ => (text, None),
    };
    let (first, annotation) = match text.split_once('<') {
        Some((number, rest)) if !number.is_empty() && !number.contains(' ') => {
            (number, rest.rsplit_once('>').map(|(inside, _)| inside))
        }
        _ => (text.split(' ').next().unwrap_or(text), None),
    };
    let mut words = text.split(' ');
    let error = match words.next() {
        Some("-1") => words.next(),
        _ => None,
    };
    Some(Answer {
        value: first,
        annotation,
        error,
        duration_ns,
    })
}

/// Splits the arguments.
pub fn arguments(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut depth = 0_u32;
    let mut start = 0;
    for (place, byte) in outside_quotes(text) {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => {
                found.push(text[start..place].trim());
                start = place + 1;
            }
            _ => {}
        }
    }
    let last = text[start..].trim();
    if !last.is_empty() {
        found.push(last);
    }
    found
}

/// A descriptor argument: its number, and the annotation of `-y`. `AT_FDCWD` has no number.
pub fn descriptor(argument: &str) -> (Option<i32>, Option<&str>) {
    let (word, annotation) = match argument.split_once('<') {
        Some((word, rest)) => (word, rest.rsplit_once('>').map(|(inside, _)| inside)),
        None => (argument, None),
    };
    (word.trim().parse().ok(), annotation)
}

/// A string argument without quotes and escapes. `None` if it is not a string, or was truncated by strace
/// (`"abc"...`).
pub fn string(argument: &str) -> Option<Vec<u8>> {
    let inside = argument.strip_prefix('"')?.strip_suffix('"')?;
    Some(unescaped(inside))
}

/// Resolves the escapes of strace (`\n`, `\"`, `\303`, `\x1f`).
pub fn unescaped(text: &str) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    let mut bytes = text.bytes().peekable();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            plain.push(byte);
            continue;
        }
        match bytes.next() {
            Some(b'n') => plain.push(b'\n'),
            Some(b't') => plain.push(b'\t'),
            Some(b'r') => plain.push(b'\r'),
            Some(b'v') => plain.push(0x0B),
            Some(b'f') => plain.push(0x0C),
            Some(b'x') => {
                let mut value = 0_u32;
                for _ in 0..2 {
                    let Some(digit) = bytes.peek().and_then(|byte| char::from(*byte).to_digit(16)) else {
                        break;
                    };
                    value = value * 16 + digit;
                    bytes.next();
                }
                plain.push(u8::try_from(value).unwrap_or(b'?'));
            }
            Some(first @ b'0'..=b'7') => {
                let mut value = u32::from(first - b'0');
                for _ in 0..2 {
                    let Some(digit) = bytes.peek().and_then(|byte| char::from(*byte).to_digit(8)) else {
                        break;
                    };
                    value = value * 8 + digit;
                    bytes.next();
                }
                plain.push(u8::try_from(value).unwrap_or(b'?'));
            }
            Some(other) => plain.push(other),
            None => {}
        }
    }
    plain
}

/// A number as printed by strace: decimal, octal or hexadecimal.
pub fn number(argument: &str) -> Option<i64> {
    let word = argument.split([' ', '<']).next()?;
    if let Some(digits) = word.strip_prefix("0x") {
        return u64::from_str_radix(digits, 16)
            .ok()
            .and_then(|value| i64::try_from(value).ok());
    }
    if word.len() > 1 && word.starts_with('0') {
        return i64::from_str_radix(word, 8).ok();
    }
    word.parse().ok()
}

#[cfg(test)]
mod tests;
