//! When to try again.

use std::time::Duration;

/// Counts rounds over all mirrors that brought nothing.
#[derive(Debug)]
pub struct Pace {
    wait: Duration,
    wait_max: Duration,
    max_fruitless_rounds: u32,
    fruitless_rounds: u32,
}

impl Pace {
    pub fn new(wait: Duration, wait_max: Duration, max_fruitless_rounds: u32) -> Self {
        Self { wait, wait_max, max_fruitless_rounds, fruitless_rounds: 0 }
    }

    /// How long to wait after a round; `None`: give up. `asked` is the longest wait that a mirror asked for.
    pub fn after_round(&mut self, brought_bytes: bool, asked: Option<Duration>) -> Option<Duration> {
        if brought_bytes {
            self.fruitless_rounds = 0;
        } else {
            self.fruitless_rounds += 1;
            if self.fruitless_rounds >= self.max_fruitless_rounds {
                return None;
            }
        }
        // 2^20 waits of a second are twelve days: more doublings say nothing.
        let doubled = self.wait.saturating_mul(1 << self.fruitless_rounds.saturating_sub(1).min(20));
        Some(doubled.max(asked.unwrap_or_default()).min(self.wait_max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn waits_double_up_to_the_limit_and_end() {
        let mut pace = Pace::new(SECOND, 5 * SECOND, 6);
        let waits: Vec<Option<Duration>> = (0..6).map(|_| pace.after_round(false, None)).collect();
        let seconds = |n: u32| Some(n * SECOND);
        assert_eq!(waits, [seconds(1), seconds(2), seconds(4), seconds(5), seconds(5), None]);
    }

    #[test]
    fn bytes_begin_it_anew_and_a_mirrors_wish_is_bounded() {
        let mut pace = Pace::new(SECOND, 60 * SECOND, 3);
        for _ in 0..100 {
            assert!(pace.after_round(false, None).is_some() && pace.after_round(false, None).is_some());
            assert_eq!(pace.after_round(true, None), Some(SECOND));
        }
        assert_eq!(pace.after_round(false, Some(7 * SECOND)), Some(7 * SECOND));
        assert_eq!(pace.after_round(false, Some(4000 * SECOND)), Some(60 * SECOND));
    }
}
