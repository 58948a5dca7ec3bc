//! Native witnesses against the library's, on small instances of a circuit.
//!
//! An instance has the tree of the circuit it stands for, but one challenge, two layers, short data paths, few apex
//! leaves: whatever repeats, repeats in the same form. Its nodes are random, so no hash of it is right; witnesses do
//! not ask.

use blstrs::Scalar;
use ff::Field;
use filecoin_hashers::poseidon::PoseidonDomain;
use filecoin_hashers::sha256::{Sha256Domain, Sha256Hasher};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use storage_proofs_core::compound_proof::CompoundProof;
use storage_proofs_core::drgraph::BASE_DEGREE;
use storage_proofs_core::merkle::MerkleProofTrait;
use storage_proofs_core::sector::SectorId;
use storage_proofs_porep::stacked::{self, StackedCompound, StackedDrg, EXP_DEGREE};
use storage_proofs_post::fallback::{self, FallbackPoStCircuit, PublicSector};
use storage_proofs_update::{EmptySectorUpdate, EmptySectorUpdateCompound};

use super::names::variable_name;
use super::writer::node;
use super::{porep, post, snap, Misfit, Path};
use crate::circuits::library::refused;
use crate::circuits::vanilla::{DataPath, SectorTree, TreePath};
use crate::circuits::workload::catch_panic;
use crate::error::SynthesisError;
use crate::groth16::density::Density;
use crate::groth16::packed::{PackedWitness, VariableClasses};
use crate::groth16::sink::{synthesis, Synthesis};
use crate::groth16::Assignment;

/// Instances are the same every time: a check that fails does so in every process.
const SEED: u64 = 0x6e61_7469_7665;

const DATA_LEVELS: usize = 2;

/// Where an instance's nodes come from.
pub(super) struct Nodes {
    rng: ChaCha8Rng,
    all: Option<Scalar>,
}

impl Nodes {
    fn random() -> Self {
        Self { rng: ChaCha8Rng::seed_from_u64(SEED), all: None }
    }

    /// Every node is `value`; indices are random all the same.
    #[cfg(test)]
    fn all(value: Scalar) -> Self {
        Self { all: Some(value), ..Self::random() }
    }

    fn scalar(&mut self) -> Scalar {
        let random = Scalar::random(&mut self.rng);
        self.all.unwrap_or(random)
    }

    fn replica(&mut self) -> PoseidonDomain {
        self.scalar().into()
    }

    fn data(&mut self) -> Sha256Domain {
        Sha256Domain(node(&self.scalar()))
    }

    fn replica_path<T: SectorTree>(&mut self, arities: &[usize]) -> TreePath<T> {
        let level = |arity: &usize| -> (Vec<PoseidonDomain>, usize) {
            let index = self.rng.gen_range(0..*arity);
            ((1..*arity).map(|_| self.replica()).collect(), index)
        };
        let levels = arities.iter().map(level).collect();
        TreePath::<T>::from_parts(self.replica(), self.replica(), levels)
    }

    fn data_path(&mut self, num_levels: usize) -> DataPath {
        let levels = (0..num_levels).map(|_| (vec![self.data()], self.rng.gen_range(0..2))).collect();
        DataPath::from_parts(self.data(), self.data(), levels)
    }
}

/// PoRep with trees whose paths have `arities`.
///
/// # Errors
/// What differs, by name.
pub(in crate::circuits) fn check_porep<T: SectorTree>(
    params: &stacked::PublicParams<T>,
    arities: &[usize],
) -> Result<(), String> {
    compare_porep(params, arities, &mut Nodes::random())
}

