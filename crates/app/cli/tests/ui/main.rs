//! `tidegate ui` as a program: over plain HTTP, and in a browser as a user sees it.

mod browser;
mod http;
mod opening;
mod page;
mod server;
