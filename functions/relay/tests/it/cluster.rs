//! The cluster that all tests share, and its images. The end-to-end tests include this file, too.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tokio::sync::OnceCell;

/// Image with a shell and its usual tools. Every test cluster has it.
pub(crate) const BUSYBOX: &str = "ebb.test/busybox:1";
pub(crate) const ENTRYPOINT: &str = "ebb.test/entrypoint:1";
/// Image of the relay. [`relay_image`] imports it.
pub(crate) const RELAY: &str = "ebb.test/ebb-relay:1";

#[derive(Debug)]
pub(crate) struct TestCluster {
    pub(crate) kubeconfig: PathBuf,
    /// The folder with `kubectl` and `helm`.
    pub(crate) programs: PathBuf,
    /// The address of this machine, as pods reach it.
    pub(crate) host: String,
}

impl TestCluster {
    /// Runs `helm` or `kubectl` as the administrator in the root of the repository. Returns its standard output.
    ///
    /// # Errors
    /// Returns the standard error if the program fails.
    pub(crate) fn run(&self, program: &str, arguments: &[&str], input: &str) -> Result<String, String> {
        let mut command = Command::new(self.programs.join(program));
        command.args(arguments).env("KUBECONFIG", &self.kubeconfig).current_dir(root());
        for proxy in ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"] {
            command.env_remove(proxy);
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }
}

pub(crate) async fn cluster() -> &'static TestCluster {
    static CLUSTER: OnceCell<TestCluster> = OnceCell::const_new();
    CLUSTER.get_or_init(async || tokio::task::spawn_blocking(up).await.unwrap()).await
}

fn up() -> TestCluster {
    let output = xtask(&["cluster", "up"]);
    let value = |label: &str| {
        let line = output.lines().find_map(|line| line.strip_prefix(label));
        line.unwrap_or_else(|| panic!("`cargo xtask cluster up` does not print {label:?}: {output}")).trim().to_owned()
    };
    let folder = tempfile::tempdir().unwrap();
    let built = xtask(&["build", "entrypoint"]);
    let program = built.split_once(": ").expect("the path comes first").0;
    std::fs::copy(program, folder.path().join("ebb-entrypoint")).unwrap();
    xtask(&["cluster", "image", ENTRYPOINT, folder.path().to_str().unwrap(), "--", "/ebb-entrypoint"]);
    TestCluster {
        kubeconfig: value("kubeconfig").into(),
        programs: value("programs").into(),
        host: value("this machine, from pods"),
    }
}

/// Builds an image of the relay from the executable `program` and imports it as `image`, such as [`RELAY`].
pub(crate) fn relay_image(program: &Path, image: &str) {
    let (folder, program) = (tempfile::tempdir().unwrap(), program.to_str().unwrap());
    let to = folder.path().to_str().unwrap();
    let (repository, tag) = image.rsplit_once("/ebb-relay:").unwrap();
    let named = ["--repository", repository, "--tag", tag];
    xtask(&[&["build", "images", "--relay", program, "--to", to], &named[..]].concat());
    xtask(&["cluster", "image", image, &format!("{to}/ebb-relay.tar")]);
}

pub(crate) fn root() -> &'static Path {
    let above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    above.into_iter().find(|folder| folder.join("template.yaml").is_file()).expect("the crate is in the repository")
}

/// Runs `cargo xtask`. Returns its standard output.
///
/// # Panics
/// If the command fails.
pub(crate) fn xtask(arguments: &[&str]) -> String {
    let cargo = std::env::var_os("CARGO").expect("cargo runs the tests");
    let mut command = Command::new(cargo);
    command.arg("xtask").args(arguments).current_dir(root()).stderr(Stdio::piped());
    let output = command.output().expect("cargo starts");
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(
        output.status.success(),
        "these tests need a cluster and its entrypoint; `cargo xtask {}` failed:\n{stdout}{stderr}",
        arguments.join(" ")
    );
    stdout.into_owned()
}
