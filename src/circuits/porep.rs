//! PoRep C2: the proofs that a sector was sealed, from the output of commit phase 1.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use blstrs::Scalar;
use filecoin_hashers::poseidon::{PoseidonDomain, PoseidonHasher};
use filecoin_hashers::sha256::{Sha256Domain, Sha256Hasher};
use filecoin_hashers::{HashFunction, Hasher};
use filecoin_proofs::parameters::setup_params;
use filecoin_proofs::PoRepConfig;
use storage_proofs_core::compound_proof::{self, CompoundProof};
use storage_proofs_core::drgraph::Graph;
use storage_proofs_core::merkle::MerkleProofTrait;
use storage_proofs_porep::stacked::{
    self, generate_replica_id, ChallengeRequirements, Challenges, StackedCompound, StackedDrg, TOTAL_PARENTS,
};

use crate::circuits::catalogue::{ProofVersion, RegisteredProof};
use crate::circuits::library::{accepted, prepared_key, read_proofs, refused, refused_request};
use crate::circuits::request::{prover_id, FilecoinRequest, JobHeader, TestScale};
use crate::circuits::vanilla::c1::{C1Form, C1Text, ChallengeProof, ColumnProof, C1};
use crate::circuits::vanilla::{check_path, refuse, with_tree, DataPath, SectorTree, TreePath};
use crate::circuits::workload::partition_of;
use crate::circuits::{native, CircuitSpec, ProofKind, SrsSource, WorkKind, Workload};
use crate::error::{RequestError, SynthesisError};
use crate::groth16::sink::{synthesis, Synthesis};
use crate::groth16::{PackedWitness, R1csShape, VerifyingKey};
use crate::ids::{CircuitId, PartitionIndex, RequestDigest};

