//! The order of a Lagrange quotient's steps on a device: four transforms with what is pointwise between them. Pure data, as
//! `ntt_plan.rs`, whose passes it is made of; `cuda/lagrange.rs` and the test that runs the kernels on the host follow it.

use std::fmt;

use super::ntt_plan::{transform_steps, NttPlan, Order, Pass, Step, Vector};

/// A step of a Lagrange quotient: one launch. `A` and `B` hold the rows at first, `A` holds the result in the end; `ã` is the
/// transform of the coefficients of `a`, each times its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LagrangeStep {
    /// `c = a` on the rows, and zeros beyond them in all three.
    Rows,
    /// A pass and nothing else.
    Transform(Step),
    /// Coefficients in bit-reversed order, each times its index.
    Indices(Vector),
    /// `ã` in `c` becomes `ã b`.
    Times,
    /// `a = c + a b̃`.
    Plus,
    /// The first pass to bit-reversed order, from `A` into `C` or of `B` in place; rows beyond the last are zero.
    FirstPass(Vector, Pass),
    /// The last pass to bit-reversed order, [`Indices`](Self::Indices), and the first pass back.
    Turn(Vector, Pass),
    /// The last pass of `c` from bit-reversed order, and [`Times`](Self::Times).
    LastPassTimes(Pass),
    /// The last pass of `b` from bit-reversed order, and [`Plus`](Self::Plus).
    LastPassPlus(Pass),
}

/// Every step, in order: ten round trips through memory for three passes per transform.
pub fn lagrange_steps(plan: &NttPlan) -> Vec<LagrangeStep> {
    match plan.passes.as_slice() {
        [first, between @ .., last] => fused_steps(*first, between, *last),
        [] | [_] => separate_steps(plan),
    }
}

fn separate_steps(plan: &NttPlan) -> Vec<LagrangeStep> {
    let mut steps = vec![LagrangeStep::Rows];
    for (vector, end) in [(Vector::C, LagrangeStep::Times), (Vector::B, LagrangeStep::Plus)] {
        let transform = |order| transform_steps(vector, order, plan).into_iter().map(LagrangeStep::Transform);
        steps.extend(transform(Order::ToBitReversed));
        steps.push(LagrangeStep::Indices(vector));
        steps.extend(transform(Order::FromBitReversed));
        steps.push(end);
    }
    steps
}

fn fused_steps(first: Pass, between: &[Pass], last: Pass) -> Vec<LagrangeStep> {
    let mut steps = Vec::new();
    let ends = [LagrangeStep::LastPassTimes(first), LagrangeStep::LastPassPlus(first)];
    for (vector, end) in [Vector::C, Vector::B].into_iter().zip(ends) {
        let pass = |order| move |pass: &Pass| LagrangeStep::Transform(Step::Pass(vector, order, *pass));
        steps.push(LagrangeStep::FirstPass(vector, first));
        steps.extend(between.iter().map(pass(Order::ToBitReversed)));
        steps.push(LagrangeStep::Turn(vector, last));
        steps.extend(between.iter().rev().map(pass(Order::FromBitReversed)));
        steps.push(end);
    }
    steps
}

/// The words of `kernels/host/ntt_harness.cpp`.
impl fmt::Display for LagrangeStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rows => f.write_str("lagrange_rows"),
            Self::Transform(step) => step.fmt(f),
            Self::Indices(vector) => write!(f, "indices:{vector}"),
            Self::Times => f.write_str("times"),
            Self::Plus => f.write_str("plus"),
            Self::FirstPass(vector, pass) => write!(f, "first:{vector}:{}", pass.num_levels),
            Self::Turn(vector, pass) => write!(f, "turn_indices:{vector}:{}", pass.first_level),
            Self::LastPassTimes(pass) => write!(f, "last_times:{}", pass.num_levels),
            Self::LastPassPlus(pass) => write!(f, "last_plus:{}", pass.num_levels),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_domain_takes_five_round_trips_for_each_vector() {
        assert_eq!(lagrange_steps(&NttPlan::of(27)).len(), 10);
        assert_eq!(lagrange_steps(&NttPlan::of(12)).len(), 6);
        // One tile: two passes, an end and the indices for each vector, and the rows.
        assert_eq!(lagrange_steps(&NttPlan::of(10)).len(), 9);
        assert_eq!(lagrange_steps(&NttPlan::of(0)).len(), 5);
    }
}
