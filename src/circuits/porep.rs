//! PoRep C2: the proofs that a sector was sealed, from the output of commit phase 1.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use blstrs::Scalar;
use filecoin_hashers::poseidon::{PoseidonDomain, PoseidonHasher};
use filecoin_hashers::sha256::{Sha256Domain, Sha256Hasher};
use filecoin_hashers::{HashFunction, Hasher};
use filecoin_proofs::constants::SectorShapeBase;
use filecoin_proofs::parameters::setup_params;
use filecoin_proofs::PoRepConfig;
use storage_proofs_core::compound_proof::{self, CompoundProof};
use storage_proofs_core::drgraph::Graph;
use storage_proofs_core::merkle::MerkleProofTrait;
use storage_proofs_porep::stacked::{
    self, generate_replica_id, ChallengeRequirements, StackedCompound, StackedDrg, TOTAL_PARENTS,
};

use crate::circuits::catalogue::{ProofVersion, RegisteredProof};
use crate::circuits::library::{accepted, prepared_key, read_proofs, refused, refused_request};
use crate::circuits::request::{prover_id, FilecoinRequest, JobHeader};
use crate::circuits::vanilla::c1::{C1Form, C1Text, ChallengeProof, ColumnProof, C1};
use crate::circuits::vanilla::{check_path, refuse, ReplicaPath};
use crate::circuits::workload::partition_of;
use crate::circuits::{CircuitSpec, ProofKind, SectorSize, SrsSource, WorkKind, Workload};
use crate::error::{RequestError, SynthesisError};
use crate::groth16::{PackedWitness, R1csShape, VerifyingKey};
use crate::ids::{CircuitId, PartitionIndex, RequestDigest};

type Compound = StackedCompound<SectorShapeBase, Sha256Hasher>;
type Scheme = StackedDrg<'static, SectorShapeBase, Sha256Hasher>;
type PublicParams = compound_proof::PublicParams<'static, Scheme>;
type PublicInputs = stacked::PublicInputs<PoseidonDomain, Sha256Domain>;
type VanillaProof = stacked::Proof<SectorShapeBase, Sha256Hasher>;
type Column = stacked::ColumnProof<ReplicaPath>;
type Labeling = stacked::LabelingProof<PoseidonHasher>;
type Encoding = stacked::EncodingProof<PoseidonHasher>;

/// A decoded PoRep request.
struct PorepJob {
    header: JobHeader,
    params: PublicParams,
    inputs: PublicInputs,
    minimum_challenges: usize,
    /// `[partition][challenge]`
    partitions: Vec<Vec<VanillaProof>>,
}

impl fmt::Debug for PorepJob {
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
    let registered = text.registered;
    let sector_number = check_said(request, &text)?;
    let config = config(&registered);
    let params = public_params(&config).map_err(refused_request)?;
    let c1 = text.into_c1(c1_form(&params, &config))?;
    let inputs = public_inputs(&c1, &config, request.miner_id, sector_number)?;
    let partitions = c1
        .partitions
        .into_iter()
        .enumerate()
        .map(|(number, challenges)| check_partition(number, challenges, &params, &inputs))
        .collect::<Result<_, _>>()?;
    Ok(Arc::new(PorepJob {
        header: JobHeader::new(request, registered, params_dir, sector_number),
        params,
        inputs,
        minimum_challenges: config.minimum_challenges(),
        partitions,
    }))
}

