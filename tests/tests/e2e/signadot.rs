//! Documents of Signadot in a cluster, unchanged, with the rights that the chart grants with its profile `signadot`.
//!
//! The documents in `signadot/` have the interfaces of Signadot's public examples. `EBB_SIGNADOT_DOCUMENTS` is the
//! absolute path of a folder with others, such as these examples. They run as well, in place of those of the same path.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use ebb_protocol::api::TargetInfo;
use ebb_protocol::lifecycle::READY;
use futures::future::join_all;

use crate::kubectl::RELAY;
use crate::prelude::*;
use crate::receiver::{CannedReply, TestReceiver};
use crate::stand_ins::{AwsServer, ImageRegistry};

/// The namespace in the documents.
const UNITS: &str = "signadot";
const DEPLOYER: &str = "deployer";
/// A sandbox whose output is bound in another namespace.
const BOUND: &str = "bound";
/// A sandbox whose workload reads a password.
const DATABASE: &str = "jane-miners-x-c0ffee";

/// Values of the variables in the documents.
const VARIABLES: &str = "cluster=default namespace=signadot name=objects dev=jane team=miners commit=c0ffee port=8080 \
    ttlDur=1h tfstate-bucket=states";

/// A cluster with a relay, and what the documents name: Secrets, a service account, servers.
struct SignadotCluster {
    relay: InstalledRelay,
    shop: String,
    aws: AwsServer,
    /// A password in a Secret. The plugin `mariadb` returns it as an output.
    canary: String,
    _images: ImageRegistry,
}

impl SignadotCluster {
    async fn new(cluster: &'static TestCluster) -> Self {
        let shop = format!("shop-{:08x}", rand::random::<u32>());
        cluster.run("kubectl", &["delete", "namespace", "--ignore-not-found", UNITS], "").unwrap();
        cluster.run("kubectl", &["create", "namespace", &shop], "").unwrap();
        let (images, aws) = (ImageRegistry::start(cluster).await, AwsServer::start(cluster).await);
        let units = json!({"level": "baseline", "serviceAccounts": [DEPLOYER], "imagePullSecrets": ["registry"]});
        let policy = json!({"namespaces": {UNITS: units}, "bindNamespaces": [shop]});
        let relay = InstalledRelay::new(cluster, UNITS, json!({"profile": "signadot", "policy": policy})).await;
        let canary = format!("canary-{:016x}", rand::random::<u64>());
        let objects = include_str!("documents/signadot-objects.yaml").replace("DEPLOYER", DEPLOYER);
        let objects = objects.replace("SETTINGS", &aws.settings().to_string()).replace("CANARY", &canary);
        cluster.run("kubectl", &["create", "--filename=-", "--namespace", UNITS], &objects).unwrap();
        Self { relay, shop, aws, canary, _images: images }
    }

    async fn wait_until_empty(&self, before: &[String]) {
        self.relay.wait_until_empty().await;
        let left = async || (unit_objects(self.relay.cluster, UNITS)? == before).then_some(());
        until("the deletion of all objects in the namespace of the documents", left).await;
        assert_eq!(list(self.relay.cluster, &self.shop, "secrets"), Some(vec![]));
        self.aws.assert_empty();
    }

    fn remove(self) {
        let cluster = self.relay.cluster;
        self.relay.remove();
        cluster.run("kubectl", &["delete", "namespace", UNITS, &self.shop], "").unwrap();
    }
}

/// A set of documents in a working directory, and the platform of its server.
struct DocumentSet<'a> {
    within: &'a SignadotCluster,
    workdir: Workdir,
    platform: TestReceiver,
    /// Kind and path of each document.
    documents: Vec<(&'static str, String)>,
    sets: Vec<String>,
}

impl<'a> DocumentSet<'a> {
    /// Copies the documents of the folders. A later folder replaces files of an earlier one.
    async fn new(within: &'a SignadotCluster, folders: &[PathBuf]) -> Self {
        let platform = TestReceiver::start().await;
        let workdir = workdir_setup::with_relay(&within.relay).and(&["--platform-url", platform.url()]);
        // Documents have names of clusters that are no variables. There is one cluster.
        let (mut clusters, _) = within.relay.clusters();
        for name in ["staging", "signadot-staging"] {
            clusters[name] = clusters["default"].clone();
        }
        workdir.write("clusters.json", &clusters.to_string());
        let copies = workdir.path().join("documents");
        for folder in folders {
            let found = files(folder);
            assert!(!found.is_empty(), "no file is in {}", folder.display());
            for file in found {
                let copy = copies.join(file.strip_prefix(folder).unwrap());
                fs::create_dir_all(copy.parent().unwrap()).unwrap();
                fs::copy(&file, copy).unwrap();
            }
        }
        let documents = files(&copies).into_iter().filter_map(|file| Some((kind(&file)?, file)));
        let documents = documents.map(|(kind, file)| (kind, file.to_str().unwrap().to_owned())).collect();
        let sets = VARIABLES.split_whitespace().map(str::to_owned).chain([format!("shop={}", within.shop)]).collect();
        Self { within, workdir, platform, documents, sets }
    }

