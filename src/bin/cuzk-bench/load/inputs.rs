//! What is proved: synthetic inputs made on the spot, or recorded ones.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use cuzk::circuits::manifest::Manifest;
use cuzk::circuits::synthetic::SyntheticOptions;
use cuzk::circuits::{CircuitSpec, FilecoinRequest, Workload};
use cuzk::error::RequestError;
use cuzk::groth16::srs_file::read_vk;
use cuzk::groth16::VerifyingKey;

use crate::Failure;

/// One job's inputs, decoded once, for the check of its proofs.
pub struct Input {
    /// As it was named on the command line.
    pub kind: String,
    pub request: FilecoinRequest,
    pub workload: Arc<dyn Workload>,
}

pub struct Inputs {
    pub all: Vec<Input>,
    /// In the order of the command line: the indices in `all` of each kind's variants.
    pub by_kind: Vec<(String, Vec<usize>)>,
    keys: BTreeMap<String, VerifyingKey>,
}

impl Inputs {
    /// Makes or reads the inputs of `kinds`, and reads the verifying keys of their circuits.
    pub fn make<'k>(
        kinds: impl IntoIterator<Item = &'k str>,
        variants: u64,
        seed: u64,
        params: &Path,
    ) -> Result<Self, Failure> {
        let mut inputs = Self { all: Vec::new(), by_kind: Vec::new(), keys: BTreeMap::new() };
        for kind in kinds {
            if inputs.by_kind.iter().any(|(known, _)| known == kind) {
                return Err(Failure::usage(format!("{kind} is named twice")));
            }
            let requests = match circuit(kind) {
                Some(spec) => synthetic(&spec, variants, seed)?,
                None => recorded(kind)?,
            };
            let mut indices = Vec::new();
            for request in requests {
                let workload = request
                    .clone()
                    .decode(params)
                    .map_err(|error| Failure::usage(format!("{kind}: {error}")))?;
                inputs.read_key(workload.as_ref(), params)?;
                indices.push(inputs.all.len());
                inputs.all.push(Input { kind: kind.to_owned(), request, workload });
            }
            inputs.by_kind.push((kind.to_owned(), indices));
        }
        Ok(inputs)
    }

    fn read_key(&mut self, workload: &dyn Workload, params: &Path) -> Result<(), Failure> {
        let circuit = workload.circuit().to_string();
        if self.keys.contains_key(&circuit) {
            return Ok(());
        }
        let spec =
            CircuitSpec::by_id(&circuit).ok_or_else(|| Failure::usage(format!("{circuit}: is unknown")))?;
        let path = params.join(spec.vk_file());
        let key = read_vk(&path).map_err(|error| {
            Failure::usage(error.for_circuit(&spec.id(), Some(spec.how_to_get_params())).to_string())
        })?;
        self.keys.insert(circuit, key);
        Ok(())
    }

    /// The key that proofs of this input are checked with.
    pub fn key(&self, input: &Input) -> &VerifyingKey {
        self.keys.get(input.workload.circuit().as_str()).expect("it was read with the input")
    }
}

/// By id, or as the folders of recorded inputs name it: `window-2k`.
fn circuit(kind: &str) -> Option<CircuitSpec> {
    let id = match kind.strip_prefix("window-") {
        Some(size) => format!("wpost-{size}"),
        None => kind.to_owned(),
    };
    CircuitSpec::by_id(&id).filter(|spec| !spec.is_scaled())
}

fn synthetic(spec: &CircuitSpec, variants: u64, seed: u64) -> Result<Vec<FilecoinRequest>, Failure> {
    let one = |variant: u64| {
        let seed = seed.wrapping_mul(1000).wrapping_add(variant);
        let options = SyntheticOptions::new(spec.kind, spec.sector_size, seed);
        options.generate().map(|job| job.request).map_err(Failure::failed)
    };
    (0..variants).map(one).collect()
}

fn recorded(kind: &str) -> Result<Vec<FilecoinRequest>, Failure> {
    let path = Path::new(kind);
    if !path.exists() {
        let what =
            "is no circuit (such as winning-2k, window-2k, porep-2k, snap-2k), and no manifest.json is there";
        return Err(Failure::usage(format!("{kind}: {what}")));
    }
    let read = || -> Result<Vec<FilecoinRequest>, RequestError> {
        let manifest = Manifest::read(path)?;
        (0..manifest.requests.len())
            .map(|index| manifest.request(index, &manifest.input_folder(index, path)))
            .collect()
    };
    let requests: Vec<FilecoinRequest> =
        read().map_err(|error| Failure::usage(format!("{kind}: {error}")))?;
    if requests.is_empty() {
        return Err(Failure::usage(format!("{kind}: has no requests")));
    }
    Ok(requests)
}
