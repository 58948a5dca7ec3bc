//! Test parameters with known secrets: the bytes bellperson's `generate_random_parameters` makes, by fixed-base
//! tables and streamed to the file. Anyone can forge proofs for them.
//!
//! bellperson keeps every point in projective and affine form and multiplies by wNAF; here a point is a few additions
//! from tables (`generate/fixed_base.rs`) and is written at once. Only the scalars stay in memory:
//! 96 B per variable (`generate/setup.rs`). Who adds the points up is a `PointMaker`: the host's threads, or a GPU.

mod fixed_base;
mod fold;
mod setup;

use std::path::Path;

use blst::{blst_p1_affine, blst_p2_affine};
use blstrs::Scalar;
use group::Curve;
use rand_core::RngCore;
use rayon::prelude::*;

pub(crate) use self::fixed_base::FixedBase;
pub use self::fold::fold_from_secrets;
use self::setup::{Query, Secrets, Setup};
use crate::error::SrsError;
use crate::groth16::srs::QuotientBasis;
use crate::groth16::srs_file::{write_vk, RawPoint, SrsWriter};
use crate::groth16::{R1csShape, Srs, VerifyingKey};

/// What was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generated {
    pub params_bytes: u64,
    pub params_sha256: [u8; 32],
    pub vk_bytes: u64,
    pub vk_sha256: [u8; 32],
}

/// How many points of how many are made.
pub type PointProgress<'p> = &'p (dyn Fn(u64, u64) + Sync);

/// Scalars of a query, in the order of its points.
pub(crate) type Chunks<'c> = Box<dyn Iterator<Item = Vec<Scalar>> + 'c>;

/// Takes what was made of a chunk.
pub(crate) type Sink<'s, T> = dyn FnMut(&[T]) -> Result<(), SrsError> + 's;

/// Makes points: given scalars, none of them zero, times the generator of `P`'s group.
pub(crate) trait PointMaker<P> {
    /// How many scalars it wants at a time.
    fn chunk_scalars(&self) -> usize;

    /// Calls `sink` with the points of each chunk, in order.
    fn points(&mut self, chunks: Chunks<'_>, sink: &mut Sink<'_, P>) -> Result<(), SrsError>;

    /// The same with points as parameter files hold them.
    fn encoded(&mut self, chunks: Chunks<'_>, sink: &mut Sink<'_, u8>) -> Result<(), SrsError>;
}

/// A maker for each group.
pub(crate) struct PointMakers<'m> {
    pub g1: &'m mut dyn PointMaker<blst_p1_affine>,
    pub g2: &'m mut dyn PointMaker<blst_p2_affine>,
}

/// Makes parameters for `shape` from `rng` (drawn as bellperson does) and writes the parameter file and the `.vk`
/// file, both atomically, the `.vk` file first. `progress(done, total)` counts points.
///
/// Cost: 16 additions per point; PoRep 2 KiB (10.2 million points of G1, 0.7 of G2) two to three minutes of one core,
/// and below 1.2 GB of memory.
///
/// # Errors
/// [`SrsError::Generate`] if the circuit has an unconstrained variable or is too large for the format;
/// [`SrsError::Io`] if a file cannot be written. No parameter file is then there, unless it was before; nor a `.vk` file, unless
/// it was the parameter file's last bytes, or its name, that the disk refused.
pub fn generate_params<R: RngCore>(
    shape: &R1csShape,
    rng: &mut R,
    params_path: &Path,
    vk_path: &Path,
    progress: PointProgress<'_>,
) -> Result<Generated, SrsError> {
    let generator = Generator::new(shape, rng)?;
    let (mut g1, mut g2) = (&generator.g1, &generator.g2);
    generator.write(PointMakers { g1: &mut g1, g2: &mut g2 }, params_path, vk_path, progress)
}

/// The same in memory, for tests and embedding hosts that try things out: small circuits only.
///
/// # Errors
/// [`SrsError::Generate`] if the circuit has an unconstrained variable.
pub fn generate_srs<R: RngCore>(shape: &R1csShape, rng: &mut R) -> Result<Srs, SrsError> {
    let generator = Generator::new(shape, rng)?;
    let (mut g1, mut g2) = (&generator.g1, &generator.g2);
    generator.in_memory(PointMakers { g1: &mut g1, g2: &mut g2 }, &|_, _| ())
}

/// The scalars of a setup, and the tables that make points of them.
pub(crate) struct Generator {
    setup: Setup,
    pub g1: FixedBase<blst_p1_affine>,
    pub g2: FixedBase<blst_p2_affine>,
}

