//! `tidegate ui` from outside: over plain HTTP, and through a browser as its reader would use it.

mod browser;
mod http;
mod opening;
mod page;
mod server;
