//! Floor 3 for `kernels/quotient.cu`: the quotient's coefficients from the rows' values, all on the device.

use blst::blst_fr;
use blstrs::Scalar;
use ff::{Field, PrimeField};

use super::ntt::{ordered_after, NttDomain, NttKernels, ELEMENT_THREADS};
use super::{Arguments, Context, CudaError, DeviceBuffer, Function, LaunchShape, Module, Reservation};
use crate::policy::ntt_plan::{self, Step, Vector};

pub(super) struct QuotientKernels {
    products: Function,
    shift: Function,
    multiply: Function,
    divide: Function,
}

impl QuotientKernels {
    pub(super) fn load(context: &Context) -> Result<Self, CudaError> {
        let module = Module::load(context, "quotient")?;
        Ok(Self {
            products: module.function(c"quotient_products")?,
            shift: module.function(c"quotient_shift")?,
            multiply: module.function(c"quotient_multiply")?,
            divide: module.function(c"quotient_divide")?,
        })
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
    /// Six transforms.
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
        for step in ntt_plan::quotient_steps(domain.domain_log2) {
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
        let Vectors { a, b, c } = vectors;
        let n = 1u32 << domain.domain_log2;
        let (function, arguments) = match step {
            Step::Pass(vector, order, pass) => return self.pass(domain, vectors.get(vector), order, pass),
            Step::Tiny(vector, order) => return self.tiny(domain, vectors.get(vector), order),
            Step::Products => {
                let arguments = Arguments::new().buffer(a).buffer(b).buffer(c).u32(num_rows as u32).u32(n);
                (&self.quotient.products, arguments)
            }
            Step::Shift(vector) => {
                let arguments = with_tables(Arguments::new().buffer(vectors.get(vector)), domain).u32(n);
                (&self.quotient.shift, arguments)
            }
            Step::Multiply => (&self.quotient.multiply, Arguments::new().buffer(a).buffer(b).u32(n)),
            Step::Divide => {
                let half = |exponent: u32| Scalar::TWO_INV.pow_vartime([u64::from(exponent)]);
                let arguments = with_tables(Arguments::new().buffer(a).buffer(c).buffer(b), domain);
                let arguments = arguments.u32(domain.domain_log2);
                let arguments = with_scalar(arguments, half(3 * domain.domain_log2 + 1));
                (&self.quotient.divide, with_scalar(arguments, half(domain.domain_log2 + 1)))
            }
        };
        let shape = LaunchShape::for_elements(n, ELEMENT_THREADS);
        // SAFETY: each kernel's arguments as its comment lists them; all three vectors have n elements (checked by
        // `quotient`), the tables the lengths of their shape, and num_rows is at most n.
        unsafe { function.launch(&domain.stream, shape, arguments) }
    }
}

fn with_tables(arguments: Arguments, domain: &NttDomain) -> Arguments {
    arguments.buffer(&domain.low).buffer(&domain.high).u32(domain.shape.low_log2)
}

/// Four words, Montgomery.
fn with_scalar(arguments: Arguments, scalar: Scalar) -> Arguments {
    blst_fr::from(scalar).l.into_iter().fold(arguments, Arguments::u64)
}
