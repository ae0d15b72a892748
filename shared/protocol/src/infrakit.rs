//! Requests to plugins of InfraKit and their responses: JSON-RPC 2.0 by `POST /`, one call per request.
//!
//! Source: the packages `pkg/rpc` and `pkg/spi` of InfraKit. A plugin responds with status 200 also to a call that
//! fails. Its `content-type` says nothing. All its errors have the code -32000 and a text for people.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::limits::message;
use crate::relay::ServiceRequest;

/// The method that returns the interfaces of a plugin.
pub const HELLO: &str = "Handshake.Hello";
/// The version of the interface `Instance`.
pub const INSTANCE: &str = "Instance/0.6.1";
/// The version of the interface `Resource`.
pub const RESOURCE: &str = "Resource/0.1.1";
/// The version of the interface `Controller`.
pub const CONTROLLER: &str = "Controller/0.1.1";
/// The operation of a change that makes the specification true.
pub const ENFORCE: u8 = 0;
/// The operation of a change that removes everything of the specification.
pub const DESTROY: u8 = 1;
/// The tag that Ebb gives to each instance. Its value is the `EBB_KEY` of the unit. Some providers allow only letters,
/// digits, `-` and `_` in a tag.
pub const KEY_TAG: &str = "ebb-key";

/// The ID of all requests. Each has its own connection.
const ID: u64 = 1;

/// Returns the call of a method of the plugin `name`. The relay must not send it after `valid_for_ms`.
pub fn service_request(name: &str, method: &str, params: &impl Serialize, valid_for_ms: u64) -> ServiceRequest {
    ServiceRequest {
        service: name.to_owned(),
        method: "POST".to_owned(),
        path: "/".to_owned(),
        // A plugin refuses a request without it.
        headers: vec![("content-type".to_owned(), "application/json".to_owned())],
        body: body(method, params),
        valid_for_ms,
    }
}

fn body(method: &str, params: &impl Serialize) -> String {
    #[derive(Serialize)]
    struct RpcRequest<'a, P> {
        jsonrpc: &'a str,
        method: &'a str,
        params: P,
        id: u64,
    }
    let request = RpcRequest { jsonrpc: "2.0", method, params, id: ID };
    serde_json::to_string(&request).expect("the parameters have only text keys")
}

/// A call without a result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RpcFailure {
    /// The plugin rejects the call. The value is its text.
    #[error("{0}")]
    Plugin(String),
    /// The response is not that of a plugin. The plugin may have executed the call.
    #[error("{0}")]
    Response(String),
}

/// Returns the result in a response.
///
/// # Errors
/// Returns [`RpcFailure`] if the plugin rejects the call, or if the response has another form.
pub fn result<T: DeserializeOwned>(status: u16, body: &str) -> Result<T, RpcFailure> {
    #[derive(Deserialize)]
    struct RpcResponse {
        id: Option<u64>,
        result: Option<Value>,
        error: Option<RpcError>,
    }
    #[derive(Deserialize)]
    struct RpcError {
        #[serde(default)]
        message: String,
    }
    let wrong = |why: String| RpcFailure::Response(message(&format!("the response is not that of a plugin: {why}")));
    if status != 200 {
        return Err(wrong(format!("expected status 200, got {status}: {}", body.trim())));
    }
    let response: RpcResponse = serde_json::from_str(body).map_err(|error| wrong(error.to_string()))?;
    if let Some(error) = response.error {
        return Err(RpcFailure::Plugin(message(&error.message)));
    }
    if response.id != Some(ID) {
        return Err(wrong(format!("expected id {ID}, got {:?}", response.id)));
    }
    let result = response.result.unwrap_or_default();
    serde_json::from_value(result).map_err(|error| wrong(format!("`result`: {error}")))
}

/// The parameters of [`HELLO`].
#[derive(Clone, Copy, Debug, Serialize)]
pub struct HelloParams {}

/// The result of [`HELLO`].
#[derive(Clone, Debug, Deserialize)]
pub struct HelloResult {
    /// The interfaces with their versions.
    #[serde(rename = "Objects")]
    pub objects: BTreeMap<String, Value>,
}

/// The parameters of `Instance.Validate`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct ValidateParams<'a> {
    pub r#type: &'a str,
    pub properties: &'a Value,
}

