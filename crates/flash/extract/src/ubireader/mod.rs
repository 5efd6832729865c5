//! Texts of the tools of ubi_reader 0.8, as its users' scripts read them.

mod display;
mod list;
mod settings;

pub use self::display::{shown_file_system, shown_partition};
pub use self::list::list_line;
pub use self::settings::{mkfs_options, section, settings, ubinize_options};
