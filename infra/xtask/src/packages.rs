//! What the tests, the cluster and the deployment need of the system.

use std::path::Path;
use std::process::Command;

use anyhow::bail;

use crate::cluster::servers;
use crate::dynamodb_local;
use crate::run::{command, retried, works};

/// A package of Debian's.
pub(crate) struct Package {
    name: &'static str,
    why: &'static str,
    present: fn() -> bool,
}

const CURL: Package = Package {
    name: "curl",
    why: "the scripts of the S3 example",
    present: || works(command("curl").arg("--version")),
};

const JAVA: Package = Package {
    name: "default-jre-headless",
    why: "Java, for Amazon's DynamoDB Local",
    present: || works(command("java").arg("-version")),
};

const MAVEN: Package = Package {
    name: "maven",
    why: "fetches DynamoDB Local",
    present: || dynamodb_local::present() || works(command("mvn").arg("--version")),
};

pub(crate) const OF_TESTS: [Package; 7] = [
    CURL,
    Package {
        name: "busybox-static",
        why: "the images that the runner is tried in",
        present: || works(command("/bin/busybox").arg("true")),
    },
    Package {
        name: "podman",
        why: "the command that runs containers",
        present: || works(command("podman").arg("--version")),
    },
    Package { name: "runc", why: "starts containers", present: || works(command("runc").arg("--version")) },
    Package { name: "postgresql", why: "the server of the database example", present: postgresql },
    JAVA,
    MAVEN,
];

pub(crate) const OF_DYNAMODB_LOCAL: [Package; 2] = [JAVA, MAVEN];

pub(crate) const OF_PYTHON: [Package; 1] = [Package {
    name: "python3-venv",
    why: "the tools that build, check and deploy the template",
    present: || works(command("python3").args(["-c", "import ensurepip, venv"])),
}];

/// What is needed to try the deployment.
pub(crate) const OF_DEPLOYMENT: [Package; 2] =
    [CURL, Package { name: "iproute2", why: "an address", present: || works(command("ip").arg("-V")) }];

/// What the cluster needs beside what Go builds.
pub(crate) const OF_CLUSTER: [Package; 7] = [
    Package {
        name: "containerd",
        why: "runs containers",
        present: || works(command("containerd").arg("--version")) && works(command("ctr").arg("--version")),
    },
    Package { name: "runc", why: "starts containers", present: || works(command("runc").arg("--version")) },
    Package {
        name: "containernetworking-plugins",
        why: "networks of pods",
        present: || !servers::cni().is_empty(),
    },
    Package {
        name: "nftables",
        why: "addresses of services",
        present: || works(command("nft").arg("--version")),
    },
    Package { name: "iproute2", why: "links the cluster", present: || works(command("ip").arg("-V")) },
    Package {
        name: "busybox-static",
        why: "the image with a shell",
        // Whether it is static shows in what it needs: nothing.
        present: || !works(command("ldd").arg("/bin/busybox")) && works(command("/bin/busybox").arg("true")),
    },
    Package {
        name: "debootstrap",
        why: "the image of Debian",
        present: || works(command("debootstrap").arg("--version")),
    },
];

/// Installs what is missing; does nothing, and needs no network, when nothing is.
///
/// # Errors
/// When something is missing and cannot be installed; says what to install.
pub(crate) fn install(packages: &[Package]) -> anyhow::Result<()> {
    let missing: Vec<_> = packages.iter().filter(|package| !(package.present)()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    for package in &missing {
        eprintln!("{} is missing: {}", package.name, package.why);
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
    let installed =
        |version: &Path| version.join("bin/initdb").exists() && version.join("bin/postgres").exists();
    let server = versions.into_iter().any(|version| installed(&version.path())) || in_path();
    server && works(command("psql").arg("--version"))
}
