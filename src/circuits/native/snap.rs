//! The witness of a SnapDeals partition (storage-proofs-update `circuit.rs`, `gadgets.rs`).

use blstrs::Scalar;
use storage_proofs_core::merkle::MerkleProofTrait;
use storage_proofs_update::constants::{h_select, hs};
use storage_proofs_update::{ChallengeProof, PartitionProof, PublicInputs, PublicParams};

use super::merkle::{select, Path, Tree};
use super::poseidon::RANDOMNESS;
use super::sha256::hash_pair;
use super::writer::{fill, node, Writer, SCALAR_BITS};
use super::{poseidon, Misfit};
use crate::circuits::vanilla::SectorTree;
use crate::groth16::packed::{PackedWitness, VariableClasses};

/// Bits of a scalar that any value has free (`Scalar::CAPACITY`): how many of a digest's are used for challenges.
const CAPACITY: usize = SCALAR_BITS - 1;

/// One partition of a job.
pub(in crate::circuits) struct Partition<'j, T: SectorTree> {
    pub params: &'j PublicParams,
    /// `k` is not read.
    pub inputs: &'j PublicInputs,
    pub number: usize,
    pub proof: &'j PartitionProof<T>,
}

/// Values of the head that the challenges use.
struct Head {
    phi: Scalar,
    apex_leafs: Vec<Scalar>,
    /// `[challenge]`: leaf indices, as the circuit derives them.
    challenges: Vec<u64>,
}

/// The witness of a partition.
///
/// # Errors
/// If the circuit whose variables are `classes` is another.
pub(in crate::circuits) fn witness<T: SectorTree>(
    classes: &VariableClasses,
    partition: &Partition<'_, T>,
) -> Result<PackedWitness, Misfit> {
    let head = Head {
        phi: randomness(&[partition.inputs.comm_d_new.into(), partition.inputs.comm_r_old.into()]),
        apex_leafs: partition.proof.apex_leafs.iter().map(|leaf| Scalar::from(*leaf)).collect(),
        challenges: partition.challenges(),
    };
    let numbers: Vec<usize> = (0..partition.proof.challenge_proofs.len()).collect();
    fill(
        classes,
        |writer| partition.write_head(writer, &head),
        &numbers,
        |writer, number| {
            let proof = &partition.proof.challenge_proofs[*number];
            partition.write_challenge(writer, &head, head.challenges[*number], proof);
        },
    )
}

fn randomness(preimage: &[Scalar; 2]) -> Scalar {
    RANDOMNESS.value(preimage)
}

