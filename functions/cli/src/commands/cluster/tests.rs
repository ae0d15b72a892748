//! Tests of the options of a cluster, and of the manifests that follow from them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Parser;
use ebb_documents::diagnostic::DiagnosticStyle;
use serde_json::{Value, json};

use super::installation::{RelayCredential, RelayInstallation, removals};
use super::options::{ClusterOptions, OptionArgs};

const TOKEN: &str = "ebbc_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
const IMAGES: &str = "--image r/relay:1 --entrypoint-image r/entrypoint:1";

#[derive(Parser)]
struct OptionLine {
    #[command(flatten)]
    options: OptionArgs,
}

/// Returns stored options with the changes of a command line.
fn merged(stored: &ClusterOptions, line: &str) -> Result<ClusterOptions, String> {
    let line = OptionLine::try_parse_from(std::iter::once("").chain(line.split_whitespace()));
    let options = line.map_err(|error| error.to_string())?.options;
    options.merged(stored).map_err(|error| error.text(DiagnosticStyle::Plain))
}

fn new(line: &str) -> Result<ClusterOptions, String> {
    merged(&ClusterOptions::default(), &format!("{IMAGES} {line}"))
}

/// Returns objects by kind, namespace and name. The rules that are the same in all installations are left out.
fn by_name(objects: Vec<Value>) -> BTreeMap<String, Value> {
    let entries = objects.into_iter().map(|mut object| {
        if let Some(policy) = object.pointer_mut("/data/policy.yaml") {
            let mut parsed: Value = serde_saphyr::from_str(policy.as_str().unwrap()).unwrap();
            // The relay reads a set.
            parsed["kinds"].as_array_mut().unwrap().sort_by_key(Value::to_string);
            *policy = parsed;
        }
        if object["kind"] == "ValidatingAdmissionPolicy" {
            let spec = object["spec"].as_object_mut().unwrap();
            spec.retain(|key, _| !matches!(key.as_str(), "matchConstraints" | "validations"));
        }
        let part = |path| object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
        (["/kind", "/metadata/namespace", "/metadata/name"].map(part).join(" "), object)
    });
    entries.collect()
}

