//! Test parameters with known secrets: the bytes bellperson's `generate_random_parameters` makes, by fixed-base
//! tables and streamed to the file. Anyone can forge proofs for them.
//!
//! bellperson keeps every point in projective and affine form and multiplies by wNAF; here a point is a few additions
//! from tables (`generate/fixed_base.rs`) and is written at once. Only the scalars stay in memory:
//! 96 B per variable (`generate/setup.rs`).

mod fixed_base;
mod setup;

use std::path::Path;

use blst::{blst_p1_affine, blst_p2_affine};
use group::Curve;
use rand_core::RngCore;

use self::fixed_base::FixedBase;
use self::setup::{Query, Secrets, Setup};
use crate::error::SrsError;
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

/// Makes parameters for `shape` from `rng` (drawn as bellperson does) and writes the parameter file and the `.vk`
/// file, both atomically, the `.vk` file first. `progress(done, total)` counts points.
///
/// Cost: 16 additions per point; PoRep 2 KiB (10.2 million points of G1, 0.7 of G2) some two minutes of one core,
/// and 0.8 GB of memory.
///
/// # Errors
/// [`SrsError::Generate`] if the circuit has an unconstrained variable or is too large for the format;
/// [`SrsError::Io`] if a file cannot be written. Neither file is then there, unless it was before.
pub fn generate_params<R: RngCore>(
    shape: &R1csShape,
    rng: &mut R,
    params_path: &Path,
    vk_path: &Path,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> Result<Generated, SrsError> {
    let generator = Generator::new(shape, rng)?;
    let vk = generator.vk();
    let mut params = SrsWriter::create(params_path, &vk)?;
    let total = generator.num_points();
    let mut done = vk.ic.len() as u64;
    let mut advance = |num_points: usize| {
        done += num_points as u64;
        progress(done, total);
    };
    for query in [Query::H, Query::L, Query::A, Query::BG1] {
        params.begin_section(generator.count(query))?;
        for scalars in generator.setup.scalars(query) {
            params.write_points(&generator.g1.multiply(&scalars))?;
            advance(scalars.len());
        }
    }
    params.begin_section(generator.count(Query::BG2))?;
    for scalars in generator.setup.scalars(Query::BG2) {
        params.write_points(&generator.g2.multiply(&scalars))?;
        advance(scalars.len());
    }
    let vk = write_vk(vk_path, &vk)?;
    let params = params.finish()?;
    Ok(Generated {
        params_bytes: params.num_bytes,
        params_sha256: params.sha256,
        vk_bytes: vk.num_bytes,
        vk_sha256: vk.sha256,
    })
}

/// The same in memory, for tests and embedding hosts that try things out: small circuits only.
///
/// # Errors
/// [`SrsError::Generate`] if the circuit has an unconstrained variable.
pub fn generate_srs<R: RngCore>(shape: &R1csShape, rng: &mut R) -> Result<Srs, SrsError> {
    let generator = Generator::new(shape, rng)?;
    let g1 = |query| {
        generator.setup.scalars(query).flat_map(|scalars| generator.g1.multiply(&scalars)).collect::<Vec<_>>()
    };
    Ok(Srs {
        vk: generator.vk(),
        h: g1(Query::H),
        l: g1(Query::L),
        a: g1(Query::A),
        b_g1: g1(Query::BG1),
        b_g2: generator
            .setup
            .scalars(Query::BG2)
            .flat_map(|scalars| generator.g2.multiply(&scalars))
            .collect(),
    })
}

/// The scalars of a setup, and the tables that make points of them.
struct Generator {
    setup: Setup,
    g1: FixedBase<blst_p1_affine>,
    g2: FixedBase<blst_p2_affine>,
}

impl Generator {
    fn new(shape: &R1csShape, rng: &mut impl RngCore) -> Result<Self, SrsError> {
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

fn refused(what: impl Into<String>) -> SrsError {
    SrsError::Generate { what: what.into() }
}
