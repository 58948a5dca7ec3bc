//! Folded keys: the quotient in the Lagrange basis, with C made part of the points.
//!
//! Let `D = {ω^j}` be the domain, `n` its size, `a_j`, `b_j`, `c_j` the row values of a satisfied witness `x`, so that
//! `c_j = a_j b_j`, and `ã_j` the values of `X a'(X)` on `D`: each coefficient times its index, transformed back. The
//! quotient `h = (a·b - c) / (Xⁿ - 1)` is 0/0 on `D`; by l'Hôpital's rule its values there are
//! `h(ω^j) = (ã_j b_j + a_j b̃_j - c̃_j) / n`. With `H_i` the points of the key's `h` query, `i ≤ n - 2`,
//!
//! ```text
//! Σ_i h_i H_i = Σ_j t_j Λ_j - Σ_k x_k F_k          t_j = (ã_j b_j + a_j b̃_j) / n²
//!
//! Λ_j = Σ_i ω^-ij H_i                              takes the place of h: [n]
//! μ_j = 1/n² Σ_i i ω^-ij H_i
//! F_k = Σ_j C_jk μ_j                               -F_k for inputs and L_k - F_k for aux take the place of l
//! ```
//!
//! The sum over `c̃` is one over the `c_j`, hence over `C·x`, hence one of fixed points by the variables. Both parts leave
//! out coefficient `n - 1`, which is equal in them: `h` has none. (The factor 1/n² is in `t` because it costs nothing
//! there, and a multiplication of every point in `Λ`.)
//!
//! What it buys, for every proof: four transforms instead of six, no `C·x`, and a scalar that is exactly zero wherever
//! `a_j = b_j = 0`: a fifth of the rows of SHA-256, and all rows that only fill the domain. What it costs, once for a key:
//! two transforms of points ([`PointTransform`]). All of it is public.
//!
//! ```text
//! Fold::build            transform.rs, columns.rs   or generate::fold_from_secrets, for test keys
//! Fold::check            check.rs                   random-vector identities: before any use
//! Fold::save, load_fold  file.rs                    one file beside the parameter file, named by what it is of
//! Fold::apply            an Srs of QuotientBasis::Lagrange, which the provers then take
//! ```
//!
//! With an unsatisfied witness a folded key gives another proof than the plain one, and neither verifies.

mod check;
mod columns;
mod file;
mod transform;

use std::fmt;
use std::path::Path;

use blst::blst_p1_affine;

pub use file::{fold_path, is_beside, load_fold, may_be_used, FoldKey, FoldSizes, LoadOptions};
#[cfg(feature = "cuda")]
pub(crate) use transform::index_weight;
pub use transform::{HostTransform, PointTransform, Weights};

use crate::error::FoldError;
use crate::groth16::srs::QuotientBasis;
use crate::groth16::srs_file::{Progress, Stop};
use crate::groth16::{R1csShape, Srs};

/// The points that replace two queries of a key.
#[derive(Clone, PartialEq, Eq)]
pub struct Fold {
    /// In place of `h`: `Λ_j`, `[n]`.
    pub h: Vec<blst_p1_affine>,
    /// In place of `l`: `-F_k` for each input, the identity where C has no entry, then `L_k - F_k` for each aux variable.
    pub l: Vec<blst_p1_affine>,
}

impl fmt::Debug for Fold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fold").field("h", &self.h.len()).field("l", &self.l.len()).finish()
    }
}

/// How long a fold takes and whether it is still wanted.
#[derive(Clone, Copy)]
pub struct Watch<'a> {
    /// Told `(done, total)`, in steps of about equal length.
    pub progress: Progress<'a>,
    pub is_stopped: Stop<'a>,
}

impl Watch<'_> {
    /// Reports to nobody and is never stopped.
    pub const NONE: Watch<'static> = Watch { progress: &|_, _| (), is_stopped: &|| false };

    fn check(&self) -> Result<(), FoldError> {
        if (self.is_stopped)() {
            return Err(FoldError::Stopped);
        }
        Ok(())
    }
}

impl Fold {
    /// Makes the fold of a plain key. `transform` does the two transforms, which are nearly all of the work:
    /// `n/2 · log2(n)` multiplications of points each.
    ///
    /// Memory beside the key: two vectors of `n` affine points, the transform's own, and 144 B for each variable.
    ///
    /// # Errors
    /// [`FoldError::Key`] if the key is folded already or of another circuit, [`FoldError::Stopped`], or the transform's.
    pub fn build(
        srs: &Srs,
        shape: &R1csShape,
        transform: &mut dyn PointTransform,
        watch: Watch<'_>,
    ) -> Result<Self, FoldError> {
        check_plain(srs, shape)?;
        let steps = transform.num_steps(shape.domain_log2());
        let total = 2 * steps + 1;
        let part = |before: u64| move |done: u64, _: u64| (watch.progress)(before + done, total);
        let (first, second) = (part(0), part(steps));
        let mu = transform.run(&srs.h, Weights::Indices, Watch { progress: &first, ..watch })?;
        let l = columns::folded_l(shape, &srs.l, &mu, watch)?;
        drop(mu);
        let h = transform.run(&srs.h, Weights::None, Watch { progress: &second, ..watch })?;
        (watch.progress)(total, total);
        Ok(Self { h, l })
    }

    /// Whether this is the fold of `srs` for `shape`, by identities between sums with random scalars, and by the subgroup
    /// check of every point: a point that is not what it should be is missed with probability 2^-64 at most. `path` is
    /// for messages.
    ///
    /// Cost: five multi-exponentiations of the domain's size. Memory: [`check_bytes`].
    ///
    /// # Errors
    /// [`FoldError::Key`], [`FoldError::Wrong`] naming the query, [`FoldError::Point`] for one outside the subgroup,
    /// [`FoldError::Stopped`].
    ///
    /// # Panics
    /// If the operating system gives no random numbers.
    pub fn check(
        &self,
        srs: &Srs,
        shape: &R1csShape,
        path: &Path,
        watch: Watch<'_>,
    ) -> Result<(), FoldError> {
        check_plain(srs, shape)?;
        check::check(self, srs, shape, path, watch)
    }

    /// The folded key. The plain one's `h` and `l` are given up.
    #[must_use]
    pub fn apply(self, srs: Srs) -> Srs {
        Srs { h: self.h, l: self.l, basis: QuotientBasis::Lagrange, ..srs }
    }

    /// Bytes of its points in memory.
    pub fn num_bytes(&self) -> u64 {
        (size_of::<blst_p1_affine>() * (self.h.len() + self.l.len())) as u64
    }
}

/// Bytes that [`Fold::check`] takes beside key and fold, but for a few MB of each thread and some 100 MB of its subgroup checks.
pub fn check_bytes(domain_log2: u32) -> u64 {
    check::num_bytes(domain_log2)
}

fn check_plain(srs: &Srs, shape: &R1csShape) -> Result<(), FoldError> {
    if srs.basis != QuotientBasis::Coefficients {
        return Err(FoldError::Key { what: "it is folded already".to_owned() });
    }
    srs.check_fits(shape).map_err(|error| FoldError::Key { what: error.to_string() })
}