/// The parameters of `Instance.Provision`. A repetition makes another instance.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct ProvisionParams<'a> {
    pub r#type: &'a str,
    pub spec: InstanceSpec<'a>,
}

/// An instance that is to be made.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct InstanceSpec<'a> {
    pub properties: &'a Value,
    pub tags: &'a BTreeMap<String, String>,
    pub init: &'a str,
    #[serde(rename = "LogicalID")]
    pub logical_id: Option<&'a str>,
    pub attachments: Option<&'a Value>,
}

/// The result of `Instance.Provision`.
#[derive(Clone, Debug, Deserialize)]
pub struct ProvisionResult {
    #[serde(rename = "ID")]
    pub id: String,
}

/// The parameters of `Instance.DescribeInstances`. Instances have all of `tags`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct DescribeParams<'a> {
    pub r#type: &'a str,
    pub tags: BTreeMap<&'a str, &'a str>,
    pub properties: bool,
}

/// The result of `Instance.DescribeInstances`.
#[derive(Clone, Debug, Deserialize)]
pub struct DescribeResult {
    /// The instances: `ID`, `LogicalID`, `Tags` and `Properties`.
    #[serde(rename = "Descriptions", default)]
    pub descriptions: Option<Vec<Value>>,
}

/// The parameters of `Instance.Destroy`. The call fails for an unknown instance.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct DestroyParams<'a> {
    pub r#type: &'a str,
    pub instance: &'a str,
    pub context: DestroyContext,
}

/// The reason of `Instance.Destroy`.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct DestroyContext {
    pub reason: &'static str,
}

impl DestroyContext {
    pub const TERMINATE: Self = Self { reason: "terminate" };
}

/// The parameters of `Resource.Commit`, `Resource.Destroy` and, without `pretend`, `Resource.DescribeResources`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct ResourceParams<'a> {
    pub spec: CollectionSpec<'a>,
    /// True for a call that changes nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pretend: Option<bool>,
}

/// A collection of a Resource plugin.
#[derive(Clone, Debug, Serialize)]
pub struct CollectionSpec<'a> {
    #[serde(rename = "ID", skip_serializing_if = "str::is_empty")]
    pub id: &'a str,
    #[serde(rename = "Properties")]
    pub properties: &'a Value,
}

/// The result of the methods of `Resource`: a line per resource, such as `Found A (id)`.
#[derive(Clone, Debug, Deserialize)]
pub struct ResourceResult {
    #[serde(rename = "Details", default)]
    pub details: String,
}

impl ResourceResult {
    /// Returns the result as a value: `Details`, and `IDs` by the name of the resource.
    pub fn to_value(&self) -> Value {
        let ids = self.details.lines().filter_map(|line| {
            let (verb, rest) = line.split_once(' ')?;
            let (name, id) = rest.strip_suffix(')')?.rsplit_once(" (")?;
            matches!(verb, "Provisioned" | "Found").then(|| (name.to_owned(), Value::from(id)))
        });
        let ids: serde_json::Map<String, Value> = ids.collect();
        serde_json::json!({"Details": self.details, "IDs": ids})
    }
}

/// The parameters of `Controller.Plan` and `Controller.Commit`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct ChangeParams<'a> {
    pub name: &'a str,
    /// [`ENFORCE`] or [`DESTROY`].
    pub operation: u8,
    pub spec: &'a Value,
}

/// The result of `Controller.Plan` and `Controller.Commit`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ChangeResult {
    #[serde(default)]
    pub object: Value,
    #[serde(default)]
    pub plan: ChangePlan,
}

/// The effect of a change, for people.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ChangePlan {
    #[serde(default)]
    pub message: Option<Vec<String>>,
}

/// The parameters of `Controller.Describe`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct FindParams<'a> {
    pub name: &'a str,
    pub metadata: &'a Value,
}

