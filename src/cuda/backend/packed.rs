//! A witness on the device as it travels: 58 MB for PoRep of 32 GiB, whose scalars are 4.2 GB. The scalars are there only
//! while they are read, and are made anew from it in milliseconds.

use std::rc::Rc;
use std::sync::Arc;

use blst::blst_fr;

use super::sources::{ValueKind, Values};
use super::{new_target, SharedBuffer};
use crate::cuda::memory::CopyTarget;
use crate::cuda::spmv::{DeviceShape, DeviceWitness, SpmvKernels};
use crate::cuda::staging::{Stager, Ticket, Transfer};
use crate::cuda::{CudaError, Reservation, Stream};
use crate::groth16::{PackedWitness, R1csShape};

/// Bits and dense values of the aux variables, and the inputs.
pub struct PackedBuffers {
    pub bits: SharedBuffer<u64>,
    dense: SharedBuffer<blst_fr>,
    inputs: SharedBuffer<blst_fr>,
}

impl PackedBuffers {
    /// # Errors
    /// As [`crate::cuda::DeviceBuffer::new`].
    pub fn new(
        shape: &R1csShape,
        witness: &PackedWitness,
        reservation: &Reservation,
        compute: &Stream,
    ) -> Result<Self, CudaError> {
        Ok(Self {
            bits: new_target(reservation, compute, witness.bits.len())?,
            dense: new_target(reservation, compute, witness.dense.len())?,
            inputs: new_target(reservation, compute, shape.num_inputs())?,
        })
    }

    /// Starts copying the witness; it is there when `ticket` is done.
    ///
    /// # Errors
    /// As [`Stager::submit`].
    pub fn upload(
        &self,
        (shape, witness): (&Arc<R1csShape>, &Arc<PackedWitness>),
        (compute, copies): (&Stream, &Stream),
        (stager, ticket, is_urgent): (&mut Stager, &Ticket, bool),
    ) -> Result<(), CudaError> {
        let parts: [(ValueKind, Rc<dyn CopyTarget>); 3] = [
            (ValueKind::Inputs, Rc::clone(&self.inputs) as Rc<dyn CopyTarget>),
            (ValueKind::Bits, Rc::clone(&self.bits) as Rc<dyn CopyTarget>),
            (ValueKind::Dense, Rc::clone(&self.dense) as Rc<dyn CopyTarget>),
        ];
        // The memory is there then.
        let after = stager.mark(compute)?;
        for (kind, target) in parts {
            let transfer = Transfer {
                source: Arc::new(Values { shape: Arc::clone(shape), witness: Arc::clone(witness), kind }),
                source_offset: 0,
                bytes: target.size_bytes(),
                target,
                target_offset: 0,
                after: Rc::clone(&after),
            };
            stager.submit(transfer, copies, ticket, is_urgent)?;
        }
        Ok(())
    }

    /// Makes a scalar of each variable, inputs first: `values` has `[num_inputs + num_aux]`.
    ///
    /// # Errors
    /// As [`SpmvKernels::expand`].
    pub fn expand(
        &self,
        values: &SharedBuffer<blst_fr>,
        compute: &Stream,
        shape: &DeviceShape,
        spmv: &SpmvKernels,
    ) -> Result<(), CudaError> {
        values.copy_to_front(&self.inputs)?;
        spmv.expand(compute, shape, &DeviceWitness { bits: &self.bits, values }, &self.dense)
    }
}