impl Generator {
    pub fn new(shape: &R1csShape, rng: &mut impl RngCore) -> Result<Self, SrsError> {
        let setup = Setup::new(shape, Secrets::draw(rng))?;
        let queries = [Query::H, Query::L, Query::A, Query::BG1, Query::BG2];
        let counts = queries.map(|query| setup.num_points(query));
        if counts.iter().any(|count| u32::try_from(*count).is_err()) {
            return Err(refused("a query has more points than the format can count"));
        }
        let [h, l, a, b_g1, b_g2] = counts;
        let g1 = FixedBase::new(setup.secrets.g1, shape.num_inputs() + h + l + a + b_g1);
        let g2 = FixedBase::new(setup.secrets.g2, b_g2);
        Ok(Self { setup, g1, g2 })
    }

    /// Both files, as [`generate_params`] says.
    pub fn write(
        &self,
        makers: PointMakers<'_>,
        params_path: &Path,
        vk_path: &Path,
        progress: PointProgress<'_>,
    ) -> Result<Generated, SrsError> {
        let vk = self.vk();
        let mut params = SrsWriter::create(params_path, &vk)?;
        let PointMakers { g1, g2 } = makers;
        let mut count = Count { done: vk.ic.len() as u64, total: self.num_points(), progress };
        for query in [Query::H, Query::L, Query::A, Query::BG1] {
            self.write_query(query, g1, &mut params, &mut count)?;
        }
        self.write_query(Query::BG2, g2, &mut params, &mut count)?;
        let vk = write_vk(vk_path, &vk)?;
        let params = params.finish()?;
        Ok(Generated {
            params_bytes: params.num_bytes,
            params_sha256: params.sha256,
            vk_bytes: vk.num_bytes,
            vk_sha256: vk.sha256,
        })
    }

    fn write_query<P: RawPoint>(
        &self,
        query: Query,
        maker: &mut dyn PointMaker<P>,
        params: &mut SrsWriter,
        count: &mut Count<'_>,
    ) -> Result<(), SrsError> {
        params.begin_section(self.count(query))?;
        let scalars = self.setup.scalars(query, maker.chunk_scalars());
        maker.encoded(scalars, &mut |bytes| {
            params.write_encoded::<P>(bytes)?;
            count.advance(bytes.len() / P::BYTES);
            Ok(())
        })
    }

    /// The whole key.
    pub fn in_memory(&self, makers: PointMakers<'_>, progress: PointProgress<'_>) -> Result<Srs, SrsError> {
        let PointMakers { g1, g2 } = makers;
        let vk = self.vk();
        let mut count = Count { done: vk.ic.len() as u64, total: self.num_points(), progress };
        Ok(Srs {
            vk,
            basis: QuotientBasis::Coefficients,
            h: self.query(Query::H, g1, &mut count)?,
            l: self.query(Query::L, g1, &mut count)?,
            a: self.query(Query::A, g1, &mut count)?,
            b_g1: self.query(Query::BG1, g1, &mut count)?,
            b_g2: self.query(Query::BG2, g2, &mut count)?,
        })
    }

    fn query<P: RawPoint>(
        &self,
        query: Query,
        maker: &mut dyn PointMaker<P>,
        count: &mut Count<'_>,
    ) -> Result<Vec<P>, SrsError> {
        let mut points = Vec::with_capacity(self.setup.num_points(query));
        let scalars = self.setup.scalars(query, maker.chunk_scalars());
        maker.points(scalars, &mut |made| {
            // In parallel: the first touch of fresh memory is what takes the time.
            points.par_extend(made.par_iter().copied().with_min_len(1 << 12));
            count.advance(made.len());
            Ok(())
        })?;
        Ok(points)
    }

    fn count(&self, query: Query) -> u32 {
        u32::try_from(self.setup.num_points(query)).expect("checked when the generator was made")
    }

    fn num_points(&self) -> u64 {
        let queries = [Query::H, Query::L, Query::A, Query::BG1, Query::BG2];
        let counts = queries.map(|query| u64::from(self.count(query)));
        counts.iter().sum::<u64>() + self.setup.ic().len() as u64
    }

    fn vk(&self) -> VerifyingKey {
        let Secrets { g1, g2, alpha, beta, gamma, delta, .. } = &self.setup.secrets;
        VerifyingKey {
            alpha_g1: (g1 * alpha).to_affine(),
            beta_g1: (g1 * beta).to_affine(),
            beta_g2: (g2 * beta).to_affine(),
            gamma_g2: (g2 * gamma).to_affine(),
            delta_g1: (g1 * delta).to_affine(),
            delta_g2: (g2 * delta).to_affine(),
            ic: self.g1.multiply(&self.setup.ic()).into_iter().map(RawPoint::to_affine).collect(),
        }
    }
}

/// Points made so far.
struct Count<'p> {
    done: u64,
    total: u64,
    progress: PointProgress<'p>,
}

impl Count<'_> {
    fn advance(&mut self, num_points: usize) {
        self.done += num_points as u64;
        (self.progress)(self.done, self.total);
    }
}

fn refused(what: impl Into<String>) -> SrsError {
    SrsError::Generate { what: what.into() }
}
