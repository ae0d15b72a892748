//! Sends requests to Services, through the proxy of the API server.
//!
//! The API server permits a proxy by the name and the port of a Service, so the rights of the relay and its policy have
//! the same list. The relay needs no route to the Service.

use ebb_kube::podspec::AllowedService;
use ebb_protocol::limits::RESPONSE_BODY;
use ebb_protocol::relay::{ServiceRequest, ServiceResponse};
use http::header::CONTENT_TYPE;
use http_body_util::{BodyExt as _, Limited};
use k8s_openapi::api::core::v1::Service;
use kube::api::Api;
use kube::client::Body;
use serde::Deserialize;
use url::Url;

use crate::api_server::client::SendOnce;
use crate::batch::BatchContext;
use crate::{ReconcileError, Reconciler, Result, error_message, refuse, status};

/// Headers that a request may have, beside those that begin with a prefix of [`HEADER_PREFIXES`]. The API server obeys
/// others, for example `authorization` and `impersonate-user`.
const HEADERS: [&str; 4] = ["accept", "content-type", "idempotency-key", "traceparent"];
const HEADER_PREFIXES: [&str; 2] = ["ebb-", "webhook-"];

impl Reconciler {
    /// Sends a request to a Service of the policy, once.
    pub(crate) async fn call_service(
        &self,
        request: &ServiceRequest,
        received: &BatchContext,
    ) -> Result<ServiceResponse> {
        let (policy, name) = (self.policy.get(), &request.service);
        let Some(allowed) = policy.services.get(name) else {
            return refuse(policy.service_refusal(name).to_string());
        };
        let url = proxy_url(allowed, &request.path).map_err(ReconcileError::Refused)?;
        let http = http_request(request, &url).map_err(ReconcileError::Refused)?;
        let services: Api<Service> = Api::namespaced(self.client.clone(), &allowed.namespace);
        let service = services.get(&allowed.name).await.map_err(|error| match status(&error) {
            Some(403 | 404) => ReconcileError::Refused(format!("the service `{name}`: {}", error_message(&error))),
            _ => error.into(),
        })?;
        check_target(&service).map_err(|why| ReconcileError::Refused(format!("the service `{name}` {why}")))?;
        if u128::from(request.valid_for_ms) <= received.at.elapsed().as_millis() {
            return Err(ReconcileError::Internal("the request has expired and was not sent".to_owned()));
        }
        let response = self.client.send(http).await?;
        let status = response.status().as_u16();
        let content_type =
            response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let body = Limited::new(response.into_body(), RESPONSE_BODY).collect().await;
        let failed = |error| ReconcileError::Internal(format!("the response of the service `{name}`: {error}"));
        let body = body.map_err(failed)?.to_bytes();
        match proxy_error(status, &body) {
            Some(why) if status == 403 => refuse(format!("the service `{name}`: {why}")),
            Some(why) => Err(ReconcileError::Internal(format!("the service `{name}`: {why}"))),
            None => Ok(ServiceResponse { status, content_type, body: String::from_utf8_lossy(&body).into_owned() }),
        }
    }
}

/// Returns the path of a Service in the API server. A path with `..` could leave the proxy.
fn proxy_url(allowed: &AllowedService, path: &str) -> Result<String, String> {
    let AllowedService { namespace, name, port, path: prefix } = allowed;
    let full = format!("{prefix}{path}");
    let parsed = Url::parse(&format!("http://service{full}"));
    let is_plain = parsed.is_ok_and(|url| url.as_str() == format!("http://service{full}") && url.fragment().is_none());
    if !path.starts_with('/') || !is_plain || full.contains("//") {
        return Err(format!("the path `{path}` is not valid; expected `/` and an encoded path without `.` and `..`"));
    }
    Ok(format!("/api/v1/namespaces/{namespace}/services/{name}:{port}/proxy{full}"))
}

fn http_request(request: &ServiceRequest, url: &str) -> Result<http::Request<Body>, String> {
    if !matches!(request.method.as_str(), "GET" | "POST") {
        return Err(format!("the method `{}` is not allowed; expected `GET` or `POST`", request.method));
    }
    if request.body.len() > RESPONSE_BODY {
        return Err(format!("the body has {} bytes; at most {RESPONSE_BODY} are allowed", request.body.len()));
    }
    let mut http = http::Request::builder().method(request.method.as_str()).uri(url);
    for (name, value) in &request.headers {
        if !HEADERS.contains(&name.as_str()) && !HEADER_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) {
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
        let proxy = "/api/v1/namespaces/infra/services/files:8080/proxy";
        let rows = rows::<(String, String, Option<String>)>("paths_stay_below_the_path_of_the_policy");
        for (prefix, path, expected) in rows {
            let (namespace, name) = ("infra".to_owned(), "files".to_owned());
            let url = proxy_url(&AllowedService { namespace, name, port: 8080, path: prefix.clone() }, &path).ok();
            assert_eq!(url, expected.map(|path| format!("{proxy}{path}")), "{prefix} {path}");
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