/// Holds request, wrapper and C1 against each other; returns the sector's number.
fn check_said(request: &FilecoinRequest, text: &C1Text<'_>) -> Result<u64, RequestError> {
    let registered = text.registered;
    // 0 is what an absent field reads as: then the C1 says it.
    if request.registered_proof != 0 {
        let said = RegisteredProof::from_number(ProofKind::PorepSealCommit, request.registered_proof)?;
        said.check_supported()?;
        registered.check_supported()?;
        request.check_equal("registered_proof", said, "C1 registered_proof", registered)?;
    }
    registered.check_supported()?;
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

fn c1_form(params: &PublicParams, config: &PoRepConfig) -> C1Form {
    let graph = &params.vanilla_params.graph;
    C1Form {
        partitions: usize::from(config.partitions),
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
fn check_partition(
    number: usize,
    challenges: Vec<ChallengeProof>,
    params: &PublicParams,
    inputs: &PublicInputs,
) -> Result<Vec<VanillaProof>, RequestError> {
    let vanilla = &params.vanilla_params;
    let tau = inputs.tau.as_ref().expect("public inputs were made with both commitments");
    let challenged = inputs.challenges(&vanilla.challenges, vanilla.graph.size(), Some(number));
    let proofs: Vec<VanillaProof> = challenges
        .into_iter()
        .zip(&challenged)
        .enumerate()
        .map(|(challenge, (proof, &leaf))| {
            library_proof(&format!("partition {number} challenge {challenge}"), proof, leaf, params)
        })
        .collect::<Result<_, _>>()?;
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
    Ok(proofs)
}

fn check_challenge(
    at: &str,
    proof: &VanillaProof,
    leaf: usize,
    params: &PublicParams,
    inputs: &PublicInputs,
    comm_c: &PoseidonDomain,
    comm_r_last: &PoseidonDomain,
) -> Result<(), RequestError> {
    let tau = inputs.tau.as_ref().expect("public inputs were made with both commitments");
    check_path(format_args!("{at} comm_d path"), &proof.comm_d_proofs, leaf, tau.comm_d.as_ref())?;
    check_path(format_args!("{at} comm_r_last path"), &proof.comm_r_last_proof, leaf, comm_r_last.as_ref())?;
    let columns = &proof.replica_column_proofs;
    check_column(format_args!("{at} column c_x"), &columns.c_x, leaf, comm_c)?;
    let (drg_parents, exp_parents) = parents(leaf, params).map_err(refused_request)?;
    for (parent, (column, &leaf)) in columns.drg_parents.iter().zip(&drg_parents).enumerate() {
        check_column(format_args!("{at} column drg_parents[{parent}]"), column, leaf as usize, comm_c)?;
    }
    for (parent, (column, &leaf)) in columns.exp_parents.iter().zip(&exp_parents).enumerate() {
        check_column(format_args!("{at} column exp_parents[{parent}]"), column, leaf as usize, comm_c)?;
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

fn check_column(
    at: impl fmt::Display,
    column: &Column,
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
fn parents(leaf: usize, params: &PublicParams) -> Result<(Vec<u32>, Vec<u32>), SynthesisError> {
    let graph = &params.vanilla_params.graph;
    let mut drg_parents = vec![0; graph.base_graph().degree()];
    graph.base_graph().parents(leaf, &mut drg_parents).map_err(refused)?;
    let mut exp_parents = vec![0; graph.expansion_degree()];
    graph.expanded_parents(leaf, &mut exp_parents).map_err(refused)?;
    Ok((drg_parents, exp_parents))
}

/// The library's form of a proof of node `leaf`.
fn library_proof(
    at: &str,
    proof: ChallengeProof,
    leaf: usize,
    params: &PublicParams,
) -> Result<VanillaProof, RequestError> {
    if let Some(labeling) = proof.labeling_proofs.iter().find(|labeling| labeling.node != leaf as u64) {
        let what = format_args!("is of node {}, challenge is node {leaf}", labeling.node);
        return refuse(format_args!("{at} labeling_proofs"), what);
    }
    let (drg_parents, exp_parents) = parents(leaf, params).map_err(refused_request)?;
    let columns = proof.replica_column_proofs;
    let replica_column_proofs = stacked::ReplicaColumnProof {
        c_x: library_column(columns.c_x, leaf as u32),
        drg_parents: library_columns(columns.drg_parents, &drg_parents),
        exp_parents: library_columns(columns.exp_parents, &exp_parents),
    };
    let num_layers = params.vanilla_params.num_layers;
    let labeling_proofs: Vec<Labeling> = (1..=num_layers)
        .map(|layer| Labeling::new(layer as u32, leaf as u64, parent_labels(&replica_column_proofs, layer)))
        .collect();
    let encoding_proof =
        Encoding::new(num_layers as u32, leaf as u64, parent_labels(&replica_column_proofs, num_layers));
    Ok(VanillaProof {
        comm_d_proofs: proof.comm_d_proofs.into_data_path(),
        comm_r_last_proof: proof.comm_r_last_proof.into_replica_path(),
        replica_column_proofs,
        labeling_proofs,
        encoding_proof,
    })
}

fn library_columns(columns: Vec<ColumnProof>, leaves: &[u32]) -> Vec<Column> {
    columns.into_iter().zip(leaves).map(|(column, &leaf)| library_column(column, leaf)).collect()
}

fn library_column(column: ColumnProof, leaf: u32) -> Column {
    let rows = column.column.rows.into_iter().map(PoseidonDomain::from).collect();
    Column::new(leaf, rows, column.inclusion_proof.into_replica_path())
}

/// The labels that a node's label in `layer` (from 1) is made of: those of its base parents in the same layer and,
/// above the first, of its expander parents in the layer below, repeated to fill the hash's blocks.
fn parent_labels(columns: &stacked::ReplicaColumnProof<ReplicaPath>, layer: usize) -> Vec<PoseidonDomain> {
    let label = |column: &Column, layer| {
        *column.get_node_at_layer(layer).expect("columns were checked to have a row per layer")
    };
    let mut labels: Vec<_> = columns.drg_parents.iter().map(|column| label(column, layer)).collect();
    if layer > 1 {
        labels.extend(columns.exp_parents.iter().map(|column| label(column, layer - 1)));
    }
    labels.into_iter().cycle().take(TOTAL_PARENTS).collect()
}

impl Workload for PorepJob {
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
        CircuitSpec::new(ProofKind::PorepSealCommit, self.header.registered.sector_size).record_shape()
    }

    fn synthesize(
        &self,
        partition: PartitionIndex,
        shape: &R1csShape,
    ) -> Result<PackedWitness, SynthesisError> {
        let proofs = partition_of(&self.partitions, partition)?;
        let circuit = <Compound as CompoundProof<Scheme, _>>::circuit(
            &self.inputs,
            (),
            proofs,
            &self.params.vanilla_params,
            Some(partition.0 as usize),
        )
        .map_err(refused)?;
        PackedWitness::synthesize(circuit, shape)
    }

    fn public_inputs(&self, partition: PartitionIndex) -> Result<Vec<Scalar>, SynthesisError> {
        partition_of(&self.partitions, partition)?;
        let vanilla = &self.params.vanilla_params;
        let number = Some(partition.0 as usize);
        <Compound as CompoundProof<Scheme, _>>::generate_public_inputs(&self.inputs, vanilla, number)
            .map_err(refused)
    }

    /// The network takes a non-interactive PoRep as an aggregate of its partitions' proofs; here they are verified
    /// one by one, in one batch.
    fn verify_job(&self, vk: &VerifyingKey, proof: &[u8]) -> Result<(), RequestError> {
        let key = prepared_key(vk);
        let proofs = read_proofs(proof, self.partitions.len(), &key)?;
        let requirements = ChallengeRequirements { minimum_challenges: self.minimum_challenges };
        accepted(<Compound as CompoundProof<Scheme, _>>::verify(
            &self.params,
            &self.inputs,
            &proofs,
            &requirements,
        ))
    }
}

/// Records the matrices from the blank circuit. They are the same for every version of a size.
pub(super) fn record_shape(sector_size: SectorSize) -> Result<R1csShape, SynthesisError> {
    let proof =
        RegisteredProof { kind: ProofKind::PorepSealCommit, sector_size, version: ProofVersion::V1_1 };
    let params = public_params(&config(&proof))?;
    R1csShape::record(<Compound as CompoundProof<Scheme, _>>::blank_circuit(&params.vanilla_params))
}

fn config(proof: &RegisteredProof) -> PoRepConfig {
    proof.as_seal_proof().expect("the registered proof is a PoRep's").as_v1_config()
}

fn public_params(config: &PoRepConfig) -> Result<PublicParams, SynthesisError> {
    let setup = compound_proof::SetupParams {
        vanilla_params: setup_params(config).map_err(refused)?,
        partitions: Some(usize::from(config.partitions)),
        priority: false,
    };
    <Compound as CompoundProof<Scheme, _>>::setup(&setup).map_err(refused)
}