    /// Creates everything, reads all outputs, and deletes everything.
    async fn live(&self) {
        let cluster = self.within.relay.cluster;
        let bound_at_ready = self.record_bound_at_ready();
        let dev = self.workdir.dev().await;
        for (_, file) in self.documents.iter().filter(|(kind, _)| *kind == "plugin") {
            self.ebb(&["apply", "-f", file]).await;
        }
        self.each_target("apply").await;
        let log = self.workdir.ebb(&["logs", "seed"]).await.done();
        assert_eq!(log.stdout, "Provisioning my custom resource ...\n");
        let objects = unit_objects(cluster, UNITS).unwrap();
        for name in ["ConfigMap/config-objects", "Secret/secret-objects"] {
            assert!(objects.iter().any(|object| object == name), "{objects:?}");
        }
        self.within.aws.assert_used();
        let environment = self.environment().await;
        let queue = format!("SQS_URL={}/", self.within.aws.receiver.url());
        let password = format!("DBPASSWORD={}", self.within.canary);
        for line in ["DBHOST=", "DBPORT=3306", "S3_BUCKET_NAME=", &queue, &password] {
            assert!(environment.lines().any(|found| found.starts_with(line)), "{line} is not in:\n{environment}");
        }
        self.assert_visible().await;
        let secrets = until("the notification of a bound sandbox", async || {
            let recorded = bound_at_ready.lock().unwrap().clone();
            (!recorded.is_empty()).then_some(recorded)
        })
        .await;
        let bound = json!({"PASSWORD": STANDARD.encode(&self.within.canary)});
        assert!(secrets.iter().all(|data| *data == bound), "{secrets:?}");
        self.assert_not_leaked().await;

        self.each_target("delete").await;
        let log = self.workdir.ebb(&["logs", DATABASE, "--unit", "deprovision"]).await.done();
        assert_eq!(log.stdout, "dropping with ***\n");
        self.assert_not_leaked().await;
        dev.stop().await;
    }

    /// Records the data of the bound Secret at each notification that its sandbox is ready.
    fn record_bound_at_ready(&self) -> Arc<Mutex<Vec<Value>>> {
        let recorded: Arc<Mutex<Vec<Value>>> = Arc::default();
        let (records, cluster, shop) = (Arc::clone(&recorded), self.within.relay.cluster, self.within.shop.clone());
        self.platform.on("POST /", move |call, _| {
            if call.body["type"] == READY && call.body["data"]["name"] == BOUND {
                let secrets = list(cluster, &shop, "secrets").unwrap();
                records.lock().unwrap().extend(secrets.into_iter().map(|mut secret| secret["data"].take()));
            }
            CannedReply::status(200)
        });
        recorded
    }

    /// Runs `ebb` with the values of all variables.
    async fn ebb(&self, arguments: &[&str]) -> CommandResult {
        let sets = self.sets.iter().flat_map(|set| ["--set", set]);
        self.workdir.ebb(&arguments.iter().copied().chain(sets).collect::<Vec<_>>()).await.done()
    }

    /// Applies or deletes all sandboxes and route groups at the same time, and waits for the end.
    async fn each_target(&self, verb: &str) {
        let targets = self.documents.iter().filter(|(kind, _)| *kind != "plugin");
        let commands = targets.map(async |(kind, file)| {
            self.ebb(&[verb, "-f", file, "--kind", kind]).await;
        });
        join_all(commands).await;
    }

    /// Runs a container with the variables of all workloads, each from its Secret. Returns its environment.
    async fn environment(&self) -> String {
        let cluster = self.within.relay.cluster;
        let targets: Vec<TargetInfo> = self.workdir.ebb(&["get", "sandboxes", "-o", "json"]).await.done().json();
        let mut env = Vec::new();
        for target in targets {
            for variable in self.workdir.get(&target.name).await.workloads.values().flatten() {
                let variable = json!(variable);
                let secret = &variable["secret"];
                assert_eq!(secret["namespace"], UNITS, "{variable}");
                let reference = json!({"name": secret["name"], "key": secret["key"]});
                env.push(json!({"name": variable["env"], "valueFrom": {"secretKeyRef": reference}}));
            }
        }
        let pod =
            include_str!("documents/workload.yaml").replace("IMAGE", BUSYBOX).replace("ENV", &json!(env).to_string());
        let kubectl = |command: &str, input: &str| {
            let arguments: Vec<_> = ["--namespace", UNITS].into_iter().chain(command.split(' ')).collect();
            cluster.run("kubectl", &arguments, input).unwrap()
        };
        kubectl("create --filename=-", &pod);
        kubectl("wait --for=jsonpath={.status.phase}=Succeeded --timeout=100s pod/workload", "");
        let environment = kubectl("logs workload", "");
        kubectl("delete pod workload", "");
        environment
    }

