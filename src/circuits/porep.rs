//! PoRep C2: the proofs that a sector was sealed, from the output of commit phase 1.

mod checks;
mod library_form;

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use blstrs::Scalar;
use filecoin_hashers::poseidon::{PoseidonDomain, PoseidonHasher};
use filecoin_hashers::sha256::{Sha256Domain, Sha256Hasher};
use filecoin_proofs::parameters::setup_params;
use filecoin_proofs::PoRepConfig;
use rayon::prelude::*;
use storage_proofs_core::compound_proof::{self, CompoundProof};
use storage_proofs_core::drgraph::Graph;
use storage_proofs_porep::stacked::{
    self, generate_replica_id, ChallengeRequirements, Challenges, StackedCompound, StackedDrg,
};

use crate::circuits::catalogue::{ProofVersion, RegisteredProof};
use crate::circuits::library::{
    accepted, answers_of_header, compares_streamed, prepared_key, read_proofs, refused, refused_request,
};
use crate::circuits::request::{prover_id, FilecoinRequest, JobHeader, TestScale};
use crate::circuits::vanilla::c1::{C1Form, C1Text, C1};
use crate::circuits::vanilla::{with_tree, SectorTree, TreePath};
use crate::circuits::workload::partition_of;
use crate::circuits::{native, CircuitSpec, ProofKind, WorkKind, Workload};
use crate::error::{RequestError, SynthesisError};
use crate::groth16::sink::{synthesis, Synthesis};
use crate::groth16::{PackedWitness, R1csShape, VerifyingKey};
use crate::ids::PartitionIndex;
use crate::loops;

use checks::check_partition;
pub(super) use library_form::{assemble, parents};

type Compound<Tree> = StackedCompound<Tree, Sha256Hasher>;
type Scheme<Tree> = StackedDrg<'static, Tree, Sha256Hasher>;
pub(super) type PublicParams<Tree> = compound_proof::PublicParams<'static, Scheme<Tree>>;
pub(super) type PublicInputs = stacked::PublicInputs<PoseidonDomain, Sha256Domain>;
pub(super) type VanillaProof<Tree> = stacked::Proof<Tree, Sha256Hasher>;
pub(super) type Column<Tree> = stacked::ColumnProof<TreePath<Tree>>;
pub(super) type Columns<Tree> = stacked::ReplicaColumnProof<TreePath<Tree>>;

/// A decoded PoRep request.
struct PorepJob<Tree: SectorTree> {
    header: JobHeader,
    spec: CircuitSpec,
    params: PublicParams<Tree>,
    inputs: PublicInputs,
    minimum_challenges: usize,
    partitions: Vec<Partition<Tree>>,
}

/// A partition's vanilla proofs, `[challenge]`.
struct Partition<Tree: SectorTree> {
    proofs: Vec<VanillaProof<Tree>>,
    /// What the circuit reads of them: the library keeps its columns' paths to itself.
    challenges: Vec<native::porep::Challenge>,
}

impl<Tree: SectorTree> fmt::Debug for PorepJob<Tree> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PorepJob")
            .field("header", &self.header)
            .field("partitions", &self.partitions.len())
            .finish_non_exhaustive()
    }
}

/// Decodes and checks a PoRep request.
pub(super) fn decode(
    request: &FilecoinRequest,
    params_dir: &Path,
) -> Result<Arc<dyn Workload>, RequestError> {
    if request.vanilla_proof.is_empty() {
        return Err(request.field_error("vanilla_proof", "is empty, needs the JSON of a C1"));
    }
    let text = C1Text::read(&request.vanilla_proof)?;
    let sector_number = check_said(request, &text)?;
    with_tree!(text.registered.sector_size, decode_tree(request, text, sector_number, params_dir))
}

fn decode_tree<Tree: SectorTree>(
    request: &FilecoinRequest,
    text: C1Text,
    sector_number: u64,
    params_dir: &Path,
) -> Result<Arc<dyn Workload>, RequestError> {
    let registered = text.registered;
    let config = registered.porep_config();
    let (spec, num_partitions) = circuit_and_partitions(request, &registered, &config)?;
    let params = public_params::<Tree>(&config, &spec, num_partitions).map_err(refused_request)?;
    let c1 = text.into_c1(c1_form(&params, num_partitions))?;
    let inputs = public_inputs(&c1, &config, request.miner_id, sector_number)?;
    let check = |(number, challenges)| check_partition(number, challenges, &params, &inputs);
    let partitions = c1.partitions;
    let checked: Vec<Result<_, _>> =
        loops::run(|| partitions.into_par_iter().enumerate().map(check).collect());
    // The first one's error, whichever came first.
    let partitions = checked.into_iter().collect::<Result<_, _>>()?;
    let minimum_challenges = match request.test_scale {
        Some(scale) => (scale.challenges * scale.partitions) as usize,
        None => config.minimum_challenges(),
    };
    Ok(Arc::new(PorepJob {
        header: JobHeader::new(request, registered, &spec, params_dir, sector_number),
        spec,
        params,
        inputs,
        minimum_challenges,
        partitions,
    }))
}

