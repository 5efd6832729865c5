//! Set-ups that several tests share.

pub mod bench;
pub mod disk;
pub mod hostile;
