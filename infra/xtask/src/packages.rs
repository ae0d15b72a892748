//! What the tests, the cluster and the deployment need of the system.

use std::path::Path;
use std::process::Command;

use anyhow::bail;

use crate::cluster::servers;
use crate::dynamodb_local;
use crate::run::{command, retried, works};

/// A package of Debian's.
pub(crate) struct DebianPackage {
    name: &'static str,
    reason: &'static str,
    present: fn() -> bool,
}

const CURL: DebianPackage = DebianPackage {
    name: "curl",
    reason: "the scripts of the S3 example",
    present: || works(command("curl").arg("--version")),
};

const JAVA: DebianPackage = DebianPackage {
    name: "default-jre-headless",
    reason: "Java, for Amazon's DynamoDB Local",
    present: || works(command("java").arg("-version")),
};

const MAVEN: DebianPackage = DebianPackage {
    name: "maven",
    reason: "fetches DynamoDB Local",
    present: || dynamodb_local::present() || works(command("mvn").arg("--version")),
};

pub(crate) const OF_TESTS: [DebianPackage; 7] = [
    CURL,
    DebianPackage {
        name: "busybox-static",
        reason: "the images in which tests run the entrypoint",
        present: || works(command("/bin/busybox").arg("true")),
    },
    DebianPackage {
        name: "podman",
        reason: "the command that runs containers",
        present: || works(command("podman").arg("--version")),
    },
    DebianPackage { name: "runc", reason: "starts containers", present: || works(command("runc").arg("--version")) },
    DebianPackage { name: "postgresql", reason: "the server of the database example", present: postgresql },
    JAVA,
    MAVEN,
];

pub(crate) const OF_DYNAMODB_LOCAL: [DebianPackage; 2] = [JAVA, MAVEN];

pub(crate) const OF_PYTHON: [DebianPackage; 1] = [DebianPackage {
    name: "python3-venv",
    reason: "the tools that build, check and deploy the template",
    present: || works(command("python3").args(["-c", "import ensurepip, venv"])),
}];

/// What is needed to try the deployment.
pub(crate) const OF_DEPLOYMENT: [DebianPackage; 2] =
    [CURL, DebianPackage { name: "iproute2", reason: "an address", present: || works(command("ip").arg("-V")) }];

/// What the cluster needs beside what Go builds.
pub(crate) const OF_CLUSTER: [DebianPackage; 7] = [
    DebianPackage {
        name: "containerd",
        reason: "runs containers",
        present: || works(command("containerd").arg("--version")) && works(command("ctr").arg("--version")),
    },
    DebianPackage { name: "runc", reason: "starts containers", present: || works(command("runc").arg("--version")) },
    DebianPackage {
        name: "containernetworking-plugins",
        reason: "networks of pods",
        present: || !servers::cni().is_empty(),
    },
    DebianPackage {
        name: "nftables",
        reason: "addresses of services",
        present: || works(command("nft").arg("--version")),
    },
    DebianPackage { name: "iproute2", reason: "links the cluster", present: || works(command("ip").arg("-V")) },
    DebianPackage {
        name: "busybox-static",
        reason: "the image with a shell",
        // Whether it is static shows in what it needs: nothing.
        present: || !works(command("ldd").arg("/bin/busybox")) && works(command("/bin/busybox").arg("true")),
    },
    DebianPackage {
        name: "debootstrap",
        reason: "the image of Debian",
        present: || works(command("debootstrap").arg("--version")),
    },
];

/// Installs what is missing; does nothing, and needs no network, when nothing is.
///
/// # Errors
/// When something is missing and cannot be installed; says what to install.
pub(crate) fn install(packages: &[DebianPackage]) -> anyhow::Result<()> {
    let missing: Vec<_> = packages.iter().filter(|package| !(package.present)()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    for package in &missing {
        eprintln!("{} is missing: {}", package.name, package.reason);
    }
    let names: Vec<_> = missing.iter().map(|package| package.name).collect();
    let by_hand = format!("install {} and run this again", names.join(" and "));
    if !works(command("apt-get").arg("--version")) {
        bail!("there is no apt-get here: {by_hand}");
    }
    let Some(prefix) = privilege() else {
        bail!("installing needs root or a sudo that asks no password: {by_hand}");
    };
    retried(|| apt(prefix, &["update", "--quiet"]))?;
    retried(|| {
        let mut install = apt(prefix, &["install", "--quiet", "--yes", "--no-install-recommends"]);
        install.args(&names);
        install
    })?;
    match missing.iter().find(|package| !(package.present)()) {
        Some(package) => bail!("{} is installed and still not found", package.name),
        None => Ok(()),
    }
}

/// What apt-get needs before it. `None`: this user may not install.
fn privilege() -> Option<&'static [&'static str]> {
    let root = command("id").arg("-u").output().is_ok_and(|output| output.stdout.trim_ascii() == b"0");
    if root {
        Some(&[])
    } else if works(command("sudo").args(["--non-interactive", "true"])) {
        Some(&["sudo", "--non-interactive"])
    } else {
        None
    }
}

fn apt(prefix: &[&str], arguments: &[&str]) -> Command {
    let mut words = prefix.iter().chain(&["env", "DEBIAN_FRONTEND=noninteractive", "apt-get"]);
    let mut command = command(words.next().copied().unwrap_or("apt-get"));
    // The lock is often held for a minute by a machine that has just started.
    command.args(words).args(["-o", "DPkg::Lock::Timeout=120", "-o", "Acquire::Retries=3"]).args(arguments);
    command
}

/// Debian keeps the server's programs out of PATH, under a directory per version.
fn postgresql() -> bool {
    let in_path = || works(command("initdb").arg("--version")) && works(command("postgres").arg("--version"));
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let installed = |version: &Path| version.join("bin/initdb").exists() && version.join("bin/postgres").exists();
    let server = versions.into_iter().any(|version| installed(&version.path())) || in_path();
    server && works(command("psql").arg("--version"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::root;

    #[test]
    fn the_setup_script_has_every_package() {
        let script = std::fs::read_to_string(root().join("infra/dev/setup.sh")).unwrap();
        let sets: [&[DebianPackage]; 5] = [&OF_TESTS, &OF_DYNAMODB_LOCAL, &OF_PYTHON, &OF_DEPLOYMENT, &OF_CLUSTER];
        for package in sets.into_iter().flatten() {
            let mut words = script.split_whitespace();
            assert!(words.any(|word| word == package.name), "infra/dev/setup.sh lacks {}", package.name);
        }
    }
}
