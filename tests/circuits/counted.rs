//! The catalogue's sizes against Filecoin's blank circuits, counted as they are built: nothing is kept of a row, so a
//! circuit of 130 million constraints takes minutes and little memory.
//!
//! The large ones are counted where `CUZK_COUNT_ALL` is set, to 1 (the nightly run) or to their names, as in
//! `snap-64g,porep-64g`:
//!
//!     CUZK_COUNT_ALL=1 cargo test --release --test circuits counted -- --nocapture
//!
//! prints a line for each circuit, from which the table in `src/circuits/catalogue/sizes.rs` was made.

use bellpepper_core::{Circuit, ConstraintSystem, Index, LinearCombination, SynthesisError, Variable};
use blstrs::Scalar;
use cuzk::circuits::{CircuitSpec, ProofKind, SectorSize};
use ff::Field;
use filecoin_proofs::constants::{SectorShapeBase, SectorShapeSub8, SectorShapeTop2};
use filecoin_proofs::parameters::{setup_params, window_post_setup_params, winning_post_setup_params};
use filecoin_proofs::{DefaultPieceHasher, DefaultTreeHasher, MerkleTreeTrait};
use filecoin_proofs_api::{RegisteredPoStProof, RegisteredSealProof};
use storage_proofs_core::compound_proof::CompoundProof;
use storage_proofs_core::proof::ProofScheme;
use storage_proofs_porep::stacked::{StackedCompound, StackedDrg};
use storage_proofs_post::fallback::{FallbackPoSt, FallbackPoStCompound};
use storage_proofs_update::{EmptySectorUpdate, EmptySectorUpdateCompound, PublicParams};

/// Which variables occur in a matrix with a coefficient that is not zero.
#[derive(Default)]
struct Occurrences {
    inputs: Vec<bool>,
    aux: Vec<bool>,
    num_entries: u64,
}

impl Occurrences {
    fn note(&mut self, combination: &LinearCombination<Scalar>) {
        for (variable, coefficient) in combination.iter() {
            if *coefficient == Scalar::ZERO {
                continue;
            }
            self.num_entries += 1;
            let (seen, index) = match variable.get_unchecked() {
                Index::Input(index) => (&mut self.inputs, index),
                Index::Aux(index) => (&mut self.aux, index),
            };
            if seen.len() <= index {
                seen.resize(index + 1, false);
            }
            seen[index] = true;
        }
    }

    fn num_variables(&self) -> u64 {
        self.inputs.iter().chain(&self.aux).filter(|seen| **seen).count() as u64
    }
}

/// Counts; runs no assignment and keeps no row.
struct Counter {
    num_inputs: usize,
    num_aux: usize,
    num_constraints: u64,
    matrices: [Occurrences; 3],
}

impl ConstraintSystem<Scalar> for Counter {
    type Root = Self;

    fn alloc<F, A, AR>(&mut self, _: A, _: F) -> Result<Variable, SynthesisError>
    where
        F: FnOnce() -> Result<Scalar, SynthesisError>,
        A: FnOnce() -> AR,
        AR: Into<String>,
    {
        self.num_aux += 1;
        Ok(Variable::new_unchecked(Index::Aux(self.num_aux - 1)))
    }

    fn alloc_input<F, A, AR>(&mut self, _: A, _: F) -> Result<Variable, SynthesisError>
    where
        F: FnOnce() -> Result<Scalar, SynthesisError>,
        A: FnOnce() -> AR,
        AR: Into<String>,
    {
        self.num_inputs += 1;
        Ok(Variable::new_unchecked(Index::Input(self.num_inputs - 1)))
    }

    fn enforce<A, AR, LA, LB, LC>(&mut self, _: A, a: LA, b: LB, c: LC)
    where
        A: FnOnce() -> AR,
        AR: Into<String>,
        LA: FnOnce(LinearCombination<Scalar>) -> LinearCombination<Scalar>,
        LB: FnOnce(LinearCombination<Scalar>) -> LinearCombination<Scalar>,
        LC: FnOnce(LinearCombination<Scalar>) -> LinearCombination<Scalar>,
    {
        self.num_constraints += 1;
        self.matrices[0].note(&a(LinearCombination::zero()));
        self.matrices[1].note(&b(LinearCombination::zero()));
        self.matrices[2].note(&c(LinearCombination::zero()));
    }

    fn push_namespace<NR, N>(&mut self, _: N)
    where
        NR: Into<String>,
        N: FnOnce() -> NR,
    {
    }

    fn pop_namespace(&mut self) {}

    fn get_root(&mut self) -> &mut Self::Root {
        self
    }
}

/// What was counted, as the catalogue has it.
#[derive(Debug, PartialEq, Eq)]
struct Counted {
    constraints: u64,
    num_inputs: u64,
    num_aux: u64,
    domain_log2: u32,
    num_nonzero: [u64; 3],
    params_bytes: u64,
}

fn count(circuit: impl Circuit<Scalar>) -> Counted {
    let mut counter = Counter {
        num_inputs: 1,
        num_aux: 0,
        num_constraints: 0,
        matrices: [(); 3].map(|()| Occurrences::default()),
    };
    circuit.synthesize(&mut counter).unwrap();
    let Counter { num_inputs, num_aux, num_constraints, mut matrices } = counter;
    // The row `input i · 0 = 0` that the prover adds for each input.
    for index in 0..num_inputs {
        let input = Variable::new_unchecked(Index::Input(index));
        matrices[0].note(&LinearCombination::from_variable(input));
    }
    let (num_inputs, num_aux) = (num_inputs as u64, num_aux as u64);
    let domain_log2 = (num_constraints + num_inputs).next_power_of_two().ilog2();
    let [a, b, c] = &matrices;
    // A parameter file: three points of each group, six counts, and the queries; a variable that does not occur in A
    // or B has no point there.
    let g1 = num_inputs + ((1 << domain_log2) - 1) + num_aux + a.num_variables() + b.num_variables();
    Counted {
        constraints: num_constraints,
        num_inputs,
        num_aux,
        domain_log2,
        num_nonzero: [a.num_entries, b.num_entries, c.num_entries],
        params_bytes: 3 * 96 + 3 * 192 + 6 * 4 + 96 * g1 + 192 * b.num_variables(),
    }
}

