//! The manifests of a relay, and the values with which helm renders the same objects from the chart.
//!
//! The manifests are those of the chart, with other values. A test compares both with objects that helm has rendered.

use std::collections::{BTreeMap, BTreeSet};

use ebb_documents::compile::{AllowedService, PodSecurityLevel};
use serde_json::{Value, json};

use super::options::{ClusterOptions, PolicyProfile, api, server};
use crate::exit::{CliError, Result};

/// The manifests of the chart, with placeholders.
const MANIFESTS: &str = include_str!("../../../../../infra/relay/manifests.yaml");
/// The rights of the relay.
const RIGHTS: &str = include_str!("../../../../../infra/relay/chart/rights.yaml");
/// The namespace of units in [`MANIFESTS`].
const UNITS: &str = "namespace-of-units";
/// The Secret with the bootstrap token.
const BOOTSTRAP: &str = "ebb-relay-bootstrap";
/// The Secret with the secret of a relay that does not register itself.
const SIGNING: &str = "ebb-relay-signing";

/// A relay that is to be installed.
pub(super) struct RelayInstallation<'a> {
    /// The name of the cluster in the control plane.
    pub(super) cluster: &'a str,
    pub(super) options: &'a ClusterOptions,
    /// The URL of the control plane's API.
    pub(super) api_url: &'a str,
    pub(super) callback_url: &'a str,
    pub(super) credential: RelayCredential<'a>,
}

