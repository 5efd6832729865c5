//! Choices that are words: the same on the command line, in job files and in messages.

/// The word in `known` closest to `word`, if it is close enough for a typing error.
#[must_use]
pub fn nearest<'known>(word: &str, known: &[&'known str]) -> Option<&'known str> {
    // One error in three letters is a typing error; more errors make a different word.
    let most_slips = word.chars().count().div_ceil(3).max(1);
    known
        .iter()
        .map(|candidate| (strsim::osa_distance(word, candidate), *candidate))
        .filter(|(slips, _)| *slips <= most_slips)
        .min_by_key(|(slips, _)| *slips)
        .map(|(_, candidate)| candidate)
}

/// The message about a word that is not in `known`, with the most likely intended one.
#[must_use]
pub fn unknown(word: &str, known: &[&str]) -> String {
    let names = known.join(", ");
    match nearest(word, known) {
        Some(nearest) => format!("`{word}` is none of {names}; did you mean `{nearest}`?"),
        None => format!("`{word}` is none of {names}"),
    }
}

/// Defines an enum whose values are words, which [`std::str::FromStr`] accepts in any case.
macro_rules! words {
    ($(#[$attribute:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $word:literal,)+ }) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        $(#[$attribute])*
        pub enum $name { $($(#[$doc])* $variant,)+ }

        impl $name {
            /// All values, in the order of help texts.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// The value's word.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.pad(self.name())
            }
        }

        impl std::str::FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                let found = Self::ALL.iter().find(|value| value.name().eq_ignore_ascii_case(text));
                found
                    .copied()
                    .ok_or_else(|| $crate::words::unknown(text, &[$($word,)+]))
            }
        }
    };
}

pub(crate) use words;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_fingers_finds_its_word() {
        let known = ["record", "size", "threads", "write-target"];
        assert_eq!(nearest("recrod", &known), Some("record"));
        assert_eq!(nearest("thread", &known), Some("threads"));
        assert_eq!(nearest("siez", &known), Some("size"));
        assert_eq!(nearest("write_target", &known), Some("write-target"));
    }

    #[test]
    fn another_word_is_not_guessed_at() {
        assert_eq!(nearest("colour", &["record", "size"]), None);
        assert_eq!(nearest("x", &["record"]), None);
    }
}
