//! The recorded jobs under `tests/data/filecoin`, and circuit shapes recorded once per test run.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

use cuzk::circuits::manifest::Manifest;
use cuzk::circuits::{CircuitSpec, FilecoinRequest, Workload};
use cuzk::error::RequestError;
use cuzk::groth16::R1csShape;

/// Where parameter files would be; decoding does not look.
pub const PARAMS_DIR: &str = "params";

pub fn data_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/filecoin")
}

/// A folder with a manifest, such as `porep-2k/sector-1`.
pub struct Fixture {
    pub name: String,
    pub dir: PathBuf,
    pub manifest: Manifest,
}

impl Fixture {
    pub fn open(name: &str) -> Self {
        let dir = data_dir().join(name);
        let manifest = Manifest::read(&dir.join("manifest.json")).unwrap();
        Self { name: name.into(), dir, manifest }
    }

    /// All folders, by name.
    pub fn all() -> Vec<Self> {
        let mut names = Vec::new();
        for group in std::fs::read_dir(data_dir()).unwrap() {
            let group = group.unwrap().path();
            if !group.is_dir() {
                continue;
            }
            for job in std::fs::read_dir(&group).unwrap() {
                let job = job.unwrap().path();
                if job.join("manifest.json").exists() {
                    names.push(job.strip_prefix(data_dir()).unwrap().display().to_string());
                }
            }
        }
        names.sort();
        names.iter().map(|name| Self::open(name)).collect()
    }

    /// All folders of a group, such as `porep-2k`.
    pub fn group(group: &str) -> Vec<Self> {
        let all = Self::all().into_iter().filter(|fixture| fixture.name.starts_with(&format!("{group}/")));
        all.collect()
    }

    pub fn request(&self, index: usize) -> FilecoinRequest {
        self.manifest.request(index, &self.dir).unwrap()
    }

    pub fn workload(&self, index: usize) -> Arc<dyn Workload> {
        decode(self.request(index)).unwrap()
    }
}

pub fn request(name: &str) -> FilecoinRequest {
    Fixture::open(name).request(0)
}

pub fn decode(request: FilecoinRequest) -> Result<Arc<dyn Workload>, RequestError> {
    request.decode(Path::new(PARAMS_DIR))
}

/// The error of a request that must be refused.
pub fn refusal(request: FilecoinRequest) -> RequestError {
    decode(request).map(|workload| format!("{workload:?}")).expect_err("the request must be refused")
}

/// The circuit's shape, recorded once per run: it takes seconds.
pub fn shape(circuit: &str) -> Arc<R1csShape> {
    type Entry = (String, Arc<OnceLock<Arc<R1csShape>>>);
    static SHAPES: Mutex<Vec<Entry>> = Mutex::new(Vec::new());
    let cell = {
        let mut shapes = SHAPES.lock().unwrap();
        match shapes.iter().find(|(name, _)| name == circuit) {
            Some((_, cell)) => cell.clone(),
            None => {
                shapes.push((circuit.into(), Arc::default()));
                shapes[shapes.len() - 1].1.clone()
            }
        }
    };
    cell.get_or_init(|| Arc::new(CircuitSpec::by_id(circuit).unwrap().record_shape().unwrap())).clone()
}

/// The request must be refused with all `parts` in the message.
pub fn assert_refused(request: FilecoinRequest, parts: &[&str]) -> RequestError {
    let error = refusal(request);
    let text = error.to_string();
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in {text:?}");
    }
    error
}

/// The request with a change to one of its `vanilla_proofs`.
pub fn changed(request: FilecoinRequest, proof: usize, change: impl FnOnce(&mut Vec<u8>)) -> FilecoinRequest {
    let mut request = request;
    change(&mut request.vanilla_proofs[proof]);
    request
}

/// Writes a bincode number.
pub fn put(bytes: &mut [u8], at: usize, number: u64) {
    bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
}

/// A Merkle path in bincode: a tag, root and leaf before its levels.
pub const LEVELS: usize = 76;

/// A level of a replica tree's path: a count, seven siblings, an index.
pub const LEVEL_BYTES: usize = 240;
