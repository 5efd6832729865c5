//! Statements of the bFUSE paper: section 3.1 with figure 4, and table 3. Numbers that are only in its pictures are not
//! here.

/// Parts of figure 4: column of the analysis `paper_figure_4`, title.
pub const PARTS: [(&str, &str); 4] = [
    ("over_256k_share", "(a) larger than 256 KiB"),
    ("sequential_share", "(b) sequential"),
    ("buffered_share", "(c) buffered"),
    ("data_share", "(d) data blocks"),
];

/// A share stated in the text: application, operation, column, percent, wording.
pub const STATED: [(&str, &str, &str, f64, &str); 11] = [
    ("camera", "write", "over_256k_share", 70.0, "70 %"),
    ("camcorder", "write", "over_256k_share", 70.0, "70 %"),
    ("camera", "write", "sequential_share", 97.0, "near 100 %"),
    ("camcorder", "write", "sequential_share", 97.0, "near 100 %"),
    ("gallery", "read", "sequential_share", 90.0, "over 90 %"),
    ("camera", "write", "buffered_share", 70.0, "over 70 %"),
    ("camcorder", "write", "buffered_share", 100.0, "100 %"),
    ("camera", "write", "data_share", 95.0, "95 %"),
    ("camcorder", "write", "data_share", 97.0, "97 %"),
    ("gallery", "read", "data_share", 100.0, "almost 100 %"),
    ("gallery", "write", "data_share", 30.0, "30 %"),
];

/// Table 3 without FUSE's splitting and without a buffer ("nobuf"), 512 MiB written in records of 512 KiB on a Galaxy
/// S3: file system, write calls, I/O requests, metadata and journal.
pub const TABLE_3_NOBUF: [(&str, f64, f64, f64); 3] = [
    ("ext4", 1000.0, 1032.0, 12.0),
    ("xfs", 1000.0, 1112.0, 12.0),
    ("btrfs", 1000.0, 1016.0, 9.0),
];

/// The paper's statement about a share.
pub fn stated(app: &str, operation: &str, column: &str) -> Option<(f64, &'static str)> {
    STATED
        .iter()
        .find(|(of, by, what, ..)| (*of, *by, *what) == (app, operation, column))
        .map(|(.., percent, words)| (*percent, *words))
}
