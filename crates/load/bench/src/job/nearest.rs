//! The known word that a mistyped one was probably meant to be.

/// The word of `known` nearest to `word`, when it is near enough to be a slip of the fingers.
#[must_use]
pub fn nearest<'known>(word: &str, known: &[&'known str]) -> Option<&'known str> {
    // One slip in three letters is a typing error; more is another word.
    let most_slips = word.chars().count().div_ceil(3).max(1);
    known
        .iter()
        .map(|candidate| (slips(word, candidate), *candidate))
        .filter(|(slips, _)| *slips <= most_slips)
        .min_by_key(|(slips, _)| *slips)
        .map(|(_, candidate)| candidate)
}

/// Letters to insert, remove, replace or swap with their neighbour to turn one word into the other.
fn slips(left: &str, right: &str) -> usize {
    let (left, right): (Vec<char>, Vec<char>) = (left.chars().collect(), right.chars().collect());
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=right.len()).collect();
    for row in 1..=left.len() {
        let mut current = vec![row];
        for column in 1..=right.len() {
            let same = left[row - 1] == right[column - 1];
            let mut best = (last[column - 1] + usize::from(!same))
                .min(last[column] + 1)
                .min(current[column - 1] + 1);
            let swapped = row > 1
                && column > 1
                && left[row - 1] == right[column - 2]
                && left[row - 2] == right[column - 1];
            if swapped {
                best = best.min(before_last[column - 2] + 1);
            }
            current.push(best);
        }
        before_last = std::mem::replace(&mut last, current);
    }
    last[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_fingers_finds_its_word() {
        let known = ["record", "size", "threads", "write-target"];
        assert_eq!(nearest("recrod", &known), Some("record"));
        assert_eq!(nearest("thread", &known), Some("threads"));
        assert_eq!(nearest("siez", &known), Some("size"));
        assert_eq!(nearest("write_target", &known), Some("write-target"));
    }

    #[test]
    fn another_word_is_not_guessed_at() {
        assert_eq!(nearest("colour", &["record", "size"]), None);
        assert_eq!(nearest("x", &["record"]), None);
    }
}