/// The network's circuit and number of partitions; or, where the request says that it is scaled for a test, what it
/// says.
fn circuit_and_partitions(
    request: &FilecoinRequest,
    registered: &RegisteredProof,
    config: &PoRepConfig,
) -> Result<(CircuitSpec, usize), RequestError> {
    let network = CircuitSpec::new(ProofKind::PorepSealCommit, registered.sector_size);
    let Some(TestScale { challenges, partitions }) = request.test_scale else {
        return Ok((network, usize::from(config.partitions)));
    };
    if !matches!(registered.version, ProofVersion::V1 | ProofVersion::V1_1) {
        let what = format!("needs an interactive PoRep, not {registered}");
        return Err(request.field_error("test_scale", what));
    }
    let most = network.num_challenges();
    let spec = CircuitSpec::scaled_porep(registered.sector_size, challenges).ok_or_else(|| {
        request.field_error("test_scale", format!("needs 1 to {most} challenges, has {challenges}"))
    })?;
    // The library numbers partitions in a byte.
    if !(1..=255).contains(&partitions) {
        let what = format!("needs 1 to 255 partitions, has {partitions}");
        return Err(request.field_error("test_scale", what));
    }
    Ok((spec, partitions as usize))
}

/// Holds request, wrapper and C1 against each other; returns the sector's number.
fn check_said(request: &FilecoinRequest, text: &C1Text) -> Result<u64, RequestError> {
    let registered = text.registered;
    // 0 is what an absent field reads as: then the C1 says it.
    if request.registered_proof != 0 {
        let said = RegisteredProof::from_number(ProofKind::PorepSealCommit, request.registered_proof)?;
        request.check_equal("registered_proof", said, "C1 registered_proof", registered)?;
    }
    request.check_sector_size("C1 registered_proof", registered)?;
    let Some(wrapper) = text.wrapper else { return Ok(request.sector_number) };
    let c1_bytes = registered.sector_size.bytes();
    request.check_equal("C1 wrapper SectorSize", wrapper.sector_size, "sector size of the C1", c1_bytes)?;
    if request.sector_number != 0 {
        let (said, wrapped) = (request.sector_number, wrapper.sector_number);
        request.check_equal("sector_number", said, "C1 wrapper SectorNum", wrapped)?;
    }
    Ok(wrapper.sector_number)
}

fn c1_form<Tree: SectorTree>(params: &PublicParams<Tree>, num_partitions: usize) -> C1Form {
    let graph = &params.vanilla_params.graph;
    C1Form {
        partitions: num_partitions,
        challenges: params.vanilla_params.challenges.num_challenges_per_partition(),
        layers: params.vanilla_params.num_layers,
        drg_parents: graph.base_graph().degree(),
        exp_parents: graph.expansion_degree(),
    }
}

/// The replica id is computed, not believed: a C1 of another miner or sector would yield a proof that no one accepts.
fn public_inputs(
    c1: &C1,
    config: &PoRepConfig,
    miner_id: u64,
    sector_number: u64,
) -> Result<PublicInputs, RequestError> {
    let comm_d = Sha256Domain(c1.comm_d);
    let prover_id = prover_id(miner_id);
    let replica_id: PoseidonDomain = generate_replica_id::<PoseidonHasher, _>(
        &prover_id,
        sector_number,
        &c1.ticket,
        comm_d,
        &config.porep_id,
    );
    if replica_id != PoseidonDomain::from(c1.replica_id) {
        return Err(RequestError::Contradiction {
            left: "C1 replica_id".into(),
            left_value: hex::encode(c1.replica_id),
            right: format!(
                "the replica id of miner_id {miner_id}, sector_number {sector_number} and the C1's registered_proof, \
                 ticket and comm_d"
            ),
            right_value: hex::encode(replica_id),
        });
    }
    let tau = stacked::Tau { comm_d, comm_r: c1.comm_r.into() };
    Ok(PublicInputs { replica_id, seed: Some(c1.seed), tau: Some(tau), k: None })
}

