//! Certificates of a test's own.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{date_time_ymd, BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

/// An authority, and certificates that it signed, as PEM files in `dir`.
pub struct Authority {
    dir: PathBuf,
    name: &'static str,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub fn new(dir: &Path, name: &'static str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        fs::write(dir.join(format!("{name}.pem")), certificate.pem()).unwrap();
        Self { dir: dir.to_owned(), name, issuer: Issuer::new(params, key) }
    }

    /// Of its own certificate.
    pub fn path(&self) -> String {
        self.dir.join(format!("{}.pem", self.name)).display().to_string()
    }

    /// Paths of certificate and key.
    pub fn sign(&self, name: &str) -> (String, String) {
        self.write(name, CertificateParams::new(vec![name.to_owned()]).unwrap())
    }

    /// The same, of a certificate whose time is over.
    #[allow(dead_code, reason = "not every test crate asks for it")]
    pub fn sign_expired(&self, name: &str) -> (String, String) {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(2021, 1, 1));
        self.write(&format!("expired-{name}"), params)
    }

    fn write(&self, name: &str, params: CertificateParams) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let file = |kind: &str| self.dir.join(format!("{}-{name}-{kind}.pem", self.name));
        fs::write(file("cert"), certificate.pem()).unwrap();
        fs::write(file("key"), key.serialize_pem()).unwrap();
        (file("cert").display().to_string(), file("key").display().to_string())
    }
}