    /// Checks the pod and the Job that a script has read with the token of its account.
    async fn assert_visible(&self) {
        let target = self.workdir.get(DEPLOYER).await;
        let asked = |name: &str| -> Value { serde_json::from_str(output(&target, "asked", name)).unwrap() };
        let (pod, job) = (asked("ask.pod"), asked("ask.job"));
        assert_eq!(pod["spec"]["imagePullSecrets"], json!([{"name": "registry"}]));
        assert_eq!(pod["spec"]["serviceAccountName"], DEPLOYER);
        assert_eq!(pod["spec"]["containers"][0]["image"], "ubuntu");
        for object in [pod, job] {
            let (labels, target) =
                (&object["metadata"]["labels"], &object["metadata"]["annotations"]["ebb.dev/target"]);
            assert_eq!((&labels["ebb.dev/plugin"], target), (&json!("deployer.0.0.0"), &json!("sandbox/deployer")));
        }
    }

    /// Checks that the password is in Secrets only: not in what the server has stored, sent and printed, and not in
    /// what Kubernetes shows and logs.
    async fn assert_not_leaked(&self) {
        let canary = self.within.canary.as_bytes();
        let encoded = STANDARD.encode(canary);
        let stored = |word: &[u8]| {
            let mut found = files(self.workdir.path());
            // A server can delete the file in the meantime.
            found.retain(|file| contains(&fs::read(file).unwrap_or_default(), word));
            found
        };
        // This name is no secret. The search finds it.
        assert!(!stored(DATABASE.as_bytes()).is_empty());
        for word in [canary, encoded.as_bytes()] {
            assert_eq!(stored(word), [""; 0].map(PathBuf::from));
        }
        let mut texts: Vec<_> = self.platform.all().iter().map(|call| call.body.to_string()).collect();
        for name in [DATABASE, BOUND] {
            let get = format!("get sandbox {name} -o json");
            let env = format!("env {name} --workload customer");
            for command in [get, env, format!("why {name}"), format!("logs {name}")] {
                let printed = self.workdir.ebb(&command.split(' ').collect::<Vec<_>>()).await;
                texts.extend([printed.stdout, printed.stderr]);
            }
        }
        let relay = &self.within.relay;
        for namespace in [UNITS, &relay.units, &relay.own, &self.within.shop] {
            for command in ["describe secrets,configmaps,jobs,pods,events", "get configmaps,jobs,pods,events -o yaml"] {
                let arguments: Vec<_> = command.split(' ').chain(["--namespace", namespace]).collect();
                // An object can be deleted between the list and its description.
                texts.push(until(command, async || relay.cluster.run("kubectl", &arguments, "").ok()).await);
            }
        }
        let log = ["logs", "--selector=app.kubernetes.io/name=ebb-relay", "--tail=-1", "--namespace", &relay.own];
        texts.push(relay.cluster.run("kubectl", &log, "").unwrap());
        assert!(texts.iter().any(|text| text.contains(DATABASE)));
        for text in texts {
            assert!(!text.contains(&self.within.canary) && !text.contains(&encoded), "{text}");
        }
    }
}

/// Returns the kind of a document, or `None` for a file that documents embed.
fn kind(file: &Path) -> Option<&'static str> {
    if file.extension()? != "yaml" {
        return None;
    }
    let document: Value = serde_saphyr::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    let kinds = [("runner", "plugin"), ("match", "routegroup"), ("cluster", "sandbox")];
    kinds.into_iter().find(|(key, _)| !document["spec"][*key].is_null()).map(|(_, kind)| kind)
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_run_unchanged() {
    // The second lock is that of other tests with units in this namespace.
    let _locks = (shared_lock().await, RELAY.lock().await);
    let within = SignadotCluster::new(cluster().await).await;
    let before = unit_objects(within.relay.cluster, UNITS).unwrap();
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/signadot");
    let mut sets = vec![vec![own.clone()]];
    sets.extend(std::env::var_os("EBB_SIGNADOT_DOCUMENTS").map(|others| vec![own, others.into()]));
    for folders in sets {
        DocumentSet::new(&within, &folders).await.live().await;
        within.wait_until_empty(&before).await;
    }
    within.remove();
}
