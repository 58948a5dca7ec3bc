//! The test parameters that `cuzk params generate` makes, known by their digests (`tests/data/filecoin/README.md`).

use cuzk::circuits::CircuitSpec;

/// SHA-256 of a circuit's test parameters, in hex.
pub struct TestParams {
    pub circuit: &'static str,
    pub params_sha256: &'static str,
    pub vk_sha256: &'static str,
}

/// Every circuit whose test parameters have been made. The bytes depend on the circuit alone, so another digest means
/// other parameters or a damaged file.
const KNOWN: [TestParams; 7] = [
    TestParams {
        circuit: "porep-2k",
        params_sha256: "fe10dfccde1eb19217d6514da25e77e4bb39941dee20b0988e7cd232da5da63d",
        vk_sha256: "a6ce4104ca40afe45967741c04582d01cc5177cf82103f052dd807ade8c49f8a",
    },
    TestParams {
        circuit: "porep-8m",
        params_sha256: "b081ce3b5cb69d850e02fe808f530df3251162862179cd0d2412855e1ada475c",
        vk_sha256: "37aaab8ad6dc7764eb29604380496e831a5faf3e0e20fe65de8228a97948d5a8",
    },
    TestParams {
        circuit: "snap-2k",
        params_sha256: "11b0dc162e2b054274aa15866d4fa6e534b3dda064d141647080bd05143c3014",
        vk_sha256: "aa6b07fe155896af31b09a5ccafa0954dd129b8509f183ada33951d5c25f96a6",
    },
    TestParams {
        circuit: "wpost-2k",
        params_sha256: "de683696506b1ce4f4fb1eb0bb074ee144d6dc23c7a9a940903ee6e7c7dc14b4",
        vk_sha256: "cf6b3c1e7a9e2021fa4997f1c3e62f1756ec7dbed2a889e1c3a4f30275194241",
    },
    TestParams {
        circuit: "wpost-8m",
        params_sha256: "a97219b8e4b86ef55e109f3bc9b2696d82a3445e05fc37efe0598434ea220e0b",
        vk_sha256: "c45f0b6f3e58bae81ecaab9f4a1a801b0fecb6c6264fc15cba745ec69051d882",
    },
    TestParams {
        circuit: "winning-2k",
        params_sha256: "f172fd24b88691449e0883ab63c8bb4a228f25b85b2fb262651b616860001a1d",
        vk_sha256: "4126ebc7a428b13748da8c35968f1d56513d2477a1978a7d9e2010f4701e3804",
    },
    TestParams {
        circuit: "winning-8m",
        params_sha256: "6f441bad865e607200c33c39a49da66645327c67a7459a8c8da58c60cda91919",
        vk_sha256: "74fe35d814c929464bd0720ec62bb5e92de26d3746efaa41d2898840f1b044d8",
    },
];

/// The test parameters of `spec`, where they are known.
pub fn of(spec: &CircuitSpec) -> Option<&'static TestParams> {
    let name = spec.to_string();
    KNOWN.iter().find(|known| known.circuit == name)
}

/// The test parameters or the test verifying key with this digest.
pub fn by_sha256(sha256: &str) -> Option<&'static TestParams> {
    KNOWN.iter().find(|known| known.params_sha256 == sha256 || known.vk_sha256 == sha256)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_those_of_the_manifests() {
        let manifests = [
            ("porep-2k", include_str!("../../../tests/data/filecoin/porep-2k/sector-1/manifest.json")),
            ("porep-8m", include_str!("../../../tests/data/filecoin/porep-8m/sector-1/manifest.json")),
            ("snap-2k", include_str!("../../../tests/data/filecoin/snap-2k/sector-1/manifest.json")),
            ("wpost-2k", include_str!("../../../tests/data/filecoin/window-2k/full-partition/manifest.json")),
            ("wpost-8m", include_str!("../../../tests/data/filecoin/window-8m/full-partition/manifest.json")),
            ("winning-2k", include_str!("../../../tests/data/filecoin/winning-2k/sector-1/manifest.json")),
            ("winning-8m", include_str!("../../../tests/data/filecoin/winning-8m/sector-1/manifest.json")),
        ];
        assert_eq!(manifests.len(), KNOWN.len());
        for (circuit, manifest) in manifests {
            let manifest: serde_json::Value = serde_json::from_str(manifest).unwrap();
            let spec = CircuitSpec::by_id(circuit).unwrap();
            let known = of(&spec).unwrap();
            assert_eq!(manifest["groth16"]["params_sha256"], known.params_sha256, "{circuit}");
            assert_eq!(manifest["groth16"]["vk_sha256"], known.vk_sha256, "{circuit}");
            assert_eq!(manifest["groth16"]["params_file"], spec.params_file(), "{circuit}");
            assert_eq!(manifest["groth16"]["vk_file"], spec.vk_file(), "{circuit}");
        }
    }
}
