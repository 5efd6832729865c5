//! The web page of `tidegate ui`: three tabs (Measure, Settings, History), served only on loopback.
//!
//! Runs are child processes of the program named in [`Options`], one at a time; this crate measures nothing itself
//! and knows workloads only by their arguments ([`plan`]). It prints nothing: the program `tidegate-ui` does.
//!
//! Invariants:
//! - Every request must have the token of this server in its path and a loopback name in `Host` ([`guard`]): a page
//!   of another site can neither guess the token nor, by DNS rebinding, send the host name.
//! - The page loads everything from this server; the content security policy enforces that.
//! - If a run is stopped, or its server ends, the child is interrupted as by Ctrl-C and awaited: it removes its
//!   files, and its results so far are kept and marked partial.
//!
//! One thread serves everything, as there are only one or two clients; SQLite runs on threads of its own.

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
