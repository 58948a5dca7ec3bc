//! One proof on the host, stage by stage: what the `cpu` backend runs on its threads and `sim` in its virtual time.

use blstrs::{G1Projective, G2Projective, Scalar};

use crate::backend::{PartitionWork, Stage};
use crate::error::DeviceError;
use crate::groth16::prover::{assemble, divide, evaluate, sum_a, sum_b_g1, sum_b_g2, sum_h, sum_l};
use crate::groth16::{Proof, QuerySums};
use crate::policy::plan::host_quotient_bytes;

const SCALAR_BYTES: u64 = 32;

/// A partition between two of its stages. Each stage frees what later ones do not need.
pub struct ProofSteps {
    work: PartitionWork,
    /// Row values of A and B, from `Evaluate` to `Quotient`.
    rows: Option<[Vec<Scalar>; 2]>,
    /// From `Quotient` to `SumH`.
    quotient: Option<Vec<Scalar>>,
    sums: PartialSums,
    proof: Option<Proof>,
    peak_bytes: u64,
}

#[derive(Default)]
struct PartialSums {
    h: Option<G1Projective>,
    l: Option<G1Projective>,
    a: Option<G1Projective>,
    b_g1: Option<G1Projective>,
    b_g2: Option<G2Projective>,
}

impl PartialSums {
    fn complete(&self) -> Option<QuerySums> {
        Some(QuerySums { h: self.h?, l: self.l?, a: self.a?, b_g1: self.b_g1?, b_g2: self.b_g2? })
    }
}

impl ProofSteps {
    pub fn new(work: PartitionWork) -> Self {
        Self { work, rows: None, quotient: None, sums: PartialSums::default(), proof: None, peak_bytes: 0 }
    }

    /// Runs one stage on the calling thread and rayon's.
    ///
    /// # Errors
    /// [`DeviceError::Fault`] if an earlier stage is missing or the witness is of another shape: both are ruled out
    /// before a backend gets the work.
    pub fn run(&mut self, stage: Stage) -> Result<(), DeviceError> {
        let PartitionWork { srs, shape, witness, .. } = &self.work;
        match stage {
            // Everything is read where it lies.
            Stage::Upload => {}
            Stage::Evaluate => self.evaluate()?,
            Stage::Quotient => self.divide()?,
            Stage::SumH => {
                let quotient = self.quotient.take().ok_or_else(|| self.missing(stage, "quotient"))?;
                self.sums.h = Some(sum_h(&self.work.srs, quotient));
            }
            Stage::SumL => self.sums.l = Some(sum_l(srs, shape, witness)),
            Stage::SumA => self.sums.a = Some(sum_a(srs, shape, witness)),
            Stage::SumBG1 => self.sums.b_g1 = Some(sum_b_g1(srs, shape, witness)),
            Stage::SumBG2 => self.sums.b_g2 = Some(sum_b_g2(srs, shape, witness)),
            Stage::Assemble => {
                let sums = self.sums.complete().ok_or_else(|| self.missing(stage, "a query's sum"))?;
                self.proof = Some(assemble(&self.work.srs.vk, &sums, &self.work.blinding));
            }
        }
        self.note_memory(self.memory_bytes());
        Ok(())
    }

    /// The proof, once `Assemble` has run.
    pub fn take_proof(&mut self) -> Option<Proof> {
        self.proof.take()
    }

    /// Bytes of the vectors held now: row values, quotient. The witness is the sender's, who accounts for it.
    pub fn memory_bytes(&self) -> u64 {
        let rows = self.rows.as_ref().map_or(0, |[a, b]| a.len() + b.len());
        let quotient = self.quotient.as_ref().map_or(0, Vec::len);
        SCALAR_BYTES * (rows + quotient) as u64
    }

    /// The highest value of the same so far, also within stages.
    pub fn peak_bytes(&self) -> u64 {
        self.peak_bytes
    }

    fn evaluate(&mut self) -> Result<(), DeviceError> {
        let rows = evaluate(&self.work.shape, &self.work.witness);
        self.rows = Some(rows.map_err(|error| self.fault(Stage::Evaluate, error.to_string()))?);
        Ok(())
    }

    fn divide(&mut self) -> Result<(), DeviceError> {
        let [a, b] = self.rows.take().ok_or_else(|| self.missing(Stage::Quotient, "row values"))?;
        let PartitionWork { shape, srs, witness, .. } = &self.work;
        let peak_bytes = host_quotient_bytes(srs.basis, shape.domain_log2());
        let quotient = divide(shape, witness, srs.basis, a, b);
        self.quotient = Some(quotient.map_err(|error| self.fault(Stage::Quotient, error.to_string()))?);
        self.note_memory(peak_bytes);
        Ok(())
    }

    fn note_memory(&mut self, bytes: u64) {
        self.peak_bytes = self.peak_bytes.max(bytes);
    }

    fn missing(&self, stage: Stage, what: &str) -> DeviceError {
        self.fault(stage, format!("{what} missing: stages came out of order"))
    }

    fn fault(&self, stage: Stage, what: String) -> DeviceError {
        DeviceError::Fault { at: self.work.at.clone(), stage: stage.as_str(), what }
    }
}
