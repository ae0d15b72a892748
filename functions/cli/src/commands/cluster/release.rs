//! The release of a relay: the chart, which this program carries, and helm, which installs it.

use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use ebb_protocol::api::{ClusterDetail, ClusterInfo, ClusterState};
use serde_json::Value;
use tempfile::{NamedTempFile, TempDir};
use tokio::process::Command;
use tokio::time::Instant;

use super::list;
use crate::{ApiClient, CliError, Result, output};

/// The name of the release. Its namespace has one relay.
const RELEASE: &str = "ebb-relay";
const VALUES: &str = "values.yaml";
/// Selects the pods of the relay.
const PODS: &str = "--selector=app.kubernetes.io/name=ebb-relay";
/// The folder with the chart there. A folder of its own for each version has no templates of another one.
const CHART: &str = concat!("chart-", env!("CARGO_PKG_VERSION"));
/// The time after which an installed relay has to be up.
const UP_TIME: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(200);

/// Pairs the names of the chart's files with their texts.
macro_rules! files {
    ($($name:literal)+) => {
        [$(($name, include_str!(concat!("../../../../../infra/relay/chart/", $name)))),+]
    };
}

const FILES: [(&str, &str); 14] = files! {
    "Chart.yaml" "rights.yaml" "rules.yaml" "templates/NOTES.txt" "templates/_names.tpl" "templates/admission.yaml"
    "templates/deployment.yaml" "templates/namespaces.yaml" "templates/network.yaml" "templates/rights.yaml"
    "templates/services.yaml" "templates/settings.yaml" "values.schema.json" "values.yaml"
};

#[derive(Debug, Default, clap::Args)]
pub(super) struct InstallArgs {
    /// Install the chart with helm, and wait until the relay is up; without it, print the commands
    #[arg(long)]
    pub(super) apply: bool,
    /// Context of the kubeconfig; by default the current one
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// File with the values to start from, instead of those of the release
    #[arg(long, value_name = "FILE")]
    values: Option<PathBuf>,
    /// Folder for the chart and the values, with the token; by default `ebb-relay-NAME`
    #[arg(long, value_name = "FOLDER", conflicts_with = "apply")]
    to: Option<PathBuf>,
}

impl InstallArgs {
    /// Returns the values of the file of `--values`, or those of the release. Returns `None` without a release.
    ///
    /// # Errors
    /// Returns an error if the file, helm or the cluster cannot be used.
    pub(super) async fn values(&self, namespace: &str) -> Result<Option<Value>> {
        if let Some(file) = &self.values {
            let failed = |error: &(dyn std::error::Error + 'static)| {
                CliError::broken(format!("cannot read {}", file.display())).with_causes(error)
            };
            let text = fs::read_to_string(file).map_err(|error| failed(&error))?;
            return serde_saphyr::from_str(&text).map(Some).map_err(|error| failed(&error));
        }
        let read = ["get", "values", RELEASE, "--namespace", namespace, "--output", "json"];
        match self.run("helm", &read).await? {
            Ok(values) => {
                let values = serde_json::from_str(&values);
                values.map(Some).map_err(|error| CliError::broken("helm printed no values").with_causes(&error))
            }
            Err(error) if error.contains("release: not found") => Ok(None),
            Err(error) => Err(failed("helm get values", &error).with_hint(
                "without access to the cluster: give the values with --values FILE, as `helm get values` prints them",
            )),
        }
    }

    /// Checks that the commands use the Kubernetes cluster from which the relay of the cluster has registered.
    pub(super) async fn check_uid(&self, info: &ClusterInfo) -> Result<()> {
        let query = ["get", "namespace", "kube-system", "--output=jsonpath={.metadata.uid}"];
        let used = self.run("kubectl", &query).await?.map_err(|error| failed("kubectl get namespace", &error))?;
        let (used, name) = (output::printable(&used), &info.name);
        let pinned = output::printable(info.uid.as_deref().unwrap_or_default());
        if used == pinned {
            return Ok(());
        }
        Err(CliError::failed(format!(
            "the relay of the cluster {name} has registered from the Kubernetes cluster {pinned}, and kubectl uses {used}"
        ))
        .with_hint("choose the right context: --context NAME")
        .with_hint("connect each Kubernetes cluster under a name of its own")
        .with_hint(format!("if the former one no longer exists: ebb cluster disconnect {name}, and connect it again")))
    }