type Compound<Tree> = StackedCompound<Tree, Sha256Hasher>;
type Scheme<Tree> = StackedDrg<'static, Tree, Sha256Hasher>;
pub(super) type PublicParams<Tree> = compound_proof::PublicParams<'static, Scheme<Tree>>;
pub(super) type PublicInputs = stacked::PublicInputs<PoseidonDomain, Sha256Domain>;
pub(super) type VanillaProof<Tree> = stacked::Proof<Tree, Sha256Hasher>;
pub(super) type Column<Tree> = stacked::ColumnProof<TreePath<Tree>>;
pub(super) type Columns<Tree> = stacked::ReplicaColumnProof<TreePath<Tree>>;
type Labeling = stacked::LabelingProof<PoseidonHasher>;
type Encoding = stacked::EncodingProof<PoseidonHasher>;

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
    text: C1Text<'_>,
    sector_number: u64,
    params_dir: &Path,
) -> Result<Arc<dyn Workload>, RequestError> {
    let registered = text.registered;
    let config = config(&registered);
    let (spec, num_partitions) = circuit_and_partitions(request, &registered, &config)?;
    let params = public_params::<Tree>(&config, &spec, num_partitions).map_err(refused_request)?;
    let c1 = text.into_c1(c1_form(&params, num_partitions))?;
    let inputs = public_inputs(&c1, &config, request.miner_id, sector_number)?;
    let partitions = c1
        .partitions
        .into_iter()
        .enumerate()
        .map(|(number, challenges)| check_partition(number, challenges, &params, &inputs))
        .collect::<Result<_, _>>()?;
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
fn check_said(request: &FilecoinRequest, text: &C1Text<'_>) -> Result<u64, RequestError> {
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

/// Checks a partition as the library would (storage-proofs-porep `stacked/vanilla/proof_scheme.rs`,
/// `verify_all_partitions`), but says where it fails.
fn check_partition<Tree: SectorTree>(
    number: usize,
    challenges: Vec<ChallengeProof>,
    params: &PublicParams<Tree>,
    inputs: &PublicInputs,
) -> Result<Partition<Tree>, RequestError> {
    let vanilla = &params.vanilla_params;
    let tau = inputs.tau.as_ref().expect("public inputs were made with both commitments");
    let challenged = inputs.challenges(&vanilla.challenges, vanilla.graph.size(), Some(number));
    let (proofs, challenges): (Vec<VanillaProof<Tree>>, Vec<_>) = challenges
        .into_iter()
        .zip(&challenged)
        .enumerate()
        .map(|(challenge, (proof, &leaf))| {
            library_proof(&format!("partition {number} challenge {challenge}"), proof, leaf, params)
        })
        .collect::<Result<Vec<_>, _>>()?
        .into_iter()
        .unzip();
    let (comm_c, comm_r_last) = (proofs[0].comm_c(), proofs[0].comm_r_last());
    if <PoseidonHasher as Hasher>::Function::hash2(&comm_c, &comm_r_last) != tau.comm_r {
        return refuse(
            format_args!("partition {number}"),
            "comm_r is not the hash of the roots of its column and replica trees",
        );
    }
    for (challenge, (proof, &leaf)) in proofs.iter().zip(&challenged).enumerate() {
        let at = format!("partition {number} challenge {challenge}");
        check_challenge(&at, proof, leaf, params, inputs, &comm_c, &comm_r_last)?;
    }
    Ok(Partition { proofs, challenges })
}

fn check_challenge<Tree: SectorTree>(
    at: &str,
    proof: &VanillaProof<Tree>,
    leaf: usize,
    params: &PublicParams<Tree>,
    inputs: &PublicInputs,
    comm_c: &PoseidonDomain,
    comm_r_last: &PoseidonDomain,
) -> Result<(), RequestError> {
    let tau = inputs.tau.as_ref().expect("public inputs were made with both commitments");
    check_path(format_args!("{at} comm_d path"), &proof.comm_d_proofs, leaf, tau.comm_d.as_ref())?;
    check_path(format_args!("{at} comm_r_last path"), &proof.comm_r_last_proof, leaf, comm_r_last.as_ref())?;
    let columns = &proof.replica_column_proofs;
    check_column::<Tree>(format_args!("{at} column c_x"), &columns.c_x, leaf, comm_c)?;
    let (drg_parents, exp_parents) = parents(leaf, params).map_err(refused_request)?;
    for (parent, (column, &leaf)) in columns.drg_parents.iter().zip(&drg_parents).enumerate() {
        check_column::<Tree>(
            format_args!("{at} column drg_parents[{parent}]"),
            column,
            leaf as usize,
            comm_c,
        )?;
    }
    for (parent, (column, &leaf)) in columns.exp_parents.iter().zip(&exp_parents).enumerate() {
        check_column::<Tree>(
            format_args!("{at} column exp_parents[{parent}]"),
            column,
            leaf as usize,
            comm_c,
        )?;
    }
    for (row, labeling) in proof.labeling_proofs.iter().enumerate() {
        let label = columns.c_x.get_node_at_layer(row + 1).map_err(refused_request)?;
        if !labeling.verify(&inputs.replica_id, label) {
            let what = "label is not the one of its parents and the replica id";
            return refuse(format_args!("{at} column c_x row {row}"), what);
        }
    }
    let (data, replica) = (proof.comm_d_proofs.leaf(), proof.comm_r_last_proof.leaf());
    if !proof.encoding_proof.verify::<Sha256Hasher>(&inputs.replica_id, &replica, &data) {
        return refuse(at, "replica leaf is not the data leaf encoded with the last label");
    }
    Ok(())
}

fn check_column<Tree: SectorTree>(
    at: impl fmt::Display,
    column: &Column<Tree>,
    leaf: usize,
    comm_c: &PoseidonDomain,
) -> Result<(), RequestError> {
    if column.verify(leaf as u32, comm_c) {
        return Ok(());
    }
    refuse(
        at,
        format_args!(
            "its rows do not hash to a leaf whose path leads to leaf {leaf} of the column tree {}",
            hex::encode(comm_c)
        ),
    )
}

/// A node's parents in the base graph and in the expander graph.
pub(super) fn parents<Tree: SectorTree>(
    leaf: usize,
    params: &PublicParams<Tree>,
) -> Result<(Vec<u32>, Vec<u32>), SynthesisError> {
    let graph = &params.vanilla_params.graph;
    let mut drg_parents = vec![0; graph.base_graph().degree()];
    graph.base_graph().parents(leaf, &mut drg_parents).map_err(refused)?;
    let mut exp_parents = vec![0; graph.expansion_degree()];
    graph.expanded_parents(leaf, &mut exp_parents).map_err(refused)?;
    Ok((drg_parents, exp_parents))
}

/// The library's form of a proof of node `leaf`, and the native witness's.
fn library_proof<Tree: SectorTree>(
    at: &str,
    proof: ChallengeProof,
    leaf: usize,
    params: &PublicParams<Tree>,
) -> Result<(VanillaProof<Tree>, native::porep::Challenge), RequestError> {
    if let Some(labeling) = proof.labeling_proofs.iter().find(|labeling| labeling.node != leaf as u64) {
        let what = format_args!("is of node {}, challenge is node {leaf}", labeling.node);
        return refuse(format_args!("{at} labeling_proofs"), what);
    }
    let (drg_parents, exp_parents) = parents(leaf, params).map_err(refused_request)?;
    let columns = proof.replica_column_proofs;
    let (c_x, own) = library_column::<Tree>(columns.c_x, leaf as u32);
    let (drg_parents, native_drg_parents) = library_columns::<Tree>(columns.drg_parents, &drg_parents);
    let (exp_parents, native_exp_parents) = library_columns::<Tree>(columns.exp_parents, &exp_parents);
    let columns = stacked::ReplicaColumnProof { c_x, drg_parents, exp_parents };
    let data_path = proof.comm_d_proofs.into_data_path();
    let replica_path = proof.comm_r_last_proof.into_tree_path::<Tree>();
    let challenge = native::porep::Challenge {
        challenge: leaf as u64,
        data: native::Path::new(&data_path),
        replica: native::Path::new(&replica_path),
        column: own.into_path(),
        drg_parents: native_drg_parents,
        exp_parents: native_exp_parents,
    };
    Ok((assemble(leaf, data_path, replica_path, columns, params.vanilla_params.num_layers), challenge))
}

/// The proof of node `leaf`: its paths and columns, and the labels that follow from them.
pub(super) fn assemble<Tree: SectorTree>(
    leaf: usize,
    comm_d_proofs: DataPath,
    comm_r_last_proof: TreePath<Tree>,
    columns: Columns<Tree>,
    num_layers: usize,
) -> VanillaProof<Tree> {
    let labeling_proofs: Vec<Labeling> = (1..=num_layers)
        .map(|layer| Labeling::new(layer as u32, leaf as u64, parent_labels::<Tree>(&columns, layer)))
        .collect();
    let encoding_proof =
        Encoding::new(num_layers as u32, leaf as u64, parent_labels::<Tree>(&columns, num_layers));
    VanillaProof {
        comm_d_proofs,
        comm_r_last_proof,
        replica_column_proofs: columns,
        labeling_proofs,
        encoding_proof,
    }
}

fn library_columns<Tree: SectorTree>(
    columns: Vec<ColumnProof>,
    leaves: &[u32],
) -> (Vec<Column<Tree>>, Vec<native::porep::Column>) {
    columns.into_iter().zip(leaves).map(|(column, &leaf)| library_column::<Tree>(column, leaf)).unzip()
}

fn library_column<Tree: SectorTree>(column: ColumnProof, leaf: u32) -> (Column<Tree>, native::porep::Column) {
    let path = column.inclusion_proof.into_tree_path::<Tree>();
    let native = native::porep::Column::new(column.column.rows.clone(), native::Path::new(&path));
    let rows = column.column.rows.into_iter().map(PoseidonDomain::from).collect();
    (Column::<Tree>::new(leaf, rows, path), native)
}

/// The labels that a node's label in `layer` (from 1) is made of: those of its base parents in the same layer and,
/// above the first, of its expander parents in the layer below, repeated to fill the hash's blocks.
fn parent_labels<Tree: SectorTree>(columns: &Columns<Tree>, layer: usize) -> Vec<PoseidonDomain> {
    let label = |column: &Column<Tree>, layer| {
        *column.get_node_at_layer(layer).expect("columns were checked to have a row per layer")
    };
    let mut labels: Vec<_> = columns.drg_parents.iter().map(|column| label(column, layer)).collect();
    if layer > 1 {
        labels.extend(columns.exp_parents.iter().map(|column| label(column, layer - 1)));
    }
    labels.into_iter().cycle().take(TOTAL_PARENTS).collect()
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

    fn circuit(&self) -> &CircuitId {
        &self.header.circuit
    }

    fn num_partitions(&self) -> u32 {
        self.partitions.len() as u32
    }

    fn digest(&self) -> RequestDigest {
        self.header.digest
    }

    fn srs(&self) -> SrsSource {
        self.header.srs.clone()
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

    fn compare_with_library(
        &self,
        partition: PartitionIndex,
        witness: &PackedWitness,
        shape: &R1csShape,
    ) -> Result<(), SynthesisError> {
        native::compare_streamed(self.library_circuit(partition)?, witness, shape.classes())
    }

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
    let config = config(&proof);
    let params = public_params::<Tree>(&config, spec, usize::from(config.partitions))?;
    let blank = <Compound<Tree> as CompoundProof<Scheme<Tree>, _>>::blank_circuit(&params.vanilla_params);
    Ok(synthesis(blank))
}

pub(super) fn config(proof: &RegisteredProof) -> PoRepConfig {
    proof.as_seal_proof().expect("the registered proof is a PoRep's").as_v1_config()
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
