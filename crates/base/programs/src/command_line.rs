//! The command lines of both programs: one form of errors, and words with suggestions.

use std::ffi::OsString;
use std::str::FromStr;

use clap::Parser;
use clap::builder::{PossibleValuesParser, StyledStr, TypedValueParser};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use results::words::nearest;

use crate::output;

/// Parses a command line by `definition`, the command of `Arguments`, or ends the program: with the help that it asks for, or
/// with the message of its mistake.
pub fn parse_or_refuse<Arguments: Parser>(mut definition: clap::Command, words: &[OsString]) -> Arguments {
    definition
        .try_get_matches_from_mut(words)
        .and_then(|mut matches| {
            Arguments::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut definition))
        })
        .unwrap_or_else(|error| refuse(with_near_value(without_dashes_tip(error))))
}

/// A parser of the words `names`: an error suggests the nearest one.
pub fn one_of<Value>(names: impl IntoIterator<Item = &'static str>) -> impl TypedValueParser<Value = Value>
where
    Value: FromStr<Err = String> + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(names).try_map(|word| word.parse::<Value>())
}

/// Ends the program with the message of a wrong command line in the form of all other errors; help is printed as it is.
fn refuse(error: clap::Error) -> ! {
    if !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        error.exit();
    }
    let text = error.render().to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    output::print_error(text.trim_end());
    std::process::exit(2);
}

/// Adds the nearest possible value, which clap omits for short words and parts in another order.
fn with_near_value(mut error: clap::Error) -> clap::Error {
    let near = match (
        error.get(ContextKind::InvalidValue),
        error.get(ContextKind::ValidValue),
    ) {
        (Some(ContextValue::String(word)), Some(ContextValue::Strings(known))) => {
            let known: Vec<&str> = known.iter().map(String::as_str).collect();
            nearest(word, &known).map(str::to_owned)
        }
        _ => None,
    };
    if let (Some(near), None) = (near, error.get(ContextKind::SuggestedValue)) {
        error.insert(ContextKind::SuggestedValue, ContextValue::String(near));
    }
    error
}

/// Removes the tip to pass an unknown option after `--`: where a folder is expected, that is never meant.
fn without_dashes_tip(mut error: clap::Error) -> clap::Error {
    if let Some(ContextValue::StyledStrs(tips)) = error.remove(ContextKind::Suggested) {
        let is_useful = |tip: &StyledStr| !tip.to_string().contains("as a value, use");
        let tips: Vec<StyledStr> = tips.into_iter().filter(is_useful).collect();
        if !tips.is_empty() {
            error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
        }
    }
    error
}
