//! Reproducible randomness: the seed is printed with a failure and can be given again.

use rand::SeedableRng;
use rand_chacha::ChaCha20Rng;

/// `CUZK_TEST_SEED` if set (decimal), else a fixed one: a test run is the same every time unless asked otherwise.
///
/// # Panics
/// If the variable is no number.
pub fn seed() -> u64 {
    match std::env::var("CUZK_TEST_SEED") {
        Ok(text) => text.parse().expect("CUZK_TEST_SEED is a decimal number"),
        Err(_) => 0x0005_eed0_f7e5_7500,
    }
}

/// A generator for [`seed`]; prints the seed, which the test harness shows if the test fails.
pub fn rng() -> ChaCha20Rng {
    let seed = seed();
    println!("CUZK_TEST_SEED={seed}");
    ChaCha20Rng::seed_from_u64(seed)
}

/// A generator for a seed that was made from [`seed`] and printed.
pub fn rng_of(seed: u64) -> ChaCha20Rng {
    ChaCha20Rng::seed_from_u64(seed)
}
