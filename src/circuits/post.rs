//! What WindowPoSt and WinningPoSt share: one circuit (`FallbackPoSt`), one form of vanilla proof.
//!
//! A circuit holds `sector_count` sectors of `challenge_count` challenges each. WindowPoSt fills it with a
//! partition's sectors, the last one repeated; WinningPoSt makes each of its one sector's 66 challenges a "sector".

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use bellperson::groth16::verify_proof;
use blstrs::Scalar;
use filecoin_hashers::poseidon::{PoseidonDomain, PoseidonHasher};
use filecoin_hashers::{HashFunction, Hasher};
use filecoin_proofs::parameters::{window_post_setup_params, winning_post_setup_params};
use filecoin_proofs::{FallbackPoStSectorProof, PoStConfig, PoStType, VanillaProof};
use storage_proofs_core::api_version::ApiVersion;
use storage_proofs_core::compound_proof::{self, CompoundProof};
use storage_proofs_core::sector::SectorId;
use storage_proofs_post::fallback::{
    self, generate_leaf_challenge, get_challenge_index, ChallengeRequirements, FallbackPoSt,
    FallbackPoStCircuit, FallbackPoStCompound, PublicSector,
};

use crate::circuits::catalogue::RegisteredProof;
use crate::circuits::library::{
    accepted, answers_of_header, compares_streamed, prepared_key, read_proofs, refused, refused_request,
    verify_with_inputs_summed, MAX_TABLE_INPUTS,
};
use crate::circuits::request::{prover_id, FilecoinRequest, JobHeader};
use crate::circuits::vanilla::{check_tree_path, refuse, with_tree, PostSectorProof, SectorTree};
use crate::circuits::workload::partition_of;
use crate::circuits::{native, parallel, CircuitSpec, ProofKind, WorkKind, Workload};
use crate::error::{RequestError, SynthesisError};
use crate::groth16::sink::{synthesis, Synthesis};
use crate::groth16::{PackedWitness, R1csShape, VerifyingKey};
use crate::ids::PartitionIndex;

type Compound<Tree> = FallbackPoStCompound<Tree>;
type Scheme<Tree> = FallbackPoSt<'static, Tree>;
pub(super) type PublicParams<Tree> = compound_proof::PublicParams<'static, Scheme<Tree>>;
pub(super) type PublicInputs = fallback::PublicInputs<PoseidonDomain>;
type SectorProof<Tree> = FallbackPoStSectorProof<Tree>;

/// A decoded PoSt request: one partition.
struct PostJob<Tree: SectorTree> {
    header: JobHeader,
    config: PoStConfig,
    params: PublicParams<Tree>,
    /// Every sector once, in the circuit's order. `k` is the partition's index in its deadline.
    inputs: PublicInputs,
    proof: VanillaProof<Tree>,
}

impl<Tree: SectorTree> fmt::Debug for PostJob<Tree> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostJob")
            .field("header", &self.header)
            .field("sectors", &self.inputs.sectors.len())
            .finish_non_exhaustive()
    }
}

/// Partitions that a deadline has at most (builtin-actors `runtime/src/runtime/policy.rs`,
/// `MAX_PARTITIONS_PER_DEADLINE`).
const PARTITIONS_PER_DEADLINE_MAX: u32 = 3000;

/// Decodes and checks a PoSt request of `kind`.
pub(super) fn decode(
    request: &FilecoinRequest,
    kind: ProofKind,
    params_dir: &Path,
) -> Result<Arc<dyn Workload>, RequestError> {
    let registered = request.registered(kind)?;
    with_tree!(registered.sector_size, decode_tree(request, registered, params_dir))
}

fn decode_tree<Tree: SectorTree>(
    request: &FilecoinRequest,
    registered: RegisteredProof,
    params_dir: &Path,
) -> Result<Arc<dyn Workload>, RequestError> {
    let config = registered.post_config();
    let params = public_params::<Tree>(&config).map_err(refused_request)?;
    let randomness = request.checked_randomness()?;
    check_num_sectors(request, &config)?;
    check_partition_index(request)?;
    let read = parallel::map(request.vanilla_proofs.len(), &|number| {
        let (at, bytes) = (place(number), &request.vanilla_proofs[number]);
        PostSectorProof::read(&at, bytes, registered.sector_size, config.challenge_count)
            .map(library_proof::<Tree>)
    });
    let mut inputs = PublicInputs {
        randomness: randomness.into(),
        prover_id: prover_id(request.miner_id).into(),
        sectors: Vec::with_capacity(request.vanilla_proofs.len()),
        k: Some(request.partition_index as usize),
    };
    let mut sector_proofs: Vec<SectorProof<Tree>> = Vec::with_capacity(request.vanilla_proofs.len());
    // The first sector that cannot be taken as it stands: those before it are looked at all the same, so that the error is
    // always the first one's.
    let mut broken = Ok(());
    for (number, read) in read.into_iter().enumerate() {
        let taken =
            read.and_then(|proof| check_order(&place(number), inputs.sectors.last(), &proof).map(|()| proof));
        match taken {
            Ok(proof) => {
                inputs.sectors.push(PublicSector { id: proof.sector_id, comm_r: proof.comm_r });
                sector_proofs.push(proof);
            }
            Err(error) => {
                broken = Err(error);
                break;
            }
        }
    }
    let checked = parallel::map(sector_proofs.len(), &|number| {
        check_sector(&place(number), number, &sector_proofs[number], &config, &params.vanilla_params, &inputs)
    });
    checked.into_iter().chain([broken]).collect::<Result<(), _>>()?;
    check_sector_number(request, &inputs.sectors)?;
    let proof = circuit_proof(&config, sector_proofs);
    let spec = CircuitSpec::new(registered.kind, registered.sector_size);
    let header = JobHeader::new(request, registered, &spec, params_dir, request.sector_number);
    Ok(Arc::new(PostJob { header, config, params, inputs, proof }))
}

