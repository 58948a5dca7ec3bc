//! Host memory that a proof copies to the device, and where it comes from.

use std::sync::Arc;

use blstrs::Scalar;
use ff::Field;

use crate::cuda::staging::{bytes_of, HostBytes};
use crate::groth16::shape::ImageLayout;
use crate::groth16::{Matrix, PackedWitness, R1csShape, Srs};
use crate::policy::plan::Query;

/// The points of one query.
pub struct QueryPoints {
    pub srs: Arc<Srs>,
    pub query: Query,
}

impl HostBytes for QueryPoints {
    fn fill(&self, offset: usize, to: &mut [u8]) {
        let bytes = match self.query {
            Query::H => bytes_of(&self.srs.h),
            Query::L => bytes_of(&self.srs.l),
            Query::A => bytes_of(&self.srs.a),
            Query::BG1 => bytes_of(&self.srs.b_g1),
            Query::BG2 => bytes_of(&self.srs.b_g2),
        };
        to.copy_from_slice(&bytes[offset..offset + to.len()]);
    }
}

/// Which variable each point of A and of B belongs to, as positions in inputs followed by aux: read off the shape's
/// densities wherever they are wanted.
pub struct VariableIndices {
    shape: Arc<R1csShape>,
}

impl VariableIndices {
    pub fn new(shape: Arc<R1csShape>) -> Self {
        Self { shape }
    }

    /// For [`Query::A`], from its `start`-th point on: every input, and the aux variables that occur in A.
    fn fill_a(&self, start: usize, to: &mut [u8]) {
        let num_inputs = self.shape.num_inputs();
        let aux = self.shape.a_aux_density().iter_ones_from(start.saturating_sub(num_inputs));
        fill_indices((start..num_inputs).chain(aux.map(|aux| num_inputs + aux)), to);
    }

    /// For [`Query::BG1`] and [`Query::BG2`]: the inputs and the aux variables that occur in B.
    fn fill_b(&self, start: usize, to: &mut [u8]) {
        let (num_inputs, inputs) = (self.shape.num_inputs(), self.shape.b_input_density());
        let aux = self.shape.b_aux_density().iter_ones_from(start.saturating_sub(inputs.num_ones()));
        fill_indices(inputs.iter_ones_from(start).chain(aux.map(|aux| num_inputs + aux)), to);
    }

    pub fn shape(&self) -> &Arc<R1csShape> {
        &self.shape
    }

    /// Whether they are those of this very shape.
    pub fn are_of(&self, shape: &Arc<R1csShape>) -> bool {
        Arc::ptr_eq(&self.shape, shape)
    }
}

/// Circuits are limited to 2^32 variables (`SynthesisError::TooLarge`).
fn fill_indices(indices: impl Iterator<Item = usize>, to: &mut [u8]) {
    for (to, index) in to.chunks_exact_mut(size_of::<u32>()).zip(indices) {
        to.copy_from_slice(&(index as u32).to_ne_bytes());
    }
}

/// The list of one query.
pub struct QueryIndices {
    pub indices: Arc<VariableIndices>,
    pub query: Query,
}

impl HostBytes for QueryIndices {
    fn fill(&self, offset: usize, to: &mut [u8]) {
        let start = offset / size_of::<u32>();
        match self.query {
            Query::A => self.indices.fill_a(start, to),
            Query::BG1 | Query::BG2 => self.indices.fill_b(start, to),
            Query::H | Query::L => {}
        }
    }
}

/// A shape as the device reads it.
pub struct ShapeImage {
    shape: Arc<R1csShape>,
    layout: ImageLayout,
}

impl ShapeImage {
    pub fn new(shape: &Arc<R1csShape>) -> Self {
        Self { shape: Arc::clone(shape), layout: shape.image_layout() }
    }

    pub fn num_bytes(&self) -> usize {
        self.layout.num_bytes()
    }
}

impl HostBytes for ShapeImage {
    fn fill(&self, offset: usize, to: &mut [u8]) {
        self.shape.fill_image(&self.layout, offset, to);
    }
}

/// A partition's values, as the device has them: a scalar for each, or packed.
pub struct Values {
    pub shape: Arc<R1csShape>,
    /// Of the shape.
    pub witness: Arc<PackedWitness>,
    pub kind: ValueKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    Inputs,
    Aux,
    /// A bit for each aux variable.
    Bits,
    /// The aux variables that are no bits.
    Dense,
    /// Row values, computed wherever they are wanted.
    Rows(Matrix),
}

impl HostBytes for Values {
    fn fill(&self, offset: usize, to: &mut [u8]) {
        let start = offset / size_of::<Scalar>();
        match self.kind {
            ValueKind::Inputs => {
                to.copy_from_slice(&scalar_bytes(&self.witness.inputs)[offset..offset + to.len()]);
            }
            ValueKind::Aux => self.fill_aux(start, to),
            ValueKind::Bits => to.copy_from_slice(&bytes_of(&self.witness.bits)[offset..offset + to.len()]),
            ValueKind::Dense => {
                to.copy_from_slice(&scalar_bytes(&self.witness.dense)[offset..offset + to.len()]);
            }
            ValueKind::Rows(matrix) => {
                let mut values = vec![Scalar::ZERO; to.len() / size_of::<Scalar>()];
                let rows = start..start + values.len();
                let evaluated = self.shape.evaluate_rows(matrix, &self.witness, rows, &mut values);
                evaluated.expect("the actor has checked that the witness is of the shape");
                to.copy_from_slice(scalar_bytes(&values));
            }
        }
    }
}

impl Values {
    fn fill_aux(&self, start: usize, to: &mut [u8]) {
        let classes = self.shape.classes();
        let mut dense = self.witness.dense[classes.dense().num_ones_before(start)..].iter();
        for (aux, to) in (start..).zip(to.chunks_exact_mut(size_of::<Scalar>())) {
            let value = match (classes.is_dense(aux), self.witness.bit(aux)) {
                (true, _) => *dense.next().expect("as many as are dense"),
                (false, true) => Scalar::ONE,
                (false, false) => Scalar::ZERO,
            };
            to.copy_from_slice(scalar_bytes(std::slice::from_ref(&value)));
        }
    }
}

/// Scalars as they lie in memory: four little-endian u64 in Montgomery form, the layout of `blst_fr`.
fn scalar_bytes(scalars: &[Scalar]) -> &[u8] {
    const _: () = assert!(size_of::<Scalar>() == 32 && align_of::<Scalar>() == 8);
    // SAFETY: `blstrs::Scalar` is `repr(transparent)` over `blst_fr`, an array of four u64 without padding.
    unsafe { std::slice::from_raw_parts(scalars.as_ptr().cast(), size_of_val(scalars)) }
}
