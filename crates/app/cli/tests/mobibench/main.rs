//! The original Mobibench's options, files and result lines, called from outside; and its defects, each shown to be
//! absent. `docs/guide/mobibench.md` names these tests beside what the original does.

mod bed;
mod databases;
mod defects;
mod options;
mod original;
mod report;
mod scripts;