/// What errors call a sector's proof.
fn place(number: usize) -> String {
    format!("vanilla_proofs[{number}]")
}

fn check_num_sectors(request: &FilecoinRequest, config: &PoStConfig) -> Result<(), RequestError> {
    let (most, has) = (config.sector_count, request.vanilla_proofs.len());
    if (1..=most).contains(&has) {
        return Ok(());
    }
    let needs = match config.typ {
        PoStType::Winning => "1 (the challenged sector's)".into(),
        PoStType::Window => format!("1 to {most} (one per sector of the partition)"),
    };
    Err(request.field_error("vanilla_proofs", format!("needs {needs}, has {has}")))
}

/// The index is part of the challenges of the legacy version alone, and callers of today's leave it at 0 for every
/// partition: there, any that a deadline can have is taken. Beyond that it is no index.
fn check_partition_index(request: &FilecoinRequest) -> Result<(), RequestError> {
    let (most, has) = (PARTITIONS_PER_DEADLINE_MAX - 1, request.partition_index);
    if has <= most {
        return Ok(());
    }
    let what = format!("needs 0 to {most} (a deadline's partitions), has {has}");
    Err(request.field_error("partition_index", what))
}

/// The vanilla proofs say which sectors they are of. A caller that names one as well (0 is what an absent field reads
/// as) and means another has mixed its requests up.
fn check_sector_number(
    request: &FilecoinRequest,
    sectors: &[PublicSector<PoseidonDomain>],
) -> Result<(), RequestError> {
    let said = request.sector_number;
    let number = |sector: &PublicSector<PoseidonDomain>| u64::from(sector.id);
    match sectors {
        _ if said == 0 || sectors.iter().any(|sector| number(sector) == said) => Ok(()),
        [only] => request.check_equal("sector_number", said, "vanilla_proofs[0] sector", number(only)),
        [first, .., last] => {
            let (count, first, last) = (sectors.len(), number(first), number(last));
            let what = format!("{said} is none of the {count} sectors proved, {first} to {last}");
            Err(request.field_error("sector_number", what))
        }
        [] => unreachable!("the number of sectors was checked"),
    }
}

/// Verifiers put the sectors in rising order, each once (filecoin-proofs-api `post.rs`: a `BTreeMap`), so a proof
/// of them in another order is of no use.
fn check_order<Tree: SectorTree>(
    at: &str,
    before: Option<&PublicSector<PoseidonDomain>>,
    proof: &SectorProof<Tree>,
) -> Result<(), RequestError> {
    let (sector, Some(before)) = (u64::from(proof.sector_id), before.map(|sector| u64::from(sector.id)))
    else {
        return Ok(());
    };
    match sector.cmp(&before) {
        std::cmp::Ordering::Greater => Ok(()),
        std::cmp::Ordering::Equal => refuse(at, format_args!("sector {sector} is repeated")),
        std::cmp::Ordering::Less => {
            refuse(at, format_args!("sector {sector} comes after sector {before}: sectors must rise"))
        }
    }
}

/// Checks a sector as the library would (storage-proofs-post `fallback/vanilla.rs`, `verify`), but says where it
/// fails, and checks all of WinningPoSt's paths (the library's loop ends with the public sectors: after one).
fn check_sector<Tree: SectorTree>(
    at: &str,
    number: usize,
    proof: &SectorProof<Tree>,
    config: &PoStConfig,
    params: &fallback::PublicParams,
    inputs: &PublicInputs,
) -> Result<(), RequestError> {
    let sector = &proof.vanilla_proof.sectors[0];
    let at = format!("{at} (sector {})", u64::from(proof.sector_id));
    if <PoseidonHasher as Hasher>::Function::hash2(&sector.comm_c, &sector.comm_r_last) != proof.comm_r {
        return refuse(at, "comm_r is not the hash of comm_c and comm_r_last");
    }
    let root = sector.comm_r_last.as_ref();
    let checked = parallel::map(sector.inclusion_proofs.len(), &|path_number| {
        let leaf = challenged_leaf(config, params, inputs, number, path_number);
        let path = &sector.inclusion_proofs[path_number];
        check_tree_path(format_args!("{at} path {path_number}"), path, leaf as usize, root)
    });
    checked.into_iter().collect()
}