impl<T: SectorTree> Partition<'_, T> {
    /// Bits of a challenge that are random; the partition's number is above them.
    fn random_bits(&self) -> usize {
        self.params.challenge_bit_len - self.params.partition_bit_len
    }

    fn num_digests(&self) -> usize {
        self.params.challenge_count.div_ceil(CAPACITY / self.random_bits())
    }

    fn digest_preimage(&self, number: usize) -> [Scalar; 2] {
        let index = self.number * self.num_digests() + number;
        [self.inputs.comm_r_new.into(), Scalar::from(index as u64)]
    }

    /// As `gen_challenge_bits` takes them out of the digests.
    fn challenges(&self) -> Vec<u64> {
        let (len, per_digest) = (self.random_bits(), CAPACITY / self.random_bits());
        let partition = (self.number as u64) << len;
        let mut challenges = Vec::with_capacity(self.params.challenge_count);
        for digest in 0..self.num_digests() {
            let bytes = node(&randomness(&self.digest_preimage(digest)));
            let bit = |number: usize| u64::from(bytes[number / 8] >> (number % 8) & 1);
            let one = |number: usize| (0..len).fold(partition, |sum, i| sum | bit(number * len + i) << i);
            let rest = self.params.challenge_count - challenges.len();
            challenges.extend((0..per_digest.min(rest)).map(one));
        }
        challenges
    }

    fn write_head(&self, writer: &mut Writer<'_>, head: &Head) {
        let (params, inputs) = (self.params, self.inputs);
        let [comm_r_old, comm_r_new]: [Scalar; 2] = [inputs.comm_r_old, inputs.comm_r_new].map(Into::into);
        let comm_d_new: Scalar = inputs.comm_d_new.into();
        let selected =
            h_select(params.sector_nodes, inputs.h) << params.partition_bit_len | self.number as u64;
        writer.num(Scalar::from(selected));
        writer.input(Scalar::from(selected));
        writer.bits(selected, params.partition_bit_len + hs(params.sector_nodes).len());
        writer.num(Scalar::from(self.number as u64));
        for public in [comm_r_old, comm_d_new, comm_r_new] {
            writer.num(public);
            writer.input(public);
        }
        RANDOMNESS.hash(writer, &[comm_d_new, comm_r_old]);
        self.write_private(writer, head);
        self.write_digests(writer);
    }

    /// The private inputs that the challenges share, and what is proved of them.
    fn write_private(&self, writer: &mut Writer<'_>, head: &Head) {
        let first = &self.proof.challenge_proofs[0];
        let comm_c: Scalar = self.proof.comm_c.into();
        let roots: [Scalar; 2] = [first.proof_r_old.root(), first.proof_r_new.root()].map(Into::into);
        writer.num(comm_c);
        writer.nums(&roots);
        writer.nums(&head.apex_leafs);
        let data_path = Path::new(&first.proof_d_new);
        let (begin, end) = (self.random_bits(), self.params.challenge_bit_len);
        data_path.write_siblings(writer, begin, end);
        for root in roots {
            poseidon::hash(writer, &[comm_c, root]);
        }
        let mut row = head.apex_leafs.clone();
        while row.len() > 1 {
            row = row.chunks(2).map(|pair| hash_pair(writer, &pair[0], &pair[1])).collect();
        }
        Tree::Sha256.climb(writer, row[0], self.number as u64, &data_path, begin, end);
    }

    fn write_digests(&self, writer: &mut Writer<'_>) {
        for number in 0..self.num_digests() {
            let preimage = self.digest_preimage(number);
            writer.num(preimage[1]);
            let digest = RANDOMNESS.hash(writer, &preimage);
            writer.decomposition(&node(&digest));
        }
    }

    /// The new replica's leaf of challenge `number`, as the circuit derives it.
    pub(super) fn encoded(&self, number: usize) -> Scalar {
        let phi = randomness(&[self.inputs.comm_d_new.into(), self.inputs.comm_r_old.into()]);
        let high = self.challenges()[number] >> (self.params.challenge_bit_len - self.inputs.h);
        let proof = &self.proof.challenge_proofs[number];
        let (old, data): (Scalar, Scalar) =
            (proof.proof_r_old.leaf().into(), proof.proof_d_new.leaf().into());
        old + data * randomness(&[phi, Scalar::from(high)])
    }

    fn write_challenge(
        &self,
        writer: &mut Writer<'_>,
        head: &Head,
        challenge: u64,
        proof: &ChallengeProof<T>,
    ) {
        let high = self.write_high_bits(writer, challenge);
        let rho = RANDOMNESS.hash(writer, &[head.phi, high]);
        let [old, new] = [&proof.proof_r_old, &proof.proof_r_new].map(Path::new);
        let data = Path::new(&proof.proof_d_new);
        let product = data.leaf() * rho;
        let encoded = old.leaf() + product;
        writer.nums(&[old.leaf(), data.leaf(), product, encoded]);
        for (path, leaf) in [(&old, old.leaf()), (&new, encoded)] {
            path.write_siblings(writer, 0, path.num_levels());
            Tree::Poseidon.climb(writer, leaf, challenge, path, 0, path.num_levels());
        }
        let apex_height = self.random_bits() - self.params.apex_leaf_bit_len;
        let apex_index = (challenge >> apex_height) as usize % head.apex_leafs.len();
        select(writer, &head.apex_leafs, apex_index);
        data.write_siblings(writer, 0, apex_height);
        Tree::Sha256.climb(writer, data.leaf(), challenge, &data, 0, apex_height);
    }

    /// The challenge's high bits, as many as the selected one of six numbers says: all six, and the selected one.
    fn write_high_bits(&self, writer: &mut Writer<'_>, challenge: u64) -> Scalar {
        let lengths = hs(self.params.sector_nodes);
        let selected = h_select(self.params.sector_nodes, self.inputs.h);
        let mut sum = 0;
        for (number, length) in lengths.into_iter().enumerate() {
            let high = challenge >> (self.params.challenge_bit_len - length);
            let chosen = if selected >> number & 1 == 1 { high } else { 0 };
            writer.nums(&[high, chosen].map(Scalar::from));
            sum += chosen;
        }
        let sum = Scalar::from(sum);
        writer.num(sum);
        sum
    }
}