    /// Writes the chart into the folder of a release.
    pub(super) fn folder(&self, cluster: &str) -> Result<ReleaseFolder> {
        let mut private = tempfile::Builder::new();
        private.prefix("ebb-relay-").permissions(Permissions::from_mode(0o700));
        let temporary = self.apply.then(|| private.tempdir()).transpose();
        let temporary =
            temporary.map_err(|error| CliError::broken("cannot make a temporary folder").with_causes(&error))?;
        let path = match &temporary {
            Some(folder) => folder.path().to_owned(),
            None => self.to.clone().unwrap_or_else(|| format!("ebb-relay-{cluster}").into()),
        };
        let folder = ReleaseFolder { path, _temporary: temporary };
        let write = || -> io::Result<()> {
            DirBuilder::new().recursive(true).mode(0o700).create(folder.path.join(CHART).join("templates"))?;
            FILES.iter().try_for_each(|(name, text)| fs::write(folder.path.join(CHART).join(name), text))
        };
        write().map_err(|error| folder.unwritable(&error))?;
        Ok(folder)
    }

    /// Returns the command that installs a release, or upgrades it.
    fn upgrade(&self, namespace: &str, folder: &ReleaseFolder) -> Vec<String> {
        let path = |name: &str| folder.path.join(name).display().to_string();
        let (chart, values) = (path(CHART), path(VALUES));
        let first = ["upgrade", "--install", RELEASE, &chart, "--namespace", namespace, "--values", &values];
        first.into_iter().chain(["--take-ownership", "--wait", "--timeout=2m"]).map(str::to_owned).collect()
    }

    pub(super) fn commands(&self, namespace: &str, folder: &ReleaseFolder) -> String {
        let line = |program: &str, arguments: Vec<String>| {
            std::iter::once(program.to_owned()).chain(arguments).map(|word| quoted(&word)).collect::<Vec<_>>().join(" ")
        };
        let create = self.arguments("kubectl", &["create", "namespace", namespace]);
        let upgrade = self.arguments("helm", &self.upgrade(namespace, folder));
        format!("{}\n{}", line("kubectl", create), line("helm", upgrade))
    }

    /// Checks the values and the cluster. Changes nothing.
    ///
    /// # Errors
    /// Returns the message of helm: invalid values, the relay of another cluster or installation, a missing namespace.
    pub(super) async fn check(&self, namespace: &str, folder: &ReleaseFolder) -> Result<()> {
        let mut upgrade = self.upgrade(namespace, folder);
        upgrade.push("--dry-run=server".to_owned());
        self.run("helm", &upgrade).await?.map(drop).map_err(|error| failed("helm upgrade --dry-run", &error))
    }

    /// Creates the namespace if it is missing, and installs the release. The relay has its policy and its token then.
    pub(super) async fn install(&self, namespace: &str, folder: &ReleaseFolder) -> Result<()> {
        let get = ["get", "namespace", namespace, "--ignore-not-found", "--output=name"];
        let found = self.run("kubectl", &get).await?.map_err(|error| failed("kubectl get namespace", &error))?;
        if found.trim().is_empty() {
            let created = self.run("kubectl", &["create", "namespace", namespace]).await?;
            created.map_err(|error| failed("kubectl create namespace", &error))?;
        }
        if let Err(error) = self.run("helm", &self.upgrade(namespace, folder)).await? {
            self.show_pods(namespace).await?;
            return Err(failed("helm upgrade", &error)
                .with_hint("run the command again when the cause is repaired; the cluster stays registered"));
        }
        output::status_line(&format!("installed the release {RELEASE} in the namespace {namespace}"));
        Ok(())
    }

