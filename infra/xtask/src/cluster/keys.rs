//! Keys and certificates of a cluster: one authority, a certificate per server, a kubeconfig per client.
//!
//! They are created with the cluster and removed with it.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::Context as _;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};

use super::folder;
use super::netns::ClusterNetwork;
use super::servers::{NODE, form};

/// The clients of the API server: file, user and group.
const CLIENTS: [(&str, &str, &str); 5] = [
    ("admin", "admin", "system:masters"),
    ("kube-controller-manager", "system:kube-controller-manager", ""),
    ("kube-scheduler", "system:kube-scheduler", ""),
    ("kube-proxy", "system:kube-proxy", ""),
    ("kubelet", "system:node:ebb", "system:nodes"),
];

/// Writes all keys and certificates into `folder`, and the administrator's kubeconfig into the state folder.
pub(crate) fn write(folder: &Path, network: ClusterNetwork) -> anyhow::Result<()> {
    let mut own = CertificateParams::new([])?;
    own.distinguished_name = name("ebb-cluster", "");
    own.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    own.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    let authority = CertifiedIssuer::self_signed(own, KeyPair::generate()?)?;
    folder::write(&folder.join("ca.crt"), &authority.pem())?;

    let of_server = |file: &str, names: &[String]| {
        let (certificate, key) = signed(&authority, name(file, ""), ExtendedKeyUsagePurpose::ServerAuth, names)?;
        pair(folder, file, &certificate, &key)
    };
    let known = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "127.0.0.1"];
    let known = known.map(str::to_owned).into_iter().chain([network.node(), network.api()]);
    of_server("kube-apiserver", &known.collect::<Vec<_>>())?;
    of_server("kubelet", &[NODE.to_owned(), network.node()])?;

    // The API server authenticates to the kubelet with this certificate; both trust the same authority.
    let subject = name("kube-apiserver", "system:masters");
    let (certificate, key) = signed(&authority, subject, ExtendedKeyUsagePurpose::ClientAuth, &[])?;
    pair(folder, "kube-apiserver-client", &certificate, &key)?;
    let accounts = KeyPair::generate()?;
    folder::write(&folder.join("accounts.pub"), &accounts.public_key_pem())?;
    secret(&folder.join("accounts.key"), &accounts.serialize_pem())?;

    let form = form("kubeconfig.json")?;
    for (file, common, group) in CLIENTS {
        let (certificate, key) = signed(&authority, name(common, group), ExtendedKeyUsagePurpose::ClientAuth, &[])?;
        let encoded = |text: &str| BASE64_STANDARD.encode(text);
        let text = form
            .replace("{{server}}", &format!("https://{}:6443", network.node()))
            .replace("{{authority}}", &encoded(&authority.pem()))
            .replace("{{certificate}}", &encoded(&certificate))
            .replace("{{key}}", &encoded(&key));
        secret(&folder.join(format!("{file}.kubeconfig")), &text)?;
    }
    secret(&folder::kubeconfig(), &fs::read_to_string(folder.join("admin.kubeconfig"))?)
}

fn name(common: &str, group: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common);
    if !group.is_empty() {
        name.push(DnType::OrganizationName, group);
    }
    name
}

/// Returns a certificate and its key as PEM.
fn signed(
    authority: &CertifiedIssuer<'_, KeyPair>,
    subject: DistinguishedName,
    usage: ExtendedKeyUsagePurpose,
    names: &[String],
) -> anyhow::Result<(String, String)> {
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = subject;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![usage];
    let key = KeyPair::generate()?;
    Ok((params.signed_by(&key, authority)?.pem(), key.serialize_pem()))
}

fn pair(folder: &Path, file: &str, certificate: &str, key: &str) -> anyhow::Result<()> {
    folder::write(&folder.join(format!("{file}.crt")), certificate)?;
    secret(&folder.join(format!("{file}.key")), key)
}

/// Writes a file that only its owner can read.
fn secret(path: &Path, text: &str) -> anyhow::Result<()> {
    folder::write(path, "")?;
    fs::set_permissions(path, Permissions::from_mode(0o600))
        .with_context(|| format!("cannot protect {}", path.display()))?;
    folder::write(path, text)
}
