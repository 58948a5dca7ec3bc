//! A partition's witness and its row values: packed to the device and evaluated there, or as scalars, with rows by the
//! host, where the plan has no room for the shape. Whoever evaluates looks at a sample of the constraints.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use blst::blst_fr;

use super::{missing, Begun, Driven, HostSide, Made, Partition, Work, SCALAR_BYTES};
use crate::backend::Stage;
use crate::cuda::backend::lane::Streams;
use crate::cuda::backend::packed::PackedBuffers;
use crate::cuda::backend::sources::ValueKind;
use crate::cuda::backend::{new_target, Shared, SharedBuffer};
use crate::cuda::memory::CopyTarget;
use crate::cuda::spmv::{DeviceShape, DeviceWitness, RowSample};
use crate::cuda::staging::{Stager, Ticket, Transfer};
use crate::cuda::{CudaError, Stream};
use crate::error::SynthesisError;
use crate::groth16::Matrix;
use crate::policy::plan::Evaluation;

impl Partition {
    /// Where the device evaluates, packed, to be expanded there; else as scalars.
    pub(super) fn upload_witness(
        &mut self,
        streams: &Streams,
        ticket: &Ticket,
        stager: &mut Stager,
    ) -> Result<(), CudaError> {
        let Streams { compute, copies, is_urgent, .. } = streams;
        let witness = self.room_for_scalars(compute)?;
        let Work { shape, witness: host, .. } = &self.work;
        match self.plan.evaluation {
            Evaluation::Host => {
                let inputs_bytes = shape.num_inputs() * SCALAR_BYTES;
                let after = stager.mark(compute)?;
                for (kind, target_offset, bytes) in [
                    (ValueKind::Inputs, 0, inputs_bytes),
                    (ValueKind::Aux, inputs_bytes, shape.num_aux() * SCALAR_BYTES),
                ] {
                    let transfer = Transfer {
                        source: Arc::new(self.work.values(kind)),
                        source_offset: 0,
                        target: Rc::clone(&witness) as Rc<dyn CopyTarget>,
                        target_offset,
                        bytes,
                        after: Rc::clone(&after),
                    };
                    stager.submit(transfer, copies, ticket, *is_urgent)?;
                }
            }
            Evaluation::Device => {
                let packed = PackedBuffers::new(shape, host, &self.reservation, compute)?;
                packed.upload((shape, host), (compute, copies), (stager, ticket, *is_urgent))?;
                self.packed = Some(packed);
            }
        }
        self.witness = Some(witness);
        Ok(())
    }

    fn room_for_scalars(&self, compute: &Stream) -> Result<SharedBuffer<blst_fr>, CudaError> {
        let shape = &self.work.shape;
        new_target(&self.reservation, compute, shape.num_inputs() + shape.num_aux())
    }

    /// Makes scalars of what came packed.
    pub(super) fn expand_witness(&self, streams: &Streams, shared: &mut Shared) -> Result<(), CudaError> {
        let Some(packed) = &self.packed else { return Ok(()) };
        let values = self.witness.as_ref().ok_or_else(|| missing("witness"))?;
        let shape = self.resident_shape(shared)?;
        packed.expand(values, &streams.compute, &shape, &shared.spmv)
    }

    /// The scalars that the sums after the one over `h` read. Where the device evaluates they were let go of before the
    /// quotient, whose memory is the most that a partition takes; the packed witness is not needed any more then.
    pub(super) fn scalars_for_sums(
        &mut self,
        streams: &Streams,
        shared: &mut Shared,
    ) -> Result<SharedBuffer<blst_fr>, CudaError> {
        if self.witness.is_none() && self.packed.is_some() {
            self.witness = Some(self.room_for_scalars(&streams.compute)?);
            self.expand_witness(streams, shared)?;
            self.packed = None;
        }
        self.witness.clone().ok_or_else(|| missing("witness"))
    }

    fn resident_shape(&self, shared: &mut Shared) -> Result<DeviceShape, CudaError> {
        let Work { circuit, shape, .. } = &self.work;
        let resident = shared.residents.shape(circuit, shape);
        resident.ok_or_else(|| missing("the shape that is resident by plan"))
    }

