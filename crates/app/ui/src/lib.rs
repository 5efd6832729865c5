//! The web page of `tidegate ui`: three tabs (Measure, Settings, History), served on loopback alone.
//!
//! Runs are child processes of the program that is named in [`Options`], one at a time; this crate measures nothing
//! itself and knows no workload but by its arguments ([`plan`]). It prints nothing.
//!
//! Invariants:
//! - Every request must carry the token of this server in its path and a loopback name in `Host` ([`guard`]): a page
//!   of another site can neither guess the one nor, by DNS rebinding, have the other.
//! - The page asks nobody but this server for anything; the content security policy holds it to that.
//! - A run that is stopped, or whose server ends, is interrupted as by Ctrl-C and waited for: it removes its files, and
//!   what it measured is kept and marked partial.
//!
//! One thread serves everything (a page or two is all there is); SQLite runs on threads of its own.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod error;
mod guard;
mod pages;
mod places;
mod plan;
mod respond;
mod rows;
mod run_state;
mod runner;
mod server;
mod settings;

pub use error::UiError;
pub use server::{Options, serve};
