//! A synthetic job as a folder: `manifest.json` and its input files (format: `tests/data/filecoin/README.md`).

use std::fs;
use std::io;
use std::path::Path;

use blstrs::Scalar;
use ff::PrimeField;
use serde_json::{json, Map, Value};
use sha2::{Digest, Sha256};

use super::SyntheticJob;
use crate::circuits::manifest::SyntheticField;
use crate::circuits::request::prover_id;
use crate::circuits::ProofKind;
use crate::error::{RequestError, SynthesisError};
use crate::ids::PartitionIndex;

/// Why a synthetic job was not written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// A defect: what was made is refused by its own reader.
    #[error("the synthetic sector does not hold: {0}")]
    Refused(#[from] RequestError),
    /// A defect: its public inputs cannot be made.
    #[error("the synthetic sector has no public inputs: {0}")]
    Inputs(#[from] SynthesisError),
    /// The folder or a file in it cannot be written.
    #[error("{path}: {source}")]
    Io {
        path: String,
        #[source]
        source: io::Error,
    },
}

impl SyntheticJob {
    /// Decodes the request once, so that nothing is written that would be refused, and writes `manifest.json` and the
    /// input files it names into `dir`, which is made if it is not there. Files of these names are replaced.
    ///
    /// # Errors
    /// [`WriteError`]
    pub fn write(&self, dir: &Path) -> Result<(), WriteError> {
        let workload = self.request.clone().decode(Path::new(""))?;
        let public_inputs: Vec<Vec<String>> = (0..workload.num_partitions())
            .map(|partition| {
                let inputs = workload.public_inputs(PartitionIndex(partition))?;
                Ok(inputs.iter().map(|input: &Scalar| hex::encode(input.to_repr())).collect())
            })
            .collect::<Result<_, SynthesisError>>()?;
        fs::create_dir_all(dir).map_err(|source| io_error(dir, source))?;
        let mut digests = Map::new();
        let mut names = Vec::new();
        for (name, bytes) in self.input_files() {
            write_file(&dir.join(&name), bytes)?;
            digests.insert(name.clone(), hex::encode(Sha256::digest(bytes)).into());
            names.push(name);
        }
        let mut text =
            serde_json::to_vec_pretty(&self.manifest(&names, &public_inputs, digests)).expect("it is JSON");
        text.push(b'\n');
        // Last: a manifest that is there has all its files.
        write_file(&dir.join("manifest.json"), &text)
    }

    fn input_files(&self) -> Vec<(String, &[u8])> {
        if self.options.kind == ProofKind::PorepSealCommit {
            return vec![("c1.json".to_owned(), &self.request.vanilla_proof)];
        }
        let proofs = self.request.vanilla_proofs.iter().enumerate();
        proofs.map(|(number, bytes)| (format!("vanilla-{number}.bin"), bytes.as_slice())).collect()
    }

    fn manifest(
        &self,
        names: &[String],
        public_inputs: &[Vec<String>],
        digests: Map<String, Value>,
    ) -> Value {
        let mut request = self.facts.request.clone();
        request.insert("vanilla".into(), json!(names));
        request.insert("public_inputs".into(), json!(public_inputs));
        let scale = self.request.test_scale;
        let synthetic = SyntheticField {
            seed: self.options.seed,
            challenges: scale.map(|scale| scale.challenges),
            partitions: scale.map(|scale| scale.partitions),
        };
        let miner_id = self.request.miner_id;
        let mut manifest = json!({
            "format": 1,
            "kind": self.options.kind.work_kind().as_str(),
            "sector_size": self.options.sector_size.bytes(),
            "registered_proof": { "name": self.registered.name(), "number": self.registered.number() },
            "miner_id": miner_id,
            "prover_id": hex::encode(prover_id(miner_id)),
            "synthetic": synthetic,
            "requests": [request],
            "files": digests,
        });
        let fields = manifest.as_object_mut().expect("it is an object");
        fields.extend(self.facts.manifest.clone());
        manifest
    }
}

fn write_file(path: &Path, bytes: &[u8]) -> Result<(), WriteError> {
    fs::write(path, bytes).map_err(|source| io_error(path, source))
}

fn io_error(path: &Path, source: io::Error) -> WriteError {
    WriteError::Io { path: path.display().to_string(), source }
}
