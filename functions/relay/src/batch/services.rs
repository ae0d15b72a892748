//! Sends requests to Services, through the proxy of the API server.
//!
//! The API server permits a proxy by the name and the port of a Service, so the rights of the relay and its policy have
//! the same list. The relay needs no route to the Service.

use std::time::Duration;

use ebb_kube::podspec::{AllowedService, ClusterPolicy, is_service_header};
use ebb_protocol::limits::{self, RESPONSE_BODY};
use ebb_protocol::relay::{NOT_SENT, ServiceCredential, ServiceRequest, ServiceResponse};
use ebb_protocol::sign::{self, MessageId, WEBHOOK_ID, WebhookKeys};
use ebb_protocol::unit::IDEMPOTENCY_KEY;
use ebb_protocol::{SecretRef, Timestamp};
use ebb_script::LogMask;
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body_util::{BodyExt as _, Limited};
use k8s_openapi::api::core::v1::Service;
use kube::api::Api;
use kube::client::Body;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::SemaphorePermit;
use tokio::time::timeout;
use url::Url;

use crate::api_server::client::SendOnce;
use crate::batch::BatchContext;
use crate::objects::documents::secret_bytes;
use crate::objects::references;
use crate::{ObjectRef, ReconcileError, Reconciler, Result, error_message, now_ms, refuse, status};

const METHODS: [&str; 5] = ["GET", "POST", "PUT", "PATCH", "DELETE"];
/// Formats of the API server, besides JSON.
const FOREIGN_FORMATS: [&str; 3] = ["application/yaml", "application/vnd.kubernetes.protobuf", "application/cbor"];
/// Minimum bytes of a credential. Masking shorter texts would damage responses.
const MIN_SECRET: usize = 8;
/// The beginning of the error of the API server if it has chosen no pod.
const NO_POD: &str = "no endpoints available";
/// The beginning of its error if it has no connection to the pod.
const NO_CONNECTION: &str = "error trying to reach service: dial tcp";

impl Reconciler {
    /// Sends a request to a Service of the policy, once.
    pub(crate) async fn call_service(
        &self,
        request: &ServiceRequest,
        received: &BatchContext,
    ) -> Result<ServiceResponse> {
        let (allowed, path) = target(&self.policy, request).map_err(ReconcileError::Refused)?;
        let proxy = proxy_of(allowed);
        let mut http = http_request(request, &format!("{proxy}{path}")).map_err(ReconcileError::Refused)?;
        // The rest of the time is for the Service.
        let time = Duration::from_millis(request.valid_for_ms / 2);
        let prepared = timeout(time, self.prepare(request, allowed, http.headers_mut())).await;
        let slow = "other requests to Services, or the API server, take too long".to_owned();
        let prepared = prepared.unwrap_or(Err(ReconcileError::Internal(slow)));
        let (_permit, secret) = prepared.map_err(|error| match error {
            ReconcileError::Refused(_) => error,
            other => ReconcileError::Internal(format!("{NOT_SENT}{other}")),
        })?;
        if u128::from(request.valid_for_ms) <= received.at.elapsed().as_millis() {
            return Err(ReconcileError::Internal(format!("{NOT_SENT}the request has expired")));
        }
        let (head, body) = self.client.send(http).await?.into_parts();
        let status = head.status.as_u16();
        let body = Limited::new(body, RESPONSE_BODY).collect().await;
        let name = &request.service;
        let failed = |error| ReconcileError::Internal(format!("the response of the service `{name}`: {error}"));
        let body = body.map_err(failed)?.to_bytes();
        let headers = head.headers.iter().filter(|(name, _)| *name != "audit-id").filter_map(|(name, value)| {
            let value = value.to_str().ok()?;
            // The API server puts its own path before that of a `location`.
            let value = value.split_once(&proxy).map_or(value, |(_, path)| path);
            Some((name.to_string(), secret.tail_text(value.as_bytes(), false, usize::MAX)))
        });
        // A Service can write such an error, too, or the API server shows a part of its response.
        let masked = |why: String| limits::message(&secret.tail_text(why.as_bytes(), false, usize::MAX));
        match proxy_error(status, &body).map(masked) {
            Some(why) if status == 403 => refuse(format!("the service `{name}`: {why}")),
            Some(why) => {
                let unsent = if is_unsent(request, &why) { NOT_SENT } else { "" };
                Err(ReconcileError::Internal(format!("{unsent}the service `{name}`: {why}")))
            }
            None => {
                let body = secret.tail_text(&body, false, usize::MAX);
                Ok(ServiceResponse { status, headers: headers.collect(), body })
            }
        }
    }