#[derive(Clone, Copy)]
pub(super) enum RelayCredential<'a> {
    /// The token with which the relay registers itself. Without one, the relay is registered already.
    Bootstrap(Option<&'a str>),
    /// The secret that signs batches.
    Signing(&'a str),
}

impl RelayInstallation<'_> {
    /// Returns the values of the chart.
    pub(super) fn values(&self) -> Result<Value> {
        let options = self.options;
        let (_, hosts) = self.callback_host()?;
        let polls = options.push_url.is_none();
        let all = options.all_namespaces();
        let namespaces: Vec<&String> = std::iter::once(&options.relay_namespace).chain(all.keys()).collect();
        let mut values = json!({
            "image": options.image,
            "callbackHosts": [hosts],
            "pull": {"url": if polls { self.api_url } else { "" }, "cluster": self.cluster},
            "unitNamespace": options.unit_namespace,
            "profile": options.profile,
            "policy": {
                "namespaces": all, "bindNamespaces": options.bind_namespaces, "services": options.services,
            },
            "grantedKinds": options.kinds,
            "createNamespaces": namespaces,
        });
        match self.credential {
            RelayCredential::Bootstrap(token) => {
                let url = if polls { "" } else { self.api_url };
                values["bootstrap"] = json!({"token": token.unwrap_or_default(), "url": url});
            }
            RelayCredential::Signing(secret) => values["signing"] = json!({"secret": secret}),
        }
        Ok(values)
    }

    /// Returns the manifests as YAML.
    pub(super) fn manifests(&self) -> Result<String> {
        yaml(&self.objects()?)
    }

    /// Returns all objects.
    fn objects(&self) -> Result<Vec<Value>> {
        let (callback_port, callback_host) = self.callback_host()?;
        // No text has two of them.
        let placeholders = [
            ("namespace-of-relay", self.options.relay_namespace.as_str()),
            ("image-of-relay", &self.options.image),
            ("host-of-control-plane:44443", &callback_host),
            ("https://api-of-control-plane:44444", self.api_url),
            ("name-of-cluster", self.cluster),
        ];
        let template: Vec<Value> = serde_saphyr::from_multiple(MANIFESTS).expect("the manifests of the chart are YAML");
        let rights: Value = serde_saphyr::from_str(RIGHTS).expect("the rights of the chart are YAML");
        let policy = self.options.policy();
        let namespaces = &policy.namespaces;
        let names = json!(namespaces.keys().collect::<Vec<_>>());
        let readable: BTreeSet<_> = namespaces.keys().chain(&self.options.bind_namespaces).collect();
        let mut objects = Vec::new();
        for mut object in template {
            fill(&mut object, &placeholders);
            let is_of_units = object["metadata"]["namespace"] == UNITS || object["metadata"]["name"] == UNITS;
            if is_of_units {
                objects.extend(
                    namespaces.keys().map(|name| self.in_namespace(&object, name, policy.level(name), &rights)),
                );
                continue;
            }
            match object["kind"].as_str().unwrap_or_default() {
                "Secret" => {
                    let data = match self.credential {
                        RelayCredential::Bootstrap(Some(token)) => json!({"token": token}),
                        RelayCredential::Bootstrap(None) => continue,
                        RelayCredential::Signing(secret) => json!({"secret": secret}),
                    };
                    object["metadata"]["name"] = self.secret().into();
                    object["stringData"] = data;
                }
                "ConfigMap" => object["data"]["policy.yaml"] = encoded(&json!(policy))?.into(),
                // The second rule has the namespaces of units and of bound objects.
                "ClusterRole" if object["rules"][1].is_object() => {
                    object["rules"][1]["resourceNames"] = json!(readable)
                }
                "NetworkPolicy" => {
                    let peer = &mut object["spec"]["ingress"][0]["from"][0]["namespaceSelector"];
                    peer["matchExpressions"][0]["values"] = names.clone();
                    object["spec"]["egress"][1]["ports"] = self.ports(callback_port)?;
                }
                "ValidatingAdmissionPolicy" => {
                    let variables = &mut object["spec"]["variables"];
                    let levels = namespaces.keys().map(|name| (name, policy.level(name).enforced()));
                    variables[0]["expression"] = json!(levels.collect::<BTreeMap<_, _>>()).to_string().into();
                    let accounts = namespaces.iter().map(|(name, entry)| (name, &entry.service_accounts));
                    variables[1]["expression"] = json!(accounts.collect::<BTreeMap<_, _>>()).to_string().into();
                }
                "Deployment" => self.complete_deployment(&mut object),
                _ => {}
            }
            objects.push(object);
        }
        for namespace in namespaces.keys() {
            for (kind, plural) in &self.options.kinds {
                objects.extend(self.role(kind, namespace, kind_rights(&rights, kind, plural)));
            }
        }
        for namespace in &self.options.bind_namespaces {
            objects.extend(self.role("bind", namespace, rights["bind"].clone()));
        }
        for (key, service) in &self.options.services {
            objects.extend(self.role(key, &service.namespace, service_rights(&rights, service)));
        }
        Ok(objects)
    }

    /// Returns an object of the namespace of units as that of another namespace.
    fn in_namespace(&self, object: &Value, name: &str, level: PodSecurityLevel, rights: &Value) -> Value {
        let mut object = object.clone();
        if object["kind"] == "Namespace" {
            object["metadata"]["name"] = name.into();
            for mode in ["enforce", "warn"] {
                object["metadata"]["labels"][format!("pod-security.kubernetes.io/{mode}")] = level.name().into();
            }
            return object;
        }
        object["metadata"]["namespace"] = name.into();
        if self.options.profile == PolicyProfile::Signadot
            && let Some(rules) = object.get_mut("rules").and_then(Value::as_array_mut)
        {
            rules.extend(rights["signadot"].as_array().into_iter().flatten().cloned());
        }
        object
    }

    fn complete_deployment(&self, object: &mut Value) {
        let pod = &mut object["spec"]["template"];
        let registers = matches!(self.credential, RelayCredential::Bootstrap(_));
        if let RelayCredential::Signing(secret) = self.credential {
            let digest = ebb_protocol::id::digest(secret.as_bytes());
            let settings = digest.strip_prefix("sha256:").unwrap_or(&digest);
            pod["metadata"]["annotations"]["ebb.dev/settings"] = settings.into();
        }
        let polls = self.options.push_url.is_none();
        let variables = pod["spec"]["containers"][0]["env"].as_array_mut().into_iter().flat_map(std::mem::take);
        let mut environment = Vec::new();
        for mut variable in variables {
            match variable["name"].as_str().unwrap_or_default() {
                "EBB_RELAY_UNIT_NAMESPACE" => variable["value"] = self.options.unit_namespace.as_str().into(),
                "EBB_BOOTSTRAP_TOKEN_FILE" if !registers => {
                    variable = json!({"name": "EBB_RELAY_SECRET", "value": "/etc/ebb/credentials/secret"});
                }
                "EBB_RELAY_PULL_URL" if !polls => continue,
                "EBB_RELAY_CLUSTER" if !polls && registers => {
                    environment.push(variable);
                    variable = json!({"name": "EBB_URL", "value": self.api_url});
                }
                _ => {}
            }
            environment.push(variable);
        }
        pod["spec"]["containers"][0]["env"] = environment.into();
        let credentials = &mut pod["spec"]["volumes"][1]["secret"];
        (credentials["secretName"], credentials["optional"]) = (self.secret().into(), registers.into());
    }

    /// Returns a Role of the relay in a namespace, with its binding.
    fn role(&self, key: &str, namespace: &str, rules: Value) -> [Value; 2] {
        let relay = &self.options.relay_namespace;
        let (name, rbac) = (format!("ebb-relay:{relay}:{key}"), "rbac.authorization.k8s.io");
        let role = json!({
            "apiVersion": format!("{rbac}/v1"), "kind": "Role", "metadata": self.metadata(&name, namespace), "rules": rules,
        });
        let binding = json!({
            "apiVersion": format!("{rbac}/v1"), "kind": "RoleBinding", "metadata": self.metadata(&name, namespace),
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": "ebb-relay", "namespace": relay}],
        });
        [role, binding]
    }

    fn metadata(&self, name: &str, namespace: &str) -> Value {
        metadata(&self.options.relay_namespace, name, namespace)
    }

    /// Returns the name of the Secret with the credential.
    fn secret(&self) -> &'static str {
        if matches!(self.credential, RelayCredential::Bootstrap(_)) { BOOTSTRAP } else { SIGNING }
    }

    /// Returns the port of the callbacks, and their host with the port.
    fn callback_host(&self) -> Result<(u16, String)> {
        let (host, port) = server(self.callback_url, "--callback-url")?;
        Ok((port, format!("{host}:{port}")))
    }

    /// Returns the ports of the control plane, in the order of the chart.
    fn ports(&self, callback_port: u16) -> Result<Value> {
        let mut ports = BTreeSet::from([callback_port.to_string()]);
        let registers = matches!(self.credential, RelayCredential::Bootstrap(_));
        if registers || self.options.push_url.is_none() {
            ports.insert(api(self.api_url, "--pull-url")?.1.to_string());
        }
        let ports = ports.iter().filter_map(|port| port.parse::<u16>().ok());
        Ok(ports.map(|port| json!({"protocol": "TCP", "port": port})).collect())
    }
}

