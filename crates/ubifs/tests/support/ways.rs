//! The ways in which a write is cut, in turn.

use nand::CutPoint;

/// How much of a page or a block is done when power goes in it, and whether what is torn can be corrected.
pub const WAYS: [(CutPoint, bool); 5] = [
    (CutPoint::Partway(5), false),
    (CutPoint::Partway(70), true),
    (CutPoint::After, false),
    (CutPoint::Partway(300), false),
    (CutPoint::Before, false),
];