    /// Row values of A and B. Those of C are their product where the witness satisfies the circuit; where it does not, the proof does not
    /// verify.
    fn upload_rows(&mut self, streams: &Streams, shared: &mut Shared) -> Result<Ticket, CudaError> {
        let ticket = Ticket::default();
        self.tickets.push(ticket.clone());
        let mut buffers = Vec::with_capacity(2);
        for matrix in [Matrix::A, Matrix::B] {
            let buffer: SharedBuffer<blst_fr> =
                new_target(&self.reservation, &streams.compute, 1 << self.work.shape.domain_log2())?;
            let transfer = Transfer {
                source: Arc::new(self.work.values(ValueKind::Rows(matrix))),
                source_offset: 0,
                target: Rc::clone(&buffer) as Rc<dyn CopyTarget>,
                target_offset: 0,
                bytes: self.work.shape.num_rows() * SCALAR_BYTES,
                after: shared.stager.mark(&streams.compute)?,
            };
            shared.stager.submit(transfer, &streams.copies, &ticket, streams.is_urgent)?;
            buffers.push(buffer);
        }
        self.row_values = buffers.try_into().ok();
        Ok(ticket)
    }

    pub(super) fn start_evaluate(
        &mut self,
        streams: &mut Streams,
        host: HostSide,
        shared: &mut Shared,
    ) -> Result<(), CudaError> {
        if self.plan.evaluation == Evaluation::Device {
            return self.launch_rows(streams, shared);
        }
        let begun = Instant::now();
        let Work { shape, witness, .. } = &self.work;
        let (shape, witness) = (Arc::clone(shape), Arc::clone(witness));
        let RowSample { every, seed } = RowSample::of(shape.num_rows(), rand::random());
        host.spawn(shared, move || Made::RowsVerdict(shape.check_sample(&witness, every as usize, seed)))?;
        let ticket = self.upload_rows(streams, shared)?;
        self.driven = Some(Driven::Evaluate { begun, ticket });
        Ok(())
    }

    /// Whether the rows that the host looked at hold. `None`: it is still at it.
    pub(super) fn take_host_verdict(&mut self) -> Option<Result<(), CudaError>> {
        let verdict = self.host_verdict.take()?;
        Some(verdict.map_err(|error| match error {
            SynthesisError::Unsatisfied { index, num_constraints } => {
                CudaError::Unsatisfied { index, num_constraints }
            }
            error => CudaError::Host(error.to_string()),
        }))
    }

    /// Row values from the packed witness, and the check of a sample of them.
    fn launch_rows(&mut self, streams: &mut Streams, shared: &mut Shared) -> Result<(), CudaError> {
        let begun = streams.compute.record()?;
        let shape = self.resident_shape(shared)?;
        let packed = self.packed.as_ref().ok_or_else(|| missing("the packed witness"))?;
        // From here to the sums the packed one is enough.
        let values = self.witness.take().ok_or_else(|| missing("witness"))?;
        let witness = DeviceWitness { bits: &packed.bits, values: &values };
        let room = || new_target(&self.reservation, &streams.compute, 1 << self.work.shape.domain_log2());
        let rows: [SharedBuffer<blst_fr>; 2] = [room()?, room()?];
        let [a, b] = &rows;
        shared.spmv.rows(&streams.compute, &shape, &witness, [a, b])?;
        let sample = RowSample::of(shape.num_rows(), rand::random());
        self.verdict = Some(streams.rows.check(&shared.spmv, &shape, &witness, [a, b], sample)?);
        self.row_values = Some(rows);
        self.mark(Stage::Evaluate, Begun::Device(begun), streams, shared)
    }

    /// Once the device has passed the stage: whether the rows it looked at hold. Where one does not, the host says who is
    /// to blame: the witness, or the device.
    pub(super) fn take_verdict(&mut self, stage: Stage, streams: &mut Streams) -> Result<(), CudaError> {
        let Some(verdict) = self.verdict.take_if(|_| stage == Stage::Evaluate) else { return Ok(()) };
        let Some(row) = streams.rows.take(verdict)? else { return Ok(()) };
        let Work { shape, witness, .. } = &self.work;
        Err(match shape.check_row(witness, row) {
            Err(SynthesisError::Unsatisfied { index, num_constraints }) => {
                CudaError::Unsatisfied { index, num_constraints }
            }
            Err(error) => CudaError::Host(error.to_string()),
            Ok(()) => {
                CudaError::Host(format!("row {row} holds, and the device's values say that it does not"))
            }
        })
    }
}