/// Returns the Secret with a bootstrap token, as YAML.
pub(super) fn bootstrap_secret(relay_namespace: &str, token: &str) -> Result<String> {
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": metadata(relay_namespace, BOOTSTRAP, relay_namespace),
        "stringData": {"token": token},
    });
    yaml(&[secret])
}

/// Returns the commands that delete what former options have made and the new ones do not need. `kubectl apply` deletes
/// nothing. Without new options, the namespace and the cluster-wide objects of the relay are deleted, too, when the relay has
/// deleted the objects of ended tasks, or after a minute.
pub(super) fn removals(former: &ClusterOptions, new: Option<&ClusterOptions>) -> Vec<String> {
    let of = |options: &ClusterOptions| -> BTreeSet<(String, String)> {
        let name = format!("ebb-relay:{}", options.relay_namespace);
        let all = options.all_namespaces();
        let units = all.keys().flat_map(|namespace| {
            let names = [format!("role/{name}"), format!("rolebinding/{name}"), format!("rolebinding/{name}:granted")];
            names.map(|object| (namespace.clone(), object))
        });
        let kinds = all.keys().flat_map(|namespace| options.kinds.keys().map(move |kind| (namespace, kind.as_str())));
        let bind = options.bind_namespaces.iter().map(|namespace| (namespace, "bind"));
        let services = options.services.iter().map(|(key, service)| (&service.namespace, key.as_str()));
        let further = kinds.chain(bind).chain(services).flat_map(|(namespace, key)| {
            ["role", "rolebinding"].map(|kind| (namespace.clone(), format!("{kind}/{name}:{key}")))
        });
        units.chain(further).collect()
    };
    let mut by_namespace = BTreeMap::<String, Vec<String>>::new();
    for (namespace, object) in of(former).difference(&new.map(of).unwrap_or_default()) {
        by_namespace.entry(namespace.clone()).or_default().push(object.clone());
    }
    let relay = &former.relay_namespace;
    let whole = new.is_none().then(|| {
        let (policy, role) = (format!("ebb-relay.{relay}"), format!("ebb-relay:{relay}"));
        let records = format!("--namespace {relay} --selector ebb.dev/part=record");
        [
            format!(
                "kubectl wait secrets {records} --for=jsonpath='{{.metadata.labels.ebb\\.dev/phase}}'=tombstone --timeout=1m"
            ),
            format!("kubectl delete deployment ebb-relay --namespace {relay} --cascade=foreground --ignore-not-found"),
            // The finalizer of a record that is needed would block the deletion of the namespace.
            format!(
                "kubectl get secrets {records} --output name | xargs -r -n 1 kubectl patch --namespace {relay} --type merge \
                 --patch '{{\"metadata\": {{\"finalizers\": null}}}}'"
            ),
            format!("kubectl delete namespace {relay} --ignore-not-found"),
            format!(
                "kubectl delete --ignore-not-found validatingadmissionpolicybinding/{policy} \
                 validatingadmissionpolicy/{policy} clusterrolebinding/{role} clusterrole/{role} clusterrole/{role}:granted"
            ),
        ]
    });
    let roles = by_namespace.iter().map(|(namespace, objects)| {
        format!("kubectl delete --ignore-not-found --namespace {namespace} {}", objects.join(" "))
    });
    whole.into_iter().flatten().chain(roles).collect()
}

