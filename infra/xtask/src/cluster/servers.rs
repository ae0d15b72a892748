//! The servers of a cluster: their arguments, their state, their start and end.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::ValueEnum;

use super::build::BinarySet;
use super::folder::{self, until};
use super::netns::ClusterNetns;
use crate::run::output;

/// The name of the only node.
pub(crate) const NODE: &str = "ebb";
/// The socket of containerd, in the namespaces.
pub(crate) const CONTAINERD: &str = "/run/containerd/containerd.sock";

const ETCD: &str = "http://127.0.0.1:2379";

/// A server of the cluster, in the order of the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ClusterServer {
    /// The database
    Etcd,
    /// The container runtime
    Containerd,
    /// The API server
    KubeApiserver,
    /// Creates pods of Jobs and endpoints of services; deletes objects without owners
    KubeControllerManager,
    /// Assigns pods to nodes
    KubeScheduler,
    /// Runs the pods of the node
    Kubelet,
    /// Routes addresses of services to pods
    KubeProxy,
    /// The controller of ResourceGraphDefinitions
    Kro,
}

impl ClusterServer {
    /// Servers that need no other server.
    pub(crate) const FIRST: [Self; 3] = [Self::Etcd, Self::Containerd, Self::KubeApiserver];
    /// Servers that need the API server.
    pub(crate) const SECOND: [Self; 4] =
        [Self::KubeControllerManager, Self::KubeScheduler, Self::Kubelet, Self::KubeProxy];

    /// Returns the name on the command line, of its log and of its settings.
    pub(crate) fn name(self) -> String {
        super::name(self)
    }

    pub(crate) fn log(self) -> PathBuf {
        folder::state().join(format!("log/{}.log", self.name()))
    }

    fn pid(self) -> PathBuf {
        folder::state().join(format!("run/{}.pid", self.name()))
    }

    fn program(self) -> anyhow::Result<PathBuf> {
        Ok(match self {
            Self::Etcd => BinarySet::Etcd.built()?.join("server"),
            Self::Containerd => "/usr/bin/containerd".into(),
            Self::Kro => BinarySet::Kro.built()?.join("controller"),
            _ => BinarySet::Kubernetes.built()?.join(self.name()),
        })
    }

    fn arguments(self, netns: &ClusterNetns) -> Vec<String> {
        // It is replaced after the arguments are split, because the path of a clone can contain spaces.
        let etc = "{etc}";
        let (node, services) = (netns.network.node(), netns.network.services());
        let text = match self {
            // The data is in memory, like all files of the namespaces. It is still there after etcd was killed.
            Self::Etcd => format!(
                "--data-dir=/var/lib/etcd --unsafe-no-fsync --listen-client-urls={ETCD} --advertise-client-urls={ETCD}
                 --listen-peer-urls=http://127.0.0.1:2380"
            ),
            Self::Containerd => format!("--config={etc}/containerd.toml"),
            Self::KubeApiserver => format!(
                "--etcd-servers={ETCD} --advertise-address={node} --secure-port=6443
                 --tls-cert-file={etc}/kube-apiserver.crt --tls-private-key-file={etc}/kube-apiserver.key
                 --client-ca-file={etc}/ca.crt --anonymous-auth=false
                 --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction,PodSecurity
                 --kubelet-certificate-authority={etc}/ca.crt --kubelet-preferred-address-types=InternalIP
                 --kubelet-client-certificate={etc}/kube-apiserver-client.crt
                 --kubelet-client-key={etc}/kube-apiserver-client.key
                 --service-account-issuer=https://kubernetes.default.svc
                 --service-account-key-file={etc}/accounts.pub
                 --service-account-signing-key-file={etc}/accounts.key
                 --service-cluster-ip-range={services} --allow-privileged=true"
            ),
            // With the default limit of 20 requests per second, its start takes four seconds.
            Self::KubeControllerManager => format!(
                "--kubeconfig={etc}/kube-controller-manager.kubeconfig --leader-elect=false
                 --use-service-account-credentials --service-account-private-key-file={etc}/accounts.key
                 --root-ca-file={etc}/ca.crt --kube-api-qps=200 --kube-api-burst=400"
            ),
            Self::KubeScheduler => format!("--kubeconfig={etc}/kube-scheduler.kubeconfig --leader-elect=false"),
            Self::Kubelet => format!(
                "--kubeconfig={etc}/kubelet.kubeconfig --config={etc}/kubelet.yaml --hostname-override={NODE}
                 --node-ip={node}"
            ),
            Self::KubeProxy => format!("--config={etc}/kube-proxy.yaml"),
            Self::Kro => "--metrics-bind-address=127.0.0.1:8078 --health-probe-bind-address=127.0.0.1:8079".to_owned(),
        };
        let folder = self::etc().display().to_string();
        text.split_whitespace().map(|word| word.replace(etc, &folder)).collect()
    }