/// The leaf that challenge `number` of the sector in place `sector` asks for.
pub(super) fn challenged_leaf(
    config: &PoStConfig,
    params: &fallback::PublicParams,
    inputs: &PublicInputs,
    sector: usize,
    number: usize,
) -> u64 {
    let partition = inputs.k.unwrap_or(0);
    let index = match config.typ {
        PoStType::Winning => number as u64,
        PoStType::Window => get_challenge_index(
            config.api_version,
            partition * config.sector_count + sector,
            config.challenge_count,
            number,
        ),
    };
    generate_leaf_challenge(params, inputs.randomness, u64::from(inputs.sectors[sector].id), index)
}

/// The library's form of a sector's proof.
fn library_proof<Tree: SectorTree>(read: PostSectorProof) -> SectorProof<Tree> {
    let sectors = read.vanilla_proof.sectors.into_iter().map(|sector| fallback::SectorProof {
        inclusion_proofs: sector
            .inclusion_proofs
            .into_iter()
            .map(|path| path.into_tree_path::<Tree>())
            .collect(),
        comm_c: sector.comm_c.into(),
        comm_r_last: sector.comm_r_last.into(),
    });
    SectorProof {
        sector_id: SectorId::from(read.sector_id),
        comm_r: read.comm_r.into(),
        vanilla_proof: fallback::Proof { sectors: sectors.collect() },
    }
}

/// Brings the sectors' proofs, each of one sector and checked, into the circuit's shape (filecoin-proofs
/// `api/post_util.rs`, `single_partition_vanilla_proofs`, which looks each sector up, copies it and hashes all its paths again):
/// a place for each of WindowPoSt's sectors or of WinningPoSt's paths, the last one repeated.
fn circuit_proof<Tree: SectorTree>(
    config: &PoStConfig,
    proofs: Vec<SectorProof<Tree>>,
) -> VanillaProof<Tree> {
    let mut places: Vec<_> = proofs.into_iter().flat_map(|proof| proof.vanilla_proof.sectors).collect();
    let num_places = match config.typ {
        PoStType::Window => config.sector_count,
        PoStType::Winning => {
            let sector = places.remove(0);
            let (comm_c, comm_r_last) = (sector.comm_c, sector.comm_r_last);
            let place = |path| fallback::SectorProof { inclusion_proofs: vec![path], comm_c, comm_r_last };
            places = sector.inclusion_proofs.into_iter().map(place).collect();
            config.challenge_count
        }
    };
    let last = places[places.len() - 1].clone();
    places.resize(num_places, last);
    fallback::Proof { sectors: places }
}

impl<Tree: SectorTree> PostJob<Tree> {
    /// Whether challenges depend on the partition's index, which is not 0: the library's functions on one
    /// partition's sectors then know nothing of it.
    fn is_later_legacy_partition(&self) -> bool {
        let is_legacy = self.config.typ == PoStType::Window && self.config.api_version < ApiVersion::V1_2_0;
        is_legacy && self.inputs.k.unwrap_or(0) > 0
    }

    /// What the verifier puts in, as the library's verification wants it: WinningPoSt's sector once per challenge.
    fn verifier_inputs(&self) -> PublicInputs {
        let mut inputs = self.inputs.clone();
        if self.config.typ == PoStType::Winning {
            inputs.sectors = vec![inputs.sectors[0].clone(); self.config.challenge_count];
        }
        inputs
    }

    /// As `FallbackPoStCompound::generate_public_inputs` would make them for this partition among all of the
    /// deadline's: per sector comm_r and the challenged leaves, the last sector repeated.
    fn later_partition_inputs(&self) -> Vec<Scalar> {
        let per_sector = |sector: usize| {
            let leaf = move |number| {
                challenged_leaf(&self.config, &self.params.vanilla_params, &self.inputs, sector, number)
            };
            let leaves = (0..self.config.challenge_count).map(leaf).map(Scalar::from);
            std::iter::once(Scalar::from(self.inputs.sectors[sector].comm_r)).chain(leaves)
        };
        let last = self.inputs.sectors.len() - 1;
        (0..self.config.sector_count)
            .flat_map(|place| per_sector(place.min(last)).collect::<Vec<_>>())
            .collect()
    }
}

