//! Sends requests to Services, through the proxy of the API server.
//!
//! The API server permits a proxy by the name and the port of a Service, so the rights of the relay and its policy have
//! the same list. The relay needs no route to the Service.

use ebb_kube::podspec::{AllowedService, ClusterPolicy, is_service_header};
use ebb_protocol::limits::RESPONSE_BODY;
use ebb_protocol::relay::{NOT_SENT, ServiceRequest, ServiceResponse};
use http_body_util::{BodyExt as _, Limited};
use k8s_openapi::api::core::v1::Service;
use kube::api::Api;
use kube::client::Body;
use serde::Deserialize;
use url::Url;

use crate::api_server::client::SendOnce;
use crate::batch::BatchContext;
use crate::{ReconcileError, Reconciler, Result, error_message, refuse, status};

const METHODS: [&str; 5] = ["GET", "POST", "PUT", "PATCH", "DELETE"];
/// The errors of the proxy before it has sent a request.
const UNSENT: [&str; 2] = ["no endpoints available", "dial tcp"];

impl Reconciler {
    /// Sends a request to a Service of the policy, once.
    pub(crate) async fn call_service(
        &self,
        request: &ServiceRequest,
        received: &BatchContext,
    ) -> Result<ServiceResponse> {
        let (policy, name) = (self.policy.get(), &request.service);
        let (allowed, path) = target(&policy, request).map_err(ReconcileError::Refused)?;
        let proxy = proxy_of(allowed);
        let http = http_request(request, &format!("{proxy}{path}")).map_err(ReconcileError::Refused)?;
        let services: Api<Service> = Api::namespaced(self.client.clone(), &allowed.namespace);
        let service = services.get(&allowed.name).await.map_err(|error| match status(&error) {
            Some(403 | 404) => ReconcileError::Refused(format!("the service `{name}`: {}", error_message(&error))),
            _ => error.into(),
        })?;
        check_target(&service).map_err(|why| ReconcileError::Refused(format!("the service `{name}` {why}")))?;
        if u128::from(request.valid_for_ms) <= received.at.elapsed().as_millis() {
            return Err(ReconcileError::Internal(format!("{NOT_SENT}the request has expired")));
        }
        let (head, body) = self.client.send(http).await?.into_parts();
        let status = head.status.as_u16();
        let body = Limited::new(body, RESPONSE_BODY).collect().await;
        let failed = |error| ReconcileError::Internal(format!("the response of the service `{name}`: {error}"));
        let body = body.map_err(failed)?.to_bytes();
        let headers = head.headers.iter().filter(|(name, _)| *name != "audit-id").filter_map(|(name, value)| {
            let value = value.to_str().ok()?;
            // The API server puts its own path before that of a `location`.
            Some((name.to_string(), value.split_once(&proxy).map_or(value, |(_, path)| path).to_owned()))
        });
        match proxy_error(status, &body) {
            Some(why) if status == 403 => refuse(format!("the service `{name}`: {why}")),
            Some(why) => {
                let unsent = if UNSENT.iter().any(|text| why.contains(text)) { NOT_SENT } else { "" };
                Err(ReconcileError::Internal(format!("{unsent}the service `{name}`: {why}")))
            }
            None => {
                let body = String::from_utf8_lossy(&body).into_owned();
                Ok(ServiceResponse { status, headers: headers.collect(), body })
            }
        }
    }
}

/// Returns the Service of a request and the whole path at it. A path with `..` could leave the proxy, and one with `%2F` the
/// path of the policy, because the API server decodes it.
fn target<'a>(policy: &'a ClusterPolicy, request: &ServiceRequest) -> Result<(&'a AllowedService, String), String> {
    let (service, path) = (&request.service, &request.path);
    let is_key = policy.services.contains_key(service);
    let at = |prefix: &str| if is_key { format!("{prefix}{path}") } else { path.clone() };
    let is_below = |allowed: &&AllowedService| {
        let rest = at(&allowed.path);
        rest.strip_prefix(&allowed.path).is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?']))
    };
    if policy.services_of(service).next().is_none() {
        return Err(policy.service_refusal(service).to_string());
    }
    let Some(allowed) = policy.services_of(service).find(is_below) else {
        let paths: Vec<&str> = policy.services_of(service).map(|allowed| allowed.path.as_str()).collect();
        return Err(format!(
            "the path `{path}` of the service `{service}` is not allowed by the policy of the cluster (`path`: {}); ask its \
             operator",
            paths.join(", ")
        ));
    };
    let full = at(&allowed.path);
    let plain = full.split('?').next().unwrap_or_default().to_ascii_lowercase();
    let parsed = Url::parse(&format!("http://service{full}"));
    let is_plain = parsed.is_ok_and(|url| url.as_str() == format!("http://service{full}") && url.fragment().is_none());
    if !path.starts_with('/') || !is_plain || plain.contains("//") || plain.contains("%2f") {
        let expected = "`/` and an encoded path without `.`, `..` and `%2F`";
        return Err(format!("the path `{path}` is not valid; expected {expected}"));
    }
    Ok((allowed, full))
}

