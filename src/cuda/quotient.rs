//! Floor 3 for `kernels/quotient.cu`: the quotient's coefficients from the rows' values, all on the device.

use blst::blst_fr;
use blstrs::Scalar;
use ff::{Field, PrimeField};

use super::ntt::{ordered_after, tile_shape, tiled_function, NttDomain, NttKernels, ELEMENT_THREADS};
use super::{Arguments, Context, CudaError, DeviceBuffer, Function, LaunchShape, Module, Reservation};
use crate::policy::ntt_plan::{self, Pass, Step, Vector};

pub(super) struct QuotientKernels {
    products: Function,
    shift: Function,
    multiply: Function,
    divide: Function,
    rows_pass: Function,
    turn_at_values: Function,
    near: CoefficientKernels,
    far: CoefficientKernels,
}

/// Passes over the last levels, for tables that hold all twiddles and for others.
struct CoefficientKernels {
    turn: Function,
    last_of_rows: Function,
    last_of_product: Function,
}

impl QuotientKernels {
    pub(super) fn load(context: &Context) -> Result<Self, CudaError> {
        let module = Module::load(context, "quotient")?;
        let tiled = |name| tiled_function(&module, name);
        Ok(Self {
            products: module.function(c"quotient_products")?,
            shift: module.function(c"quotient_shift")?,
            multiply: module.function(c"quotient_multiply")?,
            divide: module.function(c"quotient_divide")?,
            rows_pass: tiled(c"quotient_rows_pass")?,
            turn_at_values: tiled(c"quotient_turn_at_values")?,
            near: CoefficientKernels {
                turn: tiled(c"quotient_turn_at_coefficients")?,
                last_of_rows: tiled(c"quotient_last_pass_of_rows")?,
                last_of_product: tiled(c"quotient_last_pass_of_product")?,
            },
            far: CoefficientKernels {
                turn: tiled(c"quotient_turn_at_coefficients_far")?,
                last_of_rows: tiled(c"quotient_last_pass_of_rows_far")?,
                last_of_product: tiled(c"quotient_last_pass_of_product_far")?,
            },
        })
    }

    fn coefficients(&self, is_far: bool) -> &CoefficientKernels {
        if is_far {
            &self.far
        } else {
            &self.near
        }
    }

    /// The first pass to bit-reversed order, from rows.
    pub(super) fn rows_pass(&self) -> &Function {
        &self.rows_pass
    }

    /// All pass kernels with their names, for reports.
    pub(super) fn pass_functions(&self) -> Vec<(&'static str, &Function)> {
        vec![
            ("quotient_rows_pass", &self.rows_pass),
            ("quotient_turn_at_values", &self.turn_at_values),
            ("quotient_turn_at_coefficients", &self.near.turn),
            ("quotient_last_pass_of_rows", &self.near.last_of_rows),
            ("quotient_last_pass_of_product", &self.near.last_of_product),
            ("quotient_turn_at_coefficients_far", &self.far.turn),
            ("quotient_last_pass_of_rows_far", &self.far.last_of_rows),
            ("quotient_last_pass_of_product_far", &self.far.last_of_product),
        ]
    }
}

