//! Host memory that a proof copies to the device, and where it comes from.

use std::sync::{Arc, OnceLock};

use blstrs::Scalar;

use crate::cuda::staging::{bytes_of, HostBytes};
use crate::groth16::msm::Density;
use crate::groth16::{Assignment, Evaluations, R1csShape, Srs};
use crate::policy::plan::Query;

/// The points of one query.
pub struct QueryPoints {
    pub srs: Arc<Srs>,
    pub query: Query,
}

impl HostBytes for QueryPoints {
    fn bytes(&self) -> &[u8] {
        match self.query {
            Query::H => bytes_of(&self.srs.h),
            Query::L => bytes_of(&self.srs.l),
            Query::A => bytes_of(&self.srs.a),
            Query::BG1 => bytes_of(&self.srs.b_g1),
            Query::BG2 => bytes_of(&self.srs.b_g2),
        }
    }
}

/// Which variable each point of A and of B belongs to, as positions in inputs followed by aux. Made at first use, on
/// the filler thread, and kept as long as the circuit is.
pub struct VariableIndices {
    shape: Arc<R1csShape>,
    a: OnceLock<Vec<u32>>,
    b: OnceLock<Vec<u32>>,
}

impl VariableIndices {
    pub fn new(shape: Arc<R1csShape>) -> Self {
        Self { shape, a: OnceLock::new(), b: OnceLock::new() }
    }

    /// For [`Query::A`]: every input, and the aux variables that occur in A.
    fn a(&self) -> &[u32] {
        self.a.get_or_init(|| {
            let num_inputs = self.shape.num_inputs();
            let inputs = 0..num_inputs as u32;
            inputs.chain(positions(self.shape.a_aux_density(), num_inputs)).collect()
        })
    }

    /// For [`Query::BG1`] and [`Query::BG2`]: the inputs and the aux variables that occur in B.
    fn b(&self) -> &[u32] {
        self.b.get_or_init(|| {
            let inputs = positions(self.shape.b_input_density(), 0);
            inputs.chain(positions(self.shape.b_aux_density(), self.shape.num_inputs())).collect()
        })
    }

    /// Whether they are those of this very shape.
    pub fn are_of(&self, shape: &Arc<R1csShape>) -> bool {
        Arc::ptr_eq(&self.shape, shape)
    }
}

/// Circuits are limited to 2^32 variables (`SynthesisError::TooLarge`).
fn positions(density: &Density, start: usize) -> impl Iterator<Item = u32> + '_ {
    density.iter_ones().map(move |index| (start + index) as u32)
}

/// The list of one query.
pub struct QueryIndices {
    pub indices: Arc<VariableIndices>,
    pub query: Query,
}

impl HostBytes for QueryIndices {
    fn bytes(&self) -> &[u8] {
        match self.query {
            Query::A => bytes_of(self.indices.a()),
            Query::BG1 | Query::BG2 => bytes_of(self.indices.b()),
            Query::H | Query::L => &[],
        }
    }
}

/// A partition's values.
pub enum Values {
    Inputs(Arc<Assignment>),
    Aux(Arc<Assignment>),
    /// Row values of A.
    RowsA(Arc<Evaluations>),
    /// Row values of B.
    RowsB(Arc<Evaluations>),
}

impl HostBytes for Values {
    fn bytes(&self) -> &[u8] {
        scalar_bytes(match self {
            Self::Inputs(assignment) => &assignment.input_assignment,
            Self::Aux(assignment) => &assignment.aux_assignment,
            Self::RowsA(rows) => &rows.a,
            Self::RowsB(rows) => &rows.b,
        })
    }
}

/// Scalars as they lie in memory: four little-endian u64 in Montgomery form, the layout of `blst_fr`.
#[allow(unsafe_code)]
fn scalar_bytes(scalars: &[Scalar]) -> &[u8] {
    const _: () = assert!(size_of::<Scalar>() == 32 && align_of::<Scalar>() == 8);
    // SAFETY: `blstrs::Scalar` is `repr(transparent)` over `blst_fr`, an array of four u64 without padding.
    unsafe { std::slice::from_raw_parts(scalars.as_ptr().cast(), size_of_val(scalars)) }
}