/// Returns the path of a Service in the API server.
fn proxy_of(AllowedService { namespace, name, port, .. }: &AllowedService) -> String {
    format!("/api/v1/namespaces/{namespace}/services/{name}:{port}/proxy")
}

fn http_request(request: &ServiceRequest, url: &str) -> Result<http::Request<Body>, String> {
    if !METHODS.contains(&request.method.as_str()) {
        return Err(format!("the method `{}` is not allowed; expected {}", request.method, METHODS.join(", ")));
    }
    if request.body.len() > RESPONSE_BODY {
        return Err(format!("the body has {} bytes; at most {RESPONSE_BODY} are allowed", request.body.len()));
    }
    let mut http = http::Request::builder().method(request.method.as_str()).uri(url);
    for (name, value) in &request.headers {
        if !is_service_header(name) {
            return Err(format!("the header `{name}` is not allowed"));
        }
        http = http.header(name, value);
    }
    http.extension(SendOnce).body(Body::from(request.body.clone().into_bytes())).map_err(|error| error.to_string())
}

/// Checks that a Service leads to pods that its selector names, and not to the API server, a node or another host.
fn check_target(service: &Service) -> Result<(), &'static str> {
    let Some(spec) = &service.spec else { return Err("has no spec") };
    if spec.type_.as_deref() == Some("ExternalName") {
        return Err("is an alias of another host; only Services with a selector are allowed");
    }
    match &spec.selector {
        Some(selector) if !selector.is_empty() => Ok(()),
        _ => Err("has no selector; only Services with a selector are allowed"),
    }
}

/// Returns the error of the API server, which sends a `Status` in place of the response of the Service.
fn proxy_error(status: u16, body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct ApiStatus {
        kind: String,
        api_version: String,
        code: u16,
        message: String,
    }
    let error: ApiStatus = serde_json::from_slice(body).ok().filter(|_| status >= 400)?;
    (error.kind == "Status" && error.api_version == "v1" && error.code == status).then_some(error.message)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::test_api::rows;

    fn request(method: &str, headers: &[(String, String)]) -> ServiceRequest {
        let request = json!({"service": "files", "method": method, "path": "/", "headers": headers, "validForMs": 1});
        serde_json::from_value(request).unwrap()
    }

    #[test]
    fn paths_stay_below_the_path_of_the_policy() {
        let rows = rows::<(String, String, String, Option<String>)>("paths_stay_below_the_path_of_the_policy");
        for (prefix, service, path, expected) in rows {
            let allowed = json!({"namespace": "infra", "name": "plugin", "port": 8080, "path": prefix});
            let policy = serde_json::from_value(json!({"services": {"files": allowed}})).unwrap();
            let request = ServiceRequest { service, path, ..request("GET", &[]) };
            let found = target(&policy, &request).map(|(_, path)| path);
            assert_eq!(found.as_ref().ok(), expected.as_ref(), "{request:?}: {found:?}");
        }
    }

    #[test]
    fn headers_that_the_api_server_obeys_and_services_without_pods_are_refused() {
        let methods = "methods_and_headers_that_the_api_server_obeys_are_refused";
        for (method, headers, is_allowed) in rows::<(String, Vec<(String, String)>, bool)>(methods) {
            assert_eq!(http_request(&request(&method, &headers), "/x").is_ok(), is_allowed, "{method} {headers:?}");
        }
        for (spec, is_allowed) in rows::<(serde_json::Value, bool)>("services_without_selected_pods_are_refused") {
            let service = Service { spec: serde_json::from_value(spec.clone()).unwrap(), ..Service::default() };
            assert_eq!(check_target(&service).is_ok(), is_allowed, "{spec}");
        }
    }

    #[test]
    fn an_error_of_the_api_server_is_not_a_response_of_the_service() {
        let status = r#"{"kind": "Status", "apiVersion": "v1", "code": 503, "message": "no endpoints"}"#;
        assert_eq!(proxy_error(503, status.as_bytes()).as_deref(), Some("no endpoints"));
        for (status, body) in [(200, status), (404, status), (503, "{}"), (503, "no endpoints")] {
            assert_eq!(proxy_error(status, body.as_bytes()), None, "{status} {body}");
        }
    }
}
