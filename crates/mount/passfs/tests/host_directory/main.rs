//! A host directory through the file system contract, compared with the directory itself.
//!
//! Tests that need root print a line and pass without it.

#[cfg(test)]
mod access_times;
#[cfg(test)]
mod append_only;
#[cfg(test)]
mod appending;
#[cfg(test)]
mod concurrency;
#[cfg(test)]
mod content;
#[cfg(test)]
mod credentials;
#[cfg(test)]
mod durability;
#[cfg(test)]
mod failing;
#[cfg(test)]
mod listing;
#[cfg(test)]
mod names;
#[cfg(test)]
mod ownership;
#[cfg(test)]
mod privileges;
#[cfg(test)]
mod removed;
#[cfg(test)]
mod rights;
#[cfg(test)]
mod snapshots;
#[cfg(test)]
mod source;
#[cfg(test)]
mod streams;
#[cfg(test)]
mod validity;