fn count_porep<Tree: 'static + MerkleTreeTrait<Hasher = DefaultTreeHasher>>(
    proof: RegisteredSealProof,
) -> Counted {
    type Scheme<Tree> = StackedDrg<'static, Tree, DefaultPieceHasher>;
    let params = Scheme::<Tree>::setup(&setup_params(&proof.as_v1_config()).unwrap()).unwrap();
    count(<StackedCompound<Tree, DefaultPieceHasher> as CompoundProof<Scheme<Tree>, _>>::blank_circuit(
        &params,
    ))
}

fn count_snap<Tree: 'static + MerkleTreeTrait<Hasher = DefaultTreeHasher>>(size: SectorSize) -> Counted {
    let params = PublicParams::from_sector_size(size.bytes());
    type Compound<Tree> = EmptySectorUpdateCompound<Tree>;
    count(<Compound<Tree> as CompoundProof<EmptySectorUpdate<Tree>, _>>::blank_circuit(&params))
}

fn count_post<Tree: 'static + MerkleTreeTrait<Hasher = DefaultTreeHasher>>(
    kind: ProofKind,
    proof: RegisteredPoStProof,
) -> Counted {
    let config = proof.as_v1_config();
    let setup = match kind {
        ProofKind::WinningPost => winning_post_setup_params(&config).unwrap(),
        _ => window_post_setup_params(&config),
    };
    let params = FallbackPoSt::<Tree>::setup(&setup).unwrap();
    count(<FallbackPoStCompound<Tree> as CompoundProof<FallbackPoSt<Tree>, _>>::blank_circuit(&params))
}

fn count_with_tree<Tree: 'static + MerkleTreeTrait<Hasher = DefaultTreeHasher>>(
    spec: &CircuitSpec,
) -> Counted {
    use {RegisteredPoStProof as Post, RegisteredSealProof as Seal};
    let (seal, window, winning) = match spec.sector_size {
        SectorSize::Size2KiB => {
            (Seal::StackedDrg2KiBV1_1, Post::StackedDrgWindow2KiBV1_2, Post::StackedDrgWinning2KiBV1)
        }
        SectorSize::Size8MiB => {
            (Seal::StackedDrg8MiBV1_1, Post::StackedDrgWindow8MiBV1_2, Post::StackedDrgWinning8MiBV1)
        }
        SectorSize::Size512MiB => {
            (Seal::StackedDrg512MiBV1_1, Post::StackedDrgWindow512MiBV1_2, Post::StackedDrgWinning512MiBV1)
        }
        SectorSize::Size32GiB => {
            (Seal::StackedDrg32GiBV1_1, Post::StackedDrgWindow32GiBV1_2, Post::StackedDrgWinning32GiBV1)
        }
        SectorSize::Size64GiB => {
            (Seal::StackedDrg64GiBV1_1, Post::StackedDrgWindow64GiBV1_2, Post::StackedDrgWinning64GiBV1)
        }
    };
    match spec.kind {
        ProofKind::PorepSealCommit => count_porep::<Tree>(seal),
        ProofKind::SnapDealsUpdate => count_snap::<Tree>(spec.sector_size),
        ProofKind::WindowPostPartition => count_post::<Tree>(spec.kind, window),
        ProofKind::WinningPost => count_post::<Tree>(spec.kind, winning),
    }
}

fn counted(spec: &CircuitSpec) -> Counted {
    match spec.sector_size {
        SectorSize::Size2KiB | SectorSize::Size8MiB | SectorSize::Size512MiB => {
            count_with_tree::<SectorShapeBase>(spec)
        }
        SectorSize::Size32GiB => count_with_tree::<SectorShapeSub8>(spec),
        SectorSize::Size64GiB => count_with_tree::<SectorShapeTop2>(spec),
    }
}

impl Counted {
    fn of_catalogue(spec: &CircuitSpec) -> Option<Self> {
        let sizes = spec.sizes()?;
        Some(Self {
            constraints: sizes.constraints,
            num_inputs: sizes.num_inputs,
            num_aux: sizes.num_aux,
            domain_log2: sizes.domain_log2,
            num_nonzero: sizes.num_nonzero?,
            params_bytes: sizes.params_bytes?,
        })
    }
}

#[test]
fn every_circuits_size_is_that_of_its_blank_circuit() {
    let chosen = std::env::var("CUZK_COUNT_ALL").ok();
    let is_chosen = |spec: &CircuitSpec| match chosen.as_deref() {
        None => spec.sizes().is_some_and(|sizes| sizes.constraints < 1_000_000),
        Some("1") => true,
        Some(names) => names.split(',').any(|name| name == spec.id().as_str()),
    };
    let specs: Vec<CircuitSpec> = CircuitSpec::all().into_iter().filter(is_chosen).collect();
    assert!(
        chosen.is_some() || specs.len() == 8,
        "WinningPoSt of all sizes, WindowPoSt of the small ones: {specs:?}"
    );
    let mut wrong = Vec::new();
    for spec in specs {
        let counted = counted(&spec);
        println!("{spec}: {counted:?}");
        let known = Counted::of_catalogue(&spec);
        if known.as_ref() != Some(&counted) {
            wrong.push(format!("{spec}: counted {counted:?}, the catalogue has {known:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
