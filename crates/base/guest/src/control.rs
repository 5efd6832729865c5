//! Protocol between the guest's agent (`lab/guest/agent.sh`) and the host over the control port.
//!
//! To the guest: lines. From it: the output of the job, byte for byte, interspersed with lines of the agent that start
//! with byte 1 after a line feed added by the agent, which is removed again.

/// Messages of the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    /// It waits for a command.
    Ready,
    /// The job's script has been started.
    Started,
    /// The script's exit code.
    Code(i32),
    /// The job left something that could not be removed: the guest should not be used again.
    Dirty(String),
}

const MARK: u8 = 1;

/// Splits the stream. `output` collects the job's bytes; [`Parser::push`] returns the agent's messages.
#[derive(Debug, Default)]
pub(crate) struct Parser {
    /// Bytes of the job so far.
    pub(crate) output: Vec<u8>,
    /// An unfinished line of the agent.
    word: Option<Vec<u8>>,
}

impl Parser {
    /// Parses the next bytes of the stream.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Vec<Word> {
        let mut words = Vec::new();
        for &byte in bytes {
            match &mut self.word {
                Some(line) if byte == b'\n' => {
                    words.extend(parse(line));
                    self.word = None;
                }
                Some(line) => line.push(byte),
                None if byte == MARK => {
                    if self.output.last() == Some(&b'\n') {
                        self.output.pop();
                    }
                    self.word = Some(Vec::new());
                }
                None => self.output.push(byte),
            }
        }
        words
    }
}

fn parse(line: &[u8]) -> Option<Word> {
    let line = String::from_utf8_lossy(line);
    let line = line.trim_end_matches('\r');
    match line.split_once(' ').unwrap_or((line, "")) {
        ("ready", _) => Some(Word::Ready),
        ("started", _) => Some(Word::Started),
        ("code", code) => code.parse().ok().map(Word::Code),
        ("dirty", what) => Some(Word::Dirty(what.to_owned())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_and_words_are_told_apart_wherever_the_stream_is_cut() {
        let stream = b"\n\x01ready\n\n\x01started\none\ntwo\n\n\x01dirty nandsim\n\n\x01code 3\n";
        for cut in 0..stream.len() {
            let mut parser = Parser::default();
            let mut words = parser.push(&stream[..cut]);
            words.extend(parser.push(&stream[cut..]));
            assert_eq!(parser.output, b"one\ntwo\n", "cut at {cut}");
            let expected = [
                Word::Ready,
                Word::Started,
                Word::Dirty("nandsim".to_owned()),
                Word::Code(3),
            ];
            assert_eq!(words, expected, "cut at {cut}");
        }
    }

    #[test]
    fn output_without_a_line_feed_at_its_end_stays_without() {
        let mut parser = Parser::default();
        assert_eq!(parser.push(b"half a line\n\x01code 0\n"), [Word::Code(0)]);
        assert_eq!(parser.output, b"half a line");
    }
}