impl<Tree: SectorTree> PorepJob<Tree> {
    /// The library's own circuit of a partition.
    fn library_circuit(&self, partition: PartitionIndex) -> Result<Synthesis<'static>, SynthesisError> {
        let proofs = &partition_of(&self.partitions, partition)?.proofs;
        <Compound<Tree> as CompoundProof<Scheme<Tree>, _>>::circuit(
            &self.inputs,
            (),
            proofs,
            &self.params.vanilla_params,
            Some(partition.0 as usize),
        )
        .map(synthesis)
        .map_err(refused)
    }
}

impl<Tree: SectorTree> Workload for PorepJob<Tree> {
    fn kind(&self) -> WorkKind {
        WorkKind::PorepC2
    }

    answers_of_header!();

    fn num_partitions(&self) -> u32 {
        self.partitions.len() as u32
    }

    fn record_shape(&self) -> Result<R1csShape, SynthesisError> {
        self.spec.record_shape()
    }

    fn synthesize(
        &self,
        partition: PartitionIndex,
        shape: &R1csShape,
    ) -> Result<PackedWitness, SynthesisError> {
        let Partition { proofs, challenges } = partition_of(&self.partitions, partition)?;
        let tau = self.inputs.tau.as_ref().expect("public inputs were made with both commitments");
        let commitments = native::porep::Commitments {
            replica_id: self.inputs.replica_id,
            comm_d: tau.comm_d,
            comm_r: tau.comm_r,
            comm_r_last: proofs[0].comm_r_last(),
            comm_c: proofs[0].comm_c(),
        };
        native::make(
            &self.circuit().to_string(),
            || native::check_porep(&self.params.vanilla_params, &challenges[0].replica.arities()),
            || native::porep::witness(shape.classes(), &commitments, challenges),
            || PackedWitness::collect(self.library_circuit(partition)?, shape),
        )
    }

    compares_streamed!();

    fn public_inputs(&self, partition: PartitionIndex) -> Result<Vec<Scalar>, SynthesisError> {
        partition_of(&self.partitions, partition)?;
        let vanilla = &self.params.vanilla_params;
        let number = Some(partition.0 as usize);
        <Compound<Tree> as CompoundProof<Scheme<Tree>, _>>::generate_public_inputs(
            &self.inputs,
            vanilla,
            number,
        )
        .map_err(refused)
    }

    /// The network takes a non-interactive PoRep as an aggregate of its partitions' proofs; here they are verified
    /// one by one, in one batch.
    fn verify_job(&self, vk: &VerifyingKey, proof: &[u8]) -> Result<(), RequestError> {
        let key = prepared_key(vk);
        let proofs = read_proofs(proof, self.partitions.len(), &key)?;
        let requirements = ChallengeRequirements { minimum_challenges: self.minimum_challenges };
        accepted(<Compound<Tree> as CompoundProof<Scheme<Tree>, _>>::verify(
            &self.params,
            &self.inputs,
            &proofs,
            &requirements,
        ))
    }
}

/// The blank circuit. It is the same for every version of a size.
pub(super) fn blank(spec: &CircuitSpec) -> Result<Synthesis<'static>, SynthesisError> {
    with_tree!(spec.sector_size, blank_tree(spec))
}

fn blank_tree<Tree: SectorTree>(spec: &CircuitSpec) -> Result<Synthesis<'static>, SynthesisError> {
    let proof = RegisteredProof {
        kind: ProofKind::PorepSealCommit,
        sector_size: spec.sector_size,
        version: ProofVersion::V1_1,
    };
    let config = proof.porep_config();
    let params = public_params::<Tree>(&config, spec, usize::from(config.partitions))?;
    let blank = <Compound<Tree> as CompoundProof<Scheme<Tree>, _>>::blank_circuit(&params.vanilla_params);
    Ok(synthesis(blank))
}

pub(super) fn public_params<Tree: SectorTree>(
    config: &PoRepConfig,
    spec: &CircuitSpec,
    num_partitions: usize,
) -> Result<PublicParams<Tree>, SynthesisError> {
    let mut vanilla_params = setup_params(config).map_err(refused)?;
    if spec.is_scaled() {
        vanilla_params.challenges = Challenges::new_interactive(spec.num_challenges() as usize);
    }
    let setup =
        compound_proof::SetupParams { vanilla_params, partitions: Some(num_partitions), priority: false };
    <Compound<Tree> as CompoundProof<Scheme<Tree>, _>>::setup(&setup).map_err(refused)
}
