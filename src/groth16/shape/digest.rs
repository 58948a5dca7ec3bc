//! The digest of a shape's matrices, expanded on the way.

use blstrs::Scalar;
use sha2::{Digest, Sha256};

use super::R1csShape;

/// Hashing starts at so many bytes: a call per item costs more than hashing it.
const BLOCK_BYTES: usize = 1 << 16;

/// Hashes in blocks.
struct BlockHasher {
    hasher: Sha256,
    block: Vec<u8>,
}

impl BlockHasher {
    #[inline(always)]
    fn update(&mut self, bytes: &[u8]) {
        self.block.extend_from_slice(bytes);
        if self.block.len() >= BLOCK_BYTES {
            self.hasher.update(&self.block);
            self.block.clear();
        }
    }

    fn finish(mut self) -> [u8; 32] {
        self.hasher.update(&self.block);
        self.hasher.finalize().into()
    }
}

impl R1csShape {
    /// The `r1cs_sha256` of the manifests: see `tests/data/filecoin/README.md`. It is of the matrices written out by
    /// rows (starts of rows in four bytes, columns in four, coefficients in 32), which are never there as a whole:
    /// PoRep of 32 GiB has 25.7 GiB of them, which take as long as hashing so much.
    pub fn sha256(&self) -> [u8; 32] {
        let coefficients: Vec<[u8; 32]> = self.coefficients().iter().map(Scalar::to_bytes_le).collect();
        let mut hasher = BlockHasher { hasher: Sha256::new(), block: Vec::with_capacity(2 * BLOCK_BYTES) };
        hasher.update(&(self.num_inputs() as u64).to_le_bytes());
        hasher.update(&(self.num_aux() as u64).to_le_bytes());
        let (rows, all) = (self.rows(), 0..self.num_rows());
        for matrix in 0..3 {
            // At most 2^32 - 1: no matrix with more entries is recorded.
            let mut end = 0u32;
            hasher.update(&end.to_le_bytes());
            rows.for_each(all.clone(), |_, id, _| {
                end += rows.patterns().row(id)[matrix].codes.len() as u32;
                hasher.update(&end.to_le_bytes());
            });
            rows.for_each(all.clone(), |_, id, anchors| {
                for &code in rows.patterns().row(id)[matrix].codes {
                    let column = self.column(anchors.variable(code)) as u32;
                    hasher.update(&column.to_le_bytes());
                }
            });
            rows.for_each(all.clone(), |_, id, _| {
                for &index in rows.patterns().row(id)[matrix].coefficients {
                    hasher.update(&coefficients[index as usize]);
                }
            });
        }
        hasher.finish()
    }
}