fn metadata(relay_namespace: &str, name: &str, namespace: &str) -> Value {
    json!({
        "name": name,
        "namespace": namespace,
        "labels": {
            "app.kubernetes.io/name": "ebb-relay",
            "app.kubernetes.io/instance": "ebb-relay",
            "app.kubernetes.io/managed-by": "Helm",
        },
        "annotations": {
            "meta.helm.sh/release-name": "ebb-relay",
            "meta.helm.sh/release-namespace": relay_namespace,
        },
    })
}

/// Returns the rights to objects of a kind.
fn kind_rights(rights: &Value, kind: &str, plural: &str) -> Value {
    let group = kind.split_once('.').map_or("", |(_, group)| group);
    let rules = rights["kinds"].as_array().into_iter().flatten().map(|rule| {
        let mut rule = rule.clone();
        (rule["apiGroups"], rule["resources"]) = (json!([group]), json!([plural]));
        rule
    });
    rules.collect()
}

/// Returns the rights to call a Service.
fn service_rights(rights: &Value, service: &AllowedService) -> Value {
    let rules = rights["services"].as_array().into_iter().flatten().map(|rule| {
        let mut rule = rule.clone();
        let is_proxy = rule["resources"] == json!(["services/proxy"]);
        let name = if is_proxy { format!("{}:{}", service.name, service.port) } else { service.name.clone() };
        rule["resourceNames"] = json!([name]);
        rule
    });
    rules.collect()
}

/// Replaces placeholders in all texts.
fn fill(value: &mut Value, placeholders: &[(&str, &str)]) {
    match value {
        Value::String(text) => {
            if let Some((placeholder, new)) = placeholders.iter().find(|(placeholder, _)| text.contains(*placeholder)) {
                *text = text.replace(*placeholder, new);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| fill(item, placeholders)),
        Value::Object(fields) => fields.values_mut().for_each(|field| fill(field, placeholders)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Returns a value as YAML.
pub(super) fn encoded(value: &Value) -> Result<String> {
    serde_saphyr::to_string(value).map_err(|error| CliError::broken("cannot write YAML").with_causes(&error))
}

fn yaml(objects: &[Value]) -> Result<String> {
    serde_saphyr::to_string_multiple(objects).map_err(|error| CliError::broken("cannot write YAML").with_causes(&error))
}