fn compare_porep<T: SectorTree>(
    params: &stacked::PublicParams<T>,
    arities: &[usize],
    nodes: &mut Nodes,
) -> Result<(), String> {
    let challenge: u64 = nodes.rng.gen();
    let column = |nodes: &mut Nodes, native: &mut Vec<porep::Column>| {
        let rows = [nodes.replica(), nodes.replica()];
        let path = nodes.replica_path::<T>(arities);
        native.push(porep::Column::new(rows.map(<[u8; 32]>::from).to_vec(), Path::new(&path)));
        stacked::ColumnProof::new(0, rows.into(), path)
    };
    let (mut drg_parents, mut exp_parents) = (Vec::new(), Vec::new());
    let column_path = nodes.replica_path::<T>(arities);
    let vanilla = stacked::Proof::<T, Sha256Hasher> {
        comm_d_proofs: nodes.data_path(DATA_LEVELS),
        comm_r_last_proof: nodes.replica_path::<T>(arities),
        replica_column_proofs: stacked::ReplicaColumnProof {
            c_x: stacked::ColumnProof::new(0, [nodes.replica(), nodes.replica()].into(), column_path.clone()),
            drg_parents: (0..BASE_DEGREE).map(|_| column(nodes, &mut drg_parents)).collect(),
            exp_parents: (0..EXP_DEGREE).map(|_| column(nodes, &mut exp_parents)).collect(),
        },
        labeling_proofs: vec![stacked::LabelingProof::new(1, challenge, Vec::new())],
        encoding_proof: stacked::EncodingProof::new(1, challenge, Vec::new()),
    };
    let tau = stacked::Tau { comm_d: nodes.data(), comm_r: nodes.replica() };
    let inputs =
        stacked::PublicInputs { replica_id: nodes.replica(), seed: None, tau: Some(tau.clone()), k: None };
    let commitments = porep::Commitments {
        replica_id: inputs.replica_id,
        comm_d: tau.comm_d,
        comm_r: tau.comm_r,
        comm_r_last: vanilla.comm_r_last(),
        comm_c: vanilla.comm_c(),
    };
    let native = porep::Challenge {
        challenge,
        data: Path::new(&vanilla.comm_d_proofs),
        replica: Path::new(&vanilla.comm_r_last_proof),
        column: Path::new(&column_path),
        drg_parents,
        exp_parents,
    };
    let proofs = vec![vanilla];
    let circuit = || {
        <StackedCompound<T, Sha256Hasher> as CompoundProof<StackedDrg<'_, T, Sha256Hasher>, _>>::circuit(
            &inputs,
            (),
            &proofs,
            params,
            None,
        )
        .map(synthesis)
        .map_err(refused)
    };
    compare(&circuit, |classes| porep::witness(classes, &commitments, &[native]))
}

/// PoSt with trees whose paths have `arities`.
///
/// # Errors
/// What differs, by name.
pub(in crate::circuits) fn check_post<T: SectorTree>(arities: &[usize]) -> Result<(), String> {
    compare_post::<T>(arities, &mut Nodes::random())
}

fn compare_post<T: SectorTree>(arities: &[usize], nodes: &mut Nodes) -> Result<(), String> {
    let sectors: Vec<_> = (1..=2)
        .map(|number| {
            let proof = fallback::SectorProof::<T::Proof> {
                inclusion_proofs: (0..2).map(|_| nodes.replica_path::<T>(arities)).collect(),
                comm_c: nodes.replica(),
                comm_r_last: nodes.replica(),
            };
            (PublicSector { id: SectorId::from(number), comm_r: nodes.replica() }, proof)
        })
        .collect();
    let circuit = || {
        let sectors = sectors.iter().map(|(public, proof)| fallback::Sector::<T>::circuit(public, proof));
        let sectors = sectors.collect::<Result<_, _>>().map_err(refused)?;
        Ok(synthesis(FallbackPoStCircuit::<T> { prover_id: None, sectors }))
    };
    let places: Vec<_> =
        sectors.iter().map(|(public, proof)| post::Place { comm_r: public.comm_r.into(), proof }).collect();
    compare(&circuit, |classes| post::witness(classes, &places))
}

/// SnapDeals of the circuit with `params` and trees whose paths have `arities`.
///
/// # Errors
/// What differs, by name.
pub(in crate::circuits) fn check_snap<T: SectorTree>(
    params: &storage_proofs_update::PublicParams,
    h: usize,
    arities: &[usize],
) -> Result<(), String> {
    compare_snap::<T>(params, h, arities, &mut Nodes::random())
}

