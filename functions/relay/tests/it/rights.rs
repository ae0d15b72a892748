//! The rights of the relay as its chart gives them (`infra/relay/chart/rights.yaml`). All these tests run with them and no
//! others, beside what an operator would grant for the kinds that some of them use.

use std::collections::BTreeSet;

use k8s_openapi::api::authorization::v1::SelfSubjectRulesReview;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding};
use kube::Client;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::config::Kubeconfig;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::client::client_of;
use crate::cluster::root;
use crate::fixture::{create, until};

/// What the chart's file says.
#[derive(Deserialize)]
pub(crate) struct ChartRights {
    pub(crate) own: Vec<PolicyRule>,
    pub(crate) units: Vec<PolicyRule>,
    pub(crate) cluster: Vec<PolicyRule>,
}

pub(crate) fn rights() -> ChartRights {
    let text = std::fs::read_to_string(root().join("infra/relay/chart/rights.yaml")).unwrap();
    serde_saphyr::from_str(&text).unwrap()
}

/// What an operator grants for a kind.
pub(crate) fn further(group: &str, resource: &str) -> Value {
    let verbs = ["get", "list", "watch", "create", "patch", "delete"];
    json!({"apiGroups": [group], "resources": [resource], "verbs": verbs})
}

/// Lets the account `ebb-relay` of `UNITS-relay` do in both namespaces what the chart lets it do.
pub(crate) async fn grant(client: &Client, units: &str) {
    let ChartRights { own, units: in_units, cluster } = rights();
    let kinds = json!([further("", "configmaps"), further("apps", "deployments")]);
    for (namespace, name, rules) in
        [(&*format!("{units}-relay"), "own", json!(own)), (units, "units", json!(in_units)), (units, "further", kinds)]
    {
        give(client, units, namespace, name, rules).await;
    }
    // For all worlds at once: nothing of them stays behind outside of their namespaces.
    let rbac = "rbac.authorization.k8s.io";
    let role = json!({
        "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRole", "metadata": {"name": "ebb-tests"}, "rules": cluster,
    });
    let binding = json!({
        "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": "ebb-tests"},
        "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "ebb-tests"},
        "subjects": [{"apiGroup": rbac, "kind": "Group", "name": "system:serviceaccounts"}],
    });
    let apply = PatchParams::apply("tests");
    Api::<ClusterRole>::all(client.clone()).patch("ebb-tests", &apply, &Patch::Apply(role)).await.unwrap();
    let bindings = Api::<ClusterRoleBinding>::all(client.clone());
    bindings.patch("ebb-tests", &apply, &Patch::Apply(binding)).await.unwrap();
}

/// Gives the account `ebb-relay` of `UNITS-relay` more rights in a namespace, by a role of this name.
pub(crate) async fn give(client: &Client, units: &str, namespace: &str, name: &str, rules: Value) {
    let (roles, bindings) =
        (Api::<Role>::namespaced(client.clone(), namespace), Api::<RoleBinding>::namespaced(client.clone(), namespace));
    let role = json!({"metadata": {"name": name}, "rules": rules});
    create(&roles, role).await;
    let of = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name});
    let account = json!([{"kind": "ServiceAccount", "name": "ebb-relay", "namespace": format!("{units}-relay")}]);
    let binding = json!({"metadata": {"name": name}, "roleRef": of, "subjects": account});
    create(&bindings, binding).await;
}

/// Waits until the API server has heard of them.
pub(crate) async fn effective(relay: Kubeconfig, units: &str) {
    let client = client_of(relay).await;
    for namespace in [units, &format!("{units}-relay")] {
        let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
        until("the relay's rights", async || secrets.list(&ListParams::default()).await.ok()).await;
    }
}

/// A right: group, resource, name of the object, verb.
pub(crate) type ApiRight = (String, String, String, String);

/// All that rules allow.
pub(crate) fn each<'a>(rules: impl IntoIterator<Item = &'a PolicyRule>) -> BTreeSet<ApiRight> {
    let mut all = BTreeSet::new();
    let any = vec![String::new()];
    for rule in rules {
        let (groups, resources) = (rule.api_groups.iter().flatten(), rule.resources.as_ref().unwrap_or(&any));
        for group in groups {
            for resource in resources {
                for name in rule.resource_names.as_ref().unwrap_or(&any) {
                    let verbs = rule.verbs.iter().cloned();
                    all.extend(verbs.map(|verb| (group.clone(), resource.clone(), name.clone(), verb)));
                }
            }
        }
    }
    all
}

/// Returns all rights of a user in a namespace, as `kubectl auth can-i --list` has them.
pub(crate) async fn of(user: Kubeconfig, namespace: &str) -> BTreeSet<ApiRight> {
    let api: Api<SelfSubjectRulesReview> = Api::all(client_of(user).await);
    let review: SelfSubjectRulesReview =
        serde_json::from_value(json!({"metadata": {}, "spec": {"namespace": namespace}})).unwrap();
    let status = api.create(&PostParams::default(), &review).await.unwrap().status.unwrap();
    assert!(!status.incomplete, "{status:?}");
    let rules = serde_json::to_value(&status.resource_rules).unwrap();
    each(&serde_json::from_value::<Vec<PolicyRule>>(rules).unwrap())
}
