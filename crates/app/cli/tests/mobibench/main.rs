//! The original Mobibench's options, files and result lines, tested through the program; and its defects, each shown to be
//! absent. `docs/guide/mobibench.md` names these tests beside the behaviour of the original.

mod bed;
mod databases;
mod defects;
mod options;
mod original;
mod report;
mod scripts;