/// `a` and `b` hold the rows at first; `b` holds the quotient at the end.
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
    /// Coefficients of `h = (a b - c) / Z` on the domain, `[n]` in natural order and Montgomery form, as
    /// [`crate::groth16::domain::quotient`] computes them (which leaves out the last, zero for a satisfied witness).
    ///
    /// `a, b: [n]` hold the row values, of which the first `num_rows` count and the others may be anything; `c` is
    /// `a b` row by row, so the witness must have been checked. Enqueues on the domain's stream and does not wait.
    /// Memory beside the tables: `a`, `b` and a third vector of `n`, freed but for the result, which is `b`'s buffer.
    /// Six transforms, in 15 round trips through memory at 2^19 and above.
    ///
    /// # Errors
    /// [`CudaError::Shape`] unless `a` and `b` have `n` elements and `num_rows` is at most `n`;
    /// [`CudaError::OverReservation`], or the driver's failure.
    pub fn quotient(
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
        for step in ntt_plan::quotient_steps(&domain.plan) {
            self.quotient_step(domain, &vectors, num_rows, step)?;
        }
        let Vectors { a, b, c: _ } = vectors;
        in_order.release(&[&a, &b])?;
        Ok(b)
    }

    fn quotient_step(
        &self,
        domain: &NttDomain,
        vectors: &Vectors,
        num_rows: usize,
        step: Step,
    ) -> Result<(), CudaError> {
        match step {
            Step::Pass(vector, order, pass) => self.pass(domain, vectors.get(vector), order, pass),
            Step::Tiny(vector, order) => self.tiny(domain, vectors.get(vector), order),
            Step::Products | Step::Shift(_) | Step::Multiply | Step::Divide => {
                self.pointwise_step(domain, vectors, num_rows, step)
            }
            Step::Rows(..)
            | Step::TurnAtCoefficients(..)
            | Step::TurnAtValues(_)
            | Step::LastOfRows(_)
            | Step::LastOfProduct(_) => self.fused_step(domain, vectors, num_rows, step),
        }
    }

    fn pointwise_step(
        &self,
        domain: &NttDomain,
        vectors: &Vectors,
        num_rows: usize,
        step: Step,
    ) -> Result<(), CudaError> {
        let Vectors { a, b, c } = vectors;
        let n = 1u32 << domain.plan.domain_log2;
        let (function, arguments) = match step {
            Step::Products => {
                let arguments = Arguments::new().buffer(a).buffer(b).buffer(c).u32(num_rows as u32).u32(n);
                (&self.quotient.products, arguments)
            }
            Step::Shift(vector) => {
                let arguments = with_tables(Arguments::new().buffer(vectors.get(vector)), domain).u32(n);
                (&self.quotient.shift, arguments)
            }
            Step::Multiply => (&self.quotient.multiply, Arguments::new().buffer(a).buffer(b).u32(n)),
            _ => {
                let arguments = with_tables(Arguments::new().buffer(a).buffer(c).buffer(b), domain);
                let arguments = arguments.u32(domain.plan.domain_log2);
                let arguments = with_power_of_half(arguments, 3 * domain.plan.domain_log2 + 1);
                (&self.quotient.divide, with_power_of_half(arguments, domain.plan.domain_log2 + 1))
            }
        };
        let shape = LaunchShape::for_elements(n, ELEMENT_THREADS);
        // SAFETY: each kernel's arguments as its comment lists them; all three vectors have n elements (checked by
        // `quotient`), the tables the lengths of the plan, and num_rows is at most n.
        unsafe { function.launch(&domain.stream, shape, arguments) }
    }

    fn fused_step(
        &self,
        domain: &NttDomain,
        vectors: &Vectors,
        num_rows: usize,
        step: Step,
    ) -> Result<(), CudaError> {
        let Vectors { a, b, c } = vectors;
        let kernels = &self.quotient;
        let tile_log2 = domain.plan.tile_log2;
        let pass_arguments = |buffers, level_or_levels| {
            let arguments = with_tables(buffers, domain).u32(domain.plan.domain_log2);
            arguments.u32(level_or_levels).u32(tile_log2)
        };
        let last = |from, pass: Pass, half_exponent| {
            let arguments = pass_arguments(Arguments::new().buffer(from).buffer(b), pass.first_level);
            with_power_of_half(arguments, half_exponent)
        };
        let coefficients = |pass| kernels.coefficients(domain.plan.table.is_far(pass));
        let (function, arguments) = match step {
            Step::Rows(vector, pass) => {
                let buffers = match vector {
                    Vector::C => Arguments::new().buffer(a).buffer(b).buffer(c),
                    Vector::A => Arguments::new().buffer(a).u64(NO_FACTOR).buffer(a),
                    Vector::B => Arguments::new().buffer(b).u64(NO_FACTOR).buffer(b),
                };
                (&kernels.rows_pass, pass_arguments(buffers.u32(num_rows as u32), pass.num_levels))
            }
            Step::TurnAtValues(pass) => (
                &kernels.turn_at_values,
                pass_arguments(Arguments::new().buffer(a).buffer(b), pass.num_levels),
            ),
            Step::TurnAtCoefficients(vector, pass) => {
                let buffer = Arguments::new().buffer(vectors.get(vector));
                (&coefficients(pass).turn, pass_arguments(buffer, pass.first_level))
            }
            Step::LastOfRows(pass) => {
                (&coefficients(pass).last_of_rows, last(c, pass, domain.plan.domain_log2 + 1))
            }
            Step::LastOfProduct(pass) => {
                (&coefficients(pass).last_of_product, last(a, pass, 3 * domain.plan.domain_log2 + 1))
            }
            _ => unreachable!("{step:?} is launched elsewhere"),
        };
        let shape = tile_shape(domain.plan.domain_log2, tile_log2);
        // SAFETY: each kernel's arguments as its comment lists them; all three vectors have n elements (checked by
        // `quotient`), the tables the lengths of the plan, num_rows is at most n, and the plan has fused steps
        // only for domains of several tiles and passes within the kernels' limits (asserted there).
        unsafe { function.launch(&domain.stream, shape, arguments) }
    }
}

/// A null pointer.
const NO_FACTOR: u64 = 0;

fn with_tables(arguments: Arguments, domain: &NttDomain) -> Arguments {
    arguments.buffer(&domain.low).buffer(&domain.high).u32(domain.plan.table.low_log2)
}

/// 2^-exponent as four words, Montgomery.
fn with_power_of_half(arguments: Arguments, exponent: u32) -> Arguments {
    let power = Scalar::TWO_INV.pow_vartime([u64::from(exponent)]);
    blst_fr::from(power).l.into_iter().fold(arguments, Arguments::u64)
}
