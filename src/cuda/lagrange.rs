//! Floor 3 for `kernels/lagrange.cu`: the quotient in the Lagrange basis from the rows' values, all on the device.

use blst::blst_fr;
use blstrs::Scalar;
use ff::{Field, PrimeField};

use super::ntt::{ordered_after, tile_shape, tiled_function, NttDomain, NttKernels, ELEMENT_THREADS};
use super::{Arguments, Context, CudaError, DeviceBuffer, Function, LaunchShape, Module, Reservation};
use crate::policy::lagrange_plan::{lagrange_steps, LagrangeStep};
use crate::policy::ntt_plan::{Pass, Step, Vector};

pub(super) struct LagrangeKernels {
    rows: Function,
    indices: Function,
    times: Function,
    plus: Function,
    turn: Function,
    turn_far: Function,
    last_times: Function,
    last_plus: Function,
}

impl LagrangeKernels {
    pub(super) fn load(context: &Context) -> Result<Self, CudaError> {
        let module = Module::load(context, "lagrange")?;
        let tiled = |name| tiled_function(&module, name);
        Ok(Self {
            rows: module.function(c"lagrange_rows")?,
            indices: module.function(c"lagrange_indices")?,
            times: module.function(c"lagrange_times")?,
            plus: module.function(c"lagrange_plus")?,
            turn: tiled(c"lagrange_turn")?,
            turn_far: tiled(c"lagrange_turn_far")?,
            last_times: tiled(c"lagrange_last_pass_times")?,
            last_plus: tiled(c"lagrange_last_pass_plus")?,
        })
    }

    /// All pass kernels with their names, for reports.
    pub(super) fn pass_functions(&self) -> Vec<(&'static str, &Function)> {
        vec![
            ("lagrange_turn", &self.turn),
            ("lagrange_turn_far", &self.turn_far),
            ("lagrange_last_pass_times", &self.last_times),
            ("lagrange_last_pass_plus", &self.last_plus),
        ]
    }
}

struct Vectors {
    a: DeviceBuffer<blst_fr>,
    b: DeviceBuffer<blst_fr>,
    c: DeviceBuffer<blst_fr>,
}

impl Vectors {
    fn get(&self, vector: Vector) -> &DeviceBuffer<blst_fr> {
        match vector {
            Vector::A => &self.a,
            Vector::B => &self.b,
            Vector::C => &self.c,
        }
    }
}

impl NttKernels {
    /// `t_j = (ã_j b_j + a_j b̃_j) / n²`, `[n]` in natural order and Montgomery form, as
    /// [`crate::groth16::domain::lagrange_quotient`] computes it.
    ///
    /// `a, b: [n]` hold the row values, of which the first `num_rows` count and the others may be anything. Enqueues on the
    /// domain's stream and does not wait. Memory beside the tables: `a`, `b` and a third vector of `n`, freed but for the
    /// result, which is `a`'s buffer. Four transforms, in ten round trips through memory at 2^19 and above.
    ///
    /// # Errors
    /// [`CudaError::Shape`] unless `a` and `b` have `n` elements and `num_rows` is at most `n`;
    /// [`CudaError::OverReservation`], or the driver's failure.
    pub fn lagrange_quotient(
        &self,
        domain: &NttDomain,
        a: DeviceBuffer<blst_fr>,
        b: DeviceBuffer<blst_fr>,
        num_rows: usize,
        reservation: &Reservation,
    ) -> Result<DeviceBuffer<blst_fr>, CudaError> {
        domain.require("row values a of a quotient", a.len())?;
        domain.require("row values b of a quotient", b.len())?;
        if num_rows > domain.len() {
            return Err(CudaError::Shape { what: "rows on a domain", needs: domain.len(), has: num_rows });
        }
        let in_order = ordered_after(&domain.stream, &[&a, &b])?;
        let c = DeviceBuffer::new(reservation, &domain.stream, domain.len())?;
        let vectors = Vectors { a, b, c };
        for step in lagrange_steps(&domain.plan) {
            self.lagrange_step(domain, &vectors, num_rows as u32, step)?;
        }
        let Vectors { a, b, c: _ } = vectors;
        in_order.release(&[&a, &b])?;
        Ok(a)
    }

    fn lagrange_step(
        &self,
        domain: &NttDomain,
        vectors: &Vectors,
        num_rows: u32,
        step: LagrangeStep,
    ) -> Result<(), CudaError> {
        match step {
            LagrangeStep::Transform(Step::Pass(vector, order, pass)) => {
                self.pass(domain, vectors.get(vector), order, pass)
            }
            LagrangeStep::Transform(Step::Tiny(vector, order)) => {
                self.tiny(domain, vectors.get(vector), order)
            }
            LagrangeStep::Transform(step) => unreachable!("{step:?} is no part of a transform"),
            LagrangeStep::Rows | LagrangeStep::Indices(_) | LagrangeStep::Times | LagrangeStep::Plus => {
                self.lagrange_pointwise(domain, vectors, num_rows, step)
            }
            LagrangeStep::FirstPass(..)
            | LagrangeStep::Turn(..)
            | LagrangeStep::LastPassTimes(_)
            | LagrangeStep::LastPassPlus(_) => self.lagrange_pass(domain, vectors, num_rows, step),
        }
    }