fn compare_snap<T: SectorTree>(
    params: &storage_proofs_update::PublicParams,
    h: usize,
    arities: &[usize],
    nodes: &mut Nodes,
) -> Result<(), String> {
    let params = storage_proofs_update::PublicParams {
        challenge_count: 1,
        apex_leaf_count: 2,
        apex_leaf_bit_len: 1,
        ..params.clone()
    };
    let inputs = storage_proofs_update::PublicInputs {
        k: params.partition_count - 1,
        comm_r_old: nodes.replica(),
        comm_d_new: nodes.data(),
        comm_r_new: nodes.replica(),
        h,
    };
    let challenge_proof = storage_proofs_update::ChallengeProof::<T> {
        proof_r_old: nodes.replica_path::<T>(arities),
        proof_d_new: nodes.data_path(params.challenge_bit_len),
        proof_r_new: nodes.replica_path::<T>(arities),
    };
    let mut proof = storage_proofs_update::PartitionProof {
        comm_c: nodes.replica(),
        apex_leafs: vec![nodes.data(), nodes.data()],
        challenge_proofs: vec![challenge_proof],
    };
    // The library asserts that the new leaf is the encoded one.
    let encoded =
        snap::Partition { params: &params, inputs: &inputs, number: inputs.k, proof: &proof }.encoded(0);
    let levels = proof.challenge_proofs[0].proof_r_new.path();
    proof.challenge_proofs[0].proof_r_new =
        TreePath::<T>::from_parts(encoded.into(), nodes.replica(), levels);
    let circuit = || {
        <EmptySectorUpdateCompound<T> as CompoundProof<EmptySectorUpdate<T>, _>>::circuit(
            &inputs,
            (),
            &proof,
            &params,
            None,
        )
        .map(synthesis)
        .map_err(refused)
    };
    let partition = snap::Partition { params: &params, inputs: &inputs, number: inputs.k, proof: &proof };
    compare(&circuit, |classes| snap::witness(classes, &partition))
}

/// Makes a witness in both ways. Variables count as bits where the library's value is one: it has to be the same
/// value, whatever it is filed as.
fn compare<'a>(
    circuit: &dyn Fn() -> Result<Synthesis<'a>, SynthesisError>,
    native: impl FnOnce(&VariableClasses) -> Result<PackedWitness, Misfit>,
) -> Result<(), String> {
    let library = catch_panic(|| Assignment::collect(circuit()?)).map_err(|error| error.to_string())?;
    let values = &library.aux_assignment;
    let mut dense = Density::new(values.len());
    let is_dense = |value: Scalar| value != Scalar::ZERO && value != Scalar::ONE;
    (0..values.len()).filter(|&aux| is_dense(values[aux])).for_each(|aux| dense.set(aux));
    let classes = VariableClasses::from_dense(dense);
    let native = native(&classes).map_err(|misfit| match misfit {
        Misfit::NotABit { aux } => name_difference(circuit, aux),
        other => other.to_string(),
    })?;
    let library = PackedWitness::pack(&library, &classes).expect("bits are those that are");
    if library.inputs != native.inputs {
        let same =
            library.inputs.iter().zip(&native.inputs).take_while(|(library, native)| library == native);
        return Err(format!("public input {} differs", same.count()));
    }
    match first_difference(&classes, &library, &native) {
        None => Ok(()),
        Some(aux) => Err(name_difference(circuit, aux)),
    }
}

fn name_difference<'a>(circuit: &dyn Fn() -> Result<Synthesis<'a>, SynthesisError>, aux: usize) -> String {
    let name = circuit().map_or_else(|error| error.to_string(), |circuit| variable_name(circuit, aux));
    format!("variable {aux} ({name}) differs")
}

/// The first variable whose value differs between two witnesses of one circuit.
fn first_difference(classes: &VariableClasses, left: &PackedWitness, right: &PackedWitness) -> Option<usize> {
    let word = left.bits.iter().zip(&right.bits).position(|(left, right)| left != right);
    let bit = word.map(|word| 64 * word + (left.bits[word] ^ right.bits[word]).trailing_zeros() as usize);
    let rank = left.dense.iter().zip(&right.dense).position(|(left, right)| left != right);
    let dense = rank.and_then(|rank| classes.dense().iter_ones_from(rank).next());
    bit.into_iter().chain(dense).min()
}

