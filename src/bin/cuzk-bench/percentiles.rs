//! How times are spread.

use serde::Serialize;

/// In the values' unit.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Percentiles {
    pub mean: f64,
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub max: f64,
}

impl Percentiles {
    /// The value that so many percent of all do not exceed. All 0 of nothing.
    pub fn of(mut values: Vec<f64>) -> Self {
        if values.is_empty() {
            return Self::default();
        }
        values.sort_by(f64::total_cmp);
        let at = |percent: usize| values[(values.len() * percent).div_ceil(100).max(1) - 1];
        Self {
            mean: values.iter().sum::<f64>() / values.len() as f64,
            p50: at(50),
            p90: at(90),
            p99: at(99),
            max: at(100),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_occurred() {
        let of = |values: &[f64]| Percentiles::of(values.to_vec());
        let ten = of(&[10.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 1.0]);
        assert_eq!((ten.p50, ten.p90, ten.p99, ten.max, ten.mean), (5.0, 9.0, 10.0, 10.0, 5.5));
        let one = of(&[7.0]);
        assert_eq!((one.p50, one.p99, one.mean), (7.0, 7.0, 7.0));
        assert_eq!(of(&[]).max, 0.0);
    }
}
