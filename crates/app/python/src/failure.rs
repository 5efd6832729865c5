//! Errors as the Python package raises them: the class, the problem, its place, and the next step.

use std::fmt::Display;

/// The exception class of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The dump can't be opened.
    Open,
    /// It holds no UBI and no UBIFS.
    NotFlash,
    /// Something on the medium is damaged.
    Damage,
    /// A wrong argument.
    Argument,
    /// A defect of this program.
    Internal,
}

impl Class {
    /// Name of the class in `tidegate._errors`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Open => "OpenError",
            Self::NotFlash => "NotFlashError",
            Self::Damage => "DamageError",
            Self::Argument => "ArgumentError",
            Self::Internal => "InternalError",
        }
    }
}

/// An error on its way to Python.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Its class.
    pub class: Class,
    /// The failed operation, expected and found values.
    pub problem: String,
    /// File, volume, inode.
    pub place: String,
    /// Next step of the user; empty if there is none.
    pub next_step: &'static str,
}

/// The next step after damage.
pub const SALVAGE: &str = "salvage=True may get more: it reads all nodes that a scan of the volume finds";

/// The next step after damage in a file.
pub const ZEROS: &str =
    "on_loss=\"zeros\" reads on with zeros in place of lost blocks, and lists them in losses";

impl Failure {
    /// A dump that can't be opened.
    #[must_use]
    pub fn open(place: &str, problem: &dyn Display) -> Self {
        Self::new(
            Class::Open,
            place,
            problem,
            "check the path and the right to read it",
        )
    }

    /// A dump that could be read when it was opened.
    #[must_use]
    pub fn unreadable(dump: &image::Dump) -> Self {
        Self::open(
            &dump.name(),
            &"it could be read when it was opened, and can't be read any more",
        )
    }

    /// Damage on the medium.
    #[must_use]
    pub fn damage(place: &str, problem: &dyn Display, next_step: &'static str) -> Self {
        Self::new(Class::Damage, place, problem, next_step)
    }

    /// Any error.
    #[must_use]
    pub fn new(class: Class, place: &str, problem: &dyn Display, next_step: &'static str) -> Self {
        let problem = problem.to_string();
        // Messages of lower layers begin with their place.
        let own = problem
            .strip_prefix(place)
            .and_then(|rest| rest.strip_prefix(": "))
            .unwrap_or(&problem);
        Self {
            class,
            problem: own.to_owned(),
            place: place.to_owned(),
            next_step,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_not_in_the_problem_again() {
        let failure = Failure::damage("dump: volume a", &"dump: volume a: LEB 3: bad", SALVAGE);
        assert_eq!(
            (failure.place.as_str(), failure.problem.as_str()),
            ("dump: volume a", "LEB 3: bad")
        );
        let failure = Failure::open("dump", &"dumped elsewhere");
        assert_eq!(failure.problem, "dumped elsewhere");
    }
}