#[cfg(test)]
mod tests {
    use filecoin_proofs::constants::{SectorShapeBase, SectorShapeSub8, SectorShapeTop2};
    use storage_proofs_core::merkle::MerkleTreeTrait;

    use super::*;

    /// 0, 1, the largest scalar, the largest label, and what sets every other bit.
    fn extreme_values() -> [Scalar; 5] {
        let largest_label = (0..254).fold(Scalar::ZERO, |sum, _| sum.double() + Scalar::ONE);
        let every_other = (0..127).fold(Scalar::ZERO, |sum, _| sum.double().double() + Scalar::ONE);
        [Scalar::ZERO, Scalar::ONE, -Scalar::ONE, largest_label, every_other]
    }

    fn all_nodes() -> impl Iterator<Item = Nodes> {
        std::iter::once(Nodes::random()).chain(extreme_values().map(Nodes::all))
    }

    #[test]
    fn post_witnesses_of_all_trees_are_the_librarys() {
        for mut nodes in all_nodes() {
            compare_post::<SectorShapeBase>(&[8, 8], &mut nodes).unwrap();
            compare_post::<SectorShapeSub8>(&[8, 8, 8], &mut nodes).unwrap();
            compare_post::<SectorShapeTop2>(&[8, 8, 2], &mut nodes).unwrap();
        }
    }

    fn porep_params<T: SectorTree>() -> stacked::PublicParams<T> {
        let setup = stacked::SetupParams {
            nodes: 64,
            degree: BASE_DEGREE,
            expansion_degree: EXP_DEGREE,
            porep_id: [1; 32],
            challenges: stacked::Challenges::new_interactive(1),
            num_layers: 2,
            api_version: storage_proofs_core::api_version::ApiVersion::V1_1_0,
            api_features: Vec::new(),
        };
        <StackedDrg<'_, T, Sha256Hasher> as storage_proofs_core::proof::ProofScheme<'_>>::setup(&setup)
            .unwrap()
    }

    /// Among them: all-zero and all-one labels, and parents that are all the same.
    #[test]
    fn porep_witnesses_of_extreme_nodes_are_the_librarys() {
        for mut nodes in all_nodes() {
            compare_porep::<SectorShapeTop2>(&porep_params(), &[8, 8, 2], &mut nodes).unwrap();
        }
    }

    #[test]
    fn snap_witnesses_of_extreme_nodes_are_the_librarys() {
        for mut nodes in all_nodes() {
            let params = storage_proofs_update::PublicParams::from_sector_size(16 << 10);
            compare_snap::<SectorShapeSub8>(&params, 1, &[8, 8, 8], &mut nodes).unwrap();
        }
        let params = storage_proofs_update::PublicParams::from_sector_size(64 << 30);
        let arities: Vec<usize> = std::iter::repeat_n(8, 10).chain([2]).collect();
        for h in [7, 10, 12] {
            compare_snap::<SectorShapeTop2>(&params, h, &arities, &mut Nodes::random()).unwrap();
        }
    }

    #[test]
    fn a_difference_is_named() {
        let nodes = &mut Nodes::random();
        let sector = fallback::SectorProof::<<SectorShapeBase as MerkleTreeTrait>::Proof> {
            inclusion_proofs: vec![nodes.replica_path::<SectorShapeBase>(&[8])],
            comm_c: nodes.replica(),
            comm_r_last: nodes.replica(),
        };
        let public = PublicSector { id: SectorId::from(1), comm_r: nodes.replica() };
        let circuit = || {
            fallback::Sector::<SectorShapeBase>::circuit(&public, &sector)
                .map(|sector| synthesis(FallbackPoStCircuit { prover_id: None, sectors: vec![sector] }))
                .map_err(refused)
        };
        let mut other = sector.clone();
        other.comm_c = nodes.replica();
        let place = post::Place { comm_r: public.comm_r.into(), proof: &other };
        let why = compare(&circuit, |classes| post::witness(classes, &[place])).unwrap_err();
        assert_eq!(why, "variable 1 (outer namespace/sector_0/comm_c/num) differs");
        let place = post::Place { comm_r: Scalar::from(7), proof: &sector };
        let why = compare(&circuit, |classes| post::witness(classes, &[place])).unwrap_err();
        assert_eq!(why, "public input 1 differs");
    }
}