    fn lagrange_pointwise(
        &self,
        domain: &NttDomain,
        vectors: &Vectors,
        num_rows: u32,
        step: LagrangeStep,
    ) -> Result<(), CudaError> {
        let (Vectors { a, b, c }, kernels) = (vectors, &self.lagrange);
        let (log2, n) = (domain.plan.domain_log2, 1u32 << domain.plan.domain_log2);
        let (function, arguments) = match step {
            LagrangeStep::Rows => {
                (&kernels.rows, Arguments::new().buffer(a).buffer(b).buffer(c).u32(num_rows).u32(n))
            }
            LagrangeStep::Indices(vector) => {
                let arguments = Arguments::new().buffer(vectors.get(vector)).u32(log2);
                (&kernels.indices, with_index_scale(arguments, log2))
            }
            LagrangeStep::Times => (&kernels.times, Arguments::new().buffer(c).buffer(b).u32(log2)),
            _ => (&kernels.plus, Arguments::new().buffer(b).buffer(c).buffer(a).u32(log2)),
        };
        let shape = LaunchShape::for_elements(n, ELEMENT_THREADS);
        // SAFETY: each kernel's arguments as its comment lists them; all three vectors have n elements (checked by
        // `lagrange_quotient`), and num_rows is at most n.
        unsafe { function.launch(&domain.stream, shape, arguments) }
    }

    fn lagrange_pass(
        &self,
        domain: &NttDomain,
        vectors: &Vectors,
        num_rows: u32,
        step: LagrangeStep,
    ) -> Result<(), CudaError> {
        let (Vectors { a, b, c }, kernels) = (vectors, &self.lagrange);
        let (log2, tile_log2) = (domain.plan.domain_log2, domain.plan.tile_log2);
        let pass_arguments = |buffers: Arguments, level_or_levels| {
            let tables = buffers.buffer(&domain.low).buffer(&domain.high).u32(domain.plan.table.low_log2);
            tables.u32(log2).u32(level_or_levels).u32(tile_log2)
        };
        let (function, arguments) = match step {
            LagrangeStep::FirstPass(vector, Pass { num_levels, .. }) => {
                let rows = if vector == Vector::C { a } else { b };
                let buffers = Arguments::new().buffer(rows).u64(NO_FACTOR).buffer(vectors.get(vector));
                (self.quotient.rows_pass(), pass_arguments(buffers.u32(num_rows), num_levels))
            }
            LagrangeStep::Turn(vector, pass) => {
                let is_far = domain.plan.table.is_far(pass);
                let function = if is_far { &kernels.turn_far } else { &kernels.turn };
                let buffer = Arguments::new().buffer(vectors.get(vector));
                (function, with_index_scale(pass_arguments(buffer, pass.first_level), log2))
            }
            LagrangeStep::LastPassTimes(pass) => {
                let buffers = Arguments::new().buffer(c).buffer(b).u32(num_rows);
                (&kernels.last_times, pass_arguments(buffers, pass.num_levels))
            }
            LagrangeStep::LastPassPlus(pass) => {
                let buffers = Arguments::new().buffer(b).buffer(c).buffer(a).u32(num_rows);
                (&kernels.last_plus, pass_arguments(buffers, pass.num_levels))
            }
            _ => unreachable!("{step:?} is launched elsewhere"),
        };
        // SAFETY: each kernel's arguments as its comment lists them; all three vectors have n elements (checked by
        // `lagrange_quotient`), the tables the lengths of the plan, num_rows is at most n, and the plan has these steps
        // only for domains of several tiles and passes within the kernels' limits (asserted there).
        unsafe { function.launch(&domain.stream, tile_shape(log2, tile_log2), arguments) }
    }
}

/// A null pointer.
const NO_FACTOR: u64 = 0;

/// What indices are multiplied by, 1/n³, as `index_factor` in `math/lagrange.cuh` wants it.
fn with_index_scale(arguments: Arguments, domain_log2: u32) -> Arguments {
    let scale = Scalar::TWO_INV.pow_vartime([3 * u64::from(domain_log2)]);
    with_montgomery_twice(arguments, scale)
}

/// Four words: a product with an integer that is not in Montgomery form is in it.
pub(super) fn with_montgomery_twice(arguments: Arguments, scalar: Scalar) -> Arguments {
    let montgomery_radix = Scalar::from(2u64).pow_vartime([256]);
    blst_fr::from(scalar * montgomery_radix).l.into_iter().fold(arguments, Arguments::u64)
}