    /// Waits for the permit of a request, adds its credential, and checks its Service. Returns the mask for the response.
    async fn prepare(
        &self,
        request: &ServiceRequest,
        allowed: &AllowedService,
        headers: &mut HeaderMap,
    ) -> Result<(Option<SemaphorePermit<'_>>, LogMask)> {
        // This fails only if the semaphore is closed, which never happens.
        let permit = self.calls.acquire().await.ok();
        let (name, secret) = (&request.service, self.authorize(request, headers).await?);
        let services: Api<Service> = Api::namespaced(self.client.clone(), &allowed.namespace);
        let service = services.get(&allowed.name).await.map_err(|error| match status(&error) {
            Some(403 | 404) => ReconcileError::Refused(format!("the service `{name}`: {}", error_message(&error))),
            _ => error.into(),
        })?;
        check_target(&service).map_err(|why| ReconcileError::Refused(format!("the service `{name}` {why}")))?;
        Ok((permit, secret))
    }

    /// Adds the credential of a request to its headers. Returns the mask for the response. The Secret is in a namespace of the
    /// policy, and no unit has made it.
    async fn authorize(&self, request: &ServiceRequest, headers: &mut HeaderMap) -> Result<LogMask> {
        let Some(credential) = &request.credential else { return Ok(LogMask::default()) };
        let SecretRef { namespace, name, key, .. } = &credential.secret;
        let namespace = namespace.as_deref().unwrap_or_default();
        if let Some(violation) = self.policy.namespace_violation(namespace) {
            return refuse(format!("the Secret of the connection: {violation}"));
        }
        let object_ref = ObjectRef::secret(namespace, name);
        let secret = self.read(&object_ref).await?;
        if let Some(owner) = self.foreign_owner(&object_ref, secret.as_ref(), "").await? {
            return refuse(references::foreign(&object_ref, &owner));
        }
        let value = secret.and_then(|secret| String::from_utf8(secret_bytes(&secret, key)?).ok());
        let Some(value) = value else { return refuse(format!("{object_ref}: it has no text at the key {key:?}")) };
        let id = request.headers.iter().find(|(name, _)| name == WEBHOOK_ID).map(|(_, id)| id.as_str());
        let added = credential_headers(credential, &value, (id, &request.body));
        let wrong = |why| ReconcileError::Refused(format!("{object_ref}: the value of its key {key:?} {why}"));
        headers.extend(added.map_err(wrong)?);
        let escaped = json!(value).to_string();
        let forms = [value.as_str(), escaped.trim_matches('"')].into_iter().flat_map(str::split_whitespace);
        Ok(LogMask::new(forms.map(|form| form.as_bytes().to_vec())))
    }
}