    /// Starts the server unless it runs. Its log is appended.
    pub(crate) fn start(self, netns: &ClusterNetns) -> anyhow::Result<()> {
        if self.running(netns).is_some() {
            return Ok(());
        }
        folder::write(&self.pid(), "")?;
        let mut start = netns.command("sh");
        start.args(["-c", "log=$1; shift; setsid \"$@\" >>\"$log\" 2>&1 </dev/null & echo $!", "start"]);
        let program = self.program()?;
        start.arg(self.log()).arg(&program).args(self.arguments(netns));
        if self == Self::Kro {
            start.env("KUBECONFIG", etc().join("admin.kubeconfig"));
        }
        let pid = output(&mut start)?;
        folder::write(&self.pid(), &format!("{} {}", pid.trim(), program.display()))
    }

    /// Returns the pid in the namespaces, if the server runs.
    pub(crate) fn running(self, netns: &ClusterNetns) -> Option<String> {
        let record = fs::read_to_string(self.pid()).ok()?;
        let (pid, program) = record.split_once(' ')?;
        // A process that has ended has no program. A reused pid has another program.
        let exe = output(netns.command("readlink").arg(format!("/proc/{pid}/exe"))).ok()?;
        let exe = PathBuf::from(exe.trim());
        // `setsid` becomes the program shortly after its start.
        (exe == Path::new(program) || exe.ends_with("setsid")).then(|| pid.to_owned())
    }

    /// Sends a signal. After KILL and TERM, waits until the server has ended.
    pub(crate) fn kill(self, netns: &ClusterNetns, signal: &str) -> anyhow::Result<()> {
        let Some(pid) = self.running(netns) else { bail!("{} does not run", self.name()) };
        output(netns.command("sh").args(["-c", "kill -s \"$1\" \"$2\"", "kill", signal, &pid]))?;
        if matches!(signal, "KILL" | "TERM") {
            until(&format!("the end of {}", self.name()), 30, || self.running(netns).is_none(), || Ok(()))?;
        }
        Ok(())
    }

    /// Fails with the end of the log if the server does not run.
    pub(crate) fn check_running(self, netns: &ClusterNetns) -> anyhow::Result<()> {
        if self.running(netns).is_some() {
            return Ok(());
        }
        let log = fs::read_to_string(self.log()).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        let last = lines[lines.len().saturating_sub(10)..].join("\n");
        bail!("{} has ended; its log ({}) ends with\n{last}", self.name(), self.log().display())
    }
}

/// Returns the folder of settings, keys and certificates.
pub(crate) fn etc() -> PathBuf {
    folder::state().join("etc")
}

/// Writes the settings of the servers from the templates in `infra/cluster/etc`.
pub(crate) fn settings(netns: &ClusterNetns) -> anyhow::Result<()> {
    let etc = etc();
    let forms = folder::sources().join("etc");
    for (form, file) in [
        ("containerd.toml", "containerd.toml"),
        ("cni.conflist", "cni/10-ebb.conflist"),
        ("kubelet.yaml", "kubelet.yaml"),
        ("kube-proxy.yaml", "kube-proxy.yaml"),
    ] {
        let form = forms.join(form);
        let text = fs::read_to_string(&form).with_context(|| format!("cannot read {}", form.display()))?;
        let text = text
            .replace("{{etc}}", &etc.display().to_string())
            .replace("{{cni}}", cni())
            .replace("{{name}}", &netns.network.name())
            .replace("{{node}}", NODE)
            .replace("{{pods}}", &netns.network.pods());
        folder::write(&etc.join(file), &text)?;
    }
    Ok(())
}

/// Returns the folder of network plugins, of Debian or of others.
pub(crate) fn cni() -> &'static str {
    ["/usr/lib/cni", "/opt/cni/bin"]
        .into_iter()
        .find(|folder| Path::new(folder).join("ptp").exists())
        .unwrap_or_default()
}