impl<Tree: SectorTree> PostJob<Tree> {
    /// The library's own circuit of a partition.
    fn library_circuit(
        &self,
        partition: PartitionIndex,
    ) -> Result<FallbackPoStCircuit<Tree>, SynthesisError> {
        let proof = partition_of(std::slice::from_ref(&self.proof), partition)?;
        // `inputs` holds this partition's sectors only, so theirs is chunk 0, whatever the partition's index.
        <Compound<Tree> as CompoundProof<Scheme<Tree>, _>>::circuit(
            &self.inputs,
            Default::default(),
            proof,
            &self.params.vanilla_params,
            Some(0),
        )
        .map_err(refused)
    }
}

impl<Tree: SectorTree> Workload for PostJob<Tree> {
    fn kind(&self) -> WorkKind {
        self.header.registered.kind.work_kind()
    }

    answers_of_header!();

    fn num_partitions(&self) -> u32 {
        1
    }

    fn record_shape(&self) -> Result<R1csShape, SynthesisError> {
        R1csShape::record_synthesis(blank(&self.header.registered)?)
    }

    fn synthesize(
        &self,
        partition: PartitionIndex,
        shape: &R1csShape,
    ) -> Result<PackedWitness, SynthesisError> {
        let proof = partition_of(std::slice::from_ref(&self.proof), partition)?;
        let last = self.inputs.sectors.len() - 1;
        let place = |(number, proof): (usize, _)| native::post::Place {
            comm_r: self.inputs.sectors[number.min(last)].comm_r.into(),
            proof,
        };
        let places: Vec<_> = proof.sectors.iter().enumerate().map(place).collect();
        native::make(
            &self.circuit().to_string(),
            || {
                native::check_post::<Tree>(
                    &native::Path::new(&proof.sectors[0].inclusion_proofs[0]).arities(),
                )
            },
            || native::post::witness(shape.classes(), &places),
            // In parallel pieces, for which this circuit is compiled once more: it is small, and a partition has 2,349
            // sectors.
            || PackedWitness::synthesize(self.library_circuit(partition)?, shape),
        )
    }

    compares_streamed!(synthesis);

    fn public_inputs(&self, partition: PartitionIndex) -> Result<Vec<Scalar>, SynthesisError> {
        partition_of(std::slice::from_ref(&self.proof), partition)?;
        if self.is_later_legacy_partition() {
            return Ok(self.later_partition_inputs());
        }
        let (inputs, vanilla) = (self.verifier_inputs(), &self.params.vanilla_params);
        <Compound<Tree> as CompoundProof<Scheme<Tree>, _>>::generate_public_inputs(&inputs, vanilla, Some(0))
            .map_err(refused)
    }

    fn verify_job(&self, vk: &VerifyingKey, proof: &[u8]) -> Result<(), RequestError> {
        if vk.ic.len() > MAX_TABLE_INPUTS {
            let inputs = self.public_inputs(PartitionIndex(0)).map_err(refused_request)?;
            return verify_with_inputs_summed(vk, proof, &inputs);
        }
        let key = prepared_key(vk);
        let proofs = read_proofs(proof, 1, &key)?;
        if self.is_later_legacy_partition() {
            return accepted(verify_proof(&key, &proofs.circuit_proofs[0], &self.later_partition_inputs()));
        }
        let requirements = ChallengeRequirements {
            minimum_challenge_count: self.config.challenge_count * self.config.sector_count,
        };
        let inputs = self.verifier_inputs();
        accepted(<Compound<Tree> as CompoundProof<Scheme<Tree>, _>>::verify(
            &self.params,
            &inputs,
            &proofs,
            &requirements,
        ))
    }
}

/// The blank circuit.
pub(super) fn blank(proof: &RegisteredProof) -> Result<Synthesis<'static>, SynthesisError> {
    with_tree!(proof.sector_size, blank_tree(proof))
}

fn blank_tree<Tree: SectorTree>(proof: &RegisteredProof) -> Result<Synthesis<'static>, SynthesisError> {
    let params = public_params::<Tree>(&proof.post_config())?;
    let blank = <Compound<Tree> as CompoundProof<Scheme<Tree>, _>>::blank_circuit(&params.vanilla_params);
    Ok(synthesis(blank))
}

/// One partition: a WindowPoSt request is one partition of its deadline.
pub(super) fn public_params<Tree: SectorTree>(
    config: &PoStConfig,
) -> Result<PublicParams<Tree>, SynthesisError> {
    let vanilla_params = match config.typ {
        PoStType::Window => window_post_setup_params(config),
        PoStType::Winning => winning_post_setup_params(config).map_err(refused)?,
    };
    let setup = compound_proof::SetupParams { vanilla_params, partitions: None, priority: false };
    <Compound<Tree> as CompoundProof<Scheme<Tree>, _>>::setup(&setup).map_err(refused)
}
