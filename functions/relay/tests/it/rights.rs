//! Clients of the API server, and the rights of the relay in its chart (`infra/relay/chart/rights.yaml`). The tests use these
//! rights, and the grants of an operator for further kinds.

use std::collections::BTreeSet;

use k8s_openapi::api::authorization::v1::SelfSubjectRulesReview;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding};
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::cluster::{TestCluster, cluster, root};
use crate::fixture::create;

/// Returns a client with the rights of the administrator. Each test has its own runtime and therefore its own client.
pub(crate) async fn client() -> Client {
    client_of(Kubeconfig::read_from(&cluster().await.kubeconfig).unwrap()).await
}

pub(crate) fn kubeconfig_of(cluster: &TestCluster, namespace: &str, account: &str) -> Kubeconfig {
    let mut kubeconfig = Kubeconfig::read_from(&cluster.kubeconfig).unwrap();
    let administrator = kubeconfig.auth_infos[0].auth_info.as_mut().unwrap();
    administrator.impersonate = Some(format!("system:serviceaccount:{namespace}:{account}"));
    kubeconfig
}

pub(crate) async fn client_of(kubeconfig: Kubeconfig) -> Client {
    Client::try_from(Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap()).unwrap()
}

#[derive(Deserialize)]
pub(crate) struct ChartRights {
    pub(crate) own: Vec<PolicyRule>,
    pub(crate) units: Vec<PolicyRule>,
    pub(crate) services: Vec<PolicyRule>,
    pub(crate) namespaces: Vec<PolicyRule>,
    pub(crate) cluster: Vec<PolicyRule>,
}

pub(crate) fn rights() -> ChartRights {
    serde_saphyr::from_str(&std::fs::read_to_string(root().join("infra/relay/chart/rights.yaml")).unwrap()).unwrap()
}

/// Returns the rule that an operator adds for a kind.
pub(crate) fn rule_for(group: &str, resource: &str) -> Value {
    let verbs = ["get", "list", "watch", "create", "patch", "delete"];
    json!({"apiGroups": [group], "resources": [resource], "verbs": verbs})
}

/// Grants the account `ebb-relay` of `UNITS-relay` the rights of the chart in both namespaces.
pub(crate) async fn grant(client: &Client, units: &str) {
    let ChartRights { own, units: in_units, namespaces, cluster, .. } = rights();
    let cluster = [cluster, namespaces].concat();
    let kinds = json!([rule_for("", "configmaps"), rule_for("apps", "deployments")]);
    for (namespace, name, rules) in
        [(&*format!("{units}-relay"), "own", json!(own)), (units, "units", json!(in_units)), (units, "further", kinds)]
    {
        grant_role(client, units, namespace, name, rules).await;
    }
    let [mut role, binding]: [Value; 2] = serde_saphyr::from_str(include_str!("rights/cluster.yaml")).unwrap();
    role["rules"] = json!(cluster);
    let apply = PatchParams::apply("tests");
    Api::<ClusterRole>::all(client.clone()).patch("ebb-tests", &apply, &Patch::Apply(role)).await.unwrap();
    Api::<ClusterRoleBinding>::all(client.clone()).patch("ebb-tests", &apply, &Patch::Apply(binding)).await.unwrap();
}

/// Grants the account `ebb-relay` of `UNITS-relay` further rights in a namespace, by a role of this name.
pub(crate) async fn grant_role(client: &Client, units: &str, namespace: &str, name: &str, rules: Value) {
    let (roles, bindings) =
        (Api::<Role>::namespaced(client.clone(), namespace), Api::<RoleBinding>::namespaced(client.clone(), namespace));
    create(&roles, json!({"metadata": {"name": name}, "rules": rules})).await;
    let role_ref = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name});
    let account = json!([{"kind": "ServiceAccount", "name": "ebb-relay", "namespace": format!("{units}-relay")}]);
    create(&bindings, json!({"metadata": {"name": name}, "roleRef": role_ref, "subjects": account})).await;
}

/// Group, resource, name of the object, and verb.
pub(crate) type ApiRight = (String, String, String, String);

pub(crate) fn expand<'a>(rules: impl IntoIterator<Item = &'a PolicyRule>) -> BTreeSet<ApiRight> {
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

/// Returns all rights of a user in a namespace, like `kubectl auth can-i --list`.
pub(crate) async fn rights_of(user: Kubeconfig, namespace: &str) -> BTreeSet<ApiRight> {
    let api: Api<SelfSubjectRulesReview> = Api::all(client_of(user).await);
    let review: SelfSubjectRulesReview =
        serde_json::from_value(json!({"metadata": {}, "spec": {"namespace": namespace}})).unwrap();
    let status = api.create(&PostParams::default(), &review).await.unwrap().status.unwrap();
    assert!(!status.incomplete, "{status:?}");
    expand(&serde_json::from_value::<Vec<PolicyRule>>(serde_json::to_value(&status.resource_rules).unwrap()).unwrap())
}