/// The result of `Controller.Describe`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct FindResult {
    #[serde(default)]
    pub objects: Option<Vec<Value>>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn requests_have_the_fields_of_infrakit_in_their_order() {
        let (properties, attachments) = (json!({"size": 1}), json!([{"ID": "d", "Type": "disk"}]));
        let tags = BTreeMap::from([("b".to_owned(), "2".to_owned()), ("a".to_owned(), "1".to_owned())]);
        let spec = |full: bool| InstanceSpec {
            properties: &properties,
            tags: &tags,
            init: "echo",
            logical_id: full.then_some("l"),
            attachments: full.then_some(&attachments),
        };
        let resource = |id, pretend| ResourceParams { spec: CollectionSpec { id, properties: &properties }, pretend };
        let found = BTreeMap::from([("a", "1")]);
        let controller = json!({"kind": "group"});
        let context = DestroyContext::TERMINATE;
        let params = [
            json_text(&HelloParams {}),
            json_text(&ValidateParams { r#type: "disk", properties: &properties }),
            json_text(&ProvisionParams { r#type: "", spec: spec(false) }),
            json_text(&ProvisionParams { r#type: "", spec: spec(true) }),
            json_text(&DescribeParams { r#type: "", tags: found, properties: true }),
            json_text(&DestroyParams { r#type: "", instance: "i", context }),
            json_text(&resource("c", Some(true))),
            json_text(&resource("", None)),
            json_text(&ChangeParams { name: "group", operation: DESTROY, spec: &controller }),
            json_text(&FindParams { name: "group", metadata: &controller }),
        ];
        let expected = [
            "{}",
            r#"{"Type":"disk","Properties":{"size":1}}"#,
            r#"{"Type":"","Spec":{"Properties":{"size":1},"Tags":{"a":"1","b":"2"},"Init":"echo","LogicalID":null,"Attachments":null}}"#,
            r#"{"Type":"","Spec":{"Properties":{"size":1},"Tags":{"a":"1","b":"2"},"Init":"echo","LogicalID":"l","Attachments":[{"ID":"d","Type":"disk"}]}}"#,
            r#"{"Type":"","Tags":{"a":"1"},"Properties":true}"#,
            r#"{"Type":"","Instance":"i","Context":{"Reason":"terminate"}}"#,
            r#"{"Spec":{"ID":"c","Properties":{"size":1}},"Pretend":true}"#,
            r#"{"Spec":{"Properties":{"size":1}}}"#,
            r#"{"Name":"group","Operation":1,"Spec":{"kind":"group"}}"#,
            r#"{"Name":"group","Metadata":{"kind":"group"}}"#,
        ];
        assert_eq!(params, expected);
        let hello = body(HELLO, &HelloParams {});
        assert_eq!(hello, r#"{"jsonrpc":"2.0","method":"Handshake.Hello","params":{},"id":1}"#);
    }

    fn json_text(params: &impl Serialize) -> String {
        serde_json::to_string(params).unwrap()
    }

    #[test]
    fn a_response_is_a_result_or_an_error_with_its_text() {
        let rejected = |text: &str| Err(RpcFailure::Plugin(text.to_owned()));
        for (status, body, expected) in [
            (200, r#"{"jsonrpc":"2.0","result":{"Details":"x"},"id":1}"#, Ok("x")),
            (200, r#"{"jsonrpc":"2.0","result":{},"id":1}"#, Ok("")),
            (
                200,
                r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"in use","data":null},"id":1}"#,
                rejected("in use"),
            ),
            // An error outweighs a result, and a request that cannot be parsed has no id.
            (200, r#"{"error":{"code":-32700},"id":null}"#, rejected("")),
        ] {
            let found = result::<ResourceResult>(status, body).map(|found| found.details);
            assert_eq!(found, expected.map(str::to_owned), "{body}");
        }
        for (status, body, why) in [
            (415, "unsupported", "expected status 200, got 415: unsupported"),
            (200, "", "EOF"),
            (200, "<html>", "expected value"),
            (200, "[]", "invalid length"),
            (200, r#"{"result":{"Details":"x"},"id":4}"#, "expected id 1, got Some(4)"),
            (200, r#"{"result":{"Details":1},"id":1}"#, "`result`"),
            (200, r#"{"result":null,"id":1}"#, "`result`"),
        ] {
            let error = result::<ResourceResult>(status, body).unwrap_err();
            assert!(matches!(&error, RpcFailure::Response(text) if text.contains(why)), "{body}: {error}");
        }
    }

    #[test]
    fn the_ids_of_a_collection_are_in_its_details() {
        let details = "Found A (i-1)\nProvisioned B b (c) (i-2)\nWould destroy C (i-3)\nFound D".to_owned();
        let ids = ResourceResult { details }.to_value()["IDs"].clone();
        assert_eq!(ids, json!({"A": "i-1", "B b (c)": "i-2"}));
    }
}
