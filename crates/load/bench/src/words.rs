//! Choices that are words: the same on the command line, in job files and in messages.

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
                    .ok_or_else(|| results::words::unknown(text, &[$($word,)+]))
            }
        }
    };
}

pub(crate) use words;