/// Helm makes the same objects of the values that `connect` prints, as `cargo xtask build chart` has written them.
#[test]
fn manifests_and_values_are_those_of_the_chart() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../infra/relay/installations");
    let bootstrap = RelayCredential::Bootstrap(Some(TOKEN));
    let signing = RelayCredential::Signing("whsec_BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=");
    let (api, callbacks) = ("https://ebb.example", "https://ebb.example/v1/callbacks");
    let namespaces = "--profile baseline --namespace team-a --namespace team-b:privileged --namespace ebb-units:restricted \
                      --service-account team-a/builder --service-account team-a/deployer --pull-secret team-b/registry";
    let kinds = "--kind ConfigMap --kind Cluster.postgresql.cnpg.io --kind NetworkPolicy.networking.k8s.io \
                 --bind-namespace web --bind-namespace shop --service files=infra/files-plugin:8080/rpc/v1/ \
                 --service page=web/page:80";
    let everything = "--profile signadot --relay-namespace own --unit-namespace units --namespace signadot:restricted \
                      --namespace other:baseline --service-account signadot/builder --kind Job.batch --kind Secret \
                      --kind Widget.example.com=widgets --bind-namespace web --service page=web/page:80";
    let (push, push_callbacks) = ("--push-url https://relay.example", "https://10.0.0.7:8443/v1/callbacks");
    let (other_api, other_callbacks) = ("https://api.example:8443", "https://callbacks.example");
    let registered = RelayCredential::Bootstrap(None);
    for (name, cluster, api_url, callback_url, credential, line) in [
        ("defaults", "eu", api, callbacks, bootstrap, ""),
        ("signadot", "eu", api, callbacks, registered, "--profile signadot"),
        ("namespaces", "eu", api, callbacks, bootstrap, namespaces),
        ("kinds", "eu", api, callbacks, bootstrap, kinds),
        ("push", "eu", "http://10.0.0.7:7878", push_callbacks, bootstrap, push),
        ("everything", "default", other_api, other_callbacks, bootstrap, everything),
        ("offline", "eu", api, callbacks, signing, ""),
    ] {
        let options = new(line).unwrap();
        let installation = RelayInstallation { cluster, options: &options, api_url, callback_url, credential };
        let read = |extension: &str| std::fs::read_to_string(folder.join(name).with_extension(extension)).unwrap();
        let values: Value = serde_saphyr::from_str(&read("yaml")).unwrap();
        assert_eq!(installation.values().unwrap(), values, "{name}");
        let rendered = by_name(read("jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect());
        let text = installation.manifests().unwrap();
        let own = by_name(serde_saphyr::from_multiple(&text).unwrap());
        assert_eq!(own.keys().collect::<Vec<_>>(), rendered.keys().collect::<Vec<_>>(), "{name}");
        for (object, expected) in rendered {
            assert_eq!(own[&object], expected, "{name}: {object}");
        }
        for placeholder in ["-of-", "44443", "44444"] {
            assert!(!text.contains(placeholder), "{name}: {placeholder} remains");
        }
    }
}

#[test]
fn options_are_added_to_the_stored_ones() {
    let stored = new("--profile signadot --kind ConfigMap --pull-url https://ebb.example/").unwrap();
    let json = json!(stored);
    assert_eq!(serde_json::from_value::<ClusterOptions>(json.clone()).unwrap(), stored, "{json}");
    assert_eq!(merged(&stored, "").unwrap(), stored);
    assert!(stored.changes_since(Some(&stored)).is_empty());
    let more = "--namespace team-a:baseline --service-account signadot/builder --remove kind=ConfigMap \
                --remove pull-url --bind-namespace web --service page=web/page:80 --image r/relay:2 --remove kind=None";
    let changed = merged(&stored, more).unwrap();
    insta::assert_snapshot!(changed.changes_since(Some(&stored)).join("\n"), @r"
    - image: r/relay:1
    - kinds.ConfigMap: configmaps
    - pullUrl: https://ebb.example
    + bindNamespaces: web
    + image: r/relay:2
    + kinds.ConfigMap: of the profile
    + namespaces.team-a: baseline
    + serviceAccounts: signadot/builder
    + services.page: web/page:80
    ");
    // The level of the namespace is still that of the profile.
    assert_eq!(changed.all_namespaces()["signadot"].level, stored.all_namespaces()["signadot"].level);
    // The relay keeps its rights to living ConfigMaps.
    insta::assert_snapshot!(removals(&stored, Some(&changed)).join("\n"), @r"
    kubectl delete --ignore-not-found --namespace ebb-units role/ebb-relay:ebb-relay:ConfigMap rolebinding/ebb-relay:ebb-relay:ConfigMap
    kubectl delete --ignore-not-found --namespace signadot role/ebb-relay:ebb-relay:ConfigMap rolebinding/ebb-relay:ebb-relay:ConfigMap
    ");
    insta::assert_snapshot!(removals(&changed, Some(&stored)).join("\n"), @r"
    kubectl delete --ignore-not-found --namespace team-a role/ebb-relay:ebb-relay rolebinding/ebb-relay:ebb-relay rolebinding/ebb-relay:ebb-relay:granted
    kubectl delete --ignore-not-found --namespace web role/ebb-relay:ebb-relay:bind role/ebb-relay:ebb-relay:page rolebinding/ebb-relay:ebb-relay:bind rolebinding/ebb-relay:ebb-relay:page
    ");
    insta::assert_snapshot!(removals(&new("").unwrap(), None).join("\n"), @r#"
    kubectl wait secrets --namespace ebb-relay --selector ebb.dev/part=record --for=jsonpath='{.metadata.labels.ebb\.dev/phase}'=tombstone --timeout=1m
    kubectl delete deployment ebb-relay --namespace ebb-relay --cascade=foreground --ignore-not-found
    kubectl get secrets --namespace ebb-relay --selector ebb.dev/part=record --output name | xargs -r -n 1 kubectl patch --namespace ebb-relay --type merge --patch '{"metadata": {"finalizers": null}}'
    kubectl delete namespace ebb-relay --ignore-not-found
    kubectl delete --ignore-not-found validatingadmissionpolicybinding/ebb-relay.ebb-relay validatingadmissionpolicy/ebb-relay.ebb-relay clusterrolebinding/ebb-relay:ebb-relay clusterrole/ebb-relay:ebb-relay clusterrole/ebb-relay:ebb-relay:granted
    kubectl delete --ignore-not-found --namespace ebb-units role/ebb-relay:ebb-relay rolebinding/ebb-relay:ebb-relay rolebinding/ebb-relay:ebb-relay:granted
    "#);
}

/// A namespace of the profile remains when its stored entry is removed. A removed option leaves no entry.
#[test]
fn removed_options_leave_nothing() {
    let stored = new("--profile signadot --service-account signadot/builder --namespace team-a").unwrap();
    let removed = merged(&stored, "--remove service-account=signadot/builder --remove namespace=signadot").unwrap();
    assert_eq!(json!(removed)["namespaces"], json!({"team-a": {}}));
    let reason = |option: &str, value: &str| removed.reason_to_stay(option, value).unwrap_or_default();
    assert!(reason("namespace", "signadot").contains("--profile") && reason("kind", "Secret").contains("--profile"));
    assert!(reason("namespace", "ebb-units").contains("--unit-namespace") && reason("namespace", "team-a").is_empty());
    let other = merged(&removed, "--profile restricted --remove kind=Secret").unwrap();
    assert_eq!(other.all_namespaces().keys().collect::<Vec<_>>(), ["ebb-units", "team-a"]);
    assert_eq!(other.reason_to_stay("kind", "Secret"), None);
}

#[test]
fn plural_names_are_those_of_english() {
    for (kind, plural) in [
        ("Cluster.postgresql.cnpg.io", "clusters"),
        ("NetworkPolicy.networking.k8s.io", "networkpolicies"),
        ("Ingress.networking.k8s.io", "ingresses"),
        ("Gateway.gateway.networking.k8s.io", "gateways"),
        ("Mailbox.example.com", "mailboxes"),
        ("Endpoints=endpoints", "endpoints"),
    ] {
        let kinds = new(&format!("--kind {kind}")).unwrap().kinds;
        assert_eq!(kinds.into_values().collect::<Vec<_>>(), [plural], "{kind}");
    }
}

#[test]
fn invalid_options_are_rejected() {
    for (line, expected) in [
        ("--namespace A", "invalid namespace \"A\""),
        ("--namespace a:open", "expected restricted, baseline or privileged"),
        ("--namespace ebb-relay", "holds no units"),
        ("--unit-namespace ebb-relay", "holds no units"),
        ("--relay-namespace a;b", "invalid relay namespace"),
        ("--service-account team-a/builder", "add --namespace team-a"),
        ("--service-account builder", "expected NAMESPACE/NAME"),
        ("--pull-secret ebb-units/A", "invalid pull secret"),
        ("--namespace kube-system:privileged", "kube-system is one of Kubernetes itself"),
        ("--unit-namespace kube-public", "kube-public is one of Kubernetes itself"),
        ("--bind-namespace kube-node-lease", "kube-node-lease is one of Kubernetes itself"),
        ("--kind Deployment", "write KIND.GROUP"),
        ("--kind Widget", "write KIND.GROUP"),
        ("--kind Namespace", "`policy.clusterKinds`"),
        ("--kind ClusterRole.rbac.authorization.k8s.io", "`policy.clusterKinds`"),
        ("--kind configmap", "invalid kind"),
        ("--kind *.apps", "invalid kind"),
        ("--kind ConfigMap=config-maps", "invalid plural name"),
        ("--bind-namespace ebb-relay", "no bound objects"),
        ("--service files=infra/files", "expected NAME="),
        ("--service files=infra/files:0", "invalid port"),
        ("--service files=infra/files:80/..", "invalid path"),
        ("--service bind=infra/files:80", "invalid name of a service"),
        ("--remove image=a", "expected namespace=…"),
        ("--remove namespace", "expected namespace=…"),
        ("--callback-url ftp://h", "invalid --callback-url"),
        ("--callback-url https://u@h", "invalid --callback-url"),
        ("--pull-url https://h/path", "without a path"),
    ] {
        let error = new(line).map(|options| json!(options)).unwrap_err();
        assert!(error.contains(expected), "{line}: {error}");
    }
    for (images, expected) in [
        ("--image r/relay:1", "--entrypoint-image is missing"),
        ("--image a\"b --entrypoint-image r/entrypoint:1", "invalid --image"),
    ] {
        let error = merged(&ClusterOptions::default(), images).map(|options| json!(options)).unwrap_err();
        assert!(error.contains(expected), "{images}: {error}");
    }
}
