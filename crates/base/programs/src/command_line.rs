//! The command lines of both programs: one form of errors, and words with suggestions.

use std::cell::Cell;
use std::ffi::OsString;
use std::ops::Deref;
use std::str::FromStr;

use clap::builder::{PossibleValuesParser, Resettable, StyledStr, TypedValueParser};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgMatches, Args, Command, CommandFactory, FromArgMatches, Parser, Subcommand};
use results::words::nearest;

use crate::output;

/// Parses a command line by `definition`, the command of `Arguments`, or ends the program: with the help that it asks for, or
/// with the message of its mistake.
pub fn parse_or_refuse<Arguments: Parser>(mut definition: Command, words: &[OsString]) -> Arguments {
    definition
        .try_get_matches_from_mut(words)
        .and_then(|mut matches| {
            Arguments::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut definition))
        })
        .unwrap_or_else(|error| refuse(with_near_value(without_dashes_tip(error))))
}

/// The arguments or subcommands of a command, which are defined only when the command is run or shown.
///
/// Code that walks the definition of a program takes it from [`whole_definition`].
#[derive(Debug)]
pub struct Deferred<T>(T);

impl<T> Deferred<T> {
    /// The arguments.
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<T> Deref for Deferred<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: FromArgMatches> FromArgMatches for Deferred<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        T::from_arg_matches(matches).map(Self)
    }

    fn from_arg_matches_mut(matches: &mut ArgMatches) -> Result<Self, clap::Error> {
        T::from_arg_matches_mut(matches).map(Self)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0.update_from_arg_matches(matches)
    }
}

impl<T: Args> Args for Deferred<T> {
    fn augment_args(command: Command) -> Command {
        deferred(command, T::augment_args, |command| {
            with_own_about(command, T::augment_args)
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        T::augment_args_for_update(command)
    }
}

impl<T: Subcommand> Subcommand for Deferred<T> {
    fn augment_subcommands(command: Command) -> Command {
        deferred(command, T::augment_subcommands, |command| {
            with_own_about(command, T::augment_subcommands)
        })
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        T::augment_subcommands_for_update(command)
    }

    fn has_subcommand(name: &str) -> bool {
        T::has_subcommand(name)
    }
}

thread_local! {
    static NOTHING_DEFERRED: Cell<bool> = const { Cell::new(false) };
}

/// The definition of a program with all that is [`Deferred`]: clap itself adds it too late for the subcommands of `help`.
pub fn whole_definition<Program: CommandFactory>() -> Command {
    NOTHING_DEFERRED.set(true);
    let definition = Program::command();
    NOTHING_DEFERRED.set(false);
    definition
}

fn deferred(command: Command, define: fn(Command) -> Command, later: fn(Command) -> Command) -> Command {
    if NOTHING_DEFERRED.get() {
        define(command)
    } else {
        command.defer(later)
    }
}

/// Applies `define`, and keeps the description that the command has in the list of commands: the type's documentation would
/// replace it.
fn with_own_about(command: Command, define: fn(Command) -> Command) -> Command {
    let about = command.get_about().cloned();
    let long_about = command.get_long_about().cloned();
    define(command)
        .about(Resettable::from(about))
        .long_about(Resettable::from(long_about))
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
