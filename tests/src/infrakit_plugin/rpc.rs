//! JSON-RPC 2.0 over HTTP, with the statuses and texts of InfraKit's server.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, Method, StatusCode};
use axum::routing::any;
use serde::Deserialize;
use serde_json::{Value, json};

use super::folders::{InfraFolders, InfraType, ProvisionSpec};

/// The code of all errors of a plugin.
const PLUGIN_ERROR: i32 = -32000;
const INVALID_REQUEST: i32 = -32600;

struct RpcServer(Mutex<InfraFolders>);

/// Returns the routes of a plugin with these folders.
pub(super) fn router(folders: InfraFolders) -> Router {
    Router::new().route("/", any(receive)).with_state(Arc::new(RpcServer(folders.into())))
}

/// The parameters of all methods. `Properties` is a tree for `Validate`, and a boolean for `DescribeInstances`.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct RpcParams {
    #[serde(rename = "Type")]
    type_name: String,
    properties: Value,
    spec: ProvisionSpec,
    instance: String,
    tags: Option<BTreeMap<String, String>>,
}

impl RpcServer {
    /// Returns the body of the response. A request without an ID gets an empty one.
    fn respond(&self, body: &[u8]) -> String {
        let request: Value = serde_json::from_slice(body).unwrap_or_default();
        let (method, params, id) = (&request["method"], &request["params"], &request["id"]);
        let own = Some(params).filter(|own| !own.is_null());
        let own = own.map_or_else(|| Ok(RpcParams::default()), RpcParams::deserialize);
        let result = match (method.as_str(), own) {
            (Some(method), Ok(own)) if request["jsonrpc"] == "2.0" => {
                self.perform(method, &own).map_err(|message| (PLUGIN_ERROR, message))
            }
            (_, Err(error)) => Err((INVALID_REQUEST, error.to_string())),
            _ => Err((INVALID_REQUEST, "jsonrpc must be 2.0".to_owned())),
        };
        let (key, value) = match result {
            Ok(result) => ("result", result),
            Err((code, message)) => ("error", json!({"code": code, "message": message, "data": null})),
        };
        if id.is_null() { String::new() } else { format!("{}\n", json!({"jsonrpc": "2.0", key: value, "id": id})) }
    }

    fn perform(&self, method: &str, params: &RpcParams) -> Result<Value, String> {
        match *method.split('.').collect::<Vec<_>>() {
            ["Handshake", "Hello"] => {
                let objects = InfraType::ALL.map(|it| json!({"Name": it.name(), "ProxyFor": ""}));
                Ok(json!({"Objects": {"Instance/0.6.1": objects}}))
            }
            ["Instance", name @ ("Validate" | "Provision" | "DescribeInstances" | "Destroy")] => {
                let mut result = json!({"Type": params.type_name});
                let (key, value) = self.instance(name, params)?;
                result[key] = value;
                Ok(result)
            }
            ["Handshake" | "Instance", _] => Err(format!("rpc: can't find method {method:?}")),
            [_, _] => Err(format!("rpc: can't find service {method:?}")),
            _ => Err(format!("rpc: service/method request ill-formed: {method:?}")),
        }
    }

    /// Returns an entry of the result.
    fn instance(&self, method: &str, params: &RpcParams) -> Result<(&'static str, Value), String> {
        let RpcParams { type_name, properties, spec, instance, .. } = params;
        let infra_type = InfraType::parse(type_name).ok_or_else(|| format!("no-plugin:{type_name}"))?;
        let folders = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match method {
            "Provision" => return Ok(("ID", folders.provision(infra_type, spec)?.into())),
            "DescribeInstances" => {
                let tags = params.tags.clone().unwrap_or_default();
                return Ok(("Descriptions", folders.describe(infra_type, &tags, *properties == true)?.into()));
            }
            "Destroy" => folders.destroy(infra_type, instance)?,
            _ => infra_type.validate(properties)?,
        }
        Ok(("OK", true.into()))
    }
}

async fn receive(
    State(server): State<Arc<RpcServer>>,
    method: Method,
    headers: HeaderMap,
    body: Bytes,
) -> (StatusCode, String) {
    if method != Method::POST {
        return (StatusCode::METHOD_NOT_ALLOWED, format!("rpc: POST method required, received {method}"));
    }
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let content_type = content_type.split(';').next().unwrap_or_default();
    if !content_type.is_empty() && !content_type.eq_ignore_ascii_case("application/json") {
        let message = format!("rpc: unrecognized Content-Type: {content_type}");
        return (StatusCode::UNSUPPORTED_MEDIA_TYPE, message);
    }
    // A server in Go completes a request also if its client disconnects.
    let response = tokio::spawn(async move { server.respond(&body) }).await;
    response.map_or_else(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()), |it| (StatusCode::OK, it))
}
