//! Random numbers of a task: SplitMix64, integers only, one stream per name.

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// The stream `name` of a run's seed.
    #[must_use]
    pub fn named(seed: u64, name: &str) -> Self {
        let state = name
            .bytes()
            .fold(mixed(seed), |state, byte| mixed(state ^ u64::from(byte)));
        Self { state }
    }

    /// A number below `limit`; 0 if `limit` is 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.state = self.state.wrapping_add(1);
        let product = u128::from(mixed(self.state)) * u128::from(limit);
        u64::try_from(product >> 64).expect("the upper half of 128 bits fits in 64")
    }
}

fn mixed(value: u64) -> u64 {
    let mixed = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