    /// Waits until the relay of a cluster is up, and has registered after `former`.
    pub(super) async fn wait_until_up(
        &self,
        client: &ApiClient,
        name: &str,
        namespace: &str,
        former: Option<&str>,
    ) -> Result<()> {
        let end = Instant::now() + UP_TIME;
        loop {
            let ClusterDetail { info, registration } = client.fetch(&["clusters", name]).await?;
            let since = registration.and_then(|registration| registration.registered);
            let is_new = former.is_none() || since.as_deref() != former;
            // A recorded outage of the former relay ends with the next request of a sweep.
            if is_new && info.state == Some(ClusterState::Up) && !self.has_former_pods(namespace).await? {
                output::status_line(&format!("cluster {name}: up"));
                return Ok(());
            }
            if Instant::now() >= end {
                self.show_pods(namespace).await?;
                let state = if is_new { list::status(&info) } else { "its relay has not registered again".to_owned() };
                let text =
                    format!("the relay of the cluster {name} is not up a minute after its installation: {state}");
                return Err(CliError::timed_out(output::printable(&text))
                    .with_hint("the relay goes on trying; the command can be repeated")
                    .with_hint(format!("to withdraw the registration: ebb cluster disconnect {name}")));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Returns true if a pod of the relay is being deleted. It may still work, with former values.
    async fn has_former_pods(&self, namespace: &str) -> Result<bool> {
        let times = "--output=jsonpath={.items[*].metadata.deletionTimestamp}";
        let listed = self.run("kubectl", &["get", "pods", PODS, "--namespace", namespace, times]).await?;
        Ok(listed.is_ok_and(|times| !times.is_empty()))
    }

    /// Prints why the pods of a relay do not start, and the end of their logs.
    async fn show_pods(&self, namespace: &str) -> Result<()> {
        let namespace = format!("--namespace={namespace}");
        let columns = "--output=custom-columns=POD:.metadata.name,PHASE:.status.phase,\
                       REASON:.status.containerStatuses[*].state.waiting.reason,\
                       MESSAGE:.status.containerStatuses[*].state.waiting.message";
        for arguments in
            [&["get", "pods", PODS, &namespace, columns][..], &["logs", PODS, "--prefix", "--tail=3", &namespace]]
        {
            let (Ok(text) | Err(text)) = self.run("kubectl", arguments).await?;
            output::status_line(text.trim_end());
        }
        Ok(())
    }

    fn arguments(&self, program: &str, arguments: &[impl AsRef<str>]) -> Vec<String> {
        let option = if program == "helm" { "--kube-context" } else { "--context" };
        let context = self.context.iter().map(|name| format!("{option}={name}"));
        arguments.iter().map(|argument| argument.as_ref().to_owned()).chain(context).collect()
    }

    /// Runs a program. Returns its standard output, or its standard error if it fails.
    async fn run(&self, program: &str, arguments: &[impl AsRef<str>]) -> Result<Result<String, String>> {
        let mut command = Command::new(program);
        command.args(self.arguments(program, arguments)).stdin(Stdio::null()).kill_on_drop(true);
        let ended = command.output().await.map_err(|error| {
            CliError::broken(format!("cannot run {program}"))
                .with_causes(&error)
                .with_hint(format!("install {program}"))
        })?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok(if ended.status.success() { Ok(text(&ended.stdout)) } else { Err(text(&ended.stderr)) })
    }
}

fn failed(program: &str, message: &str) -> CliError {
    CliError::failed(format!("`{program}` failed: {}", output::printable(message.trim())))
}

/// Returns a word of a command as a shell reads it.
fn quoted(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:=@%+,".contains(&byte);
    if !word.is_empty() && word.bytes().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Returns the commands that remove a relay with its release, when it has deleted the objects of ended tasks, or after a
/// minute. The finalizer of a record that is needed would block the deletion of the namespace.
pub(super) fn removal(namespace: &str) -> String {
    include_str!("removal.txt").replace("NAMESPACE", namespace)
}

#[derive(Debug)]
pub(super) struct ReleaseFolder {
    path: PathBuf,
    /// Deletes the folder. The token in it is valid for an hour, and for one relay.
    _temporary: Option<TempDir>,
}

impl ReleaseFolder {
    /// Writes the values, which can have a token, for the owner of the file only. Returns its path.
    pub(super) fn write_values(&self, values: &Value) -> Result<PathBuf> {
        let text = serde_saphyr::to_string(values)
            .map_err(|error| CliError::broken("cannot write YAML").with_causes(&error))?;
        let file = self.path.join(VALUES);
        let write = || -> io::Result<()> {
            // A file that exists would keep its mode.
            let mut private = NamedTempFile::new_in(&self.path)?;
            private.write_all(text.as_bytes())?;
            private.persist(&file)?;
            Ok(())
        };
        write().map_err(|error| self.unwritable(&error))?;
        Ok(file)
    }

    fn unwritable(&self, error: &io::Error) -> CliError {
        CliError::broken(format!("cannot write the folder {}", self.path.display())).with_causes(error)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use serde_json::json;

    use super::*;

    fn names(folder: &Path, prefix: &str) -> BTreeSet<String> {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
        let names = entries.flat_map(|entry| {
            let name = format!("{prefix}{}", entry.file_name().to_str().unwrap());
            if entry.path().is_dir() { names(&entry.path(), &format!("{name}/")) } else { BTreeSet::from([name]) }
        });
        names.collect()
    }

    #[test]
    fn the_folder_of_a_release_has_the_chart_and_private_values() {
        let above = tempfile::tempdir().unwrap();
        let install = InstallArgs { to: Some(above.path().join("the relay")), ..InstallArgs::default() };
        let folder = install.folder("eu").unwrap();
        let chart = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../infra/relay/chart");
        assert_eq!(names(&folder.path.join(CHART), ""), names(&chart, ""));
        let values = json!({"image": "r/relay:1", "bootstrap": {"token": "ebbc_A"}});
        fs::write(folder.path.join(VALUES), "former").unwrap();
        let file = folder.write_values(&values).unwrap();
        assert_eq!(serde_saphyr::from_str::<Value>(&fs::read_to_string(&file).unwrap()).unwrap(), values);
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        drop(folder);
        assert!(file.exists());
    }

    #[test]
    fn the_commands_name_the_folder_and_the_context() {
        let folder = ReleaseFolder { path: "it's/here".into(), _temporary: None };
        let install = InstallArgs { context: Some("staging".to_owned()), ..InstallArgs::default() };
        let version = env!("CARGO_PKG_VERSION");
        assert_eq!(
            install.commands("relays", &folder),
            format!(
                "kubectl create namespace relays --context=staging\nhelm upgrade --install ebb-relay \
                 'it'\\''s/here/chart-{version}' --namespace relays --values 'it'\\''s/here/values.yaml' --take-ownership \
                 --wait --timeout=2m --kube-context=staging"
            )
        );
    }

    #[tokio::test]
    async fn values_of_a_file_precede_those_of_the_release() {
        let above = tempfile::tempdir().unwrap();
        let file = above.path().join("values.yaml");
        fs::write(&file, "image: r/relay:1\n").unwrap();
        let mut install = InstallArgs { values: Some(file), ..InstallArgs::default() };
        assert_eq!(install.values("ebb-relay").await.unwrap(), Some(json!({"image": "r/relay:1"})));
        install.values = Some(above.path().join("missing.yaml"));
        assert!(install.values("ebb-relay").await.unwrap_err().message().contains("cannot read"));
    }
}
