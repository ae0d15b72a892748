//! The cluster that all tests share, and the images in it. The stories of the whole have this file, too.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tokio::sync::OnceCell;

/// A shell and the small tools; every cluster has it.
pub(crate) const BUSYBOX: &str = "ebb.test/busybox:1";
/// The image of the entrypoint alone.
pub(crate) const ENTRYPOINT: &str = "ebb.test/entrypoint:1";
/// The relay, once [`relay_image`] has made it.
pub(crate) const RELAY: &str = "ebb.test/ebb-relay:1";

/// Where it is.
#[derive(Debug)]
pub(crate) struct TestCluster {
    pub(crate) kubeconfig: PathBuf,
    /// The folder of kubectl and helm.
    pub(crate) programs: PathBuf,
    pub(crate) host: String,
}

impl TestCluster {
    /// helm or kubectl, as the administrator and in the root of the repository; gives what it prints.
    ///
    /// # Errors
    /// When it fails; with what it says.
    pub(crate) fn run(&self, program: &str, arguments: &[&str], input: &str) -> Result<String, String> {
        let mut command = Command::new(self.programs.join(program));
        command.args(arguments).env("KUBECONFIG", &self.kubeconfig).current_dir(root());
        for proxy in ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"] {
            command.env_remove(proxy);
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), input.as_bytes()).unwrap();
        let done = child.wait_with_output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if done.status.success() { Ok(text(&done.stdout)) } else { Err(text(&done.stderr)) }
    }
}

impl TestCluster {
    /// Applies what the chart has for the namespaces `UNITS` and `UNITS-relay`: their labels, and the admission policy for
    /// a user who acts as the relay. Returns the relay's policy, as YAML.
    pub(crate) fn enforce(&self, units: &str, policy: &Value, user: &str) -> String {
        let own = format!("{units}-relay");
        let values = json!({
            "image": "i", "unitNamespace": units, "callbackHosts": ["h"], "signing": {"existingSecret": "s"},
            "policy": policy, "createNamespaces": [units, own],
        });
        let release = format!("--namespace={own}");
        let template = |file: &str| {
            let file = format!("--show-only=templates/{file}.yaml");
            let command = ["template", "eu", "infra/relay/chart", "--kube-version=1.34", "--values=-", &release, &file];
            self.run("helm", &command, &values.to_string()).unwrap()
        };
        let (namespaces, rules) = (template("namespaces"), template("admission"));
        let rules = rules.replace(&format!("system:serviceaccount:{own}:ebb-relay"), user);
        self.run("kubectl", &["apply", "--server-side", "--filename=-"], &format!("{namespaces}\n{rules}")).unwrap();
        let settings: Value = serde_saphyr::from_str(&template("settings")).unwrap();
        settings["data"]["policy.yaml"].as_str().expect("the chart has a policy").to_owned()
    }

    /// Removes the admission policy.
    pub(crate) fn stop_enforcing(&self, units: &str) {
        let name = format!("ebb-relay.{units}-relay");
        for kind in ["validatingadmissionpolicybinding", "validatingadmissionpolicy"] {
            self.run("kubectl", &["delete", "--ignore-not-found", kind, &name], "").unwrap();
        }
    }
}

/// The cluster, which is brought up if need be.
pub(crate) async fn cluster() -> &'static TestCluster {
    static CLUSTER: OnceCell<TestCluster> = OnceCell::const_new();
    CLUSTER.get_or_init(async || tokio::task::spawn_blocking(up).await.unwrap()).await
}

fn up() -> TestCluster {
    let said = xtask(&["cluster", "up", "--with", "helm,kro"]);
    let place = |what: &str| {
        let line = said.lines().find_map(|line| line.strip_prefix(what));
        line.unwrap_or_else(|| panic!("`cargo xtask cluster up` does not say {what:?}: {said}")).trim().to_owned()
    };
    let folder = tempfile::tempdir().unwrap();
    let built = xtask(&["build", "entrypoint"]);
    let program = built.split_once(": ").expect("the path comes first").0;
    std::fs::copy(program, folder.path().join("ebb-entrypoint")).unwrap();
    xtask(&["cluster", "image", ENTRYPOINT, folder.path().to_str().unwrap(), "--", "/ebb-entrypoint"]);
    TestCluster {
        kubeconfig: place("kubeconfig").into(),
        programs: place("programs").into(),
        host: place("this machine, from pods"),
    }
}

/// Imports an image of the relay that is built as `program`.
pub(crate) fn relay_image(program: &Path) {
    let (folder, program) = (tempfile::tempdir().unwrap(), program.to_str().unwrap());
    let to = folder.path().to_str().unwrap();
    let (repository, tag) = RELAY.rsplit_once("/ebb-relay:").unwrap();
    let named = ["--repository", repository, "--tag", tag];
    xtask(&[&["build", "images", "--only-relay", "--relay", program, "--to", to], &named[..]].concat());
    xtask(&["cluster", "image", RELAY, &format!("{to}/ebb-relay.tar")]);
}

/// The root of the repository.
pub(crate) fn root() -> &'static Path {
    let above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    above.into_iter().find(|folder| folder.join("template.yaml").is_file()).expect("it is in the repository")
}

/// What a chore says; it has to succeed.
pub(crate) fn xtask(arguments: &[&str]) -> String {
    let cargo = std::env::var_os("CARGO").expect("cargo runs the tests");
    let mut command = Command::new(cargo);
    command.arg("xtask").args(arguments).current_dir(root()).stderr(Stdio::piped());
    let done = command.output().expect("cargo starts");
    let (said, complained) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(
        done.status.success(),
        "these tests need a cluster and its entrypoint; `cargo xtask {}` failed:\n{said}{complained}",
        arguments.join(" ")
    );
    said.into_owned()
}
