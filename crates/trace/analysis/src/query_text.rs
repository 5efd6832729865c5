//! Bounds of a query's text, checked before it is parsed.
//!
//! Parser, planner and optimiser recurse once per level of an expression or of nested joins, and a stack that overflows
//! ends the process. The parser bounds nested parentheses itself, but a chain such as `1 + 1 + ...` is as deep as it is
//! long. A text of n words and operators can't be deeper than n levels, whatever they mean, so their number is bounded;
//! values, commas and parentheses are free, as long lists of values are flat. [`STACK_BYTES`] suffices for the deepest
//! text within the bounds (`tests/limits.rs`).

use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};

use crate::AnalysisError;

/// Largest number of words and operators: more than twice those of the longest named analysis. The optimiser's time for a
/// chain grows by the third power of its length, and is seconds at this one.
pub const WORDS_MAX: usize = 1000;

/// Largest text.
pub const TEXT_BYTES_MAX: usize = 1 << 20;

/// Stack of a query's thread. Only the part that is used takes memory.
pub const STACK_BYTES: usize = 256 << 20;

/// Checks a text before it is parsed.
pub fn check(sql: &str) -> Result<(), AnalysisError> {
    let too_long = |unit, most, found| Err(AnalysisError::QueryTooLong { unit, most, found });
    if sql.len() > TEXT_BYTES_MAX {
        return too_long("bytes", TEXT_BYTES_MAX, sql.len());
    }
    // The parser reports texts that have no tokens.
    let Ok(tokens) = Tokenizer::new(&GenericDialect {}, sql).tokenize() else {
        return Ok(());
    };
    let words = tokens.iter().filter(|token| can_nest(token)).count();
    if words > WORDS_MAX {
        return too_long("words and operators", WORDS_MAX, words);
    }
    Ok(())
}

/// Whether a token can be a level of its own.
const fn can_nest(token: &Token) -> bool {
    !matches!(
        token,
        Token::Whitespace(_)
            | Token::Comma
            | Token::Number(..)
            | Token::SingleQuotedString(_)
            | Token::LParen
            | Token::RParen
            | Token::Period
            | Token::SemiColon
            | Token::EOF
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_are_bounded_and_lists_of_values_are_not() {
        let chain = |terms: usize| format!("SELECT {}", vec!["1"; terms].join(" + "));
        check(&chain(WORDS_MAX)).unwrap();
        let error = check(&chain(20_000)).unwrap_err().to_string();
        assert_eq!(
            error,
            "the query is too long: expected at most 1000 words and operators, found 20000; split it, or write long lists \
             of values as IN (...)"
        );
        let list = vec!["'a path'"; 50_000].join(", ");
        check(&format!("SELECT COUNT(*) FROM runs WHERE path IN ({list})")).unwrap();
        let error = check(&" ".repeat(TEXT_BYTES_MAX + 1)).unwrap_err().to_string();
        assert!(error.contains("expected at most 1048576 bytes"), "{error}");
    }

    #[test]
    fn every_named_analysis_is_below_half_of_the_bound() {
        for analysis in crate::named::all() {
            let tokens = Tokenizer::new(&GenericDialect {}, analysis.sql)
                .tokenize()
                .unwrap();
            let words = tokens.iter().filter(|token| can_nest(token)).count();
            assert!(words * 2 < WORDS_MAX, "{}: {words}", analysis.name);
        }
    }
}