/// Returns the headers of a credential, or the rest of a sentence about its value, which is not shown.
fn credential_headers(
    credential: &ServiceCredential,
    value: &str,
    (id, body): (Option<&str>, &str),
) -> Result<HeaderMap, String> {
    if value.len() < MIN_SECRET {
        return Err(format!("has {} bytes; expected at least {MIN_SECRET}", value.len()));
    }
    let headers = match &credential.header {
        Some(name) if !is_service_header(name) => return Err(format!("cannot be in the header `{name}`")),
        Some(_) if !value.bytes().all(|byte| byte.is_ascii_graphic()) => {
            return Err("contains characters other than visible ASCII, such as a line break".to_owned());
        }
        Some(name) => vec![(name.as_str(), format!("{}{value}", credential.prefix))],
        None => {
            let keys = WebhookKeys::parse(value).map_err(|error| format!("cannot sign: {error}"))?;
            let id = MessageId::parse(id.unwrap_or_default()).map_err(|error| format!("cannot sign: {error}"))?;
            sign::sign_with(&keys, &id, Timestamp(now_ms()), body.as_bytes()).to_vec()
        }
    };
    let parsed = |(name, value): &(&str, String)| -> Option<(HeaderName, HeaderValue)> {
        Some((name.parse().ok()?, value.parse().ok()?))
    };
    headers.iter().map(parsed).collect::<Option<HeaderMap>>().ok_or_else(|| "cannot be in a header".to_owned())
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
    let parsed = Url::parse(&format!("http://service{full}")).ok();
    let parsed = parsed.filter(|url| url.as_str() == format!("http://service{full}") && url.fragment().is_none());
    // At the root, the API server takes the path from a parameter of this name.
    let moves = |url: &Url| plain == "/" && url.query_pairs().any(|(name, _)| name == "path");
    // Some servers leave out what follows a semicolon in a segment, or read a backslash as a slash.
    let climbs = plain.replace("%2e", ".").split('/').any(|segment| segment.starts_with(".."));
    let is_plain = parsed.is_some_and(|url| !moves(&url)) && !climbs;
    if !path.starts_with('/') || !is_plain || ["//", "%2f", "%5c"].iter().any(|text| plain.contains(text)) {
        let expected = "`/` and an encoded path without `.`, `..`, `%2F`, `%5C`, and a parameter `path` of `/`";
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
        // The API server writes its own errors in an accepted format, and the relay recognises them as JSON.
        let lower = value.to_ascii_lowercase();
        if name == "accept" && FOREIGN_FORMATS.iter().any(|format| lower.contains(format)) {
            return Err(format!("the header `accept` cannot be `{value}`: the API server knows this format"));
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

/// Returns true if an error of the API server says that the Service has received nothing. Its proxy, `http.Transport` of Go,
/// repeats a request without a body on a new connection if it is a `GET` or has an `Idempotency-Key` (`Request.isReplayable`
/// in net/http/request.go), so that the error of the last connection says nothing about an earlier one.
fn is_unsent(request: &ServiceRequest, why: &str) -> bool {
    let is_key = |(name, _): &(String, String)| name.trim_start_matches("x-") == IDEMPOTENCY_KEY;
    let is_replayable = request.body.is_empty() && (request.method == "GET" || request.headers.iter().any(is_key));
    why.starts_with(NO_POD) || (!is_replayable && why.starts_with(NO_CONNECTION))
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
    fn the_value_of_a_secret_is_checked_and_not_shown() {
        for (header, value, expected) in rows::<(Option<String>, String, String)>("values_of_secrets_in_calls") {
            let credential = json!({"secret": {"name": "s", "key": "k"}, "header": header, "prefix": "Token "});
            let credential = serde_json::from_value(credential).unwrap();
            let found = credential_headers(&credential, &value, (Some("m-1"), "{}"));
            let names = found.as_ref().map(|headers| headers.keys().map(ToString::to_string).collect::<Vec<_>>());
            let text = names.map_or_else(Clone::clone, |names| names.join(" "));
            assert!(text.contains(&expected) && !text.contains("canary"), "{expected}: {text}");
        }
    }

    #[test]
    fn a_request_that_the_proxy_may_repeat_counts_as_sent() {
        let rows = rows::<(String, Vec<(String, String)>, String, String, bool)>("errors_of_the_proxy");
        for (method, headers, body, why, expected) in rows {
            let request = ServiceRequest { body, ..request(&method, &headers) };
            assert_eq!(is_unsent(&request, &why), expected, "{request:?} {why}");
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
